"""The paper's figures: each line is the trials it is said to be, by hand."""

from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bcq.experiments.records import Record
from bcq.paper import drawing, figures
from bcq.paper.figure_1_extrapolation import figure_1
from bcq.paper.figure_2_results import figure_2
from bcq.paper.figure_3_values import figure_3
from bcq.paper.figure_7_perturbation import figure_7
from bcq.paper.figure_8_uncertainty import figure_8
from bcq.paper.figure_9_random_behaviour import figure_9
from bcq.system.colours import BATCH_COLOUR, COLOURS
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
    (axes,) = panels(figure_3(runs))
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
    above, below = panels(figure_1(runs))
    assert lines_of(above)["the batch"] == [21, 21]
    assert lines_of(above)["expert, without noise"] == [210, 210]
    assert lines_of(above)["DDPG"][-1] == 3
    assert lines_of(below)["DDPG, true value"] == [90]


@pytest.mark.parametrize("tasks", [["imitation"], ["final-buffer", "concurrent", "imitation"]])
def test_title_and_legend_are_inside_the_picture(tasks: list[str]) -> None:
    """Hopper with imitation alone has one column."""
    runs = [
        run for task in tasks for run in trials(task, "ddpg", 1.0, experiments=["extrapolation"])
    ]
    figure = figure_1(runs)
    assert figure is not None
    figure.savefig(BytesIO())
    for part in figure.findobj(lambda one: one in figure.texts or one in figure.legends):
        box = part.get_window_extent()
        assert 0 <= box.x0 < box.x1 <= figure.bbox.x1


def test_a_panel_has_its_own_task_environment_and_phi() -> None:
    wanted = trials("imitation", "bcq", 1.0)
    strangers = [
        *trials("imperfect", "bcq", 100.0),
        *trials("imitation", "bcq", 100.0, env="HalfCheetah-v5"),
        *trials("imitation", "bcq", 100.0, settings={"max_perturbation": 2.0}),
        *trials("imitation", "bcq", 100.0, experiments=["random"]),
    ]
    for runs in ([*wanted, *strangers], [*strangers, *wanted]):
        found = {axes.get_title(): lines_of(axes) for axes in panels(figure_2(runs))}
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
    returns, values = panels(figure_7([*runs, *others]))
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
    _, values = panels(figure_8(ensembles))
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
    _, values = panels(figure_9(on_random))
    assert lines_of(values)["BCQ, true value"] == [90]
    assert lines_of(values)["DDPG, true value"] == [180]


@pytest.mark.parametrize(
    ("estimate", "scale"), [(900.0, "linear"), (1_000.0, "linear"), (1_100.0, "symlog")]
)
def test_values_an_order_of_magnitude_apart_are_told_apart(estimate: float, scale: str) -> None:
    calm = record("imitation", "bcq", 1, estimates=[], truths=measured((5_000, 100.0)))
    wild = replace(calm, algorithm="ddpg", truths=measured((5_000, estimate)))
    (axes,) = panels(figure_3([calm, wild]))
    assert axes.get_yscale() == scale


def test_an_experiment_without_runs_has_no_figure() -> None:
    others = [run for run in as_in_the_paper() if run.experiments == ["random"]]
    for draw in (figure_1, figure_2, figure_3, figure_7):
        assert draw(others) is None
    assert figure_8(others) is None
    assert figure_9(as_in_the_paper()[:3]) is None


def test_agents_that_experts_are_chosen_from_alone_make_no_figure() -> None:
    """As when only they are recorded yet."""
    runs = trials("experts", "ddpg", 1.0, role="candidate", experiments=["results", "values"])
    assert [draw(runs) for draw in (figure_2, figure_3)] == [None, None]


def test_an_agent_alone_makes_no_panel() -> None:
    """It is recorded before the learners that need its batch have run."""
    runs = trials("imitation", "bcq", 10.0)
    agent = replace(runs[0], role="agent", task="final-buffer", algorithm="ddpg", batch=None)
    for draw in (figure_2, figure_3):
        assert size_of(draw([*runs, agent])) == size_of(draw(runs))


def test_values_below_one_are_not_told_apart() -> None:
    tiny = record("imitation", "bcq", 1, estimates=[(0, 0.01)], truths=[])
    for estimate, scale in ((9.0, "linear"), (11.0, "symlog")):
        other = replace(tiny, algorithm="ddpg", estimates=[(0, estimate)])
        axes = Figure().subplots()
        drawing.value_lines(axes, {"bcq": [tiny], "ddpg": [other]}, drawing.STYLES, truth_of=[])
        assert axes.get_yscale() == scale


def test_every_batch_that_was_run_has_a_panel_environment_by_environment_four_in_a_row() -> None:
    batches = [
        *[("HalfCheetah-v5", task) for task in ("imperfect", "imitation")],
        *[(HERE, task) for task in ("imperfect", "imitation", "concurrent")],
    ]
    runs = [
        run
        for env, task in batches
        for run in trials(task, "bcq", 1.0, env=env, experiments=["values"])
    ]
    found = panels(figure_3(runs))
    assert [axes.get_title() for axes in found] == [  # and no empty panel
        *[f"{HERE}: {task}" for task in ("concurrent", "imitation", "imperfect")],
        *[f"HalfCheetah-v5: {task}" for task in ("imitation", "imperfect")],
    ]
    rows = [axes.get_subplotspec().rowspan.start for axes in found]  # type: ignore[union-attr]
    columns = [axes.get_subplotspec().colspan.start for axes in found]  # type: ignore[union-attr]
    assert (rows, columns) == ([0, 0, 0, 0, 1], [0, 1, 2, 3, 0])
    assert len(panels(figure_3(runs[:6]))) == 2


def test_figures_of_two_panels_have_returns_with_the_batch_beside_values() -> None:
    random = [
        run
        for name, level in (("bcq", 1.0), ("ddpg", 2.0))
        for run in trials("random", name, level, experiments=["random"])
    ]
    with_phi = [
        run
        for phi in (0.05, 2.0)
        for run in trials(
            "imitation",
            "bcq",
            1.0,
            settings={"max_perturbation": phi},
            experiments=["perturbation"],
        )
    ]
    of_ensembles = [
        *trials("imitation", "bcq", 1.0, experiments=["uncertainty"]),
        *(
            run
            for members in (10, 4)
            for run in trials(
                "imitation",
                "ensemble",
                2.0,
                settings={"members": members},
                experiments=["uncertainty"],
            )
        ),
    ]
    for draw, runs, labels in (
        (figure_9, random, ["BCQ", "DDPG"]),
        (figure_7, with_phi, ["Φ = 0.05", "Φ = 2"]),
        (figure_8, of_ensembles, ["BCQ", "ensemble of 4", "ensemble of 10"]),
    ):
        returns, values = panels(draw(runs))
        assert [*lines_of(returns)] == [*labels, "the batch"]
        assert lines_of(returns)["the batch"] == [21, 21]
        assert len(returns.collections) == len(labels)  # shaded
        edges = np.asarray(returns.collections[0].get_paths()[0].vertices)[:, 1]
        half = np.std([1, 2, 6]) / 2  # over trials
        assert np.abs(edges - (3 - half)).min() == pytest.approx(0, abs=1e-9)
        assert np.abs(edges - (3 + half)).min() == pytest.approx(0, abs=1e-9)
        assert [label for label in lines_of(values) if label in labels] == labels
        assert [axes.get_ylabel() for axes in (returns, values)] == ["return", "value"]
        assert {axes.get_xlabel() for axes in (returns, values)} == {"updates"}
        colours = {str(line.get_label()): line.get_color() for line in returns.get_lines()}
        assert len(set(colours.values())) == len(colours)
        for line in values.get_lines():
            label = str(line.get_label()).removesuffix(", true value")
            assert label.startswith("_") or line.get_color() == colours[label]


def test_one_legend_names_every_line_once_and_the_title_the_place() -> None:
    runs = trials("imitation", "bcq", 1.0, experiments=["values"])
    figure = figure_3([*runs, *trials("imperfect", "bcq", 1.0, experiments=["values"])])
    assert figure is not None
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["BCQ", "BCQ, true value"]
    assert figure.get_suptitle().startswith(f"{HERE}: estimated values")
    there = trials("imitation", "bcq", 1.0, env="HalfCheetah-v5", experiments=["values"])
    figure = figure_3([*runs, *there])
    assert figure is not None
    assert figure.get_suptitle().startswith("estimated values")


def test_what_was_not_measured_is_not_drawn() -> None:
    runs = trials("imitation", "ddpg", 1.0, experiments=["extrapolation"])
    unknown = {"mean_return": None, "expert_return": None, "largest_reward": 1.0}
    nothing = [replace(run, batch=unknown) for run in runs]
    above, _ = panels(figure_1(nothing))
    assert [label for label in lines_of(above) if not label.startswith("_")] == ["DDPG"]
    above, _ = panels(figure_1([*nothing[:2], runs[2]]))  # the third's alone
    assert lines_of(above)["the batch"] == [42, 42]
    assert "expert, without noise" not in lines_of(above)
    above, _ = panels(figure_1([replace(run, batch=None) for run in runs]))
    assert not {"the batch", "expert, without noise"} & lines_of(above).keys()
    silent = [replace(runs[0], estimates=[], truths=[]), *runs[1:]]
    (axes,) = panels(figure_1(silent))  # no line of values where a trial has none
    assert axes.get_ylabel() == "return"


def test_every_figure_has_its_name_and_both_formats(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(figures, "save", lambda _, path: path)
    found = figures.draw_all(as_in_the_paper(), tmp_path / "new")
    assert (tmp_path / "new").is_dir()
    assert sorted(path.name for path in found) == sorted(
        f"{name}.{ending}"
        for name in (
            *("results", "values", "extrapolation-Hopper-v5", "extrapolation-HalfCheetah-v5"),
            *("perturbation-Hopper-v5", "perturbation-HalfCheetah-v5", "random-Pendulum-v1"),
            *("uncertainty-Hopper-v5", "uncertainty-HalfCheetah-v5", "random-Reacher-v5"),
        )
        for ending in ("png", "pdf")
    )


def test_the_same_figure_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        figure = figure_3(trials("imitation", "bcq", 1.0, experiments=["values"]))
        assert figure is not None
        for ending in ("pdf", "png"):
            path = tmp_path / f"{name}.{ending}"
            assert figures.save(figure, path) == path
    assert (tmp_path / "one.pdf").read_bytes().startswith(b"%PDF")
    assert b"CreationDate" not in (tmp_path / "one.pdf").read_bytes()
    assert (tmp_path / "one.png").read_bytes().startswith(b"\x89PNG")
    for ending in ("pdf", "png"):
        one, two = (tmp_path / f"{name}.{ending}" for name in ("one", "two"))
        assert one.read_bytes() == two.read_bytes()


def phis(*sizes: float) -> list[Record]:
    return [
        run
        for phi in sizes
        for run in trials(
            "imitation",
            "bcq",
            1.0,
            settings={"max_perturbation": phi},
            experiments=["perturbation"],
        )
    ]


def size_of(figure: Figure | None) -> list[float]:
    assert figure is not None
    return [round(float(inches), 2) for inches in figure.get_size_inches()]


def test_a_figure_is_as_large_as_its_panels() -> None:
    tasks = ("final-buffer", "concurrent", "imitation")
    changes: dict[str, Any] = {"experiments": ["extrapolation", "values"]}
    runs = [run for task in tasks for run in trials(task, "ddpg", 1.0, **changes)]
    assert size_of(figure_1(runs)) == [7.2, 5.1]
    assert size_of(figure_1(runs[:6])) == [6.5, 5.1]
    assert size_of(figure_3(runs)) == [7.2, 2.8]
    assert size_of(figure_7(phis(0.05, 2.0))) == [6.5, 2.8]
    ensembles = trials(
        "imitation", "ensemble", 2.0, settings={"members": 4}, experiments=["uncertainty"]
    )
    assert size_of(figure_8(ensembles)) == [6.5, 2.8]
    on_random = trials("random", "bcq", 1.0, experiments=["random"])
    assert size_of(figure_9(on_random)) == [6.5, 2.8]


def test_a_larger_phi_is_a_brighter_line() -> None:
    agent = record("imitation", "ddpg", 1, role="agent", experiments=["perturbation"])
    returns, _ = panels(figure_7([*phis(2.0, 0.1, 0.5, 0.05), agent]))
    lines = [line for line in returns.get_lines() if "Φ" in str(line.get_label())]
    assert [line.get_label() for line in lines] == ["Φ = 0.05", "Φ = 0.1", "Φ = 0.5", "Φ = 2"]
    shades = mpl.colormaps["cividis"](np.array([0, 0.95 / 3, 2 * 0.95 / 3, 0.95]))
    assert [line.get_color() for line in lines] == [mpl.colors.to_hex(one) for one in shades]


def test_every_line_has_the_name_of_its_algorithm_and_all_of_it_one_colour() -> None:
    names = {"bcq": "BCQ", "ddpg": "DDPG", "dqn": "DQN", "bc": "BC", "vae-bc": "VAE-BC"}
    runs = [run for name in names for run in trials("imitation", name, 1.0)]
    (axes,) = panels(figure_2(runs))
    found = {str(line.get_label()): line.get_color() for line in axes.get_lines()}
    wanted = {label: COLOURS[name] for name, label in names.items()}
    assert found == {**wanted, "the batch": BATCH_COLOUR}
    shaded = [mpl.colors.to_hex(np.asarray(area.get_facecolor())[0]) for area in axes.collections]
    assert shaded == [mpl.colors.to_hex(colour) for colour in wanted.values()]


def test_the_agents_lines_are_told_from_those_of_the_learner() -> None:
    runs = [
        *trials("imitation", "ddpg", 1.0),
        *trials("imitation", "ddpg", 2.0, role="agent"),
    ]
    above, below = panels(figure_1(runs))
    returns = [line for line in above.get_lines() if len(np.asarray(line.get_xdata())) > 2]
    agent, learner = drawing.STYLES["behaviour"], COLOURS["ddpg"]
    colours = [line.get_color() for line in returns]
    assert colours == [agent] * 4 + [learner] * 4  # three trials and their mean
    named = {str(line.get_label()): line for line in above.get_lines()}
    assert named["the batch"].get_color() == BATCH_COLOUR
    assert named["the batch"].get_linestyle() == "--"
    assert named["expert, without noise"].get_color() == drawing.STYLES["behaviour"]
    values = {str(line.get_label()): line for line in below.get_lines()}
    assert values["DDPG"].get_marker() == "."
    assert values["DDPG"].get_linestyle() == "-"
    assert values["DDPG, true value"].get_linestyle() == ":"
    assert values["DDPG, true value"].get_color() == COLOURS["ddpg"]


def test_the_scale_of_values_is_chosen_by_how_far_they_are_from_nothing() -> None:
    calm = record("imitation", "bcq", 1, estimates=[(0, -1.0), (1, 3.0)], truths=[])
    for lowest, truth, scale in (
        (-29.0, 3.0, "linear"),
        (-31.0, 3.0, "symlog"),
        (3.0, -31.0, "symlog"),
        (3.0, 31.0, "symlog"),
    ):
        wild = replace(
            calm,
            algorithm="ddpg",
            estimates=[(0, 1.0), (1, lowest)],
            truths=[
                {"step": 0, "estimate": 1.0, "truth": 1.0},
                {"step": 2, "estimate": lowest, "truth": truth},
            ],
        )
        axes = Figure().subplots()
        groups = {"bcq": [calm], "ddpg": [wild]}
        drawing.value_lines(axes, groups, drawing.STYLES, truth_of=["ddpg"])
        assert axes.get_yscale() == scale
        if scale == "symlog":
            transform: Any = axes.yaxis.get_transform()
            assert transform.linthresh == 3


def test_estimates_of_minibatches_and_of_pairs_are_one_line_in_time() -> None:
    run = record(
        "imitation", "bcq", 1, estimates=[(1, 10.0), (3, 30.0)], truths=measured((2, 20.0))
    )
    assert drawing.estimates(run) == [(1, 10), (2, 20), (3, 30)]


def test_steps_are_told_in_thousands_at_a_few_places() -> None:
    (axes,) = panels(figure_3(trials("imitation", "bcq", 1.0, experiments=["values"])))
    assert axes.xaxis.get_major_formatter()(20_000) == "20k"
    assert len(axes.xaxis.get_major_locator().tick_values(0, 1e6)) <= 5
    sizes = [text.get_fontsize() for text in (axes.title, axes.xaxis.label, axes.yaxis.label)]
    assert sizes == [8, 8, 8]
    assert {label.get_fontsize() for label in axes.get_xticklabels()} == {7}
