"""Runs jobs that depend on each other, several at a time, and shows their progress."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from heapq import heappop, heappush
from pathlib import Path
from typing import Protocol, TextIO

from bcq.experiments.board import Board, Outcome, Process, Running
from bcq.experiments.forms import steps_done
from bcq.experiments.jobs import Job, directory_name, is_finished, with_needs
from bcq.experiments.waiting import Waiting
from bcq.system import interruption
from bcq.system.errors import InterruptionError
from bcq.system.files import last_line, locked, make_directory, write_json
from bcq.system.progress import duration

SOON, POLL = 0.005, 0.5  # seconds between two checks of the running jobs: shortest and longest
LOW_PRIORITY = 10  # niceness of a process
SAVING = 60.0  # seconds that a job has to finish its unit of work, such as an evaluation


class Engine(Protocol):
    """Where jobs run. Another engine needs these two members, and access to the same folder."""

    @property
    def slots(self) -> int:
        """How many jobs can run at once."""
        ...

    def start(self, job: Job, folder: Path, slot: int) -> Process:
        """Starts a job whose needs are done."""
        ...


@dataclass(frozen=True)
class LocalProcess:
    """A worker on this machine."""

    process: "subprocess.Popen[bytes]"

    def poll(self) -> int | None:
        """Its exit code once it has ended."""
        return self.process.poll()

    def stop(self) -> None:
        """Asks it to save and stop; kills it if it does not."""
        for order in (self.process.terminate, self.process.terminate, self.process.kill):
            order()
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(SAVING)
                return


def cores() -> list[int]:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


@dataclass(frozen=True)
class LocalProcesses:
    """One worker process per core, with one compute thread each."""

    cores: list[int] = field(default_factory=cores)

    @property
    def slots(self) -> int:
        """One per core."""
        return len(self.cores)

    def start(self, job: Job, folder: Path, slot: int) -> LocalProcess:
        """Starts a worker on the core of its slot."""
        return start_worker(job, folder, str(self.cores[slot]))


@dataclass(frozen=True)
class SharedCores:
    """Worker processes with a compute thread on every core each.

    The job in the first slot has priority; the others use the time that it leaves. The number of
    threads is not the one in the fingerprints, so these runs must not become records.
    """

    slots: int

    def start(self, job: Job, folder: Path, slot: int) -> LocalProcess:
        """Starts a worker, with low priority unless it is in the first slot."""
        worker = start_worker(job, folder)
        if slot > 0:
            give_way(worker.process.pid)
        return worker


def give_way(process: int) -> None:
    """Lowers the priority of a process that leads a session.

    Linux divides time between sessions before it divides that of a session between processes.
    """
    with suppress(OSError):  # it has ended already
        os.setpriority(os.PRIO_PROCESS, process, LOW_PRIORITY)
        Path(f"/proc/{process}/autogroup").write_text(str(LOW_PRIORITY))  # only on Linux


def start_worker(job: Job, folder: Path, *core: str) -> LocalProcess:
    """Starts it in a new session, so that Ctrl-C reaches only the runner, which stops it."""
    name = directory_name(job)
    with (folder / name / "output.txt").open("ab") as output:
        return LocalProcess(
            subprocess.Popen(
                [sys.executable, "-m", "bcq.experiments.worker", str(folder), name, *core],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        )


def run_jobs(jobs: Sequence[Job], folder: Path, engine: Engine, *, screen: TextIO) -> Outcome:
    """Runs the unfinished jobs. A failed job is reported, and the others continue."""
    everything = with_needs(jobs)
    make_directory(folder)
    outcome = Outcome([], {}, [])
    left: list[Job] = []
    for job in everything:
        (outcome.done if is_finished(job, folder) else left).append(job)
    waiting, running, free = Waiting(left, folder), dict[int, Running](), list[int]()
    board, pause = Board(len(everything), folder, screen), SOON
    with locked(folder), stopping(running):
        while waiting or running:
            start_ready(waiting, running, free, folder, engine)
            board.refresh(running, waiting, outcome)
            time.sleep(min(POLL, pause))
            pause *= 1.2  # seldom, while nothing happens
            if interruption.requested():
                raise InterruptionError(
                    f"{len(outcome.done)} of {len(everything)} jobs are done, running jobs keep "
                    "what they saved"
                )
            for slot in [slot for slot, one in running.items() if one.process.poll() is not None]:
                end(running.pop(slot), waiting, outcome, folder, board)
                heappush(free, slot)
                pause = SOON
    board.clear()
    return outcome


@contextmanager
def stopping(running: dict[int, Running]) -> Iterator[None]:
    """Stops the running jobs when the runner ends, for any reason."""
    try:
        yield
    finally:
        with ThreadPoolExecutor() as pool:  # at the same time: each can take a while
            list(pool.map(lambda one: one.process.stop(), running.values()))


def start_ready(
    waiting: Waiting, running: dict[int, Running], free: list[int], folder: Path, engine: Engine
) -> None:
    """Fills the free slots with jobs whose needs are done, in the order given.

    `free` has the slots that were left again; if it is empty, the first ones are all in use.
    """
    while len(running) < engine.slots and (job := waiting.take()) is not None:
        directory = folder / directory_name(job)
        make_directory(directory)
        write_json(directory / "job.json", job.as_json())
        before = steps_done(job, folder)
        slot = heappop(free) if free else len(running)
        running[slot] = Running(job, engine.start(job, folder, slot), time.monotonic(), before)


def end(one: Running, waiting: Waiting, outcome: Outcome, folder: Path, board: Board) -> None:
    """Records how a job ended. The jobs that need a failed one are skipped."""
    name = directory_name(one.job)
    board.tell_place(one)  # a short job may have begun and ended between two pictures
    if is_finished(one.job, folder):
        outcome.done.append(one.job)
        waiting.done(one.job)
        board.say(f"done    {one.job.name} in {duration(time.monotonic() - one.begun)}")
        board.learn(one)
    else:
        outcome.failed[name] = last_line(folder / name / "output.txt")
        outcome.skipped += waiting.skip(one.job)
        board.say(f"FAILED  {one.job.name}: {outcome.failed[name]}")
