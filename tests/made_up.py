"""Learners of made-up numbers.

The numbers are NumPy's: what is not compiled with an update would be compiled operation by
operation, and the program that creates a learner takes longer to compile than its update.
"""

from functools import cache
from typing import Any

import jax
import numpy as np


def precision() -> Any:
    return jax.dtypes.canonicalize_dtype(float)


@cache
def shapes_of(config: Any, observation_size: int, action_size: int, _precision: Any) -> Any:
    """A learner without its numbers."""
    key = jax.random.key(0)
    return jax.eval_shape(lambda: config.create(observation_size, action_size, key))


def made_up(
    config: Any, observation_size: int, action_size: int, *, seed: int, scale: float
) -> Any:
    """A learner at its first update, every network with weights of its own.

    No network is another's copy then. With a scale of three, weights are three times as large as
    those of a fresh learner, and every clip and tanh has something to do.
    """
    random = np.random.default_rng(seed)

    def fill(path: Any, leaf: Any) -> np.ndarray:
        if "moments" in jax.tree_util.keystr(path):
            return np.zeros(leaf.shape, leaf.dtype)
        limit = scale * leaf.shape[0] ** -0.5
        return random.uniform(-limit, limit, leaf.shape).astype(leaf.dtype)

    shapes = shapes_of(config, observation_size, action_size, precision())
    return jax.tree_util.tree_map_with_path(fill, shapes)
