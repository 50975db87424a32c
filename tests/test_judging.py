"""Judging a policy from logs alone: fitted values, importance sampling, support, the verdict."""

from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import oracle_judging as oracle
from bcq.judging import fitting, importance, values
from bcq.judging.fitting import (
    LOOKS,
    FitSettings,
    LoggedSteps,
    has_settled,
    limit_of,
    resample,
    value_bounds,
)
from bcq.judging.importance import Sampled, Table, importance_of
from bcq.judging.values import Comparison, Estimate, Log, Proposed, compare, share_at_limit
from bcq.system.errors import InputError
from judging_cases import CHOICES, DISCOUNT, STATES, log_of, random_mdp, table_policy

# A table: one number for each state and choice. Fits of tables are quick.
TABLE = FitSettings(
    fits=4, period=1_000, batch_size=512, learning_rate=0.01, hidden_sizes=(), widening=1.0
)
CHOSEN = np.array([0, 1, 1, 0])
UNUSED: Any = object()  # a behaviour: these logs have propensities


def steps_of(random: np.random.Generator, rows: int = 6) -> LoggedSteps:
    return LoggedSteps(
        observations=jnp.zeros((rows, 1)),
        actions=jnp.zeros((rows, 1)),
        rewards=jnp.asarray(random.normal(size=rows), jnp.float32),
        next_observations=jnp.zeros((rows, 1)),
        next_actions=jnp.zeros((rows, 2, 1)),
        terminated=jnp.asarray(random.integers(2, size=rows) == 1),
        lowest=jnp.float32(-1.5),
        highest=jnp.float32(2.0),
    )


# Fitted values


def test_targets_are_those_of_the_definition() -> None:
    random = np.random.default_rng(0)
    steps = steps_of(random, 40)
    values = random.normal(size=(40, 2)) * 3
    values[np.asarray(steps.terminated)] = np.nan  # never read
    expected = oracle.fqe_target(
        *(np.asarray(steps.rewards, float), np.asarray(steps.terminated), values),
        *(0.9, -1.5, 2.0),
    )
    found = fitting.fitted_target(steps, jnp.asarray(values.mean(axis=1)), 0.9)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert {-1.5, 2.0} <= set(np.asarray(found).tolist())  # both limits are reached


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=5), st.sampled_from([0.0, 0.5, 0.99]))
def test_bounds_of_values_are_those_of_the_definition(
    rewards: list[float], discount: float
) -> None:
    assert value_bounds(np.array(rewards), discount) == pytest.approx(
        oracle.value_bounds(np.array(rewards), discount)
    )


def test_each_fit_learns_from_as_many_episodes_as_there_are_drawn_with_replacement() -> None:
    spans = np.array([[0, 2], [2, 7], [7, 8]])
    resampled, counts = resample(spans, 50, np.random.default_rng(0))
    assert (counts.sum(axis=1) == 3).all()
    assert counts.min() == 0
    assert counts.max() == 3
    for fit in range(50):
        rows = np.asarray(resampled.rows[fit, : resampled.lengths[fit]])
        episode_of = [0, 0, 1, 1, 1, 1, 1, 2]
        assert np.bincount(rows, minlength=8).tolist() == counts[fit][episode_of].tolist()


def test_a_target_network_follows_as_the_horizon_asks() -> None:
    assert fitting.target_rate(0.99, 2_000) == pytest.approx(0.05)
    assert fitting.target_rate(0.9, 2_000) == pytest.approx(0.005)
    assert fitting.target_rate(0.9999, 2_000) == 0.5


def test_an_estimate_has_settled_when_two_periods_agree() -> None:
    before = [1.0] * 10
    assert not has_settled([1.0] * 19, 0.0)  # two periods are twenty looks
    assert has_settled([5.0, *before, *before], 0.0)
    assert not has_settled([*before, 5.0, *before[1:]], 0.0)
    assert has_settled([*before, *[1.009] * 10], 0.0)
    assert not has_settled([*before, *[1.02] * 10], 0.0)
    assert has_settled([*before, *[1.02] * 10], 0.25)  # little beside the spread among the fits
    assert not has_settled([*before, *[1.02] * 10], 0.15)
    assert has_settled([-1.0] * 10 + [-1.009] * 10, 0.0)
    assert not has_settled([*before, *[0.98] * 10], 0.0)


@pytest.mark.parametrize("discount", [0.5, 0.99])
def test_values_are_as_large_as_rewards_for_the_networks(discount: float) -> None:
    dataset = log_of(random_mdp(0), 8, seed=0)
    log = Log(replace(dataset, rewards=1_000 * dataset.rewards), discount)
    nothing = np.zeros((len(dataset), 0), np.float32)
    steps = log.steps(nothing, nothing[:, None])
    assert np.square(steps.rewards).mean() ** 0.5 == pytest.approx(1 - discount, rel=1e-5)
    np.testing.assert_allclose(log.unit * steps.rewards, log.dataset.rewards, rtol=1e-5)


@pytest.fixture(scope="module")
def judged() -> tuple[Any, Comparison]:
    """A log of a random MDP, and a policy's values on it."""
    dataset = log_of(random_mdp(0), 200, seed=1, propensities=True)
    settings = replace(TABLE, fits=4)
    policy = table_policy(CHOSEN, dataset)
    return dataset, compare(policy, dataset, discount=DISCOUNT, seed=3, settings=settings)


def test_fitted_values_are_those_of_a_table_solved_exactly(
    judged: tuple[Any, Comparison],
) -> None:
    dataset, found = judged
    policy = np.eye(CHOICES)[CHOSEN]
    spans, counts = dataset.episodes, found.counts
    for fit in range(4):  # each on its own episodes
        drawn = np.repeat(spans, counts[fit], axis=0)
        rows = np.concatenate([np.arange(*span) for span in drawn])
        transitions = [
            (
                int(dataset.observations[row].argmax()),
                int(dataset.actions[row, 0]),
                float(dataset.rewards[row]),
                int(dataset.next_observations[row].argmax()),
                bool(dataset.terminated[row]),
            )
            for row in rows
        ]
        table = oracle.tabular_fqe(transitions, policy, DISCOUNT, STATES, CHOICES)
        starts = dataset.observations[spans[:, 0]].argmax(axis=1)
        exact = (counts[fit] * table[starts, CHOSEN[starts]]).sum() / counts[fit].sum()
        assert found.fits[fit] == pytest.approx(exact, abs=0.01 * np.abs(table).max())
    assert found.settled


def test_values_are_carried_on_to_where_they_tend() -> None:
    time = np.arange(100) / LOOKS  # in periods
    looks = 3.0 - 2.0 * np.exp(-time)[:, None, None] * np.ones((1, 2, 5))
    for end in (20, 35, 100):
        np.testing.assert_allclose(limit_of(looks[:end]), 3.0, rtol=1e-12)
    assert looks[34].max() < 2.95
    constant = np.full((2 * LOOKS, 1, 1), 7.0)
    assert limit_of(constant) == 7.0


def test_values_beyond_what_rewards_allow_are_clipped(monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = log_of(random_mdp(0), 20, seed=0)
    low, high = value_bounds(dataset.rewards.astype(float), DISCOUNT)
    policy = table_policy(CHOSEN, dataset)
    settings = FitSettings(period=100, fits=3, hidden_sizes=())
    for far, end in ((1e6, high), (-1e6, low)):
        monkeypatch.setattr(fitting, "limit_of", lambda looks, far=far: looks[-1] + far)
        found = compare(policy, dataset, discount=DISCOUNT, settings=settings)
        assert found.policy.value == pytest.approx(end, rel=1e-5)


def test_values_are_near_the_truth_and_intervals_hold_it(judged: tuple[Any, Comparison]) -> None:
    _, found = judged
    mdp = random_mdp(0)
    truth = mdp.values(np.eye(CHOICES)[CHOSEN]).mean()  # every state is as often the first
    behaviour = mdp.values(np.full((STATES, CHOICES), 1 / CHOICES)).mean()
    assert found.policy.low < truth < found.policy.high
    assert found.behaviour.low < behaviour < found.behaviour.high
    assert found.difference.low < truth - behaviour < found.difference.high
    assert found.policy.value == pytest.approx(truth, abs=0.3)
    assert found.difference.value == pytest.approx(found.policy.value - found.behaviour.value)
    assert found.at_limit == 0


def test_what_follows_a_cut_end_is_part_of_the_behaviours_value() -> None:
    mdp = random_mdp(4)
    behaviour = mdp.values(np.full((STATES, CHOICES), 1 / CHOICES)).mean()
    dataset = log_of(mdp, 600, seed=2, length=5)
    found = compare(table_policy(CHOSEN, dataset), dataset, discount=DISCOUNT, settings=TABLE)
    assert found.tail == pytest.approx(DISCOUNT**5 * 0.95**5, abs=0.05)
    plain = np.mean(
        [
            oracle.discounted_return(dataset.rewards[slice(*span)].astype(float), DISCOUNT)
            for span in dataset.episodes
        ]
    )
    assert abs(plain - behaviour) > 0.3  # much is missing
    assert found.behaviour.value == pytest.approx(behaviour, abs=0.15)


def test_the_behaviour_is_valued_once_for_all_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = log_of(random_mdp(0), 20, seed=0, length=3)
    told: list[str] = []
    fit = fitting.fit_values

    def fitted(*args: Any, what: str, **kwargs: Any) -> Any:
        told.append(what)
        return fit(*args, what=what, **kwargs)

    monkeypatch.setattr(values, "fit_values", fitted)
    settings = FitSettings(period=100, fits=3, hidden_sizes=())
    one, other = (
        compare(table_policy(chosen, dataset), dataset, discount=DISCOUNT, settings=settings)
        for chosen in (CHOSEN, 1 - CHOSEN)
    )
    assert told == ["fitting values", "fitting values of the behaviour", "fitting values"]
    assert one.behaviour == other.behaviour
    compare(table_policy(CHOSEN, dataset), dataset, discount=0.8, settings=settings)
    assert told[3:] == told[:2]


def test_values_at_the_limit_are_suspicious_unless_the_log_came_near() -> None:
    values = np.array([[10.0, 9.98], [9.99, 3.0]])
    assert share_at_limit(values, 8.0, 0.0, 10.0) == 0.25  # more than 9.99
    assert share_at_limit(values, 9.0, 0.0, 10.0) == 0.25
    assert share_at_limit(values, 9.1, 0.0, 10.0) == 0
    assert share_at_limit(-values, 8.0, -10.0, 10.0) == 0


@pytest.mark.parametrize(("usual", "near"), [(0.1, False), (1.0, True)])
def test_the_log_comes_near_if_its_usual_reward_would_do(
    monkeypatch: pytest.MonkeyPatch, usual: float, near: bool
) -> None:
    dataset = log_of(random_mdp(0), 20, seed=0, length=3)  # too short to reach the limit, 10
    rewards = np.full(len(dataset), usual, np.float32)
    rewards[::3] = 1.0
    dataset = replace(dataset, rewards=rewards, terminated=dataset.terminated | dataset.truncated)
    monkeypatch.setattr(fitting, "limit_of", lambda looks: looks[-1] + 1e6)
    settings = FitSettings(period=100, fits=3, hidden_sizes=())
    found = compare(table_policy(CHOSEN, dataset), dataset, discount=DISCOUNT, settings=settings)
    assert found.policy.value == pytest.approx(10.0)
    assert found.at_limit == (0.0 if near else 1.0)
    logged = [
        oracle.discounted_return(rewards[slice(*span)].astype(float), DISCOUNT)
        for span in dataset.episodes
    ]
    assert found.best_episode == pytest.approx(max(logged))


def test_an_interval_is_students() -> None:
    fits = np.array([1.0, 2.0, 4.0])
    found = Estimate.of(2.5, fits)
    assert (found.low, found.high) == pytest.approx(oracle.student_interval(fits, 2.5))
    assert found.value == 2.5
    wide = Estimate.of(2.5, fits, widening=3.0)
    assert wide.high - 2.5 == pytest.approx(3 * (found.high - 2.5))


def test_intervals_of_fitted_values_are_widened_and_those_of_averages_are_not() -> None:
    dataset = log_of(random_mdp(0), 20, seed=0, length=60)  # long enough to need no value after it
    policy, settings = table_policy(CHOSEN, dataset), FitSettings(period=100, hidden_sizes=())
    plain, wide = (
        compare(policy, dataset, discount=DISCOUNT, settings=replace(settings, widening=each))
        for each in (1.0, 2.5)
    )
    assert wide.behaviour == plain.behaviour
    for one, other in ((wide.policy, plain.policy), (wide.difference, plain.difference)):
        assert one.value == other.value
        assert one.high - one.value == pytest.approx(2.5 * (other.high - other.value))
    assert wide.sure == plain.sure == plain.policy.low
    assert wide.above(plain).high == pytest.approx(0, abs=1e-12)  # the same policy, the same fits


def test_an_interval_ends_where_rewards_allow_no_more() -> None:
    assert Estimate(2.0, -1.0, 5.0).within(0.0, 4.0) == Estimate(2.0, 0.0, 4.0)
    assert Estimate(2.0, 1.0, 3.0).within(0.0, 4.0) == Estimate(2.0, 1.0, 3.0)
    dataset = log_of(random_mdp(0), 20, seed=0)
    low, high = value_bounds(dataset.rewards.astype(float), DISCOUNT)
    settings = FitSettings(period=100, fits=3, hidden_sizes=(), widening=1e9)
    policy = table_policy(CHOSEN, dataset)
    found = compare(policy, dataset, discount=DISCOUNT, settings=settings)
    assert found.policy[1:] == pytest.approx((low, high))
    least, most = low - found.behaviour.high, high - found.behaviour.low
    assert found.difference[1:] == pytest.approx((least, most))


@pytest.mark.parametrize("which", [0, 1])
def test_values_have_settled_only_if_those_of_the_behaviour_have(
    which: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = log_of(random_mdp(0), 20, seed=0, length=3)  # what follows the cut ends is fitted
    settled, fit = iter([which == 1, which == 0]), fitting.fit_values

    def fitted(*args: Any, **kwargs: Any) -> Any:
        return fit(*args, **kwargs)._replace(settled=next(settled))

    monkeypatch.setattr(values, "fit_values", fitted)
    settings = FitSettings(period=100, fits=3, hidden_sizes=())
    policy = table_policy(CHOSEN, dataset)
    assert not compare(policy, dataset, discount=DISCOUNT, settings=settings).settled


def test_the_difference_is_taken_in_each_draw_of_the_episodes() -> None:
    dataset = log_of(random_mdp(0), 20, seed=0, length=60)  # long enough to need no value after it
    settings = FitSettings(period=100, hidden_sizes=())
    found = compare(table_policy(CHOSEN, dataset), dataset, discount=DISCOUNT, settings=settings)
    returns = [
        sum(DISCOUNT**time * reward for time, reward in enumerate(dataset.rewards[first:stop]))
        for first, stop in dataset.episodes
    ]
    drawn = [
        fit - sum(count * one for count, one in zip(counts, returns, strict=True)) / sum(counts)
        for fit, counts in zip(found.fits, found.counts, strict=True)
    ]
    assert found.difference == pytest.approx(
        Estimate.of(found.policy.value - np.mean(returns), np.array(drawn), settings.widening)
    )


# Importance sampling


@st.composite
def logs(draw: st.DrawFn) -> Any:
    """Episodes for the oracle, and the same as columns."""
    random = np.random.default_rng(draw(st.integers(0, 2**16)))
    lengths = draw(st.lists(st.integers(1, 5), min_size=1, max_size=5))
    episodes, ratios, values, of_states, final = [], [], [], [], []
    for length in lengths:
        terminated = bool(random.integers(2))
        nothing = np.zeros(length, np.int64)
        rewards = random.normal(size=length)
        episodes.append(oracle.Episode(nothing, nothing, rewards, terminated, 0))
        ratios.append(random.choice([0.0, 0.5, 2.0], size=length, p=[0.2, 0.4, 0.4]))
        values.append(random.normal(size=length))
        of_states.append(random.normal(size=length))
        final.append(0.0 if terminated else random.normal())
    return episodes, ratios, values, of_states, np.array(final)


@given(logs())
def test_importance_sampling_is_that_of_the_definitions(case: Any) -> None:
    episodes, ratios, values, of_states, final = case
    ends = np.cumsum([len(one) for one in ratios])
    table = Table(np.stack([np.append(0, ends[:-1]), ends], axis=1))
    weights = importance.cumulative_weights(table, np.concatenate(ratios))
    rewards = np.concatenate([one.rewards for one in episodes])
    once = np.ones(len(episodes))
    assert importance.weighted_per_decision(table, rewards, once, weights, 0.9) == pytest.approx(
        oracle.weighted_per_decision(episodes, ratios, 0.9), abs=1e-12
    )
    parts = (np.concatenate(values), np.concatenate(of_states), final)
    assert importance.weighted_doubly_robust(
        table, rewards, once, weights, *parts, 0.9
    ) == pytest.approx(
        oracle.weighted_doubly_robust(episodes, ratios, values, of_states, 0.9, final), abs=1e-12
    )
    last = np.array([np.prod(one) for one in ratios])
    assert importance.effective_episodes(weights) == pytest.approx(
        oracle.effective_sample_size(last)
    )


@given(logs(), st.integers(0, 2**16))
def test_an_episode_that_counts_twice_is_there_twice(case: Any, seed: int) -> None:
    episodes, ratios, values, of_states, final = case
    counts = np.random.default_rng(seed).integers(0, 3, len(episodes)).astype(float)
    counts[0] += 1
    ends = np.cumsum([len(one) for one in ratios])
    table = Table(np.stack([np.append(0, ends[:-1]), ends], axis=1))
    weights = importance.cumulative_weights(table, np.concatenate(ratios))
    rewards = np.concatenate([one.rewards for one in episodes])

    def repeated(items: Any) -> list[Any]:
        return [item for item, count in zip(items, counts, strict=True) for _ in range(int(count))]

    again = [repeated(items) for items in (episodes, ratios, values, of_states, final)]
    assert importance.weighted_per_decision(table, rewards, counts, weights, 0.9) == pytest.approx(
        oracle.weighted_per_decision(again[0], again[1], 0.9), abs=1e-12
    )
    parts = (np.concatenate(values), np.concatenate(of_states), final)
    assert importance.weighted_doubly_robust(
        table, rewards, counts, weights, *parts, 0.9
    ) == pytest.approx(
        oracle.weighted_doubly_robust(
            again[0], again[1], again[2], again[3], 0.9, np.array(again[4])
        ),
        abs=1e-12,
    )


def test_importance_sampling_of_choices_is_near_the_truth() -> None:
    mdp = random_mdp(0)
    mdp.chances[:] *= 0.5  # short episodes, which a policy follows to their end often enough
    dataset = log_of(mdp, 800, seed=1, propensities=True)
    policy = table_policy(CHOSEN, dataset)
    found = compare(policy, dataset, discount=DISCOUNT, settings=TABLE)
    sampled = importance_of(policy, dataset, found, UNUSED, discount=DISCOUNT, seed=0)
    assert isinstance(sampled, Sampled)
    truth = mdp.values(np.eye(CHOICES)[CHOSEN]).mean()
    for estimate in (sampled.weighted, sampled.doubly_robust):
        assert estimate.value == pytest.approx(truth, abs=0.2)
        assert estimate.low < truth < estimate.high
    assert sampled.logged
    assert 10 < sampled.effective < 800


def test_importance_sampling_is_refused_where_it_is_hopeless(
    judged: tuple[Any, Comparison],
) -> None:
    dataset, found = judged
    few = replace(dataset, propensities=np.full(len(dataset), 1e-3, np.float32))
    policy = table_policy(CHOSEN, dataset)
    told = importance_of(policy, few, found, UNUSED, discount=DISCOUNT, seed=0)
    assert isinstance(told, str)
    assert "effective sample size" in told


# The actions of a policy


def test_the_actions_of_a_policy_are_counted_as_they_come(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("bcq.system.progress.EVERY", 0.0)
    dataset = log_of(random_mdp(0), 8, seed=0)
    rows = len(dataset)
    Proposed.by(table_policy(CHOSEN, dataset), dataset, seed=0)
    assert [line.split(",")[0] for line in capsys.readouterr().err.splitlines()] == [
        f"actions of the policy: {done} of {rows + 8} actions" for done in (rows, rows + 8)
    ]


# What cannot be judged


@pytest.mark.parametrize(
    ("change", "discount", "message"),
    [
        ({}, 0.9991, "discount: 0.9991 is not between 0 and 0.999"),
        ({}, -0.1, "discount: -0.1 is not between 0 and 0.999"),
        ({"rewards": 0.0, "terminated": False}, 0.9, "judging needs rewards that differ"),
        ({"episodes": 4}, 0.9, "judging needs at least 5 episodes to judge by; there are 4"),
    ],
)
def test_what_cannot_be_judged_is_refused(
    change: dict[str, Any], discount: float, message: str
) -> None:
    dataset = log_of(random_mdp(0), change.pop("episodes", 8), seed=1)
    columns = {name: np.full_like(getattr(dataset, name), value) for name, value in change.items()}
    dataset = replace(dataset, **columns)
    with pytest.raises(InputError, match=message):
        compare(table_policy(CHOSEN, dataset), dataset, discount=discount, settings=TABLE)
