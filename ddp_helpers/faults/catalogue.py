"""The catalogue: all faults, and the search for their messages."""

from __future__ import annotations

import re
from functools import lru_cache

from . import (
    checkpoint,
    cluster,
    collectives,
    containers,
    cuda,
    data,
    ddp,
    memory,
    nccl,
    notebook,
    precision,
    rendezvous,
    silent,
    torchrun,
)
from .fault import Fault

TOPICS = {
    "rendezvous": rendezvous.FAULTS,
    "collectives": collectives.FAULTS,
    "ddp": ddp.FAULTS,
    "data": data.FAULTS,
    "memory": memory.FAULTS,
    "cuda": cuda.FAULTS,
    "nccl": nccl.FAULTS,
    "containers": containers.FAULTS,
    "checkpoint": checkpoint.FAULTS,
    "precision": precision.FAULTS,
    "torchrun": torchrun.FAULTS,
    "cluster": cluster.FAULTS,
    "notebook": notebook.FAULTS,
    "silent": silent.FAULTS,
}


def catalogue(topic: str | None = None) -> tuple[Fault, ...]:
    """All known failures, or those of one topic.

    >>> catalogue("rendezvous")[0].id
    'port-taken'
    """
    if topic is None:
        return tuple(fault for faults in TOPICS.values() for fault in faults)
    if topic not in TOPICS:
        raise ValueError(f"no topic {topic!r}; there are: {', '.join(TOPICS)}")
    return TOPICS[topic]


@lru_cache(maxsize=1)
def by_id() -> dict[str, Fault]:
    return {fault.id: fault for fault in catalogue()}


@lru_cache(maxsize=1)
def searches() -> tuple[tuple[Fault, re.Pattern[str]], ...]:
    """Each fault with its patterns as one: compiled when first asked for, 60 ms in all."""
    return tuple((f, re.compile("|".join(f.patterns), re.MULTILINE)) for f in catalogue() if f.patterns)


def is_echo(message: str) -> bool:
    """Whether an error only says that another rank has gone, or did not come: a consequence, never the cause."""
    return any(fault.kind in ("victim", "wait") and search.search(message) for fault, search in searches())
