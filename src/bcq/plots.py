"""Run directories as figures."""

from collections import defaultdict
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from bcq.files import replacing
from bcq.runs import Run

mpl.rcParams.update({"axes.spines.top": False, "axes.spines.right": False, "font.size": 10})
BCQ_COLOUR = "#0072b2"  # from the Okabe-Ito palette, told apart by every kind of colour vision
BATCH_COLOUR = "#000000"


def returns_by_step(run: Run) -> dict[int, list[float]]:
    """Each evaluation's returns, in the order they were made."""
    returns: dict[int, list[float]] = defaultdict(list)
    for row in run.read("episodes.jsonl"):
        returns[row["step"]].append(row["return"])
    return returns


def learning_curve(run: Run, path: Path) -> None:
    """Return against updates: mean, half a standard deviation shaded, the batch's own average."""
    evaluations = returns_by_step(run)
    steps = np.array(list(evaluations))
    means = np.array([np.mean(returns) for returns in evaluations.values()])
    spreads = np.array([np.std(returns) for returns in evaluations.values()])
    batch = run.config["dataset"]
    figure = Figure(figsize=(6.0, 3.6), dpi=150, layout="constrained")
    axes = figure.subplots()
    axes.fill_between(
        steps, means - spreads / 2, means + spreads / 2, color=BCQ_COLOUR, alpha=0.25, lw=0
    )
    name = run.config["algorithm"].upper()
    axes.plot(steps, means, "o-", ms=3.5, color=BCQ_COLOUR, label=f"{name} (mean, ± half a std)")
    if batch["mean_return"] is not None:
        axes.axhline(
            batch["mean_return"],
            color=BATCH_COLOUR,
            lw=2,
            label=f"average of the batch ({batch['mean_return']:.0f})",
        )
    axes.set_xlabel("updates")
    axes.set_ylabel("return of an episode")
    schedule = run.config["schedule"]
    axes.set_title(
        f"{schedule['env']}: learned from {batch['transitions']:,} logged steps, no exploration",
        fontsize=10,
        loc="left",
    )
    axes.legend(frameon=False, loc="lower right")
    with replacing(path) as temporary:
        figure.savefig(temporary, format="png")
