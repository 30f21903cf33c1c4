"""A cell's text becomes a script, and nothing that a person wrote is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddp_helpers import LaunchError, script
from ddp_helpers.script import check_syntax, write_script


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_the_file_is_the_cell_byte_for_byte() -> None:
    text = "# größe ✓\nx = 'a\tb'  \n\n\nprint(x)"
    assert write_script("scripts/a.py", text).read_bytes() == text.encode()


def test_a_changed_cell_writes_again_what_it_wrote() -> None:
    write_script("scripts/a.py", "x = 1")
    write_script("scripts/a.py", "x = 2")
    assert Path("scripts/a.py").read_text(encoding="utf-8") == "x = 2"


@pytest.mark.parametrize("made_by", ["hand", "an edit"])
def test_what_a_person_wrote_is_refused_and_kept_by_force(made_by: str) -> None:
    if made_by == "hand":
        Path("a.py").write_text("mine = 1", encoding="utf-8")
    else:
        write_script("a.py", "theirs = 1")
        Path("a.py").write_text("mine = 1", encoding="utf-8")
    with pytest.raises(LaunchError, match="edited outside this cell"):
        write_script("a.py", "new = 1")
    assert Path("a.py").read_text(encoding="utf-8") == "mine = 1"
    write_script("a.py", "new = 1", force=True)
    assert (Path("a.py").read_text(encoding="utf-8"), Path("a.py.bak").read_text(encoding="utf-8")) == (
        "new = 1",
        "mine = 1",
    )


def test_the_same_text_is_no_conflict() -> None:
    Path("a.py").write_text("x = 1", encoding="utf-8")
    write_script("a.py", "x = 1")


@pytest.mark.parametrize("name", ["../a.py", "/etc/a.py", "a.txt", "scripts", "link/a.py"])
def test_a_script_stays_below_the_notebook(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    Path("link").symlink_to(tmp_path_factory.mktemp("elsewhere"))
    with pytest.raises(LaunchError, match="below the notebook's folder"):
        write_script(name, "x = 1")


def test_a_failed_write_leaves_the_old_file_and_no_rubbish(monkeypatch: pytest.MonkeyPatch) -> None:
    write_script("a.py", "old = 1")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(script.os, "replace", full)
    with pytest.raises(LaunchError, match=r"No space left on device\. Nothing was run"):
        write_script("a.py", "new = 1")
    assert Path("a.py").read_text(encoding="utf-8") == "old = 1"
    assert [path.name for path in Path().iterdir() if path.is_file()] == ["a.py"]


def test_a_percent_sign_in_a_string_is_no_magic() -> None:
    Path("a.py").write_text('x = """\n%matplotlib inline\n!ls\n"""\ny = 7 \\\n% 2\n', encoding="utf-8")
    check_syntax(Path("a.py"), cell=True)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("%%time\nx = 1", "no magics"),
        ("x = 1\n  !ls", "no shell"),
        ("await f()", "asyncio.run"),
        ("x = (", "was never closed"),
    ],
)
def test_notebook_syntax_is_told_with_the_cells_line(text: str, words: str) -> None:
    Path("a.py").write_text(text, encoding="utf-8")
    with pytest.raises(LaunchError, match="cell line") as refused:
        check_syntax(Path("a.py"), cell=True)
    assert words in str(refused.value)
    assert str(refused.value).endswith("No rank was started.")
