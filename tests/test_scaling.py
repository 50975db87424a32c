"""Logs in their own units: scaled while learning, and nowhere else to be seen."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

import bcq
from bcq.algorithms.learning import Metrics, Minibatch
from bcq.data.bounds import ActionBounds, TaskSpec
from bcq.data.columns import Columns, Provenance
from bcq.data.dataset import Dataset
from bcq.data.scaling import Scaling
from bcq.runs.directory import Run
from bcq.runs.recording import train_run
from bcq.runs.schedules import Schedule
from bcq.training.loop import Keys, on_device, sample, train, updates, value_estimate
from bcq.training.policy import Policy

TINY = bcq.BCQConfig(hidden_sizes=(16, 16), vae_hidden_sizes=(16, 16))
CENTRE, SPREAD, REWARD = np.array([300.0, 1e5, -4.0]), np.array([5.0, 2e4, 1e-3]), 40.0


def batch(
    centre: Any = 0.0, spread: Any = 1.0, reward: float = 1.0, *, rows: int = 400, **known: Any
) -> Dataset:
    """The same transitions in other units: observations centre + spread x, rewards times reward."""
    random = np.random.default_rng(0)
    walk = random.normal(size=(rows + 1, 3))
    walk = (walk - walk[:-1].mean(axis=0)) / walk[:-1].std(axis=0)
    rewards = random.normal(size=rows)
    columns = Columns(
        source="made up",
        arrays={
            "observations": centre + spread * walk[:-1],
            "actions": random.uniform(-1, 1, (rows, 2)),
            "rewards": reward * rewards / np.sqrt((rewards**2).mean()),
            "next_observations": centre + spread * walk[1:],
            "terminated": np.arange(rows) % 50 == 49,
        },
        provenance=Provenance(**known),
    )
    return Dataset.from_columns(columns)


def scaling_of(dataset: Dataset) -> Scaling:
    return Scaling.of(dataset.observations, dataset.rewards)


def train_last(dataset: Dataset, scaling: Scaling | None) -> bcq.BCQ:
    *_, last = train(TINY, dataset, steps=100, scaling=scaling)
    assert isinstance(last.learner, bcq.BCQ)
    return last.learner


def standardised(dataset: Dataset) -> Dataset:
    """The same batch, scaled by hand before it is read."""
    columns = dataset.columns()
    arrays = dict(columns.arrays)
    observations, rewards = arrays["observations"], arrays["rewards"]
    centre = observations.mean(axis=0, dtype=float).astype(np.float32)
    spread = (observations - centre.astype(float)).std(axis=0).astype(np.float32)
    for name in ("observations", "next_observations"):
        arrays[name] = (arrays[name] - centre) / spread
    arrays["rewards"] = rewards / np.float32(np.sqrt((rewards.astype(float) ** 2).mean()))
    return Dataset.from_columns(replace(columns, arrays=arrays))


# The numbers


def test_statistics_are_those_of_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bcq.data.scaling.BLOCK", 64)  # 400 rows are not a multiple
    scaling = scaling_of(batch(CENTRE, SPREAD, REWARD))
    np.testing.assert_allclose(scaling.centre, CENTRE, rtol=1e-6)
    np.testing.assert_allclose(scaling.spread, SPREAD, rtol=1e-3)
    np.testing.assert_allclose(scaling.reward_spread, REWARD, rtol=1e-5)


@pytest.mark.parametrize("size", [1e-9, 1.0, 1e9])
def test_columns_of_any_size_become_alike(size: float) -> None:
    dataset = batch(3 * size, size)
    scaled = scaling_of(dataset).observations(dataset.observations)
    np.testing.assert_allclose(scaled.mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(scaled.std(axis=0), 1, rtol=1e-5)


def test_constant_columns_become_zero_and_rewards_of_zero_stay() -> None:
    observations = np.tile(np.array([0.1, 1e9, 0, -0.1], np.float32), (1000, 1))
    scaling = Scaling.of(observations, np.zeros(1000, np.float32))
    np.testing.assert_allclose(scaling.observations(observations), 0, atol=1e-6)
    assert scaling.spread.tolist() == [1, 1, 1, 1]
    assert scaling.rewards(np.float32(0)) == 0
    assert scaling.reward_spread == 1
    changed = scaling.observations(np.array([[0.1, 1e9 + 640, 0, -0.1]], np.float32))
    assert np.abs(changed).max() <= 10  # a constant that changes later does not explode


def test_a_rare_flag_is_limited() -> None:
    flag = np.zeros((10_000, 1), np.float32)
    flag[7] = 1
    scaled = Scaling.of(flag, np.ones(10_000, np.float32)).observations(flag)
    assert scaled[7, 0] == 10  # its standard score is 100
    assert abs(scaled[8, 0]) < 0.02


def test_rewards_are_divided_and_not_shifted() -> None:
    rewards = np.array([-1000.5, -999.5, -1000.0], np.float32)
    scaling = Scaling.of(np.zeros((3, 1), np.float32), rewards)
    np.testing.assert_allclose(scaling.rewards(rewards), rewards / 1000, rtol=1e-5)
    np.testing.assert_allclose(scaling.values(scaling.rewards(rewards)), rewards, rtol=1e-6)


def test_the_task_keeps_it_in_json() -> None:
    task = replace(batch().task, scaling=scaling_of(batch(CENTRE, SPREAD, REWARD)))
    again = TaskSpec.from_json(json.loads(json.dumps(task.as_json()))).scaling
    assert task.scaling is not None
    assert again is not None
    for before, after in zip(task.scaling, again, strict=True):
        np.testing.assert_array_equal(before, after)
        assert before.dtype == after.dtype == np.float32
    assert "scaling" not in batch().task.as_json()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"observation_spread": [1, 1, 0]}, "a spread is not above 0"),
        ({"reward_spread": -1}, "a spread is not above 0"),
        ({"reward_spread": 0}, "a spread is not above 0"),
        ({"observation_centre": [1, 2]}, "is not for observations of size 3"),
        ({"observation_centre": [1, 2, float("nan")]}, "a number is not finite"),
        ({"reward_spread": None}, "scaling: "),
        ({"reward_spread": [1, 2]}, "is not for observations of size 3"),
    ],
)
def test_a_damaged_scaling_is_refused(change: dict[str, Any], message: str) -> None:
    told = {**scaling_of(batch()).as_json(), **change}
    with pytest.raises(ValueError, match=message):
        Scaling.from_json(told, 3)


def test_centres_of_zero_and_small_spreads_are_kept() -> None:
    rows = np.array([[-0.25, 1.0], [0.25, 3.0]], np.float32)
    scaling = Scaling.of(rows, np.array([0.5, -0.5], np.float32))
    assert scaling.as_json() == {
        "observation_centre": [0, 2],
        "observation_spread": [0.25, 1],
        "reward_spread": 0.5,
    }
    again = Scaling.from_json(scaling.as_json(), 2)
    for numbers in (scaling.centre, scaling.spread, again.centre, again.spread):
        with pytest.raises(ValueError, match="read-only"):
            numbers[0] = 1


# Learning


def test_minibatches_are_scaled_and_the_batch_is_not() -> None:
    dataset = batch(CENTRE, SPREAD, REWARD)
    scaling = scaling_of(dataset)
    key = jax.random.key(3)
    raw = sample(on_device(dataset), None, 400, 50, key)
    scaled = sample(on_device(dataset), scaling, 400, 50, key)
    for name in ("observations", "next_observations"):
        expected = (np.asarray(getattr(raw, name), float) - CENTRE) / SPREAD
        np.testing.assert_allclose(getattr(scaled, name), expected, atol=2e-3)
    np.testing.assert_allclose(scaled.rewards, np.asarray(raw.rewards) / REWARD, rtol=1e-5)
    np.testing.assert_array_equal(scaled.actions, raw.actions)


def test_a_raw_log_and_its_standardised_twin_give_the_same_policy() -> None:
    raw = batch(CENTRE, SPREAD, REWARD)
    twin = standardised(raw)
    scaling = scaling_of(raw)
    policies, metrics = [], []
    for dataset, scale in ((raw, scaling), (twin, None)):
        *_, last = train(TINY, dataset, steps=500, scaling=scale)  # rounding grows later
        policies.append(Policy(last.learner, replace(dataset.task, scaling=scale)))
        metrics.append(last.metrics)
    of_raw, of_twin = (
        policy.act(dataset.observations)
        for policy, dataset in zip(policies, (raw, twin), strict=True)
    )
    assert np.abs(of_raw - of_twin).max() < 2e-4  # 1e-4 of the range, which is 2
    assert np.ptp(of_raw, axis=0).min() > 0.1  # and it is not one action for every state
    values = [
        policy.value(dataset.observations, dataset.actions)
        for policy, dataset in zip(policies, (raw, twin), strict=True)
    ]
    assert [value.dtype for value in values] == [np.float64] * 2
    np.testing.assert_allclose(values[0], REWARD * values[1], atol=1e-3 * REWARD)
    name = "target_mean"
    assert metrics[0][name] == pytest.approx(REWARD * metrics[1][name], rel=1e-3)


def test_value_estimates_are_in_the_units_of_the_rewards() -> None:
    dataset = batch(CENTRE, SPREAD, REWARD)
    scaling = scaling_of(dataset)
    learner = train_last(dataset, scaling)
    key, window = jax.random.key(5), jnp.array(400)
    rows = sample(on_device(dataset), scaling, window, 100, key)
    expected = REWARD * float(learner.value(rows.observations, rows.actions).mean())
    estimate = value_estimate(learner, on_device(dataset), scaling, window, key)
    assert float(estimate) == pytest.approx(expected, rel=1e-4)


class Idle(eqx.Module):
    """Learns nothing, and values nothing."""

    def act(self, observations: Array, keys: Array) -> Array:
        del keys
        return jnp.zeros((len(observations), 2))

    def update(self, batch: Minibatch, key: Array) -> tuple["Idle", Metrics]:
        del key
        return self, {"loss": jnp.square(batch.rewards).mean()}


def test_a_learner_that_values_nothing_is_trained_without_values() -> None:
    dataset = batch(CENTRE, SPREAD, REWARD)
    windows, scaling = jnp.array([len(dataset)]), scaling_of(dataset)
    start, keys = (2_499, Idle()), Keys.of(0)
    given = (start, on_device(dataset), windows, keys)
    [(step, _, metrics)] = updates(*given, until=2_500, every=100, rows=200, scaling=scaling)
    assert step == 2_500  # a step at which values are estimated
    assert list(metrics) == ["loss"]
    assert 0.5 < metrics["loss"] < 2  # not 1600, as in the units of the rewards
    with pytest.raises(bcq.InputError, match="this algorithm has no value function"):
        Policy(Idle(), dataset.task).value(dataset.observations, dataset.actions)


def test_a_policy_sees_scaled_observations_and_clips_what_it_has_never_seen() -> None:
    dataset = batch(CENTRE, SPREAD)
    scaling = scaling_of(dataset)
    *_, last = train(TINY, dataset, steps=100, scaling=scaling)
    policy = Policy(last.learner, replace(dataset.task, scaling=scaling))
    inner = Policy(last.learner, dataset.task)
    expected = inner.act(scaling.observations(dataset.observations))
    np.testing.assert_array_equal(policy.act(dataset.observations), expected)
    far, farther = (policy.act([CENTRE + times * SPREAD]) for times in (20, 2_000))
    np.testing.assert_array_equal(far, farther)


def test_the_meter_does_not_depend_on_units() -> None:
    meters = []
    raw = batch(CENTRE, SPREAD)
    for dataset, scaled in ((raw, True), (standardised(raw), False)):
        scaling = scaling_of(dataset) if scaled else None
        *_, last = train(TINY, dataset, steps=100, scaling=scaling)
        policy = Policy(last.learner, replace(dataset.task, scaling=scaling))
        meters.append(bcq.extrapolation_meter(policy, dataset).summary())
    for name, value in meters[0].items():
        assert value == pytest.approx(meters[1][name], abs=2e-3), name


# Observations that are not finite


def test_an_observation_that_is_not_finite_is_an_error_or_gets_the_fallback() -> None:
    dataset = batch()
    *_, last = train(TINY, dataset, steps=100)
    policy = Policy(last.learner, dataset.task)
    rows = np.array([[0, 0, 0], [np.nan, 0, 0], [0, np.inf, 0], [0, 0, 1e39]])
    with pytest.raises(bcq.InputError, match="observations, row 1: a number is not finite"):
        policy.act(rows)
    actions = policy.act(rows, fallback=[0.25, -0.5])
    np.testing.assert_array_equal(actions[1:], np.array([[0.25, -0.5]] * 3, np.float32))
    others = policy.act(np.zeros((4, 3)))  # as many rows: a processor may round one row differently
    np.testing.assert_array_equal(actions[:1], others[:1])
    for wrong in ([0.25], [0.25, 2.0], [0.25, np.nan]):
        with pytest.raises(bcq.InputError, match=r"fallback: .* is not an action between"):
            policy.act(rows, fallback=wrong)


# Runs


SCHEDULE = Schedule(steps=200, checkpoint_every=100, evaluate_every=100)


def test_own_logs_are_scaled_and_batches_of_this_project_are_not(tmp_path: Path) -> None:
    scaled = train_run(tmp_path / "own", TINY, SCHEDULE, batch(CENTRE, SPREAD))
    assert scaled.task.scaling is not None
    np.testing.assert_allclose(scaled.task.scaling.centre, CENTRE, rtol=1e-6)
    raw = train_run(tmp_path / "collected", TINY, SCHEDULE, batch(recipe="random"))
    assert raw.task.scaling is None
    chosen = train_run(tmp_path / "none", TINY, SCHEDULE, batch(), scaling="none")
    assert chosen.task.scaling is None
    both = train_run(tmp_path / "std", TINY, SCHEDULE, batch(recipe="x"), scaling="standard")
    assert both.task.scaling is not None


def test_a_run_is_resumed_with_the_scaling_it_has(tmp_path: Path) -> None:
    dataset = batch(CENTRE, SPREAD)
    train_run(tmp_path / "whole", TINY, replace(SCHEDULE, steps=300), dataset)
    train_run(tmp_path / "parts", TINY, SCHEDULE, dataset)
    train_run(tmp_path / "parts", TINY, replace(SCHEDULE, steps=300), dataset, resume=True)
    name = "step-300.safetensors"
    whole, parts = (tmp_path / folder / name for folder in ("whole", "parts"))
    assert whole.read_bytes() == parts.read_bytes()
    train_run(tmp_path / "old", TINY, SCHEDULE, dataset, scaling="none")  # as before it existed
    again = train_run(tmp_path / "old", TINY, SCHEDULE, dataset, resume=True)
    assert again.task.scaling is None
    with pytest.raises(bcq.InputError, match=r"was started with task.scaling = None, not \{"):
        train_run(tmp_path / "old", TINY, SCHEDULE, dataset, scaling="standard", resume=True)


def test_a_policy_from_a_run_takes_the_units_of_the_log(tmp_path: Path) -> None:
    dataset = batch(CENTRE, SPREAD, REWARD)
    run = train_run(tmp_path, TINY, SCHEDULE, dataset)
    opened = Run.open(tmp_path).policy()
    actions = opened.act(dataset.observations)
    np.testing.assert_array_equal(actions, run.policy().act(dataset.observations))
    inner = Policy(opened.learner, dataset.task)
    scaled = scaling_of(dataset).observations(dataset.observations)
    np.testing.assert_array_equal(actions, inner.act(scaled))
    *_, last = train(TINY, dataset, steps=200, scaling=scaling_of(dataset))
    assert eqx.tree_equal(opened.learner, last.learner)


def test_bounds_other_than_minus_1_and_1_are_scaled_too() -> None:
    dataset = replace(batch(CENTRE, SPREAD), bounds=ActionBounds(np.full(2, -2), np.full(2, 4)))
    *_, last = train(TINY, dataset, steps=100, scaling=scaling_of(dataset))
    policy = Policy(last.learner, replace(dataset.task, scaling=scaling_of(dataset)))
    values = policy.value(dataset.observations, dataset.actions)
    inside = dataset.bounds.normalise(dataset.actions)
    learner = last.learner
    assert isinstance(learner, bcq.BCQ)
    assert policy.task.scaling is not None
    seen = jnp.asarray(policy.scaled(dataset.observations))
    expected = np.asarray(learner.value(seen, jnp.asarray(inside)), float)
    np.testing.assert_allclose(values, expected * policy.task.scaling.reward_spread, rtol=1e-5)
