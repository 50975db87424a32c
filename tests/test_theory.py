"""`bcq theory`: what a student sees."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.text import Annotation, Text

from bcq.cli.application import main
from bcq.experiments import jobs, kinds
from bcq.paper.evidence import Evidence
from bcq.paper.judging import FAILS
from bcq.paper.section_4_theory import CLAIMS
from bcq.system import progress
from bcq.tabular import KernelBasedRL, TabularBatch, greedy, grid_world, illustrations, q_learning
from bcq.tabular import walk as theory
from bcq.tabular.illustrations import (
    Counterexample,
    Grid,
    counterexample,
    learn_grid,
    measure_causes,
)
from bcq.tabular.mdp import Doubles, Indices
from bcq.tabular.theorems import STATEMENTS, Statement
from tabular_cases import steps

WIDTH, HEIGHT, GOAL = 7, 5, 34  # of the grid


@pytest.fixture(scope="module")
def grid() -> Grid:
    return learn_grid(0)


@pytest.fixture(scope="module")
def pictures(grid: Grid) -> dict[str, Figure]:
    return {"values": theory.draw_values(grid), "error": theory.draw_error(grid)}


@pytest.fixture(autouse=True)
def few_cases(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(theory, "STATEMENTS", [replace(s, cases=2) for s in STATEMENTS])
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_bcql_has_a_policy_where_the_batch_goes_and_none_is_needed_at_the_end(grid: Grid) -> None:
    visited = np.isin(np.arange(len(grid.free)), grid.batch.states)
    np.testing.assert_array_equal(grid.defined("BCQL"), visited | grid.mdp.terminal)
    assert grid.defined("truth").all()


def test_the_walk_shows_every_part_and_draws_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["theory", "--out", str(tmp_path / "theory")])
    printed = capsys.readouterr().out
    assert "Q(s0,a1) = 1/(1-gamma^2) = 5.2632, Q(s1,a0) = 4.7368" in printed
    assert "it takes a1 in s0 and a1 in s1" in printed
    assert "it takes a1 in s0 and a0 in s1: the optimal policy" in printed
    assert "holds at gamma = 0.3, 0.6, 0.9; KBRL is off Eq. 21 by at most" in printed
    for statement in STATEMENTS:
        row = next(line for line in printed.splitlines() if statement.says in line)
        assert "holds" in row
    for heading in ("A grid in which", "Causes of", "Statements, checked on", "Pictures"):
        assert f"\n\n{heading}" in printed
    for name in ("grid_values.png", "grid_error.png", "causes.png"):
        assert (tmp_path / "theory" / name).read_bytes().startswith(b"\x89PNG")
        assert f"  {tmp_path / 'theory' / name}\n" in printed


def test_a_statement_that_fails_is_said_and_fails_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = Statement("Theorem 0", "one is zero", lambda random: 1.0, cases=1)
    monkeypatch.setattr(theory, "STATEMENTS", [wrong])
    with pytest.raises(SystemExit, match="does not hold"):
        main(["theory", "--out", str(tmp_path)])
    assert "FAILS, off by at most 1e+00" in capsys.readouterr().out


def test_a_violation_that_is_no_number_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    outcomes = iter([0.0, np.nan, 0.0] * 2)
    wrong = Statement("Theorem 0", "0/0 is zero", lambda random: next(outcomes), cases=3)
    monkeypatch.setattr(theory, "STATEMENTS", [wrong])
    assert not theory.check_statements(seed=0)
    assert "FAILS, off by at most nan" in capsys.readouterr().out
    monkeypatch.setattr(kinds, "STATEMENTS", [wrong])
    assert np.isnan(theory_record(tmp_path)["statements"][0]["worst"])


def theory_record(folder: Path) -> Any:
    (folder / jobs.directory_name(kinds.Theory())).mkdir()
    kinds.Theory().perform(folder)
    return json.loads((folder / jobs.directory_name(kinds.Theory()) / "theory.json").read_text())


def test_the_record_has_the_worst_of_every_statement_and_discount(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worst = iter([0.1, 0.3, 0.2])
    one = Statement("Theorem 0", "a is b", lambda random: next(worst), cases=3, tolerance=0.5)
    monkeypatch.setattr(kinds, "STATEMENTS", [one])

    def example(discount: float) -> Any:
        """At one of the three discounts, each half of it falls."""
        return SimpleNamespace(
            kernel_fails=discount != 0.6,
            bcql_is_optimal=discount != 0.3,
            kernel_values_off_by=1 - discount,
            bcql_values_off_by=discount,
        )

    monkeypatch.setattr(kinds, "counterexample", example)
    assert theory_record(tmp_path) == {
        "statements": [
            {"name": "Theorem 0", "says": "a is b", "cases": 3, "worst": 0.3, "tolerance": 0.5}
        ],
        "kernel_fails": False,
        "kernel_values_off_by": 0.7,
        "bcql_is_optimal": False,
        "bcql_values_off_by": 0.9,
    }


def best_of_all_actions(q: Doubles, batch: TabularBatch) -> Indices:
    return greedy(q)


def no_future(learner: KernelBasedRL) -> Doubles:
    return np.zeros(len(learner.batch.rewards))


def optimal_actions(learner: KernelBasedRL, states: Doubles) -> Indices:
    return np.array([1, 0])


@pytest.mark.parametrize(
    ("owner", "name", "wrong"),
    [
        (KernelBasedRL, "learn", no_future),  # takes the same actions
        (KernelBasedRL, "act", optimal_actions),
        (illustrations, "bcql", q_learning),
        (illustrations, "greedy_in_batch", best_of_all_actions),
    ],
)
def test_the_counterexample_falls_with_what_it_is_about(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, owner: Any, name: str, wrong: Any
) -> None:
    monkeypatch.setattr(kinds, "STATEMENTS", [])
    monkeypatch.setattr(owner, name, wrong)
    assert not counterexample(0.9).stands
    assert CLAIMS[-1].judge(Evidence([], theory_record(tmp_path))).verdict == FAILS


def test_a_counterexample_that_falls_is_said_and_fails_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(theory, "STATEMENTS", [])
    monkeypatch.setattr(KernelBasedRL, "learn", no_future)
    with pytest.raises(SystemExit, match="does not hold"):
        main(["theory", "--out", str(tmp_path)])
    assert "FAILS at gamma = 0.3, 0.6, 0.9" in capsys.readouterr().out


def test_what_is_no_seed_is_refused_before_anything_is_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="bcq: seed: -1 is not between 0 and 2147483647"):
        main(["theory", "--seed", "-1", "--out", str(tmp_path / "theory")])
    assert capsys.readouterr().out == ""
    assert not (tmp_path / "theory").exists()


@pytest.mark.parametrize("seed", range(5))
def test_on_the_grid_q_learning_overestimates_and_bcql_does_not(seed: int) -> None:
    grid = learn_grid(seed)
    start = 0
    assert grid.believed("Q-learning")[start] > grid.believed("truth")[start] + 1
    assert grid.worth["Q-learning"][start] < grid.worth["BCQL"][start]
    known = grid.defined("BCQL") & ~grid.mdp.terminal
    np.testing.assert_allclose(grid.believed("BCQL")[known], grid.worth["BCQL"][known], atol=1e-9)


def test_each_cause_alone_makes_an_error_that_goes_with_it() -> None:
    causes = measure_causes(0)
    for name, (_, errors) in causes.items():
        assert errors[0] > 1.5 * errors[-1], name
    tenths = [i / 10 for i in range(11)]
    np.testing.assert_allclose(causes["absent data"][0], tenths[1:])
    np.testing.assert_allclose(causes["training mismatch"][0], tenths)
    counts, errors = causes["model bias"]
    assert counts.tolist() == [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000]
    # Where no pair is absent, there are 1,000 tuples of each.
    assert causes["absent data"][1][-1] == pytest.approx(errors[-1], rel=0.5)
    slope = np.polyfit(np.log(counts[3:]), np.log(errors[3:]), 1)[0]
    assert slope == pytest.approx(-0.5, abs=0.15)  # the error of an average of N


def test_the_picture_of_the_grid_says_each_value(grid: Grid, pictures: dict[str, Figure]) -> None:
    panels = pictures["values"].axes[:3]
    for axes, name in zip(panels, ("truth", "Q-learning", "BCQL"), strict=True):
        shown = grid.free & grid.defined(name) & ~grid.mdp.terminal
        values = sorted(f"{value:.1f}" for value in grid.believed(name)[shown])
        said = [text.get_text() for text in axes.texts]
        assert sorted(text for text in said if text not in ("", "?", "goal")) == values
        assert said.count("goal") == 1
        assert said.count("?") == (grid.free & ~grid.defined(name)).sum()


def test_errors_are_shown_for_every_tenth() -> None:
    np.testing.assert_allclose(illustrations.SHARES, [i / 10 for i in range(11)])


def by_hand(discount: float = 0.5, **changes: Any) -> Counterexample:
    """What both learners find in the limit: 4/3 and 2/3 at discount 0.5."""
    away, back = 1 / (1 - discount**2), discount / (1 - discount**2)
    limit = Counterexample(
        discount,
        kernel_q=np.array([[back, away], [back, away]]),
        kernel_actions=np.array([1, 1]),
        bcql_q=np.array([[10.0, away], [back, 10.0]]),
        bcql_actions=np.array([1, 0]),
    )
    return replace(limit, **changes)


@pytest.mark.parametrize("sign", [1, -1])
def test_the_counterexample_stands_on_all_of_its_numbers(sign: int) -> None:
    exact = by_hand()
    assert exact.stands
    for state, action in ((0, 0), (0, 1), (1, 0), (1, 1)):
        moved = np.zeros((2, 2))
        moved[state, action] = sign
        assert by_hand(kernel_q=exact.kernel_q + 0.9e-9 * moved).stands
        assert not by_hand(kernel_q=exact.kernel_q + 1.5e-9 * moved).stands
        logged = (state, action) in ((0, 1), (1, 0))
        assert by_hand(bcql_q=exact.bcql_q + 0.9e-3 * moved).stands
        assert by_hand(bcql_q=exact.bcql_q + 1.5e-3 * moved).stands == (not logged)
    assert not by_hand(kernel_actions=np.array([1, 0])).stands
    assert not by_hand(kernel_actions=np.array([0, 1])).stands
    assert not by_hand(bcql_actions=np.array([1, 1])).stands
    assert not by_hand(bcql_actions=np.array([0, 0])).stands


@pytest.mark.parametrize("wrong", [0.3, 0.6, 0.9])
def test_the_counterexample_has_to_stand_at_every_discount(
    wrong: float, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def found(discount: float) -> Counterexample:
        changes = {"bcql_actions": np.array([1, 1])} if discount == wrong else {}
        return by_hand(discount, **changes)

    monkeypatch.setattr(theory, "counterexample", found)
    assert not theory.kernel_counterexample()
    assert "FAILS at gamma = 0.3, 0.6, 0.9" in capsys.readouterr().out


def test_a_statement_holds_up_to_its_tolerance_and_every_one_has_to(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "EVERY", 0.0)
    good = Statement("Theorem 0", "one is one", lambda random: 1.0, cases=2, tolerance=1.0)
    bad = replace(good, name="Theorem 1", tolerance=0.5, cases=1)
    for statements, held in (([good], True), ([good, bad], False), ([bad, good], False)):
        monkeypatch.setattr(theory, "STATEMENTS", statements)
        assert theory.check_statements(seed=0) == held
    printed = capsys.readouterr()
    assert printed.out.count("2 MDPs  holds, off by at most 1e+00") == 3
    assert printed.out.count("1 MDPs  FAILS, off by at most 1e+00") == 2
    lines = [line.split(",")[0] for line in printed.err.splitlines()]
    assert lines[:3] == ["checking: 1 of 2 MDPs", "checking: 2 of 2 MDPs", "checking: 1 of 3 MDPs"]


def test_the_value_of_the_start_is_told_for_each_learner(
    capsys: pytest.CaptureFixture[str],
) -> None:
    mdp = grid_world(2, 2)  # 4 states, of which the last is the goal
    first, second = np.eye(4)[[0] * 4], np.eye(4)[[1] * 4]
    grid = Grid(
        mdp,
        steps(mdp, (0, 0, 1), (1, 1, 3), (0, 0, 1)),
        free=np.array([True, True, False, True]),
        q={
            "truth": np.tile([-1.0, -9, -9, -9], (4, 1)),
            "Q-learning": np.tile([-9.0, -0.5, -9, -9], (4, 1)),
            "BCQL": np.tile([-1.25, -9.0, -9, -9], (4, 1)),
        },
        policies={"truth": first, "Q-learning": second, "BCQL": first},
        worth={
            "truth": np.full(4, -1.0),
            "Q-learning": np.array([-20.0, -21, -22, -23]),
            "BCQL": -np.ones(4),
        },
    )
    theory.describe_grid(grid)
    assert capsys.readouterr().out.splitlines() == [
        "",
        "A grid in which each step costs 1; 3 logged steps in 3 episodes, 2 of 8 pairs seen, "
        "Q0 = 0",
        "  value of the start      estimate    true value",
        "  optimal policy             -1.00         -1.00",
        "  Q-learning on B            -0.50        -20.00",
        "  BCQL on B                  -1.25         -1.00",
        "  Q-learning overestimates actions that are not in the batch; BCQL's estimate is true.",
    ]


CAUSES = {
    "absent data": (np.array([0.1, 0.5, 0.8, 1.0]), np.array([3.0, 2.5, 2.0, 0.25])),
    "model bias": (np.array([1, 4, 25, 100]), np.array([4.0, 3.0, 2.0, 0.5])),
    "training mismatch": (np.array([0.0, 0.5, 0.8, 1.0]), np.array([1.5, 1.25, 1.125, 1.0])),
}


def test_each_cause_is_told_from_its_worst_case_to_its_best(
    capsys: pytest.CaptureFixture[str],
) -> None:
    theory.describe_causes(CAUSES)
    assert capsys.readouterr().out.splitlines() == [
        "",
        "Causes of extrapolation error (Section 3; total error, Eq. 9)",
        "  absent data          3.000 at 10%, 0.250 at 100% of the pairs in the batch",
        "  model bias           4.000 at 1, 0.500 at 100 tuples per pair (Eq. 4)",
        "  training mismatch    1.500 at 0%, 1.000 at 100% of the data from the policy itself "
        "(Eq. 5)",
    ]


def test_the_picture_of_the_causes_shows_every_number() -> None:
    drawn = theory.draw_causes(CAUSES).axes
    assert [axes.get_title() for axes in drawn] == list(CAUSES)
    assert np.ptp([axes.get_position().y0 for axes in drawn]) < 1e-9  # beside one another
    assert [axes.get_xlabel() for axes in drawn] == [
        "share of pairs in the batch",
        "N(s, a): tuples of each pair",
        "share of on-policy data",
    ]
    for axes, (amounts, errors) in zip(drawn, CAUSES.values(), strict=True):
        assert axes.get_ylabel() == "error of the policy's value"
        assert not axes.spines["top"].get_visible()
        assert not axes.spines["right"].get_visible()
        line = axes.lines[0]
        np.testing.assert_allclose(
            np.asarray(line.get_xydata(), float), np.stack([amounts, errors], axis=1)
        )
        assert (line.get_marker(), line.get_linestyle()) == ("o", "-")
    counted, shares = drawn[1], (drawn[0], drawn[2])
    for axes in shares:
        assert len(axes.lines) == 1
        assert (axes.get_xscale(), axes.get_yscale()) == ("linear", "linear")
        assert axes.get_ylim()[0] == 0
        assert axes.get_legend() is None
    assert (counted.get_xscale(), counted.get_yscale()) == ("log", "log")
    line, slope = counted.lines  # the slope ends where the errors do: 0.5 at 100, 5 at 1
    np.testing.assert_allclose(
        np.asarray(slope.get_xydata(), float), [[1, 5.0], [4, 2.5], [25, 1.0], [100, 0.5]]
    )
    assert slope.get_linestyle() == "--"
    assert line.get_color() == "#0072b2"  # blue that everyone can tell from grey
    assert len(set(to_rgb(slope.get_color()))) == 1
    legend = counted.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["proportional to 1/sqrt(N)"]


def test_the_grid_has_the_walls_of_this_map(grid: Grid) -> None:
    rows = grid.free.reshape(HEIGHT, WIDTH)[::-1]  # y points up
    assert ["".join(".#"[not free] for free in row) for row in rows] == [
        ".......",
        "..#.#..",
        "..#....",
        "..#.#..",
        "....#..",
    ]
    assert not grid.mdp.transitions[grid.free][:, :, ~grid.free].any()
    assert np.flatnonzero(grid.mdp.terminal).tolist() == [GOAL]


def test_the_batch_of_the_grid_is_three_episodes_and_what_it_lacks_looks_free(
    grid: Grid,
) -> None:
    assert (grid.batch.next_states == GOAL).sum() == 3
    assert grid.batch.next_states[-1] == GOAL
    unseen = ~grid.batch.pairs
    assert unseen.any()
    assert not grid.q["Q-learning"][unseen].any()


def places(axes: Axes, words: str) -> list[tuple[float, float]]:
    """Where a picture says something."""
    return [text.get_position() for text in axes.texts if text.get_text() == words]


def luminance(colour: Any) -> float:
    """As the guidelines for web content define it."""
    parts = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)]
    return float(np.dot(parts, [0.2126, 0.7152, 0.0722]))


def contrast(axes: Axes, text: Text, state: int) -> float:
    """Of a text to the colour of its cell; at least 3 can be read."""
    image = axes.images[0]
    value = image.get_array()[state // WIDTH, state % WIDTH]  # type: ignore[index]
    shades = luminance(text.get_color()), luminance(image.cmap(image.norm(value))[:3])
    return (max(shades) + 0.05) / (min(shades) + 0.05)


@pytest.mark.parametrize("picture", ["values", "error"])
def test_pictures_of_the_grid_show_walls_numbers_and_what_is_unknown(
    picture: str, grid: Grid, pictures: dict[str, Figure]
) -> None:
    names = ("truth", "Q-learning", "BCQL") if picture == "values" else ("Q-learning", "BCQL")
    *panels, bar = pictures[picture].axes
    assert bar.get_ylabel() == ("value" if picture == "values" else "extrapolation error")
    assert np.ptp([axes.get_position().y0 for axes in panels]) < 1e-9  # beside one another
    assert len({axes.get_title() for axes in panels}) == len(panels)
    lowest = min(grid.believed(name).min() for name in names)
    for axes, name in zip(panels, names, strict=True):
        assert name in axes.get_title()
        assert axes.get_facecolor() == (1, 1, 1, 1)
        assert [*axes.get_xticks(), *axes.get_yticks()] == []
        (image,) = axes.images
        assert image.origin == "lower"
        assert image.get_clim() == ((lowest, 0) if picture == "values" else (-20, 20))
        walls = {(x + 0.5, y + 0.5) for x, y in (patch.get_xy() for patch in axes.patches)}  # type: ignore[attr-defined]
        assert walls == {(s % WIDTH, s // WIDTH) for s in np.flatnonzero(~grid.free).tolist()}
        for patch in axes.patches:
            assert (patch.get_width(), patch.get_height()) == (1, 1)  # type: ignore[attr-defined]
            assert luminance(patch.get_facecolor()[:3]) < 0.2
        values = grid.believed(name)
        if picture == "error":
            values = grid.worth[name] - values
        known = grid.free & grid.defined(name)
        shown = np.where(known, values, np.nan).reshape(HEIGHT, WIDTH)
        np.testing.assert_array_equal(np.ma.filled(image.get_array(), np.nan), shown)  # type: ignore[arg-type]
        unknown = [(s % WIDTH, s // WIDTH) for s in np.flatnonzero(grid.free & ~known).tolist()]
        assert places(axes, "?") == unknown
        questions = [text for text in axes.texts if text.get_text() == "?"]
        assert all(0.1 < luminance(text.get_color()) < 0.5 for text in questions)  # grey
        assert places(axes, "goal") == [(6, 4)]
        said = [text for text in axes.texts if text.get_text() not in ("", "?", "goal")]
        states = np.flatnonzero(known & ~grid.mdp.terminal).tolist()
        for text, state in zip(said, states, strict=True):
            digits = 1 if picture == "values" else 0
            assert text.get_text() == f"{values[state]:.{digits}f}"
            x, y = text.get_position()
            assert x == state % WIDTH
            assert abs(y - state // WIDTH) < 0.5
            assert contrast(axes, text, state) > 3


def test_arrows_point_to_where_the_policy_goes_above_the_number_in_the_cell(
    grid: Grid, pictures: dict[str, Figure]
) -> None:
    panels = pictures["values"].axes[:3]
    for axes, name in zip(panels, ("truth", "Q-learning", "BCQL"), strict=True):
        arrows = [text for text in axes.texts if isinstance(text, Annotation)]
        states = np.flatnonzero(grid.free & grid.defined(name) & ~grid.mdp.terminal).tolist()
        numbers = [text for text in axes.texts if text.get_text() not in ("", "?", "goal")]
        for arrow, number, state in zip(arrows, numbers, states, strict=True):
            cell = np.array([state % WIDTH, state // WIDTH])
            head, tail = np.array(arrow.xy), np.array(arrow.get_position())
            way = [(1, 0), (0, 1), (-1, 0), (0, -1)][int(grid.policies[name][state].argmax())]
            np.testing.assert_allclose((head - tail) / np.linalg.norm(head - tail), way, atol=1e-9)
            assert np.abs([head - cell, tail - cell]).max() < 0.5
            assert number.get_position()[1] < min(head[1], tail[1])
            assert arrow.arrow_patch is not None
            assert arrow.arrow_patch.get_edgecolor()[:3] == to_rgb(number.get_color())
            assert type(arrow.arrow_patch.get_arrowstyle()).__name__ == "CurveB"  # a head at xy
