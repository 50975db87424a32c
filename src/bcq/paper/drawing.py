"""The parts that the figures are drawn with."""

from collections.abc import Callable, Mapping, Sequence
from itertools import chain, product
from textwrap import fill

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, MaxNLocator

from bcq.experiments.records import Numbers, Record, aligned, returns
from bcq.paper.presets import MUJOCO, RECIPES, ExperimentName
from bcq.system.colours import BATCH_COLOUR, COLOURS

Groups = Mapping[str, Sequence[Record]]  # the trials of each line


Styles = Mapping[str, str]  # the colour of each line


NAMES = {
    "bcq": "BCQ",
    "ddpg": "DDPG",
    "dqn": "DQN",
    "bc": "BC",
    "vae-bc": "VAE-BC",
    "behaviour": "behavioural agent",
}


BEHAVIOUR_COLOUR = "#777777"


def by_label(
    records: Sequence[Record], experiment: ExperimentName, task: str, labels: Sequence[str]
) -> dict[str, list[Record]]:
    """The trials of each line of a panel; of BCQ, those with its default Phi."""
    return {
        label: [
            one
            for one in records
            if experiment in one.experiments
            and one.task == task
            and one.label == label
            and one.settings.get("max_perturbation", 0.05) == 0.05
        ]
        for label in labels
    }


def panel_by_batch(
    records: Sequence[Record],
    experiment: ExperimentName,
    labels: Sequence[str],
    draw: Callable[[Axes, dict[str, list[Record]]], None],
    title: str,
) -> Figure | None:
    """One panel per environment and task that was run, four in a row, as in Figures 2 and 5."""
    mine = [one for one in records if experiment in one.experiments and one.label in labels]
    run = {(one.env, one.task) for one in mine}
    batches = [batch for batch in product(MUJOCO, RECIPES) if batch in run]
    if not batches:  # for example, only candidates for experts so far
        return None
    columns = min(len(RECIPES), len(batches))
    figure, grid = panels(-(-len(batches) // columns), columns)
    for axes, (env, task) in zip(chain(*grid), batches, strict=False):
        here = [one for one in mine if one.env == env]
        draw(axes, by_label(here, experiment, task, labels))
        axes.set_title(f"{env}: {task}")
    return finished(figure, grid, mine, title)


Draw = Callable[[Sequence[Record]], Figure | None]


STYLES = {**COLOURS, "behaviour": BEHAVIOUR_COLOUR}


def panels(rows: int, columns: int) -> tuple[Figure, list[list[Axes]]]:
    """A figure with panels that are legible at the width of a column."""
    width = 3.25 if columns < 3 else 2.4
    figure = Figure(figsize=(width * columns, 2.3 * rows + 0.5), dpi=160, layout="constrained")
    grid: list[list[Axes]] = figure.subplots(rows, columns, squeeze=False).tolist()
    for axes in chain(*grid):
        axes.tick_params(labelsize=7)
    return figure, grid


def finished(
    figure: Figure, grid: list[list[Axes]], records: Sequence[Record], title: str
) -> Figure:
    """Adds labels and one legend for all panels; removes empty panels."""
    handles: dict[str, Artist] = {}
    for axes in chain(*grid):
        if not axes.has_data():
            axes.remove()
            continue
        lines, names = axes.get_legend_handles_labels()
        handles |= dict(zip(names, lines, strict=True))
        axes.set_xlabel("updates", fontsize=8)
        axes.set_title(axes.get_title(), fontsize=8)
        axes.xaxis.set_major_locator(MaxNLocator(4))
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    environments = {one.env for one in records}
    where = f"{environments.pop()}: " if len(environments) == 1 else ""
    width = figure.get_figwidth()  # of one panel or of three
    figure.suptitle(fill(f"{where}{title}", round(14 * width)), fontsize=9)
    figure.legend(
        list(handles.values()),
        list(handles),
        loc="outside lower center",
        ncols=min(4, round(0.6 * width)),
        frameon=False,
        fontsize=7,
    )
    return figure


def shaded_returns(axes: Axes, groups: Groups, styles: Styles) -> None:
    """The mean over trials, with half a standard deviation shaded."""
    for label, trials in groups.items():
        if trials:
            steps, means = aligned(map(returns, trials))
            mean, half = means.mean(axis=0), means.std(axis=0) / 2
            axes.fill_between(steps, mean - half, mean + half, color=styles[label], alpha=0.2, lw=0)
            axes.plot(steps, mean, color=styles[label], lw=1.4, label=NAMES.get(label, label))
    axes.set_ylabel("return", fontsize=8)


def thin_returns(axes: Axes, groups: Groups, styles: Styles) -> None:
    """One thin line per trial, and a bold line for the mean."""
    for label, trials in groups.items():
        if trials:
            steps, means = aligned(map(returns, trials))
            thin_and_bold(axes, steps, means, styles[label], NAMES.get(label, label))
    axes.set_ylabel("return", fontsize=8)


def thin_and_bold(axes: Axes, steps: Numbers, trials: Numbers, colour: str, label: str) -> None:
    """One thin line per trial, and a bold line for the mean."""
    axes.plot(steps, trials.T, color=colour, lw=0.6, alpha=0.6)
    axes.plot(steps, trials.mean(axis=0), ".-", ms=5, color=colour, lw=2, label=label)


def value_lines(axes: Axes, groups: Groups, styles: Styles, *, truth_of: Sequence[str]) -> None:
    """Estimates as thin and bold lines; the truth dotted, if it was measured."""
    sizes: list[float] = []  # the largest value of each line
    for label, trials in groups.items():
        series = [estimates(one) for one in trials]
        if not series or not all(series):
            continue
        steps, values = aligned(series)
        name = NAMES.get(label, label)
        thin_and_bold(axes, steps, values, styles[label], name)
        sizes.append(float(np.abs(values).max()))
        if label in truth_of:
            at, truths = aligned([(r["step"], r["truth"]) for r in one.truths] for one in trials)
            mean = truths.mean(axis=0)
            axes.plot(at, mean, ":", marker=".", color=styles[label], label=f"{name}, true value")
            sizes.append(float(np.abs(mean).max()))
    if sizes and max(sizes) > 10 * (smallest := max(min(sizes), 1.0)):
        axes.set_yscale("symlog", linthresh=smallest)
    axes.set_ylabel("value", fontsize=8)


def estimates(one: Record) -> list[tuple[int, float]]:
    """The estimates of minibatches, and those of the pairs whose truth was measured."""
    rows = {**dict(one.estimates), **{row["step"]: row["estimate"] for row in one.truths}}
    return sorted(rows.items())


def batch_line(axes: Axes, groups: Groups) -> None:
    """The average return of the batches' complete episodes."""
    means = [
        one.batch["mean_return"]
        for trials in groups.values()
        for one in trials
        if one.batch and one.batch["mean_return"] is not None
    ]
    if means:
        axes.axhline(float(np.mean(means)), color=BATCH_COLOUR, lw=1.4, ls="--", label="the batch")


def expert_line(axes: Axes, groups: Groups) -> None:
    """The return of the experts without noise, if experts collected the batch."""
    means = [one.batch["expert_return"] for one in groups["ddpg"] if one.batch]
    if means and all(mean is not None for mean in means):
        axes.axhline(
            float(np.mean(means)), color=BEHAVIOUR_COLOUR, lw=2, label="expert, without noise"
        )
