"""Intervals over a few seeds: against slow definitions, and by how often they hold."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from bcq.experiments.statistics import Best, Centre, best_of, interquartile_mean

Values = st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=13)


def trimmed(values: list[float]) -> tuple[float, float, int]:
    """Mean, standard error and degrees of freedom by Tukey and McLaughlin, step by step."""
    ordered = sorted(values)
    count, cut = len(ordered), len(ordered) // 4
    middle = ordered[cut : count - cut]
    pulled = [middle[0]] * cut + middle + [middle[-1]] * cut
    mean = sum(pulled) / count
    variance = sum((value - mean) ** 2 for value in pulled) / (count - 1)
    size = len(middle)
    error = math.sqrt((count - 1) * variance / (size * (size - 1)))
    return sum(middle) / size, error, size - 1


@given(Values)
def test_an_interval_is_that_of_the_definition(values: list[float]) -> None:
    mean, error, freedom = trimmed(values)
    found = Centre.of(values)
    assert found.value == pytest.approx(mean, abs=1e-9)
    assert found.value == interquartile_mean(values)
    assert found.error == pytest.approx(error, abs=1e-9)
    reach = stats.t.ppf(0.95, freedom) * error
    assert found.interval(0.9) == pytest.approx((mean - reach, mean + reach), abs=1e-6)


@given(Values, Values)
def test_the_interval_of_a_difference_is_yuens(one: list[float], other: list[float]) -> None:
    if min(np.ptp(sorted(v)[len(v) // 4 : len(v) - len(v) // 4]) for v in (one, other)) < 1e-3:
        return  # SciPy divides by the spread of each
    found = Centre.of(one).minus(Centre.of(other)).interval()
    known = stats.ttest_ind(one, other, equal_var=False, trim=0.25).confidence_interval(0.95)
    assert found == pytest.approx((known.low, known.high), rel=1e-6, abs=1e-6)


def test_one_seed_has_no_interval() -> None:
    alone = Centre.of([3.0])
    assert alone.value == 3
    assert alone.interval() == (-math.inf, math.inf)
    assert alone.minus(Centre.of([1.0, 2.0])).interval().low == -math.inf


def test_equal_seeds_have_an_interval_without_width() -> None:
    assert Centre.of([2.0, 2.0, 2.0]).interval() == (2, 2)
    difference = Centre.of([2.0, 2.0]).minus(Centre.of([1.0, 2.0]))
    assert difference.interval() == pytest.approx(Centre.of([0.0, 1.0]).interval())


def test_a_shared_error_does_not_become_smaller_with_seeds() -> None:
    normal = stats.norm.ppf(0.975)
    assert Centre.of([5.0] * 8, 2.0).interval() == pytest.approx((5 - 2 * normal, 5 + 2 * normal))
    apart = Centre.of([1.0, 2.0, 3.0], 2.0)
    assert apart.error == pytest.approx(math.hypot(2, 1 / math.sqrt(3)))
    own = (apart.error**2 - 4) / apart.error**2
    assert apart.freedom == pytest.approx(2 / own**2)


def test_a_best_setting_is_above_each_of_the_others() -> None:
    low, high, middle = ([v + at for v in (0.0, 0.1, 0.2, 0.3, 0.4)] for at in (0, 20, 19.9))
    assert best_of([Centre.of(low), Centre.of(high)]).is_clear
    found = best_of([Centre.of(low), Centre.of(middle), Centre.of(high)])
    assert (found.index, found.rivals) == (2, (1,))
    assert not found.is_clear
    assert best_of([Centre.of(high)]) == Best(0, Centre.of(high).interval(), ())


def test_the_more_settings_the_more_is_asked_of_the_best() -> None:
    best, other = Centre(1.0, 0.1, 5.0), Centre(0.6, 0.1, 5.0)
    assert best_of([best, other]).is_clear  # 0.4 is above 2.23 times the error, 0.141
    far = Centre(-9.0, 0.1, 5.0)
    crowd = best_of([best, other, *[far] * 20])
    assert crowd.rivals == (1,)
    assert crowd.interval == best.interval(1 - 0.05 / 22)


def failing(random: np.random.Generator, size: tuple[int, ...]) -> np.ndarray:
    """Returns of seeds of which one in five fails."""
    return random.normal(size=size) - 10 * (random.random(size) < 0.2)


@pytest.mark.parametrize("seeds", [3, 5, 10])
def test_intervals_hold_as_often_as_they_say(seeds: int) -> None:
    """95%, within what 1,000 simulations can tell and a trimmed mean of few seeds can do."""
    random = np.random.default_rng(0)
    middle = np.sort(failing(random, (400_000,)))[100_000:300_000].mean()
    for draws, truth in (
        (random.normal(size=(1_000, seeds)), 0.0),
        (failing(random, (1_000, seeds)), middle),
    ):
        intervals = [Centre.of(row).interval() for row in draws]
        held = np.mean([low <= truth <= high for low, high in intervals])
        assert 0.92 <= held <= 0.98


def test_the_interval_of_the_best_of_many_holds_though_it_was_chosen() -> None:
    random = np.random.default_rng(1)
    held, unwidened, named = [], [], []
    for draws in random.normal(size=(500, 6, 5)):
        centres = [Centre.of(row) for row in draws]
        best = best_of(centres)
        held.append(best.interval.low <= 0 <= best.interval.high)
        unwidened.append(centres[best.index].interval().low <= 0)
        named.append(best.is_clear)  # wrongly: all are equal
    assert np.mean(held) >= 0.94
    assert np.mean(unwidened) < 0.92
    assert np.mean(named) <= 0.05
