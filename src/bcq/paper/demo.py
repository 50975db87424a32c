"""Demos that need only this package."""

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bcq.algorithms import BCConfig, BCQConfig, DDPGConfig
from bcq.algorithms.learning import AlgorithmConfig
from bcq.data.dataset import Dataset
from bcq.experiments.jobs import Job, directory_name, perform
from bcq.experiments.kinds import Batch, Training
from bcq.experiments.runner import SharedCores, run_jobs
from bcq.runs.directory import Run, returns_by_step
from bcq.runs.plots import learning_curves
from bcq.runs.schedules import Schedule
from bcq.simulation.batches import load
from bcq.system.errors import BCQError

PENDULUM, CHEETAH = "Pendulum-v1", "HalfCheetah-v5"


def pendulum(directory: Path, *, steps: int, seed: int) -> None:
    """BCQ learns to swing up a pendulum from 5,000 random actions (supplement D.3)."""
    schedule = demo_schedule(PENDULUM, steps, seed, evaluate_every=1_000)
    show(directory, Batch("random", PENDULUM, 5_000, seed), [BCQConfig(vae_l2=1e-3)], schedule)


def cheetah(directory: Path, *, steps: int, seed: int) -> None:
    """BCQ, DDPG and BC learn to run from imperfect demonstrations (Section 5)."""
    schedule = demo_schedule(CHEETAH, steps, seed, evaluate_every=2_000)
    configs: list[AlgorithmConfig] = [BCQConfig(), DDPGConfig(), BCConfig()]
    show(directory, Batch("imperfect", CHEETAH, 100_000, seed), configs, schedule)


def demo_schedule(env: str, steps: int, seed: int, *, evaluate_every: int) -> Schedule:
    """Checkpoints are frequent: an interrupted demo continues from the last one."""
    return Schedule(
        steps=steps, seed=seed, env=env, evaluate_every=evaluate_every, checkpoint_every=1_000
    )


def show(
    directory: Path, batch: Batch, configs: Sequence[AlgorithmConfig], schedule: Schedule
) -> None:
    """Collects a batch, trains each algorithm on it, and prints their returns.

    The first algorithm has priority on all cores. BCQ's updates use about three quarters of two
    cores; DDPG and BC use the rest.
    """
    perform(batch, directory)
    path = directory / directory_name(batch) / "batch.hdf5"
    dataset = load(path)
    print(
        f"Batch: {len(dataset):,} steps on {batch.env}, {len(dataset.episodes)} "
        f"episodes.\nBehaviour: {dataset.provenance.behaviour}.\n"
        "Training uses only this batch. The environment is used only for evaluation.\n"
    )
    trainings = [Training(config, schedule, batch) for config in configs]
    finish(trainings, directory)
    runs = [Run.open(directory / directory_name(training)) for training in trainings]
    print_table(dataset, runs)
    picture = directory / "learning_curves.png"
    learning_curves(runs, picture)
    print(f"learning curves  {picture}\nbatch            {path}")
    for run in runs:
        print(f"{run.config.algorithm_name:<16} {run.directory}")


def finish(jobs: Sequence[Job], directory: Path) -> None:
    """Runs jobs whose needs are done, all at the same time."""
    outcome = run_jobs(jobs, directory, SharedCores(len(jobs)), screen=sys.stderr)
    for name, line in outcome.failed.items():
        log = directory / name / "output.txt"
        raise BCQError(f"{name} failed; the last line of {log} is: {line}")


def print_table(dataset: Dataset, runs: Sequence[Run]) -> None:
    """Returns of the batch, of each evaluation and of the last three together."""
    evaluations = [returns_by_step(run) for run in runs]
    names = [run.config.algorithm_name.upper() for run in runs]
    print("\n" + f"{'return per episode ± std':<28}" + "".join(f"{n:>16}" for n in names))
    steps = sorted({step for returns in evaluations for step in returns})
    for step in steps:
        cells = "".join(cell(returns.get(step, [])) for returns in evaluations)
        print(f"{f'{step:,} updates':<28}{cells}")
    last = steps[-3:]
    cells = "".join(cell([r for s in last for r in each.get(s, [])]) for each in evaluations)
    print(f"{f'last {len(last)} evaluations':<28}{cells}")
    print(f"{'the batch':<28}{cell(dataset.episode_returns)}\n")


def cell(returns: Sequence[float] | np.ndarray) -> str:
    """Mean and standard deviation; a diverged run has no more evaluations."""
    text = f"{np.mean(returns):.0f} ± {np.std(returns):.0f}" if len(returns) else "diverged"
    return f"{text:>16}"
