"""The tables of returns: algorithms side by side, and each one in detail."""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from bcq.experiments.records import LAST, Record
from bcq.paper.drawing import NAMES
from bcq.paper.figure_2_results import LABELS
from bcq.paper.presets import MUJOCO, RECIPES


def side_by_side(records: Sequence[Record]) -> str:
    """The final returns of Figure 2: one row per batch, one column per algorithm, in Markdown.

    Without runs of Figure 2, there is no table.
    """
    rows = [
        f"| batch | updates | its average | {' | '.join(NAMES[label] for label in LABELS)} |",
        "|---|---|---|" + "---|" * len(LABELS),
    ]
    for task in RECIPES:
        for env in MUJOCO:
            here = [
                one
                for one in records
                if (one.env, one.task, one.role) == (env, task, "learner")
                and "results" in one.experiments
            ]
            if here:
                updates = " or ".join(
                    f"{steps:,}" for steps in sorted({one.updates for one in here})
                )
                cells = [finals([one for one in here if one.label == label]) for label in LABELS]
                rows.append(
                    f"| {env}, {task} | {updates} | {average(here)} | {' | '.join(cells)} |"
                )
    return "\n".join(rows) + "\n\n" if len(rows) > 2 else ""


def finals(trials: Sequence[Record]) -> str:
    """The mean over trials of the final return; the trials in brackets, if there are several."""
    if not trials:
        return ""
    each = [one.final for one in sorted(trials, key=lambda one: one.seed)]
    listed = f" ({', '.join(str(round(final)) for final in each)})" if len(each) > 1 else ""
    return f"{round(float(np.mean(each)))}{listed}"


def average(runs: Sequence[Record]) -> str:
    """The average return of the batches' complete episodes, if all are known."""
    averages = [one.batch["mean_return"] for one in runs if one.batch]
    return f"{np.mean(averages):.0f}" if averages and None not in averages else ""


def table(records: Sequence[Record]) -> str:
    """One row per algorithm, task, environment and number of updates, in Markdown."""
    groups = defaultdict(list)
    for one in records:
        phi = one.settings.get("max_perturbation", 0.05)
        label = one.label if phi == 0.05 else f"{one.label}, Phi {phi:g}"
        groups[one.env, one.task, label, one.updates].append(one)
    rows = [
        "| environment | batch | its average | algorithm | updates | trials "
        f"| final: mean of the last {LAST} evaluations (each trial) "
        "| best evaluation of each trial, mean |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for (env, task, label, updates), trials in sorted(groups.items()):
        rows.append(
            f"| {env} | {task} | {average(trials)} | {label} | {updates:,} | {len(trials)} "
            f"| {finals(trials)} | {np.mean([one.best for one in trials]):.0f} |"
        )
    return "\n".join(rows) + "\n"
