"""Figures 1 and 4: offline DDPG against its behavioural agent, in three batches (Section 3.1)."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from bcq.algorithms import DDPGConfig
from bcq.experiments.jobs import Job
from bcq.experiments.records import Record
from bcq.paper import evidence as of
from bcq.paper.claims import EARLY, OFF, SMOOTH, Measured
from bcq.paper.drawing import (
    STYLES,
    batch_line,
    by_label,
    expert_line,
    finished,
    panels,
    thin_returns,
    value_lines,
)
from bcq.paper.evidence import Evidence, Measure, NotEnoughError, Numbers, Trial
from bcq.paper.judging import AllOf, EachTrial, OnAverage
from bcq.paper.presets import FIGURE_1, Preset

GAP = 0.75  # of the agent's return: below it, the gap is large
YOUNG = 2_000  # updates: before, an estimate is still that of an untrained network


def jobs(preset: Preset) -> list[tuple[int, Job]]:
    """DDPG on every batch. The agents that collect the batches are drawn too."""
    return [*preset.trainings("extrapolation", [DDPGConfig()])]


def figure_1(records: Sequence[Record]) -> Figure | None:
    """Returns above, values below; one thin line per trial, and a bold line for the mean."""
    panels_of = {
        task: by_label(records, "extrapolation", task, ["behaviour", "ddpg"]) for task in FIGURE_1
    }
    tasks = [task for task, groups in panels_of.items() if groups["ddpg"]]
    if not tasks:
        return None
    figure, grid = panels(2, len(tasks))
    for column, task in enumerate(tasks):
        groups = panels_of[task]
        thin_returns(grid[0][column], groups, STYLES)
        batch_line(grid[0][column], groups)
        expert_line(grid[0][column], groups)
        value_lines(grid[1][column], groups, STYLES, truth_of=["ddpg"])
        grid[0][column].set_title(task)
    return finished(figure, grid, records, "offline DDPG and the agent that made its batch")


def of_the_behaviour(task: str) -> Measure:
    """The final return of offline DDPG in units of its agent's or expert's, without noise."""

    def measure(evidence: Evidence) -> Numbers:
        offline = evidence.runs("extrapolation", task, "ddpg")
        if task == "imitation":
            return {
                t: of.share(one.final, of.expert(one), "the expert") for t, one in offline.items()
            }
        agents = evidence.runs("extrapolation", task, "behaviour")
        return of.paired(offline, agents, lambda a, b: of.share(a.final, b.final, "the agent"))

    return measure


def gaps_of_each_trial(evidence: Evidence) -> dict[Trial, Sequence[float]]:
    """The last returns of offline DDPG in units of its agent's final, in the concurrent task."""
    offline = evidence.runs("extrapolation", "concurrent", "ddpg")
    agents = evidence.runs("extrapolation", "concurrent", "behaviour")
    both = sorted(offline.keys() & agents.keys())
    return {
        t: [
            of.share(r, agents[t].final, "the agent") for r in of.last_episodes(offline[t]).tolist()
        ]
        for t in both
    }


def early_error_of(task: str, label: str, first: int, last: int) -> Measure:
    """The error of the values at the first measurement between two updates."""

    def at(one: Record) -> float:
        if one.divergence is not None and one.divergence["step"] <= last:
            return float(np.log10(of.LARGEST_ERROR))
        between = [row for row in one.truths if first <= row["step"] <= last]
        if not between:
            raise NotEnoughError(f"true values of {label} by update {last:,}")
        return of.error_at(between[0])

    return lambda evidence: {
        trial: at(one) for trial, one in evidence.runs("extrapolation", task, label).items()
    }


def largest_share_of_ceiling(task: str) -> Measure:
    """The largest estimate of an agent, in units of the ceiling of its values."""

    def measure(evidence: Evidence) -> Numbers:
        agents = evidence.runs("extrapolation", task, "behaviour")
        offline = evidence.runs("extrapolation", task, "ddpg")
        return of.paired(agents, offline, lambda a, b: largest_estimate(a) / ceiling(b))

    return measure


def largest_estimate(one: Record) -> float:
    """The largest estimate of the whole run."""
    if one.divergence is not None:
        return of.LARGEST_ERROR
    if not one.estimates:
        raise NotEnoughError(f"estimates of {one.label} on {one.task}")
    return max(value for _, value in one.estimates)


def ceiling(one: Record) -> float:
    """The value of earning the largest reward of the batch at every step."""
    if one.batch is None:
        raise NotEnoughError("the batch's largest reward")
    return float(one.batch["largest_reward"] / (1 - one.settings["discount"]))


WORSE = AllOf([OnAverage(task, of_the_behaviour(task), "below", GAP) for task in FIGURE_1])

WORSE_EVERY_TIME = AllOf([EachTrial("concurrent, every trial", gaps_of_each_trial, "below", GAP)])

DIVERGES = AllOf(
    [OnAverage(task, of.error_of("extrapolation", task, "ddpg"), "above", OFF) for task in FIGURE_1]
)

AGENT_IS_STABLE = AllOf(
    [
        *(
            OnAverage(
                f"jumps, {task}",
                of.roughness_of("extrapolation", task, "behaviour"),
                "below",
                SMOOTH,
            )
            for task in ("final-buffer", "concurrent")
        ),
        *(
            OnAverage(f"share of the ceiling, {task}", largest_share_of_ceiling(task), "below", 1.0)
            for task in ("final-buffer", "concurrent")
        ),
    ]
)

RAPIDLY = AllOf(
    [OnAverage("imitation", early_error_of("imitation", "ddpg", YOUNG, EARLY), "above", OFF)]
)

FAILS_TO_LEARN = AllOf([OnAverage("imitation", of_the_behaviour("imitation"), "below", 0.1)])

CLAIMS = (
    Measured(
        "Section 3.1, Figure 1 (its caption: a large gap)",
        "In each task, the off-policy agent performances significantly worse than the behavioral "
        "agent.",
        f"offline DDPG's final below {GAP:.0%} of its agent's or expert's without noise, in each "
        "of three batches",
        WORSE,
    ),
    Measured(
        "Section 3.1, Figure 1b",
        "Even in the concurrent experiment, where both agents are trained with the same dataset, "
        "there is a large gap in performance in every single trial.",
        f"in every trial, offline DDPG's last 30 episodes average below {GAP:.0%} of the final of "
        "its own agent",
        WORSE_EVERY_TIME,
    ),
    Measured(
        "Figure 1, caption",
        "the value estimates are unstable or divergent across all tasks",
        "offline DDPG's values off by more than the truth itself, in each of three batches",
        DIVERGES,
    ),
    Measured(
        "Section 3.1, Figure 1",
        "the value estimate of the behavioral agent is highly stable",
        f"over the second half of its life an agent's estimates jump by less than {SMOOTH:.0%} of "
        "their level, and never exceed the largest reward for ever, on both buffers",
        AGENT_IS_STABLE,
    ),
    Measured(
        "Section 3.1, Figure 1f",
        "In the imitation setting [...] the value estimates rapidly diverge",
        f"at the first measurement from update {YOUNG:,} to {EARLY:,}, DDPG's values are off by "
        "more than the truth itself",
        RAPIDLY,
    ),
    Measured(
        "Section 3.1, Figure 1c",
        "In the imitation setting, the agent is provided with expert data. However, [...] the "
        "agent fails to learn.",
        "offline DDPG's final below a tenth of the expert's return",
        FAILS_TO_LEARN,
    ),
)
