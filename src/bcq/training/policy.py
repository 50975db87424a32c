"""A learner at work: observations in, actions on the environment's own scale out."""

from dataclasses import dataclass
from functools import cached_property, partial

import jax
import numpy as np
from jax import Array
from numpy.typing import ArrayLike

from bcq.algorithms.learning import Acting, without_optimizers
from bcq.data.bounds import TaskSpec
from bcq.data.columns import Floats
from bcq.system.errors import InputError

WORTH_HALVING = 32  # rows; below, compiling once more costs more than acting for idle rows


@dataclass(frozen=True)
class Policy:
    """What was learned, ready to act. Nothing is added to the actions: no exploration."""

    learner: Acting
    task: TaskSpec

    @cached_property
    def models(self) -> Acting:
        """The learner without the state of its optimizers.

        Acting does not read it, and each call of compiled code takes time for each array.
        """
        return without_optimizers(self.learner)

    def act(
        self,
        observations: ArrayLike,
        *,
        seed: int = 0,
        step: int = 0,
        rows: ArrayLike | None = None,
        capacity: int | None = None,
    ) -> Floats:
        """One action a row.

        A policy that samples candidates draws them from (seed, step, row): the same call gives the
        same actions, and a row's action does not depend on the rows beside it. `rows` are the
        numbers of the rows, if not 0, 1, 2, ... Where the number of rows shrinks from call to call,
        `capacity` is the largest: code is then compiled for it and its halves only.
        """
        observations = np.asarray(observations, np.float32)
        if observations.ndim != 2 or observations.shape[1] != self.task.observation_size:
            raise InputError(
                f"observations have shape {observations.shape}; "
                f"this policy needs (rows, {self.task.observation_size})"
            )
        count = len(observations)
        numbers = np.arange(count) if rows is None else np.asarray(rows)
        size = halved(capacity or count, count)
        actions = act_in_rows(
            self.models,
            np.resize(observations, (size, observations.shape[1])),
            np.resize(numbers, size),
            seed,
            step,
        )
        return self.task.bounds.denormalise(np.asarray(actions)[:count])


def halved(capacity: int, count: int) -> int:
    """The smallest size that holds the count, halving the capacity while it is worth compiling."""
    while 2 * count <= capacity and capacity > WORTH_HALVING:
        capacity = -(-capacity // 2)
    return capacity


@jax.jit
def act_in_rows(learner: Acting, observations: Array, rows: Array, seed: int, step: int) -> Array:
    """Actions on the [-1, 1] scale, row i drawing from (seed, step, i)."""
    key = jax.random.fold_in(jax.random.key(seed), step)
    keys = jax.vmap(partial(jax.random.fold_in, key))(rows)
    return learner.act(observations, keys)
