"""Judges every claim, and writes the verdicts as text."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from bcq.experiments.records import Record
from bcq.paper import EXPERIMENTS
from bcq.paper.claims import Claim
from bcq.paper.evidence import Evidence
from bcq.paper.judging import VERDICTS, Outcome
from bcq.system.files import Row

CLAIMS: tuple[Claim, ...] = tuple(
    chain.from_iterable(experiment.CLAIMS for experiment in EXPERIMENTS.values())
)


@dataclass(frozen=True)
class Verdict:
    """A claim and its result."""

    claim: Claim
    outcome: Outcome

    @property
    def verdict(self) -> str:
        """One of the four verdicts."""
        return self.outcome.verdict


def judge_all(records: Sequence[Record], theory: Row | None) -> list[Verdict]:
    """Every claim, with its evidence."""
    evidence = Evidence(records, theory)
    return [Verdict(claim, claim.judge(evidence)) for claim in CLAIMS]


def counted(verdicts: Sequence[Verdict]) -> str:
    """How many claims have each verdict."""
    counts = Counter(verdict.verdict for verdict in verdicts)
    return ", ".join(f"{kind}: {counts[kind]}" for kind in VERDICTS)


def as_markdown(verdicts: Sequence[Verdict]) -> str:
    """The table of claims, and the figures of each environment below it."""
    rows = [f"{counted(verdicts)}\n", "| where | claim | verdict | evidence | rule |"]
    rows += ["|---|---|---|---|---|"]
    rows += [
        f"| {v.claim.where} | {v.claim.quote} | **{v.verdict}** | {v.outcome.evidence} "
        f"| {v.claim.rule} |"
        for v in verdicts
    ]
    environments = chain.from_iterable(
        [
            f"\n{v.claim.where}: {v.claim.quote}\n",
            *(f"- {env}: {figures}" for env, figures in v.outcome.environments.items()),
        ]
        for v in verdicts
        if v.outcome.environments
    )
    text = (
        "Figures above are means over trials and environments with 95% intervals (Student's). "
        "Here an environment with three trials or more is judged by itself; one with fewer is "
        "described by its trials."
    )
    return "\n".join([*rows, "\n## By environment\n", text, *environments]) + "\n"


def as_text(verdicts: Sequence[Verdict]) -> str:
    """The same for a terminal."""
    return "\n\n".join(
        f"{v.claim.where}: {v.claim.quote}\n  {v.verdict.upper()}: {v.outcome.evidence}\n"
        f"  rule: {v.claim.rule}"
        for v in verdicts
    )
