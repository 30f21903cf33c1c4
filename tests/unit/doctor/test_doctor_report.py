"""The doctor's report in a terminal, in a notebook and for programs; recorded machines."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from html.parser import HTMLParser
from typing import Any

import pytest
from doctor_machines import laptop

from ddp_helpers.doctor import (
    Machine,
    doctor,
    examine,
    html,
    main,
    recorded,
    recorded_names,
)
from ddp_helpers.doctor.machine import GIB, MIB, size
from ddp_helpers.pictures.palette import contrast


def test_every_recorded_machine_says_that_it_is_made_by_hand_and_from_what() -> None:
    assert {"8-gpu-server", "container-64mb-shm", "mixed-gpus"} <= set(recorded_names())
    for name in recorded_names():
        machine = recorded(name)
        assert machine.name == name
        assert "made by hand" in machine.source
        assert "#" in machine.source  # a public thread
        assert machine.urls
        assert all(url.startswith("https://github.com/") for url in machine.urls)
        assert all(f'href="{url}"' in doctor(name)._repr_html_() for url in machine.urls)
        assert machine.source in repr(doctor(name)).replace("\n  ", " ")


@pytest.mark.parametrize("name", recorded_names())
def test_a_machine_survives_json(name: str) -> None:
    machine = recorded(name)
    assert Machine.from_dict(json.loads(json.dumps(machine.to_dict()))) == machine


def test_recorded_links_join_every_pair_once() -> None:
    for name in recorded_names():
        machine = recorded(name)
        count = len(machine.gpus)
        assert sorted((link.a, link.b) for link in machine.links) == [
            (a, b) for a in range(count) for b in range(a + 1, count)
        ]


def test_an_unknown_machine_is_refused_with_the_names_there_are() -> None:
    with pytest.raises(ValueError, match=r"there are: 8-gpu-server, container-64mb-shm, .*unresolved-hostname"):
        doctor("my-server")
    with pytest.raises(ValueError, match="colour"):
        Machine.from_dict({"name": "x", "colour": "red"})


def test_a_line_is_found_by_its_name_and_an_unknown_one_lists_the_names() -> None:
    report = doctor("container-64mb-shm")
    assert report["Shared Memory"].level == "problem"
    with pytest.raises(KeyError, match="shared memory"):
        report["shm"]


def test_the_text_has_every_finding_with_its_sign_and_ends_with_the_verdict() -> None:
    text = repr(doctor("container-64mb-shm"))
    for sign, name in [("✘", "shared memory"), ("✔", "GPUs"), ("·", "NCCL"), ("»", "world size")]:
        assert f"{sign} {name}" in text
    assert "→ Start the container with --shm-size=8g" in text
    assert text.splitlines()[-1] == "Mend this first: shared memory."
    assert max(len(line) for line in text.splitlines()) <= 110


class Texts(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.text, self.open = "", 0

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.open += 1

    def handle_endtag(self, tag: str) -> None:
        self.open -= 1

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_html_says_what_the_text_says_and_is_closed() -> None:
    report = doctor("mixed-gpus")
    page = Texts()
    page.feed(report._repr_html_())
    assert page.open == 0
    for finding in report.findings:
        assert (finding.found in page.text) is finding.shown
        assert (finding.matters in page.text) is finding.shown
        assert finding.do in page.text
    assert report.silent() in page.text
    assert page.text.endswith(report.summary())


def test_the_html_takes_the_pages_own_colours_except_on_chips() -> None:
    markup = doctor("mixed-gpus")._repr_html_()
    chips = sum(markup.count(f"background:{background};color:{ink}") for _, background, ink in html.CHIPS.values())
    assert chips == markup.count("<tr")
    assert markup.count("color:") == chips


@pytest.mark.parametrize("chip", html.CHIPS)
def test_every_chip_is_readable(chip: str) -> None:
    _, background, ink = html.CHIPS[chip]
    assert contrast(background, ink) >= 4.5


def test_facts_are_escaped_in_html() -> None:
    assert "<b>evil" not in examine(laptop(hostname="<b>evil", address=None))._repr_html_()


def test_the_report_names_no_port_and_no_name_of_a_sound_machine() -> None:
    text = repr(examine(laptop(hostname="secret-host")))
    assert "secret-host" not in text


def test_the_exit_code_is_1_only_when_something_must_be_mended(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--machine", "8-gpu-server"]) == 0
    assert main(["--machine", "mixed-gpus"]) == 0  # a warning: it runs
    assert main(["--machine", "container-64mb-shm"]) == 1
    assert "Mend this first: shared memory." in capsys.readouterr().out


def test_json_holds_facts_findings_and_advice(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--json", "--machine", "container-64mb-shm"]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert Machine.from_dict(answer["machine"]) == recorded("container-64mb-shm")
    assert [line["name"] for line in answer["findings"] if line["level"] == "problem"] == ["shared memory"]
    assert answer["world_size"]["ranks"] == 4
    assert answer["exit_code"] == 1


def test_a_terminal_without_the_signs_gets_a_report_all_the_same() -> None:
    code = "import sys; from ddp_helpers.doctor import main; sys.exit(main(['--machine', '8-gpu-server']))"
    run = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        timeout=60,
    )
    assert run.returncode == 0, run.stderr
    assert b"world size" in run.stdout


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (64 * MIB, "64 MiB"),
        (23.5 * GIB, "23.5 GiB"),
        (1004 * GIB, "1004 GiB"),
        (2048 * GIB, "2 TiB"),
        (None, "unknown"),
    ],
)
def test_sizes_read_as_people_say_them(count: float | None, text: str) -> None:
    assert size(count) == text


def test_a_puzzle_keeps_the_findings_and_hides_the_answer() -> None:
    report = doctor(machine="container-64mb-shm")
    puzzle = report.puzzle()
    assert [finding.found for finding in puzzle.findings] == [finding.found for finding in report.findings]
    for text in (repr(puzzle), puzzle._repr_html_()):
        assert "Start the container with" not in text
        assert "Mend this first" not in text


def test_the_json_has_every_check_whether_or_not_the_report_shows_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--json", "--machine", "no-gpu-laptop"]) == 0
    healthy = json.loads(capsys.readouterr().out)
    assert main(["--json", "--machine", "no-fabric-manager"]) == 1
    ill = json.loads(capsys.readouterr().out)
    assert list(healthy) == ["format", "machine", "findings", "world_size", "verdict", "exit_code"]
    assert list(ill) == list(healthy)
    assert [line["name"] for line in ill["findings"]] == [line["name"] for line in healthy["findings"]]
    assert list(ill["machine"]) == list(healthy["machine"])
    assert healthy["verdict"] == "Ready: nothing here must be mended."
    assert ill["verdict"] == "Mend this first: driver, NVLink."


def test_a_healthy_report_is_short_and_names_what_else_was_looked_at() -> None:
    report = doctor("no-gpu-laptop")
    text = repr(report)
    assert "Also looked at, and nothing found: GPU code, GPU health" in text
    assert "✔ disk" not in text
    assert "limits" not in [line.name for line in report.shown]
    assert report["limits"].level == "ok"


@pytest.mark.parametrize(
    ("facts", "where"),
    [
        ({}, "Is laptop ready?"),
        ({"container": "Podman"}, "Is laptop ready? (inside a Podman container)"),
        ({"wsl": True}, "Is laptop ready? (under WSL)"),
        (
            {"container": "Apptainer", "slurm": "job"},
            "Is laptop ready? (inside an Apptainer container, in a Slurm job)",
        ),
        ({"slurm": "login"}, "Is laptop ready?"),
    ],
)
def test_the_title_says_where_we_are(facts: dict[str, Any], where: str) -> None:
    assert examine(laptop(**facts)).title() == where
