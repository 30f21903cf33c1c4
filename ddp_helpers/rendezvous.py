"""A torchrun rendezvous for one machine: every socket of it listens on loopback, and nobody waits.

``torchrun --rdzv-backend loopback --nproc-per-node 4 train.py`` works in any terminal where ddp_helpers is installed
(torchrun finds it through the entry point ``torchrun.handlers``). torch's own c10d rendezvous listens on every
interface of the machine, also with ``--standalone``, and sleeps a random 0 to 0.3 s before its first round
(``_delay`` in torch's dynamic_rendezvous.py).
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from datetime import timedelta

from torch.distributed import PrefixStore, TCPStore
from torch.distributed.elastic.rendezvous import (
    RendezvousHandler,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousStoreInfo,
)

HOST = "127.0.0.1"
JOIN_TIMEOUT = timedelta(seconds=60)


class LoopbackRendezvous(RendezvousHandler):
    """Node 0 opens the store, the other (simulated) nodes of this machine join it; their number is fixed."""

    def __init__(self, params: RendezvousParameters) -> None:
        _, _, port = params.endpoint.rpartition(":")
        self._port = int(port or 0)
        self._node = int(params.get("node", 0))
        self._nodes = params.max_nodes
        self._run_id = params.run_id
        self._round = 0
        self._store: TCPStore | None = None

    def get_backend(self) -> str:
        return "loopback"

    @property
    def use_agent_store(self) -> bool:
        return True

    def next_rendezvous(self) -> RendezvousInfo:
        # A new store for each round when we choose the port: gloo addresses of ranks that died stay in a store
        # that is used again, and the restarted ranks connect to them (compare pytorch#135712).
        if self._store is None or not self._port:
            self._store = _open_store(self._port) if self._node == 0 else _join_store(self._port)
        self._round += 1
        store = PrefixStore(f"{self._run_id}/{self._round}", self._store)
        return RendezvousInfo(store, self._node, self._nodes, RendezvousStoreInfo(HOST, self._store.port))

    def is_closed(self) -> bool:
        return False

    def set_closed(self) -> None:
        pass

    def num_nodes_waiting(self) -> int:
        return 0

    def get_run_id(self) -> str:
        return self._run_id

    def shutdown(self) -> bool:
        return True


def _open_store(port: int) -> TCPStore:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    if port and hasattr(socket, "SO_REUSEPORT"):
        # launch() keeps the port of simulated nodes reserved by a bound socket that never listens.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        listener.bind((HOST, port))
        listener.listen(2048)
    except OSError:
        listener.close()
        # Taken. Let torch say so: its message is the one that learners will meet elsewhere.
        return TCPStore(HOST, port, is_master=True, wait_for_workers=False)
    port = listener.getsockname()[1]
    return TCPStore(HOST, port, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach())


def _join_store(port: int) -> TCPStore:
    return TCPStore(HOST, port, is_master=False, wait_for_workers=False, timeout=JOIN_TIMEOUT)


def get_handler() -> Callable[[RendezvousParameters], RendezvousHandler]:
    """Answer torchrun's plugin loader (entry point group ``torchrun.handlers``)."""
    return LoopbackRendezvous
