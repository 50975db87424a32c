"""A policy: observations in, actions on the scale of the environment out."""

from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import jax
import numpy as np
from jax import Array
from numpy.typing import ArrayLike, NDArray

from bcq.algorithms.learning import Acting, Choosing, ValueFunction, without_optimizers
from bcq.data.bounds import TaskSpec
from bcq.data.columns import NUMBERS, Flags, Floats
from bcq.system.errors import InputError

NO_VALUE = "this algorithm has no value function"
WORTH_HALVING = 32  # rows; below this, compiling again costs more than acting for unused rows


@dataclass(frozen=True)
class Policy:
    """What a learner has learned. Its actions have no exploration noise."""

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
        permitted: ArrayLike | None = None,
        fallback: ArrayLike | None = None,
    ) -> Floats:
        """One action per row; if the actions are choices, their numbers (see `choose`).

        A policy that samples candidates draws them from (seed, step, row). So the same call gives
        the same actions, and the action of a row does not depend on other rows; their number can
        change the rounding. `rows` are the numbers of the rows, if not 0, 1, 2, ... If the number
        of rows shrinks from call to call, `capacity` is the largest number: code is then compiled
        only for it and for its halves.
        An observation that is not finite is an error, unless there is a `fallback`: the action to
        take in such a row. `permitted` says which choices there are in each row, if not all.
        """
        with np.errstate(over="ignore"):  # what becomes infinite is refused below
            observations = np.asarray(observations, np.float32)
        if observations.ndim != 2 or observations.shape[1] != self.task.observation_size:
            past = "" if self.task.layout.past is None else ", with past steps; see bcq.History"
            raise InputError(
                f"observations have shape {observations.shape}; "
                f"this policy needs (rows, {self.task.observation_size}){past}"
            )
        broken = ~np.isfinite(observations).all(axis=1)
        if broken.any() and fallback is None:
            raise InputError(
                f"observations, row {int(np.argmax(broken))}: a number is not finite; "
                "give a fallback action, or leave such rows out"
            )
        count = len(observations)
        numbers = np.arange(count) if rows is None else np.asarray(rows)
        size = halved(capacity or count, count)
        actions = act_in_rows(
            self.models,
            np.resize(self.scaled(observations), (size, observations.shape[1])),
            np.resize(numbers, size),
            seed,
            step,
            None if permitted is None else self.require_masks(permitted, count, size),
        )
        chosen = self.task.bounds.denormalise(np.asarray(actions)[:count])
        if fallback is not None:
            chosen[broken] = self.require_action(fallback)
        return chosen

    def choose(self, observations: ArrayLike, **options: Any) -> list[str]:
        """The names of the choices, one per row; the options are those of `act`."""
        if (names := self.task.choices) is None:
            raise InputError("the actions of this policy are numbers, not choices; use act")
        return [names[int(number)] for number in self.act(observations, **options)[:, 0]]

    def require_masks(self, permitted: ArrayLike, rows: int, size: int) -> Flags:
        """Refuses what is not one flag for each row and choice, one of them set."""
        masks, choices = np.asarray(permitted), self.task.choices
        if choices is None or masks.shape != (rows, len(choices)):
            needed = "no choices" if choices is None else (rows, len(choices))
            raise InputError(f"permitted: has shape {masks.shape}, but there are {needed}")
        masks = masks.astype(bool)
        if not masks.any(axis=1).all():
            row = int(np.argmin(masks.any(axis=1)))
            raise InputError(f"permitted, row {row}: no choice is permitted")
        return np.resize(masks, (size, len(choices)))

    def require_action(self, action: ArrayLike) -> Floats:
        """Refuses what is not one action within the bounds, or the name of a choice."""
        bounds, choices = self.task.bounds, self.task.choices
        if choices is not None and action in choices:
            action = [choices.index(str(action))]
        found = np.asarray(action, np.float32) if choices is None else whole(action)
        if found.shape != bounds.low.shape or not np.all(
            (bounds.low <= found) & (found <= bounds.high)
        ):
            raise InputError(
                f"fallback: {found.tolist()} is not an action between {bounds.low.tolist()} and "
                f"{bounds.high.tolist()}"
            )
        return found

    def value(self, observations: Floats, actions: Floats) -> NDArray[np.float64]:
        """The learner's estimate of each state-action pair, in the units of the rewards."""
        if not isinstance(self.learner, ValueFunction):
            raise InputError(NO_VALUE)
        scaled, normalised = self.scaled(observations), self.task.bounds.normalise(actions)
        values = np.asarray(value_of_pairs(self.learner, scaled, normalised), np.float64)
        return values if self.task.scaling is None else self.task.scaling.values(values)

    def scaled(self, observations: Floats) -> Floats:
        """Observations as the learner sees them."""
        scaling = self.task.scaling
        return observations if scaling is None else scaling.observations(observations)


def whole(action: ArrayLike) -> Floats:
    """The number of a choice; NaN, which is no action, if it is not one."""
    found = np.asarray(action)
    numeric = found.dtype.kind in NUMBERS and (found % 1 == 0).all()
    return found.astype(np.float32) if numeric else np.full(1, np.nan, np.float32)


def halved(capacity: int, count: int) -> int:
    """The capacity, halved as long as the count fits and compiling again is worth it."""
    while 2 * count <= capacity and capacity > WORTH_HALVING:
        capacity = -(-capacity // 2)
    return capacity


@jax.jit
def value_of_pairs(learner: ValueFunction, observations: Array, actions: Array) -> Array:
    """Q(s, a) on the scale of the learner."""
    return learner.value(observations, actions)


@jax.jit
def act_in_rows(
    learner: Acting,
    observations: Array,
    rows: Array,
    seed: int,
    step: int,
    permitted: Array | None = None,
) -> Array:
    """Actions on the learner's scale; row i draws from (seed, step, i)."""
    key = jax.random.fold_in(jax.random.key(seed), step)
    keys = jax.vmap(partial(jax.random.fold_in, key))(rows)
    if permitted is None:
        return learner.act(observations, keys)
    assert isinstance(learner, Choosing)
    return learner.act(observations, keys, permitted)
