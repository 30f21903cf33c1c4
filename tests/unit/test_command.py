"""The command that is shown, and the arguments that torchrun's agents get."""

from __future__ import annotations

import itertools
import socket
from pathlib import Path

import pytest

from ddp_helpers.command import Command, reserved_port


def pairs(argv: list[str]) -> dict[str, str]:
    return {name: value for name, value in itertools.pairwise(argv) if name.startswith("--")}


def test_the_shown_command_is_what_a_terminal_takes() -> None:
    command = Command(
        "scripts/a b.py", ("--lr", "0.1", "it's"), nproc=4, nnodes=2, torchrun_args=("--max-restarts", "1")
    )
    assert str(command) == (
        "torchrun --nnodes 2 --nproc-per-node 4 --max-restarts 1 'scripts/a b.py' --lr 0.1 'it'\"'\"'s'"
    )


def test_an_agent_meets_the_others_on_loopback(tmp_path: Path) -> None:
    argv = Command("a.py", nproc=2, nnodes=2).agent_argv(tmp_path, node=1, port=4000)
    assert pairs(argv)["--rdzv-backend"] == "loopback"
    assert pairs(argv)["--rdzv-endpoint"] == "127.0.0.1:4000"
    assert pairs(argv)["--rdzv-conf"] == "node=1"


@pytest.mark.parametrize("given", [("--master-port", "29517"), ("--master_port=29517",)])
def test_a_chosen_port_is_used_on_loopback(tmp_path: Path, given: tuple[str, ...]) -> None:
    argv = Command("a.py", torchrun_args=given).agent_argv(tmp_path, 0, 0)
    assert pairs(argv)["--rdzv-endpoint"] == "127.0.0.1:29517"
    assert not [arg for arg in argv if arg.startswith("--master")]


def test_a_rendezvous_of_the_users_own_is_left_to_torchrun(tmp_path: Path) -> None:
    own = ("--rdzv-backend", "c10d", "--rdzv-endpoint", "host:29400")
    command = Command("a.py", nnodes=2, torchrun_args=own)
    assert command.agents == 1  # the other node is another machine
    assert pairs(command.agent_argv(tmp_path, 0, 0))["--rdzv-backend"] == "c10d"


def test_standalone_is_what_we_do_anyway(tmp_path: Path) -> None:
    assert "--standalone" not in Command("a.py", torchrun_args=("--standalone",)).agent_argv(tmp_path, 0, 0)


def test_a_reserved_port_is_nobody_elses_but_node_0_can_have_it() -> None:
    with reserved_port(True) as port:
        with socket.socket() as stranger, pytest.raises(OSError, match="in use"):
            stranger.bind(("127.0.0.1", port))
        with socket.socket() as node0:
            node0.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            node0.bind(("127.0.0.1", port))
