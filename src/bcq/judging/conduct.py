"""What a policy does where the log did something: distributions of actions, and examples."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bcq.data.columns import Floats
from bcq.data.dataset import Dataset
from bcq.judging.charts import bars, counts_in, histogram, shortened
from bcq.judging.page import Element, element, paragraph, section
from bcq.judging.values import propose
from bcq.system.progress import Progress
from bcq.training.policy import Policy

ROWS = 10_000  # of the log at which the policy acts, evenly spread
BINS = 20
EXAMPLES = 6
MOST_NUMBERS = 12  # of an observation or an action, in an example
MOST_ACTIONS = 24  # dimensions with a picture
MOST_CHOICES = 20  # with bars

Names = Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class Conduct:
    """What the log and the policy did in the same states."""

    rows: NDArray[np.int64]  # of the dataset
    logged: Floats  # (rows, action_size), in the units of the log
    taken: Floats  # by the policy

    @classmethod
    def of(cls, policy: Policy, dataset: Dataset, *, seed: int) -> "Conduct":
        """Asks the policy at rows of the log."""
        count = min(len(dataset), ROWS)
        rows = np.linspace(0, len(dataset) - 1, count).astype(np.int64)
        permitted = None if dataset.permitted is None else dataset.permitted[rows]
        with Progress("actions for the card", count, "action", delay=2.0) as bar:
            found = propose(policy, dataset.observations[rows], permitted, 1, seed, bar)
        taken = dataset.bounds.denormalise(found[:, 0])
        return cls(rows, dataset.actions[rows], taken)


def what_it_does(number: int, conduct: Conduct, dataset: Dataset, names: Names) -> Element:
    """The part of the card about actions."""
    few = "every row" if len(conduct.rows) == len(dataset) else "evenly spread rows"
    return section(
        number,
        "What the policy does",
        paragraph(
            f"The policy was asked at {len(conduct.rows):,} states of the judged episodes "
            f"({few} of {len(dataset):,}). Its actions stand beside those that were logged in the "
            "same states. Filled areas with an outline: the log. Line, or bars without an "
            "outline: the policy."
        ),
        *(choices_of if dataset.task.choices is not None else quantities_of)(
            conduct, dataset, names
        ),
        element("h3", "Example states"),
        paragraph("Rows of the judged episodes, drawn at random; they were not selected."),
        element("div", *examples(conduct, dataset, names), class_="grid"),
    )


def names_of(role: str, size: int, dataset: Dataset, names: Names) -> Sequence[str]:
    """The names of the numbers of observations or actions, or else their positions."""
    known = dataset.layout.labels if role == "observations" else ()
    known = known or tuple(names.get(role, ()))
    return known if len(known) == size else [f"{role.removesuffix('s')} {i}" for i in range(size)]


def quantities_of(conduct: Conduct, dataset: Dataset, names: Names) -> list[Element]:
    """A histogram for each dimension, between the action bounds."""
    size = dataset.actions.shape[1]
    labels = names_of("actions", size, dataset, names)
    figures = []
    for i, name in enumerate(labels[:MOST_ACTIONS]):
        low, high = float(dataset.bounds.low[i]), float(dataset.bounds.high[i])
        edges = np.linspace(low, high, BINS + 1) if low < high else np.array([low - 1, low + 1])
        logged, taken = (
            counts_in(np.clip(values[:, i], edges[0], edges[-1]), edges)
            for values in (conduct.logged, conduct.taken)
        )
        told = (
            f" between its bounds; mean {conduct.taken[:, i].mean(dtype=float):.4g}, "
            f"logged {conduct.logged[:, i].mean(dtype=float):.4g}"
        )
        drawn = histogram(f"Actions by share: {name}", edges, logged, taken)
        caption = element("figcaption", element("strong", name), told)
        figures.append(element("figure", drawn, caption))
    found = [element("div", *figures, class_="grid")]
    if size > MOST_ACTIONS:
        found.append(paragraph(f"{size - MOST_ACTIONS} more dimensions are not shown."))
    return found


def choices_of(conduct: Conduct, dataset: Dataset, names: Names) -> list[Element]:
    """Bars for each choice, those of the policy and the log that are most common first."""
    del names
    choices = dataset.task.choices or ()
    logged, taken = (
        np.bincount(dataset.bounds.normalise(values), minlength=len(choices))
        for values in (conduct.logged, conduct.taken)
    )
    order = np.argsort(-(logged + taken), kind="stable")
    agreed = float((conduct.logged == conduct.taken).mean())
    found = [paragraph(f"In {agreed:.1%} of the states the policy chooses what was logged.")]
    shown, rest = order[:MOST_CHOICES], order[MOST_CHOICES:]
    labels, pair = [choices[i] for i in shown], [logged[shown], taken[shown]]
    if len(rest):
        labels.append(f"{len(rest)} other choices")
        pair = [np.append(counts[shown], counts[rest].sum()) for counts in (logged, taken)]
    drawn = bars("Choices by share", labels, *pair)
    return [*found, element("figure", drawn, class_="large")]


def examples(conduct: Conduct, dataset: Dataset, names: Names) -> list[Element]:
    """States with what was logged and what the policy does."""
    size = dataset.observations.shape[1]
    labels = names_of("observations", size, dataset, names)
    firsts, found = dataset.episodes[:, 0], []
    count = min(EXAMPLES, len(conduct.rows))
    # Evenly spread rows would be the same step of every episode where all have the same length.
    drawn = np.random.default_rng(0).choice(len(conduct.rows), count, replace=False)
    for place in np.sort(drawn).tolist():
        row = int(conduct.rows[place])
        episode = int(np.searchsorted(firsts, row, "right")) - 1
        state = listed(labels, dataset.observations[row])
        title = f"Judged episode {episode + 1}, step {row - int(firsts[episode]) + 1}"
        found.append(
            element(
                "div",
                element("h3", title),
                paragraph(element("strong", "State: "), state),
                paragraph(
                    element("strong", "Logged: "), action(conduct.logged[place], dataset, names)
                ),
                paragraph(
                    element("strong", "Policy: "), action(conduct.taken[place], dataset, names)
                ),
                class_="example",
            )
        )
    return found


def action(numbers: Floats, dataset: Dataset, names: Names) -> str:
    """An action by the name of its choice, or by its numbers."""
    if (choices := dataset.task.choices) is not None:
        return choices[int(numbers[0])]
    return listed(names_of("actions", len(numbers), dataset, names), numbers)


def listed(labels: Sequence[str], numbers: Floats) -> str:
    """Numbers by name; only the first of many."""
    pairs = list(zip(labels, numbers.tolist(), strict=True))
    shown = ", ".join(f"{shortened(name)} {number:.4g}" for name, number in pairs[:MOST_NUMBERS])
    rest = len(pairs) - MOST_NUMBERS
    return f"{shown}, and {rest} more numbers" if rest > 0 else shown
