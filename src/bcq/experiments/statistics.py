"""A few seeds of several settings: interquartile means, their intervals, and which is best.

The interval is Student's for a trimmed mean (Tukey and McLaughlin 1963), and for a difference
Yuen's (1974). A bootstrap over three seeds would be far too narrow: docs/sweeps.md has numbers.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

LEVEL = 0.95


class Interval(NamedTuple):
    """Its two ends; both are infinite if nothing is known."""

    low: float
    high: float


def interquartile_mean(values: ArrayLike) -> float:
    """The mean of the middle half; of fewer than four values, of all."""
    ordered = np.sort(values)
    cut = len(ordered) // 4
    return float(ordered[cut : len(ordered) - cut].mean())


@dataclass(frozen=True)
class Centre:
    """An estimate with its standard error, and the degrees of freedom of that error."""

    value: float
    error: float
    freedom: float

    @classmethod
    def of(cls, values: ArrayLike, shared_error: float = 0.0) -> "Centre":
        """The interquartile mean of independent values, such as one for each seed.

        `shared_error` is a standard error that all values have in common, so that more of them do
        not reduce it.
        """
        ordered = np.sort(np.asarray(values, float))
        count, cut = len(ordered), len(ordered) // 4
        middle = count - 2 * cut
        if middle < 2:
            return cls(interquartile_mean(ordered), math.inf, 1.0)
        winsorised = np.clip(ordered, ordered[cut], ordered[count - cut - 1])
        own = winsorised.std(ddof=1) * math.sqrt((count - 1) / (middle * (middle - 1)))
        alone = cls(interquartile_mean(ordered), float(own), middle - 1.0)
        return alone.plus(cls(0.0, shared_error, math.inf))

    def plus(self, other: "Centre") -> "Centre":
        """The sum of two independent estimates, with the degrees of freedom of Welch."""
        value, error = self.value + other.value, math.hypot(self.error, other.error)
        if error in (0.0, math.inf):
            return Centre(value, error, 1.0)
        shares = [(one.error / error) ** 4 / one.freedom for one in (self, other) if one.error > 0]
        return Centre(value, error, 1 / sum(shares) if sum(shares) > 0 else math.inf)

    def minus(self, other: "Centre") -> "Centre":
        """The difference of two independent estimates."""
        return self.plus(Centre(-other.value, other.error, other.freedom))

    def interval(self, level: float = LEVEL) -> Interval:
        """Student's interval."""
        if math.isinf(self.error):
            return Interval(-math.inf, math.inf)
        reach = float(stats.t.ppf((1 + level) / 2, self.freedom)) * self.error
        return Interval(self.value - reach, self.value + reach)


@dataclass(frozen=True)
class Best:
    """The setting with the highest estimate."""

    index: int
    interval: Interval  # right for the highest of several
    rivals: tuple[int, ...]  # that cannot be told apart from it

    @property
    def is_clear(self) -> bool:
        """Whether it can be told apart from every other setting."""
        return not self.rivals


def best_of(centres: Sequence[Centre]) -> Best:
    """The highest of several estimates, with errors that account for the choice (Bonferroni).

    The probability that a setting is called clearly best and is not is at most 1 - LEVEL, also if
    all are equal: it must be above each of the others by an interval for all comparisons together.
    The interval of the highest is one that would hold for all settings at once.
    """
    count = len(centres)
    first = max(range(count), key=lambda index: centres[index].value)
    compared = 1 - (1 - LEVEL) / max(1, count - 1)
    rivals = [
        index
        for index, other in enumerate(centres)
        if index != first and centres[first].minus(other).interval(compared).low <= 0
    ]
    return Best(first, centres[first].interval(1 - (1 - LEVEL) / count), tuple(rivals))
