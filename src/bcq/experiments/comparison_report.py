"""A comparison as text, as one file of raw numbers, and as a picture."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from bcq.experiments.comparison import Section, Setting
from bcq.experiments.records import LAST
from bcq.experiments.statistics import LEVEL, Interval, interquartile_mean
from bcq.system.colours import BATCH_COLOUR
from bcq.system.files import as_json_lines, make_directory, replacing, write_text

NAME = "comparison"
# Okabe and Ito's palette, which colour-blind readers can distinguish; beyond it, grey.
PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
GREY = "#999999"


def write_comparison(sections: Sequence[Section], out: Path) -> str:
    """Writes the table, the picture and the raw numbers; returns the table."""
    text = "\n".join(map(as_text, sections))
    make_directory(out)
    write_text(out / f"{NAME}.md", text)
    rows = [
        one.as_json(setting.label)
        for section in sections
        for setting in section.settings
        for one in setting.runs
    ]
    write_text(out / f"{NAME}.jsonl", as_json_lines(rows))
    draw([section for section in sections if section.ranked], out / f"{NAME}.png")
    return text


def as_text(section: Section) -> str:
    """The table of one section in Markdown, and what can be said about the best setting."""
    judged = section.env is None
    lines = [title(section), ""]
    if section.ranked:
        what = "value" if judged else "return"
        lines += [
            f"| setting | seeds | {what}: interquartile mean ({LEVEL:.0%} interval) "
            f"| seeds from, to | diverged |{' objections |' if judged else ''}",
            "|---|---|---|---|---|" + ("---|" if judged else ""),
            *(row(one, judged) for one in section.ranked),
            "",
            conclusion(section),
        ]
    if section.waiting:
        lines.append(
            f"not finished or not judged, so they do not count: {section.waiting} of the runs"
        )
    return "\n".join(lines) + "\n"


def title(section: Section) -> str:
    """What the settings were ranked by, and what the batch itself reached."""
    batch, known = section.batch, section.env is not None
    by = (
        f"returns in {section.env}, last {LAST} evaluations"
        if known
        else f"values judged from logged episodes, discount {section.discount or '?'}"
    )
    reached = (
        f"; its episodes returned {batch.mean_return:.4g} on average"
        if known and batch.mean_return is not None
        else ""
    )
    return f"{section.source} ({batch.transitions:,} transitions{reached}): {by}"


def row(setting: Setting, judged: bool) -> str:
    """One line of the table."""
    scores = setting.scores
    return (
        f"| {setting.label} | {len(scores)} | {setting.centre.value:.4g} "
        f"({as_words(setting.centre.interval())}) | {min(scores):.4g} to {max(scores):.4g} "
        f"| {setting.diverged} |" + (f" {setting.objected} |" if judged else "")
    )


def as_words(interval: Interval) -> str:
    """An interval; one seed has none."""
    if not np.isfinite(interval.low):
        return "no interval"
    return f"{interval.low:.4g} to {interval.high:.4g}"


def conclusion(section: Section) -> str:
    """The best setting with its interval, or why none is named."""
    best, eligible = section.best, section.eligible
    if len(section.ranked) < 2:
        return "There is one setting, so there is nothing to choose."
    if not eligible:
        return "No setting is named: the judge objects to a policy of each."
    if best is None:
        return (
            f"No setting is named: {eligible[0].label} is the only one that the judge does not "
            "object to, so its number was not compared."
        )
    first = eligible[best.index]
    if not best.is_clear:
        rivals = ", ".join(eligible[index].label for index in best.rivals)
        return (
            f"The best cannot be told: {first.label} has the highest number, but cannot be told "
            f"apart from {rivals}. More seeds may help."
        )
    return (
        f"Best: {first.label}, {first.centre.value:.4g} ({LEVEL:.0%} interval "
        f"{as_words(best.interval)}, widened because it was chosen among {len(eligible)}; the "
        "number itself is still flattered by the choice)."
    )


def draw(sections: Sequence[Section], path: Path) -> None:
    """Learning curves beside the numbers of the table; a row of panels for each section."""
    heights = [max(2.4, 1.2 + 0.35 * len(section.ranked)) for section in sections]
    widths = [1.0, 1.2] if any(section.env for section in sections) else [1.0]  # no curves: one
    figure = Figure(figsize=(5.0 * len(widths), sum(heights)), dpi=150, layout="constrained")
    panels = figure.subplots(
        len(sections), len(widths), squeeze=False, height_ratios=heights, width_ratios=widths
    )
    for section, (*left, right) in zip(sections, panels, strict=True):
        colours = dict.fromkeys((one.label for one in section.ranked), GREY)
        colours |= dict(zip(colours, PALETTE, strict=False))
        draw_scores(section, colours, right)
        for axes in left:
            if section.env is None:
                axes.set_axis_off()
            else:
                draw_curves(section, colours, axes)
    with replacing(path) as temporary:
        figure.savefig(temporary, format="png")


def draw_curves(section: Section, colours: dict[str, str], axes: Axes) -> None:
    """The interquartile mean over seeds at each evaluation."""
    for setting in reversed(section.ranked):  # the best on top
        seeds = [one.evaluations for one in setting.counted]
        steps = sorted(set.intersection(*(set(one) for one in seeds)))
        means = [interquartile_mean([np.mean(one[step]) for one in seeds]) for step in steps]
        axes.plot(steps, means, "-", lw=1.5, color=colours[setting.label])
    axes.set(xlabel="updates", ylabel="return (interquartile mean)")
    axes.set_title(f"{section.source}, in {section.env}", fontsize=9, loc="left")
    if section.batch.mean_return is not None:
        axes.axhline(section.batch.mean_return, color=BATCH_COLOUR, lw=1, ls=":")


def draw_scores(section: Section, colours: dict[str, str], axes: Axes) -> None:
    """The number of each seed as a dot, their interquartile mean and its interval."""
    shown = [score for one in section.ranked for score in one.scores]
    for place, setting in enumerate(section.ranked):
        colour, centre = colours[setting.label], setting.centre
        above = [place - 0.25] * len(setting.scores)
        axes.plot(setting.scores, above, "o", ms=4, mew=0, color=colour, alpha=0.6)
        axes.plot(centre.value, place, "|", ms=14, mew=2.5, color=colour)
        interval = centre.interval()
        if np.isfinite(interval.low):
            axes.plot(interval, [place, place], "-", lw=1.5, color=colour)
    if section.env is not None and section.batch.mean_return is not None:
        shown.append(section.batch.mean_return)
        axes.axvline(section.batch.mean_return, color=BATCH_COLOUR, lw=1, ls=":")
    # An interval of few seeds can be far wider than all that was seen; it is cut off.
    room = 0.5 * max(np.ptp(shown), 0.01 * abs(shown[0]), 1e-6)
    axes.set_xlim(min(shown) - room, max(shown) + room)
    axes.set_ylim(len(section.ranked) - 0.5, -0.6)
    axes.set_yticks(range(len(section.ranked)), [one.label for one in section.ranked], fontsize=8)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.set_xlabel(
        f"{section.source}: value by the judge"
        if section.env is None
        else f"return, last {LAST} evaluations (dotted: the batch)"
    )
    axes.set_title(
        f"dots: seeds; bar: interquartile mean; line: {LEVEL:.0%} interval", fontsize=8, loc="left"
    )
