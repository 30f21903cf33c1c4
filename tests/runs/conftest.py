"""A real Jupyter kernel in a folder of its own, and what its cells show."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from build_notebooks import ROOT
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager

SECONDS = 90.0


@dataclass
class Output:
    """What one cell showed, in its last state: displays (HTML and text), printed text, and the error."""

    displays: list[dict[str, Any]] = field(default_factory=list)
    printed: str = ""
    error: str = ""  # the exception's name
    traceback: str = ""

    @property
    def text(self) -> str:
        return "\n".join([*(d["text/plain"] for d in self.displays), self.printed])


class Notebook:
    """Runs cells in a kernel, as a front end does."""

    def __init__(self, client: BlockingKernelClient, folder: Path) -> None:
        self.client, self.folder = client, folder

    def run(self, cell: str, on_message: Callable[[dict[str, Any]], None] = lambda message: None) -> Output:
        output, shown = Output(), {}

        def take(message: dict[str, Any]) -> None:
            on_message(message)
            kind, content = message["msg_type"], message["content"]
            if kind in ("display_data", "execute_result"):
                shown[content.get("transient", {}).get("display_id", len(shown))] = content["data"]
            elif kind == "update_display_data":
                shown[content["transient"]["display_id"]] = content["data"]
            elif kind == "stream":
                output.printed += content["text"]
            elif kind == "error":
                output.error = content["ename"]
                output.traceback = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(content["traceback"]))

        self.client.execute_interactive(dedent(cell), output_hook=take, timeout=SECONDS, store_history=True)
        output.displays = list(shown.values())
        return output


@pytest.fixture(scope="module")
def start_notebook(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Notebook]]:
    """`start_notebook(folder, **environment)`: a kernel there, with the extension loaded."""
    started: list[tuple[KernelManager, BlockingKernelClient]] = []
    ipython = tmp_path_factory.mktemp("ipython")

    def start(folder: Path, **environment: str) -> Notebook:
        folder.mkdir(parents=True, exist_ok=True)
        manager = KernelManager()
        env = {**os.environ, "IPYTHONDIR": str(ipython), **environment}
        manager.start_kernel(cwd=str(folder), env=env, extra_arguments=["--log-level=ERROR"])
        client = manager.blocking_client()
        client.start_channels()
        started.append((manager, client))
        client.wait_for_ready(timeout=SECONDS)
        notebook = Notebook(client, folder)
        assert not notebook.run("%load_ext ddp_helpers").error
        return notebook

    yield start
    for manager, client in started:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
        manager.cleanup_resources()


@pytest.fixture(scope="module")
def notebook(start_notebook: Callable[..., Notebook], tmp_path_factory: pytest.TempPathFactory) -> Notebook:
    """One kernel for all tests of a file that harm nobody else."""
    return start_notebook(tmp_path_factory.mktemp("notebooks"))


@pytest.fixture
def notebook_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A notebook's folder to work in, with the data where lessons look for it, as nobody's grader."""
    (tmp_path / "data").symlink_to(ROOT / "data")
    folder = tmp_path / "notebooks"
    (folder / "scripts").mkdir(parents=True)
    monkeypatch.chdir(folder)
    monkeypatch.delenv("NBGRADER_EXECUTION", raising=False)
    return folder
