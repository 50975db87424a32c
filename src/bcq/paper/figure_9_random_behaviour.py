"""Figure 9: learning from 5,000 uniformly random actions (supplement D.3)."""

from collections.abc import Callable, Sequence

import numpy as np
from matplotlib.figure import Figure

from bcq.algorithms import BCConfig, BCQConfig, DDPGConfig, name_of
from bcq.algorithms.learning import AlgorithmConfig
from bcq.experiments.jobs import Job
from bcq.experiments.records import Record
from bcq.paper import evidence as of
from bcq.paper.claims import Measured
from bcq.paper.drawing import (
    STYLES,
    batch_line,
    by_label,
    finished,
    panels,
    shaded_returns,
    value_lines,
)
from bcq.paper.evidence import Evidence, Measure, NotEnoughError, Numbers
from bcq.paper.judging import AllOf, OnAverage
from bcq.paper.presets import Preset

LEARNED, NOT_LEARNED = 0.75, 0.25  # of the way from the batch's average to a solved task
SOLVED = {"Pendulum-v1": -150.0, "Reacher-v5": -3.75}  # for Reacher, from Gymnasium's registry

ALGORITHMS: tuple[AlgorithmConfig, ...] = (BCQConfig(vae_l2=1e-3), DDPGConfig(), BCConfig())


def jobs(preset: Preset) -> list[tuple[int, Job]]:
    """BCQ with a regularised VAE, DDPG, and BC: "any imitation learning would fail"."""
    return [*preset.trainings("random", ALGORITHMS)]


def figure_9(records: Sequence[Record]) -> Figure | None:
    """Every algorithm on random data, with the true values of BCQ and DDPG."""
    labels = [name_of(config) for config in ALGORITHMS]
    groups = by_label(records, "random", "random", labels)
    if not any(groups.values()):
        return None
    figure, grid = panels(1, 2)
    shaded_returns(grid[0][0], groups, STYLES)
    batch_line(grid[0][0], groups)
    value_lines(grid[0][1], groups, STYLES, truth_of=["bcq", "ddpg"])
    return finished(figure, grid, records, "learned from random actions")


def progress(label: str, env: str, solved: float) -> Measure:
    """The final return: 0 is the batch's average, 1 is a solved task."""

    def measure(evidence: Evidence) -> Numbers:
        runs = evidence.runs("random", "random", label)
        here = {trial: one for trial, one in runs.items() if trial.env == env}
        if not here:
            raise NotEnoughError(f"runs of {label} on {env}")
        return {
            trial: (one.final - of.batch_return(one)) / (solved - of.batch_return(one))
            for trial, one in here.items()
        }

    return measure


def beside(env: str, label: str, other: str, compare: Callable[[Record, Record], float]) -> Measure:
    """Compares two algorithms on random data of one environment, trial by trial."""

    def measure(evidence: Evidence) -> Numbers:
        one, two = (evidence.runs("random", "random", name) for name in (label, other))
        here = {trial: run for trial, run in one.items() if trial.env == env}
        return of.paired(here, two, compare)

    return measure


def rougher(one: Record, other: Record) -> float:
    """log10 of the ratio of the roughness of two runs' values."""
    return float(np.log10(of.roughness(of.settled(one)) / of.roughness(of.settled(other))))


BOTH_LEARN = AllOf(
    [
        OnAverage(f"{label} on {env}", progress(label, env, solved), "above", LEARNED)
        for env, solved in SOLVED.items()
        for label in ("bcq", "ddpg")
    ]
)

IMITATION_FAILS = AllOf(
    [
        OnAverage(f"bc on {env}", progress("bc", env, solved), "below", NOT_LEARNED)
        for env, solved in SOLVED.items()
    ]
)

STABLER_ON_PENDULUM = AllOf(
    [
        OnAverage(
            "DDPG's jumps against BCQ's",
            beside("Pendulum-v1", "ddpg", "bcq", rougher),
            "above",
            0.0,
        )
    ]
)

BETTER_ON_REACHER = AllOf(
    [
        OnAverage(
            "Reacher-v5",
            beside("Reacher-v5", "bcq", "ddpg", lambda a, b: a.final - b.final),
            "above",
            0.0,
        )
    ]
)

CLAIMS = (
    Measured(
        "Supplement D.3, Figure 9",
        "both BCQ and DDPG are able to learn successfully in these off-policy tasks",
        f"final at least {LEARNED:.0%} of the way from the batch's average to a solved task "
        "(Pendulum -150, Reacher -3.75)",
        BOTH_LEARN,
    ),
    Measured(
        "Supplement D.3, Figure 9, caption",
        "any imitation learning would fail as the data collection procedure is entirely random",
        f"BC's final less than {NOT_LEARNED:.0%} of that way",
        IMITATION_FAILS,
    ),
    Measured(
        "Supplement D.3, Figure 9, caption",
        "BCQ exhibits more stability in the value function for the Pendulum task",
        f"at {of.SETTLED:,} updates or more, DDPG's estimates jump by more than BCQ's, in units of "
        "their level (log10 of the ratio above 0)",
        STABLER_ON_PENDULUM,
    ),
    Measured(
        "Supplement D.3, Figure 9, caption",
        "and outperforms DDPG in the Reacher task",
        "BCQ's final above DDPG's, trial by trial",
        BETTER_ON_REACHER,
    ),
)
