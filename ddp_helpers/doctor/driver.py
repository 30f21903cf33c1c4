"""Does the NVIDIA driver fit the CUDA version torch was built for, and does CUDA start?"""

from __future__ import annotations

from .finding import Finding
from .machine import Machine

# What to do about an error of CUDA's start, by the number it begins with.
START = {
    "34": "LD_LIBRARY_PATH leads to the toolkit's stubs folder, which holds an empty libcuda: take it out.",
    "802": "On machines with NVLink switches: start nvidia-fabricmanager, of the driver's very version.",
    "803": "The driver was updated and not yet reloaded: reboot. In a container: no driver of its own may be in it.",
    "804": "A cuda-compat library is found first, and this GPU or driver refuses it: take it out of LD_LIBRARY_PATH.",
    "999": "After standby: sudo modprobe -r nvidia_uvm && sudo modprobe nvidia_uvm. Otherwise reboot; in a container, "
    "is /dev/nvidia-uvm there?",
}
OTHERWISE = "Run nvidia-smi, and look for lines with Xid in the kernel's log (sudo dmesg). Often a reboot mends it."


def check(machine: Machine) -> Finding:
    if machine.nvml_error:
        return _no_answer(machine)
    build = _build(machine)
    if not machine.gpus:
        why = "No GPU within reach, so no driver is used." if machine.gpu_cards else "No GPU, so no driver is needed."
        return Finding("driver", "ok", f"none; {build}", why)
    found = f"driver {machine.driver} (CUDA {machine.driver_cuda or 'not there'}); {build}"
    trouble = _misfit(machine) or _no_start(machine)
    if trouble:
        return Finding("driver", "problem", found, *trouble)
    # Within one major version an older driver runs newer builds: "minor version compatibility" in NVIDIA's CUDA
    # Compatibility guide.
    return Finding("driver", "ok", found, "The driver is of the same CUDA major version or a newer one: they fit.")


def _no_answer(machine: Machine) -> Finding:
    cure = "Run nvidia-smi. After an update of the driver a reboot mends it; a lost GPU needs the administrator."
    if "mismatch" in (machine.nvml_error or "").lower():
        cure = "The driver was updated while the old one was loaded: reboot."
        if machine.container:
            cure += " Is the host sound? Then the image brings a driver of its own: take it out of the image."
    if "permission" in (machine.nvml_error or "").lower():
        cure = "May you read and write /dev/nvidia*? Your group, or the job's allocation, decides."
    return Finding(
        "driver",
        "problem",
        f"the NVIDIA driver does not answer: {machine.nvml_error}",
        "No GPU can be used until it does.",
        cure,
    )


def _build(machine: Machine) -> str:
    if machine.torch is None or machine.torch_error:
        return "no torch"
    if machine.torch_hip:
        return f"torch built for AMD GPUs (ROCm {machine.torch_hip})"
    return f"torch built for CUDA {machine.torch_cuda}" if machine.torch_cuda else "torch built for the processor only"


def _misfit(machine: Machine) -> tuple[str, str] | None:
    """Why driver and torch do not fit, and what to do."""
    if machine.torch_cuda is None:
        cure = "Install the CUDA build of torch (the default one from PyPI on Linux)."
        return "This torch cannot use the GPUs that are here.", cure
    if machine.driver_cuda is None:
        cure = "Install the driver's libcuda.so.1. nvidia-smi does not need it, so it proves nothing here."
        if machine.container:
            cure = (
                "Start the container with -e NVIDIA_DRIVER_CAPABILITIES=compute,utility (utility alone is nvidia-smi)."
            )
        return "The driver's library for CUDA, libcuda, is not found: no program can use the GPUs.", cure
    newest, built = _major(machine.driver_cuda), _major(machine.torch_cuda)
    if newest < built:
        return (
            f"A driver of CUDA {newest} cannot run a build for CUDA {built}: “The NVIDIA driver on your system is too "
            "old”, and torch goes on without GPUs.",
            f"Update the driver (580 or newer for CUDA 13), or install a torch built for CUDA {newest}.",
        )
    return None


def _no_start(machine: Machine) -> tuple[str, str] | None:
    if machine.cuda_error is None:
        return None
    cure = START.get(machine.cuda_error.partition(":")[0], OTHERWISE)
    return f"CUDA does not start: {machine.cuda_error}. nvidia-smi may look sound all the same.", cure


def _major(version: str | None) -> int:
    return int((version or "0").split(".")[0])
