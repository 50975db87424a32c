"""Demonstrations that need nothing but this package."""

from pathlib import Path

import numpy as np

from bcq.algorithms import BCQConfig
from bcq.collection import collect_random
from bcq.files import make_directory
from bcq.formats import load, save
from bcq.plots import learning_curve, returns_by_step
from bcq.training import Schedule, train_run

PENDULUM = "Pendulum-v1"


def pendulum(directory: Path, *, steps: int, seed: int) -> None:
    """BCQ swings up a pendulum after watching 5,000 random actions (supplement D.3)."""
    schedule = Schedule(
        steps=steps, seed=seed, env=PENDULUM, evaluate_every=1_000, checkpoint_every=1_000
    )
    make_directory(directory)
    batch = directory / "batch.hdf5"
    if not batch.exists():
        save(collect_random(PENDULUM, transitions=5_000, seed=seed, progress=True), batch)
    dataset = load(batch)
    print(
        f"The batch: {len(dataset):,} steps of uniformly random actions on {PENDULUM}, "
        f"{len(dataset.episodes)} episodes.\n"
        "BCQ learns from it alone; the environment serves only to measure.\n"
    )
    run = train_run(directory / "run", BCQConfig(vae_l2=1e-3), schedule, dataset, resume=True)
    evaluations = returns_by_step(run)
    print(f"\n{'':>24}  {'return':>8}  {'± std':>6}")
    rows = [("the batch's episodes", list(dataset.episode_returns))]
    rows += [(f"BCQ, {step:,} updates", returns) for step, returns in evaluations.items()]
    for name, returns in rows:
        print(f"{name:>24}  {np.mean(returns):8.0f}  {np.std(returns):6.0f}")
    last = list(evaluations)[-3:]
    mean = np.mean([evaluations[step] for step in last])
    print(f"{f'mean of the last {len(last)}':>24}  {mean:8.0f}\n")
    picture = directory / "learning_curve.png"
    learning_curve(run, picture)
    print(f"learning curve  {picture}\nbatch           {batch}\nrun             {run.directory}")
