"""Where one rank of a run is: what it answered (here.py), and the words for it."""

from __future__ import annotations

import linecache
import math
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

Place = Callable[["int | None"], str]  # a line of the script, as people see it: " (cell line 15)"
LOADER = os.path.join("torch", "utils", "data", "dataloader.py")
UNRECORDED = ("init_process_group", "new_group", "new_subgroups", "split_group", "monitored_barrier")  # all ranks call
SENDS = ("send", "send_object_list")
RECEIVES = ("recv", "recv_object_list")
# A function below the script's line, and what it says about a collective that the script itself did not call.
ON_BEHALF = {
    "_sync_buffers": "DistributedDataParallel sends rank 0's buffers before a forward",
    "_sync_module_states": "DistributedDataParallel sends rank 0's parameters when it wraps a model",
    "_verify_param_shape_across_processes": "DistributedDataParallel compares the parameters when it wraps a model",
    "_engine_run_backward": "called in backward(), where DistributedDataParallel averages gradients",
}


class Group(NamedTuple):
    """A process group. `generation`: how often one of this name was made anew, after destroy_process_group()."""

    name: str
    generation: int


@dataclass(frozen=True)
class Op:
    """One collective that a rank has called, the `seq`th of its group. `inside`: functions below the script's line."""

    seq: int
    name: str
    sizes: tuple[tuple[int, ...], ...] = ()
    dtypes: tuple[str, ...] = ()
    inside: tuple[str, ...] = ()
    pending: bool = False
    line: int | None = None
    order: int = 0

    @property
    def numel(self) -> int:
        return sum(math.prod(size) for size in self.sizes)

    @property
    def reason(self) -> str:
        return next((why for name, why in ON_BEHALF.items() if name in self.inside), "")

    def __str__(self) -> str:
        called = self.inside[-1] if self.inside and self.inside[-1].endswith(("_object", "_object_list")) else ""
        sizes = "".join(f" {list(size)}" for size in self.sizes)
        return f"{called or self.name} #{self.seq}{'' if called else sizes}"

    @property
    def what(self) -> str:
        """The same without its number."""
        return str(self).replace(f" #{self.seq}", "", 1)


@dataclass
class Position:
    """Where one rank is. `stack`: its main thread, outermost first; `call`: torch's call that it is in, with numbers.

    `ops`: its recent collectives in each process group, by `seq`; `sent`: point-to-point calls that NCCL has not
    ended ("send 0->1"). `busy`: whether it used the processor just before it was asked.
    """

    rank: int
    script: str = ""
    stack: list[tuple[str, int, str]] = field(default_factory=list)
    call: dict[str, Any] = field(default_factory=dict)
    ops: dict[Group, dict[int, Op]] = field(default_factory=dict)
    sent: list[str] = field(default_factory=list)
    groups: dict[str, list[int]] = field(default_factory=dict)
    state: str = "running"  # or "ending", "ended", "stopped", "silent"
    busy: bool = False

    @property
    def line(self) -> int | None:
        """The script's line that the main thread is in."""
        lines = [line for file, line, _ in self.stack if file == self.script]
        return lines[-1] if lines else None

    @property
    def peer(self) -> int | None:
        """The rank that it sends to or receives from, if it is in such a call and names one."""
        names = ("dst", "group_dst") if self.call.get("name") in SENDS else ("src", "group_src")
        if self.call.get("name") not in SENDS + RECEIVES:
            return None
        return next((self.call[name] for name in names if name in self.call), None)

    def pending(self) -> tuple[Group, Op] | None:
        """The oldest collective that it has called and that has not ended."""
        found = [(group, op) for group, ops in self.ops.items() for op in ops.values() if op.pending]
        return min(found, key=lambda pair: pair[1].order) if found else None

    def doing(self, place: Place) -> str:
        """What the rank does: words that follow "it is", or begin with "has"."""
        if self.state != "running":
            if self.state == "silent" and self.line:
                return f"busy in code that never lets Python run, at {self._code()}{place(self.line)}"
            return _STATES[self.state]
        name = self.call.get("name", "")
        if name in SENDS + RECEIVES:
            to = "" if self.peer is None else f" {'to' if name in SENDS else 'from'} rank {self.peer}"
            return f"waiting in {name}{to}{place(self.line)}"
        if name in UNRECORDED:
            return f"waiting in {name}{place(self.line)}"
        if pending := self.pending():
            return self._after(*pending, place)
        if self.sent:
            return f"waiting in {self.sent[0]}{place(self.line)}"
        return self._elsewhere(place)

    def is_in(self, op: Op) -> bool:
        """Whether the main thread is still in the call of a collective; after an async_op=True it has gone on."""
        return self.line is None or op.line in (None, self.line)

    def _after(self, group: Group, op: Op, place: Place) -> str:
        of = group_name(self.groups.get(group.name, []), max(map(len, self.groups.values()), default=0))
        if self.is_in(op):
            return f"waiting in {op}{of}{place(op.line or self.line)}"
        return f"{self._elsewhere(place)}, and {op}{of} that it called before has not ended{place(op.line)}"

    def _elsewhere(self, place: Place) -> str:
        files = [file for file, _, _ in self.stack]
        where = place(self.line)
        at = f"at {self._code()}" if self.line else "outside the script"  # a check has called it
        if any("importlib" in file for file in files):
            return f"still importing{where}"
        if not self.stack:
            return "still starting"
        if any(file.endswith(LOADER) for file in files):
            on = ", waiting for a worker process" if any("multiprocessing" in file for file in files) else ""
            return f"in the DataLoader{on}{where}"
        if any(f"{os.sep}multiprocessing{os.sep}" in file for file in files):
            return f"waiting for a process that it started itself{where}"
        if files[-1].endswith((f"{os.sep}threading.py", f"{os.sep}queue.py")):
            return f"waiting for another thread of its own, {at}{where}"
        if any(file.endswith(f"{os.sep}subprocess.py") for file in files):
            return f"waiting for a program that it started{where}"
        file, _, function = self.stack[-1]
        inside = "" if file == self.script else f", in {function} ({Path(file).name})"
        return f"{'computing ' if self.busy else ''}{at}{inside}{where}"

    def _code(self) -> str:
        linecache.checkcache(self.script)  # a cell that was changed is the same file with other lines
        return f"`{linecache.getline(self.script, self.line or 0).strip()}`"


_STATES = {
    "ended": "has ended",
    "ending": "has reached the end of its script, and something (a thread, an exit handler) keeps it from ending",
    "stopped": "stopped by a signal (SIGSTOP)",
    "silent": "busy in code that never lets Python run",
}


def ranks(numbers: Iterable[int]) -> str:
    numbers = list(numbers)
    return f"rank{'s' * (len(numbers) != 1)} {', '.join(map(str, numbers))}"


def group_name(members: list[int], world_size: int) -> str:
    """What tells a group of some ranks from the one of all."""
    return f" of the group of {ranks(members)}" if 0 < len(members) < world_size else ""


def read_position(rank: int, answer: dict[str, Any], busy: bool) -> Position:
    """A rank's answer as a position."""
    position = Position(
        rank,
        answer["script"],
        [(file, line, name) for file, line, name in answer["stack"]],
        answer["call"] or {},
        groups=answer["groups"],
        state="ending" if answer["ending"] else "running",
        busy=busy,
    )
    for entry in answer["ops"]:
        if entry["p2p"]:
            position.sent += [entry["name"]] * entry["pending"]
            continue
        tuples = tuple(map(tuple, entry["sizes"])), tuple(entry["dtypes"]), tuple(entry["inside"])
        op = Op(entry["seq"], entry["name"], *tuples, entry["pending"], entry["line"], entry["order"])
        position.ops.setdefault(Group(entry["group"], entry["generation"]), {})[op.seq] = op
    kinds = {name.split()[0] for name in position.sent}
    if len(kinds) == 1 and not position.call:  # of both kinds: an exchange, which may be under way
        position.call = _call_of(position.sent[0])
    return position


def _call_of(name: str) -> dict[str, Any]:
    """NCCL's "send 0->1" and "recv 0<-1" as here.py would tell the call."""
    kind, _, ends = name.partition(" ")
    peer = ends.replace("<-", "->").partition("->")[2]
    return {"name": kind, "group_dst" if kind == "send" else "group_src": int(peer)} if peer.isdigit() else {}
