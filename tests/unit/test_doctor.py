"""The doctor: each check finds what is there, says whether it matters, and asks for nothing it cannot justify."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ddp_helpers.doctor import (
    Finding,
    Machine,
    cores,
    doctor,
    driver,
    examine,
    gather,
    gpu_memory,
    gpus,
    hostname,
    html,
    links,
    main,
    memory,
    nccl,
    nvml,
    ports,
    recorded,
    recorded_names,
    shared_memory,
    software,
    threads,
)
from ddp_helpers.doctor.machine import GIB, MIB, Cpu, Gpu, GpuProcess, Link, size
from ddp_helpers.doctor.visible import visible_gpus
from ddp_helpers.doctor.world_size import advise
from ddp_helpers.pictures.palette import contrast


def laptop(**facts: Any) -> Machine:
    """A healthy machine without a GPU, with other facts where a test needs them."""
    healthy = Machine(
        name="laptop",
        python="3.12.1",
        torch="2.14.1+cu130",
        torch_cuda="13.0",
        nccl="2.30.7",
        cpus=tuple(Cpu(number, number) for number in range(4)),
        memory_total=16 * GIB,
        memory_available=10 * GIB,
        shm_total=8 * GIB,
        shm_free=8 * GIB,
        hostname="laptop",
        address="127.0.1.1",
    )
    return replace(healthy, **facts)


def server(count: int = 2, **facts: Any) -> Machine:
    cards = tuple(Gpu(index, "NVIDIA A100", 40 * GIB, 0, uuid=f"GPU-{index}abc") for index in range(count))
    joined = tuple(Link(a, b, "NV12", True) for a in range(count) for b in range(a + 1, count))
    return laptop(**{"gpus": cards, "links": joined, "driver": "580.95", "driver_cuda": "13.0", **facts})


def level(finding: Finding) -> str:
    return finding.level


# -- the checks ------------------------------------------------------------------------------------------------------


def test_a_healthy_laptop_has_nothing_to_mend() -> None:
    report = examine(laptop())
    assert {finding.level for finding in report.findings} <= {"ok", "note"}
    assert report.exit_code == 0
    assert report.summary() == "Ready: nothing here must be mended."


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({"python": "3.9.18"}, "problem"),
        ({"python": "3.10.0"}, "ok"),
        ({"torch": "2.8.0"}, "problem"),
        ({"torch": "2.9.0a0+git1234"}, "ok"),
        ({"torch": "2.10.0"}, "ok"),
        ({"torch": None}, "problem"),
    ],
)
def test_old_software_is_a_problem(facts: dict[str, Any], expected: str) -> None:
    assert level(software.check(laptop(**facts))) == expected


def test_no_gpu_is_worth_a_note_and_no_more() -> None:
    finding = gpus.check(laptop())
    assert (finding.level, finding.do) == ("note", "")
    assert "gloo" in finding.matters


def test_mixed_models_are_named_and_the_larger_group_is_advised() -> None:
    finding = gpus.check(recorded("mixed-gpus"))
    assert finding.level == "warning"
    assert finding.found == "2 × NVIDIA GeForce RTX 5090, 1 × NVIDIA GeForce RTX 3090 Ti"
    assert "CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=0,2" in finding.do


def test_hidden_gpus_are_said_to_be_hidden() -> None:
    assert level(gpus.check(server(cuda_visible_devices=""))) == "warning"
    assert "hides 1 more" in gpus.check(server(cuda_visible_devices="1")).found


@pytest.mark.parametrize(
    ("value", "seen"),
    [
        (None, [0, 1, 2, 3]),
        ("", []),
        ("-1", []),
        ("2,0", [2, 0]),
        ("0,-1,1", [0]),
        ("0,9,1", [0]),
        ("GPU-3", [3]),
        ("1,1,2", []),
    ],
)
def test_cuda_visible_devices_is_read_as_cuda_reads_it(value: str | None, seen: list[int]) -> None:
    assert [gpu.index for gpu in visible_gpus(server(4, cuda_visible_devices=value))] == seen


@pytest.mark.parametrize(
    ("build", "driver_cuda", "expected"),
    [("13.0", "13.0", "ok"), ("13.2", "13.0", "ok"), ("13.0", "12.8", "problem"), ("12.6", "13.0", "ok")],
)
def test_a_driver_of_an_older_cuda_major_is_a_problem(build: str, driver_cuda: str, expected: str) -> None:
    assert level(driver.check(server(torch_cuda=build, driver_cuda=driver_cuda))) == expected


def test_a_cpu_build_beside_gpus_is_a_problem_but_not_on_a_laptop() -> None:
    assert level(driver.check(server(torch_cuda=None))) == "problem"
    assert level(driver.check(laptop(torch_cuda=None))) == "ok"


def test_a_driver_that_does_not_answer_is_a_problem() -> None:
    finding = driver.check(laptop(nvml_error="Driver/library version mismatch"))
    assert finding.level == "problem"
    assert "Driver/library version mismatch" in finding.found


@pytest.mark.parametrize("machine", [laptop(), server(), recorded("8-gpu-server")])
def test_an_nccl_version_is_never_called_proof(machine: Machine) -> None:
    finding = nccl.check(machine)
    assert finding.level == "note"
    assert "2.30.7" in finding.found
    assert "prove" in finding.matters


def test_gpus_without_nccl_are_a_problem_and_a_laptop_without_it_is_not() -> None:
    assert level(nccl.check(server(nccl=None))) == "problem"
    assert level(nccl.check(laptop(nccl=None))) == "note"


def test_links_are_counted_by_kind_and_blocked_peers_are_named() -> None:
    assert links.check(server(3)).found == "3 pairs: NV12"
    joined = (Link(0, 1, "PHB", False),)
    finding = links.check(server(links=joined))
    assert finding.level == "note"
    assert "1 of 1 pairs cannot read each other's memory" in finding.found
    mixed = (Link(0, 1, "NV4", True), Link(0, 2, "SYS", True), Link(1, 2, "SYS", True))
    assert links.check(server(3, links=mixed)).found == "3 pairs: 2 SYS, 1 NV4"


def test_links_of_hidden_gpus_do_not_count() -> None:
    joined = (Link(0, 1, "NV4", True), Link(0, 2, "SYS", True), Link(1, 2, "SYS", True))
    assert links.check(server(3, links=joined, cuda_visible_devices="0,1")).found == "1 pair: NV4"


def test_who_holds_gpu_memory_is_named() -> None:
    held = Gpu(0, "NVIDIA A100", 40 * GIB, 30 * GIB, processes=(GpuProcess(4711, "python", 30 * GIB),))
    finding = gpu_memory.check(server(gpus=(held, Gpu(1, "NVIDIA A100", 40 * GIB, 0))))
    assert finding.level == "warning"
    assert finding.found == "GPU 0: 30 GiB of 40 GiB held by process 4711 (python)"
    assert finding.do.endswith("CUDA_VISIBLE_DEVICES=1.")


def test_a_container_that_may_use_less_than_it_sees_is_warned() -> None:
    finding = cores.check(laptop(cpu_limit=1.5))
    assert finding.level == "warning"
    assert "4 cores" in finding.found
    assert "the time of 1.5" in finding.found
    assert level(cores.check(laptop(cpu_limit=4.0))) == "ok"


def test_hardware_threads_are_told_from_physical_cores() -> None:
    assert "224 cores" in cores.check(recorded("8-gpu-server")).found
    assert "112 physical cores" in cores.check(recorded("8-gpu-server")).found


@pytest.mark.parametrize(
    ("value", "expected"),
    [(None, "ok"), ("1", "ok"), ("2", "ok"), ("4", "warning"), ("many", "warning"), ("0", "warning")],
)
def test_threads_that_do_not_fit_two_ranks_are_warned(value: str | None, expected: str) -> None:
    assert level(threads.check(laptop(omp_num_threads=value))) == expected


def test_memory_for_less_than_four_ranks_is_a_warning() -> None:
    finding = memory.check(laptop(memory_available=GIB))
    assert finding.level == "warning"
    assert "no more than 2 ranks" in finding.do
    assert level(memory.check(laptop(memory_available=2 * GIB))) == "ok"


@pytest.mark.parametrize(
    ("total", "free", "expected"),
    [
        (64 * MIB, 64 * MIB, "problem"),
        (8 * GIB, 20 * MIB, "problem"),
        (512 * MIB, 512 * MIB, "warning"),
        (8 * GIB, 8 * GIB, "ok"),
        (None, None, "ok"),
    ],
)
def test_shared_memory_of_a_plain_docker_container_is_a_problem(
    total: int | None, free: int | None, expected: str
) -> None:
    assert level(shared_memory.check(laptop(shm_total=total, shm_free=free))) == expected


def test_a_full_shared_memory_asks_to_clean_up_and_not_for_a_larger_one() -> None:
    finding = shared_memory.check(laptop(shm_free=MIB))
    assert "killed jobs leave" in finding.do
    assert "--shm-size" not in finding.do


def test_the_need_of_shared_memory_grows_with_ranks_and_workers() -> None:
    assert shared_memory.need(ranks=4, workers=2, batch=20 * MIB) == 320 * MIB
    assert shared_memory.need(ranks=2, workers=0, batch=20 * MIB) == 0
    assert "320 MiB" in shared_memory.check(laptop()).matters


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="this system has no /dev/shm")
def test_both_ways_of_sharing_tensors_need_shared_memory() -> None:
    # Often advised against a small /dev/shm, and no cure: set_sharing_strategy("file_system").
    script = (
        "import shutil, sys, torch, torch.multiprocessing as mp\n"
        "mp.set_sharing_strategy(sys.argv[1])\n"
        "before = shutil.disk_usage('/dev/shm').used\n"
        "kept = torch.zeros(4 * 2**20).share_memory_()\n"
        "print(shutil.disk_usage('/dev/shm').used - before)\n"
    )
    for strategy in ("file_descriptor", "file_system"):
        run = subprocess.run([sys.executable, "-c", script, strategy], capture_output=True, text=True, timeout=60)
        assert int(run.stdout) >= 15 * MIB, run.stderr  # 16 MiB, less what others free meanwhile


def test_a_name_that_does_not_resolve_is_a_warning_with_its_cure() -> None:
    finding = hostname.check(laptop(address=None))
    assert finding.level == "warning"
    assert finding.do.endswith("127.0.1.1 laptop")
    assert "loopback" in hostname.check(laptop()).found
    assert "network" in hostname.check(laptop(address="10.1.2.3")).found


def test_a_taken_default_port_is_a_note_and_no_port_at_all_a_problem() -> None:
    assert level(ports.check(laptop())) == "ok"
    assert level(ports.check(laptop(port_29500_free=False))) == "note"
    assert level(ports.check(laptop(free_port=False))) == "problem"


# -- the world size --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("machine", "ranks", "backend"),
    [
        (laptop(), 4, "gloo"),
        (laptop(cpus=(Cpu(0, 0),)), 2, "gloo"),
        (laptop(cpus=tuple(Cpu(n, n) for n in range(64))), 4, "gloo"),
        (server(1), 4, "gloo"),
        (server(2), 2, "nccl"),
        (server(2, torch_cuda=None), 4, "gloo"),
        (server(4, cuda_visible_devices="0,1"), 2, "nccl"),
        (recorded("8-gpu-server"), 8, "nccl"),
        (recorded("mixed-gpus"), 2, "nccl"),
    ],
)
def test_the_advised_world_size_fits_the_machine(machine: Machine, ranks: int, backend: str) -> None:
    advice = advise(machine)
    assert (advice.ranks, advice.backend) == (ranks, backend)
    assert advice.why


def test_gpus_that_others_fill_are_not_counted() -> None:
    full = Gpu(0, "NVIDIA A100", 40 * GIB, 39 * GIB)
    free = tuple(Gpu(index, "NVIDIA A100", 40 * GIB, 0) for index in (1, 2))
    assert advise(server(gpus=(full, *free))).ranks == 2


# -- recorded machines -----------------------------------------------------------------------------------------------


def test_every_recorded_machine_says_that_it_is_made_by_hand_and_from_what() -> None:
    assert {"8-gpu-server", "container-64mb-shm", "mixed-gpus"} <= set(recorded_names())
    for name in recorded_names():
        machine = recorded(name)
        assert machine.name == name
        assert "made by hand" in machine.source
        assert "#" in machine.source  # a public thread
        assert machine.source in repr(doctor(name)).replace("\n  ", " ")


@pytest.mark.parametrize("name", ["8-gpu-server", "container-64mb-shm", "mixed-gpus"])
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
    with pytest.raises(ValueError, match="there are: 8-gpu-server, container-64mb-shm, mixed-gpus"):
        doctor("my-server")
    with pytest.raises(ValueError, match="colour"):
        Machine.from_dict({"name": "x", "colour": "red"})


# -- this machine ----------------------------------------------------------------------------------------------------


def test_this_machine_is_looked_at_without_starting_cuda() -> None:
    script = (
        "from ddp_helpers.doctor import doctor; report = doctor(); import torch; "
        "assert not torch.cuda.is_initialized(); print(report.machine.cores, report.machine.torch)"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    counted, version = run.stdout.split()
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    assert int(counted) == available
    import torch

    assert version == torch.__version__


def test_importing_the_doctor_imports_nothing_heavy() -> None:
    script = (
        "import sys; import ddp_helpers.doctor; "
        "print([name for name in ('torch', 'matplotlib', 'pynvml', 'numpy') if name in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert run.stdout.strip() == "[]", run.stderr


def test_an_unresolvable_name_is_no_address(monkeypatch: pytest.MonkeyPatch) -> None:
    assert gather._resolve("no-such-host.invalid") is None
    assert gather._resolve("a" * 70) is None  # too long for a name: a UnicodeError


def test_a_held_port_cannot_be_opened() -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as holder:
        assert not gather._can_listen(holder.getsockname()[1])
    assert gather._can_listen(0)


@pytest.mark.parametrize(
    ("text", "numbers"), [("0-2,8", [0, 1, 2, 8]), ("5", [5]), ("", []), ("0-1,4-5\n", [0, 1, 4, 5])]
)
def test_the_kernels_lists_of_processors_are_read(text: str, numbers: list[int]) -> None:
    assert gather.parse_cpu_list(text) == numbers


# -- NVML, played by a stand-in --------------------------------------------------------------------------------------


class FakeNVML:
    """Three GPUs: 0 and 1 joined by two NVLinks, 2 elsewhere; GPU 0 is held by this very process."""

    class NVMLError(Exception):
        pass

    NVML_TOPOLOGY_INTERNAL, NVML_TOPOLOGY_SINGLE, NVML_TOPOLOGY_MULTIPLE = 0, 10, 20
    NVML_TOPOLOGY_HOSTBRIDGE, NVML_TOPOLOGY_NODE = 30, 40
    NVML_NVLINK_DEVICE_TYPE_GPU, NVML_NVLINK_DEVICE_TYPE_SWITCH = 0, 2
    NVML_NVLINK_MAX_LINKS, NVML_P2P_STATUS_OK = 4, 0

    def __init__(self, switched: bool = False) -> None:
        self.switched = switched

    def nvmlDeviceGetCount(self) -> int:
        return 3

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetPciInfo(self, handle: int) -> SimpleNamespace:
        return SimpleNamespace(busId=f"00000000:0{handle}:00.0".encode())

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> SimpleNamespace:
        return SimpleNamespace(total=16 * GIB, used=GIB * handle)

    def nvmlDeviceGetName(self, handle: int) -> bytes:
        return b"NVIDIA Test"

    def nvmlDeviceGetUUID(self, handle: int) -> str:
        return f"GPU-{handle}"

    def nvmlDeviceGetComputeRunningProcesses(self, handle: int) -> list[SimpleNamespace]:
        if handle == 1:
            raise self.NVMLError("not supported")
        return [SimpleNamespace(pid=os.getpid(), usedGpuMemory=None)] if handle == 0 else []

    def nvmlDeviceGetTopologyCommonAncestor(self, a: int, b: int) -> int:
        return 30 if {a, b} == {0, 1} else 50

    def nvmlDeviceGetNvLinkState(self, handle: int, link: int) -> int:
        if link >= 2 or (handle == 2 and not self.switched):
            raise self.NVMLError("no such link")
        return 1

    def nvmlDeviceGetNvLinkRemoteDeviceType(self, handle: int, link: int) -> int:
        return self.NVML_NVLINK_DEVICE_TYPE_SWITCH if self.switched else self.NVML_NVLINK_DEVICE_TYPE_GPU

    def nvmlDeviceGetNvLinkRemotePciInfo(self, handle: int, link: int) -> SimpleNamespace:
        return SimpleNamespace(busId=b"0000:ff:00.0" if self.switched else f"00000000:0{1 - handle}:00.0".encode())

    def nvmlDeviceGetP2PStatus(self, a: int, b: int, index: int) -> int:
        assert index == 0
        return 0 if {a, b} == {0, 1} else 5

    def nvmlSystemGetDriverVersion(self) -> str:
        return "580.95.05"

    def nvmlSystemGetCudaDriverVersion_v2(self) -> int:
        return 13010


def test_nvml_tells_models_holders_links_and_peers() -> None:
    facts = nvml._ask(FakeNVML())
    assert [gpu.model for gpu in facts.gpus] == ["NVIDIA Test"] * 3
    assert facts.gpus[0].processes[0].pid == os.getpid()
    assert facts.gpus[1].processes == ()
    assert facts.links == (Link(0, 1, "NV2", True), Link(0, 2, "SYS", False), Link(1, 2, "SYS", False))
    assert (facts.driver, facts.driver_cuda) == ("580.95.05", "13.1")


def test_gpus_on_nvlink_switches_are_joined_by_all_their_links() -> None:
    assert {link.kind for link in nvml._ask(FakeNVML(switched=True)).links} == {"NV2"}


def test_no_driver_means_no_gpus_and_a_broken_one_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    pynvml = pytest.importorskip("pynvml")

    def fail(code: int) -> Any:
        def init() -> None:
            raise pynvml.NVMLError(code)

        return init

    monkeypatch.setattr(pynvml, "nvmlInit", fail(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND))
    assert nvml.read_gpus() == nvml.GpuFacts()
    monkeypatch.setattr(pynvml, "nvmlInit", fail(pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH))
    broken = nvml.read_gpus()
    assert broken.gpus == ()
    assert "ismatch" in (broken.error or "")


# -- the report ------------------------------------------------------------------------------------------------------


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
        assert finding.found in page.text
        assert finding.matters in page.text
        assert finding.do in page.text
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


# -- the command -----------------------------------------------------------------------------------------------------


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
