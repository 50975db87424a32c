"""How a run learned, and how its values were fitted, as curves."""

import math
from collections.abc import Sequence

from bcq.judging.charts import Point, curve
from bcq.judging.page import Element, element, paragraph, section
from bcq.judging.verdict import Judgement
from bcq.runs.directory import Run, returns_by_step

MOST_CURVES = 8
AFTER_LOSSES = ("value_estimate", "target_mean")


def the_learning(number: int, run: Run, judgement: Judgement) -> Element:
    """Curves of the training, and of the fitted values."""
    values = judgement.values
    figures = [drawn(name.replace("_", " "), points) for name, points in curves_of(run).items()]
    figures.append(drawn("fitted value of the policy, while it was fitted", values.curve))
    state = "settled" if values.settled else "had not settled"
    return section(
        number,
        "Learning",
        paragraph(
            "The training by its own records, and the values of the verdict while they were "
            f"fitted; these {state} after {values.curve[-1][0]:,} updates."
        ),
        element("div", *figures, class_="grid"),
    )


def drawn(name: str, points: Sequence[Point]) -> Element:
    """A curve with its name."""
    caption = element("figcaption", element("strong", name), ", against updates")
    return element("figure", curve(name, points), caption)


def curves_of(run: Run) -> dict[str, list[Point]]:
    """Evaluation returns if there are any, losses, estimates of values, other metrics."""
    rows = run.read("metrics.jsonl")
    names = dict.fromkeys(name for row in rows for name in row if name != "step")
    order = sorted(names, key=lambda n: (not n.endswith("loss"), n not in AFTER_LOSSES))
    found: dict[str, list[Point]] = {}
    if returns := returns_by_step(run):
        found["mean return of the evaluations"] = [
            (as_number(step), sum(map(as_number, each)) / len(each))
            for step, each in returns.items()
        ]
    for name in order:
        points = [(as_number(row["step"]), as_number(row[name])) for row in rows if name in row]
        if any(math.isfinite(y) for _, y in points) and len(found) < MOST_CURVES:
            found[name] = points
    return found


def as_number(value: object) -> float:
    """A number of a log; NaN for anything else, which a picture leaves out."""
    try:
        return float(value) if isinstance(value, int | float) else math.nan
    except OverflowError:  # a whole number of hundreds of digits
        return math.nan
