"""Jobs: pure functions of their settings to a folder, which others may need as input.

A job's folder is named by the fingerprint of everything that decides its numbers: its settings,
those of the jobs it needs, a bundled expert's weights, the number of compute threads, and a number
that is raised whenever the code gives other numbers for the same settings.
"""

import hashlib
import json
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Protocol

from bcq.runs.origin import Origin
from bcq.system.errors import DivergenceError
from bcq.system.files import Row, make_directory, write_text

THREADS = 1  # of a job: two runs of one thread each are faster than one of two
NUMBERS = 2  # raised when CHANGELOG says "numbers changed"; 2: streams of their own for each role


class Job(Protocol):
    """What a runner has to know."""

    def __hash__(self) -> int: ...

    @property
    def name(self) -> str:
        """For people; jobs that differ may share it."""
        ...

    @property
    def needs(self) -> Sequence["Job"]:
        """The jobs whose folders it reads."""
        ...

    @property
    def length(self) -> int:
        """How many steps or updates it takes, as its folder counts them."""
        ...

    def as_json(self) -> Row:
        """Its settings, and those of what it needs."""
        ...

    def perform(self, folder: Path) -> None:
        """Does the work in `folder / directory_name(job)`; interrupted, goes on from there."""
        ...


def fingerprint(job: Job) -> str:
    """Twelve hexadecimal digits that stand for everything the job was told."""
    return digest(job, THREADS)


@cache
def digest(job: Job, threads: int) -> str:
    """Remembered: the paper's experts stand in the settings of hundreds of jobs."""
    told = json.dumps(
        {"job": job.as_json(), "threads": threads, "numbers": NUMBERS}, sort_keys=True
    )
    return hashlib.sha256(told.encode()).hexdigest()[:12]


def directory_name(job: Job) -> str:
    """Where its results go."""
    return f"{job.name}-{fingerprint(job)}"


def with_needs(jobs: Sequence[Job]) -> list[Job]:
    """The jobs and everything they need, each once, needs first."""
    found: dict[str, Job] = {}

    def add(job: Job) -> None:
        if fingerprint(job) not in found:
            for need in job.needs:
                add(need)
            found[fingerprint(job)] = job

    for job in jobs:
        add(job)
    return list(found.values())


def is_finished(job: Job, folder: Path) -> bool:
    """Whether its folder says so."""
    return (folder / directory_name(job) / "done.json").exists()


def perform(job: Job, folder: Path) -> None:
    """Does a job, unless it is done, and marks it as done."""
    directory = folder / directory_name(job)
    if is_finished(job, folder):
        return
    make_directory(directory)
    write_text(directory / "job.json", json.dumps(job.as_json(), indent=2) + "\n")
    start = time.perf_counter()
    with suppress(DivergenceError):  # a result, which the run's divergence.json tells
        job.perform(folder)
    notes = {"seconds": round(time.perf_counter() - start, 1), **asdict(Origin.of_this_process())}
    write_text(directory / "done.json", json.dumps(notes, indent=2) + "\n")
