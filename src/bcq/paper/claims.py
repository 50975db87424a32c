"""A claim of the paper: its sentence, the tests that decide it, and the rule in words.

The rules were written before the runs that they judge. `final` is the mean return of a run's last
three evaluations; values are "off by" |estimate - truth| / |truth|, whose logarithm (base 10) is in
the figures. The claims of a figure are in its file.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from bcq.paper.evidence import Evidence
from bcq.paper.judging import FAILS, HOLDS, UNKNOWN, AllOf, Outcome
from bcq.tabular.illustrations import BCQL_EXACT, KERNEL_EXACT

MATCHES = 0.95  # of the batch's average return
OFF = 0.0  # log10: the error of the estimate is as large as the truth
NEAR = float(np.log10(0.5))  # log10: the error is half the truth
SMOOTH = 0.25  # jumps between two estimates, in units of their level
EARLY = 20_000  # updates, 2% of the paper's million


class Claim(Protocol):
    """What is needed to judge a claim."""

    @property
    def where(self) -> str:
        """Section and figure."""
        ...

    @property
    def quote(self) -> str:
        """The words of the paper."""
        ...

    @property
    def rule(self) -> str:
        """The rule that decides it, in words."""
        ...

    def judge(self, evidence: Evidence) -> Outcome:
        """The verdict and its figures."""
        ...


@dataclass(frozen=True)
class Measured:
    """A claim that is decided by runs."""

    where: str
    quote: str
    rule: str
    test: AllOf

    def judge(self, evidence: Evidence) -> Outcome:
        """By its test."""
        return self.test.judge(evidence)


@dataclass(frozen=True)
class Proved:
    """A statement that the paper proves, checked here on random MDPs."""

    where: str
    quote: str
    rule: str
    tolerance: float

    def judge(self, evidence: Evidence) -> Outcome:
        """Holds if no violation was found."""
        if evidence.theory is None:
            return Outcome(UNKNOWN, "needs the theory's job", {})
        one = next(one for one in evidence.theory["statements"] if one["name"] == self.where)
        figures = f"off by at most {one['worst']:.0e} in {one['cases']} random MDPs"
        return Outcome(HOLDS if one["worst"] <= self.tolerance else FAILS, figures, {})


@dataclass(frozen=True)
class Counterexample:
    """The two states of supplement C: the actions of each method, and its values."""

    where: str
    quote: str
    rule: str

    def judge(self, evidence: Evidence) -> Outcome:
        """Kernel-based RL must fail, and BCQL must not."""
        found = evidence.theory
        if found is None or "kernel_values_off_by" not in found:  # missing in old results
            return Outcome(UNKNOWN, "needs the theory's job", {})
        fails, optimal = found["kernel_fails"], found["bcql_is_optimal"]
        kernel, bcql = found["kernel_values_off_by"], found["bcql_values_off_by"]
        figures = (
            f"kernel-based RL {'fails' if fails else 'succeeds'}, off Eq. 21 by at most "
            f"{kernel:.0e}; BCQL is {'optimal' if optimal else 'not optimal'}, off the truth by at "
            f"most {bcql:.0e}"
        )
        stands = fails and optimal and kernel <= KERNEL_EXACT and bcql <= BCQL_EXACT
        return Outcome(HOLDS if stands else FAILS, figures, {})
