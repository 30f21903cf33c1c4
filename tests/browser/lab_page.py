"""A notebook in JupyterLab as a user has it: menus, buttons and clicks; what it shows is read from the page."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
from lab_server import Server
from playwright.sync_api import Locator, Page, sync_playwright

CHROMIUM_OPTIONS = [
    "--no-sandbox",  # Chromium's sandbox refuses to work as root, and in most containers
    *(
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
    ),
    *("--disable-component-update", "--disable-sync", "--disable-default-apps"),
]
# JupyterLab's own model knows all cells, also those that are scrolled out of sight and may not be on the page.
CELLS = """() => jupyterapp.shell.currentWidget.content.widgets.map(cell => ({
    type: cell.model.type,
    source: cell.model.sharedModel.source,
    state: cell.model.executionState,
    count: cell.model.executionCount,
    outputs: cell.model.type === 'code' ? cell.model.outputs.toJSON() : [],
}))"""
ALL_IDLE = f"""() => {{
    const status = jupyterapp.shell.currentWidget.sessionContext.session.kernel.status;
    return status === 'idle' && ({CELLS})().every(cell => cell.type !== 'code' || cell.state === 'idle');
}}"""
KERNEL_READY = """() => window.jupyterapp?.shell.currentWidget?.sessionContext?.session?.kernel?.status === 'idle'
    && jupyterapp.shell.currentWidget.context?.isReady"""


@contextmanager
def chromium_page(executable: str, profile: Path, width: int = 1280, height: int = 800) -> Iterator[Page]:
    """A page of Debian's Chromium with an empty profile of its own."""
    with sync_playwright() as playwright:
        context = playwright.chromium.launch_persistent_context(
            str(profile),
            executable_path=executable,
            headless=True,
            args=CHROMIUM_OPTIONS,
            viewport={"width": width, "height": height},
            env={**os.environ, "HOME": str(profile)},  # crash reports and caches go below HOME, which may not be ours
        )
        context.set_default_timeout(30_000)
        try:
            yield context.pages[0] if context.pages else context.new_page()
        finally:
            context.close()


@dataclass
class LabNotebook:
    """An open notebook. Cells are numbered from 0."""

    page: Page
    server: Server
    name: str
    pictures: tuple[Path, ...] = ()

    def open(self) -> LabNotebook:
        self.page.goto(f"{self.server.url}lab/tree/{self.name}?reset&token={self.server.token}")
        self.page.wait_for_function(KERNEL_READY, timeout=60_000)
        return self

    # -- what a user does

    def menu(self, title: str, item: str) -> None:
        """Choose from the menu bar: `menu("Run", "Run All Cells")`."""
        self.page.locator(".lm-MenuBar-itemLabel", has_text=re.compile(rf"^{title}$")).click()
        self.page.locator(".lm-Menu-itemLabel", has_text=re.compile(rf"^{re.escape(item)}$")).click()

    def run_all(self) -> None:
        self.menu("Run", "Run All Cells")

    def run_cell(self, index: int) -> None:
        self.cell(index).locator(".jp-InputArea-editor").click()
        self.page.keyboard.press("Shift+Enter")

    def press_stop(self) -> None:
        """The toolbar's square button."""
        self.page.locator('.jp-NotebookPanel-toolbar [data-command="notebook:interrupt-kernel"]').click()

    def restart_kernel(self) -> None:
        self.menu("Kernel", "Restart Kernel…")
        self.page.locator(".jp-Dialog").get_by_role("button", name="Confirm Kernel Restart").click()

    # -- what a user sees

    def cell(self, index: int) -> Locator:
        return self.page.locator(f'.jp-Notebook .jp-Cell[data-windowed-list-index="{index}"]')

    def output(self, index: int) -> Locator:
        return self.cell(index).locator(".jp-Cell-outputArea")

    def chips(self, index: int) -> list[tuple[str, str, str]]:
        """The coloured labels of a cell's output: their text, background and ink as the browser computed them."""
        return [
            tuple(chip)
            for chip in self.output(index)
            .locator("span[style*=background]")
            .evaluate_all(
                "all => all.map(e => [e.textContent, getComputedStyle(e).backgroundColor, getComputedStyle(e).color])"
            )
        ]

    def wait_for_output(self, index: int, text: str | re.Pattern[str], seconds: float = 30) -> None:
        self.output(index).get_by_text(text).first.wait_for(timeout=seconds * 1000)

    def wait_until_all_cells_ran(self, seconds: float) -> None:
        self.page.wait_for_function(ALL_IDLE, timeout=seconds * 1000)

    def cells(self) -> list[Any]:
        """All cells as they are now; each has `source`, `state`, `count` (None if it was not run) and `outputs`."""
        return [nbformat.from_dict(cell) for cell in self.page.evaluate(CELLS)]

    def errors(self) -> list[str]:
        """Which cells show an error, and which."""
        return [
            f"cell {index}: {output.ename}: {output.evalue}"
            for index, cell in enumerate(self.cells())
            for output in cell.outputs
            if output.output_type == "error"
        ]

    def picture(self, name: str, cell: int | None = None) -> None:
        """Keep a screenshot, with that cell in view."""
        if cell is not None:
            self.cell(cell).scroll_into_view_if_needed()
        for folder in self.pictures:
            folder.mkdir(parents=True, exist_ok=True)
            self.page.screenshot(path=str(folder / f"{name}.png"))


def write_notebook(path: Path, *cells: str) -> None:
    """A notebook of code cells that has not been run."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell.strip("\n")) for cell in cells])
    notebook.metadata["kernelspec"] = {"display_name": "Python 3", "language": "python", "name": "python3"}
    nbformat.write(notebook, path)
