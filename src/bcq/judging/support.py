"""Whether a policy stays with its data, and whether it does anything at all."""

from dataclasses import dataclass

import numpy as np

from bcq.data.columns import Column
from bcq.data.dataset import Dataset
from bcq.judging.behaviour import Behaviour
from bcq.judging.meter import Meter, extrapolation_meter
from bcq.judging.values import Comparison, Proposed
from bcq.system.errors import InputError
from bcq.training.policy import NO_VALUE, Policy

FARTHEST = 3.0  # of the meter: 1 is like the data
LEAST_REACTION = 0.01  # spread of the actions over states, as a share of that of the log
LARGEST_DEPARTURE = 16.0  # beyond it, fitted values were wrong; see docs/judging.md


@dataclass(frozen=True)
class Support:
    """How a policy's actions compare with the logged ones, and how it values itself."""

    meter: Meter
    reaction: float  # spread of its actions over the states, relative to the logged actions
    draws: float  # difference between two draws in one state, relative to the same spread
    own_value: float | None  # the learner's estimate at the starts of episodes, if it has one
    departure: float | None  # of its choices from the usual ones (see `departure`)

    @property
    def leaves_data(self) -> bool:
        """Whether its actions are far from those of the log."""
        return self.meter.ratio > FARTHEST

    @property
    def is_constant(self) -> bool:
        """Whether it does the same in every state, where the log does not."""
        return self.reaction < LEAST_REACTION

    @property
    def departs(self) -> bool:
        """Whether it often chooses what the log rarely shows, so that its way is not in the log."""
        return self.departure is not None and not self.departure <= LARGEST_DEPARTURE  # nor NaN

    @property
    def fine(self) -> bool:
        """Whether nothing speaks against the values that were fitted."""
        return not (self.leaves_data or self.is_constant)


def support_of(
    policy: Policy,
    dataset: Dataset,
    comparison: Comparison,
    behaviour: Behaviour | None,
    *,
    seed: int,
) -> Support:
    """Measures a policy against logged episodes; what it would do in them is known already."""
    actions, choices = comparison.fitted.actions, dataset.task.choices
    logged = dataset.bounds.normalise(dataset.actions)
    return Support(
        meter=extrapolation_meter(policy, dataset, seed=seed),
        reaction=ratio(spread(actions.after[:, 0], choices), spread(logged, choices)),
        draws=ratio(difference(actions.after), spread(logged, choices)),
        own_value=own_value(policy, dataset, actions.first),
        departure=None
        if behaviour is None
        else departure(actions, dataset, behaviour, comparison.fitted.log.discount),
    )


def departure(proposed: Proposed, dataset: Dataset, behaviour: Behaviour, discount: float) -> float:
    """How much less likely the behaviour is to choose as a policy does than as it usually does.

    The logarithm of the ratio, over the steps that count: a policy that takes a choice half as
    likely as the usual one in each of 10 steps departs by 10 log 2. The log hardly shows what
    follows then; docs/judging.md has how wrong fitted values were.
    """
    starts, going = dataset.episodes[:, 0], ~dataset.terminated
    observations = dataset.observations[starts], dataset.next_observations[going]
    permitted = None
    if dataset.permitted is not None and dataset.next_permitted is not None:
        permitted = np.concatenate([dataset.permitted[starts], dataset.next_permitted[going]])
    chances = behaviour.chances(np.concatenate(observations), permitted)
    chosen = np.concatenate([proposed.first, proposed.after[going]])
    taken = np.take_along_axis(chances, chosen, axis=1)
    rarity = np.log(chances.max(axis=1, keepdims=True) / taken).mean()
    return float(rarity * min(1 / (1 - discount), np.diff(dataset.episodes).max()))


def spread(actions: Column, choices: object) -> float:
    """Mean standard deviation of the numbers of an action; of choices, 1 - the largest share."""
    if choices is not None:
        return float(1 - np.bincount(actions).max() / len(actions))
    return float(actions.std(axis=0).mean())


def difference(proposed: Column) -> float:
    """Mean distance between two actions drawn in one state, per number; 0 without draws."""
    if proposed.shape[1] == 1:
        return 0.0
    return float(np.abs(proposed[:, 0] - proposed[:, 1]).mean())


def ratio(one: float, other: float) -> float:
    """One number relative to another; 1 if both are 0, as in a log that always does the same."""
    return one / other if other else float(one == 0)


def own_value(policy: Policy, dataset: Dataset, first: Column) -> float | None:
    """What the learner itself expects from the starts of the episodes."""
    starts = dataset.observations[dataset.episodes[:, 0]]
    try:
        values = [
            policy.value(starts, policy.task.bounds.denormalise(first[:, draw]))
            for draw in range(first.shape[1])
        ]
    except InputError as error:
        if str(error) != NO_VALUE:
            raise
        return None
    return float(np.mean(values))
