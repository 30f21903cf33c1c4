"""Does CUDA start? NVML may see every GPU while CUDA fails, so a process of its own tries, and this one stays clean."""

from __future__ import annotations

import subprocess
import sys

PATIENCE = 60  # seconds: many GPUs, and a driver that nobody keeps loaded, take some

# cuInit only: no context is made, no memory of a GPU is taken. torch is not needed.
SCRIPT = """
import ctypes, sys
try:
    cuda = ctypes.CDLL(sys.argv[1])
except OSError as error:
    sys.exit(f"no libcuda: {error}")
code = cuda.cuInit(0)
if code:
    text = ctypes.c_char_p()
    cuda.cuGetErrorString(code, ctypes.byref(text))
    sys.exit(f"{code}: {(text.value or b'unknown error').decode()}")
"""


def cuda_error(library: str = "", patience: float = PATIENCE) -> str | None:
    """None when CUDA starts (or hides all GPUs, as it was told); otherwise what it says, as in "802: system not …"."""
    name = library or ("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    try:
        run = subprocess.run(
            [sys.executable, "-c", SCRIPT, name],
            capture_output=True,
            text=True,
            encoding="utf-8",
            errors="replace",
            timeout=patience,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"no answer in {patience:g} seconds"
    if run.returncode == 0:
        return None
    if run.returncode < 0:
        return f"the process was ended by signal {-run.returncode}"
    error = (run.stderr.strip().splitlines() or ["unknown error"])[-1]
    return None if error.startswith("100:") else error  # 100: no device, where CUDA_VISIBLE_DEVICES leaves none
