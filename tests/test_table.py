"""The table of returns, by hand."""

from dataclasses import replace

import numpy as np
import pytest

from bcq.experiments.statistics import interquartile_mean
from bcq.paper import table as module
from bcq.paper.table import interval, side_by_side, table
from test_claims import as_in_the_paper


def test_the_interquartile_mean_ignores_both_quarters() -> None:
    assert interquartile_mean([1000, 1, 2, 3, 4, 5, 6, -1000]) == pytest.approx(3.5)


def test_the_interval_covers_both_kinds_of_spread() -> None:
    alike = [np.array([1.0, 1.0]), np.array([1.0, 1.0])]
    assert interval(alike) == (1.0, 1.0)
    low, high = interval([np.zeros(8), np.ones(8)])
    assert low == 0.0
    assert high == 1.0


def test_the_interval_holds_the_middle_ninety_five_of_a_hundred() -> None:
    """Many episodes: the interquartile mean of a normal sample is nearly normal itself."""
    random = np.random.default_rng(0)
    one = [random.normal(size=4_000)]
    low, high = interval(one)
    middle = np.sort(one[0])[1_000:3_000]
    trimmed = np.clip(one[0], middle[0], middle[-1])  # its standard error is winsorised
    half = 1.96 * np.std(trimmed) / (0.5 * 4_000**0.5)
    assert (high - low) / 2 == pytest.approx(half, rel=0.1)
    assert (high + low) / 2 == pytest.approx(middle.mean(), abs=half / 4)
    apart = [np.full(50, float(level)) for level in range(20)]  # no spread within a trial
    low, high = interval(apart)
    assert high - low > 3


def test_the_table_keeps_final_and_best_apart() -> None:
    runs = [
        replace(one, evaluations=[(0, [999.0]), (1, [10.0]), (2, [20.0]), (3, [30.0 * one.seed])])
        for one in as_in_the_paper()
        if (one.task, one.label, one.env) == ("imperfect", "bc", "Hopper-v5")
    ]
    rows = [line for line in table(runs).splitlines() if "| imperfect |" in line]
    assert len(rows) == 1
    assert rows[0].startswith("| Hopper-v5 | imperfect | 500 | bc | 60,000 | 3 | 16 (")
    assert rows[0].endswith(" | 20 | 999 |")


def test_runs_of_another_phi_have_rows_of_their_own() -> None:
    runs = [
        one
        for one in as_in_the_paper()
        if (one.task, one.label, one.env) == ("imitation", "bcq", "Hopper-v5")
    ]
    rows = table(runs).splitlines()[2:]
    assert [row.split(" | ")[3:6] for row in rows] == [
        ["bcq", "60,000", "3"],
        ["bcq, Phi 2", "60,000", "3"],
    ]


def test_averages_are_means_over_trials() -> None:
    run = next(one for one in as_in_the_paper() if (one.task, one.label) == ("imitation", "ddpg"))
    runs = [
        replace(
            run,
            seed=seed,
            batch={**(run.batch or {}), "mean_return": 100.0 * final},
            evaluations=[(0, [5 * final]), (1, [final]), (2, [final]), (3, [final])],
        )
        for seed, final in enumerate((1.0, 2.0, 9.0))
    ]
    (row,) = table(runs).splitlines()[2:]
    assert row.startswith("| Hopper-v5 | imitation | 400 | ddpg | 60,000 | 3 | 3 (")
    assert row.endswith(" | 4 | 20 |")


def test_runs_of_other_lengths_have_rows_of_their_own() -> None:
    run = next(one for one in as_in_the_paper() if (one.task, one.label) == ("imitation", "ddpg"))
    other = replace(run, schedule={"steps": 100_000})
    rows = [line for line in table([run, other]).splitlines() if "ddpg" in line]
    assert ["| 60,000 |" in rows[0], "| 100,000 |" in rows[1]] == [True, True]


def test_the_table_is_one_in_markdown_and_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RESAMPLES", 2)
    runs = [one for one in as_in_the_paper() if one.label in ("bc", "ddpg") and one.seed == 0]
    header, line, *rows = table(runs[::-1]).splitlines()
    assert line == "|---|---|---|---|---|---|---|---|---|"
    assert {row.count("|") for row in (header, *rows)} == {line.count("|")}
    places = [tuple(row.split(" | ")[i] for i in (0, 1, 3)) for row in rows]
    assert places == sorted(places)
    assert len(set(places)) == len(places) > 10


def test_a_batch_without_returns_has_no_average(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RESAMPLES", 2)
    run = next(one for one in as_in_the_paper() if (one.task, one.label) == ("imitation", "ddpg"))
    unknown = {**(run.batch or {}), "mean_return": None}
    for runs in ([replace(run, batch=None)], [run, replace(run, seed=1, batch=unknown)]):
        (row,) = table(runs).splitlines()[2:]
        assert row.startswith("| Hopper-v5 | imitation |  | ddpg | 60,000 |")


def test_the_interval_of_the_same_returns_stays_the_same() -> None:
    """Those in the published tables are of a thousand resamples."""
    trials = [np.array([0.0, 3.0, 4.0, 9.0]), np.array([1.0, 2.0, 7.0])]
    random = np.random.default_rng(0)
    means = []
    for _ in range(1_000):
        first, second = (trials[i] for i in random.integers(2, size=2))
        pooled = sorted([*random.choice(first, len(first)), *random.choice(second, len(second))])
        middle = pooled[1:-1] if len(pooled) < 8 else pooled[2:-2]
        means.append(sum(middle) / len(middle))
    assert interval(trials) == pytest.approx(tuple(np.percentile(means, [2.5, 97.5])))


def test_algorithms_stand_side_by_side_with_every_trial() -> None:
    run = next(one for one in as_in_the_paper() if (one.task, one.label) == ("imperfect", "bc"))
    batch = {**(run.batch or {}), "mean_return": 480.0}
    here = replace(run, batch=batch, evaluations=[(0, [9.0]), (1, [2.0]), (2, [4.0]), (3, [6.0])])
    there = replace(here, seed=1, evaluations=[(1, [7.0]), (2, [7.0]), (3, [10.0])])
    runs = [
        *(there, here),  # in any order
        replace(here, algorithm="bcq", settings={}),
        replace(here, env="Walker2d-v5", schedule={"steps": 30_000}),
        replace(here, experiments=["extrapolation"], schedule={"steps": 100_000}),
        replace(here, role="agent", schedule={"steps": 300_000}),
    ]
    header, line, *rows, empty = side_by_side(runs).splitlines()
    assert empty == ""  # else the next table is a part of this one
    assert header == "| batch | updates | its average | BCQ | DDPG | DQN | BC | VAE-BC |"
    assert line == "|---|---|---|---|---|---|---|---|"
    assert rows == [
        "| Hopper-v5, imperfect | 60,000 | 480 | 4 |  |  | 6 (4, 8) |  |",
        "| Walker2d-v5, imperfect | 30,000 | 480 |  |  |  | 4 |  |",
    ]


def test_runs_of_other_figures_alone_have_no_table_side_by_side() -> None:
    runs = [one for one in as_in_the_paper() if one.task == "random"]
    assert runs
    assert side_by_side(runs) == ""
