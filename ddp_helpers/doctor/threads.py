"""Is the number of threads of a rank fixed by the environment?"""

from __future__ import annotations

from .finding import Finding
from .machine import Machine


def check(machine: Machine) -> Finding:
    value = machine.omp_num_threads and machine.omp_num_threads.partition(",")[0]  # "4,2": one a level of nesting
    cores = machine.cores_of_time
    if value is None:
        return Finding(
            "threads",
            "ok",
            "OMP_NUM_THREADS is not set",
            "A cell then gives each rank cores ÷ ranks threads. "
            "(Plain torchrun gives each of several ranks one, and says so.)",
        )
    if not value.isdigit() or int(value) < 1:
        return Finding(
            "threads",
            "warning",
            f"OMP_NUM_THREADS={value}",
            "That is not a number of threads.",
            "Unset it, or set it to cores ÷ ranks.",
        )
    if int(value) * 2 > cores and int(value) > 1:
        return Finding(
            "threads",
            "warning",
            f"OMP_NUM_THREADS={value} with {cores} cores",
            f"Two ranks would start {2 * int(value)} threads for {cores} cores, and wait for each other.",
            f"Unset it, or set it to cores ÷ ranks: {max(1, cores // 2)} for two ranks.",
        )
    return Finding("threads", "ok", f"OMP_NUM_THREADS={value}", "Each rank gets that many threads, and they fit.")
