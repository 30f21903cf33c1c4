"""JupyterLab and Chromium for the tests in this folder: one server, one browser, a new notebook for each test."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from build_notebooks import ROOT, scratch_copy
from lab_page import LabNotebook, chromium_page, write_notebook
from lab_server import Server, running_server
from playwright.sync_api import Page


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    home = tmp_path_factory.mktemp("jupyter")
    with scratch_copy(ROOT) as scratch, running_server(scratch / "notebooks", home) as running:
        yield running


@pytest.fixture(scope="session")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    executable = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if executable is None:
        pytest.fail("there is no chromium here. On Debian and Ubuntu: sudo apt install chromium")
    with chromium_page(executable, tmp_path_factory.mktemp("chromium")) as opened:
        yield opened


@pytest.fixture
def open_notebook(server: Server, page: Page, tmp_path: Path) -> Iterator[Callable[..., LabNotebook]]:
    """`open_notebook("sleep", cell, cell, …)` writes a notebook of these cells and opens it.

    Without cells it must exist already. Screenshots go to the test's tmp_path and, when the environment variable
    SCREENSHOTS names a folder, there too.
    """
    wanted = os.environ.get("SCREENSHOTS")
    folders = (tmp_path, *([Path(wanted).absolute()] if wanted else []))

    def open_it(name: str, *cells: str) -> LabNotebook:
        if cells:
            write_notebook(server.notebooks / f"{name}.ipynb", *cells)
        return LabNotebook(page, server, f"{name}.ipynb", folders).open()

    yield open_it
    server.end_kernels()
