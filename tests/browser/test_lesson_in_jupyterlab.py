"""What a learner meets in JupyterLab: colours, live lines, the stop button, errors, progress bars, predictions."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from lab_page import LabNotebook
from lab_server import Server, wait_until

from ddp_helpers.environment import RUN_MARK
from ddp_helpers.pictures.palette import colour, ink

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]

OpenNotebook = Callable[..., LabNotebook]
LOAD = "%load_ext ddp_helpers"
COUNTING = """
%%torchrun --nproc-per-node 4 scripts/counting.py
import os
import time

for second in range(60):
    print(f"second {second} at {time.time():.2f} in process {os.getpid()}")
    time.sleep(1)
"""
HELLO = """
%%torchrun --nproc-per-node 4 scripts/hello.py
import os

print("hello from", os.environ["RANK"])
"""


def test_lesson_01_runs_from_top_to_bottom_with_the_ranks_in_their_colours(open_notebook: OpenNotebook) -> None:
    notebook = open_notebook("01_who_am_i")
    notebook.picture("lesson-opened")
    notebook.run_all()
    notebook.wait_until_all_cells_ran(seconds=180)

    code_cells = [cell for cell in notebook.cells() if cell.type == "code"]
    assert all(cell.count for cell in code_cells)
    assert notebook.errors() == []
    chips = [chip for index in range(len(notebook.cells())) for chip in notebook.chips(index)]
    assert {label for label, _, _ in chips} == {"rank 0", "rank 1", "rank 2", "rank 3"}
    assert [chip for chip in chips if chip != expected_chip(chip[0])] == []
    first_run = next(i for i, cell in enumerate(notebook.cells()) if cell.source.startswith("%%torchrun"))
    notebook.picture("lesson-ran", cell=first_run)


def test_the_stop_button_ends_a_sleeping_run_and_the_next_cell_works(open_notebook: OpenNotebook) -> None:
    notebook = open_notebook("stop", LOAD, COUNTING, "after = 1", HELLO)
    notebook.run_all()
    for second in range(1, 4):
        notebook.wait_for_output(1, f"second {second} ")
    notebook.picture("counting")
    ranks = pids_in(notebook.output(1).inner_text())
    assert len(ranks) == 4 and all(psutil.pid_exists(pid) for pid in ranks)

    notebook.press_stop()
    notebook.wait_until_all_cells_ran(seconds=20)
    notebook.picture("stopped", cell=1)
    assert [pid for pid in ranks if psutil.pid_exists(pid)] == []
    assert marked_processes(notebook.server.notebooks) == []
    shown = notebook.output(1).inner_text()
    assert "interrupted after" in shown and "no process is left" in shown
    assert len(notebook.errors()) == 1 and "you stopped this cell" in shown
    assert "Traceback" not in shown
    assert [cell.count for cell in notebook.cells()[2:]] == [None, None]

    notebook.run_cell(3)
    notebook.wait_for_output(3, "hello from 3")
    notebook.wait_until_all_cells_ran(seconds=20)
    assert len(notebook.chips(3)) == 4
    notebook.picture("next-cell", cell=3)


def test_a_line_is_on_the_page_within_a_second_of_being_printed(open_notebook: OpenNotebook) -> None:
    notebook = open_notebook("live", LOAD, COUNTING)
    notebook.page.evaluate("""() => {
        window.seen = {};  // what a rank printed and when it did, and when it was on the page
        const look = () => {
            const text = document.querySelector('.jp-Notebook').innerText;
            for (const [, second, printed] of text.matchAll(/second (\\d+) at ([\\d.]+)/g)) {
                window.seen[`${second} ${printed}`] ??= Date.now() / 1000 - Number(printed);
            }
        };
        new MutationObserver(look).observe(document.querySelector('.jp-Notebook'), {childList: true, subtree: true});
    }""")
    notebook.run_all()
    notebook.wait_for_output(1, "second 5 ")
    notebook.press_stop()
    notebook.wait_until_all_cells_ran(seconds=20)
    delays = notebook.page.evaluate("window.seen")
    seconds = {int(key.split()[0]) for key in delays}
    assert seconds >= {0, 1, 2, 3, 4, 5}
    late = {key: delay for key, delay in delays.items() if delay > 1}
    assert not late


def test_a_failing_rank_is_shown_with_its_cell_line_and_run_all_stops_there(open_notebook: OpenNotebook) -> None:
    failing = """
%%torchrun --nproc-per-node 2 scripts/failing.py
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
row = {"text": "a cat", "label": 1}
if dist.get_rank() == 1:
    print("looking for the label")
    row["label_column"]
dist.all_reduce(torch.ones(1))
"""
    notebook = open_notebook("failing", LOAD, failing, "after = 1")
    notebook.run_all()
    notebook.wait_until_all_cells_ran(seconds=60)
    notebook.picture("failing")
    assert len(notebook.errors()) == 1
    assert notebook.cells()[2].count is None
    shown = notebook.output(1).inner_text()
    assert "rank 1 of 2 failed: KeyError: 'label_column'" in shown
    assert re.search(r"cell line 9\b.*row\[\"label_column\"\]", shown)
    assert "Rank 0 ended when rank 1 failed" in shown
    assert len(shown.strip().splitlines()) <= 25


def test_a_progress_bar_is_one_live_line_on_each_rank(open_notebook: OpenNotebook) -> None:
    bars = """
%%torchrun --nproc-per-node 2 scripts/bars.py
import time
from tqdm import tqdm

for step in tqdm(range(30), desc="training"):
    time.sleep(0.1)
print("trained")
"""
    notebook = open_notebook("bars", LOAD, bars)
    notebook.page.evaluate("""() => {
        window.seen = {};  // for each rank: the states of its bar, and the most lines it had at once
        const look = () => {
            const lines = document.querySelector('.jp-Notebook').innerText.split('\\n');
            for (const rank of [0, 1]) {
                const bars = lines.filter(line => line.startsWith(`rank ${rank} training`));
                const known = window.seen[rank] ??= {states: [], most: 0};
                known.most = Math.max(known.most, bars.length);
                known.states = [...new Set([...known.states, ...bars])];
            }
        };
        new MutationObserver(look).observe(document.querySelector('.jp-Notebook'), {childList: true, subtree: true});
    }""")
    notebook.run_all()
    notebook.wait_for_output(1, re.compile(r" \d\d/30 "))
    notebook.picture("progress-bars")
    notebook.wait_until_all_cells_ran(seconds=60)
    seen = notebook.page.evaluate("window.seen")
    assert [seen[rank]["most"] for rank in "01"] == [1, 1]
    assert all(len(seen[rank]["states"]) >= 5 for rank in "01")
    shown = notebook.output(1).inner_text()
    assert shown.count("training") == 2 and shown.count("100%") == 2
    notebook.picture("progress-bars-done")


def test_a_hang_is_explained_while_it_lasts(open_notebook: OpenNotebook) -> None:
    hanging = """
%%torchrun --nproc-per-node 2 --notice 2 scripts/hanging.py
import time
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
print("ready")
if dist.get_rank() == 1:
    time.sleep(600)
dist.all_reduce(torch.ones(2, 2))
"""
    notebook = open_notebook("hanging", LOAD, hanging)
    notebook.run_all()
    notebook.wait_for_output(1, "Nothing has moved for", seconds=60)
    shown = notebook.output(1).inner_text()
    notebook.picture("hanging", cell=1)
    assert re.search(r"rank 0\b.*all_reduce #1 \[2, 2\] \(cell line 10\)", shown)
    assert re.search(r"rank 1\b.*`time\.sleep\(600\)` \(cell line 9\)", shown)
    assert [cell.state for cell in notebook.cells()] == ["idle", "running"]  # it was told, and not killed
    notebook.press_stop()
    notebook.wait_until_all_cells_ran(seconds=20)
    afterwards = notebook.output(1).inner_text()
    assert afterwards.count("Nothing has moved") == 1, "the notice is gone; what it said stands below the stop"
    assert afterwards.index("Interrupted: you stopped") < afterwards.index("Rank 0 waits in all_reduce #1")
    assert marked_processes(notebook.server.notebooks) == []


def test_a_prediction_is_clicked_recorded_and_compared(open_notebook: OpenNotebook) -> None:
    asking = 'from ddp_helpers import predict\npredict("99.a", "How many ranks print?", ["one", "two", "all four"])'
    notebook = open_notebook("predicting", LOAD, asking, 'predict("99.a", happened="two")')
    notebook.run_all()
    notebook.wait_until_all_cells_ran(seconds=30)
    notebook.picture("prediction-asked")
    notebook.output(1).get_by_label("two").click()
    notebook.wait_for_output(1, "Recorded")
    notebook.picture("prediction-made")

    book = notebook.server.notebooks / "runs" / "predictions.json"
    assert json.loads(book.read_text(encoding="utf-8"))["99.a"]["choice"] == "two"
    notebook.run_cell(2)
    notebook.wait_for_output(2, "As you predicted.")
    notebook.picture("prediction-compared")


def test_the_doctors_columns_stand_side_by_side(open_notebook: OpenNotebook) -> None:
    notebook = open_notebook("asking", "from ddp_helpers import doctor\ndoctor()")  # JupyterLab has styles for tables
    notebook.run_all()
    notebook.wait_until_all_cells_ran(seconds=60)
    cells = notebook.output(0).locator("td")
    assert cells.count() >= 30
    assert cells.evaluate_all("all => all.filter(e => e.scrollWidth > e.clientWidth + 1).map(e => e.innerText)") == []
    notebook.picture("doctor")


def test_restarting_the_kernel_during_a_run_leaves_no_process(server: Server, open_notebook: OpenNotebook) -> None:
    notebook = open_notebook("restart", LOAD, COUNTING)
    notebook.run_all()
    notebook.wait_for_output(1, "second 1 ")
    kernel = next(p for p in psutil.Process(server.process.pid).children() if "ipykernel_launcher" in p.cmdline())
    family = [kernel, *kernel.children(recursive=True)]
    ranks = pids_in(notebook.output(1).inner_text())
    assert set(ranks) <= {process.pid for process in family}

    notebook.restart_kernel()
    wait_until(lambda: not [p for p in family if p.is_running()], 10, "kernel, warm parent, agent and ranks are gone")
    assert marked_processes(server.notebooks) == []
    notebook.picture("restarted")


def expected_chip(label: str) -> tuple[str, str, str]:
    rank = int(label.split()[1])
    return label, css(colour(rank)), css(ink(rank))


def css(code: str) -> str:
    """ "#0072B2" as a browser says it: "rgb(0, 114, 178)"."""
    return f"rgb({', '.join(str(int(code[i : i + 2], 16)) for i in (1, 3, 5))})"


def pids_in(text: str) -> list[int]:
    return sorted({int(pid) for pid in re.findall(r"in process (\d+)", text)})


def marked_processes(notebooks: Path) -> list[psutil.Process]:
    """What runs of notebooks in that folder have started, and is alive."""

    def belongs(process: psutil.Process) -> bool:
        with suppress(psutil.Error, OSError):
            return process.environ().get(RUN_MARK, "").startswith(str(notebooks))
        return False

    return [process for process in psutil.process_iter() if belongs(process)]
