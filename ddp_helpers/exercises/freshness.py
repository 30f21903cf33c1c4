"""Is the script on disk what stands in the notebook's cell? A kernel sees only what was run, and what was saved."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

LONG_AGO = 120  # seconds after which a script's age is worth a word


def changed_since_it_ran(script: Path) -> bool:
    """Whether the notebook was saved after the script was written, with another text in the script's cell.

    A change that was neither run nor saved cannot be seen from here.
    """
    notebook = _notebook_file()
    if notebook is None or notebook.stat().st_mtime <= script.stat().st_mtime:
        return False
    saved = _saved_cells(notebook, script)
    # A cell that was run as it is saved: then somebody edited the script itself, and the script is what counts.
    known = {_read(script), *_executed_cells(script)[-1:]}
    return bool(saved) and not known & set(saved)


def origin(script: Path) -> str:
    """A word on where the script comes from, unless its cell has just written it."""
    if _shell() is None:
        return ""
    executed = _executed_cells(script)
    name = script.as_posix()
    if executed and executed[-1] != _read(script):
        return f"Checked was the file {name}, which was edited outside its cell."
    age = time.time() - script.stat().st_mtime
    if not executed:
        return f"Checked was {name} as an earlier session left it: its cell has not been run in this one."
    if age > LONG_AGO:
        minutes = f"{age / 60:.0f} minutes ago"
        return f"Checked was {name}, which its cell wrote {minutes}. Changed it since? Run the cell again."
    return ""


def _executed_cells(script: Path) -> list[str]:
    """The texts that cells of this session have written to the script, oldest first."""
    shell = _shell()
    return _bodies(shell.history_manager.input_hist_raw, script) if shell is not None else []


def _saved_cells(notebook: Path, script: Path) -> list[str]:
    try:
        cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
        return _bodies(["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"], script)
    except (OSError, ValueError, KeyError, TypeError):  # being saved just now, or no notebook
        return []


def _bodies(cells: list[str], script: Path) -> list[str]:
    found = []
    for cell in cells:
        first, _, body = cell.lstrip().partition("\n")
        if first.startswith("%%torchrun") and script.as_posix() in first.split():
            found.append(body.rstrip())
    return found


def _read(script: Path) -> str:
    return script.read_bytes().decode("utf-8", "replace").rstrip()


def _notebook_file() -> Path | None:
    """The file of the running notebook: Jupyter's server and VS Code tell the kernel, others do not."""
    shell = _shell()
    told = os.environ.get("JPY_SESSION_NAME", "") or (shell.user_ns.get("__vsc_ipynb_file__", "") if shell else "")
    path = Path(told)
    return path if path.suffix == ".ipynb" and path.is_file() else None


def _shell() -> Any:
    return sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
