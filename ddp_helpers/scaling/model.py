"""The model: what a step of data-parallel training takes on N ranks, of which each has a processor of its own.

    step(N) = compute + max(0, communication(N) - overlap · backward)
    communication(N) = 2(N-1) · α + 2(N-1)/N · bytes · β

Sources:
- the ring all_reduce, its 2(N-1) messages one after the other, and 2(N-1)/N of the tensor from each rank: P. Patarasuk
  and X. Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", Journal of Parallel and
  Distributed Computing 69 (2009). Lesson 02 builds it and counts.
- a message takes α + bytes · β: R. W. Hockney, "The communication challenge for MPP", Parallel Computing 20 (1994).
- communication runs beside backward: S. Li et al., "PyTorch Distributed", 2020, arXiv:2006.15704, section 3.2. That at
  most a share of backward can hide it is our simplification: the last bucket is ready when backward is done.

What the model leaves out: buckets (each pays α anew), algorithms other than the ring (NCCL has trees, whose latency
grows with log N), ranks that wait for the slowest one, links that several ranks share, loaders that cannot follow.
"""

from __future__ import annotations

from dataclasses import dataclass

LIMIT = 1024  # ranks up to which the model is asked


@dataclass(frozen=True)
class Link:
    """What connects two neighbours of the ring."""

    latency: float
    """α: seconds a message, however small."""
    bandwidth: float
    """1/β: bytes a second."""


@dataclass(frozen=True)
class Work:
    """What one rank does in a step: seconds = fixed + per_sample · batch; and how many bytes of gradients it sends."""

    fixed: float
    per_sample: float
    size: float
    backward: float = 2 / 3
    """The share of compute that is backward. In a linear layer it has two matrix products, forward one."""
    overlap: float = 0.0
    """The share of backward behind which communication can hide, 0 to 1."""

    def compute(self, batch: float) -> float:
        return self.fixed + self.per_sample * batch


def ring_messages(ranks: int) -> int:
    """How many messages follow one another: `ring_messages(4)` is 6."""
    return 2 * (ranks - 1)


def ring_bytes(ranks: int) -> float:
    """How often each rank sends the tensor's bytes: `ring_bytes(4)` is 1.5. It never reaches 2."""
    return 2 * (ranks - 1) / ranks


def communication(link: Link, ranks: int, size: float) -> float:
    """Seconds of an all_reduce of `size` bytes in a ring."""
    return ring_messages(ranks) * link.latency + ring_bytes(ranks) * size / link.bandwidth


def exposed(work: Work, link: Link, ranks: int, batch: float) -> float:
    """Seconds of communication that backward does not hide."""
    hidden = work.overlap * work.backward * work.compute(batch)
    return max(0.0, communication(link, ranks, work.size) - hidden)


def step(work: Work, link: Link, ranks: int, batch: float) -> float:
    """Seconds of a step in which every rank has `batch` samples."""
    return work.compute(batch) + exposed(work, link, ranks, batch)


def largest(batch: float, strong: bool, limit: int = LIMIT) -> int:
    """Up to how many ranks there is something to ask: in strong scaling each rank needs a sample of the batch."""
    return max(1, min(limit, int(batch))) if strong else limit


def speed_up(work: Work, link: Link, ranks: int, batch: float, strong: bool = False) -> float:
    """How many times the samples a second of one process.

    Weak scaling: every rank has `batch` samples, as the one process has, and the step does more work. Strong scaling:
    the ranks share the `batch` samples of the one process, and the step stays the same. Raises ValueError for strong
    scaling with more ranks than samples.
    """
    if ranks > largest(batch, strong, ranks):
        raise ValueError(f"{ranks} ranks cannot share {batch:g} samples: some would have none")
    if strong:
        return work.compute(batch) / step(work, link, ranks, batch / ranks)
    return ranks * work.compute(batch) / step(work, link, ranks, batch)


def efficiency(work: Work, link: Link, ranks: int, batch: float, strong: bool = False) -> float:
    """The speed-up as a share of the ideal, which is the number of ranks."""
    return speed_up(work, link, ranks, batch, strong) / ranks


def crossover(work: Work, link: Link, batch: float, strong: bool = False, limit: int = LIMIT) -> int | None:
    """The smallest number of ranks with which communication takes longer than compute.

    None if not up to `limit`, or, in strong scaling, not before each rank has one sample left.
    """
    for ranks in range(2, largest(batch, strong, limit) + 1):
        if communication(link, ranks, work.size) > work.compute(batch / ranks if strong else batch):
            return ranks
    return None
