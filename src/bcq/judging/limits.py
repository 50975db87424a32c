"""What a verdict does not cover."""

from bcq.data.splits import HoldOut
from bcq.judging.candidates import Choice
from bcq.judging.page import Element, bullets, paragraph, section
from bcq.judging.values import TAIL
from bcq.runs.configuration import LoggedBatch


def limits(number: int, choice: Choice) -> Element:
    """The last part of the card."""
    return section(
        number,
        "What the verdict does not cover",
        bullets(sentences(choice)),
        paragraph(
            "A policy that is judged well still needs a trial under supervision, with a way back "
            "to the present behaviour."
        ),
    )


def sentences(choice: Choice) -> list[str]:
    """What the reader must know, for this judgement."""
    batch = choice.chosen.run.config.dataset
    hold_out = batch.hold_out if isinstance(batch, LoggedBatch) else None
    return [
        "Changes since the log was written. The verdict is about the plant, the sensors and the "
        "rewards of the log. It does not hold if they have changed.",
        "States that are not in the log. The value is that from the first states of the judged "
        "episodes; what the policy does elsewhere was not measured.",
        "Safety limits. No part of the verdict checks any. The actions are only known to be "
        "possible ones of the log: within its action bounds, or among its choices. Keep the "
        "limits and interlocks that are there.",
        "What is not in the rewards. A policy is judged by the logged rewards alone; whatever "
        "they do not count, such as wear or comfort, was not looked at.",
        "Causes that were not logged. If those who acted saw something that the observations do "
        "not have, the fitted values can be wrong, and nothing here would show it.",
        f"Errors that all fits share. The 95% intervals come from {choice.judged_by:,} episodes, "
        "drawn with replacement. They are right only if these cover what the policy does. For "
        "errors of the fitted values, those of the policy and of the difference are "
        f"{choice.judgement.values.widening:g} times as wide as the fits say. On simulated tasks "
        "some errors were larger still.",
        f"The undiscounted return. Values are discounted: a reward {horizon(choice.discount)}. "
        "A policy with the larger discounted value may have the smaller sum of rewards.",
        *about_the_end(choice),
        *about_time(choice, hold_out),
    ]


def horizon(discount: float) -> str:
    """How much a later reward counts."""
    return f"ten steps later counts {discount**10:.3g}, a hundred steps later {discount**100:.3g}"


def about_the_end(choice: Choice) -> list[str]:
    """What was estimated beyond the ends of cut episodes."""
    tail = choice.judgement.values.tail
    if not tail > TAIL:
        return []
    return [
        f"What follows after the log. Episodes were cut before their end; {tail:.0%} of the weight "
        "of the behaviour's rewards lies beyond the cuts and was estimated."
    ]


def about_time(choice: Choice, hold_out: HoldOut | None) -> list[str]:
    """What the episodes of the verdict can say about later ones."""
    if choice.fit_on == "all":
        return [
            "New episodes. The policy was judged by episodes that it learned from, or partly from. "
            "With new ones it may do worse."
        ]
    if hold_out is not None and hold_out.by == "random":
        return [
            "Later episodes. Those of the verdict were drawn at random from the same log, so they "
            "do not show whether the policy stays good as time goes on."
        ]
    return []
