"""Figures of runs: what is drawn is what was measured, by hand."""

from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from bcq.algorithms import ALGORITHMS
from bcq.runs.directory import Run
from bcq.runs.plots import learning_curves, value_curve, value_scatter
from bcq.runs.schedules import Schedule
from bcq.simulation.true_values import Values
from bcq.system.colours import BATCH_COLOUR, COLOURS
from run_cases import configuration

Lines = dict[str, tuple[list[float], list[float]]]


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Axes]:
    """The panel of each figure that is saved."""
    panels: list[Axes] = []
    save = Figure.savefig

    def noted(figure: Figure, *place: Any, **options: Any) -> None:
        panels.extend(figure.axes)
        save(figure, *place, **options)

    monkeypatch.setattr(Figure, "savefig", noted)
    return panels


def lines_of(axes: Axes) -> Lines:
    """Across and up, by label."""
    return {
        str(line.get_label()): (
            np.asarray(line.get_xdata()).tolist(),
            np.asarray(line.get_ydata()).tolist(),
        )
        for line in axes.get_lines()
    }


def styles_of(axes: Axes) -> dict[str, tuple[Any, Any, Any]]:
    """Colour, kind of line and kind of point, by label, of the lines that have one."""
    return {
        str(line.get_label()): (line.get_color(), line.get_linestyle(), line.get_marker())
        for line in axes.get_lines()
        if not str(line.get_label()).startswith("_")
    }


def vertices(axes: Axes, which: int) -> list[list[float]]:
    """Corners of a shaded area, or ends of error bars."""
    return [
        corner
        for path in axes.collections[which].get_paths()
        for corner in np.asarray(path.vertices).tolist()
    ]


def legend_of(axes: Axes) -> list[str]:
    legend = axes.get_legend()
    assert legend is not None
    return [text.get_text() for text in legend.get_texts()]


def make_run(directory: Path, algorithm: str = "bcq", mean_return: float | None = 40.0) -> Run:
    settings = {"discount": 0.9, "target_rate": 0.5}
    config = configuration(
        ALGORITHMS[algorithm](**settings),
        schedule=Schedule(env="Task-v0", steps=250),
        transitions=1234,
        mean_return=mean_return,
    )
    run = Run.create(directory, config)
    returns = {0: (1.0, 3.0), 100: (10.0, 30.0), 200: (50.0, 50.0)}
    run.append(
        "episodes.jsonl", [{"step": s, "return": r} for s, both in returns.items() for r in both]
    )
    run.append(
        "metrics.jsonl",
        [
            *({"step": step, "value_estimate": step / 20} for step in (100, 150)),
            *({"step": 175}, {"step": 200, "value_estimate": 9.0}),
        ],
    )
    pairs = {
        100: ((20.0, 2.0, 1.0), (40.0, 6.0, 1.0)),
        150: ((50.0, 1.0, 1.0), (50.0, 3.0, 1.0)),
        200: ((60.0, 3.0, 1.0), (80.0, 7.0, 1.0)),
    }
    run.append(
        "values.jsonl",
        [
            {"step": step, "row": 0, "estimate": estimate, "truth": truth, "limited": limited}
            for step, both in pairs.items()
            for estimate, truth, limited in both
        ],
    )
    return run


def test_learning_curves_are_means_with_half_a_standard_deviation(
    tmp_path: Path, drawn: list[Axes]
) -> None:
    runs = [make_run(tmp_path / name, name) for name in ("bcq", "ddpg")]
    learning_curves(runs, tmp_path / "curves.png")
    lines = lines_of(drawn[0])
    for name in ("BCQ", "DDPG"):
        assert lines[name] == ([0, 100, 200], [2, 20, 50])
    assert lines["average of the batch (40)"][1] == [40, 40]
    for area in (0, 1):  # standard deviations of 1, 10 and 0
        corners = vertices(drawn[0], area)
        for corner in ([0, 1.5], [0, 2.5], [100, 15], [100, 25], [200, 50]):
            assert corner in corners
        heights = [height for _, height in corners]
        assert [min(heights), max(heights)] == [1.5, 50]
    assert styles_of(drawn[0]) == {
        "BCQ": (COLOURS["bcq"], "-", "o"),
        "DDPG": (COLOURS["ddpg"], "-", "o"),
        "average of the batch (40)": (BATCH_COLOUR, "-", "None"),
    }
    areas = [np.asarray(area.get_facecolor())[0].tolist() for area in drawn[0].collections]
    assert [to_hex(area) for area in areas] == [to_hex(COLOURS[name]) for name in ("bcq", "ddpg")]
    assert (tmp_path / "curves.png").stat().st_size > 1_000
    assert drawn[0].get_xlabel() == "updates"
    assert drawn[0].get_ylabel().startswith("return of an episode")
    assert drawn[0].get_title(loc="left").startswith("Task-v0: learned from 1,234 logged steps")
    assert legend_of(drawn[0]) == ["BCQ", "DDPG", "average of the batch (40)"]


def test_a_batch_without_complete_episodes_has_no_line(tmp_path: Path, drawn: list[Axes]) -> None:
    learning_curves([make_run(tmp_path / "run", mean_return=None)], tmp_path / "curves.png")
    assert list(lines_of(drawn[0])) == ["BCQ"]


def test_value_curves_tell_estimate_from_truth(tmp_path: Path, drawn: list[Axes]) -> None:
    value_curve(make_run(tmp_path / "run"), tmp_path / "values.png")
    lines = lines_of(drawn[0])
    assert lines["estimate, minibatches"] == ([100, 150, 200], [5, 7.5, 9])
    assert lines["estimate, the measured pairs"] == ([100, 150, 200], [30, 50, 70])
    container = drawn[0].containers[0]
    assert container.get_label() == "truth, the same pairs (± half a std)"
    truth = container.get_children()[0]
    assert truth.get_color() == BATCH_COLOUR  # type: ignore[attr-defined]
    assert truth.get_ydata().tolist() == [4, 2, 5]  # type: ignore[attr-defined]
    ends = [[100, 3], [100, 5], [150, 1.5], [150, 2.5], [200, 4], [200, 6]]
    assert vertices(drawn[0], 0) == ends
    times, risen = lines["risen so far"]
    assert [times[0], times[-1]] == [0, 250]
    assert risen[0] == 0
    assert risen[20] == pytest.approx(5 * (1 - 0.9 ** (0.5 * 250 * 20 / 199)))
    assert [drawn[0].get_xlabel(), drawn[0].get_ylabel()] == [
        "updates",
        "value of a state-action pair",
    ]
    assert styles_of(drawn[0]) == {
        "estimate, minibatches": (COLOURS["bcq"], "-", "None"),
        "estimate, the measured pairs": (COLOURS["bcq"], "None", "o"),
        "risen so far": ("#777777", "--", "None"),
    }
    assert drawn[0].get_title(loc="left") == "Task-v0: BCQ"
    assert len(legend_of(drawn[0])) == 4
    assert (tmp_path / "values.png").read_bytes().startswith(b"\x89PNG")


def test_the_scatter_has_the_truth_across_and_the_estimate_up(
    tmp_path: Path, drawn: list[Axes]
) -> None:
    values = Values(np.arange(3), np.array([5.0, 6, 7]), np.array([1.0, 2, 3]), np.zeros(3))
    value_scatter(values, "a title", tmp_path / "scatter.png")
    pairs, agreement = lines = drawn[0].get_lines()
    assert np.asarray(pairs.get_xdata()).tolist() == [1, 2, 3]
    assert np.asarray(pairs.get_ydata()).tolist() == [5, 6, 7]
    assert [drawn[0].get_xlabel(), drawn[0].get_ylabel()] == ["true value", "estimated value"]
    styles = [(line.get_color(), line.get_linestyle(), line.get_marker()) for line in lines]
    assert styles == [(COLOURS["bcq"], "None", "."), (BATCH_COLOUR, ":", "None")]
    assert drawn[0].get_title(loc="left") == "a title"
    assert (tmp_path / "scatter.png").read_bytes().startswith(b"\x89PNG")
    assert agreement.get_slope() == 1  # type: ignore[attr-defined]
    assert agreement.get_xy1() == (1, 1)  # type: ignore[attr-defined]


def test_the_line_of_agreement_begins_at_the_smallest_number(
    tmp_path: Path, drawn: list[Axes]
) -> None:
    values = Values(np.arange(3), np.array([-4.0, 6, 7]), np.array([1.0, 2, 3]), np.zeros(3))
    value_scatter(values, "a title", tmp_path / "scatter.png")
    assert drawn[0].get_lines()[1].get_xy1() == (-4, -4)  # type: ignore[attr-defined]


def test_every_algorithm_has_a_colour() -> None:
    assert COLOURS.keys() == ALGORITHMS.keys()
    assert COLOURS["discrete-dqn"] == COLOURS["dqn"] != COLOURS["bcq"]
    okabe_ito = ["0072b2", "d55e00", "cc79a7", "009e73", "e69f00", "56b4e9"]
    assert sorted(set(COLOURS.values())) == sorted(f"#{colour}" for colour in okabe_ito)
    assert BATCH_COLOUR == "#000000"


def test_figures_have_no_frame_and_small_letters() -> None:
    assert mpl.rcParams["axes.spines.top"] is False
    assert mpl.rcParams["axes.spines.right"] is False
    assert mpl.rcParams["font.size"] == 10
