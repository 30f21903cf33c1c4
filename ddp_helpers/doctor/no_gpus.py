"""No GPU to be seen: is there none, or can we not see it?"""

from __future__ import annotations

from .finding import Finding
from .machine import Machine

CPU = "Every lesson runs without one: the ranks use the processor, and gloo carries their messages."


def explain(machine: Machine) -> Finding:
    if not machine.nvml_package:
        return Finding(
            "GPUs",
            "warning",
            "unknown: the package nvidia-ml-py is not installed",
            "Without it this report sees no GPU.",
            "pip install nvidia-ml-py, into the Python of this kernel.",
        )
    if machine.nvml_error or machine.gpu_errors:
        return Finding("GPUs", "note", "none that answers", "See the line that is a problem. " + CPU)
    if machine.gpu_cards:
        return _out_of_reach(machine)
    if machine.torch_hip:
        return Finding(
            "GPUs", "note", "no NVIDIA GPU", f"torch was built for AMD's, which this report cannot see. {CPU}"
        )
    if machine.slurm == "login":
        return Finding(
            "GPUs",
            "note",
            "no NVIDIA GPU on this machine, which hands out others through Slurm",
            f"The report is about the machine it runs on. {CPU}",
            "For a report on one with GPUs: srun --gpus=2 python -m ddp_helpers doctor",
        )
    return Finding("GPUs", "note", "no NVIDIA GPU", CPU)


def _out_of_reach(machine: Machine) -> Finding:
    """Cards on the bus and no GPU from the driver."""
    count = machine.gpu_cards
    cards = f"{count} NVIDIA card{'s' if count > 1 else ''} in this machine, none of them within reach"
    if machine.container:
        cure = "If you want them, start the container with --gpus all (Docker with NVIDIA's container toolkit)."
        if machine.container == "Kubernetes":
            cure = "If you want them, ask for them in the pod's resources: limits: nvidia.com/gpu."
        if machine.container == "Apptainer":
            cure = "If you want them, start the container with --nv."
        return Finding("GPUs", "warning", cards, f"This container was given none. {CPU}", cure)
    if machine.slurm:
        cure = "If you want them, ask for them: srun --gpus=2 …, or --gres=gpu:2."
        return Finding("GPUs", "warning", cards, f"Slurm gives a job the GPUs that it asks for. {CPU}", cure)
    return Finding(
        "GPUs",
        "warning",
        cards,
        f"NVIDIA's driver is not loaded. {CPU}",
        "If you want to use them, install NVIDIA's driver and reboot. It is there, and nvidia-smi fails? After an "
        "update of the kernel its module must be built anew; with Secure Boot it must be signed.",
    )
