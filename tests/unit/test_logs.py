"""Following log files while they are written."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddp_helpers.logs import CHUNK, Follower, Line, metrics_of, shown


@pytest.fixture
def stdout(tmp_path: Path) -> Path:
    folder = tmp_path / "node0" / "run_x" / "attempt_0" / "1"
    folder.mkdir(parents=True)
    return folder / "stdout.log"


def test_only_whole_lines_come_and_a_cut_character_waits(tmp_path: Path, stdout: Path) -> None:
    follower = Follower(tmp_path, nproc=2)
    ü = "ü".encode()
    with stdout.open("wb", buffering=0) as file:
        file.write(b"one\ntw" + ü[:1])
        assert follower.poll() == [Line(1, "stdout", "one")]
        file.write(ü[1:] + b"o\nrest")
        assert follower.poll() == [Line(1, "stdout", "twüo")]
        assert follower.live() == [Line(1, "stdout", "rest")]
    assert list(follower.drain()) == [[], [Line(1, "stdout", "rest")]]


def test_ranks_of_other_nodes_and_attempts_are_found(tmp_path: Path, stdout: Path) -> None:
    stdout.write_text("a\n", encoding="utf-8")
    for path in ("node1/run_x/attempt_0/0", "node0/run_x/attempt_1/1"):
        (tmp_path / path).mkdir(parents=True)
        (tmp_path / path / "stderr.log").write_text("b\n")
    found = [line for lines in Follower(tmp_path, nproc=2).drain() for line in lines]
    assert sorted(found) == [Line(1, "stderr", "b"), Line(1, "stdout", "a"), Line(2, "stderr", "b")]


def test_a_line_without_an_end_takes_no_endless_memory(tmp_path: Path, stdout: Path) -> None:
    stdout.write_bytes(b"x" * (4 * CHUNK))
    follower = Follower(tmp_path, nproc=2)
    for _ in range(5):
        follower.poll()
    assert all(len(stream.partial) <= CHUNK for stream in follower._streams.values())
    list(follower.drain())


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("plain", "plain"),
        ("  1%\r 50%\r100%", "100%"),
        ("100%\r", "100%"),  # Windows line ends, and bars that end with a return
        ("\x1b[31mred\x1b[0m \x1b]0;title\x07x", "red x"),
        ("\x1b[2K\x1b[1A50%", "50%"),
        ("", ""),
    ],
)
def test_a_line_is_shown_as_a_terminal_would_leave_it(line: str, text: str) -> None:
    assert shown(line) == text


@pytest.mark.parametrize(
    ("line", "metrics"),
    [
        ("epoch=1 loss=0.52 images/s=1830", {"epoch": 1, "loss": 0.52, "images/s": 1830}),
        ("step=3, lr=1e-3; loss=nan", {"step": 3, "lr": 1e-3, "loss": pytest.approx(float("nan"), nan_ok=True)}),
        ("loss=-.5", {"loss": -0.5}),
        ("name=cat path=/a/b x=1.2.3 url=http://x?y=1", None),
        ("a == 1", None),
    ],
)
def test_key_value_words_become_metrics(line: str, metrics: dict[str, float] | None) -> None:
    assert metrics_of(2, line) == (metrics and {"rank": 2, **metrics})
