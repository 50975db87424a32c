"""The table of final and best returns, with interquartile means and bootstrap intervals."""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from bcq.experiments.records import LAST, Record
from bcq.experiments.statistics import interquartile_mean

RESAMPLES = 1_000


def interval(trials: Sequence[np.ndarray], seed: int = 0) -> tuple[float, float]:
    """95% bootstrap interval of the interquartile mean: resamples trials, then episodes."""
    random = np.random.default_rng(seed)
    means = []
    for _ in range(RESAMPLES):
        drawn = [trials[i] for i in random.integers(len(trials), size=len(trials))]
        means.append(interquartile_mean(np.concatenate([random.choice(t, len(t)) for t in drawn])))
    low, high = np.percentile(means, [2.5, 97.5])
    return float(low), float(high)


def table(records: Sequence[Record]) -> str:
    """One row per algorithm, task, environment and number of updates, in Markdown."""
    groups = defaultdict(list)
    for one in records:
        phi = one.settings.get("max_perturbation", 0.05)
        label = one.label if phi == 0.05 else f"{one.label}, Phi {phi:g}"
        groups[one.env, one.task, label, one.updates].append(one)
    rows = [
        "| environment | batch | its average | algorithm | updates | trials "
        f"| final: interquartile mean of the last {LAST} evaluations (95% interval) "
        "| mean of the final | best evaluation of each trial, mean |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for (env, task, label, updates), trials in sorted(groups.items()):
        last = [np.concatenate([r for _, r in one.evaluations[-LAST:]]) for one in trials]
        low, high = interval(last)
        averages = [one.batch["mean_return"] for one in trials if one.batch]
        average = f"{np.mean(averages):.0f}" if averages and None not in averages else ""
        rows.append(
            f"| {env} | {task} | {average} | {label} | {updates:,} | {len(trials)} "
            f"| {interquartile_mean(np.concatenate(last)):.0f} ({low:.0f} to {high:.0f}) "
            f"| {np.mean([one.final for one in trials]):.0f} "
            f"| {np.mean([one.best for one in trials]):.0f} |"
        )
    return "\n".join(rows) + "\n"
