"""What NVML says of the state of one GPU. Each question may be unknown to a card, a driver or a version of pynvml."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import byref
from typing import Any

# nvmlClocksEventReasons… of nvml.h: the card protects itself. (The reasons that follow from settings are left out.)
HEAT, POWER = 0x40, 0x80


def health(nvml: Any, handle: Any) -> dict[str, Any]:
    """The facts of a Gpu that tell whether it is fit."""

    def ask(question: Callable[[Any, Any], Any], otherwise: Any = None) -> Any:
        try:
            return question(nvml, handle)
        except (nvml.NVMLError, AttributeError):  # AttributeError: an older pynvml lacks the function
            return otherwise

    return {
        "capability": ask(_capability),
        "busy": ask(_busy),
        "compute_mode": ask(_compute_mode, "default"),
        "mig": ask(_mig, False),
        "fabric": ask(_fabric),
        "ecc_errors": ask(_ecc_errors, 0),
        "remap": ask(_remap),
        "recovery": ask(_recovery),
        "slowdown": ask(_slowdown),
    }


def _capability(nvml: Any, handle: Any) -> str:
    return "{}.{}".format(*nvml.nvmlDeviceGetCudaComputeCapability(handle))


def _busy(nvml: Any, handle: Any) -> int:
    return int(nvml.nvmlDeviceGetUtilizationRates(handle).gpu)


def _compute_mode(nvml: Any, handle: Any) -> str:
    names = {nvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS: "exclusive", nvml.NVML_COMPUTEMODE_PROHIBITED: "prohibited"}
    return names.get(nvml.nvmlDeviceGetComputeMode(handle), "default")


def _mig(nvml: Any, handle: Any) -> bool:
    current, _ = nvml.nvmlDeviceGetMigMode(handle)
    return bool(current == nvml.NVML_DEVICE_MIG_ENABLE)


def _fabric(nvml: Any, handle: Any) -> str | None:
    """Is the GPU registered with the NVLink switches? None on machines without them."""
    info = nvml.c_nvmlGpuFabricInfo_v2_t()
    nvml.nvmlDeviceGetGpuFabricInfoV(handle, byref(info))
    if info.state == nvml.NVML_GPU_FABRIC_STATE_NOT_SUPPORTED:
        return None
    if info.state != nvml.NVML_GPU_FABRIC_STATE_COMPLETED:
        return "not ready"
    return "ready" if info.status == nvml.NVML_SUCCESS else f"error {info.status}"


def _ecc_errors(nvml: Any, handle: Any) -> int:
    kind, since = nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
    return int(nvml.nvmlDeviceGetTotalEccErrors(handle, kind, since))


def _remap(nvml: Any, handle: Any) -> str | None:
    _, _, pending, failed = nvml.nvmlDeviceGetRemappedRows(handle)
    return "failed" if failed else "pending" if pending else None


def _recovery(nvml: Any, handle: Any) -> str | None:
    (field,) = nvml.nvmlDeviceGetFieldValues(handle, [nvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION])
    if field.nvmlReturn != nvml.NVML_SUCCESS:
        return None
    names = {
        nvml.NVML_GPU_RECOVERY_ACTION_GPU_RESET: "reset",
        nvml.NVML_GPU_RECOVERY_ACTION_NODE_REBOOT: "reboot",
        nvml.NVML_GPU_RECOVERY_ACTION_DRAIN_P2P: "drain",
        nvml.NVML_GPU_RECOVERY_ACTION_DRAIN_AND_RESET: "drain",
    }
    return names.get(field.value.uiVal)


def _slowdown(nvml: Any, handle: Any) -> str | None:
    reasons = nvml.nvmlDeviceGetCurrentClocksEventReasons(handle)
    return "heat" if reasons & HEAT else "power" if reasons & POWER else None
