"""What holds the files of the repository together: settings that are said twice, and what may be in git."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
TOP_LEVEL = {
    "CONTRIBUTING.md",
    "INSTRUCTOR.md",
    "LICENSE",
    "Makefile",
    "README.md",
    "data",
    "ddp_helpers",
    "environment.yml",
    "notebooks",
    "pyproject.toml",
    "tests",
    "tools",
}
MAX_BYTES = 1_000_000


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def pyproject() -> dict[str, Any]:
    return tomllib.loads(read("pyproject.toml"))


def conda_dependencies() -> list[Any]:
    dependencies: list[Any] = yaml.safe_load(read("environment.yml"))["dependencies"]
    return dependencies


def tracked() -> list[str]:
    """The files in git's index; the test is skipped in a copy without git."""
    try:
        listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    except (FileNotFoundError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout")
    return [name for name in listing.stdout.decode("utf-8").split("\0") if name]


def in_git(name: str) -> bytes:
    """A file's content in git's index: someone's own work in the folder does not count."""
    return subprocess.run(["git", "show", f":{name}"], cwd=ROOT, capture_output=True, check=True).stdout


# ---- environment.yml, Makefile and pyproject.toml


def test_conda_installs_the_python_range_that_the_package_requires() -> None:
    assert f"python{pyproject()['project']['requires-python']}" in conda_dependencies()


def test_make_accepts_the_python_range_that_the_package_requires() -> None:
    low, high = re.fullmatch(r">=3\.(\d+),<3\.(\d+)", pyproject()["project"]["requires-python"]).groups()
    makefile = read("Makefile")
    assert f"not (3, {low}) <= sys.version_info[:2] < (3, {high})" in makefile
    assert set(re.findall(r"3\.\d+ to 3\.\d+", makefile)) == {f"3.{low} to 3.{int(high) - 1}"}


def test_conda_installs_by_pip_what_make_lab_installs() -> None:
    by_pip = next(entry["pip"] for entry in conda_dependencies() if isinstance(entry, dict))
    stamp = re.search(r"^\$\(VENV\)/\.installed:.*?\n\n", read("Makefile"), flags=re.MULTILINE | re.DOTALL)
    assert by_pip == [f"-e {what}" for what in re.findall(r"pip install -e '(.*?)'", stamp[0])]


def test_conda_takes_nothing_but_python_and_pip_from_its_channel() -> None:
    names = [re.match(r"[a-z]+", entry)[0] for entry in conda_dependencies() if isinstance(entry, str)]
    assert names == ["python", "pip"]
    assert yaml.safe_load(read("environment.yml"))["channels"] == ["conda-forge"]


def test_every_line_of_the_conda_environment_gives_its_reason() -> None:
    bare = [
        line for line in read("environment.yml").splitlines() if re.match(r"\s+- (?!pip:)", line) and " # " not in line
    ]
    assert not bare


@pytest.mark.skipif(not shutil.which("make"), reason="no make here")
def test_every_target_that_make_helps_with_can_be_made() -> None:
    asked = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True)
    targets = re.findall(r"^make (\S+)", asked.stdout, re.MULTILINE)
    assert {"lab", "test", "bench", "course"} <= {*targets}
    dry = subprocess.run(["make", "-n", *targets], cwd=ROOT, capture_output=True, text=True)
    assert (dry.returncode, dry.stderr) == (0, ""), "a rule is missing, or there are two for one target"


def test_the_extras_that_the_makefile_names_exist() -> None:
    named = {extra for group in re.findall(r"'\.\[(.*?)\]'", read("Makefile")) for extra in group.split(",")}
    assert named == {"dev", "bench"}
    assert named | {"classroom"} == set(pyproject()["project"]["optional-dependencies"])


def test_the_classroom_extra_asks_for_nothing_that_the_tests_do_not_run() -> None:
    extras = pyproject()["project"]["optional-dependencies"]
    assert set(extras["classroom"]) <= set(extras["dev"])


def test_ci_ends_with_the_readmes_test_command() -> None:
    commands = [line for line in read(".ci/run").splitlines() if line.strip() and not line.startswith("#")]
    assert commands[-1] == "make test"
    assert "make test" in read("README.md") and "make lab" in read("README.md")


# ---- what is in git


def test_the_top_level_holds_only_what_the_layout_names() -> None:
    names = {name.split("/")[0] for name in tracked()}
    assert {name for name in names if not name.startswith(".")} <= TOP_LEVEL


def test_no_tracked_file_is_over_one_megabyte() -> None:
    large = {name: (ROOT / name).stat().st_size for name in tracked() if (ROOT / name).is_file()}
    assert not {name: size for name, size in large.items() if size > MAX_BYTES}


def test_learner_notebooks_in_git_have_not_been_run() -> None:
    for name in tracked():
        if re.fullmatch(r"notebooks/[^/]+\.ipynb", name):
            cells = [cell for cell in json.loads(in_git(name))["cells"] if cell["cell_type"] == "code"]
            assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in cells), name


def test_what_is_written_while_learning_is_not_in_git() -> None:
    assert not [name for name in tracked() if re.match(r"notebooks/(.+/)?(scripts|runs)/", name)]


def test_learning_leaves_nothing_for_git_to_show() -> None:
    tracked()
    written = ["notebooks/scripts/01_a.py", "notebooks/runs/0001-a/0/stdout.log", "notebooks/solved/scripts/01_a.py"]
    written += ["notebooks/.ipynb_checkpoints/01_ranks-checkpoint.ipynb", "notebooks/solved/runs/predictions.json"]
    ignored = subprocess.run(["git", "check-ignore", *written], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ignored.stdout.splitlines() == written
