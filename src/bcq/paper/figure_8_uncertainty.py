"""Figure 8: ensembles that minimise their disagreement, on Hopper imitation (supplement D.2)."""

from collections.abc import Callable, Sequence

import numpy as np
from matplotlib.figure import Figure

from bcq.algorithms import BCQConfig, EnsembleConfig
from bcq.algorithms.learning import AlgorithmConfig
from bcq.experiments.jobs import Job
from bcq.experiments.records import Record
from bcq.paper import evidence as of
from bcq.paper.claims import OFF, SMOOTH, Measured
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
from bcq.system.colours import COLOURS

TWICE = 1.0  # log2 of the ratio
BOTH_SIZES = {"the smaller": 0, "the larger": -1}


def jobs(preset: Preset) -> list[tuple[int, Job]]:
    """Two sizes of ensemble, and BCQ."""
    configs: list[AlgorithmConfig] = [EnsembleConfig(members=m) for m in preset.members]
    return [*preset.trainings("uncertainty", [*configs, BCQConfig()])]


def figure_8(records: Sequence[Record]) -> Figure | None:
    """Ensembles and BCQ on imitation data."""
    ensembles = {one.label for one in records if one.algorithm == "ensemble"}
    if not ensembles:
        return None
    labels = sorted(ensembles, key=lambda label: int(label.split()[-1]))
    groups = by_label(records, "uncertainty", "imitation", ["bcq", *labels])
    colours = (COLOURS["ensemble"], "#004f70")
    styles = {**STYLES, **dict(zip(labels, colours, strict=False))}
    figure, grid = panels(1, 2)
    shaded_returns(grid[0][0], groups, styles)
    batch_line(grid[0][0], groups)
    value_lines(grid[0][1], groups, styles, truth_of=labels)
    return finished(figure, grid, records, "imitation: ensembles that minimise uncertainty")


def ensemble(evidence: Evidence, which: int) -> str:
    """The label of the smallest (0) or the largest (-1) ensemble of Figure 8."""
    sizes = sorted(
        {one.settings["members"] for one in evidence.records if one.algorithm == "ensemble"}
    )
    if len(sizes) < 2:
        raise NotEnoughError("ensembles of two sizes on imitation")
    return f"ensemble of {sizes[which]}"


def of_ensemble(which: int, measure: Callable[[Record], float]) -> Measure:
    """One number per trial of the smaller or the larger ensemble."""
    return lambda evidence: {
        trial: measure(one)
        for trial, one in evidence.runs(
            "uncertainty", "imitation", ensemble(evidence, which)
        ).items()
    }


def ensemble_against(
    which: int, other: str | int, compare: Callable[[Record, Record], float]
) -> Measure:
    """Compares an ensemble with BCQ or with the other ensemble, trial by trial."""

    def measure(evidence: Evidence) -> Numbers:
        label = other if isinstance(other, str) else ensemble(evidence, other)
        return of.paired(
            evidence.runs("uncertainty", "imitation", ensemble(evidence, which)),
            evidence.runs("uncertainty", "imitation", label),
            compare,
        )

    return measure


NOT_CONSTRAINED = AllOf(
    [
        OnAverage(
            f"distance of {name} from the logged actions, against BCQ's",
            ensemble_against(
                which,
                "bcq",
                lambda a, b: float(
                    np.log2(
                        of.measure_of(a, "action_distance") / of.measure_of(b, "action_distance")
                    )
                ),
            ),
            "above",
            TWICE,
        )
        for name, which in BOTH_SIZES.items()
    ]
)

ENSEMBLES_SUFFER = AllOf(
    [
        OnAverage(f"{name} against BCQ", ensemble_against(which, "bcq", of.ahead), "below", 0.0)
        for name, which in BOTH_SIZES.items()
    ]
)

ENSEMBLES_STABILISE = AllOf(
    [
        *(
            OnAverage(f"off by, {name}", of_ensemble(which, of.settled_error), "below", OFF)
            for name, which in BOTH_SIZES.items()
        ),
        *(
            OnAverage(f"jumps, {name}", of_ensemble(which, of.roughness), "below", SMOOTH)
            for name, which in BOTH_SIZES.items()
        ),
    ]
)

LARGER_KNOWS_MORE = AllOf(
    [
        OnAverage(
            "the larger's share of random actions doubted, less the smaller's",
            ensemble_against(
                -1,
                0,
                lambda a, b: (
                    of.measure_of(a, "doubt_in_unseen_actions")
                    - of.measure_of(b, "doubt_in_unseen_actions")
                ),
            ),
            "above",
            0.0,
        )
    ]
)

CLAIMS = (
    Measured(
        "Supplement D.2, Figure 8",
        "neither ensemble method is sufficient to constrain the action space to only the expert "
        "actions",
        "actions of either ensemble at least twice as far from the logged ones as BCQ's (root mean "
        "square; log2 of the ratio above 1)",
        NOT_CONSTRAINED,
    ),
    Measured(
        "Supplement D.2, Figure 8, caption",
        "suffer in performance compared to our approach, BCQ",
        "final of either ensemble below BCQ's, trial by trial",
        ENSEMBLES_SUFFER,
    ),
    Measured(
        "Supplement D.2, Figure 8",
        "the value function is stabilized, suggesting that ensembles are an effective strategy for "
        "eliminating outliers or large deviations in the value from erroneous extrapolation",
        f"values of either ensemble off by less than the truth itself, and jumps below "
        f"{SMOOTH:.0%} of their level",
        ENSEMBLES_STABILISE,
    ),
    Measured(
        "Supplement D.2, Figure 8",
        "Unsurprisingly, the large ensemble provides a more accurate estimate of the uncertainty.",
        "the larger ensemble is more often less certain of a random action than of the one logged "
        "in the same state",
        LARGER_KNOWS_MORE,
    ),
)
