"""The numbers that claims are judged by: one per trial, from records."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bcq.experiments.records import LAST, Record
from bcq.paper.presets import ExperimentName
from bcq.system.files import Row

SETTLED = 30_000  # updates after which values can have reached 78% of their fixed point
SMALLEST_ERROR, LARGEST_ERROR = (
    1e-3,
    1e6,
)  # of a value estimate; a diverged run has the largest
PHI = 0.05


class NotEnoughError(Exception):
    """What is missing to judge a claim."""


class Trial(NamedTuple):
    """Runs with the same batch: one seed in one environment."""

    env: str
    seed: int


Numbers = dict[Trial, float]


@dataclass(frozen=True)
class Evidence:
    """All measurements."""

    records: Sequence[Record]
    theory: Row | None

    def runs(self, experiment: ExperimentName, task: str, label: str) -> dict[Trial, Record]:
        """The runs of one line of a figure, by trial; of BCQ, those with its default Phi."""
        found = {
            Trial(one.env, one.seed): one
            for one in self.records
            if experiment in one.experiments
            and (one.task, one.label) == (task, label)
            and one.settings.get("max_perturbation", PHI) == PHI
        }
        if not found:
            raise NotEnoughError(f"runs of {label} on {task}")
        return found


Measure = Callable[[Evidence], Numbers]


def paired(
    one: Mapping[Trial, Record],
    other: Mapping[Trial, Record],
    compare: Callable[[Record, Record], float],
) -> Numbers:
    """One number for each trial that both have."""
    both = sorted(one.keys() & other.keys())
    if not both:
        raise NotEnoughError("trials that both have")
    return {trial: compare(one[trial], other[trial]) for trial in both}


def share(part: float, whole: float, name: str) -> float:
    """One return in units of another, which must be positive."""
    if whole <= 0:
        raise NotEnoughError(f"{name} above 0; it is {whole:.3g}")
    return part / whole


def batch_return(one: Record) -> float:
    """The average return of the batch's complete episodes, with noise (the line in Figure 2)."""
    if one.batch is None or one.batch["mean_return"] is None:
        raise NotEnoughError(f"a batch with complete episodes in {one.env}")
    return float(one.batch["mean_return"])


def of_the_batch(experiment: ExperimentName, task: str, label: str) -> Measure:
    """Final return in units of the batch's average."""
    return lambda evidence: {
        trial: share(one.final, batch_return(one), "the batch's average")
        for trial, one in evidence.runs(experiment, task, label).items()
    }


def last_episodes(one: Record) -> np.ndarray:
    """Return of every episode of the last three evaluations."""
    return np.concatenate([episodes for _, episodes in one.evaluations[-LAST:]])


def expert(one: Record) -> float:
    """The return of the expert without noise."""
    if one.batch is None or one.batch["expert_return"] is None:
        raise NotEnoughError("the expert's return")
    return float(one.batch["expert_return"])


def ahead(one: Record, other: Record) -> float:
    """The final return of one run minus another's, in units of the batch's average."""
    return share(one.final - other.final, abs(batch_return(one)), "the batch's average")


def lead(experiment: ExperimentName, task: str, label: str, over: str) -> Measure:
    """The final return of one algorithm minus another's."""
    return lambda evidence: paired(
        evidence.runs(experiment, task, label), evidence.runs(experiment, task, over), ahead
    )


def value_error(one: Record) -> float:
    """The error of the values at the last measurement."""
    if one.divergence is not None:
        return float(np.log10(LARGEST_ERROR))
    if not one.truths:
        raise NotEnoughError(f"true values of {one.label} on {one.task}")
    return error_at(one.truths[-1])


def error_at(row: Row) -> float:
    """Logarithm (base 10) of |estimate - truth| / |truth| at one measurement.

    0 means that the error is as large as the truth.
    """
    error = abs(row["estimate"] - row["truth"]) / max(abs(row["truth"]), 1e-9)
    return float(np.log10(np.clip(error, SMALLEST_ERROR, LARGEST_ERROR)))


def settled(one: Record) -> Record:
    """The run, if it is long enough for its values to settle, or has diverged."""
    if one.updates < SETTLED and one.divergence is None:
        raise NotEnoughError(f"{SETTLED:,} updates of {one.label}; there are {one.updates:,}")
    return one


def settled_error(one: Record) -> float:
    """The error of the values of a run that is long enough."""
    return value_error(settled(one))


def error_of(experiment: ExperimentName, task: str, label: str) -> Measure:
    """The same for every trial."""
    return lambda evidence: {
        trial: settled_error(one) for trial, one in evidence.runs(experiment, task, label).items()
    }


def error_above(experiment: ExperimentName, task: str, label: str, over: str) -> Measure:
    """The error of one algorithm's values minus another's, in powers of ten."""
    return lambda evidence: paired(
        evidence.runs(experiment, task, label),
        evidence.runs(experiment, task, over),
        lambda a, b: settled_error(a) - settled_error(b),
    )


def roughness(one: Record) -> float:
    """The size of the jumps between estimates, in units of their level, late in training."""
    if one.divergence is not None:
        return LARGEST_ERROR
    late = [value for step, value in one.estimates if step > one.updates / 2]
    if len(late) < 3:
        raise NotEnoughError(f"three estimates of {one.label} on {one.task}")
    return float(np.std(np.diff(late)) / max(float(np.mean(np.abs(late))), 1e-9))


def roughness_of(experiment: ExperimentName, task: str, label: str) -> Measure:
    """The roughness of the values of runs that are long enough."""
    return lambda evidence: {
        trial: roughness(settled(one))
        for trial, one in evidence.runs(experiment, task, label).items()
    }


def measure_of(one: Record, name: str) -> float:
    """One of the measures of the last policy and critics, which must be recorded."""
    if one.measures.get(name) is None:
        raise NotEnoughError(f"{name} of {one.label} on {one.task}")
    return float(one.measures[name])
