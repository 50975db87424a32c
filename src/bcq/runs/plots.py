"""Figures of run directories."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from bcq.runs.configuration import LoggedBatch
from bcq.runs.directory import Run, returns_by_step
from bcq.runs.value_logs import values_by_step
from bcq.simulation.true_values import Values
from bcq.system.colours import BATCH_COLOUR, COLOURS
from bcq.system.files import replacing


def learning_curves(runs: Sequence[Run], path: Path) -> None:
    """Return against updates: the mean, half a standard deviation, and the average of the batch."""
    figure = Figure(figsize=(6.0, 3.6), dpi=150, layout="constrained")
    axes = figure.subplots()
    for run in runs:
        evaluations = returns_by_step(run)
        steps = np.array(list(evaluations))
        means = np.array([np.mean(returns) for returns in evaluations.values()])
        spreads = np.array([np.std(returns) for returns in evaluations.values()])
        name = run.config.algorithm_name
        axes.fill_between(
            steps, means - spreads / 2, means + spreads / 2, color=COLOURS[name], alpha=0.25, lw=0
        )
        axes.plot(steps, means, "o-", ms=3.5, color=COLOURS[name], label=name.upper())
    batch, env = runs[0].config.dataset, runs[0].config.schedule.env
    assert isinstance(batch, LoggedBatch)
    if batch.mean_return is not None:
        axes.axhline(
            batch.mean_return,
            color=BATCH_COLOUR,
            lw=2,
            label=f"average of the batch ({batch.mean_return:.0f})",
        )
    axes.set_xlabel("updates")
    axes.set_ylabel("return of an episode (mean, ± half a std)")
    axes.set_title(
        f"{env}: learned from {batch.transitions:,} logged steps, no exploration",
        fontsize=10,
        loc="left",
    )
    axes.legend(frameon=False)
    with replacing(path) as temporary:
        figure.savefig(temporary, format="png")


def value_curve(run: Run, path: Path) -> None:
    """Estimated value against updates, and the true value where it was measured (as in Figure 3).

    The dashed line shows how far the estimate can have risen towards the last true value, because
    the target network is slow: the share 1 - gamma^(tau t). An estimate below it may still rise.
    """
    figure = Figure(figsize=(6.0, 3.6), dpi=150, layout="constrained")
    axes = figure.subplots()
    name, settings = run.config.algorithm_name, asdict(run.algorithm)
    colour = COLOURS[name]
    estimates = [
        (row["step"], row["value_estimate"])
        for row in run.read("metrics.jsonl")
        if "value_estimate" in row
    ]
    axes.plot(*np.array(estimates).reshape(-1, 2).T, color=colour, label="estimate, minibatches")
    measured = values_by_step(run)
    steps = np.array(list(measured))
    truths = np.array([values.truths.mean() for values in measured.values()])
    spreads = np.array([values.truths.std() for values in measured.values()])
    believed = [values.estimates.mean() for values in measured.values()]
    axes.plot(steps, believed, "o", ms=4, color=colour, label="estimate, the measured pairs")
    axes.errorbar(
        steps,
        truths,
        spreads / 2,
        fmt="s:",
        ms=4,
        capsize=3,
        color=BATCH_COLOUR,
        label="truth, the same pairs (± half a std)",
    )
    times = np.linspace(0, run.config.schedule.steps, 200)
    risen = 1 - settings["discount"] ** (settings["target_rate"] * times)
    axes.plot(times, risen * truths[-1], "--", lw=1, color="#777777", label="risen so far")
    axes.set(xlabel="updates", ylabel="value of a state-action pair")
    axes.set_title(f"{run.config.schedule.env}: {name.upper()}", fontsize=10, loc="left")
    axes.legend(frameon=False, fontsize=8)
    with replacing(path) as temporary:
        figure.savefig(temporary, format="png")


def value_scatter(values: Values, title: str, path: Path) -> None:
    """Estimated against true value, one point per pair; on the line the two are equal."""
    figure = Figure(figsize=(4.2, 4.0), dpi=150, layout="constrained")
    axes = figure.subplots()
    axes.plot(values.truths, values.estimates, ".", color=COLOURS["bcq"])
    low = min(values.truths.min(), values.estimates.min())
    axes.axline((low, low), slope=1, lw=1, ls=":", color=BATCH_COLOUR)
    axes.set(xlabel="true value", ylabel="estimated value")
    axes.set_title(title, fontsize=10, loc="left")
    with replacing(path) as temporary:
        figure.savefig(temporary, format="png")
