"""Runs jobs that depend on each other, several at a time, and shows their progress."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TextIO

from bcq.experiments.forms import steps_done
from bcq.experiments.jobs import Job, directory_name, fingerprint, is_finished, with_needs
from bcq.system import interruption, progress
from bcq.system.errors import InterruptionError
from bcq.system.files import last_line, locked, make_directory, write_json
from bcq.system.progress import duration

POLL = 0.5  # seconds between two checks of the running jobs
LOW_PRIORITY = 10  # niceness of a process
SAVING = 60.0  # seconds that a job has to finish its unit of work, such as an evaluation


class Process(Protocol):
    """A job that runs somewhere."""

    def poll(self) -> int | None:
        """Its exit code once it has ended."""
        ...

    def stop(self) -> None:
        """Ends it. Its folder stays valid, so that the job can be continued."""
        ...


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


@dataclass
class Running:
    """A running job, and its speed."""

    job: Job
    process: Process
    begun: float
    steps_before: int

    def speed(self, folder: Path) -> float | None:
        """Steps or updates per second since it was started by this runner."""
        done = steps_done(self.job, folder) - self.steps_before
        return done / (time.monotonic() - self.begun) if done > 0 else None


@dataclass
class Outcome:
    """How the jobs ended."""

    done: list[Job]
    failed: dict[str, str]  # folder of the job, and the last line of its output
    skipped: list[Job]  # because a job that they need failed


def run_jobs(jobs: Sequence[Job], folder: Path, engine: Engine, *, screen: TextIO) -> Outcome:
    """Runs the unfinished jobs. A failed job is reported, and the others continue."""
    everything = with_needs(jobs)
    make_directory(folder)
    outcome = Outcome([job for job in everything if is_finished(job, folder)], {}, [])
    waiting = [job for job in everything if not is_finished(job, folder)]
    board = Board(len(everything), folder, screen)
    running: dict[int, Running] = {}
    with locked(folder), stopping(running):
        while waiting or running:
            skip_hopeless(waiting, outcome)
            start_ready(waiting, running, outcome, folder, engine)
            board.show(running, waiting, outcome)
            time.sleep(POLL)
            if interruption.requested():
                raise InterruptionError(
                    f"{len(outcome.done)} of {len(everything)} jobs are done, running jobs keep "
                    "what they saved"
                )
            for slot in [slot for slot, one in running.items() if one.process.poll() is not None]:
                end(running.pop(slot), outcome, folder, board)
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


def skip_hopeless(waiting: list[Job], outcome: Outcome) -> None:
    """Skips the jobs that need a failed job."""
    lost = {directory_name(job) for job in outcome.skipped} | set(outcome.failed)
    for job in list(waiting):
        if any(directory_name(need) in lost for need in job.needs):
            waiting.remove(job)
            outcome.skipped.append(job)
            lost.add(directory_name(job))


def start_ready(
    waiting: list[Job],
    running: dict[int, Running],
    outcome: Outcome,
    folder: Path,
    engine: Engine,
) -> None:
    """Fills the free slots with jobs whose needs are done, in the order given."""
    done = {fingerprint(job) for job in outcome.done}
    for slot in range(engine.slots):
        if slot in running:
            continue
        ready = (job for job in waiting if all(fingerprint(need) in done for need in job.needs))
        job = next(ready, None)
        if job is None:
            return
        waiting.remove(job)
        directory = folder / directory_name(job)
        make_directory(directory)
        write_json(directory / "job.json", job.as_json())
        before = steps_done(job, folder)
        running[slot] = Running(job, engine.start(job, folder, slot), time.monotonic(), before)


def end(one: Running, outcome: Outcome, folder: Path, board: "Board") -> None:
    """Records how a job ended."""
    name = directory_name(one.job)
    if is_finished(one.job, folder):
        outcome.done.append(one.job)
        board.say(f"done    {one.job.name} in {duration(time.monotonic() - one.begun)}")
        board.learn(one)
    else:
        outcome.failed[name] = last_line(folder / name / "output.txt")
        board.say(f"FAILED  {one.job.name}: {outcome.failed[name]}")


class Board:
    """Shows running jobs, speeds and the remaining time; redrawn on a terminal, else as lines."""

    def __init__(self, total: int, folder: Path, screen: TextIO):
        self.total, self.folder, self.screen = total, folder, screen
        self.live = screen.isatty() and not progress.silent
        self.drawn = 0
        self.said = time.monotonic()
        self.speeds: dict[str, float] = {}  # steps or updates per second, by kind of job

    def say(self, line: str) -> None:
        """Prints a line that stays."""
        if progress.silent:
            return
        self.clear()
        print(line, file=self.screen, flush=True)

    def clear(self) -> None:
        """Removes the part that is redrawn."""
        if self.drawn:
            self.screen.write(f"\x1b[{self.drawn}F\x1b[J")
            self.drawn = 0

    def learn(self, one: Running) -> None:
        """Remembers the speed of a finished job for its kind, including its start."""
        seconds = time.monotonic() - one.begun
        if one.steps_before == 0:
            self.speeds[kind(one.job)] = one.job.length / seconds

    def show(self, running: dict[int, Running], waiting: list[Job], outcome: Outcome) -> None:
        """Redraws on a terminal; otherwise prints the summary every ten seconds."""
        if self.live:
            lines = [self.summary(running, waiting, outcome), *map(self.line, running.values())]
            width = shutil.get_terminal_size().columns  # a wrapped line could not be removed
            self.clear()
            self.screen.write("".join(f"{line[:width]}\n" for line in lines))
            self.screen.flush()
            self.drawn = len(lines)
        elif time.monotonic() - self.said >= progress.EVERY:
            self.said = time.monotonic()
            self.say(self.summary(running, waiting, outcome))

    def summary(self, running: dict[int, Running], waiting: list[Job], outcome: Outcome) -> str:
        """The progress of all jobs."""
        left = [self.seconds_left(one) for one in running.values()]
        ahead = [self.seconds_of(job) for job in waiting]
        known = [seconds for seconds in (*left, *ahead) if seconds is not None]
        unknown = len(left) + len(ahead) - len(known)
        longest = max((seconds for seconds in left if seconds is not None), default=0.0)
        to_go = duration(max(longest, sum(known) / max(1, len(running))))
        return (
            f"{len(outcome.done)} of {self.total} jobs done, {len(outcome.failed)} failed, "
            f"{len(outcome.skipped)} skipped; {'at least ' if unknown else ''}{to_go} to go"
        )

    def line(self, one: Running) -> str:
        """The progress of one job."""
        done, speed = steps_done(one.job, self.folder), one.speed(self.folder)
        left = self.seconds_left(one)
        pace = f"{speed:.4g}/s" if speed else "starting"
        return (
            f"  {one.job.name:<44} {done:>9,} of {one.job.length:>9,}  {pace:>9}"
            f"  {'' if left is None else duration(left) + ' to go'}"
        )

    def seconds_left(self, one: Running) -> float | None:
        """The remaining time of a running job, from its own speed or that of its kind."""
        speed = one.speed(self.folder) or self.speeds.get(kind(one.job))
        return (one.job.length - steps_done(one.job, self.folder)) / speed if speed else None

    def seconds_of(self, job: Job) -> float | None:
        """The time of a waiting job, from the speed of its kind."""
        speed = self.speeds.get(kind(job))
        return (job.length - steps_done(job, self.folder)) / speed if speed else None


def kind(job: Job) -> str:
    """The name without the seed: jobs of one kind take about the same time."""
    return job.name.rsplit("-seed", 1)[0]
