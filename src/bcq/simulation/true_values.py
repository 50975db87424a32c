"""Estimated and true values, the central measurement of the paper (supplement F, Figures 1, 3)."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from bcq.algorithms.learning import AlgorithmConfig, ValueFunction
from bcq.data.bounds import TaskSpec
from bcq.data.columns import Floats
from bcq.data.dataset import Dataset
from bcq.simulation.environments import (
    Environment,
    SimulatorState,
    make_for,
    set_simulator_state,
    simulator_state,
    state_from_observation,
    time_limit_of,
)
from bcq.simulation.rollouts import Act, RowNumbers, lockstep, remembering
from bcq.system import interruption
from bcq.system.errors import InputError
from bcq.system.progress import Progress
from bcq.system.seeds import Role, derive, reset_seed
from bcq.training.policy import Policy

PAIRS = 100  # state-action pairs of the batch whose true value is measured
HORIZON = 1_000  # steps from a pair: 0.99^1000 = 4e-5
RESAMPLES = 2_000  # of the bootstrap
NO_VALUE = "true values: this algorithm has no value function to compare with"

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Values:
    """Estimated and true values of state-action pairs of the batch."""

    rows: NDArray[np.int64]  # of the batch
    estimates: Numbers  # Q(s, a)
    truths: Numbers  # discounted rewards after the pair, without a time limit
    limited: Numbers  # the same, up to the time limit of the environment

    def pairs(self) -> Iterator[dict[str, float]]:
        """The raw numbers, pair by pair."""
        for row, estimate, truth, limited in zip(
            self.rows.tolist(),
            self.estimates.tolist(),
            self.truths.tolist(),
            self.limited.tolist(),
            strict=True,
        ):
            yield {"row": row, "estimate": estimate, "truth": truth, "limited": limited}

    @classmethod
    def from_pairs(cls, pairs: Sequence[Mapping[str, float]]) -> "Values":
        """The inverse of `pairs`."""
        return cls(
            np.array([pair["row"] for pair in pairs], np.int64),
            *(
                np.array([pair[name] for pair in pairs], float)
                for name in ("estimate", "truth", "limited")
            ),
        )

    def summary(self, seed: int = 0) -> dict[str, float | list[float] | None]:
        """Means, spread, bias, ratio and rank correlation, with 95% bootstrap intervals.

        A measure that is undefined, such as the rank correlation of equal values, is None.
        """
        figures: dict[str, float | list[float] | None] = {
            "pairs": len(self.rows),
            "estimate": float(self.estimates.mean()),
            "truth": float(self.truths.mean()),
            "truth_std": float(self.truths.std()),
            "truth_to_time_limit": float(self.limited.mean()),
        }
        draws = np.random.default_rng(seed).integers(
            len(self.rows), size=(RESAMPLES, len(self.rows))
        )
        for name, measure in MEASURES.items():
            value = measure(self.estimates, self.truths)
            resampled = [measure(self.estimates[rows], self.truths[rows]) for rows in draws]
            there = [number for number in resampled if number is not None]
            figures[name] = value
            figures[f"{name}_interval"] = (
                None if value is None else np.percentile(there, [2.5, 97.5]).tolist()
            )
        return figures


def bias(estimates: Numbers, truths: Numbers) -> float:
    """Mean estimate minus mean true value."""
    return float((estimates - truths).mean())


def ratio(estimates: Numbers, truths: Numbers) -> float | None:
    """Mean estimate divided by mean true value."""
    return float(estimates.mean() / truths.mean()) if truths.mean() != 0 else None


def rank_correlation(estimates: Numbers, truths: Numbers) -> float | None:
    """Spearman's rank correlation of estimated and true values."""
    ranks = [average_ranks(values) for values in (estimates, truths)]
    if any(np.ptp(rank) == 0 for rank in ranks):
        return None  # all equal: there is no order to compare
    return float(np.asarray(np.corrcoef(ranks))[0, 1])


def average_ranks(values: Numbers) -> Numbers:
    """Ranks from 0; equal values get the mean of their ranks."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = counts.cumsum() - 1
    return np.asarray((last - (counts - 1) / 2)[inverse])


MEASURES: dict[str, Callable[[Numbers, Numbers], float | None]] = {
    "bias": bias,
    "ratio": ratio,
    "rank_correlation": rank_correlation,
}


def require_measurable(config: AlgorithmConfig, dataset: Dataset, environment: str) -> float:
    """Refuses a measurement that is not possible, before any work; returns the discount."""
    if config.discount is None:
        raise InputError(NO_VALUE)
    env = make_for(environment, dataset.task)
    env.reset(seed=0)
    state_at(dataset, env, 0)
    env.close()
    return config.discount


def measure_values(
    policy: Policy,
    dataset: Dataset,
    environment: str,
    *,
    discount: float,
    seed: int = 0,
    window: int | None = None,
    progress: bool = False,
) -> Values:
    """Sets the simulator to states of the batch, takes the logged actions, then follows the policy.

    Pairs are drawn from the first `window` rows of the batch (by default all), with a separate
    random stream.
    """
    if not isinstance(policy.learner, ValueFunction):
        raise InputError(NO_VALUE)
    window = window or len(dataset)
    seed = derive(seed, Role.VALUES)
    rows = np.sort(np.random.default_rng(seed).choice(window, min(PAIRS, window), replace=False))
    estimates = policy.value(dataset.observations[rows], dataset.actions[rows])
    truths, limited = true_values(
        policy, dataset, environment, rows, discount, seed, progress=progress
    )
    return Values(rows, estimates, truths, limited)


def true_values(
    policy: Policy,
    dataset: Dataset,
    environment: str,
    rows: NDArray[np.int64],
    discount: float,
    seed: int,
    *,
    progress: bool = False,
) -> tuple[Numbers, Numbers]:
    """Discounted rewards after each pair: without a time limit, and up to the environment's limit.

    A rollout ends when the environment terminates, or after a thousand steps. The first value
    ignores the time limit of the logged episode, because Q bootstraps through it.
    """
    environments = [make_for(environment, policy.task, time_limit=False) for _ in rows]
    for env, row in zip(environments, rows.tolist(), strict=True):
        env.reset(seed=0)
        set_simulator_state(env, state_at(dataset, env, row))
    left = steps_left(dataset, rows, time_limit_of(environment) or HORIZON)

    def act(observations: Floats, pairs: RowNumbers, time: int) -> Floats:
        if time == 0:
            return dataset.actions[rows]
        return policy.act(observations, seed=seed, step=time, rows=pairs, capacity=len(rows))

    truths, limited = np.zeros(len(rows)), np.zeros(len(rows))
    readings, past = np.split(dataset.observations[rows], [dataset.task.reading_size], axis=1)
    steps = islice(lockstep(environments, readings, remembering(policy.task, act, past)), HORIZON)
    with Progress("true values", HORIZON, "step", shown=progress) as bar:
        for time, step in enumerate(steps):
            truths[step.episodes] += discount**time * step.rewards
            within = time < left[step.episodes]
            limited[step.episodes[within]] += discount**time * step.rewards[within]
            bar.advance()
            interruption.check()
    for env in environments:
        env.close()
    return truths, limited


def values_from_start(
    environment: str, task: TaskSpec, act: Act, *, discount: float, episodes: int, seed: int
) -> Numbers:
    """Discounted rewards of new episodes, without a time limit: what `bcq judge` estimates."""
    environments = [make_for(environment, task, time_limit=False) for _ in range(episodes)]
    observations = np.stack(
        [env.reset(seed=reset_seed(seed, i))[0] for i, env in enumerate(environments)]
    )
    values = np.zeros(episodes)
    steps = islice(lockstep(environments, observations, remembering(task, act)), HORIZON)
    for time, step in enumerate(steps):
        values[step.episodes] += discount**time * step.rewards
        interruption.check()
    for env in environments:
        env.close()
    return values


def state_at(dataset: Dataset, environment: Environment, row: int) -> SimulatorState:
    """The simulator state before a logged step: stored, or computed from the observation."""
    present = simulator_state(environment)
    if present is None:
        raise InputError(
            "true values: the simulator of this environment cannot be set to a stored state"
        )
    if dataset.qpos is None or dataset.qvel is None:
        try:
            reading = dataset.observations[row, : dataset.task.reading_size]
            return state_from_observation(environment, reading)
        except InputError as error:
            raise InputError(
                f"true values: the batch has no simulator states, and in row {row} {error}; "
                "collect the batch with `bcq collect`, which stores them"
            ) from error
    stored = SimulatorState(dataset.qpos[row], dataset.qvel[row])
    if [part.shape for part in stored] != [part.shape for part in present]:
        raise InputError(
            f"true values: the simulator states of the batch have {len(stored.qpos)} positions and "
            f"{len(stored.qvel)} velocities, those of the environment {len(present.qpos)} and "
            f"{len(present.qvel)}; give the environment of the data"
        )
    return stored


def steps_left(dataset: Dataset, rows: NDArray[np.int64], limit: int) -> NDArray[np.int64]:
    """The number of steps from each logged pair to the time limit of its episode."""
    starts = dataset.episodes[:, 0]
    elapsed = rows - starts[np.searchsorted(starts, rows, side="right") - 1]
    return np.asarray(limit - elapsed)
