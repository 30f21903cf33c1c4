"""What people meet in notebooks, in a real kernel: public reports (a01 …), and input that is wrong."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Notebook, Output

from ddp_helpers.pictures import colour

HELLO = "%%torchrun --nproc-per-node 2 scripts/hello.py\nimport os\nprint('hello', os.environ['RANK'])"


def lines(output: Output) -> list[str]:
    return sorted(output.displays[0]["text/plain"].splitlines()[1:])


def test_a_cell_runs_and_shows_each_rank_in_its_colour(notebook: Notebook) -> None:
    output = notebook.run(HELLO)
    assert lines(output) == ["[rank 0] hello 0", "[rank 1] hello 1"]
    assert output.displays[0]["text/plain"].startswith("2 ranks on ")
    for rank in (0, 1):
        assert f"background:{colour(rank)}" in output.displays[0]["text/html"]
    assert (notebook.folder / "scripts/hello.py").read_text() == "import os\nprint('hello', os.environ['RANK'])\n"


def test_the_cells_of_the_readme_run(notebook: Notebook) -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    cells = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    assert len(cells) == 2
    for cell in cells:
        output = notebook.run(cell)
        assert not output.error
    assert lines(output) == [f"[rank {rank}] there are 4 of us" for rank in range(4)]


def test_a_kernel_that_computed_and_loaded_data_can_still_launch(notebook: Notebook) -> None:
    """a03, a15: nothing in the kernel may stand in the way, because the ranks are no forks of it."""
    assert not notebook.run("""
        import torch
        from torch.utils.data import DataLoader
        x = torch.ones(600, 600) @ torch.ones(600, 600)
        n = len(list(DataLoader(torch.ones(8, 1), num_workers=2)))
    """).error
    output = notebook.run(
        "%%torchrun scripts/context.py\nimport torch\nprint(torch.cuda.is_initialized(), torch._C._cuda_isInBadFork())"
    )
    assert lines(output) == ["[rank 0] False False"]


def test_a_class_of_a_cell_is_lost_on_spawn_and_found_in_the_script(notebook: Notebook) -> None:
    """a01"""
    model = "import torch\nclass Net(torch.nn.Linear):\n    pass\ndef work(rank, net): pass\n"
    spawn = "import torch.multiprocessing as mp\nmp.spawn(work, args=(Net(1, 1),), nprocs=2)"
    assert "ProcessExitedException" in notebook.run(model + spawn).error
    body = (
        "if __name__ == '__main__':\n"
        "    import torch.multiprocessing as mp\n"
        "    mp.spawn(work, args=(Net(1, 1),), nprocs=2)\n"
    )
    output = notebook.run("%%torchrun scripts/spawn.py\n" + model + body + "    print('spawned')")
    assert lines(output) == ["[rank 0] spawned"]


def test_the_kernels_model_stays_untrained(notebook: Notebook) -> None:
    """a02"""
    notebook.run("import torch; model = torch.nn.Linear(1, 1); torch.nn.init.zeros_(model.weight)")
    notebook.run(
        "%%torchrun scripts/t.py\n"
        "import torch\n"
        "model = torch.nn.Linear(1, 1)\n"
        "model.weight.data.fill_(3)\n"
        "torch.save(model.state_dict(), 'm.pt')"
    )
    assert notebook.run("model.weight.item(), torch.load('m.pt')['weight'].item()").text.strip() == "(0.0, 3.0)"


def test_lines_of_ranks_are_never_torn(notebook: Notebook) -> None:
    """a05"""
    output = notebook.run(
        "%%torchrun --nproc-per-node 4 --into run scripts/torn.py\n"
        "import os\n"
        "for _ in range(500): print('hello', os.environ['RANK'])"
    )
    assert output.displays[0]["text/plain"].count("\n") == 1 + 200  # header, shown lines, the gap between them
    whole = notebook.run("[rank.stdout == f'hello {rank.rank}\\n' * 500 for rank in run.ranks]")
    assert whole.text.strip() == "[True, True, True, True]"
    assert "1,800 more lines; all of them are in runs/" in output.text


@pytest.mark.parametrize("above", ["# my DDP cell\n", "import os\n"])
def test_a_line_above_the_magic_is_named(notebook: Notebook, above: str) -> None:
    """a10"""
    output = notebook.run(above + HELLO)
    assert output.error == "LaunchError"
    assert "must be the very first line" in output.traceback


def test_modules_and_data_beside_the_notebook_are_found(
    start_notebook: Callable[..., Notebook], tmp_path: Path
) -> None:
    """a11; and a module that has a name of the standard library's, or of ours, harms nothing."""
    notebook = start_notebook(tmp_path)
    notebook.run(
        "from pathlib import Path\n"
        "Path('utils_local.py').write_text('value = 7')\n"
        "Path('data.txt').write_text('8')\n"
        "Path('random.py').write_text('1/0')\n"
        "Path('logs.py').write_text('1/0')"
    )
    for cold in ("", "--cold "):
        output = notebook.run(
            f"%%torchrun {cold}scripts/local.py\nimport utils_local\nprint(utils_local.value, open('data.txt').read())"
        )
        assert lines(output) == ["[rank 0] 7 8"]


def test_any_characters_survive_in_a_folder_of_any_name(
    start_notebook: Callable[..., Notebook], tmp_path: Path
) -> None:
    """a14, a25, g11: with the C locale, in a folder with a blank and an umlaut"""
    notebook = start_notebook(tmp_path / "my läb dir", LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
    for cold in ("", "--cold "):
        output = notebook.run(
            f"%%torchrun --nproc-per-node 2 {cold}scripts/groesse.py 'a b' c\n"
            f"import sys\n"
            f"print('größe ✓ 学习', sys.argv[1:])"
        )
        assert lines(output) == [f"[rank {r}] größe ✓ 学习 ['a b', 'c']" for r in (0, 1)]


def test_lines_stream_while_the_cell_runs(notebook: Notebook) -> None:
    """a17, a18: seen by the front end while the rank waits for a file that we write when we have seen its line."""
    folder = notebook.folder

    def answer(message: dict[str, Any]) -> None:
        data = message["content"].get("data", {})
        for number in (0, 1, 2):
            if f"line {number}" in data.get("text/plain", ""):
                (folder / f"seen-{number}").touch()

    cell = """%%torchrun --timeout 60 scripts/stream.py
import os, time
for number in range(3):
    print("line", number)
    while not os.path.exists(f"seen-{number}"):
        time.sleep(0.01)
"""
    output = notebook.run(cell, answer)
    assert lines(output) == ["[rank 0] line 0", "[rank 0] line 1", "[rank 0] line 2"]


def test_progress_bars_stay_one_line_a_rank(notebook: Notebook) -> None:
    """g02, g08: on every rank, also through tqdm.auto, which must find no widgets there"""
    output = notebook.run(
        "%%torchrun --nproc-per-node 2 scripts/bar.py\n"
        "from tqdm.auto import tqdm\n"
        "for _ in tqdm(range(300), mininterval=0): pass"
    )
    assert not output.error
    found = lines(output)
    assert len(found) == 2
    assert all(f"[rank {rank}] 100%" in found[rank] and "300/300" in found[rank] for rank in (0, 1))


def test_everything_works_without_ipywidgets(start_notebook: Callable[..., Notebook], tmp_path: Path) -> None:
    """g09"""
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / "ipywidgets.py").write_text("raise ImportError('hidden')")
    notebook = start_notebook(tmp_path / "notebooks", PYTHONPATH=str(tmp_path / "hidden"))
    assert not notebook.run(HELLO).error
    asked = notebook.run("from ddp_helpers import predict\npredict('01.a', 'Which?', ['this', 'that'], choice=2)")
    assert not asked.error
    assert "1. this" in asked.text


# ---- input that is wrong --------------------------------------------------------------------------------------------

WRONG = {
    "%%torchrun --nproc-per-node 0 scripts/a.py\n1": "at least 1",
    "%%torchrun --nproc-per-node gpu scripts/a.py\n1": "This machine has no GPU",
    "%%torchrun --nproc-per-node 2 --colour scripts/a.py\n1": "unrecognized arguments: --colour",
    "%%torchrun --retrun x scripts/a.py\n1": "Did you mean --return?",
    "%%torchrun\n1": "the line names no script",
    "%%torchrun --nnodes 1:4 scripts/a.py\n1": "this is one number",
    "%%torchrun ../a.py\n1": "below the notebook's folder",
    "%%torchrun /tmp/a.py\n1": "below the notebook's folder",
    "%%torchrun scripts/a.txt\n1": "must be a .py file",
    "%%torchrun --into 2x scripts/a.py\n1": "the name of a variable",
    "%%torchrun --log-dir x scripts/a.py\n1": "no use in a notebook",
    "%%torchrun -m some.module\n1": "a cell is a script",
    "%%torchrun scripts/a.py\nx = 1\n%matplotlib inline": "cell line 3",
    "%%torchrun scripts/a.py\n!ls": "no shell commands",
    "%%torchrun scripts/a.py\nawait f()": "asyncio.run",
    "%%torchrun --nproc-per-node 2 scripts/a.py\nfor x in 1": "cell line 2",
    "%torchrun scripts/none.py": "No such file",
    "%torchrun scripts/a.py\nimport torch.distributed as dist\ndist.init_process_group('gloo')": "write two",
    "%%torchrun --expect-failure scripts/a.py\n1": "every rank succeeded",
    "%%torchrun --return x scripts/a.py\ny = 1": "no global named 'x'",
    "%%torchrun scripts/a.py\nname = input()": "A rank has no keyboard",
}


def test_wrong_input_gets_one_clear_error(notebook: Notebook) -> None:
    for cell, words in WRONG.items():
        output = notebook.run(cell)
        assert output.error in ("LaunchError", "RankFailed"), cell
        assert words in " ".join(output.traceback.split()), cell
        assert "File " not in output.traceback, cell  # no traceback through our own code
        assert len(output.traceback.splitlines()) <= 25
    assert not notebook.run(HELLO).error


def test_a_script_that_someone_edited_is_left_alone(notebook: Notebook) -> None:
    folder = notebook.folder
    notebook.run(HELLO)
    with open(folder / "scripts/hello.py", "a", encoding="utf-8") as file:
        file.write("\n# mine")
    refused = notebook.run(HELLO)
    assert refused.error == "LaunchError"
    assert "was edited outside this cell" in refused.traceback
    assert (folder / "scripts/hello.py").read_text(encoding="utf-8").endswith("# mine")
    forced = notebook.run(HELLO.replace("torchrun", "torchrun --force", 1))
    assert not forced.error
    assert (folder / "scripts/hello.py.bak").read_text(encoding="utf-8").endswith("# mine")


def test_a_taken_master_port_says_so_and_runs_nothing(notebook: Notebook) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        output = notebook.run(HELLO.replace("--nproc", f"--master-port {port} --nproc", 1))
    assert output.error == "LaunchError"
    assert "EADDRINUSE" in output.traceback
    assert "Leave --master-port out" in output.traceback
    assert "hello" not in output.displays[0]["text/plain"].partition("\n")[2]


def test_a_failing_rank_is_named_first(notebook: Notebook) -> None:
    """a13: the rank, the exception, the cell's line and its text, in at most 25 lines. (How soon: make bench.)"""
    output = notebook.run(
        """%%torchrun --nproc-per-node 4 scripts/fail.py
import torch, torch.distributed as dist
dist.init_process_group("gloo")
if dist.get_rank() == 1:
    print(1 / 0)
dist.all_reduce(torch.ones(1))
"""
    )
    shown = output.traceback.splitlines()
    assert shown[0] == "RankFailed: rank 1 of 4 failed: ZeroDivisionError: division by zero"
    assert shown[1] == "  cell line 5:  print(1 / 0)"
    assert any("ended when rank 1 failed" in line for line in shown)
    assert len(shown) + len(output.text.splitlines()) <= 25


def test_a_hang_is_noticed_while_the_run_goes_on(notebook: Notebook) -> None:
    folder = notebook.folder
    notices: list[str] = []

    def note(message: dict[str, Any]) -> None:
        text = message["content"].get("data", {}).get("text/plain", "")
        if "Nothing has moved" in text:
            notices.append(text)
            (folder / "go").touch()

    output = notebook.run(
        """%%torchrun --nproc-per-node 3 --timeout 60 --notice 2 scripts/hang.py
import os, time, torch, torch.distributed as dist
dist.init_process_group("gloo")
if dist.get_rank() == 2:
    while not os.path.exists("go"):
        time.sleep(0.2)
dist.all_reduce(torch.ones(2, 2))
""",
        note,
    )
    assert not output.error
    assert "ranks 0, 1: waiting in all_reduce #1 [2, 2] (cell line 7)" in notices[0]
    assert "rank 2: at `time.sleep(0.2)` (cell line 6)" in notices[0]
    assert "Nothing has moved" not in output.displays[0]["text/plain"]


def test_a_run_that_computes_is_never_called_a_hang(notebook: Notebook) -> None:
    notices: list[str] = []

    def note(message: dict[str, Any]) -> None:
        notices.extend(t for t in [message["content"].get("data", {}).get("text/plain", "")] if "moved" in t)

    output = notebook.run(
        "%%torchrun --notice 1 scripts/busy.py\nimport time\nend = time.time() + 4\nwhile time.time() < end: pass", note
    )
    assert not output.error
    assert not notices


def test_a_timeout_says_where_everybody_was(notebook: Notebook) -> None:
    output = notebook.run(
        """%%torchrun --nproc-per-node 2 --timeout 2 scripts/late.py
import time, torch, torch.distributed as dist
dist.init_process_group("gloo")
if dist.get_rank() == 1:
    time.sleep(1000)
dist.barrier()
"""
    )
    assert output.error == "RunTimeout"
    assert "rank 0: waiting in barrier #1 (cell line 6)" in output.traceback
    assert "rank 1: at `time.sleep(1000)` (cell line 5)" in output.traceback
    assert "no process is left" in output.text


def test_a_script_that_starts_its_own_group_gets_advice_in_place_of_silence(notebook: Notebook) -> None:
    output = notebook.run(
        """%%torchrun --timeout 6 scripts/spawns.py
import os, torch.distributed as dist, torch.multiprocessing as mp
def work(rank):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29677")
    dist.init_process_group("gloo", rank=rank, world_size=2)
if __name__ == "__main__":
    mp.spawn(work, nprocs=2)
"""
    )
    assert output.error == "RunTimeout"
    assert "TORCHELASTIC_USE_AGENT_STORE" in output.traceback


def test_runs_of_other_kinds_of_output_end_well(notebook: Notebook) -> None:
    """Binary bytes, no newline at the end, carriage returns, colours, a flood."""
    output = notebook.run(
        r"""%%torchrun scripts/odd.py
import sys
sys.stdout.buffer.write(b"\xff\xfe bytes\n")
sys.stdout.write("\x1b[31mred\x1b[0m\n")
sys.stdout.write("old\rnew\n")
sys.stdout.write("x" * 5000 + "\n")
sys.stdout.write("no newline")
"""
    )
    found = output.displays[0]["text/plain"].splitlines()[1:]
    assert found[:3] == ["[rank 0] \ufffd\ufffd bytes", "[rank 0] red", "[rank 0] new"]
    assert found[3].endswith("… (3,000 more characters)")
    assert found[4] == "[rank 0] no newline"


def test_a_flood_of_200_mb_is_cut_for_display_and_kept_whole(notebook: Notebook) -> None:
    output = notebook.run(
        "%%torchrun --into flood scripts/flood.py\n"
        "line = 'x' * 99 + '\\n"
        "'\n"
        "import sys\n"
        "for _ in range(200): sys.stdout.write(line * 10_000)"
    )
    assert len(output.displays[0]["text/plain"]) < 50_000
    size = notebook.run("(flood.log_dir / 'rank0' / 'stdout.log').stat().st_size")
    assert size.text.strip() == str(200 * 10_000 * 100)
