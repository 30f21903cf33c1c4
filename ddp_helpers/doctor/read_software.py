"""Which torch and torchvision are installed, and what they were built for."""

from __future__ import annotations

import re
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any


def software() -> dict[str, Any]:
    """The facts of a Machine about torch and torchvision."""
    return {**_torch(), **_torchvision()}


def _torch() -> dict[str, Any]:
    try:
        import torch

        build = torch.version
    except ModuleNotFoundError as error:
        return {} if error.name == "torch" else {"torch": _installed("torch"), "torch_error": str(error)}
    except (ImportError, OSError) as error:  # OSError: a library of CUDA that is missing
        return {"torch": _installed("torch"), "torch_error": str(error)}
    except AttributeError:  # a file or folder named torch stands in the way
        return {"torch": _installed("torch"), "torch_error": f"it is not PyTorch: {_place(torch)}"}
    return {
        "torch": str(torch.__version__),
        "torch_cuda": build.cuda,
        "torch_hip": getattr(build, "hip", None),
        "torch_archs": _archs(torch),
        "nccl": _nccl(torch),
    }


def _place(module: Any) -> str:
    where = getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", [])), "")
    return f"Python finds {Path(where).name} in the folder {Path(where).parent.name!r} first"


def _archs(torch: Any) -> tuple[str, ...]:
    # A constant of the build. torch.cuda.get_arch_list() of some versions answers only where a GPU can be used.
    flags = getattr(torch._C, "_cuda_getArchFlags", lambda: None)()
    return tuple((flags or "").split())


def _nccl(torch: Any) -> str | None:
    try:
        # Reads a constant of the library: it answers without any GPU and touches none.
        return ".".join(str(part) for part in torch.cuda.nccl.version())
    except AttributeError:  # a CPU build, or macOS and Windows: torch without NCCL
        return None


def _torchvision() -> dict[str, Any]:
    """Read from its files: importing it takes seconds, and fails in the case that we look for."""
    version = _installed("torchvision")
    if version is None:
        return {}
    needs = (re.match(r"torch\s*\(?([<>=!~][^;)]*)", line) for line in metadata.requires("torchvision") or ())
    found = [match[1].strip() for match in needs if match]
    return {
        "torchvision": version,
        "torchvision_needs": found[0] if found else None,
        "torchvision_cuda": _tag(),
    }


def _tag() -> str | None:
    """The build's tag, as in 0.29.1+cu130; the metadata of the package index leave it out."""
    spec = find_spec("torchvision")
    if spec is None or spec.origin is None:
        return None
    try:
        text = (Path(spec.origin).parent / "version.py").read_text(encoding="utf-8")
    except OSError:
        return None
    match = re.search(r"__version__ = '[^+']*\+(\w+)'", text)
    return match[1] if match else None


def _installed(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
