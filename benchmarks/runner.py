"""What the runner itself costs a job, with an engine that does nothing.

    python benchmarks/runner.py [--jobs 100 1000 10000] [--slots 64]

A tenth of the jobs need nothing; every other one needs two of them.
"""

import argparse
import io
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bcq.experiments.jobs import Job, directory_name
from bcq.experiments.runner import run_jobs
from bcq.system.files import Row


@dataclass(frozen=True)
class Trivial:
    """A job of which only the needs matter."""

    name: str
    needs: Sequence[Job] = ()
    length: int = 1

    def as_json(self) -> Row:
        """Its name and needs."""
        return {"name": self.name, "needs": [need.as_json() for need in self.needs]}

    def perform(self, folder: Path) -> None:
        """Does nothing."""


class Done:
    """A job that has ended."""

    def poll(self) -> int:
        """It ended well."""
        return 0

    def stop(self) -> None:
        """There is nothing to stop."""


@dataclass(frozen=True)
class Nothing:
    """An engine whose jobs are done when they are started."""

    slots: int

    def start(self, job: Job, folder: Path, slot: int) -> Done:
        """Marks the job as done."""
        del slot
        (folder / directory_name(job) / "done.json").touch()
        return Done()


def layered(count: int) -> list[Job]:
    """A tenth of the jobs need nothing, and every other one needs two of them."""
    first: list[Job] = [Trivial(f"a-seed{i}") for i in range(max(1, count // 10))]
    rest = range(count - len(first))
    needs = [(first[i % len(first)], first[(i + 1) % len(first)]) for i in rest]
    return [*first, *(Trivial(f"b-seed{i}", needs[i]) for i in rest)]


def main() -> None:
    """Prints milliseconds a job."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, nargs="+", default=[100, 1_000, 10_000])
    parser.add_argument("--slots", type=int, default=64)
    arguments = parser.parse_args()
    for count in arguments.jobs:
        with tempfile.TemporaryDirectory() as folder:
            jobs = layered(count)
            begun = time.perf_counter()
            outcome = run_jobs(jobs, Path(folder), Nothing(arguments.slots), screen=io.StringIO())
            seconds = time.perf_counter() - begun
            assert len(outcome.done) == count
        print(f"{count:>6} jobs: {seconds:8.2f} s, {1e3 * seconds / count:.2f} ms a job")


if __name__ == "__main__":
    main()
