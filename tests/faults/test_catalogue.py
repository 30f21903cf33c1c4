"""The catalogue itself: every record complete, every pattern its own."""

from __future__ import annotations

import ast
import re
import subprocess
import sys

import pytest

from ddp_helpers.faults import Fault, catalogue
from ddp_helpers.faults.catalogue import TOPICS, by_id, searches
from ddp_helpers.faults.fault import KINDS, NEEDS, SCRIPTS

FAULTS = catalogue()
# What runs that end well print, on CPU and on GPUs: torchrun's banner, NCCL with NCCL_DEBUG=INFO, harmless warnings.
# ruff: noqa: E501
HEALTHY = """\
W1130 07:39:33.640000 25846 torch/distributed/run.py:982] Setting OMP_NUM_THREADS environment variable for each process to be 1 in default, to avoid your system being overloaded, please further tune the variable
[W1130 07:39:33.64 socket.cpp:764] [c10d] The IPv6 network addresses of (node-0, 29500) cannot be retrieved (gai error: -2 - Name or service not known).
[rank0]: epoch=1 loss=0.52 val_error=0.13 images/s=1830
  5%|4        | 3/60 [00:01<00:20,  2.78it/s]
node-0:22841:22841 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.2<0>
node-0:22841:22841 [0] NCCL INFO NET/Plugin : No plugin found (libnccl-net.so), using internal implementation
node-0:22841:22841 [0] NCCL INFO Failed to open libibverbs.so[.1]
node-0:22841:22841 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.2<0>
node-0:22841:22849 [0] NCCL INFO comm 0x47dc1a0 rank 0 nranks 2 cudaDev 0 busId 1000 - Init COMPLETE
FutureWarning: The module torch.distributed.launch is deprecated and will be removed in future. Use torchrun.
Warning: Unable to resolve hostname to a (local) address. Using the loopback address as fallback. Manually set the network interface to bind to with GLOO_SOCKET_IFNAME.
accuracy=0.97, 2 errors in 60 samples; connection to the tracker closed; killed 0 zombies
Job finished with exit code 0
"""


def ids(fault: Fault) -> str:
    return fault.id


def test_ids_are_unique() -> None:
    assert len(by_id()) == len(FAULTS)


@pytest.mark.parametrize("fault", FAULTS, ids=ids)
def test_a_record_is_complete(fault: Fault) -> None:
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", fault.id)
    for text in (fault.see, fault.means, fault.sure, fault.cure):
        assert text.strip() == text and len(text) > 5
    assert all(text[-1] in ".?!)" for text in (fault.means, fault.sure, fault.cure))
    assert fault.lesson in [f"{number:02}" for number in range(13)]
    assert fault.kind in KINDS and fault.needs in NEEDS
    assert len(fault.means) <= 330 and len(fault.cure) <= 330


@pytest.mark.parametrize("fault", FAULTS, ids=ids)
def test_what_can_happen_anywhere_has_a_reproduction_or_a_reason(fault: Fault) -> None:
    if fault.script is not None:
        assert fault.needs == "cpu" and not fault.no_script
        assert fault.script.read_text(encoding="utf-8").startswith("# torchrun --nproc-per-node ")
    elif fault.needs == "cpu":
        assert fault.no_script or fault.victim


@pytest.mark.parametrize("fault", FAULTS, ids=ids)
def test_what_is_seen_is_recognised(fault: Fault) -> None:
    """By its own pattern, or by that of the fault whose message it shares."""
    if fault.silent:
        assert not fault.patterns and fault.right
        return
    own = [fault.id, *fault.same_message]
    assert any(search.search(fault.see) for other, search in searches() if other.id in own) or fault.id == "rank-raises"


def test_every_script_belongs_to_a_record() -> None:
    assert {path.stem for path in SCRIPTS.glob("*.py")} <= set(by_id())


@pytest.mark.parametrize(("fault", "search"), searches(), ids=lambda value: getattr(value, "id", ""))
def test_a_pattern_matches_no_healthy_run_and_no_other_record(fault: Fault, search: re.Pattern[str]) -> None:
    found = search.search(HEALTHY)
    assert found is None or fault.also  # such a message counts together with another one only
    for other in FAULTS:
        shared = {fault.id, *fault.same_message} & {other.id, *other.same_message}
        if shared or fault.kind in ("general", "victim", "end") or other.silent:
            continue  # a general message may stand beside the one that says which
        assert not search.search(other.see), f"{fault.id} also matches {other.id}"


@pytest.mark.parametrize("topic", TOPICS)
def test_a_topic_is_a_part_of_the_catalogue(topic: str) -> None:
    assert set(catalogue(topic)) <= set(FAULTS)


def test_an_unknown_topic_is_answered_with_those_there_are() -> None:
    with pytest.raises(ValueError, match="rendezvous"):
        catalogue("weather")


def test_a_notebook_that_never_fails_does_not_load_the_catalogue() -> None:
    code = "import ddp_helpers, sys; print([name for name in sys.modules if name.startswith('ddp_helpers.faults.')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    loaded = {name.rpartition(".")[2] for name in ast.literal_eval(done.stdout)}
    assert "catalogue" in loaded and not loaded & {*TOPICS, "judge", "events", "lines"}
