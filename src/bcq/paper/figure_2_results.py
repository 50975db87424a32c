"""Figures 2 and 5: BCQ and every baseline in four batches (Section 5)."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bcq.algorithms import BCConfig, BCQConfig, DDPGConfig, DQNConfig, VAEBCConfig, name_of
from bcq.algorithms.learning import AlgorithmConfig
from bcq.experiments.jobs import Job
from bcq.experiments.records import LAST, Record, returns
from bcq.paper import evidence as of
from bcq.paper.claims import EARLY, MATCHES, Measured
from bcq.paper.drawing import STYLES, batch_line, panel_by_batch, shaded_returns
from bcq.paper.evidence import Measure, NotEnoughError
from bcq.paper.judging import AllOf, AnyOf, OnAverage
from bcq.paper.presets import RECIPES, Preset

STRONGLY = 1.5  # times the batch's average return
POORLY = 0.5  # of the expert's return without noise
OTHERS = ("ddpg", "dqn", "bc", "vae-bc")

ALGORITHMS: tuple[AlgorithmConfig, ...] = (
    BCQConfig(),
    DDPGConfig(),
    DQNConfig(),
    BCConfig(),
    VAEBCConfig(),
)
LABELS = [name_of(config) for config in ALGORITHMS]


def jobs(preset: Preset) -> list[tuple[int, Job]]:
    """Every algorithm on every batch."""
    return [*preset.trainings("results", ALGORITHMS)]


def figure_2(records: Sequence[Record]) -> Figure | None:
    """Returns of every algorithm: mean over trials, half a standard deviation shaded."""

    def draw(axes: Axes, groups: dict[str, list[Record]]) -> None:
        shaded_returns(axes, groups, STYLES)
        batch_line(axes, groups)

    return panel_by_batch(records, "results", LABELS, draw, "what each algorithm learns")


def of_the_expert(task: str, label: str) -> Measure:
    """Final return in units of the expert's."""
    return lambda evidence: {
        trial: of.share(one.final, of.expert(one), "the expert's return")
        for trial, one in evidence.runs("results", task, label).items()
    }


def early(task: str, label: str, updates: int) -> Measure:
    """Mean of the last three evaluations up to an update, in units of the batch's average."""

    def at(one: Record) -> float:
        steps = [step for step, _ in one.evaluations if 0 < step <= updates]
        if not steps or one.evaluations[-1][0] < updates:
            raise NotEnoughError(f"{updates:,} updates of {label}; there are {one.updates:,}")
        means = [mean for step, mean in returns(one) if step in steps[-LAST:]]
        return of.share(float(np.mean(means)), of.batch_return(one), "the batch's average")

    return lambda evidence: {t: at(one) for t, one in evidence.runs("results", task, label).items()}


def matching(task: str) -> OnAverage:
    """Whether BCQ matches the batch's average."""
    return OnAverage(task, of.of_the_batch("results", task, "bcq"), "above", MATCHES)


def falling_short(label: str, task: str) -> OnAverage:
    """Whether another algorithm stays below the batch's average."""
    return OnAverage(
        f"{label} on {task}", of.of_the_batch("results", task, label), "below", MATCHES
    )


def leading(task: str, other: str) -> OnAverage:
    """Whether BCQ ends above another algorithm."""
    return OnAverage(f"{task}, over {other}", of.lead("results", task, "bcq", other), "above", 0.0)


def cloning_leads(clone: str) -> AllOf:
    """Whether one way of cloning ends above BCQ, DDPG and DQN, on imitation."""
    return AllOf(
        [
            OnAverage(
                f"{clone} over {other}", of.lead("results", "imitation", clone, other), "above", 0
            )
            for other in ("bcq", "ddpg", "dqn")
        ]
    )


INCAPABLE = AllOf([falling_short(label, task) for label in ("ddpg", "dqn") for task in RECIPES])

MATCHES_ALL = AllOf([matching(task) for task in RECIPES])

ONLY_BCQ = AllOf(
    [
        *map(matching, RECIPES),
        *(
            AnyOf(f"{label} fails somewhere", [falling_short(label, t) for t in RECIPES])
            for label in OTHERS
        ),
    ]
)

OUTPERFORMS = AllOf(
    [leading(task, other) for task in RECIPES if task != "imitation" for other in OTHERS]
)

CLONING_BEST = AllOf(
    [AnyOf("cloning is best on imitation", [cloning_leads("bc"), cloning_leads("vae-bc")])]
)

POOR_ON_IMPERFECT = AllOf(
    [OnAverage(label, of_the_expert("imperfect", label), "below", POORLY) for label in OTHERS]
)

BEATS_DEMONSTRATOR = AllOf(
    [OnAverage("imperfect", of.of_the_batch("results", "imperfect", "bcq"), "above", STRONGLY)]
)

FEW_ITERATIONS = AllOf(
    [OnAverage("imperfect", early("imperfect", "bcq", EARLY), "above", STRONGLY)]
)

CLAIMS = (
    Measured(
        "Abstract",
        "due to errors introduced by extrapolation, standard off-policy deep reinforcement "
        "learning algorithms, such as DQN and DDPG, are incapable of learning without data "
        "correlated to the distribution under the current policy, making them ineffective for "
        "this fixed batch setting",
        f"DDPG's and DQN's final below {MATCHES:.0%} of the batch's average, in each of four tasks",
        INCAPABLE,
    ),
    Measured(
        "Section 5, Figure 2",
        "matching or outperforming the behavioral policy in each instance",
        f"BCQ's final above {MATCHES:.0%} of the batch's average, in each of four tasks",
        MATCHES_ALL,
    ),
    Measured(
        "Section 5, Figure 2",
        "Our approach, BCQ, is the only algorithm which succeeds at all tasks",
        f"BCQ's final above {MATCHES:.0%} of the batch's average in each of four tasks; each of "
        "DDPG, DQN, BC and VAE-BC below it in at least one",
        ONLY_BCQ,
    ),
    Measured(
        "Section 5, Figure 2",
        "outperforming all other agents, besides in the imitation learning task",
        "BCQ's final above that of each of the four others, trial by trial, in each of three tasks",
        OUTPERFORMS,
    ),
    Measured(
        "Section 5, Figure 2c",
        "the imitation learning task where behavioral cloning unsurprisingly performs the best",
        "BC's or VAE-BC's final above those of BCQ, DDPG and DQN, trial by trial",
        CLONING_BEST,
    ),
    Measured(
        "Section 5, Figure 2d",
        "In the imperfect demonstrations task, we find that both deep reinforcement learning and "
        "imitation learning algorithms perform poorly.",
        f"final of DDPG, DQN, BC and VAE-BC below {POORLY:.0%} of the expert's return, which is "
        "without noise",
        POOR_ON_IMPERFECT,
    ),
    Measured(
        "Section 5, Figure 2d",
        "BCQ, however, is able to strongly outperform the noisy demonstrator",
        f"BCQ's final above {STRONGLY:g} times the batch's average",
        BEATS_DEMONSTRATOR,
    ),
    Measured(
        "Section 5, Figure 2d",
        "BCQ attains a high performance in remarkably few iterations",
        f"the last three evaluations by update {EARLY:,} average above {STRONGLY:g} times the "
        "batch's average, on imperfect demonstrations",
        FEW_ITERATIONS,
    ),
)
