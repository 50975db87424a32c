"""Figures 3 and 5: estimated and true values of the algorithms that have values."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bcq.algorithms import BCQConfig, DDPGConfig, DQNConfig, name_of
from bcq.algorithms.learning import AlgorithmConfig
from bcq.experiments.jobs import Job
from bcq.experiments.records import Record
from bcq.paper import evidence as of
from bcq.paper.claims import NEAR, SMOOTH, Measured
from bcq.paper.drawing import STYLES, panel_by_batch, value_lines
from bcq.paper.judging import AllOf, OnAverage
from bcq.paper.presets import RECIPES, Preset

ALGORITHMS: tuple[AlgorithmConfig, ...] = (BCQConfig(), DDPGConfig(), DQNConfig())


def jobs(preset: Preset) -> list[tuple[int, Job]]:
    """BCQ, DDPG and DQN on every batch."""
    return [*preset.trainings("values", ALGORITHMS)]


def figure_3(records: Sequence[Record]) -> Figure | None:
    """Value estimates, and the true value of BCQ."""

    def draw(axes: Axes, groups: dict[str, list[Record]]) -> None:
        value_lines(axes, groups, STYLES, truth_of=["bcq"])

    labels = [name_of(config) for config in ALGORITHMS]
    title = "estimated values, and BCQ's true ones"
    return panel_by_batch(records, "values", labels, draw, title)


STABLE = AllOf(
    [
        *(
            OnAverage(f"off by, {task}", of.error_of("values", task, "bcq"), "below", NEAR)
            for task in RECIPES
        ),
        *(
            OnAverage(f"jumps, {task}", of.roughness_of("values", task, "bcq"), "below", SMOOTH)
            for task in RECIPES
        ),
    ]
)

UNLIKE_BASELINES = AllOf(
    [
        OnAverage(
            f"{label} against bcq, {task}",
            of.error_above("values", task, label, "bcq"),
            "above",
            0.0,
        )
        for task in RECIPES
        for label in ("ddpg", "dqn")
    ]
)

CLAIMS = (
    Measured(
        "Figures 3 and 5, captions",
        "BCQ exhibits a highly stable value function in each task",
        "in each of four tasks BCQ's values are off by less than half the truth and jump by less "
        f"than {SMOOTH:.0%} of their level late in training",
        STABLE,
    ),
    Measured(
        "Section 5, Figures 3 and 5",
        "unlike the deep reinforcement learning algorithms, DDPG and DQN",
        "DDPG's and DQN's values are farther from their truth than BCQ's from its own, trial by "
        "trial, in each of four tasks",
        UNLIKE_BASELINES,
    ),
)
