"""The GPU and its driver."""

from __future__ import annotations

from .fault import Fault

FAULTS = (
    Fault(
        id="cuda-illegal-access",
        see="RuntimeError: CUDA error: an illegal memory access was encountered",
        means=(
            "A kernel read or wrote outside its memory: a custom kernel, a library bug, or bad indices. The "
            "line shown is often not the guilty one."
        ),
        sure=(
            "CUDA_LAUNCH_BLOCKING=1; compute-sanitizer; the same batch on the CPU, where an index error shows plainly."
        ),
        cure="Mend indices; other version of the extension; another GPU if only one card does it.",
        lesson="09",
        needs="gpu",
        patterns=("CUDA error: an illegal memory access was encountered",),
        source="InternLM/lmdeploy#3258; vllm-project/vllm#4108; pytorch/pytorch#180280",
    ),
    Fault(
        id="cuda-device-assert",
        see="RuntimeError: CUDA error: device-side assert triggered",
        means=(
            "An index is out of range on the GPU: most often a label ≥ the number of classes, or a token ≥ the "
            "vocabulary."
        ),
        sure="Print labels.min() and labels.max(); run that batch on the CPU: a plain IndexError.",
        cure="Mend the labels or the layer's size. Then start afresh: the process is lost.",
        lesson="09",
        needs="gpu",
        patterns=(
            "CUDA error: device-side assert triggered",
            r"block: \[\d+,\d+,\d+\], thread: \[\d+,\d+,\d+\] Assertion ",
        ),
        source="pytorch docs",
    ),
    Fault(
        id="cuda-invalid-ordinal",
        see="RuntimeError: CUDA error: invalid device ordinal",
        means=(
            "A rank asks for a GPU that it does not have: more ranks than visible GPUs, or the global rank "
            "used as the device."
        ),
        sure="Compare torch.cuda.device_count() with LOCAL_RANK on the rank.",
        cure=(
            "--nproc-per-node at most the number of visible GPUs; set_device(LOCAL_RANK), never RANK; look at "
            "CUDA_VISIBLE_DEVICES."
        ),
        lesson="01",
        needs="gpu",
        patterns=(
            "CUDA error: invalid device ordinal",
            "invalid device ordinal",
            "Invalid device id",
        ),
        source=(
            "cfzd/Ultra-Fast-Lane-Detection#193; tatsu-lab/stanford_alpaca#67; THUDM/CogDL#268; pytorch/torchtitan#423"
        ),
    ),
    Fault(
        id="cuda-driver-too-old",
        see=("UserWarning: CUDA initialization: The NVIDIA driver on your system is too old (found version 12080)."),
        means="The NVIDIA driver is older than the CUDA that this torch was built with. torch then sees no GPU.",
        sure="nvidia-smi shows the driver's CUDA version, torch.version.cuda the build's.",
        cure="A newer driver (CUDA 13.0 wants 580 or later), or a torch built for an older CUDA.",
        lesson="00",
        needs="gpu",
        patterns=(
            "NVIDIA driver on your system is too old",
            "CUDA driver version is insufficient for CUDA runtime version",
            "forward compatibility was attempted on non supported HW",
        ),
        source="pytorch/pytorch#162531; sgl-project/sglang#11395",
    ),
    Fault(
        id="cuda-no-gpu",
        see=(
            "RuntimeError: Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU and "
            "installed a driver\n"
            "RuntimeError: No CUDA GPUs are available"
        ),
        means=("The script asks for a GPU and the process sees none. In a container: it was started without --gpus."),
        sure="nvidia-smi where the script runs (inside the container, inside the job); CUDA_VISIBLE_DEVICES.",
        cure=(
            "docker run --gpus all; #SBATCH --gres=gpu:N; or device = 'cuda' if torch.cuda.is_available() else 'cpu'."
        ),
        lesson="00",
        patterns=(
            "Found no NVIDIA driver on your system",
            "No CUDA GPUs are available",
            "CUDA error: no CUDA-capable device is detected",
        ),
        source="torch/cuda/__init__.py _lazy_init",
    ),
    Fault(
        id="cuda-cpu-build",
        see="AssertionError: Torch not compiled with CUDA enabled",
        means="The CPU wheel of torch is installed.",
        sure="torch.version.cuda is None.",
        cure="Install a torch that was built for CUDA (pytorch.org shows the command).",
        lesson="00",
        needs="gpu",
        patterns=("Torch not compiled with CUDA enabled",),
        no_script="needs a CPU build of torch",
        source="torch/cuda/__init__.py _lazy_init",
    ),
    Fault(
        id="cuda-arch-unsupported",
        see="RuntimeError: CUDA error: no kernel image is available for execution on the device",
        means="The card is too old or too new for this build of torch.",
        sure="Compare torch.cuda.get_arch_list() with torch.cuda.get_device_capability().",
        cure="Install a torch that was built for this card.",
        lesson="00",
        needs="gpu",
        patterns=(
            r"with CUDA capability sm_\d+ is not compatible with the current PyTorch installation",
            "CUDA error: no kernel image is available for execution on the device",
        ),
        source="torch/cuda/__init__.py _check_cubins",
    ),
    Fault(
        id="cuda-busy",
        see="RuntimeError: CUDA error: CUDA-capable device(s) is/are busy or unavailable",
        means="The GPU is in exclusive mode and someone uses it, or it needs a reset.",
        sure="nvidia-smi: 'E. Process' under Compute M., and who holds the card.",
        cure="One rank per GPU; end the holder; administrator: nvidia-smi -c DEFAULT.",
        lesson="00",
        needs="gpu",
        patterns=(
            r"CUDA-capable device\(s\) is/are busy or unavailable",
            "all CUDA-capable devices are busy or unavailable",
        ),
        source="OpenNMT/OpenNMT-py#1605; scitix/sichek#51; pytorch/pytorch#3871",
    ),
    Fault(
        id="cuda-sick-gpu",
        see="RuntimeError: CUDA error: uncorrectable ECC error encountered",
        means="The card or its slot is broken, too hot, or short of power.",
        sure="`dmesg | grep -i xid`; nvidia-smi -q -d ECC. Is it always the same card?",
        cure="Leave this GPU or node out; have it reset or replaced.",
        lesson="09",
        needs="gpu",
        patterns=(
            "uncorrectable ECC error encountered",
            r"NVRM: Xid \(",
            "GPU has fallen off the bus",
            "Unable to determine the device handle for (?:GPU|gpu)",
            "CUDA error: (?:hardware stack error|the launch timed out)",
        ),
        source="vllm-project/vllm#5222; jade-hpc-gpu/jade-hpc-gpu.github.io#194; wilicc/gpu-burn#1",
    ),
    Fault(
        id="cuda-launch-failure",
        see="RuntimeError: CUDA error: unspecified launch failure",
        means="A kernel crashed on the GPU: wrong indices in it, or the card itself.",
        sure="CUDA_LAUNCH_BLOCKING=1; dmesg | grep -i xid.",
        cure="Mend the kernel's indices, or another version of the extension; another card if only one does it.",
        lesson="09",
        needs="gpu",
        patterns=("CUDA error: unspecified launch failure",),
    ),
    Fault(
        id="cuda-library-failed",
        see="RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
        means=(
            "cuBLAS or cuDNN could not work: most often the GPU is full, or an earlier kernel had an index out "
            "of range."
        ),
        sure="nvidia-smi while it starts; CUDA_LAUNCH_BLOCKING=1; the same batch on the CPU.",
        cure=(
            "Free GPU memory or use a smaller batch; mend labels and indices; a fresh environment if libraries "
            "are mixed."
        ),
        lesson="09",
        needs="gpu",
        patterns=(
            r"CUBLAS_STATUS_\w+ when calling",
            r"cuDNN error: CUDNN_STATUS_\w+",
            "CUBLAS_STATUS_(?:NOT_INITIALIZED|ALLOC_FAILED|EXECUTION_FAILED)",
        ),
    ),
    Fault(
        id="cuda-fabric-manager",
        see="RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 802: system not yet initialized",
        means="A server with NVSwitch whose fabric manager does not run, or has another version than the driver.",
        sure="systemctl status nvidia-fabricmanager; nvidia-smi -q | grep -A2 Fabric.",
        cure="Start nvidia-fabricmanager in the driver's version (the administrator does it).",
        lesson="00",
        needs="gpu",
        patterns=(
            "Error 802: system not yet initialized",
            "CUDA error: system not yet initialized",
        ),
    ),
    Fault(
        id="devices-differ",
        see=(
            "RuntimeError: Expected all tensors to be on the same device, but found at least two devices, "
            "cuda:0 and cuda:1!"
        ),
        means=(
            "An operation got tensors on two devices: the input, the model or the optimizer's state is still "
            "on the CPU or on GPU 0."
        ),
        sure="Print .device of the input, of a weight and of the optimizer's state.",
        cure=(
            "Move the model before wrapping and before making the optimizer; x.to(device) for each batch; "
            "torch.load(…, map_location='cpu')."
        ),
        lesson="08",
        needs="gpu",
        patterns=(
            "Expected all tensors to be on the same device, but",
            r"Input type \(torch\.(?:cuda\.)?FloatTensor\) and weight type \(torch\.(?:cuda\.)?FloatTensor\)",
        ),
    ),
    Fault(
        id="cuda-driver-mismatch",
        see="Failed to initialize NVML: Driver/library version mismatch",
        means="The NVIDIA driver was updated and the old one is still loaded.",
        sure="nvidia-smi says the same; cat /proc/driver/nvidia/version shows the old version.",
        cure="Restart the machine (or unload the nvidia modules).",
        lesson="00",
        needs="gpu",
        patterns=("Driver/library version mismatch",),
    ),
    Fault(
        id="cuda-library-missing",
        see="ImportError: libcudart.so.12: cannot open shared object file: No such file or directory",
        means=(
            "A package was built for another CUDA than the one installed here, or its libraries are not on the "
            "search path."
        ),
        sure="Which package's import is it? pip list | grep -i -E 'torch|nvidia'; echo $LD_LIBRARY_PATH.",
        cure="Install torch and that package for the same CUDA version, in a fresh environment.",
        lesson="00",
        needs="gpu",
        patterns=(r"ImportError: lib(?:cu|nv|cudnn)\S*\.so\S*: cannot open shared object file",),
    ),
)
