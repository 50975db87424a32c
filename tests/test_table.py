"""The table of returns, by hand."""

from dataclasses import replace

import numpy as np
import pytest

from bcq.experiments.table import interquartile_mean, interval, table
from test_claims import as_in_the_paper


def test_the_interquartile_mean_ignores_both_quarters() -> None:
    assert interquartile_mean([1000, 1, 2, 3, 4, 5, 6, -1000]) == pytest.approx(3.5)


def test_the_interval_covers_both_kinds_of_spread() -> None:
    alike = [np.array([1.0, 1.0]), np.array([1.0, 1.0])]
    assert interval(alike) == (1.0, 1.0)
    low, high = interval([np.zeros(8), np.ones(8)])
    assert low == 0.0
    assert high == 1.0


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


def test_runs_of_other_lengths_have_rows_of_their_own() -> None:
    run = next(one for one in as_in_the_paper() if (one.task, one.label) == ("imitation", "ddpg"))
    other = replace(run, schedule={"steps": 100_000})
    rows = [line for line in table([run, other]).splitlines() if "ddpg" in line]
    assert ["| 60,000 |" in rows[0], "| 100,000 |" in rows[1]] == [True, True]
