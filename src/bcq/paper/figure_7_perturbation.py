"""Figure 7: how far BCQ may move a sampled action, on imitation data (supplement D.1)."""

from collections.abc import Callable, Sequence

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from bcq.algorithms import BCQConfig
from bcq.experiments.jobs import Job
from bcq.experiments.records import Record
from bcq.paper import evidence as of
from bcq.paper.claims import Measured
from bcq.paper.drawing import (
    batch_line,
    finished,
    panels,
    shaded_returns,
    value_lines,
)
from bcq.paper.evidence import Evidence, Measure, NotEnoughError, Numbers, Trial
from bcq.paper.judging import AllOf, OnAverage
from bcq.paper.presets import Preset

DROP = -0.1  # of the batch's average: the size of a clear drop


def jobs(preset: Preset) -> list[tuple[int, Job]]:
    """BCQ with each Phi."""
    configs = [BCQConfig(max_perturbation=phi) for phi in preset.perturbations]
    return [*preset.trainings("perturbation", configs)]


def figure_7(records: Sequence[Record]) -> Figure | None:
    """BCQ with each Phi on imitation data."""
    mine = [one for one in records if "perturbation" in one.experiments and one.role == "learner"]
    sizes = sorted({one.settings["max_perturbation"] for one in mine})
    if len(sizes) < 2:
        return None
    groups = {
        f"Φ = {phi:g}": [one for one in mine if one.settings["max_perturbation"] == phi]
        for phi in sizes
    }
    shades = mpl.colormaps["cividis"](np.linspace(0, 0.95, len(sizes)))
    styles = {name: mpl.colors.to_hex(shade) for name, shade in zip(groups, shades, strict=True)}
    figure, grid = panels(1, 2)
    shaded_returns(grid[0][0], groups, styles)
    batch_line(grid[0][0], groups)
    value_lines(grid[0][1], groups, styles, truth_of=[])
    return finished(figure, grid, records, "imitation: how far BCQ may move a sampled action")


def large_phi_against_small(value: Callable[[Record], float]) -> Measure:
    """A number at Phi of 1 or more, minus the same at 0.1 or less, trial by trial (Figure 7)."""

    def measure(evidence: Evidence) -> Numbers:
        groups: dict[str, dict[Trial, list[float]]] = {"small": {}, "large": {}}
        for one in evidence.records:
            if "perturbation" in one.experiments and one.role == "learner":
                phi = one.settings["max_perturbation"]
                size = "small" if phi <= 0.1 else "large" if phi >= 1 else None
                if size is not None:
                    trials = groups[size].setdefault(Trial(one.env, one.seed), [])
                    trials.append(value(one))
        both = sorted(groups["small"].keys() & groups["large"].keys())
        if not both:
            raise NotEnoughError("bcq on imitation with a Phi of at most 0.1 and one of at least 1")
        return {
            trial: float(np.mean(groups["large"][trial]) - np.mean(groups["small"][trial]))
            for trial in both
        }

    return measure


LARGE_PHI_DROPS = AllOf(
    [
        OnAverage(
            "Phi of 1 or more against 0.1 or less",
            large_phi_against_small(
                lambda one: of.share(one.final, of.batch_return(one), "the batch's average")
            ),
            "below",
            DROP,
        )
    ]
)

LARGE_PHI_UNSTABLE = AllOf(
    [
        OnAverage(
            "Phi of 1 or more against 0.1 or less",
            large_phi_against_small(of.settled_error),
            "above",
            0.0,
        )
    ]
)

CLAIMS = (
    Measured(
        "Supplement D.1, Figure 7",
        "We observe a clear drop in performance with the increase of Phi",
        f"final at Phi of 1 or more lower than at 0.1 or less by more than {-DROP:.0%} of the "
        "batch's average, trial by trial",
        LARGE_PHI_DROPS,
    ),
    Measured(
        "Supplement D.1, Figure 7",
        "along with an increase in instability in the value function",
        "values farther from the truth at Phi of 1 or more than at 0.1 or less, trial by trial",
        LARGE_PHI_UNSTABLE,
    ),
)
