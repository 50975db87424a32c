"""`bcq theory`: what a student sees."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bcq.cli.application import main
from bcq.experiments import jobs, kinds
from bcq.paper.evidence import Evidence
from bcq.paper.judging import FAILS
from bcq.paper.section_4_theory import CLAIMS
from bcq.tabular import KernelBasedRL, TabularBatch, greedy, illustrations, q_learning
from bcq.tabular import walk as theory
from bcq.tabular.illustrations import counterexample, learn_grid, measure_causes
from bcq.tabular.mdp import Doubles, Indices
from bcq.tabular.theorems import STATEMENTS, Statement


@pytest.fixture(autouse=True)
def few_cases(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(theory, "STATEMENTS", [replace(s, cases=2) for s in STATEMENTS])
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


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
    for name in ("grid_values.png", "grid_error.png", "causes.png"):
        assert (tmp_path / "theory" / name).read_bytes().startswith(b"\x89PNG")


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
    counts, errors = causes["model bias"]
    slope = np.polyfit(np.log(counts[3:]), np.log(errors[3:]), 1)[0]
    assert slope == pytest.approx(-0.5, abs=0.15)  # the error of an average of N


def test_the_picture_of_the_grid_says_each_value() -> None:
    grid = learn_grid(0)
    panels = theory.draw_values(grid).axes[:3]
    for axes, name in zip(panels, ("truth", "Q-learning", "BCQL"), strict=True):
        shown = grid.free & grid.defined(name) & ~grid.mdp.terminal
        values = sorted(f"{value:.1f}" for value in grid.believed(name)[shown])
        said = [text.get_text() for text in axes.texts]
        assert sorted(text for text in said if text not in ("", "?", "goal")) == values
        assert said.count("goal") == 1
        assert said.count("?") == (grid.free & ~grid.defined(name)).sum()


def test_errors_are_shown_for_every_tenth() -> None:
    np.testing.assert_allclose(illustrations.SHARES, [i / 10 for i in range(11)])
