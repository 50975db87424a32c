"""Should a policy go live? A rule, in code and in words."""

from dataclasses import dataclass
from typing import Literal

from bcq.judging.importance import Sampled
from bcq.judging.support import FARTHEST, LARGEST_DEPARTURE, Support
from bcq.judging.values import Comparison

Verdict = Literal["better", "no worse", "cannot tell", "do not deploy"]
MARGIN = 0.05  # of the behaviour's value: a loss that is still "no worse"
AT_LIMIT = 0.05  # share of the values at the limit of what rewards allow, by which fits diverged
RULE = (
    "the first of these that applies. "
    "do not deploy: the 95% interval of the difference is below 0, or the fitted values did not "
    f"settle, or more than {AT_LIMIT:.0%} of them are at the limit of what the rewards allow, or "
    f"the policy leaves the data (extrapolation meter above {FARTHEST:g}) or does not react to its "
    "state. cannot tell: its choices depart from those usual in the log by more than "
    f"{LARGEST_DEPARTURE:g}. better: the interval is above 0. "
    f"no worse: it is above a loss of {MARGIN:.0%} of the behaviour's value. "
    "cannot tell: everything else."
)


@dataclass(frozen=True)
class Judgement:
    """A policy compared with the behaviour on logged episodes."""

    values: Comparison
    support: Support
    sampled: Sampled | str  # by importance sampling, or why not
    seconds: dict[str, float]  # that each part took

    @property
    def margin(self) -> float:
        """The largest loss that is still "no worse", in the units of the rewards."""
        return MARGIN * abs(self.values.behaviour.value)

    @property
    def objections(self) -> list[str]:
        """What speaks against relying on the fitted values."""
        found = []
        if not self.values.settled:
            found.append("the fitted values did not settle")
        if self.values.at_limit > AT_LIMIT:
            found.append("fitted values are at the limit of what the rewards allow")
        if self.support.leaves_data:
            found.append(f"the policy leaves the data (meter {self.support.meter.ratio:.2f})")
        if self.support.is_constant:
            found.append("the policy does not react to its state")
        return found

    @property
    def doubts(self) -> list[str]:
        """What forbids to call a policy better or no worse, although it may be."""
        if not self.support.departs:
            return []
        told = f"departure {self.support.departure:.3g}"
        return [f"the policy often takes choices that the log rarely shows ({told})"]

    @property
    def sound(self) -> bool:
        """Whether the fitted values can be relied on, and the policy stays with the data."""
        return not self.objections

    @property
    def preference(self) -> tuple[bool, float]:
        """The larger, the better: by the lower ends of the fits, for what is surely reached.

        The highest of several uncertain estimates is the luckiest one. Intervals are not widened
        here: errors that all fits have in common are often common to the policies, too. Fits that
        did not settle forbid to trust a value, but are no sign of a bad policy.
        """
        suspect = self.values.at_limit > AT_LIMIT or not self.support.fine
        return not suspect, self.values.sure

    @property
    def verdict(self) -> Verdict:
        """See `RULE`."""
        if not self.sound or self.values.difference.high < 0:
            return "do not deploy"
        if self.doubts:
            return "cannot tell"
        if self.values.difference.low > 0:
            return "better"
        return "no worse" if self.values.difference.low > -self.margin else "cannot tell"
