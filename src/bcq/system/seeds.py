"""Separate streams of random numbers from one seed.

An agent, its batch, the learner and its evaluations may all be given the same seed. The paper's
second agent is independent of the first (supplement F), so each role derives its own seed from it.
A learner uses the seed itself.
"""

from enum import IntEnum

import numpy as np


class Role(IntEnum):
    """Users of random numbers besides the learner. Results depend on the values: keep them."""

    AGENT = 1  # a behavioural agent: first weights, minibatches, episodes, exploration
    BATCH = 2  # a fixed behaviour that collects: episodes, exploration
    EVALUATION = 3  # episodes, and the policy's own draws in them
    VALUES = 4  # which pairs are measured, and the policy's draws after them
    CHOICE = 5  # the new episodes on which checkpoints of an agent are compared
    JUDGE = 6  # fits of values: episodes drawn, networks, minibatches, the policy's draws


def derive(seed: int, role: Role) -> int:
    """The seed of a role, derived from a given seed; below 2**31 like every seed."""
    return as_seed(np.random.SeedSequence(seed, spawn_key=(role,)))


def reset_seed(seed: int, episode: int) -> int:
    """The seed of the start of an episode."""
    return as_seed(np.random.SeedSequence((seed, episode)))


def exploration(seed: int, episode: int) -> np.random.Generator:
    """Random numbers for the exploration in an episode, independent of those of its start."""
    return np.random.default_rng((seed, episode, 1))


def as_seed(sequence: np.random.SeedSequence) -> int:
    """A seed sequence as one number."""
    return int(sequence.generate_state(1)[0] >> 1)
