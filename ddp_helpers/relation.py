"""Who waits for whom: the positions of all ranks of a run, joined into a few sentences.

What is not known is not said. A rank that sleeps or loads data may still come, so nobody is said to be stuck for good
unless ranks wait for each other in a circle, or differ in calls that have been made.
"""

from __future__ import annotations

from .position import RECEIVES, SENDS, UNRECORDED, Group, Op, Place, Position, group_name
from .position import ranks as named

World = dict[int, Position]
SAME_SIZE = ("all_reduce", "broadcast", "reduce")  # each rank must pass as many numbers as the others


def relation(positions: list[Position], place: Place) -> str:
    """The relation between the ranks: "Rank 0 waits in barrier #2 (line 9). Rank 1 did not come to it: …"."""
    world = {position.rank: position for position in positions}
    if text := _different_calls(world, place):
        return text
    for find in (_absent, _point_to_point, _unrecorded, _all_in_one):
        if text := find(world, place):
            return text + (_different_calls(world, place, earlier=True) or _different_lines(world, place))
    return "" if len(world) < 2 else "No rank waits for another."


def in_step(positions: list[Position]) -> bool:
    """Whether every rank has called a collective that has not ended, and all that it needs have called the same."""
    world = {position.rank: position for position in positions}
    waiting = all(position.pending() for position in positions)
    return waiting and not _different_calls(world, str) and not _absent(world, str)


def _different_calls(world: World, place: Place, earlier: bool = False) -> str:
    """Ranks that do not call the same. `earlier`: in calls that have all ended, and may or may not be the cause."""
    for group in _pending_groups(world):
        sequences = {rank: p.ops[group] for rank, p in world.items() if group in p.ops}
        for seq in sorted({seq for ops in sequences.values() for seq in ops}):
            ops = {rank: sequence[seq] for rank, sequence in sequences.items() if seq in sequence}
            difference = _difference(list(ops.values()))
            if not difference or earlier == any(op.pending for op in ops.values()):
                continue
            if difference == KINDS and _swapped(sequences, seq):
                difference = ORDER
            head = f" Before that, ranks called {difference}" if earlier else f"Ranks call {difference}"
            parts = _by_call(ops, place, "called" if earlier else "calls")
            return f"{head}: as #{seq}{_of(group, world)}, {', '.join(parts)}. {ADVICE[difference]}"
    return ""


KINDS, SHAPES, TYPES = "different collectives", "a collective with different shapes", "a collective with other dtypes"
ORDER = "the same collectives in a different order"
ADVICE = {
    ORDER: "All ranks must make the same calls in the same order.",
    KINDS: "All ranks must make the same calls in the same order.",
    SHAPES: "All ranks must pass tensors of one size.",
    TYPES: "All ranks must pass tensors of one dtype.",
}


def _difference(ops: list[Op]) -> str:
    if len({op.name for op in ops}) > 1:
        return KINDS
    if ops[0].name not in SAME_SIZE:
        return ""
    if len({op.numel for op in ops}) > 1:  # (2, 3) and (3, 2) hang nobody
        return SHAPES
    return TYPES if len({op.dtypes for op in ops}) > 1 else ""


def _swapped(sequences: dict[int, dict[int, Op]], seq: int) -> bool:
    """Whether some rank calls next what another calls now, and the other way round. Seen with async_op=True only."""
    pairs = [(ops[seq].name, ops[seq + 1].name) for ops in sequences.values() if {seq, seq + 1} <= set(ops)]
    return any((after, now) in pairs for now, after in pairs if now != after)


def _different_lines(world: World, place: Place) -> str:
    """Since when ranks made the same call in different lines: there one of them may have left out a call."""
    for group in _pending_groups(world):
        sequences = {rank: p.ops[group] for rank, p in world.items() if group in p.ops}
        for seq in sorted(set.intersection(*map(set, sequences.values()))):
            lines = {rank: line for rank, ops in sequences.items() if (line := ops[seq].line) is not None}
            if len(set(lines.values())) > 1:
                where = ", ".join(f"rank {rank}{place(line)}" for rank, line in lines.items())
                name = next(iter(sequences.values()))[seq].name
                return (
                    f" (They called {name} #{seq} in different lines: {where}. Perhaps one left out a call before it.)"
                )
    return ""


def _by_call(ops: dict[int, Op], place: Place, verb: str) -> list[str]:
    """ "rank 0 calls all_reduce [4] (line 14)", "ranks 1, 2 call barrier (line 16)"."""
    together: dict[str, list[int]] = {}
    kinds = {op.name for op in ops.values()}
    for rank, op in ops.items():
        types = f" of {', '.join(op.dtypes)}" if len(kinds) == 1 and len({o.dtypes for o in ops.values()}) > 1 else ""
        reason = f" ({op.reason})" if op.reason else ""
        together.setdefault(f"{op.what}{types}{reason}{place(op.line)}", []).append(rank)
    return [
        f"{named(ranks)} {verb if len(ranks) == 1 else verb.removesuffix('s')} {w}" for w, ranks in together.items()
    ]


# ---- a collective that some ranks are in and others are not ---------------------------------------------------------


def _absent(world: World, place: Place) -> str:
    for group in _pending_groups(world):
        seq = min(op.seq for p in world.values() for op in p.ops.get(group, {}).values() if op.pending)
        absent = [rank for rank in _members(group, world) if rank in world and not _came(world[rank], group, seq)]
        if not absent:
            continue
        calls = {rank: p.ops.get(group, {}).get(seq) for rank, p in world.items()}
        waiting = {rank: op for rank, op in calls.items() if op and op.pending}
        text = " ".join([_waiting(waiting, group, world, place), *_elsewhere(absent, group, world, place)])
        return f"{text} {_prospect(list(waiting), absent, world)}"
    return ""


def _came(position: Position, group: Group, seq: int) -> bool:
    """Whether a rank has called it, or a later one: what it called long ago it does not tell."""
    return max(position.ops.get(group, {0: None})) >= seq


def _waiting(ops: dict[int, Op], group: Group, world: World, place: Place) -> str:
    together: dict[str, list[int]] = {}
    for rank, op in ops.items():
        verb = "wait in" if world[rank].is_in(op) else "have called"
        reason = f" ({op.reason})" if op.reason else ""
        at = place(op.line or world[rank].line)
        together.setdefault(f"{verb} {op}{_of(group, world)}{reason}{at}", []).append(rank)
    return " ".join(f"{_conjugated(ranks, what)}." for what, ranks in together.items())


def _conjugated(ranks: list[int], what: str) -> str:
    if len(ranks) == 1:
        what = what.replace("wait in", "waits in", 1).replace("have called", "has called", 1)
    return f"{named(ranks).capitalize()} {what}"


def _elsewhere(absent: list[int], group: Group, world: World, place: Place) -> list[str]:
    together: dict[str, list[int]] = {}
    for rank in absent:
        position = world[rank]
        together.setdefault(position.doing(place) + _last_call(position, group, place), []).append(rank)
    texts = []
    for what, ranks in together.items():
        have = "has" if len(ranks) == 1 else "have"
        if world[ranks[0]].state in ("silent", "stopped"):
            texts.append(f"Nobody can tell whether {named(ranks)} came to it: {_it(what, ranks)}.")
        else:
            texts.append(f"{named(ranks).capitalize()} {have} not come to it: {_it(what, ranks)}.")
    return texts


def _it(doing: str, ranks: list[int]) -> str:
    if doing.startswith("has "):
        return f"it {doing}" if len(ranks) == 1 else f"they have {doing.removeprefix('has ')}"
    return f"{'it is' if len(ranks) == 1 else 'they are'} {doing}"


def _last_call(position: Position, group: Group, place: Place) -> str:
    ops = position.ops.get(group, {})
    if not ops:
        return ""
    last = ops[max(ops)]
    there = " in that group" if position.pending() else ""
    return "" if last.pending else f"; its last collective{there} was {last}{place(last.line)}"


def _prospect(waiting: list[int], absent: list[int], world: World) -> str:
    if any(_reaches(rank, set(waiting), world) for rank in absent):
        return "They wait for each other: this cannot end by itself."
    gone = [rank for rank in absent if world[rank].state in ("ended", "ending")]
    if gone:
        return f"{named(gone).capitalize()} will not come any more."
    return f"{named(waiting).capitalize()} can go on when {named(absent)} come{'s' * (len(absent) == 1)}."


# ---- calls that the flight recorder does not know -------------------------------------------------------------------


def _point_to_point(world: World, place: Place) -> str:
    talkers = {r: p for r, p in world.items() if p.state == "running" and p.call.get("name") in SENDS + RECEIVES}
    for kind, first, advice in (
        (SENDS, "send first, and each waits until another receives", "Let one of them receive first, or use isend()."),
        (RECEIVES, "wait to receive, and none of them sends", "Let one of them send first."),
    ):
        circle = _circle({rank: p.peer for rank, p in talkers.items() if p.call["name"] in kind})
        if circle:
            who = ", ".join(f"rank {rank} to rank {world[rank].peer}" for rank in circle)
            who = who if kind is SENDS else who.replace(" to ", " from ")
            lines = "".join(sorted({place(world[rank].line) for rank in circle}))
            return f"{named(circle).capitalize()} all {first}{lines}: {who}. This cannot end by itself. {advice}"
    for rank, position in talkers.items():
        name, peer = position.call["name"], position.peer
        verb = "send" if name in RECEIVES else "receive"
        head = f"Rank {rank} waits in {position.doing(place).removeprefix('waiting in ')}."
        if peer is None or peer not in world:
            return f"{head} No rank {verb}s."
        if world[peer].peer == rank:
            return f"{head} Rank {peer} is {world[peer].doing(place)}. Do both name the same tag and group?"
        doing = _it(world[peer].doing(place), [peer])
        return f"{head} Rank {peer} does not {verb}: {doing}. {_prospect([rank], [peer], world)}"
    return ""


def _circle(peers: dict[int, int | None]) -> list[int]:
    for start in peers:
        path: list[int] = []
        at: int | None = start
        while at is not None and at in peers and at not in path:
            path.append(at)
            at = peers[at]
        if at is not None and at in path:
            return sorted(path[path.index(at) :])
    return []


def _unrecorded(world: World, place: Place) -> str:
    """init_process_group and its like, which all ranks must call."""
    for name in UNRECORDED:
        inside = [rank for rank, p in world.items() if p.state == "running" and p.call.get("name") == name]
        if not inside:
            continue
        absent = [rank for rank in world if rank not in inside]
        lines = "".join(sorted({place(world[rank].line) for rank in inside}))
        head = f"{named(inside).capitalize()} wait{'s' * (len(inside) == 1)} in {name}{lines}."
        size = max(world[rank].call.get("world_size", 0) for rank in inside)
        if name == "init_process_group" and size > len(world):
            return f"{head} They expect {size} ranks (world_size={size}), and this run has {len(world)}."
        if not absent:
            said = [world[rank].call.get("rank", rank) for rank in inside]
            numbers = ", ".join(f"rank {rank} says rank={number}" for rank, number in zip(inside, said, strict=True))
            return f"{head} Two of them give the same number: {numbers}." if len(set(said)) < len(said) else head
        others = _elsewhere(absent, Group("", 0), world, place)
        return " ".join([head, *others, _prospect(inside, absent, world)])
    return ""


def _all_in_one(world: World, place: Place) -> str:
    for group in _pending_groups(world):
        ops = {rank: pair[1] for rank, p in world.items() if (pair := p.pending()) and pair[0] == group}
        roots = {rank: _root(world[rank]) for rank in ops}
        text = _waiting(ops, group, world, place)
        if len(set(roots.values()) - {None}) > 1:
            said = ", ".join(f"rank {rank} names rank {root}" for rank, root in roots.items() if root is not None)
            return f"{text} They differ in its root: {said}. All ranks must name the same one."
        return f"{text} All ranks that it needs have called it, and it has not ended."
    return ""


def _root(position: Position) -> int | None:
    return next((position.call[name] for name in ("group_src", "group_dst") if name in position.call), None)


# ---- who waits for whom ---------------------------------------------------------------------------------------------


def waits_for(rank: int, world: World) -> set[int]:
    """The ranks that must do something before this one can go on."""
    position = world[rank]
    if position.state != "running":
        return set()
    if position.peer is not None:
        matched = position.peer in world and world[position.peer].peer == rank
        return set() if matched and world[position.peer].call["name"] in _other(position) else {position.peer}
    name = position.call.get("name", "")
    if name in UNRECORDED:
        return {other for other, p in world.items() if p.call.get("name") != name}
    pending = position.pending()
    if not pending or not position.is_in(pending[1]):
        return set()
    group, op = pending
    return {rank for rank in _members(group, world) if rank in world and not _came(world[rank], group, op.seq)}


def _other(position: Position) -> tuple[str, ...]:
    return RECEIVES if position.call["name"] in SENDS else SENDS


def _reaches(start: int, goals: set[int], world: World) -> bool:
    """Whether this rank waits, directly or through others, for one of the goals."""
    seen: set[int] = set()
    todo = {start}
    while todo:
        rank = todo.pop()
        seen.add(rank)
        found = waits_for(rank, world) if rank in world else set()
        if found & goals:
            return True
        todo |= found - seen
    return False


def _pending_groups(world: World) -> list[Group]:
    return sorted({g for p in world.values() for g, ops in p.ops.items() if any(op.pending for op in ops.values())})


def _members(group: Group, world: World) -> list[int]:
    """The ranks of a process group; all of the run's, if nobody said."""
    return next((p.groups[group.name] for p in world.values() if group.name in p.groups), sorted(world))


def _of(group: Group, world: World) -> str:
    return group_name(_members(group, world), len(world))
