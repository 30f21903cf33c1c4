"""Read one trace of torch.profiler: what a rank computed, what it communicated, and the labels of its script.

The format is Chrome's, with Kineto's categories (torch/csrc/profiler/kineto_shim.cpp, libkineto/src/output_json.cpp in
github.com/pytorch/kineto): times in µs, counted from baseTimeNanoseconds since 1970.
"""

from __future__ import annotations

import gzip
import json
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .intervals import Interval, union, without

Raw = dict[str, Any]

STEP = "ProfilerStep#"
LOADER = "enumerate(DataLoader)"  # torch labels each next() of a DataLoader: torch/utils/data/dataloader.py
# These, like all without a namespace ("AddmmBackward0"), are the autograd engine's: around operators, and around hooks,
# which may wait.
AROUND = ("autograd::", "torch::autograd::")
# These operators hand a collective to the backend, or wait for one. They compute nothing.
NOT_COMPUTE = ("c10d::", "_c10d_functional::", "c10d_functional::", "record_param_comms", "gloo:", "nccl:", LOADER)
NCCL = re.compile(r"nccl(?:Dev)?Kernel_([A-Za-z]+)")
NCCL_NAMES = {
    "AllReduce": "all_reduce",
    "AllGather": "all_gather",
    "ReduceScatter": "reduce_scatter",
    "Broadcast": "broadcast",
    "Reduce": "reduce",
    "SendRecv": "send_recv",
}
BYTES = {
    **dict.fromkeys(("float", "int", "Float", "Int"), 4),
    **dict.fromkeys(("double", "long int", "long", "long long", "Double", "Long", "c10::complex<float>"), 8),
    **dict.fromkeys(("c10::Half", "c10::BFloat16", "Half", "BFloat16", "short int", "short", "Short"), 2),
    **dict.fromkeys(("bool", "unsigned char", "signed char", "Bool", "Byte", "Char"), 1),
}
EMPTY = (
    "holds no operation. With a schedule, the profiler empties its record when a cycle ends: export inside "
    "on_trace_ready=, or leave the schedule out and run the warm-up steps before `with profile(…)`"
)


@dataclass(frozen=True)
class Collective:
    """One collective on one rank. `size` is its input in bytes, None where the trace does not say (record_shapes)."""

    name: str
    start: float
    end: float
    size: int | None = None
    group: str = ""


@dataclass(frozen=True)
class Label:
    """A `record_function("name")` block, a step of the profiler, or a label that torch sets itself."""

    name: str
    start: float
    end: float


@dataclass
class Trace:
    """What one rank did. Times are ms on the rank's own clock, counted from `base`, which is in ns since 1970."""

    path: Path
    rank: int | None
    world_size: int | None
    host: str
    base: int
    compute: list[Interval]
    data: list[Interval]
    collectives: list[Collective]
    labels: list[Label]
    on_gpu: bool


def read_trace(path: Path, data: str = "data") -> Trace:
    """Read a .json or .json.gz of `export_chrome_trace`. `data` is the label that counts as fetching data.

    Raises ValueError for a file that is no trace, that was cut short, or that holds no operation.
    """
    raw = _load(path)
    events = [event for event in raw["traceEvents"] if event.get("ph") == "X" and "dur" in event]
    by_kind: dict[str, list[Raw]] = defaultdict(list)
    for event in events:
        by_kind[str(event.get("cat", "")).lower()].append(event)
    kernels, host_labels = by_kind["kernel"], by_kind["user_annotation"]
    if not kernels and not by_kind["cpu_op"]:
        raise ValueError(f"{path.name} {EMPTY}.")
    collectives = [_gloo(event) for event in host_labels if event["name"].startswith("gloo:")]
    collectives += [_nccl(event) for event in kernels if NCCL.match(event["name"])]
    fetching = [e for e in host_labels + by_kind["cpu_op"] if e["name"] == data or e["name"].startswith(LOADER)]
    about = raw.get("distributedInfo", {})
    trace = Trace(
        path=path,
        rank=about.get("rank"),
        world_size=about.get("world_size"),
        host=str(raw.get("host_name", "")),
        base=int(raw.get("baseTimeNanoseconds", 0)),
        compute=[],
        data=union(map(_when, fetching)),
        collectives=sorted(collectives, key=lambda one: one.start),
        labels=_labels(host_labels, by_kind["gpu_user_annotation"]),
        on_gpu=bool(kernels),
    )
    if kernels:
        _fill_from_device(trace, kernels, by_kind)
    else:
        trace.compute = _computing(by_kind["cpu_op"], fetching)
    return trace


def _load(path: Path) -> Raw:
    try:
        if path.suffix == ".gz":
            raw = json.loads(gzip.decompress(path.read_bytes()))
        else:
            raw = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ValueError(f"there is no trace at {path}: did that rank reach its export_chrome_trace()?") from None
    except (EOFError, json.JSONDecodeError, UnicodeDecodeError, gzip.BadGzipFile) as error:
        raise ValueError(
            f"{path.name} is not a whole trace ({error}): was the rank stopped while it wrote, or do two ranks write "
            "one file?"
        ) from None
    if not isinstance(raw, dict) or not isinstance(raw.get("traceEvents"), list):
        raise ValueError(f"{path.name} is JSON, but no trace: it has no list `traceEvents`")
    return raw


def _when(event: Raw) -> Interval:
    return event["ts"] / 1e3, (event["ts"] + event["dur"]) / 1e3


def _fill_from_device(trace: Trace, kernels: list[Raw], by_kind: dict[str, list[Raw]]) -> None:
    copies = by_kind["gpu_memcpy"]
    batches = [event for event in copies if "htod" in event["name"].lower()]
    own_copies = [event for event in copies if event not in batches]
    own = [event for event in kernels if not event["name"].startswith("nccl")]
    trace.compute = union(map(_when, [*own, *own_copies, *by_kind["gpu_memset"]]))
    trace.data = union([*trace.data, *map(_when, batches)])


def _computing(operators: Iterable[Raw], fetching: Iterable[Raw]) -> list[Interval]:
    """When operators run, of all threads, less what a thread does while it fetches data or starts or awaits others."""
    own: dict[Any, list[Interval]] = defaultdict(list)
    less: dict[Any, list[Interval]] = defaultdict(list)
    for event in operators:
        if event["name"].startswith(NOT_COMPUTE):
            less[event["tid"]].append(_when(event))
        elif "::" in event["name"] and not event["name"].startswith(AROUND):
            own[event["tid"]].append(_when(event))
    for event in fetching:
        less[event["tid"]].append(_when(event))
    return union(when for thread, times in own.items() for when in without(union(times), union(less[thread])))


def _gloo(event: Raw) -> Collective:
    start, end = _when(event)
    return Collective(event["name"].removeprefix("gloo:"), start, end, _input_bytes(event.get("args", {})))


def _input_bytes(about: Raw) -> int | None:
    dims, kinds = about.get("Input Dims"), about.get("Input type")
    if not dims or not kinds or len(dims) != len(kinds) or not all(kind in BYTES for kind in kinds):
        return None
    total = 0
    for shape, kind in zip(dims, kinds, strict=True):
        count = 1
        for extent in shape:
            count *= extent
        total += count * BYTES[kind]
    return total


def _nccl(event: Raw) -> Collective:
    start, end = _when(event)
    about, found = event.get("args", {}), NCCL.match(event["name"])
    name = NCCL_NAMES.get(found.group(1).split("_")[0], found.group(1)) if found else event["name"]
    count, width = about.get("In msg nelems"), BYTES.get(about.get("dtype", ""))
    size = count * width if count is not None and width else None
    group = f"{about.get('Process Group Name', '')} {about.get('Process Group Ranks', '')}".strip()
    return Collective(name, start, end, size, group)


def _labels(on_host: list[Raw], on_device: list[Raw]) -> list[Label]:
    """A GPU runs behind its host, so where the device has a label of a name, that one says when its work was done."""
    own = [event for event in on_host if not event["name"].startswith(NOT_COMPUTE)]
    spans: dict[str, list[Interval]] = defaultdict(list)
    for event in on_device:
        spans[event["name"]].append(_when(event))
    found = [Label(event["name"], *_when(event)) for event in own if event["name"] not in spans]
    for name in spans.keys() & {event["name"] for event in own}:
        found += [Label(name, *when) for when in union(spans[name])]  # one for each stream, so they are joined
    return sorted(found, key=lambda label: (label.start, -label.end))
