"""Kills collections at random instants, resumes them, and compares them with ones left alone.

    python tests/kill_and_resume_collection.py --kills 10

The batch and every file of a behavioural agent's run must be equal byte for byte, but for the
wall-clock figures and the commit (one may be made meanwhile); nothing else may be left behind.
"""

import argparse
import contextlib
import io
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import jax
import safetensors.numpy

from bcq.algorithms import DDPGConfig
from bcq.algorithms.networks import Actor
from bcq.cli.application import main as bcq
from bcq.collection import agents
from bcq.collection.agents import ActorAlone
from bcq.collection.experts import find
from bcq.collection.recipes import collect_behaviour_to, collect_to, imperfect
from bcq.runs.arrays import named_arrays
from bcq.runs.origin import use_compilation_cache
from bcq.runs.schedules import BehaviourSchedule
from bcq.simulation.environments import make, task_of
from bcq.system.errors import BCQError
from kill_and_resume import timed_steps

ENV = "Pendulum-v1"
TRANSITIONS = {
    "imperfect": 9_000,
    "concurrent": 1_500,
}  # 5 waves of episodes; 7 episodes and a half
FOLDER = {"imperfect": "batch.hdf5.partial", "concurrent": "batch.behaviour"}  # holds the rows
SCHEDULE = BehaviourSchedule(
    env=ENV,
    steps=TRANSITIONS["concurrent"],
    seed=1,
    random_steps=300,
    evaluate_every=400,
    evaluate_episodes=2,
)
PATIENCE = 300.0  # seconds


def collect_concurrent(path: Path) -> None:
    """As `bcq collect concurrent`, with small networks and frequent checkpoints."""
    small = DDPGConfig(hidden_sizes=(32, 32))
    with mock.patch.object(agents, "DDPGConfig", return_value=small):
        collect_behaviour_to(path, "concurrent", SCHEDULE)


@dataclass(frozen=True)
class Instant:
    """When to kill: so long after so many rows were collected, or in the next write after them."""

    rows: int = 0
    seconds: float = 0.0
    writing: bool = False

    def awaited(self, process: subprocess.Popen[bytes], directory: Path, recipe: str) -> bool:
        """Waits for it; false where the process ended before."""
        started = time.monotonic()
        while process.poll() is None:
            if rows_collected(directory, recipe) >= self.rows and (
                not self.writing or writing(directory, process.pid)
            ):
                time.sleep(self.seconds)
                return process.poll() is None
            if time.monotonic() - started > PATIENCE:
                raise RuntimeError(f"{directory}: nothing happened in {PATIENCE:.0f} s")
            time.sleep(0.0002 if self.writing else 0.005)
        return False


def rows_collected(directory: Path, recipe: str) -> int:
    """As the file's size says: a row of Pendulum's has 50 bytes."""
    with contextlib.suppress(FileNotFoundError):
        return (directory / FOLDER[recipe] / "rows.bin").stat().st_size // 50
    return 0


def writing(directory: Path, process: int) -> list[str]:
    """Which files a process has half-written."""
    ending = f".{process}.tmp"
    with contextlib.suppress(FileNotFoundError):  # it was there a moment ago
        return sorted(path.name.removesuffix(ending)[1:] for path in directory.rglob(f".*{ending}"))
    return []


@dataclass(frozen=True)
class Workshop:
    """A folder with an expert, collections left alone, and collections that are killed."""

    folder: Path

    def prepare(self, recipe: str) -> None:
        """Makes the expert and the reference."""
        task = task_of(make(ENV))
        sizes = (task.observation_size, task.action_size, (32, 32))
        actor = jax.jit(lambda: Actor(*sizes, jax.random.key(0)))()
        content = safetensors.numpy.save(named_arrays(ActorAlone(actor)))
        self.expert.write_bytes(content)
        card = {"environment": ENV, "task": task.as_json(), "hidden_sizes": [32, 32]}
        self.expert.with_suffix(".json").write_text(json.dumps({**card, "seed": 0, "steps": 0}))
        self.collect(recipe, self.reference(recipe))

    @property
    def expert(self) -> Path:
        return self.folder / "expert.safetensors"

    def reference(self, recipe: str) -> Path:
        return self.folder / f"reference-{recipe}"

    def collect(self, recipe: str, directory: Path) -> None:
        """Collects in this process, what a killed one has left to collect."""
        batch = directory / "batch.hdf5"
        with contextlib.redirect_stderr(io.StringIO()):
            if recipe == "concurrent":
                collect_concurrent(batch)
            else:
                expert = find(str(self.expert), ENV)
                collect_to(batch, imperfect(expert, transitions=TRANSITIONS[recipe]))

    @contextlib.contextmanager
    def collecting(self, recipe: str, directory: Path) -> Iterator[subprocess.Popen[bytes]]:
        """A process of its own that collects; it does not outlive the block."""
        command = [sys.executable, __file__, "--collect", recipe, "--out", str(directory)]
        environment = os.environ | {"XDG_CACHE_HOME": str(self.folder / "cache")}
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

    def killed(
        self, recipe: str, name: str, instants: Sequence[Instant]
    ) -> tuple[list[str], list[str]]:
        """Where a collection stood at each kill, and which of its files differ at the end."""
        directory = self.folder / name
        stood = []
        for instant in instants:
            if (directory / "batch.hdf5").exists():  # killed when it had just finished
                break
            with self.collecting(recipe, directory) as process:
                if instant.awaited(process, directory, recipe):
                    process.kill()
                    process.wait(PATIENCE)
                    stood.append(standing(directory, recipe, process.pid))
                elif process.wait(PATIENCE) != 0:
                    return stood, [self.log(directory).read_text().splitlines()[-1]]
        if not (directory / "batch.hdf5").exists():
            try:
                self.collect(recipe, directory)
            except (BCQError, OSError) as error:
                return stood, [f"{type(error).__name__}: {error}"]
        return stood, differing(self.reference(recipe), directory)


def standing(directory: Path, recipe: str, process: int) -> str:
    """How far a killed collection had come, and what it left half-done."""
    words = f"at {rows_collected(directory, recipe)} rows"
    return ", writing ".join([words, *writing(directory, process)])


def differing(reference: Path, directory: Path) -> list[str]:
    """Names of the files that are not equal, of either collection; of settings, which."""
    one, other = (dict(contents(folder)) for folder in (reference, directory))
    return sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))


def contents(folder: Path) -> Iterator[tuple[str, object]]:
    for path in folder.rglob("*"):
        name = str(path.relative_to(folder))
        if path.is_dir():
            yield name, "folder"
        elif path.name == "config.json":
            for key, value in json.loads(path.read_text()).items():
                if key != "commit":
                    yield f"{name} ({key})", value
        elif path.name == "timing.jsonl":
            yield name, timed_steps(path)
        elif path.name != ".lock":
            yield name, path.read_bytes()


def plans(generator: random.Random) -> Iterator[tuple[str, list[Instant]]]:
    """Without end: each recipe in turn, two or three kills each, in a write or anywhere."""
    while True:
        for recipe, rows in TRANSITIONS.items():
            thresholds = sorted(generator.randrange(rows) for _ in range(generator.choice([2, 3])))
            yield (
                recipe,
                [
                    Instant(rows=threshold, writing=True)
                    if generator.random() < 0.5
                    else Instant(rows=threshold, seconds=generator.uniform(0, 0.3))
                    for threshold in thresholds
                ],
            )


def kill_and_compare(kills: int, seed: int) -> bool:
    """Prints a line a collection, and how many came out identical."""
    done = collections = identical = 0
    with tempfile.TemporaryDirectory() as folder:
        workshop = Workshop(Path(folder))
        for recipe in TRANSITIONS:
            print(f"reference: {recipe} without interruption", flush=True)
            workshop.prepare(recipe)
        for number, (recipe, instants) in enumerate(plans(random.Random(seed))):
            name = f"{recipe}-{number}"
            stood, different = workshop.killed(recipe, name, instants[: kills - done])
            words = f"killed {', then '.join(stood)}" if stood else "ended before its kill"
            verdict = f"DIFFERENT in {', '.join(different)}" if different else "identical"
            done += len(stood)
            collections += 1
            identical += not different
            print(f"{done} of {kills} kills: {recipe} {words}: {verdict}", flush=True)
            if done >= kills:
                break
    print(f"{identical} of {collections} collections identical")
    return identical == collections


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=10, help="how many kills")
    parser.add_argument("--seed", type=int, default=0, help="of the instants")
    parser.add_argument("--collect", choices=TRANSITIONS, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.collect == "concurrent":
        use_compilation_cache()
        collect_concurrent(arguments.out / "batch.hdf5")
    elif arguments.collect == "imperfect":
        options = (
            *("--env", ENV, "--transitions", str(TRANSITIONS["imperfect"])),
            *("--policy", str(arguments.out.parent / "expert.safetensors")),
            *("--out", str(arguments.out / "batch.hdf5")),
        )
        bcq(["collect", "imperfect", *options])
    else:
        sys.exit(not kill_and_compare(arguments.kills, arguments.seed))


if __name__ == "__main__":
    main()
