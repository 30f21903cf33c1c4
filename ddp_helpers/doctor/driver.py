"""Does the NVIDIA driver fit the CUDA version torch was built for?"""

from __future__ import annotations

from .finding import Finding
from .machine import Machine


def check(machine: Machine) -> Finding:
    if machine.nvml_error:
        return Finding(
            "driver",
            "problem",
            f"the NVIDIA driver does not answer: {machine.nvml_error}",
            "No GPU can be used until it does.",
            "Run nvidia-smi. After an update of the driver a reboot mends it; a lost GPU needs the administrator.",
        )
    build = f"torch built for CUDA {machine.torch_cuda}" if machine.torch_cuda else "torch built for the processor only"
    if not machine.gpus:
        return Finding("driver", "ok", f"none; {build}", "No GPU, so no driver is needed.")
    found = f"driver {machine.driver} (CUDA {machine.driver_cuda}); {build}"
    if machine.torch_cuda is None:
        return Finding(
            "driver",
            "problem",
            found,
            "This torch cannot use the GPUs that are here.",
            "Install the CUDA build of torch (the default one from PyPI on Linux).",
        )
    if _major(machine.driver_cuda) < _major(machine.torch_cuda):
        return Finding(
            "driver",
            "problem",
            found,
            f"A driver of CUDA {_major(machine.driver_cuda)} cannot run a build for CUDA {_major(machine.torch_cuda)}.",
            "Update the driver, or install a torch built for the older CUDA.",
        )
    # Within one major version an older driver runs newer builds: "minor version compatibility" in NVIDIA's CUDA
    # Compatibility guide.
    return Finding("driver", "ok", found, "The driver is of the same CUDA major version or a newer one: they fit.")


def _major(version: str | None) -> int:
    return int((version or "0").split(".")[0])
