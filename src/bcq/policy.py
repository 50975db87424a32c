"""A learner at work: observations in, actions on the environment's own scale out."""

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import ArrayLike

from bcq.dataset import Floats, TaskSpec
from bcq.errors import InputError
from bcq.learning import Algorithm


@dataclass(frozen=True)
class Policy:
    """What was learned, ready to act. Nothing is added to the actions: no exploration."""

    learner: Algorithm
    task: TaskSpec

    def act(self, observations: ArrayLike, *, seed: int = 0, step: int = 0) -> Floats:
        """One action a row.

        A policy that samples candidates draws them from (seed, step, row): the same call gives the
        same actions, and a row's action does not depend on the rows beside it.
        """
        observations = np.asarray(observations, np.float32)
        if observations.ndim != 2 or observations.shape[1] != self.task.observation_size:
            raise InputError(
                f"observations have shape {observations.shape}; "
                f"this policy takes (rows, {self.task.observation_size})"
            )
        actions = act_in_rows(self.learner, observations, seed, step)
        return self.task.bounds.denormalise(np.asarray(actions))


@jax.jit
def act_in_rows(learner: Algorithm, observations: Array, seed: int, step: int) -> Array:
    """Actions on the [-1, 1] scale, row i drawing from (seed, step, i)."""
    key = jax.random.fold_in(jax.random.key(seed), step)
    keys = jax.vmap(partial(jax.random.fold_in, key))(jnp.arange(len(observations)))
    return learner.act(observations, keys)
