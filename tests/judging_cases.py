"""Logs of small MDPs whose values are known, and policies for them."""

from dataclasses import dataclass

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from bcq.data.bounds import Choices
from bcq.data.columns import Provenance
from bcq.data.dataset import Dataset
from bcq.training.policy import Policy

STATES, CHOICES, DISCOUNT = 4, 2, 0.9


class TablePolicy(eqx.Module):
    """A choice for each state; states are one-hot."""

    scores: Array

    def act(self, observations: Array, keys: Array, permitted: Array | None = None) -> Array:
        del keys, permitted
        return (observations @ self.scores).argmax(axis=-1)


@dataclass(frozen=True)
class MDP:
    """Chances of the next state (the rest is a terminal), and rewards."""

    chances: NDArray[np.float64]  # (states, choices, states)
    rewards: NDArray[np.float64]  # (states, choices)

    def values(self, policy: NDArray[np.float64]) -> NDArray[np.float64]:
        """Of states, with chances of choices (states, choices), by the linear equations."""
        step = np.einsum("sc,scn->sn", policy, self.chances)
        rewards = (policy * self.rewards).sum(axis=1)
        return np.linalg.solve(np.eye(len(rewards)) - DISCOUNT * step, rewards)


def random_mdp(seed: int) -> MDP:
    random = np.random.default_rng(seed)
    chances = 0.95 * random.dirichlet(np.ones(STATES), (STATES, CHOICES))
    return MDP(chances, random.normal(size=(STATES, CHOICES)))


def log_of(
    mdp: MDP, episodes: int, *, seed: int, length: int = 20, propensities: bool = False
) -> Dataset:
    """Episodes of uniformly random choices from every state in turn, cut after some steps."""
    random = np.random.default_rng(seed)
    rows: list[tuple[int, int, float, int, bool, bool]] = []
    for episode in range(episodes):
        state = episode % STATES
        for time in range(length):
            choice = int(random.integers(CHOICES))
            chances = mdp.chances[state, choice]
            following = int(random.choice(STATES + 1, p=np.append(chances, 1 - chances.sum())))
            ended = following == STATES
            reward = float(mdp.rewards[state, choice])
            rows.append((state, choice, reward, following % STATES, ended, time == length - 1))
            if ended:
                break
            state = following
    states, choices, rewards, after, terminated, last = map(np.array, zip(*rows, strict=True))
    one_hot = np.eye(STATES, dtype=np.float32)
    return Dataset(
        observations=one_hot[states],
        actions=choices.astype(np.float32)[:, None],
        rewards=rewards.astype(np.float32),
        next_observations=one_hot[after],
        terminated=terminated,
        truncated=last & ~terminated,
        bounds=Choices.numbered(CHOICES),
        provenance=Provenance(),
        propensities=np.full(len(rows), 1 / CHOICES, np.float32) if propensities else None,
    )


def table_policy(choices: NDArray[np.int64], dataset: Dataset) -> Policy:
    scores = jnp.asarray(np.eye(CHOICES, dtype=np.float32)[choices])
    return Policy(TablePolicy(scores), dataset.task)
