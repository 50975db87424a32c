"""What is measured of a run's last policy and critics, besides returns and values."""

import jax
import numpy as np
from jax import Array

from bcq.algorithms.ensemble import Ensemble, uncertainty
from bcq.data.columns import Floats
from bcq.data.dataset import Dataset
from bcq.system.seeds import Role, derive
from bcq.training.policy import Policy

STATES = 1_000  # of the batch that are used


def final_measures(policy: Policy, dataset: Dataset, *, seed: int) -> dict[str, float | None]:
    """The distance from the logged actions, and how well an ensemble detects unseen actions."""
    random = np.random.default_rng(derive(seed, Role.VALUES))
    rows = random.choice(len(dataset), min(STATES, len(dataset)), replace=False)
    observations = dataset.observations[rows]
    logged = dataset.bounds.normalise(dataset.actions[rows])
    taken = dataset.bounds.normalise(policy.act(observations, seed=derive(seed, Role.VALUES)))
    others = random.uniform(-1, 1, logged.shape).astype(np.float32)
    return {
        "action_distance": float(np.sqrt(((taken - logged) ** 2).mean(dtype=float))),
        "doubt_in_unseen_actions": (
            share_more_uncertain(policy.learner, policy.scaled(observations), others, logged)
            if isinstance(policy.learner, Ensemble)
            else None
        ),
    }


def share_more_uncertain(
    learner: Ensemble, observations: Floats, others: Floats, logged: Floats
) -> float:
    """How often an ensemble is less certain of a random action than of the logged action.

    1 for a perfect estimate of the uncertainty, 0.5 for a useless one.
    """
    unseen, seen = (np.asarray(spread(learner, observations, a)) for a in (others, logged))
    return float((unseen > seen).mean())


@jax.jit
def spread(learner: Ensemble, observations: Array, actions: Array) -> Array:
    """The standard deviation of the critics."""
    return uncertainty(learner.critics.model, observations, actions)
