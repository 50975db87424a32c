"""A claim of the paper: its sentence, the tests that decide it, and the rule in words.

The rules were written before the runs that they judge. `final` is the mean return of a run's last
three evaluations; values are "off by" |estimate - truth| / |truth|, whose logarithm (base 10) is in
the figures. The claims of a figure are in the file of its experiment.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from bcq.experiments.evidence import Evidence
from bcq.experiments.judging import FAILS, HOLDS, UNKNOWN, AllOf, Outcome

MATCHES = 0.95  # of the batch's average return
OFF = 0.0  # log10: an estimate off by the truth itself
NEAR = float(np.log10(0.5))  # log10: off by half the truth
SMOOTH = 0.25  # jumps between two estimates, in units of their level
EARLY = 20_000  # updates, 2% of the paper's million


class Claim(Protocol):
    """What the judge needs of a claim."""

    @property
    def where(self) -> str:
        """Section and figure."""
        ...

    @property
    def quote(self) -> str:
        """The paper's own words."""
        ...

    @property
    def rule(self) -> str:
        """What decides it, in words."""
        ...

    def judge(self, evidence: Evidence) -> Outcome:
        """A verdict with its figures."""
        ...


@dataclass(frozen=True)
class Measured:
    """A claim that runs decide."""

    where: str
    quote: str
    rule: str
    test: AllOf

    def judge(self, evidence: Evidence) -> Outcome:
        """By its test."""
        return self.test.judge(evidence)


@dataclass(frozen=True)
class Proved:
    """A statement that the paper proves and that is checked by exact computation here."""

    where: str
    quote: str
    rule: str
    name: str  # of the statement

    def judge(self, evidence: Evidence) -> Outcome:
        """Holds where no violation was found."""
        if evidence.theory is None:
            return Outcome(UNKNOWN, "needs the theory's job", {})
        one = next(one for one in evidence.theory["statements"] if one["name"] == self.name)
        figures = f"off by at most {one['worst']:.0e} in {one['cases']} random MDPs"
        return Outcome(HOLDS if one["worst"] <= one["tolerance"] else FAILS, figures, {})


@dataclass(frozen=True)
class Counterexample:
    """Supplement C's two states."""

    where: str
    quote: str
    rule: str

    def judge(self, evidence: Evidence) -> Outcome:
        """Kernel-based RL must fail, and BCQL must not."""
        if evidence.theory is None:
            return Outcome(UNKNOWN, "needs the theory's job", {})
        fails, optimal = evidence.theory["kernel_fails"], evidence.theory["bcql_is_optimal"]
        figures = (
            f"kernel-based RL {'fails' if fails else 'succeeds'}; BCQL is "
            f"{'optimal' if optimal else 'not optimal'}"
        )
        return Outcome(HOLDS if fails and optimal else FAILS, figures, {})
