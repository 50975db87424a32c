"""What the runner itself costs a job, with an engine that does nothing.

    python benchmarks/runner.py [--jobs 100 1000 10000] [--slots 64]
    python benchmarks/runner.py --ray [--jobs 1000]

A tenth of the jobs need nothing; every other one needs two of them. With --ray the jobs collect one
transition each on a Ray cluster of this machine, and what they take without an engine is taken off.
Processor time is that of the driver and all of Ray, which other work does not raise. The time of
processes that have ended is not in it, so it holds only while none is replaced (fewer than 500 jobs
a core).
"""

import argparse
import io
import os
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from bcq.experiments.cores import on_a_free_core
from bcq.experiments.jobs import Job, directory_name, perform
from bcq.experiments.kinds import Batch
from bcq.experiments.ray_engine import connected
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


def processor_time() -> float:
    """Seconds of processors that this process and those below it have used."""
    parents, used = dict[int, int](), dict[int, float]()
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has just ended
            fields = path.read_text().rpartition(")")[2].split()
            parents[int(path.parent.name)] = int(fields[1])
            used[int(path.parent.name)] = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    below = {os.getpid()}
    while new := {one for one, parent in parents.items() if parent in below} - below:
        below |= new
    return sum(used[one] for one in below)


def on_ray(count: int) -> None:
    """Prints what Ray, leases and private folders cost a job."""
    jobs = [Batch("random", "Pendulum-v1", 1, seed) for seed in range(count + 60)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with on_a_free_core():
            for job in jobs[count : count + 10]:
                perform(job, folder)
            begun, before = time.perf_counter(), processor_time()
            for job in jobs[count + 10 :]:
                perform(job, folder)
            own, busy = (time.perf_counter() - begun) / 50, (processor_time() - before) / 50
        with connected(None, folder) as engine:
            slots = engine.slots
            run_jobs(jobs[-slots:], folder / "first", engine, screen=io.StringIO())  # it imports
            begun, before = time.perf_counter(), processor_time()
            outcome = run_jobs(jobs[:count], folder, engine, screen=io.StringIO())
            seconds, used = time.perf_counter() - begun, (processor_time() - before) / count
        assert len(outcome.done) == count
    each = 1e3 * seconds * slots / count
    print(
        f"{count:>6} jobs on {slots} cores: {seconds:.1f} s, {each:.1f} ms a job and core, of which"
    )
    print(f"the task itself takes {1e3 * own:.1f} ms: {each - 1e3 * own:.1f} ms more")
    print(f"processors: {1e3 * used:.1f} ms a job, of which the task takes {1e3 * busy:.1f} ms")


def main() -> None:
    """Prints milliseconds a job."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, nargs="+", default=[100, 1_000, 10_000])
    parser.add_argument("--slots", type=int, default=64)
    parser.add_argument("--ray", action="store_true")
    arguments = parser.parse_args()
    if arguments.ray:
        for count in arguments.jobs:
            on_ray(count)
        return
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
