"""Jobs: pure functions from settings to a folder. A job can need the folders of other jobs.

A job's folder is named by the fingerprint of everything that decides its numbers: its settings,
those of the jobs it needs, the weights of a bundled expert, the number of compute threads, and a
version that is raised when the code gives different numbers for the same settings.
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
from bcq.system.files import Row, make_directory, write_json

THREADS = 1  # of a job: two runs with one thread each are faster than one run with two
NUMBERS = 2  # raised when CHANGELOG says "numbers changed"; 2: a random stream for each role


class Job(Protocol):
    """What a runner needs to know about a job."""

    def __hash__(self) -> int: ...

    @property
    def name(self) -> str:
        """For people; different jobs can have the same name."""
        ...

    @property
    def needs(self) -> Sequence["Job"]:
        """The jobs whose folders it reads."""
        ...

    @property
    def length(self) -> int:
        """The number of steps or updates, as its folder counts them."""
        ...

    def as_json(self) -> Row:
        """Its settings, and those of the jobs that it needs."""
        ...

    def perform(self, folder: Path) -> None:
        """Does the work in `folder / directory_name(job)`; continues there when repeated."""
        ...


def fingerprint(job: Job) -> str:
    """Twelve hexadecimal digits that stand for everything that decides the job's numbers."""
    return digest(job, THREADS)


@cache
def digest(job: Job, threads: int) -> str:
    """Cached: the paper's experts are part of the settings of hundreds of jobs."""
    told = json.dumps(
        {"job": job.as_json(), "threads": threads, "numbers": NUMBERS}, sort_keys=True
    )
    return hashlib.sha256(told.encode()).hexdigest()[:12]


def directory_name(job: Job) -> str:
    """The name of the folder of its results."""
    return f"{job.name}-{fingerprint(job)}"


def with_needs(jobs: Sequence[Job]) -> list[Job]:
    """The jobs and everything that they need, without repetition, needs first."""
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
    """Whether its folder is marked as done."""
    return (folder / directory_name(job) / "done.json").exists()


def perform(job: Job, folder: Path) -> None:
    """Does a job that is not done yet, and marks it as done."""
    directory = folder / directory_name(job)
    if is_finished(job, folder):
        return
    make_directory(directory)
    write_json(directory / "job.json", job.as_json())
    start = time.perf_counter()
    with suppress(DivergenceError):  # divergence is a result: divergence.json records it
        job.perform(folder)
    notes = {"seconds": round(time.perf_counter() - start, 1), **asdict(Origin.of_this_process())}
    write_json(directory / "done.json", notes)
