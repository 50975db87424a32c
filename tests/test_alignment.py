"""The estimates behind the doctor's findings on shifted fields, on numbers worked out by hand."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from bcq.data.bounds import ActionBounds
from bcq.data.columns import Finding
from bcq.data.doctor.alignment import (
    delayed,
    end_offset,
    fitted,
    gain,
    jumps,
    residual,
    successor_offset,
    with_bends,
    with_squares,
    without_reaction,
)
from bcq.data.doctor.stored_batch import StoredBatch

# Columns of plus and minus one that have nothing in common.
ONE, TWO = (np.array([column], np.float32).T for column in ([1, 1, -1, -1], [1, -1, 1, -1]))


def batch(
    observations: NDArray[np.float32],
    ends: Sequence[int] = (),
    following: NDArray[np.float32] | None = None,
) -> StoredBatch:
    rows = len(observations)
    return StoredBatch(
        observations=observations,
        actions=np.zeros((rows, 1), np.float32),
        rewards=np.zeros(rows, np.float32),
        next_observations=following,
        terminated=np.isin(np.arange(rows), ends),
        truncated=np.zeros(rows, bool),
        bounds=ActionBounds(-np.ones(1, np.float32), np.ones(1, np.float32)),
        discount=0.99,
    )


# Regression


def test_features_are_a_constant_standard_numbers_and_their_squares() -> None:
    found = with_squares(np.array([[1.0], [3.0]]), np.array([[10.0, 7.0], [40.0, 7.0]]))
    assert found.tolist() == [[1, -1, -1, 0, 1, 1, 0], [1, 1, 1, 0, 1, 1, 0]]


@pytest.mark.parametrize(("rows", "bends"), [(19, 0), (40, 2), (3_999, 199), (6_000, 200)])
def test_bends_are_one_for_twenty_rows_and_at_most_200(rows: int, bends: int) -> None:
    features = np.random.default_rng(1).normal(size=(rows, 4)) / 10  # tanh can be inverted
    found = with_bends(features)
    assert found.shape == (rows, 4 + bends)
    np.testing.assert_array_equal(found[:, :4], features)
    bent = np.arctanh(found[:, 4:])
    weights = np.linalg.lstsq(features, bent, rcond=None)[0]
    np.testing.assert_allclose(features @ weights, bent, rtol=1e-6, atol=1e-6)
    if bends > 100:
        assert weights.std() == pytest.approx(1.5, abs=0.1)  # three over the root of four features
        assert np.abs(weights.mean()) < 0.2


def test_a_fit_is_the_part_of_the_targets_in_the_features() -> None:
    features = np.concatenate([np.ones((4, 1)), ONE], axis=1).astype(float)
    np.testing.assert_allclose(fitted(features, 3.0 * ONE + 4.0 * TWO + 5), 3 * ONE + 5, atol=1e-12)


def test_what_a_fit_leaves_is_a_share_of_the_variance() -> None:
    features = np.concatenate([np.ones((4, 1)), ONE], axis=1).astype(float)
    targets = 3 * ONE + 4 * TWO + 5  # variances 9 and 16
    assert residual(features, targets) == pytest.approx(16 / 25)
    assert residual(features, targets[:, 0]) == pytest.approx(16 / 25)
    both = np.concatenate([1_000 * targets, ONE, np.full((4, 1), 7.0)], axis=1)
    assert residual(features, both) == pytest.approx(8 / 25)  # a constant does not count
    assert residual(features, np.full(4, 7.0)) == 1.0
    assert residual(features, targets / 1_000) == pytest.approx(16 / 25)
    assert residual(ONE.astype(float), targets) == pytest.approx(16 / 25)  # around their mean


@pytest.mark.parametrize(("difference", "used"), [(5e-5, 0), (7.5e-5, 1)])
def test_features_that_rounding_could_have_made_different_count_as_one(
    difference: float, used: int
) -> None:
    # The eigenvalues of their products have the ratio difference**2 / 4: the limit is 1e-9.
    features = np.concatenate([ONE, ONE + difference * TWO.astype(float)], axis=1)
    np.testing.assert_allclose(fitted(features, TWO.astype(float)), used * TWO, atol=1e-3)


def test_an_action_gains_what_it_explains_beyond_the_observation() -> None:
    assert gain(ONE, TWO, 3 * ONE + 4 * TWO) == pytest.approx(16 / 25)
    assert gain(ONE, ONE, 3 * ONE + 4 * TWO) == pytest.approx(0, abs=1e-12)
    steps = np.arange(4, dtype=np.float32)[:, None]
    assert gain(steps, TWO, steps**2) == pytest.approx(0, abs=1e-12)  # a square explains it all


def test_the_reaction_to_an_observation_is_taken_out_of_actions() -> None:
    actions = np.concatenate([3 * ONE + 4 * TWO + 5, 8 * ONE], axis=1)
    found = without_reaction(ONE, actions)
    np.testing.assert_allclose(found, np.concatenate([4 * TWO, 0 * TWO], axis=1), atol=1e-6)
    for size, kept in ((5e-4, 0.0), (2e-3, 2e-3)):
        found = without_reaction(ONE, ONE + np.float32(size) * TWO)
        np.testing.assert_allclose(found, kept * TWO, atol=1e-6)
        found = without_reaction(ONE, 100 * (ONE + np.float32(size) * TWO))
        np.testing.assert_allclose(found, 100 * kept * TWO, atol=1e-4)


def test_a_reaction_need_not_be_straight() -> None:
    steps = np.arange(4, dtype=np.float32)[:, None]
    assert not without_reaction(steps, steps**2).any()
    places = np.linspace(-2, 2, 1_000, dtype=np.float32)[:, None]
    assert not without_reaction(places, np.sin(2 * places)).any()


# Breaks


def test_jumps_are_ranks_of_the_distance_to_the_next_observation() -> None:
    observations = np.array([[0, 0], [1, 0], [3, 0], [3.5, 0]], np.float32)
    np.testing.assert_allclose(jumps(batch(observations)), [1 / 3, 2 / 3, 0])
    # Each column counts by its own spread: the second jumps last, and by far.
    observations[3, 1] = 1e-3
    np.testing.assert_allclose(jumps(batch(observations)), [0, 2 / 3, 1 / 3])
    tiny = np.array([[0], [2e-9], [3e-9], [1]], np.float32)
    np.testing.assert_allclose(jumps(batch(tiny)), [1 / 3, 0, 2 / 3])


EVERY_SIXTH = np.arange(5, 60, 6)  # ten ends of sixty-four rows


def shift_of(
    ends: NDArray[np.int64],
    breaks: NDArray[np.int64],
    *,
    rows: int = 64,
    certain: bool = True,
    at_ends: int = 0,
) -> str | None:
    """With breaks at some rows, and at the first few ends."""
    score = np.zeros(rows - 1)
    score[breaks] = 1
    score[ends[:at_ends]] = 1
    return end_offset(batch(np.zeros((rows, 1), np.float32), ends.tolist()), score, certain=certain)


GROWS = "one more row with every episode"


@pytest.mark.parametrize(
    ("offset", "words"),
    [
        (0 * EVERY_SIXTH - 1, "one row"),
        (0 * EVERY_SIXTH + 1, "one row"),
        (0 * EVERY_SIXTH + 2, None),
        (0 * EVERY_SIXTH, None),
    ],
)
def test_ends_are_compared_with_breaks_a_row_away(
    offset: NDArray[np.int64], words: str | None
) -> None:
    assert shift_of(EVERY_SIXTH, EVERY_SIXTH + offset) == words


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("sign", [-1, 1])
def test_a_shift_may_grow_with_every_episode(first: int, sign: int) -> None:
    ends = np.arange(20, 160, 20)
    assert shift_of(ends, ends + sign * (np.arange(7) + first), rows=180) == GROWS


def test_nine_in_ten_breaks_are_not_enough() -> None:
    assert shift_of(EVERY_SIXTH, EVERY_SIXTH[1:] + 1) is None
    more = np.arange(5, 120, 6)
    assert shift_of(more, more[1:] + 1, rows=130) == "one row"  # 19 in 20
    assert shift_of(more, more[1:] + 1, rows=130, certain=False) == "one row"
    assert shift_of(more, more[3:] + 1, rows=130, certain=False) is None


@pytest.mark.parametrize(("at_ends", "words"), [(7, "one row"), (8, None)])
def test_a_shift_must_fit_much_better_than_none(at_ends: int, words: str | None) -> None:
    assert shift_of(EVERY_SIXTH, EVERY_SIXTH + 1, at_ends=at_ends) == words


@pytest.mark.parametrize(("count", "words"), [(4, None), (5, "one row")])
def test_five_ends_are_needed(count: int, words: str | None) -> None:
    ends = EVERY_SIXTH[:count]
    assert shift_of(ends, ends + 1) == words


@pytest.mark.parametrize(("rows", "words"), [(32, None), (33, "one row")])
def test_ends_in_the_last_three_rows_do_not_count(rows: int, words: str | None) -> None:
    ends = EVERY_SIXTH[:5]  # the last in row 29
    assert shift_of(ends, ends + 1, rows=rows) == words


def test_places_before_the_first_row_do_not_count() -> None:
    ends = np.array([0, 6, 12, 18, 24])
    assert shift_of(ends, ends[1:] - 1) is None
    assert shift_of(np.append(ends, 30), np.append(ends, 30)[1:] - 1) == "one row"
    assert shift_of(ends + 1, ends) == "one row"  # the first row does


def test_places_after_the_last_break_do_not_count() -> None:
    ends = np.arange(20, 160, 20)
    places = ends + np.arange(1, 8)
    assert shift_of(ends, places[:-1], rows=int(places[-1]) + 1) == GROWS


@pytest.mark.parametrize(("count", "words"), [(6, None), (7, "one row")])
def test_uncertain_breaks_need_more_ends(count: int, words: str | None) -> None:
    ends = EVERY_SIXTH[:count]
    assert shift_of(ends, ends + 1, certain=False) == words  # 0.5 + 1.3 / sqrt(7) is 0.991


# Next observations


@pytest.mark.parametrize("shift", [-1, 1])
def test_next_observations_a_row_away_are_found(shift: int) -> None:
    observations = np.arange(40, dtype=np.float32)[:, None]
    following = observations + 1 + shift
    assert successor_offset(batch(observations, [9, 19, 29], following)) == "one row"
    following[:5] = 77  # more than a tenth of the rows
    assert successor_offset(batch(observations, [9, 19, 29], following)) is None


@pytest.mark.parametrize("wrong", [0, 5, 10])
def test_more_than_nine_in_ten_next_observations_must_fit(wrong: int) -> None:
    for rows, words in ((11, "one row"), (10, None)):
        observations = np.arange(rows, dtype=np.float32)[:, None]
        following = observations.copy()
        following[min(wrong, rows - 1)] = 77
        assert successor_offset(batch(observations, [3], following)) == words


def test_next_observations_are_compared_in_five_thousand_rows() -> None:
    observations = np.arange(10_000, dtype=np.float32)[:, None] * 100
    following = observations.copy()
    following[1::2] = 77
    assert successor_offset(batch(observations, [3], following)) == "one row"
    assert successor_offset(batch(observations[:9_999], [3], following[:9_999])) is None


@pytest.mark.parametrize("sign", [-1, 1])
def test_next_observations_further_away_in_each_episode_are_found(sign: int) -> None:
    observations = np.arange(40, dtype=np.float32)[:, None]
    episode = np.repeat(np.arange(4), 10)[:, None]
    following = (observations + 1 + sign * episode).astype(np.float32)
    assert successor_offset(batch(observations, [9, 19, 29, 39], following)) == GROWS
    following = (observations + 1 + 2 * sign * episode).astype(np.float32)
    assert successor_offset(batch(observations, [9, 19, 29, 39], following)) is None


# Rewards and actions


def moving(
    observations: NDArray[np.floating], actions: NDArray[np.floating], rewards: NDArray[np.floating]
) -> StoredBatch:
    """One episode with these columns."""
    width = actions.shape[1]
    return replace(
        batch(observations.astype(np.float32)),
        actions=actions.astype(np.float32),
        rewards=rewards.astype(np.float32),
        bounds=ActionBounds(-np.ones(width, np.float32), np.ones(width, np.float32)),
    )


def kinds(found: Iterator[Finding]) -> list[str]:
    return [finding.kind for finding in found]


def late_in_every(step: int, rows: int = 400) -> StoredBatch:
    """Rewards that the action of the row before decides, but only after each `step`-th row."""
    generator = np.random.default_rng(0)
    actions = generator.uniform(-1, 1, (rows, 1))
    rewards = generator.normal(size=rows)
    rewards[1:][::step] = actions[:-1, 0][::step]
    return moving(generator.normal(size=(rows, 1)), actions, rewards)


@pytest.mark.parametrize(
    ("sample", "step", "told"),
    [
        (5_000, 1, True),
        (5_000, 2, False),  # all 398 rows count
        (100, 3, True),
        (100, 6, False),
        (20, 6, True),  # 60 rows are needed: twenty for each of three features
        (20, 19, False),
    ],
)
def test_a_delay_is_looked_for_in_a_sample_that_is_large_enough(
    sample: int, step: int, told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bcq.data.doctor.alignment.SAMPLE", sample)
    assert ("delayed-rewards" in kinds(delayed(late_in_every(step)))) == told


@pytest.mark.parametrize(("width", "told"), [(100, True), (101, False)])
def test_a_delay_is_not_looked_for_among_more_than_a_hundred_numbers(
    width: int, told: bool
) -> None:
    generator = np.random.default_rng(0)
    actions = generator.uniform(-1, 1, (2_100, width))
    rewards = np.roll(actions[:, 0], 1)
    found = delayed(moving(generator.normal(size=(2_100, 1)), actions, rewards))
    assert ("delayed-rewards" in kinds(found)) == told


def test_late_rewards_may_bend_with_the_observation() -> None:
    generator = np.random.default_rng(0)
    observations = generator.uniform(-2, 2, (1_000, 1))
    rewards = np.roll(np.sin(2 * observations[:, 0]), 1)
    found = delayed(moving(observations, generator.uniform(-1, 1, (1_000, 1)), rewards))
    assert "delayed-rewards" in kinds(found)


@pytest.mark.parametrize(
    ("late", "right", "told"),
    [(0.03, 0.0, True), (0.01, 0.0, False), (0.47, 0.1, True), (0.37, 0.1, False)],
)
def test_actions_are_shifted_if_another_row_explains_four_times_as_much(
    late: float, right: float, told: bool
) -> None:
    """These shares of each change are due to the action of the row before and of the row."""
    generator = np.random.default_rng(1)
    actions, others = generator.choice([-1.0, 1.0], (2, 1_500, 1))
    change = np.sqrt(right) * actions + np.sqrt(1 - late - right) * others
    change[1:] += np.sqrt(late) * actions[:-1]
    observations = np.concatenate([np.zeros((1, 1)), np.cumsum(change, axis=0)[:-1]])
    found = delayed(moving(observations, actions, others[:, 0]))
    assert ("shifted-actions" in kinds(found)) == told
