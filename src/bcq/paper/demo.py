"""Demonstrations that need nothing but this package."""

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from bcq.algorithms import BCConfig, BCQConfig, DDPGConfig
from bcq.algorithms.learning import AlgorithmConfig
from bcq.collection.experts import find
from bcq.collection.recipes import Recipe, collect_to, imperfect, random_batch
from bcq.data.dataset import Dataset
from bcq.runs.directory import Run, returns_by_step
from bcq.runs.plots import learning_curves
from bcq.runs.recording import train_run
from bcq.runs.schedules import Schedule
from bcq.simulation.batches import load
from bcq.system import interruption
from bcq.system.errors import BCQError
from bcq.system.files import last_line, make_directory
from bcq.system.progress import over

PENDULUM, CHEETAH = "Pendulum-v1", "HalfCheetah-v5"
# The command, wherever it is, at a low priority.
NICELY = (sys.executable, "-c", "import os; os.nice(10); from bcq.__main__ import main; main()")


def pendulum(directory: Path, *, steps: int, seed: int) -> None:
    """BCQ swings up a pendulum after watching 5,000 random actions (supplement D.3)."""
    recipe = random_batch(PENDULUM, seed=seed)
    configs: dict[str, AlgorithmConfig] = {"bcq": BCQConfig(vae_l2=1e-3)}
    show(directory, recipe, configs, steps=steps, evaluate_every=1_000)


def cheetah(directory: Path, *, steps: int, seed: int) -> None:
    """BCQ, DDPG and BC run after imperfect demonstrations, the paper's most telling case."""
    recipe = imperfect(find("0", CHEETAH), seed=seed)
    configs: dict[str, AlgorithmConfig] = {
        "bcq": BCQConfig(),
        "ddpg": DDPGConfig(),
        "bc": BCConfig(),
    }
    show(directory, recipe, configs, steps=steps, evaluate_every=2_000)


def show(
    directory: Path,
    recipe: Recipe,
    configs: dict[str, AlgorithmConfig],
    *,
    steps: int,
    evaluate_every: int,
) -> None:
    """Collects a batch, trains each algorithm on it, and says what each earns.

    The first is trained here, with the settings given; the others are baselines as they come.
    """
    schedule = Schedule(
        steps=steps,
        seed=recipe.seed,
        env=recipe.environment,
        evaluate_every=evaluate_every,
        checkpoint_every=1_000,
    )
    make_directory(directory)
    batch = directory / "batch.hdf5"
    if not batch.exists():
        collect_to(batch, recipe)
    dataset = load(batch)
    print(
        f"Batch: {len(dataset):,} steps on {recipe.environment}, {len(dataset.episodes)} "
        f"episodes.\nBehaviour: {dataset.provenance.behaviour}.\n"
        "Training uses only this batch. The environment is used only for evaluation.\n"
    )
    (name, config), *others = configs.items()
    with trained_beside([name for name, _ in others], directory, schedule, batch):
        runs = [train_run(directory / name, config, schedule, dataset, resume=True)]
    runs += [Run.open(directory / name) for name, _ in others]
    print_table(dataset, runs)
    picture = directory / "learning_curves.png"
    learning_curves(runs, picture)
    print(f"learning curves  {picture}\nbatch            {batch}\nruns             {directory}")


@contextmanager
def trained_beside(
    names: Sequence[str], directory: Path, schedule: Schedule, batch: Path
) -> Iterator[None]:
    """Trains baselines by `bcq train` in the time that the algorithm shown leaves the cores idle.

    BCQ's updates keep two cores busy to three quarters; in the rest, DDPG and BC cost next to
    nothing. What they say goes to a file beside their run.
    """
    options = [
        *("--data", str(batch), "--env", str(schedule.env), "--seed", str(schedule.seed)),
        *("--steps", str(schedule.steps), "--evaluate-every", str(schedule.evaluate_every)),
        *("--checkpoint-every", str(schedule.checkpoint_every), "--resume"),
    ]
    started = {}
    for name in names:
        with (directory / f"{name}.txt").open("w") as output:
            started[name] = subprocess.Popen(
                [*NICELY, "train", name, "--out", str(directory / name), *options],
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C reaches this process alone, which asks the others
            )
    try:
        yield
        for name, process in over(started.items(), "baselines", "run"):
            while process.poll() is None:
                interruption.check()
                time.sleep(0.1)
            if process.returncode != 0:
                log = directory / f"{name}.txt"
                raise BCQError(
                    f"training {name} failed; the last line of {log} is: {last_line(log)}"
                )
    finally:
        for process in started.values():
            process.terminate()
        for process in started.values():
            process.wait()


def print_table(dataset: Dataset, runs: Sequence[Run]) -> None:
    """Returns of the batch, of each evaluation and of the last three together."""
    evaluations = [returns_by_step(run) for run in runs]
    names = [run.config.algorithm_name.upper() for run in runs]
    print("\n" + f"{'return per episode ± std':<28}" + "".join(f"{n:>16}" for n in names))
    for step in evaluations[0]:
        cells = "".join(cell(returns[step]) for returns in evaluations)
        print(f"{f'{step:,} updates':<28}{cells}")
    last = list(evaluations[0])[-3:]
    cells = "".join(cell(np.concatenate([returns[s] for s in last])) for returns in evaluations)
    print(f"{f'last {len(last)} evaluations':<28}{cells}")
    print(f"{'the batch':<28}{cell(dataset.episode_returns)}\n")


def cell(returns: Sequence[float] | np.ndarray) -> str:
    """Mean and spread."""
    return f"{f'{np.mean(returns):.0f} ± {np.std(returns):.0f}':>16}"
