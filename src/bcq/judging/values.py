"""The values of a policy and of the behaviour, from the same logged episodes, with intervals."""

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray
from scipy import stats

from bcq.data.columns import Column, Flags, Floats
from bcq.data.dataset import Dataset
from bcq.data.scaling import Scaling
from bcq.judging.fitting import (
    FitSettings,
    Fitted,
    LoggedSteps,
    Resample,
    Starts,
    fit_values,
    resample,
    value_bounds,
)
from bcq.system import interruption
from bcq.system.errors import InputError
from bcq.system.progress import Progress
from bcq.training.policy import Policy

LARGEST_DISCOUNT = 0.999  # beyond it, no target network is fast enough (see `target_rate`)
LEAST_EPISODES = 5  # to draw from with replacement
DRAWS = 2  # actions of a policy that draws them, in each state
ROWS_AT_ONCE = 4_096  # for which a policy acts in one call
TAIL = 0.01  # share of the value beyond the cut ends of episodes that needs no estimate
LEVEL = 0.95
NEAR_LIMIT, AT_LIMIT = 0.9, 1e-3  # shares of the range of possible values

Numbers = NDArray[np.float64]


class Estimate(NamedTuple):
    """A number with its 95% interval."""

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, value: float, fits: Numbers, widening: float = 1.0) -> "Estimate":
        """Student's interval around a value, from fits on episodes drawn with replacement."""
        reach = widening * stats.t.ppf((1 + LEVEL) / 2, len(fits) - 1) * fits.std(ddof=1)
        return cls(value, float(value - reach), float(value + reach))

    def within(self, low: float, high: float) -> "Estimate":
        """The same, without what is not possible."""
        return Estimate(self.value, max(self.low, low), min(self.high, high))


@dataclass(frozen=True)
class Comparison:
    """Discounted values from the first states of the episodes, in the units of the rewards."""

    policy: Estimate
    behaviour: Estimate
    difference: Estimate
    fits: Numbers  # (fits,): the policy's value by each
    counts: NDArray[np.int64]  # (fits, episodes): how often each learned from each episode
    best_episode: float  # the largest discounted return of a logged episode
    settled: bool  # whether the fits came to an end
    curve: list[tuple[int, float]]  # updates of the fits, and their mean estimate
    at_limit: float  # share of the values at the largest that the rewards allow
    tail: float  # share of the behaviour's value that had to be estimated, beyond cut ends
    widening: float  # of the intervals, beyond the spread of the fits
    fitted: "FittedPolicy"

    def above(self, other: "Comparison") -> Estimate:
        """How much better this policy is than another that was judged by the same draws."""
        difference = self.policy.value - other.policy.value
        return Estimate.of(difference, self.fits - other.fits, self.widening)

    @property
    def sure(self) -> float:
        """The lower end of the policy's interval by the spread of the fits alone."""
        return Estimate.of(self.policy.value, self.fits).low


@dataclass(frozen=True)
class FittedPolicy:
    """Fitted values of a policy, in the units of the rewards."""

    log: "Log"
    actions: "Proposed"
    result: Fitted

    def values(self, observations: Floats, actions: Column) -> Numbers:
        """The mean value of several actions in each state by each fit, (fits, rows)."""
        scaled = jnp.asarray(self.log.scaling.observations(observations))
        return self.log.unit * self.result.values(scaled, jnp.asarray(actions))


@dataclass(frozen=True)
class Log:
    """Logged episodes on the scale of the fits: observations standardised, values like rewards."""

    dataset: Dataset
    discount: float

    def __post_init__(self) -> None:
        if not 0 <= self.discount <= LARGEST_DISCOUNT:
            raise InputError(
                f"discount: {self.discount} is not between 0 and {LARGEST_DISCOUNT:g}, up to which "
                "values can be fitted",
                option="judged_discount",
            )
        if (count := len(self.dataset.episodes)) < LEAST_EPISODES:
            raise InputError(
                f"judging needs at least {LEAST_EPISODES} episodes to judge by; there are {count}"
            )
        if np.ptp(self.dataset.rewards) == 0 and not self.dataset.terminated.any():
            raise InputError(
                "judging needs rewards that differ: here every step has the same reward and no "
                "episode terminates, so all policies have the same value"
            )

    @cached_property
    def scaling(self) -> Scaling:
        """That of these episodes, whatever the policy was trained with."""
        dataset = self.dataset
        return Scaling.of(dataset.observations, dataset.rewards, dataset.task.unscaled)

    @property
    def unit(self) -> float:
        """What values on the scale of the fits are multiplied by."""
        return float(self.scaling.reward_spread) / (1 - self.discount)

    def resampled(self, settings: FitSettings, seed: int) -> tuple[Resample, NDArray[np.int64]]:
        """The episodes of each fit, the same for every policy; and how often each is drawn."""
        return resample(self.dataset.episodes, settings.fits, np.random.default_rng(seed))

    def steps(self, actions: Column, next_actions: Column) -> LoggedSteps:
        """What fits learn from; without actions, they learn the values of states."""
        dataset, unit = self.dataset, self.unit
        rewards = dataset.rewards.astype(np.float64)
        low, high = value_bounds(rewards, self.discount)
        return LoggedSteps(
            observations=jnp.asarray(self.scaling.observations(dataset.observations)),
            actions=jnp.asarray(actions),
            rewards=jnp.asarray(rewards / unit, jnp.float32),
            next_observations=jnp.asarray(self.scaling.observations(dataset.next_observations)),
            next_actions=jnp.asarray(next_actions),
            terminated=jnp.asarray(dataset.terminated),
            lowest=jnp.float32(low / unit),
            highest=jnp.float32(high / unit),
        )

    def starts(self, actions: Column) -> Starts:
        """The first observation of each episode, with actions."""
        first = self.dataset.observations[self.dataset.episodes[:, 0]]
        return Starts(jnp.asarray(self.scaling.observations(first)), jnp.asarray(actions))


class Proposed(NamedTuple):
    """What a policy would do, as its learner says it: (rows, draws, action_size), or numbers."""

    after: Column  # at the next observation of every row
    first: Column  # at the first observation of every episode

    @classmethod
    def by(cls, policy: Policy, dataset: Dataset, *, seed: int) -> "Proposed":
        """Asks the policy, once if it always says the same."""
        starts = dataset.episodes[:, 0]
        permitted, next_permitted = dataset.permitted, dataset.next_permitted
        few = dataset.next_observations[:ROWS_AT_ONCE]
        allowed = None if next_permitted is None else next_permitted[:ROWS_AT_ONCE]
        draws = 1 if always_same(policy, few, allowed, seed) else DRAWS
        total = draws * (len(dataset) + len(starts))
        with Progress("actions of the policy", total, "action", delay=2.0) as bar:
            return cls(
                propose(policy, dataset.next_observations, next_permitted, draws, seed, bar),
                propose(
                    policy,
                    dataset.observations[starts],
                    None if permitted is None else permitted[starts],
                    draws,
                    seed,
                    bar,
                    first=len(dataset),
                ),
            )


def always_same(policy: Policy, observations: Floats, permitted: Flags | None, seed: int) -> bool:
    """Whether a policy draws nothing."""
    one, other = (
        policy.act(observations, seed=seed, step=draw, permitted=permitted) for draw in range(2)
    )
    return bool(np.array_equal(one, other))


def propose(
    policy: Policy,
    observations: Floats,
    permitted: Flags | None,
    draws: int,
    seed: int,
    bar: Progress,
    *,
    first: int = 0,
) -> Column:
    """Actions on the scale of learners, (rows, draws, ...); rows are numbered from `first`."""
    found = []
    for start in range(0, len(observations), ROWS_AT_ONCE):
        rows = np.arange(start, min(start + ROWS_AT_ONCE, len(observations)))
        masks = None if permitted is None else permitted[rows]
        acted = [
            policy.act(
                observations[rows],
                seed=seed,
                step=draw,
                rows=first + rows,
                capacity=ROWS_AT_ONCE,
                permitted=masks,
            )
            for draw in range(draws)
        ]
        found.append(np.stack([policy.task.bounds.normalise(one) for one in acted], axis=1))
        bar.advance(draws * len(rows))
        interruption.check()
    return np.concatenate(found)


def compare(
    policy: Policy,
    dataset: Dataset,
    *,
    discount: float,
    seed: int = 0,
    settings: FitSettings | None = None,
) -> Comparison:
    """The values of a policy and of the behaviour on the same episodes."""
    settings = settings or FitSettings()
    log = Log(dataset, discount)
    resampled, counts = log.resampled(settings, seed)
    proposed = Proposed.by(policy, dataset, seed=seed)
    logged = dataset.bounds.normalise(dataset.actions)
    steps, starts = log.steps(logged, proposed.after), log.starts(proposed.first)
    fitted = fit_values(
        steps,
        starts,
        resampled,
        discount=discount,
        outputs=dataset.task.action_size if dataset.task.choices is not None else 1,
        settings=settings,
        seed=seed,
        what="fitting values",
    )
    values = log.unit * fitted.at_starts
    returns, tail, complete = completed_returns(log, settings, seed)
    shares = counts / len(dataset.episodes)
    of_policy = (shares * values).sum(axis=1)
    of_behaviour = (shares * returns).sum(axis=1)
    low, high = float(steps.lowest) * log.unit, float(steps.highest) * log.unit
    value, usual, best = float(values.mean()), float(returns.mean()), float(returns.max())
    estimate = Estimate.of(value, of_policy, settings.widening)
    behaviour = Estimate.of(usual, of_behaviour)
    difference = Estimate.of(value - usual, of_policy - of_behaviour, settings.widening)
    reached = max(best, float(np.median(dataset.rewards)) / (1 - discount))
    return Comparison(
        policy=estimate.within(low, high),
        behaviour=behaviour,
        difference=difference.within(low - behaviour.high, high - behaviour.low),
        fits=of_policy,
        counts=counts,
        best_episode=best,
        settled=fitted.settled and complete,
        curve=[(step, log.unit * value) for step, value in fitted.curve],
        at_limit=share_at_limit(values, reached, low, high),
        tail=tail,
        widening=settings.widening,
        fitted=FittedPolicy(log, proposed, fitted),
    )


def share_at_limit(values: Numbers, reached: float, low: float, high: float) -> float:
    """The share of values at the largest possible one; fits that diverge are clipped there.

    It is 0 if what the log reached comes near: then a good policy may be there, too. The log
    reached the return of its best episode, and what its median reward is worth if it is earned
    for ever: if every step earns 1 until the end, a policy that avoids the end earns the most.
    """
    if reached > low + NEAR_LIMIT * (high - low):
        return 0.0
    return float((values > high - AT_LIMIT * (high - low)).mean())


@lru_cache(maxsize=1)  # several candidates are judged by the same episodes
def completed_returns(log: Log, settings: FitSettings, seed: int) -> tuple[Numbers, float, bool]:
    """The discounted return of each episode by each fit, (fits or 1, episodes).

    What follows after a cut end is not in the log. Where it matters, the value of the behaviour
    there is fitted too. Also its share in the weight of all rewards, and whether its fits settled.
    """
    dataset, discount = log.dataset, log.discount
    firsts, stops = dataset.episodes.T
    lengths = stops - firsts
    within = np.arange(len(dataset)) - np.repeat(firsts, lengths)
    weighted = dataset.rewards.astype(np.float64) * discount**within
    returns = np.add.reduceat(weighted, firsts)[None]
    left = np.where(dataset.terminated[stops - 1], 0.0, discount**lengths)
    tail = float(left.mean())
    if tail <= TAIL:
        return returns, tail, True
    resampled, _ = log.resampled(settings, seed)
    nothing = np.zeros((len(dataset), 0), np.float32)  # values of states: no action is asked
    fitted = fit_values(
        log.steps(nothing, nothing[:, None]),
        log.starts(nothing[: len(firsts), None]),
        resampled,
        discount=discount,
        outputs=1,
        settings=settings,
        seed=seed,
        what="fitting values of the behaviour",
    )
    last = jnp.asarray(log.scaling.observations(dataset.next_observations[stops - 1]))
    after = log.unit * fitted.values(last, jnp.zeros((len(firsts), 1, 0)))
    return returns + left * after, tail, fitted.settled
