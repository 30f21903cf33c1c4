"""Cell text to script file, byte for byte; and nothing that a person wrote is overwritten."""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from pathlib import Path

from .result import LaunchError

MAGIC_LINE = re.compile(r"^[ \t]*(%{1,2}\w|![\w./~$])")


def write_script(name: str, text: str, force: bool = False) -> Path:
    """Write a cell's text to a script below the notebook's folder, and remember what was written.

    Raises:
        LaunchError: the name leads elsewhere; the file was made or edited by someone; nothing can be written there.
    """
    path = _inside_the_notebooks_folder(name)
    new = text.encode("utf-8")
    try:
        if path.exists() and (old := path.read_bytes()) != new and not _is_ours(path, old):
            if not force:
                raise LaunchError(
                    f"{name} was edited outside this cell, so it is left as it is.\n"
                    "Give the script another name, copy the edits into the cell, or add --force "
                    f"(which keeps the file as {path.name}.bak)."
                )
            _write(path.with_name(path.name + ".bak"), old)
        _write(path, new)
        _write(_note_of(path), _digest(new))
    except UnicodeEncodeError as error:
        raise LaunchError(
            f"This Python cannot write a file named {name!r}: the locale's encoding is {error.encoding}. "
            "Name the script in ASCII, or start Jupyter with PYTHONUTF8=1."
        ) from error
    except OSError as error:
        raise LaunchError(f"Cannot write {name} in {Path.cwd()}: {error.strerror}. Nothing was run.") from error
    return path


def _inside_the_notebooks_folder(name: str) -> Path:
    here = Path.cwd().resolve()
    path = (here / name).resolve()
    if here not in path.parents or path.suffix != ".py":
        raise LaunchError(
            f"{name}: the script must be a .py file below the notebook's folder, such as scripts/hello.py."
        )
    return path


def _note_of(path: Path) -> Path:
    return Path.cwd().resolve() / "runs" / "written" / path.relative_to(Path.cwd().resolve()).with_suffix(".sha256")


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).hexdigest().encode()


def _is_ours(path: Path, content: bytes) -> bool:
    note = _note_of(path)
    return note.exists() and note.read_bytes() == _digest(content)


def _write(path: Path, content: bytes) -> None:
    """Replace a file in one step: a reader, or a full disk, never leaves half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fd, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}")
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(content)
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except OSError:
        os.unlink(temporary)
        raise


def _umask() -> int:
    umask = os.umask(0)
    os.umask(umask)
    return umask


def check_syntax(path: Path, cell: bool) -> None:
    """Compile a script before it is run, so that a syntax error is told once and not once a rank.

    Raises:
        LaunchError: with the place, and what to do about notebook syntax that plain Python does not know.
    """
    try:
        source = path.read_bytes()
    except OSError as error:
        here = ", ".join(sorted(p.as_posix() for p in Path("scripts").glob("*.py"))) or "none in scripts/"
        raise LaunchError(
            f"{path.as_posix()}: {error.strerror}. Scripts here: {here}.\n"
            "(To run a cell's own text, begin the cell with %%torchrun, with two signs.)"
        ) from error
    try:
        compile(source, str(path), "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        raise LaunchError(_explained(error, path, source.decode("utf-8", "replace"), cell)) from None


def _explained(error: SyntaxError | ValueError, path: Path, source: str, cell: bool) -> str:
    if not isinstance(error, SyntaxError):
        return f"{path.as_posix()} is no Python source: {error}. No rank was started."
    number = error.lineno or 0
    lines = source.splitlines()
    line = lines[number - 1] if 0 < number <= len(lines) else ""
    where = f"cell line {number + 1}" if cell else f"line {number} of {path.as_posix()}"
    advice = ""
    if MAGIC_LINE.match(line):
        advice = (
            "\nThe cell is a Python script: it knows no magics and no shell commands. Put them in a cell of their own."
        )
    elif "'await' outside" in str(error.msg) or "async" in str(error.msg):
        advice = "\nA script has no running event loop. Put the coroutine in a function and call asyncio.run(…)."
    caret = " " * (4 + max(0, (error.offset or 1) - 1)) + "^" if line else ""
    return f"SyntaxError: {error.msg}, {where}:\n    {line}\n{caret}{advice}\nNo rank was started."
