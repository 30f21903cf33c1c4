"""launch(): one run from start to finish."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from . import engines, hang, runs, stop
from .command import Command, reserved_port
from .devices import Devices, count_gpus, torch_has_cuda
from .devices import choose as choose_devices
from .environment import RUN_MARK, rank_environment, usable_cores
from .interrupts import Interrupts
from .logs import Follower
from .outcome import find_failure, read_ranks
from .report import agent_failure, rank_failure
from .result import Failure, LaunchError, RankFailed, Run, RunInterrupted, RunTimeout
from .script import check_syntax
from .view import Silent, View, in_notebook

POLL_SECONDS = 0.1
NODE_GRACE = 5.0  # s; ranks that wait for a failed node's ranks notice by themselves, and may have more to say
START_SECONDS = 60.0  # a busy machine has taken 20 s to start its first rank


@dataclass(frozen=True)
class Options:
    """What does not belong to torchrun's command line; see `launch`. `cell`: the script is a cell's text."""

    timeout: float = 300
    env: Mapping[str, str] = field(default_factory=dict)
    engine: str = "auto"
    check: bool = True
    cell: bool = False
    silent: bool = False
    notice_after: float = hang.NOTICE_AFTER


def launch(
    script: str | os.PathLike[str],
    *script_args: str,
    nproc_per_node: int | str = 1,
    nnodes: int = 1,
    timeout: float = 300,
    returns: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    engine: str = "auto",
    check: bool = True,
    torchrun_args: Sequence[str] = (),
    notice_after: float = hang.NOTICE_AFTER,
) -> Run:
    """Run a script with torchrun and wait for it.

    >>> run = launch("scripts/train.py", "--lr", "0.1", nproc_per_node=4, returns=["losses"])  # doctest: +SKIP
    >>> run.ranks[0].returned["losses"]  # doctest: +SKIP
    [2.31, 1.97, 1.80]

    Args:
        script: path of the script, relative to the notebook's folder.
        script_args: the script's own arguments.
        nproc_per_node: processes per node; "auto" or "gpu" for one a GPU, "cpu" for one a core.
        nnodes: with 2, two torchrun agents on this machine play two nodes; when one has failed, the other is ended too.
        timeout: seconds after the start of the first rank after which the run is stopped, and told where it was.
        returns: names of the script's globals to bring back, in `run.ranks[i].returned`.
        env: environment variables for the ranks, beside the kernel's.
        engine: "warm" forks a process that has torch imported (Linux), "cold" starts interpreters as the torchrun
            command does, "auto" is warm where it can be.
        check: raise when the run fails; with False the failed run is returned.
        torchrun_args: more options of torchrun, such as ``["--max-restarts", "3"]``.
        notice_after: seconds without output and without computing after which a notice says who waits for whom, while
            the run goes on; 0 for never.

    Raises:
        LaunchError: nothing was run, and the message says what to do.
        RankFailed: a rank failed; the exception's `run.failure` is the cause.
        RunTimeout: the run was stopped after `timeout` seconds.
    """
    command = Command(
        script=os.fspath(script),
        script_args=tuple(map(str, script_args)),
        nproc=number_of_processes(nproc_per_node),
        nnodes=nnodes,
        torchrun_args=tuple(torchrun_args),
        returns=tuple(returns),
    )
    environment = {str(name): str(value) for name, value in (env or {}).items()}
    return run(command, Options(timeout, environment, engine, check, notice_after=notice_after))


def number_of_processes(nproc_per_node: int | str) -> int:
    """torchrun's --nproc-per-node as a number, without initialising CUDA as torchrun would."""
    if nproc_per_node in ("auto", "gpu", "cpu"):
        gpus = 0 if nproc_per_node == "cpu" else count_gpus()
        number = gpus if nproc_per_node == "gpu" else gpus or usable_cores()
    else:
        number = int(nproc_per_node) if str(nproc_per_node).isdigit() else 0
    if number >= 1:
        return number
    raise LaunchError(
        f"--nproc-per-node {nproc_per_node}: this is the number of processes on each node, at least 1 "
        "(or auto, gpu, cpu)." + (" This machine has no GPU." if nproc_per_node == "gpu" else "")
    )


def run(command: Command, options: Options) -> Run:
    """Run a command as `launch` does."""
    if not command.module:
        check_syntax(Path(command.script), options.cell)
    if command.nnodes < 1:
        raise LaunchError(f"--nnodes {command.nnodes}: at least 1.")
    devices = choose_devices(command.nproc * command.agents, count_gpus(), torch_has_cuda())
    env = rank_environment(devices, command.nproc * command.agents, options.env, os.environ)
    engine = engines.choose(options.engine, command, env)
    try:
        log_dir = runs.new_folder(command.script)
    except OSError as error:
        raise LaunchError(
            f"Cannot write the run's logs below {Path.cwd()}: {error.strerror}. "
            "Open the notebook from a folder that you may write to and that has space."
        ) from error
    env[RUN_MARK] = str(log_dir)
    try:
        return _Job(command, options, devices, env, engine, log_dir).run()
    finally:
        runs.finished(log_dir)
        runs.prune(log_dir.parent)


class _Job:
    """One run: starts the agents, follows the ranks, stops what must be stopped, and reads the result."""

    def __init__(
        self, command: Command, options: Options, devices: Devices, env: dict[str, str], engine: str, log_dir: Path
    ) -> None:
        self.command, self.options, self.devices, self.env = command, options, devices, env
        self.engine, self.log_dir = engine, log_dir
        self.follower = Follower(log_dir, command.nproc)
        self.hang = hang.Watch(log_dir, options.cell, options.notice_after, spins=devices.device == "cuda")
        title = _title(command.nproc * command.agents, command.agents, devices)
        self.view = (Silent if options.silent else View)(title, log_dir, in_notebook())
        self.lifeline = engines.Lifeline()
        self.agents: list[engines.Agent] = []
        self.started = time.monotonic()
        self.first_rank_started: float | None = None
        self.node_failed: float | None = None
        self.notice = ""  # what the run's standing still was last said to be; "" while it moves
        self.cut_off: list[int] = []  # the nodes whose agents did not end by themselves

    def run(self) -> Run:
        with Interrupts() as self.interrupts:
            where = ""
            try:
                self._start()
                where = self._follow()
                self.cut_off = [node for node, agent in enumerate(self.agents) if agent.poll() is None]
                if where or self.interrupts.count:
                    stop.stop(self.agents, self.log_dir, self.lifeline.cut, self.interrupts)
                elif self.cut_off:  # as torchrun ends a failed rank's neighbours, who then have nothing to say
                    stop.stop(self.agents, self.log_dir, self.lifeline.cut, self.interrupts, [signal.SIGTERM])
            finally:
                self.lifeline.close()
                engines.wait_until_gone(self.agents, stop.GRACE)
                stopped = bool(where or self.cut_off or self.interrupts.count)
                stopped = stopped or any(agent.poll() not in (0, 1) for agent in self.agents)
                left = stop.end_leftovers(self.log_dir, everywhere=stopped or sys.platform != "linux")
                for lines in self.follower.drain():
                    if not stopped:  # what ranks say while they are being stopped is noise; the files have it
                        self.view.add(lines, [])
                for agent in self.agents:
                    engines.release(agent, self.log_dir)
            if self.interrupts.count:
                self.view.finish(f"interrupted after {time.monotonic() - self.started:.1f} s; {_verified(left)}")
                raise RunInterrupted(self.notice)
            return self._finish(where, left)

    def _start(self) -> None:
        with reserved_port(self.command.simulates_nodes) as port:
            for node in range(self.command.agents):
                folder = self.log_dir / f"node{node}"
                folder.mkdir()
                argv = self.command.agent_argv(folder, node, port)
                log = folder / "agent.log"
                self.agents.append(engines.start(self.engine, argv, self.env, log, self.lifeline, self.interrupts))
            if self.command.simulates_nodes:  # node 0 must have bound the port before it is given up
                self._follow(until_ranks_start=True)

    def _follow(self, until_ranks_start: bool = False) -> str:
        """Show what the ranks print until the agents end, or an interrupt. At the timeout: where everybody was."""
        while any(agent.poll() is None for agent in self.agents):
            lines = self.follower.poll()
            self.view.add(lines, self.follower.live())
            notice = self.hang.look(bool(lines))
            if notice is not None:
                self.notice = notice
                self.view.say(notice)
            if self.interrupts.count:
                self.view.say("stopping the ranks … (interrupt once more to kill them at once)")
                break
            late = time.monotonic() > self._deadline()
            if self._a_node_has_failed(late):
                break  # the others would go on alone; Slurm, too, ends them (srun --kill-on-bad-exit)
            if late:
                return hang.message(hang.where(self.log_dir), self.options.cell) or "No rank had started."
            if until_ranks_start and len(list(self.log_dir.glob("node*/run_*"))) == len(self.agents):
                break
            if not lines:
                engines.wait(self.agents, POLL_SECONDS)
        return ""

    def _a_node_has_failed(self, late: bool) -> bool:
        """Whether one agent has failed, and the others' ranks have had the time to notice it."""
        if self.node_failed is None and any(agent.poll() not in (None, 0) for agent in self.agents):
            self.node_failed = time.monotonic()
        return self.node_failed is not None and (late or time.monotonic() > self.node_failed + NODE_GRACE)

    def _deadline(self) -> float:
        """The time counts from the first rank's start: how long that takes says nothing of the script."""
        if self.first_rank_started is None and self.follower.has_ranks:
            self.first_rank_started = time.monotonic()
        return (self.first_rank_started or self.started + START_SECONDS) + self.options.timeout

    def _finish(self, where: str, left: list[int]) -> Run:
        cut_off = [] if where else self.cut_off
        codes = [agent.poll() for node, agent in enumerate(self.agents) if node not in cut_off]
        reported = not where and all(code in (0, 1) for code in codes)
        ranks = read_ranks(self.log_dir, self.command.nproc, reported, cut_off)
        failure = find_failure(ranks)
        if not reported and failure and not failure.time:
            failure = None  # the agent was killed, and its ranks ended with it: none of them is the cause
        runs.link_ranks(self.log_dir, ranks)
        result = Run(
            script=self.command.script,
            command=str(self.command),
            exit_code=next((c for c in codes if c), 0) or 0,
            seconds=time.monotonic() - self.started,
            engine=self.engine,
            device=self.devices.device,
            backend=self.devices.backend,
            ranks=ranks,
            metrics=self.follower.metrics,
            failure=Failure(-1, "RunTimeout", where, None, "") if where else failure,
            log_dir=self.log_dir,
        )
        if where:
            return self._timed_out(result, where, left)
        failed = bool(result.exit_code)
        how = "" if not failed else "failed after " if ranks else "no rank was started, "
        self.view.finish(f"{how}{result.seconds:.2f} s, {self.engine} start", failed)
        if result.exit_code and not result.failure:
            raise LaunchError(agent_failure(self.log_dir, result.exit_code))
        if result.exit_code and self.options.check:
            raise RankFailed(rank_failure(result, self.options.cell), result)
        return result

    def _timed_out(self, result: Run, where: str, left: list[int]) -> Run:
        self.view.finish(f"stopped at the timeout of {self.options.timeout:g} s; {_verified(left)}")
        if self.options.check:
            raise RunTimeout(f"stopped after {self.options.timeout:g} s.\n{where}", result)
        return result


def _verified(left: list[int]) -> str:
    return f"still alive: {', '.join(map(str, left))}" if left else "no process is left"


def _title(ranks: int, nodes: int, devices: Devices) -> str:
    who = f"{ranks} rank{'s' * (ranks > 1)}" + (f" on {nodes} simulated nodes" if nodes > 1 else "")
    if devices.device == "cuda":
        return f"{who} on {ranks} GPU{'s' * (ranks > 1)} with NCCL"
    return f"{who} on CPU with gloo: {devices.reason}"
