"""The table of returns, by hand."""

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
    rows = [
        line for line in table(as_in_the_paper()).splitlines() if "| random | 500 | ddpg" in line
    ]
    assert rows[0].endswith("| 575 (550 to 625) | 583 | 650 |")
