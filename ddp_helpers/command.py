"""The command of a run: the one the learner can type in a terminal, and the arguments our agents get."""

from __future__ import annotations

import contextlib
import os
import shlex
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

# With one of these the user says where the nodes of the run meet: then torchrun's own rendezvous does it.
OWN_RENDEZVOUS = ("--rdzv", "--node-rank", "--node_rank", "--master-addr", "--master_addr")
WORKER = str(Path(__file__).with_name("worker.py"))


@dataclass(frozen=True)
class Command:
    """What is to be run: ``torchrun --nproc-per-node NPROC --nnodes NNODES TORCHRUN_ARGS SCRIPT SCRIPT_ARGS``."""

    script: str
    script_args: tuple[str, ...] = ()
    nproc: int = 1
    nnodes: int = 1
    torchrun_args: tuple[str, ...] = ()
    module: bool = False
    returns: tuple[str, ...] = field(default=())

    def __str__(self) -> str:
        nodes = ["--nnodes", str(self.nnodes)] if self.nnodes > 1 else []
        module = ["-m"] if self.module else []
        nproc = ["--nproc-per-node", str(self.nproc)]
        return shlex.join(
            ["torchrun", *nodes, *nproc, *self.torchrun_args, *module, Path(self.script).as_posix(), *self.script_args]
        )

    @property
    def simulates_nodes(self) -> bool:
        return self.nnodes > 1 and not self._own_rendezvous

    @property
    def agents(self) -> int:
        return self.nnodes if self.simulates_nodes else 1

    @property
    def _own_rendezvous(self) -> bool:
        return any(arg.startswith(OWN_RENDEZVOUS) for arg in self.torchrun_args)

    def agent_argv(self, folder: Path, node: int, port: int) -> list[str]:
        """The arguments of agent.py for one node; `port` is 0 for "choose one"."""
        args = [arg for arg in self.torchrun_args if arg != "--standalone"]  # what we do anyway, on loopback only
        if not self._own_rendezvous:
            explicit, args = _take_master_port(args)
            args += ["--rdzv-backend", "loopback", "--rdzv-endpoint", f"127.0.0.1:{explicit or port}"]
            args += ["--rdzv-conf", f"node={node}", "--rdzv-id", "run"]
        early = ["--monitor-interval", "0.01"]
        late = ["--nnodes", str(self.nnodes), "--nproc-per-node", str(self.nproc)]
        late += ["--redirects", "3", "--log-dir", str(folder)]
        script = [*(["-m"] if self.module else []), self.script, *self.script_args]
        return [str(folder), *early, *args, *late, WORKER, ",".join(self.returns), *script]


def _take_master_port(args: list[str]) -> tuple[int, list[str]]:
    rest, port, i = [], 0, 0
    while i < len(args):
        name, equals, value = args[i].partition("=")
        if name in ("--master-port", "--master_port"):
            value = value if equals else args[(i := i + 1)]
            port = int(value)
        else:
            rest.append(args[i])
        i += 1
    return port, rest


@contextlib.contextmanager
def reserved_port(needed: bool) -> Iterator[int]:
    """A loopback port for simulated nodes to meet at, which nobody else can take while the run starts.

    A bound socket that never listens keeps it; node 0 binds beside it with SO_REUSEPORT (not on Windows).
    """
    if not needed:
        yield 0
        return
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as keeper:
        if hasattr(socket, "SO_REUSEPORT"):
            keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        keeper.bind(("127.0.0.1", 0))
        port = keeper.getsockname()[1]
        if os.name == "nt":
            keeper.close()
        yield port
