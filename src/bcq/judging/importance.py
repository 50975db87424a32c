"""Importance sampling: logged rewards, weighted by how likely the policy is to follow the log.

For choices only. The actions of these policies are not random, so a step has the ratio
1[logged choice = choice of the policy] / probability of the logged choice under the behaviour.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bcq.data.columns import Flags, Floats
from bcq.data.dataset import Dataset
from bcq.judging.behaviour import Behaviour
from bcq.judging.values import Comparison, Estimate, propose
from bcq.system.progress import Progress
from bcq.training.policy import Policy

LEAST_EFFECTIVE = 100.0  # episodes: with fewer, the intervals are too narrow (docs/judging.md)
QUANTITIES = (
    "importance sampling needs the probability of the logged actions under the policy; this policy "
    "takes one action of infinitely many, so that probability is 0"
)

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Sampled:
    """Values of a policy by importance sampling."""

    weighted: Estimate  # weighted per decision
    doubly_robust: Estimate  # weighted, around the fitted values
    effective: float  # episodes
    logged: bool  # whether the probabilities are in the log; otherwise they are fitted


def importance_of(
    policy: Policy,
    dataset: Dataset,
    comparison: Comparison,
    behaviour: Behaviour | None,
    *,
    discount: float,
    seed: int,
) -> Sampled | str:
    """Values by importance sampling, or why there are none."""
    if behaviour is None:
        return QUANTITIES
    logged = dataset.bounds.normalise(dataset.actions)
    with Progress("choices of the policy", len(dataset), "choice", delay=2.0) as bar:
        chosen = propose(policy, dataset.observations, dataset.permitted, 1, seed, bar)[:, 0]
    known = dataset.propensities
    if known is None:
        every = behaviour.chances(dataset.observations)
        chances = np.take_along_axis(every, logged[:, None], axis=1)[:, 0]
    else:
        chances = known
    table = Table(dataset.episodes)
    weights = cumulative_weights(table, (logged == chosen) / chances.astype(np.float64))
    effective = effective_episodes(weights)
    if effective < LEAST_EFFECTIVE:
        return (
            f"importance sampling: the policy differs from the log so often that only "
            f"{effective:.1f} of {len(weights)} episodes count (effective sample size); "
            f"at least {LEAST_EFFECTIVE:g} are needed"
        )
    values, of_states = (
        comparison.fitted.values(dataset.observations, actions[:, None]).mean(axis=0)
        for actions in (logged, chosen)
    )
    ends = dataset.episodes[:, 1] - 1
    following = dataset.next_observations[ends], comparison.fitted.actions.after[ends]
    after = comparison.fitted.values(*following).mean(axis=0)
    final = np.where(dataset.terminated[ends], 0.0, after)

    rewards = dataset.rewards

    def estimated(of: Callable[[Numbers], float]) -> Estimate:
        drawn = [of(counts.astype(np.float64)) for counts in comparison.counts]
        return Estimate.of(of(np.ones(len(weights))), np.array(drawn))

    return Sampled(
        weighted=estimated(lambda n: weighted_per_decision(table, rewards, n, weights, discount)),
        doubly_robust=estimated(
            lambda n: weighted_doubly_robust(
                table, rewards, n, weights, values, of_states, final, discount
            )
        ),
        effective=effective,
        logged=known is not None,
    )


@dataclass(frozen=True)
class Table:
    """Numbers of steps laid out by episode and time, (episodes, longest)."""

    spans: NDArray[np.int64]

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Steps of each episode."""
        return np.asarray(self.spans[:, 1] - self.spans[:, 0])

    @property
    def exists(self) -> Flags:
        """Where an episode has a step."""
        return np.asarray(np.arange(self.lengths.max()) < self.lengths[:, None])

    def of(self, steps: Numbers | Floats) -> Numbers:
        """One number per step; 0 after the end of an episode."""
        laid = np.zeros(self.exists.shape)
        rows = np.concatenate([np.arange(*span) for span in self.spans])
        laid[self.exists] = steps[rows]
        return laid


def cumulative_weights(table: Table, ratios: Numbers) -> Numbers:
    """The product of the ratios up to each time; an episode that has ended keeps its last.

    Then the weights at any time have mean 1 under the behaviour, and the weighted estimator is
    consistent although episodes differ in length (Thomas 2015).
    """
    laid = np.where(table.exists, table.of(ratios), 1.0)
    return np.asarray(np.cumprod(laid, axis=1))


def weighted_per_decision(
    table: Table, rewards: Floats, counts: Numbers, weights: Numbers, discount: float
) -> float:
    """Each time's mean reward, weighted by the episodes' weights at that time.

    `counts` says how often each episode counts, if episodes are drawn with replacement.
    """
    weights = weights * counts[:, None]
    totals = weights.sum(axis=0)
    means = divided((weights * table.of(rewards)).sum(axis=0), totals)
    return float((discount ** np.arange(len(means)) * means).sum())


def weighted_doubly_robust(
    table: Table,
    rewards: Floats,
    counts: Numbers,
    weights: Numbers,
    values: Numbers,
    state_values: Numbers,
    final_values: Numbers,
    discount: float,
) -> float:
    """Fitted values, corrected by weighted rewards (Thomas and Brunskill 2016).

    `values` are Q of the logged pairs and `state_values` V of their states, one per step;
    `final_values` are V after the cut ends of episodes, 0 after terminated ones.
    """
    weights = weights * counts[:, None]
    shares = divided(weights, weights.sum(axis=0))
    before = np.concatenate([(counts / counts.sum())[:, None], shares[:, :-1]], axis=1)
    inner = shares * (table.of(rewards) - table.of(values)) + before * table.of(state_values)
    discounts = discount ** np.arange(inner.shape[1])
    last = shares[np.arange(len(shares)), table.lengths - 1]
    ends = float((discount**table.lengths * last * final_values).sum())
    return float((discounts * inner).sum()) + ends


def divided(values: Numbers, totals: Numbers) -> Numbers:
    """Values divided by totals; 0 where the total is 0."""
    return np.divide(values, totals, out=np.zeros_like(values), where=totals > 0)


def effective_episodes(weights: Numbers) -> float:
    """How many equally weighted episodes the last weights are worth (Kish 1965)."""
    last = weights[:, -1]
    if last.max() == 0:
        return 0.0
    last = last / last.max()
    return float(last.sum() ** 2 / (last**2).sum())
