"""The report card of a policy: one page for a person who decides whether it goes live."""

import math
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bcq.data.columns import Finding
from bcq.data.dataset import Dataset
from bcq.judging.candidates import Choice, FitOn, candidates_of, choose, episodes_for
from bcq.judging.charts import gauge, intervals
from bcq.judging.conduct import Conduct, Names, what_it_does
from bcq.judging.curves import the_learning
from bcq.judging.limits import limits
from bcq.judging.origins import data_card, training_card
from bcq.judging.page import SIGNATURE, Element, element, page, paragraph, section, table
from bcq.judging.report import comparison, until_cut, words
from bcq.judging.support import FARTHEST, LARGEST_DEPARTURE, LEAST_REACTION, Support
from bcq.judging.values import Estimate
from bcq.judging.verdict import AT_LIMIT, RULE, Judgement
from bcq.runs.directory import Run
from bcq.system.errors import InputError
from bcq.system.files import make_directory, require_regular, write_text

SYMBOLS = {"better": "▲", "no worse": "=", "cannot tell": "?", "do not deploy": "✕"}


@dataclass(frozen=True)
class Card:
    """What a report card is about."""

    choice: Choice
    dataset: Dataset  # the whole log
    judged: Dataset  # the episodes of the verdict
    conduct: Conduct
    source: str  # name of the file
    names: Names  # of columns, by role
    findings: Sequence[Finding]

    @property
    def judgement(self) -> Judgement:
        """That of the chosen candidate."""
        return self.choice.judgement

    @property
    def run(self) -> Run:
        """The run of the chosen candidate."""
        return self.choice.chosen.run


def make_card(
    run: Run,
    dataset: Dataset,
    *,
    source: str,
    names: Names,
    findings: Sequence[Finding],
    fit_on: FitOn = "held-out",
    discount: float | None = None,
    seed: int = 0,
) -> Card:
    """Judges a run and collects what its card says."""
    choice = choose([run], dataset, fit_on=fit_on, discount=discount, seed=seed)
    judged = episodes_for([run], dataset, fit_on, len(candidates_of([run]))).judging
    conduct = Conduct.of(choice.chosen.policy(), judged, seed=seed)
    return Card(choice, dataset, judged, conduct, source, names, findings)


def write_card(card: Card, path: Path) -> None:
    """Writes the page, completely or not at all."""
    write_text(path, as_html(card))


def require_place(path: Path) -> None:
    """Refuses a file that is not a report card, and a folder that cannot be written to."""
    require_regular(path)
    make_directory(path.parent)
    try:
        with tempfile.TemporaryFile(dir=path.parent):
            pass
        beginning = b""
        if path.exists():
            with path.open("rb") as file:
                beginning = file.read(1_000)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}", option="card") from error
    if path.exists() and f'content="{SIGNATURE}"'.encode() not in beginning:
        raise InputError(
            f"{path}: already exists and is not a report card; name another file", option="card"
        )


def as_html(card: Card) -> str:
    """The whole page."""
    chosen, judgement = card.choice.chosen, card.judgement
    name = chosen.run.directory.name or str(chosen.run.directory)
    heading = f"Report card: policy {name}, update {chosen.step:,}, by the log {card.source}"
    return page(
        f"{judgement.verdict}: {name}",
        element(
            "main",
            element("h1", heading),
            the_verdict(1, card),
            the_values(2, judgement, card.choice.discount),
            the_support(3, judgement),
            the_learning(4, card.run, judgement),
            what_it_does(5, card.conduct, card.judged, card.names),
            data_card(6, card.run, card.dataset, card.source, card.findings),
            training_card(7, card.run, chosen.step),
            limits(8, card.choice),
        ),
    )


# 1. The verdict


def reason(judgement: Judgement) -> str:
    """One sentence that says which part of the rule gave the verdict."""
    difference, margin = judgement.values.difference, judgement.margin
    doubts = judgement.doubts if judgement.verdict == "cannot tell" else []
    if against := judgement.objections or doubts:
        told = " and ".join(against)
        return f"{told[:1].upper()}{told[1:]}."
    if not all(map(math.isfinite, difference)):
        return "The difference to the behaviour is not a finite number."
    span = f"The 95% interval of the difference, {difference.low:.5g} to {difference.high:.5g},"
    return {
        "better": f"{span} is above 0: by this estimate the policy earns more than the behaviour "
        "that was logged.",
        "no worse": f"{span} reaches 0 or less, but no loss of {margin:.5g} or more "
        "(5% of the behaviour's value).",
        "cannot tell": f"{span} includes a loss of {margin:.5g} (5% of the behaviour's value), "
        "and is not all below 0.",
        "do not deploy": f"{span} is below 0: by this estimate the policy earns less than the "
        "behaviour that was logged.",
    }[judgement.verdict]


def the_verdict(number: int, card: Card) -> Element:
    """The verdict, why, the rule and the numbers behind it."""
    judgement, choice = card.judgement, card.choice
    verdict = judgement.verdict
    box = element(
        "div",
        paragraph(
            element("span", f"{SYMBOLS[verdict]} ", aria_hidden="true"), verdict, class_="word"
        ),
        paragraph(reason(judgement)),
        class_=f"verdict {verdict.replace(' ', '-')}",
    )
    held_out = choice.fit_on == "held-out"
    warning = "Judged also by episodes that the policy learned from: this flatters it."
    return section(
        number,
        "Verdict",
        box,
        *(() if held_out else (paragraph(element("strong", warning), class_="warning"),)),
        table(("", "here", "needed"), behind(judgement), "The numbers behind the verdict"),
        paragraph(
            f"Judged by {choice.judged_by:,} episodes"
            + (" that the policy did not learn from" if held_out else "")
            + f", discount {choice.discount:g}."
        ),
        paragraph(element("strong", "The rule. "), RULE, class_="quiet"),
        *compared(choice),
    )


def behind(judgement: Judgement) -> list[tuple[str, str, str]]:
    """Each number that the rule looks at, and what it must be."""
    values, support = judgement.values, judgement.support
    settled = f"{'yes' if values.settled else 'no'}, after {values.curve[-1][0]:,} updates"
    rows = [
        (
            "difference to the behaviour",
            words(values.difference),
            f"interval above 0 (better) or above {-judgement.margin:.5g} (no worse)",
        ),
        ("fitted values settled", settled, "yes"),
        ("fitted values at their limit", f"{values.at_limit:.1%}", f"at most {AT_LIMIT:.0%}"),
        ("extrapolation meter", f"{support.meter.ratio:.3g}", f"at most {FARTHEST:g}"),
        ("reaction to the state", f"{support.reaction:.3g}", f"at least {LEAST_REACTION:g}"),
    ]
    if support.departure is not None:
        needed = f"at most {LARGEST_DEPARTURE:g} (better or no worse)"
        rows.append(("departure of its choices", f"{support.departure:.3g}", needed))
    return rows


def compared(choice: Choice) -> list[Element]:
    """The candidates among which this one was chosen, if there were several."""
    if not choice.ranking:
        return []
    rows = [
        (f"update {candidate.step:,}", words(one.values.policy), one.verdict)
        for candidate, one in choice.ranking
    ]
    title = "Checkpoints, compared by other episodes than those of the verdict"
    told = comparison(choice)
    return [
        table(("checkpoint", "value", "verdict"), rows, title),
        paragraph(f"{told[:1].upper()}{told[1:]}."),
    ]


# 2. Values


def the_values(number: int, judgement: Judgement, discount: float) -> Element:
    """The values with their intervals, as a picture and as numbers."""
    values = judgement.values
    three = (values.policy, values.behaviour, values.difference)
    names = ("value of the policy", "value of the behaviour", "difference")
    return section(
        number,
        "Value of the policy against the behaviour",
        paragraph(
            f"Discounted rewards (discount {discount:g}) from the first states of the judged "
            "episodes, in the units of the log's rewards. That of the policy is estimated from the "
            "log (fitted Q evaluation); the policy was not run."
        ),
        element(
            "figure",
            intervals(*three, judgement.margin),
            element(
                "figcaption",
                "Horizontal lines: 95% intervals. The short dashed line, if there is one, is the "
                "loss that is still no worse.",
            ),
            class_="large",
        ),
        table(
            ("", "value", "95% interval"),
            [
                (name, f"{one.value:.5g}", f"{one.low:.5g} to {one.high:.5g}")
                for name, one in zip(names, three, strict=True)
            ],
            "Values",
        ),
    )


# 3. Support


def the_support(number: int, judgement: Judgement) -> Element:
    """How far the policy is from the log, and other estimates of its value."""
    support, fitted = judgement.support, judgement.values.policy
    rows = [
        (
            "outside the logged range",
            f"{support.meter.outside:.1%}",
            f"of its actions, compared with those logged at near states; of the logged actions "
            f"themselves {support.meter.data_outside:.1%}",
        ),
        (
            "reaction to the state",
            f"{support.reaction:.3g}",
            "spread of its actions over the states; 1 is that of the logged actions, 0 is the same "
            "action everywhere",
        ),
        ("draws", f"{support.draws:.3g}", draws_in_words(support)),
    ]
    if support.own_value is not None:
        rows.append(("value by its own estimate", f"{support.own_value:.5g}", own(support, fitted)))
    marks = ((1.0, "1: like the data"), (FARTHEST, f"{FARTHEST:g}: leaves the data"))
    caption = (
        f"Extrapolation meter {support.meter.ratio:.3g}: the distance of its actions from those "
        "logged at near states, divided by the same distance of the logged actions."
    )
    return section(
        number,
        "Does the policy stay with the data?",
        element(
            "figure",
            gauge("Extrapolation meter", support.meter.ratio, marks),
            element("figcaption", caption),
            class_="large",
        ),
        table(("", "here", "meaning"), rows, "Support"),
        *importance(judgement),
    )


def draws_in_words(support: Support) -> str:
    """Whether a policy draws its actions."""
    if support.draws == 0:
        return "it takes the same action whenever it is in the same state"
    return "difference between two actions drawn in one state, relative to the logged spread"


def own(support: Support, fitted: Estimate) -> str:
    """The learner's own value against the fitted one."""
    told = f"what the learner itself expects; the fitted value is {words(fitted)}"
    if support.own_value is not None and support.own_value > fitted.high:
        return f"{told}: it expects more than the fitted values say"
    if support.own_value is not None and support.own_value < fitted.low:
        return f"{told}: it expects less than the fitted values say"
    return told


def importance(judgement: Judgement) -> list[Element]:
    """Values by importance sampling, or why there are none."""
    sampled = judgement.sampled
    heading = element("h3", "Importance sampling")
    if isinstance(sampled, str):
        return [heading, paragraph(f"No estimate. {sampled[:1].upper()}{sampled[1:]}.")]
    rows = [
        ("weighted per decision", words(sampled.weighted)),
        ("weighted doubly robust", words(sampled.doubly_robust)),
        ("effective episodes", f"{sampled.effective:.1f}"),
    ]
    origin = (
        "The probabilities of the logged choices are in the log."
        if sampled.logged
        else "The log has no propensities: they come from a fitted model of the behaviour, whose "
        "errors multiply over the steps of an episode."
    )
    cut = [paragraph(f"{told[:1].upper()}{told[1:]}.") for told in until_cut(judgement.values)]
    named = table((), rows, "Value of the policy by other estimators")
    return [heading, named, paragraph(origin), *cut]
