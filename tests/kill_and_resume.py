"""Kills training at random instants, resumes it, and compares it with a run left alone.

    python tests/kill_and_resume.py --kills 20

Every file of the run must be equal byte for byte, but for the wall-clock figures.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import bcq

STEPS = 1500
ROWS = STEPS // 100
SETTINGS = (
    "--env=Pendulum-v1",
    f"--steps={STEPS}",
    "--evaluate-every=300",
    "--evaluate-episodes=2",
    "--checkpoint-every=200",
    *("--hidden-sizes", "32"),
    *("--vae-hidden-sizes", "32"),
)
MAIN = "from bcq.cli.application import main; main()"
PATIENCE = 300.0  # seconds


@dataclass(frozen=True)
class Instant:
    """When to kill: so long after so many rows of metrics, or in the next write after them."""

    rows: int = 0
    seconds: float = 0.0
    writing: bool = False
    cold: bool = False  # with nothing compiled beforehand

    def awaited(self, process: subprocess.Popen[bytes], directory: Path) -> bool:
        """Waits for it; false where the process ended before."""
        started = time.monotonic()
        while process.poll() is None:
            if rows_logged(directory) >= self.rows and (not self.writing or writing(directory)):
                time.sleep(self.seconds)
                return process.poll() is None
            if time.monotonic() - started > PATIENCE:
                raise RuntimeError(f"{directory}: nothing happened in {PATIENCE:.0f} s")
            time.sleep(0.0002 if self.writing else 0.005)
        return False


def rows_logged(directory: Path) -> int:
    path = directory / "metrics.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def writing(directory: Path) -> list[str]:
    """Which files are half-written."""
    return sorted(path.name.split(".")[1] for path in directory.glob(".*.tmp"))


@dataclass(frozen=True)
class Workshop:
    """A folder with a batch, a run left alone, and the runs that are killed."""

    folder: Path

    @property
    def reference(self) -> Path:
        return self.folder / "reference"

    def prepare(self) -> float:
        """Makes the batch and the reference; the seconds from start to first update."""
        batch = bcq.collect_random("Pendulum-v1", transitions=400, seed=0)
        bcq.save(batch, self.folder / "batch.hdf5")
        started = time.monotonic()
        with self.training(self.reference, "cache") as process:
            Instant(rows=1).awaited(process, self.reference)
            seconds = time.monotonic() - started
            self.finish(process, self.reference)
        return seconds

    @contextmanager
    def training(
        self, directory: Path, cache: str, *options: str
    ) -> Iterator[subprocess.Popen[bytes]]:
        """A process of its own that trains; it does not outlive the block."""
        command = [sys.executable, "-c", MAIN, "train", "bcq", *SETTINGS, *options]
        command += [f"--data={self.folder / 'batch.hdf5'}", f"--out={directory}"]
        environment = os.environ | {"XDG_CACHE_HOME": str(self.folder / cache)}
        with (
            self.log(directory).open("ab") as log,
            subprocess.Popen(command, env=environment, stdout=log, stderr=log) as process,
        ):
            try:
                yield process
            finally:
                process.kill()

    def log(self, directory: Path) -> Path:
        return self.folder / f"{directory.name}.log"

    def finish(self, process: subprocess.Popen[bytes], directory: Path) -> None:
        if process.wait(PATIENCE) != 0:
            raise RuntimeError(f"training failed:\n{self.log(directory).read_text()}")

    def killed(self, name: str, instants: Sequence[Instant]) -> tuple[list[str], list[str]]:
        """Where a run stood at each kill, and which of its files differ at the end."""
        directory = self.folder / name
        cache = f"cache-{name}" if instants[0].cold else "cache"
        stood = []
        for number, instant in enumerate(instants):
            options = ["--resume"] if number else []
            with self.training(directory, cache, *options) as process:
                if instant.awaited(process, directory):
                    process.kill()
                    process.wait(PATIENCE)
                    stood.append(standing(directory))
                else:
                    self.finish(process, directory)
        with self.training(directory, cache, "--resume") as process:
            self.finish(process, directory)
        return stood, differing(self.reference, directory)


def standing(directory: Path) -> str:
    """How far a killed run had come, and what it left half-done."""
    if not (directory / "config.json").exists():
        return "before its first file"
    step = bcq.Run.open(directory).checkpoint_step()
    words = f"at {100 * rows_logged(directory)} updates, checkpoint {step}"
    return ", writing ".join([words, *writing(directory)])


def differing(reference: Path, directory: Path) -> list[str]:
    """Names of the files that are not equal, of either run."""
    one, other = (
        {
            path.name: timed_steps(path) if path.name == "timing.jsonl" else path.read_bytes()
            for path in folder.iterdir()
            if path.name != ".lock"
        }
        for folder in (reference, directory)
    )
    return sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))


def timed_steps(path: Path) -> list[int]:
    return [json.loads(line)["step"] for line in path.read_text().splitlines()]


def plans(generator: random.Random, startup: float) -> Iterator[list[Instant]]:
    """Without end: in turn during training, a checkpoint and start-up; some killed twice."""
    while True:
        for first in (
            Instant(rows=generator.randrange(1, ROWS), seconds=generator.uniform(0, 0.3)),
            Instant(rows=generator.randrange(1, ROWS), writing=True),
            Instant(seconds=generator.uniform(0, startup), cold=generator.random() < 0.5),
        ):
            again = Instant(rows=generator.randrange(ROWS), seconds=generator.uniform(0, 3))
            yield [first, again] if generator.random() < 0.4 else [first]


def main() -> None:
    """Prints a line a kill, and how many runs came out identical."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=20, help="how many runs to kill")
    parser.add_argument("--seed", type=int, default=0, help="of the instants")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        workshop = Workshop(Path(folder))
        print("reference: training without interruption", flush=True)
        startup = workshop.prepare()
        identical = done = 0
        for number, plan in enumerate(plans(random.Random(arguments.seed), startup)):
            stood, different = workshop.killed(f"run-{number}", plan)
            done += bool(stood or different)
            identical += bool(stood) and not different
            place = f"{done:>{len(str(arguments.kills))}} of {arguments.kills}"
            words = f"killed {', then '.join(stood)}" if stood else "ended before its kill"
            verdict = f"DIFFERENT in {', '.join(different)}" if different else "identical"
            print(f"{place}: {words}: {verdict}", flush=True)
            if done == arguments.kills:
                break
    print(f"{identical} of {arguments.kills} identical")
    sys.exit(identical != arguments.kills)


if __name__ == "__main__":
    main()
