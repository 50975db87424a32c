"""One seed, many streams of random numbers, none of them shared.

An agent, the batch that it leaves, the learner and its evaluations may all be given the same
number. The paper's second agent is independent of the first (supplement F), so each role turns
the number into a seed of its own. A learner draws from the number itself.
"""

from enum import IntEnum

import numpy as np


class Role(IntEnum):
    """Who draws, besides the learner. The numbers are part of every result: never change them."""

    AGENT = 1  # a behavioural agent: first weights, minibatches, episodes, exploration
    BATCH = 2  # a fixed behaviour that collects: episodes, exploration
    EVALUATION = 3  # episodes, and the policy's own draws in them
    VALUES = 4  # which pairs are measured, and the policy's draws behind them
    CHOICE = 5  # the fresh episodes that an agent's checkpoints are compared on


def derive(seed: int, role: Role) -> int:
    """The seed that a role makes of a given one, below 2**31 as seeds are throughout."""
    return as_seed(np.random.SeedSequence(seed, spawn_key=(role,)))


def reset_seed(seed: int, episode: int) -> int:
    """The seed an episode starts from."""
    return as_seed(np.random.SeedSequence((seed, episode)))


def exploration(seed: int, episode: int) -> np.random.Generator:
    """What an episode's exploration draws from: not the numbers that its start was drawn from."""
    return np.random.default_rng((seed, episode, 1))


def as_seed(sequence: np.random.SeedSequence) -> int:
    """A sequence of seeds as one number."""
    return int(sequence.generate_state(1)[0] >> 1)
