"""Fitted Q evaluation: the value of a policy, from logged episodes alone (Le et al. 2019).

A network learns Q of the policy by temporal differences: the target of a logged step is its reward
plus the discounted value of the policy's own action at the next observation. Several networks learn
at once, each from episodes drawn with replacement; their spread is the uncertainty of the value.
"""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from bcq.algorithms.learning import Metrics, Trainable, adam, track, values_of
from bcq.algorithms.networks import MLP
from bcq.system import interruption
from bcq.system.progress import Progress

CHUNK = 100  # updates in one call of compiled code
LONGEST = 12  # periods; a fit that has not settled by then is reported as such
LOOKS = 10  # at the estimate, in a period; the mean of a period is less noisy than one look
SETTLED = 0.01  # largest change from one period to the next, as a share of the estimate
AHEAD = 1 / (math.e - 1)  # what is left of the way, as a share of the last period's
AMONG_FITS = 0.1  # or as a share of the standard deviation among the fits, if that is larger
BLOCK = 20_000  # pairs that are valued in one call


@dataclass(frozen=True, kw_only=True)
class FitSettings:
    """How the values of a policy are fitted."""

    fits: int = 8  # each on other episodes; their spread gives the intervals
    period: int = 2_000  # updates in which an estimate covers 63% of its way (see `target_rate`)
    batch_size: int = 128
    learning_rate: float = 1e-3
    hidden_sizes: tuple[int, ...] = (128, 128)
    widening: float = 3.0  # of the intervals: networks have errors in common, which no spread shows


class LoggedSteps(NamedTuple):
    """Logged steps and what the policy would do after them, on the scale of the networks.

    Values are those of the rewards times (1 - discount), so that they are as large as rewards.
    """

    observations: Array  # (rows, observation_size)
    actions: Array  # (rows, action_size), or (rows,) integers; those logged
    rewards: Array  # (rows,), times (1 - discount)
    next_observations: Array
    next_actions: Array  # (rows, draws, action_size), or (rows, draws); those of the policy
    terminated: Array  # (rows,)
    lowest: Array  # the least that a value can be
    highest: Array


PER_ROW = LoggedSteps._fields[:-2]


class Starts(NamedTuple):
    """The first observation of each episode, and what the policy would do there."""

    observations: Array  # (episodes, observation_size)
    actions: Array  # (episodes, draws, ...)


class Resample(NamedTuple):
    """The episodes that each fit learns from, drawn with replacement."""

    rows: Array  # (fits, longest): the rows of these episodes; only the first `lengths` are used
    lengths: Array  # (fits,)


class Evaluator(eqx.Module):
    """Q(s, a): one output per choice, or the action as an input."""

    network: MLP

    def __call__(self, observations: Array, actions: Array) -> Array:
        """The value of each pair; leading axes broadcast."""
        if jnp.issubdtype(actions.dtype, jnp.integer):
            return values_of(self.network, observations, actions)
        return self.network(observations, actions)[..., 0]

    def of_policy(self, observations: Array, actions: Array) -> Array:
        """The mean value of several actions in each state, (rows,)."""
        return self(observations[:, None], actions).mean(axis=1)


class Fit(eqx.Module):
    """A network that learns the values, and its slow copy, from which they are read."""

    evaluator: Trainable[Evaluator]
    target: Evaluator

    def update(self, steps: LoggedSteps, discount: float, rate: float) -> "Fit":
        """One step towards the targets of a minibatch."""
        target = fitted_target(
            steps,
            self.target.of_policy(steps.next_observations, steps.next_actions),
            discount,
        )

        def loss(evaluator: Evaluator) -> tuple[Array, Metrics]:
            values = evaluator(steps.observations, steps.actions)
            return ((values - target) ** 2).mean(), {}

        evaluator, _ = self.evaluator.descend(loss)
        return Fit(evaluator, track(self.target, evaluator.model, rate))


def fitted_target(steps: LoggedSteps, next_values: Array, discount: float) -> Array:
    """Reward plus discounted next value, or alone at terminals; time limits bootstrap.

    It is clipped to what the rewards allow.
    """
    following = jnp.where(steps.terminated, 0.0, next_values)
    return jnp.clip(steps.rewards + discount * following, steps.lowest, steps.highest)


def value_bounds(rewards: NDArray[np.float64], discount: float) -> tuple[float, float]:
    """The least and the largest possible value; an episode has a step, and may end after any."""
    low, high = float(rewards.min()), float(rewards.max())
    return min(low, low / (1 - discount)), max(high, high / (1 - discount))


def target_rate(discount: float, period: int) -> float:
    """The rate at which the slow copy follows.

    After t updates an estimate has covered 1 - exp(-rate (1 - discount) t) of its way, so the rate
    depends on the horizon. With the 0.005 of the algorithms, 15,000 updates would cover 53%.
    """
    return min(0.5, 1 / (period * (1 - discount)))


def resample(
    spans: NDArray[np.int64], fits: int, random: np.random.Generator
) -> tuple[Resample, NDArray[np.int64]]:
    """Draws as many episodes as there are for each fit; also returns how often it drew each."""
    episodes = len(spans)
    drawn = np.sort(random.integers(episodes, size=(fits, episodes)), axis=1)
    counts = np.stack([np.bincount(row, minlength=episodes) for row in drawn])
    rows = [np.concatenate([np.arange(*spans[one]) for one in row]) for row in drawn]
    longest = max(map(len, rows))
    padded = np.stack([np.resize(row, longest) for row in rows]).astype(np.int32)
    lengths = jnp.array([len(row) for row in rows], jnp.int32)
    return Resample(jnp.asarray(padded), lengths), counts


@partial(jax.jit, static_argnums=(0, 1, 2))
def create(settings: FitSettings, inputs: int, outputs: int, key: Array) -> Fit:
    """New networks, one for each fit."""

    def one(key: Array) -> Fit:
        evaluator = Evaluator(MLP(inputs, settings.hidden_sizes, outputs, key))
        last = evaluator.network.layers[-1]  # values start at 0: random ones take long to forget
        evaluator = eqx.tree_at(
            lambda one: one.network.layers[-1], evaluator, jax.tree.map(jnp.zeros_like, last)
        )
        return Fit(Trainable(evaluator, adam(settings.learning_rate)), evaluator)

    return jax.vmap(one)(jax.random.split(key, settings.fits))


@partial(jax.jit, static_argnums=7)
def update_many(
    fit: Fit,
    steps: LoggedSteps,
    resampled: Resample,
    discount: float,
    rate: float,
    key: Array,
    start: int,
    batch_size: int,
) -> Fit:
    """The networks after a chunk of updates, each on minibatches of its own episodes."""

    def of_one(fit: Fit, rows: Array, length: Array, key: Array) -> Fit:
        indices = rows[jax.random.randint(key, (batch_size,), 0, length)]
        drawn = {name: getattr(steps, name)[indices] for name in PER_ROW}
        return fit.update(steps._replace(**drawn), discount, rate)

    def body(step: int, fit: Fit) -> Fit:
        keys = jax.random.split(jax.random.fold_in(key, step), len(resampled.lengths))
        return jax.vmap(of_one)(fit, resampled.rows, resampled.lengths, keys)

    return jax.lax.fori_loop(start, start + CHUNK, body, fit)


@jax.jit
def values_of_pairs(fit: Fit, observations: Array, actions: Array) -> Array:
    """The mean value of several actions in each state, (fits, rows)."""
    return jax.vmap(lambda one: one.target.of_policy(observations, actions))(fit)


class Fitted(NamedTuple):
    """Networks that have learned the values, and how they came to them."""

    fit: Fit
    at_starts: NDArray[np.float64]  # (fits, episodes): where the values tend to
    curve: list[tuple[int, float]]  # updates, and the mean value at the starts
    settled: bool

    def values(self, observations: Array, actions: Array) -> NDArray[np.float64]:
        """The mean value of several actions in each state by each fit, (fits, rows)."""
        parts = [
            values_of_pairs(self.fit, observations[i : i + BLOCK], actions[i : i + BLOCK])
            for i in range(0, len(observations), BLOCK)
        ]
        return np.concatenate([np.asarray(part, np.float64) for part in parts], axis=1)


def fit_values(
    steps: LoggedSteps,
    starts: Starts,
    resampled: Resample,
    *,
    discount: float,
    outputs: int,
    settings: FitSettings,
    seed: int,
    what: str,
) -> Fitted:
    """Fits until the estimate has settled, or for the longest time."""
    creation, updates = jax.random.split(jax.random.key(seed))
    inputs = steps.observations.shape[1] + sum(steps.actions.shape[1:])
    fit = create(settings, inputs, outputs, creation)
    rate, limit = target_rate(discount, settings.period), LONGEST * settings.period
    curve: list[tuple[int, float]] = []
    looks: deque[NDArray[np.float64]] = deque(maxlen=2 * LOOKS)
    settled = False
    with Progress(what, limit, "update") as bar:
        for step in range(CHUNK, limit + 1, CHUNK):
            now = (discount, rate, updates, step - CHUNK)
            fit = update_many(fit, steps, resampled, *now, settings.batch_size)
            bar.advance(CHUNK)
            interruption.check()
            if step % (settings.period // LOOKS) == 0:
                looks.append(np.asarray(values_of_pairs(fit, *starts), np.float64))
                curve.append((step, float(looks[-1].mean())))
                spread = float(looks[-1].mean(axis=1).std(ddof=1))
                if settled := has_settled([value for _, value in curve], spread):
                    break
    values = limit_of(np.array(looks)).clip(float(steps.lowest), float(steps.highest))
    return Fitted(fit, values, curve, settled)


def limit_of(looks: NDArray[np.float64]) -> NDArray[np.float64]:
    """Where values tend to that covered 63% of what was left of their way in the last period."""
    before, last = looks[-2 * LOOKS : -LOOKS].mean(axis=0), looks[-LOOKS:].mean(axis=0)
    return np.asarray(last + (last - before) * AHEAD)


def has_settled(curve: Sequence[float], spread: float) -> bool:
    """Whether the mean of the last period is that of the period before, or nearly."""
    if len(curve) < 2 * LOOKS:
        return False
    before, last = (float(np.mean(part)) for part in (curve[-2 * LOOKS : -LOOKS], curve[-LOOKS:]))
    return abs(last - before) <= max(SETTLED * abs(last), AMONG_FITS * spread)
