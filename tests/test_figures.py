"""The paper's figures: each line is the trials it is said to be, by hand."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bcq.experiments.records import Record
from bcq.paper import figures
from test_claims import as_in_the_paper, measured, record

HERE = "Hopper-v5"


def lines_of(axes: Axes) -> dict[str, list[float]]:
    """The heights of each line that has a name."""
    return {
        str(line.get_label()): np.asarray(line.get_ydata()).tolist() for line in axes.get_lines()
    }


def panels(figure: Figure | None) -> list[Axes]:
    assert figure is not None
    return figure.axes


def trials(task: str, algorithm: str, level: float, **changes: Any) -> list[Record]:
    """Three of them: returns, truths, estimates and batches at 1, 2 and 6 times a level."""
    return [
        record(
            task,
            algorithm,
            level * times,
            seed=seed,
            estimates=[(2_500, 10 * level * times)],
            truths=[{"step": 5_000, "estimate": 20 * level * times, "truth": 30 * level * times}],
            batch={
                "mean_return": 7.0 * times,
                "expert_return": 70.0 * times,
                "largest_reward": 1.0,
            },
            **changes,
        )
        for seed, times in enumerate((1, 2, 6))
    ]


def test_a_line_of_values_is_the_mean_of_its_trials_and_each_of_them() -> None:
    runs = trials("imitation", "bcq", 1.0, experiments=["values"])
    (axes,) = panels(figures.figure_3(runs))
    assert lines_of(axes)["BCQ"] == [30, 60]  # the minibatches' and the pairs' estimates
    assert lines_of(axes)["BCQ, true value"] == [90]
    thin = [line for line in axes.get_lines() if str(line.get_label()).startswith("_")]
    assert [np.asarray(line.get_ydata()).tolist() for line in thin] == [
        [10, 20],
        [20, 40],
        [60, 120],
    ]


def test_figure_1_has_batch_and_expert_as_means() -> None:
    runs = trials("imitation", "ddpg", 1.0, experiments=["extrapolation"])
    above, below = panels(figures.figure_1(runs))
    assert lines_of(above)["the batch"] == [21, 21]
    assert lines_of(above)["expert, without noise"] == [210, 210]
    assert lines_of(above)["DDPG"][-1] == 3
    assert lines_of(below)["DDPG, true value"] == [90]


def test_a_panel_has_its_own_task_environment_and_phi() -> None:
    wanted = trials("imitation", "bcq", 1.0)
    strangers = [
        *trials("imperfect", "bcq", 100.0),
        *trials("imitation", "bcq", 100.0, env="HalfCheetah-v5"),
        *trials("imitation", "bcq", 100.0, settings={"max_perturbation": 2.0}),
        *trials("imitation", "bcq", 100.0, experiments=["random"]),
    ]
    for runs in ([*wanted, *strangers], [*strangers, *wanted]):
        found = {axes.get_title(): lines_of(axes) for axes in panels(figures.figure_2(runs))}
        assert found[f"{HERE}: imitation"]["BCQ"][-1] == pytest.approx(3)
        assert found[f"{HERE}: imitation"]["the batch"] == [21, 21]
        assert found[f"{HERE}: imperfect"]["BCQ"][-1] == pytest.approx(300)


def test_figure_7_has_a_line_for_each_phi() -> None:
    runs = [
        run
        for phi, level in ((0.05, 1.0), (0.5, 2.0), (2.0, 3.0))
        for run in trials(
            "imitation",
            "bcq",
            level,
            settings={"max_perturbation": phi},
            experiments=["perturbation"],
        )
    ]
    others = trials("imperfect", "bcq", 50.0, settings={"max_perturbation": 0.7})
    returns, values = panels(figures.figure_7([*runs, *others]))
    for label, level in (("Φ = 0.05", 1), ("Φ = 0.5", 2), ("Φ = 2", 3)):
        assert lines_of(returns)[label][-1] == pytest.approx(3 * level)
        assert lines_of(values)[label] == [30 * level, 60 * level]
    assert [label for label in lines_of(values) if "Φ" in label] == ["Φ = 0.05", "Φ = 0.5", "Φ = 2"]


def test_figures_8_and_9_have_the_truths_that_they_are_about() -> None:
    ensembles = [
        run
        for members, level in ((4, 2.0), (10, 3.0))
        for run in trials(
            "imitation",
            "ensemble",
            level,
            settings={"members": members},
            experiments=["uncertainty"],
        )
    ]
    _, values = panels(figures.figure_8(ensembles))
    named = [label for label in lines_of(values) if not label.startswith("_")]
    assert named == [
        f"ensemble of {members}{truth}" for members in (4, 10) for truth in ("", ", true value")
    ]
    assert lines_of(values)["ensemble of 10, true value"] == [270]
    on_random = [
        run
        for name, level in (("bcq", 1.0), ("ddpg", 2.0))
        for run in trials("random", name, level, experiments=["random"])
    ]
    _, values = panels(figures.figure_9(on_random))
    assert lines_of(values)["BCQ, true value"] == [90]
    assert lines_of(values)["DDPG, true value"] == [180]


@pytest.mark.parametrize(("estimate", "scale"), [(900.0, "linear"), (1_100.0, "symlog")])
def test_values_an_order_of_magnitude_apart_are_told_apart(estimate: float, scale: str) -> None:
    calm = record("imitation", "bcq", 1, estimates=[], truths=measured((5_000, 100.0)))
    wild = replace(calm, algorithm="ddpg", truths=measured((5_000, estimate)))
    (axes,) = panels(figures.figure_3([calm, wild]))
    assert axes.get_yscale() == scale


def test_an_experiment_without_runs_has_no_figure() -> None:
    others = [run for run in as_in_the_paper() if run.experiments == ["random"]]
    for draw in (figures.figure_1, figures.figure_2, figures.figure_3, figures.figure_7):
        assert draw(others) is None
    assert figures.figure_8(others) is None
    assert figures.figure_9(as_in_the_paper()[:3]) is None
