"""Where BCQ's perturbation moves the actions of each joint, in the states of its batch.

    python benchmarks/moves.py RUN --data BATCH.hdf5 [--states 1000]

All numbers are in units of Phi: a mean near 0 is a move to both sides, 1 a steady one.
"""

import argparse
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from results import record

from bcq.algorithms.bcq import BCQ, propose
from bcq.runs.configuration import LoggedBatch
from bcq.runs.directory import Run
from bcq.simulation.batches import load

NEAR = 0.95  # of Phi, as `perturbations_near_limit` in the metrics


def main() -> None:
    """Prints and keeps the moves of each joint."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("run", type=Path)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--states", type=int, default=1_000)
    given = parser.parse_args()
    run, batch = Run.open(given.run), load(given.data)
    policy = run.policy()
    learner = policy.learner
    if not isinstance(learner, BCQ) or learner.config.max_perturbation == 0:
        parser.error(f"{run.directory} is no run of BCQ with a perturbation")
    logged = run.config.dataset
    if not isinstance(logged, LoggedBatch) or logged.fingerprint != batch.fingerprint:
        parser.error(f"{given.data} is not the batch of {run.directory}")
    rows = np.random.default_rng(0).choice(len(batch), given.states)
    noise = jax.random.normal(jax.random.key(0), (given.states, *learner.noise_shape))
    observations = jnp.asarray(policy.scaled(batch.observations[rows]))
    _, residuals = propose(learner.vae.model, learner.perturbation.model, observations, noise)
    moves = np.asarray(residuals) / learner.config.max_perturbation
    found = {
        "mean move": moves.mean(axis=(0, 1)).round(3).tolist(),
        "mean size": np.abs(moves).mean(axis=(0, 1)).round(3).tolist(),
        "share near Phi": (np.abs(moves) > NEAR).mean(axis=(0, 1)).round(3).tolist(),
    }
    print(f"{run.directory.name}, {run.checkpoint_step():,} updates, each joint")
    for name, joints in found.items():
        print(f"  {name:<16}" + "".join(f"{one:8.3f}" for one in joints))
    record(f"moves, {run.directory.name}", found)


if __name__ == "__main__":
    main()
