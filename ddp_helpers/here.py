"""Where this rank is: worker.py loads this file when the notebook asks, and writes the answer to here.json.

Like worker.py it uses nothing but the standard library, and the script never sees it. hang.py reads the answer.
"""

from __future__ import annotations

import os
import pickle
import sys
import threading
import traceback
from typing import Any

RECENT = 100  # collectives of a group; older ones are many to compare, and seldom say where ranks parted
TORCH_CALLS = os.path.join("torch", "distributed", "distributed_c10d.py")
NUMBERS = ("src", "dst", "group_src", "group_dst", "rank", "world_size")


def here(script: str, subject: str) -> dict[str, Any]:
    """The main thread's frames from the script's on, torch's call that it is in, and its recent collectives.

    `subject`: the file whose lines the collectives are given; the script, unless that one runs another."""
    frames = [*traceback.walk_stack(sys._current_frames()[threading.main_thread().ident or 0])][::-1]
    files = [frame.f_code.co_filename for frame, _ in frames]
    # Below the script's own frames stand ours and, in a fork, torchrun's.
    begin = files.index(script) if script in files else len(frames)
    stack = [(file, line, frame.f_code.co_name) for file, (frame, line) in zip(files, frames, strict=True)][begin:]
    inside = [frame for frame, _ in frames[begin:] if frame.f_code.co_filename.endswith(TORCH_CALLS)]
    answer: dict[str, Any] = {"stack": stack, "call": _call(inside[0]) if inside else None, "groups": {}, "ops": []}
    try:
        answer |= {"groups": _groups(), "ops": _ops(subject)}
    except Exception as error:  # noqa: BLE001 - torch's private parts may change; the lifeline, which asks, must hold
        answer["trouble"] = repr(error)
    return answer


def _call(frame: Any) -> dict[str, Any]:
    """A call of torch.distributed and its whole-number arguments. gloo's send and recv leave no other trace."""
    numbers = {name: frame.f_locals.get(name) for name in NUMBERS}
    return {"name": frame.f_code.co_name, **{name: n for name, n in numbers.items() if isinstance(n, int)}}


def _groups() -> dict[str, list[int]]:
    """Which ranks are in which process group. (The recorder's own pg_config says so for the newest gloo group only.)"""
    world = getattr(sys.modules.get("torch.distributed.distributed_c10d"), "_world", None)
    members = list(world.pg_group_ranks.items()) if world else []
    return {group.group_name: sorted(ranks) for group, ranks in members if hasattr(group, "group_name")}


def _ops(script: str) -> list[dict[str, Any]]:
    """What torch's flight recorder knows, oldest first. On gloo all but point-to-point calls are in it."""
    dump = getattr(sys.modules.get("torch._C._distributed_c10d"), "_dump_fr_trace", None)
    entries = pickle.loads(dump()).get("entries", []) if dump else []
    by_group: dict[tuple[str, int], list[dict[str, Any]]] = {}
    newest: dict[str, tuple[int, int]] = {}  # a group's last number, and how often one of its name was made anew
    for order, entry in enumerate(entries):
        group, seq = entry["process_group"][0], entry["collective_seq_id"]
        last, generation = newest.get(group, (0, 0))
        newest[group] = seq, generation + (seq < last)
        by_group.setdefault((group, newest[group][1]), []).append(entry | {"order": order})
    return [
        _op(entry, generation, script)
        for (_, generation), ops in by_group.items()
        for entry in [op for op in ops[:-RECENT] if not op["retired"]] + ops[-RECENT:]
    ]


def _op(entry: dict[str, Any], generation: int, script: str) -> dict[str, Any]:
    frames = [frame for frame in entry.get("frames", []) if frame["name"] != "wrapper"]  # innermost first
    files = [frame["filename"] for frame in frames]
    in_script = files.index(script) if script in files else len(frames)
    return {
        "group": entry["process_group"][0],
        "generation": generation,
        "order": entry["order"],
        "seq": entry["collective_seq_id"],
        "name": entry["profiling_name"].partition(":")[2] or entry["profiling_name"],  # "gloo:all_reduce"
        "sizes": entry["input_sizes"] or [],
        "dtypes": entry["input_dtypes"] or [],
        "pending": not entry["retired"],  # its state stays "scheduled" on gloo
        "p2p": entry["is_p2p"],
        "line": frames[in_script]["line"] if script in files else None,
        "inside": [frame["name"] for frame in frames[:in_script]],
    }
