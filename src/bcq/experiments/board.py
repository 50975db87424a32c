"""What people see of jobs that run: how far each has come, its speed, the remaining time."""

import shutil
import time
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Protocol, TextIO, runtime_checkable

from bcq.experiments.forms import steps_done
from bcq.experiments.jobs import Job
from bcq.experiments.waiting import Waiting, kind
from bcq.system import progress
from bcq.system.progress import duration

EVERY = 0.5  # seconds between two pictures of the board


class Process(Protocol):
    """A job that runs somewhere."""

    def poll(self) -> int | None:
        """Its exit code once it has ended."""
        ...

    def stop(self) -> None:
        """Ends it. Its folder stays valid, so that the job can be continued."""
        ...


@runtime_checkable
class OnNode(Protocol):
    """A job that runs on one of several nodes."""

    def where(self) -> str:
        """The node, and how often the job was begun, in words."""
        ...


@dataclass
class Running:
    """A running job, and its speed."""

    job: Job
    process: Process
    begun: float
    steps_before: int
    place: str = ""  # as shown last

    def where(self) -> str:
        """Where it runs, if there is more than one node."""
        return self.process.where() if isinstance(self.process, OnNode) else ""

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


class Board:
    """Shows running jobs, speeds and the remaining time; redrawn on a terminal, else as lines."""

    def __init__(self, total: int, folder: Path, screen: TextIO):
        self.total, self.folder, self.screen = total, folder, screen
        self.live = screen.isatty() and not progress.silent
        self.drawn = 0
        self.said, self.due = time.monotonic(), 0.0
        self.summed_up = ""
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

    def refresh(self, running: dict[int, Running], waiting: Waiting, outcome: Outcome) -> None:
        """Shows it if it is due. The more time that takes, the less often it is done."""
        begun = time.monotonic()
        if begun >= self.due:
            self.show(running, waiting, outcome)
            self.due = begun + max(EVERY, 10 * (time.monotonic() - begun))

    def show(self, running: dict[int, Running], waiting: Waiting, outcome: Outcome) -> None:
        """Redraws on a terminal; otherwise prints a new summary, at most every ten seconds."""
        if self.live:
            size = shutil.get_terminal_size()  # what is wrapped or scrolled could not be removed
            shown = islice(running.values(), max(1, size.lines - 2))
            lines = [self.summary(running, waiting, outcome), *map(self.line, shown)]
            self.clear()
            self.screen.write("".join(f"{line[: size.columns]}\n" for line in lines))
            self.screen.flush()
            self.drawn = len(lines)
            return
        for one in running.values():
            self.tell_place(one)
        if time.monotonic() - self.said >= progress.EVERY:
            self.said = time.monotonic()
            before, self.summed_up = self.summed_up, self.summary(running, waiting, outcome)
            if self.summed_up != before:
                self.say(self.summed_up)

    def tell_place(self, one: Running) -> None:
        """Prints where a job runs if that has changed, unless the board shows it anyway."""
        if not self.live and (place := one.where()) != one.place:
            one.place = place
            self.say(f"running {one.job.name} {place}")

    def summary(self, running: dict[int, Running], waiting: Waiting, outcome: Outcome) -> str:
        """The progress of all jobs."""
        left = [self.seconds_left(one) for one in running.values()]
        ahead = self.seconds_of(waiting)
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
            f"  {'' if left is None else duration(left) + ' to go':<15}  {one.where()}".rstrip()
        )

    def seconds_left(self, one: Running) -> float | None:
        """The remaining time of a running job, from its own speed or that of its kind."""
        speed = one.speed(self.folder) or self.speeds.get(kind(one.job))
        return (one.job.length - steps_done(one.job, self.folder)) / speed if speed else None

    def seconds_of(self, waiting: Waiting) -> list[float | None]:
        """The time of all waiting jobs of each kind, from the speed of the kind."""
        speeds = [(steps, self.speeds.get(kind)) for kind, steps in waiting.steps.items()]
        return [steps / speed if speed else None for steps, speed in speeds]
