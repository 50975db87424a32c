"""How a claim is decided: one number per trial, the interval of their mean, and a bar.

The verdict is "holds" if the whole 95% interval is on the claimed side of the bar, "does not hold"
if it is on the other side, "undecided" if it contains the bar, and "not enough evidence" if trials
or updates are missing. Trials and environments are pooled. The interval is Student's, which is wide
for two trials.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import stats

from bcq.paper.evidence import Evidence, NotEnoughError, Trial

HOLDS, FAILS, UNDECIDED, UNKNOWN = (
    "holds",
    "does not hold",
    "undecided",
    "not enough evidence",
)
VERDICTS = (HOLDS, FAILS, UNDECIDED, UNKNOWN)
LEVEL = 0.95
FEWEST = 2  # trials that an interval needs
FEWEST_ALONE = 3  # trials of an environment that is judged separately
Side = Literal["above", "below"]


@dataclass(frozen=True)
class Interval:
    """A mean over trials, and its confidence interval."""

    mean: float
    low: float
    high: float
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> "Interval":
        """Student's interval of the mean."""
        if len(values) < FEWEST:
            raise NotEnoughError(f"{FEWEST} trials; there is {len(values)}")
        mean, error = float(np.mean(values)), float(np.std(values, ddof=1)) / len(values) ** 0.5
        half = float(stats.t.ppf((1 + LEVEL) / 2, len(values) - 1)) * error
        return cls(mean, mean - half, mean + half, len(values))

    def verdict(self, side: Side, bar: float) -> str:
        """The verdict: on which side of the bar the interval is."""
        above, below = self.low > bar, self.high < bar
        if not (above or below):
            return UNDECIDED
        return HOLDS if above == (side == "above") else FAILS

    def __str__(self) -> str:
        return f"{self.mean:.3g} ({self.low:.3g} to {self.high:.3g})"


@dataclass(frozen=True)
class Outcome:
    """The result of a test: verdict, figures, and the figures of each environment."""

    verdict: str
    evidence: str
    environments: Mapping[str, str]


@dataclass(frozen=True)
class OnAverage:
    """The mean of one number per trial is on one side of a bar."""

    name: str
    measure: Callable[[Evidence], Mapping[Trial, float]]
    side: Side
    bar: float

    def judge(self, evidence: Evidence) -> Outcome:
        """Judges all trials together, and each environment separately."""
        try:
            trials = self.measure(evidence)
            interval = Interval.of(list(trials.values()))
        except NotEnoughError as missing:
            return Outcome(UNKNOWN, f"{self.name}: needs {missing}", {})
        environments = {
            env: self.alone([value for trial, value in trials.items() if trial.env == env])
            for env in sorted({trial.env for trial in trials})
        }
        text = f"{self.name}: {interval}, {interval.count} trials"
        return Outcome(interval.verdict(self.side, self.bar), text, environments)

    def alone(self, values: Sequence[float]) -> str:
        """One environment: judged from three trials on, otherwise only described."""
        if len(values) < FEWEST_ALONE:
            return f"{self.name}: {', '.join(f'{value:.3g}' for value in values)}"
        interval = Interval.of(values)
        return f"{self.name}: {interval} {interval.verdict(self.side, self.bar)}"


@dataclass(frozen=True)
class EachTrial:
    """The mean of a sample is on one side of a bar, in every trial."""

    name: str
    measure: Callable[[Evidence], Mapping[Trial, Sequence[float]]]
    side: Side
    bar: float

    def judge(self, evidence: Evidence) -> Outcome:
        """One trial on the other side refutes it."""
        try:
            trials = self.measure(evidence)
            if len(trials) < FEWEST_ALONE:
                raise NotEnoughError(f"{FEWEST_ALONE} trials; there are {len(trials)}")
            intervals = {trial: Interval.of(values) for trial, values in trials.items()}
        except NotEnoughError as missing:
            return Outcome(UNKNOWN, f"{self.name}: needs {missing}", {})
        verdict = worst([one.verdict(self.side, self.bar) for one in intervals.values()])
        figures = "; ".join(f"{trial.env} {trial.seed}: {one}" for trial, one in intervals.items())
        return Outcome(verdict, f"{self.name}: {figures}", {})


@dataclass(frozen=True)
class AnyOf:
    """At least one of several tests holds."""

    name: str
    tests: Sequence["OnAverage | AllOf"]

    def judge(self, evidence: Evidence) -> Outcome:
        """Refuted if all tests are."""
        found = [test.judge(evidence) for test in self.tests]
        verdict = OPPOSITE[worst([OPPOSITE[one.verdict] for one in found])]
        return Outcome(verdict, f"{self.name}: {texts(found)}", merged(found))


@dataclass(frozen=True)
class AllOf:
    """Every one of several tests holds."""

    tests: Sequence["OnAverage | EachTrial | AnyOf"]

    def judge(self, evidence: Evidence) -> Outcome:
        """Refuted if one test is."""
        found = [test.judge(evidence) for test in self.tests]
        return Outcome(worst([one.verdict for one in found]), texts(found), merged(found))


OPPOSITE = {HOLDS: FAILS, FAILS: HOLDS, UNDECIDED: UNDECIDED, UNKNOWN: UNKNOWN}


def worst(verdicts: Sequence[str]) -> str:
    """The verdict of a conjunction: one part that fails refutes it, even if others are missing."""
    return next(verdict for verdict in (FAILS, UNKNOWN, UNDECIDED, HOLDS) if verdict in verdicts)


def texts(outcomes: Sequence[Outcome]) -> str:
    """The figures of several tests."""
    return "; ".join(one.evidence for one in outcomes)


def merged(outcomes: Sequence[Outcome]) -> dict[str, str]:
    """The figures of several tests, by environment."""
    return {
        env: "; ".join(one.environments[env] for one in outcomes if env in one.environments)
        for env in sorted({env for one in outcomes for env in one.environments})
    }
