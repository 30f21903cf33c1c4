"""The catalogue: all faults, and the search for their messages."""

from __future__ import annotations

import re
from functools import lru_cache
from importlib import import_module

from .fault import Fault

TOPICS = (  # each is a module of this package that holds its FAULTS
    "rendezvous",
    "collectives",
    "ddp",
    "data",
    "memory",
    "cuda",
    "nccl",
    "containers",
    "checkpoint",
    "precision",
    "torchrun",
    "cluster",
    "notebook",
    "silent",
)


def catalogue(topic: str | None = None) -> tuple[Fault, ...]:
    """All known failures, or those of one topic.

    >>> catalogue("rendezvous")[0].id
    'port-taken'
    """
    if topic is None:
        return tuple(fault for name in TOPICS for fault in _faults(name))
    if topic not in TOPICS:
        raise ValueError(f"no topic {topic!r}; there are: {', '.join(TOPICS)}")
    return _faults(topic)


def _faults(topic: str) -> tuple[Fault, ...]:
    """Imported when first asked for: most notebooks never fail."""
    faults: tuple[Fault, ...] = import_module(f".{topic}", __package__).FAULTS
    return faults


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
