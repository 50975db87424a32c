"""True values against a closed form, and the measurement's manners."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.spaces import Box
from jax import Array
from numpy.typing import NDArray

import bcq
from bcq.data.bounds import ActionBounds
from bcq.data.columns import Columns, Provenance
from bcq.data.dataset import Dataset
from bcq.runs.value_logs import measure_run, values_by_step
from bcq.simulation.environments import (
    make,
    set_simulator_state,
    simulator_state,
    state_from_observation,
)
from bcq.simulation.true_values import (
    HORIZON,
    Values,
    average_ranks,
    measure_values,
    require_measurable,
    true_values,
)
from bcq.training import policy as policies
from bcq.training.policy import Policy

NAME, LIMIT, CLIFF = "Decay-v0", 30, 4.0
SHRINK, DISCOUNT = 0.9, 0.99


class Decay(gymnasium.Env[NDArray[np.float64], NDArray[np.float32]]):
    """A point on a line that an action shifts; the reward is where it then is.

    Beyond the cliff the episode terminates. It has MuJoCo's way of getting and setting a state.
    """

    observation_space = Box(-np.inf, np.inf, (1,), np.float64)
    action_space = Box(-2, 2, (1,), np.float32)  # half-width 2: scales must be told apart

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float64], dict[str, Any]]:
        super().reset(seed=seed)
        self.set_state(np.array([self.np_random.uniform(-1, 1)]), np.zeros(1))
        return self.data.qpos.copy(), {}

    def set_state(self, qpos: NDArray[np.float64], qvel: NDArray[np.float64]) -> None:
        self.data = SimpleNamespace(qpos=qpos.copy(), qvel=qvel.copy())

    def step(
        self, action: NDArray[np.float32]
    ) -> tuple[NDArray[np.float64], float, bool, bool, dict[str, Any]]:
        position = self.data.qpos + float(action[0])
        self.set_state(position, self.data.qvel)
        return position.copy(), float(position[0]), bool(abs(position[0]) > CLIFF), False, {}


class Shrinking(eqx.Module):
    """Moves a point to 0.9 of where it is; believes that every pair is worth 7."""

    def act(self, observations: Array, keys: Array) -> Array:
        del keys
        return -(1 - SHRINK) * observations / 2  # the action range's half-width is 2

    def value(self, observations: Array, actions: Array) -> Array:
        return 7.0 + 0 * (observations + actions)[:, 0]


class Restless(eqx.Module):
    """Goes anywhere, by its keys alone."""

    def act(self, observations: Array, keys: Array) -> Array:
        del observations
        return jax.vmap(lambda key: jax.random.uniform(key, (1,), minval=-0.2, maxval=0.2))(keys)


@pytest.fixture(autouse=True, scope="module")
def registered() -> Any:
    gymnasium.register(NAME, lambda **_: Decay(), max_episode_steps=LIMIT)
    yield
    del gymnasium.registry[NAME]


def make_batch(episodes: int = 8, seed: int = 0) -> Dataset:
    """Episodes of 20 steps, cut; states and actions anywhere."""
    random, rows = np.random.default_rng(seed), 20 * episodes
    qpos = random.uniform(-3, 3, (rows, 1))
    columns = Columns(
        "made up",
        {
            "observations": qpos,
            "actions": random.uniform(-2, 2, (rows, 1)),
            "rewards": random.normal(size=rows),
            "next_observations": qpos,
            "terminated": np.zeros(rows, bool),
            "truncated": np.arange(rows) % 20 == 19,
            "qpos": qpos,
            "qvel": np.zeros((rows, 1)),
        },
        Provenance(environment=NAME),
    )
    return Dataset.from_columns(columns, ActionBounds(np.array([-2]), np.array([2])))


def policy_for(dataset: Dataset) -> Policy:
    return Policy(Shrinking(), dataset.task)


def closed_form(dataset: Dataset, rows: NDArray[np.int64], steps: int | NDArray[np.int64]) -> Any:
    """The first reward has weight 1; then a geometric series, unless the first step ends it."""
    assert dataset.qpos is not None
    first = dataset.qpos[rows, 0] + dataset.actions[rows, 0].astype(float)
    factor = DISCOUNT * SHRINK
    series = first * (1 - factor**steps) / (1 - factor)
    return np.where(np.abs(first) > CLIFF, first, series)


def test_the_truth_is_the_closed_form_pair_by_pair() -> None:
    dataset = make_batch()
    values = measure_values(policy_for(dataset), dataset, NAME, discount=DISCOUNT, seed=1)
    expected = closed_form(dataset, values.rows, HORIZON)
    ends_at_once = np.abs(dataset.observations + dataset.actions)[values.rows, 0] > CLIFF
    assert len(values.rows) == len(set(values.rows.tolist())) == 100
    assert ends_at_once.any()
    np.testing.assert_allclose(values.truths, expected, atol=1e-4)
    np.testing.assert_allclose(values.estimates, 7.0)


def test_to_the_time_limit_the_logged_steps_are_counted() -> None:
    dataset = make_batch()
    values = measure_values(policy_for(dataset), dataset, NAME, discount=DISCOUNT, seed=1)
    left = LIMIT - values.rows % 20
    np.testing.assert_allclose(values.limited, closed_form(dataset, values.rows, left), atol=1e-4)
    assert (np.abs(values.limited - values.truths) > 1e-2).mean() > 0.5


def test_the_truth_does_not_depend_on_which_rollouts_run_together() -> None:
    dataset = make_batch()
    policy, rows = policy_for(dataset), np.arange(0, 160, 3)
    together, _ = true_values(policy, dataset, NAME, rows, DISCOUNT, 0)
    alone = [true_values(policy, dataset, NAME, rows[i : i + 1], DISCOUNT, 0)[0] for i in range(5)]
    np.testing.assert_allclose(np.concatenate(alone), together[:5], atol=1e-5)


def test_a_policy_draws_anew_at_each_step_of_each_rollout(monkeypatch: pytest.MonkeyPatch) -> None:
    dataset, seed = make_batch(), 5
    firsts = np.abs(dataset.observations + dataset.actions)[:, 0]
    rows = np.array([np.argmax(firsts > CLIFF), 3, 50, 100])  # one ends at once: the others stay
    monkeypatch.setattr("bcq.simulation.true_values.HORIZON", 5)
    policy = Policy(Restless(), dataset.task)
    truths, _ = true_values(policy, dataset, NAME, rows, DISCOUNT, seed)
    for pair, row in enumerate(rows.tolist()):
        position = float(dataset.observations[row, 0] + dataset.actions[row, 0])
        expected = position
        for time in range(1, 5):
            key = jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), time), pair)
            if abs(position) > CLIFF:
                break
            position += 2 * float(jax.random.uniform(key, (), minval=-0.2, maxval=0.2))
            expected += DISCOUNT**time * position
        assert truths[pair] == pytest.approx(expected, abs=1e-4)


def test_rollouts_stop_after_a_thousand_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    assert HORIZON == 1_000
    dataset = make_batch()
    monkeypatch.setattr("bcq.simulation.true_values.HORIZON", 5)
    rows = np.arange(10)
    truths, _ = true_values(policy_for(dataset), dataset, NAME, rows, DISCOUNT, 0)
    np.testing.assert_allclose(truths, closed_form(dataset, rows, 5), atol=1e-4)


def test_pairs_are_drawn_from_a_stream_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Role 4 of the seed 1: neither the evaluation's numbers nor the learner's."""
    dataset = make_batch()
    monkeypatch.setattr("bcq.simulation.true_values.HORIZON", 1)
    values = measure_values(policy_for(dataset), dataset, NAME, discount=DISCOUNT, seed=1)
    own = np.random.SeedSequence(1, spawn_key=(4,)).generate_state(1)[0] >> 1
    drawn = np.random.default_rng(int(own)).choice(len(dataset), 100, replace=False)
    assert values.rows.tolist() == sorted(drawn.tolist())


def test_only_rows_of_the_window_are_drawn() -> None:
    dataset = make_batch()
    values = measure_values(policy_for(dataset), dataset, NAME, discount=DISCOUNT, window=12)
    assert values.rows.tolist() == list(range(12))


def test_summary_by_hand() -> None:
    truths = np.arange(10.0) + 1
    figures = Values(np.arange(10), 2 * truths + 1, truths, truths / 2).summary()
    assert figures["bias"] == pytest.approx(6.5)
    assert figures["ratio"] == pytest.approx(12 / 5.5)
    assert figures["rank_correlation"] == pytest.approx(1)
    assert [figures["pairs"], figures["estimate"], figures["truth"]] == [10, 12, 5.5]
    assert figures["truth_std"] == pytest.approx(8.25**0.5)
    assert figures["truth_to_time_limit"] == pytest.approx(2.75)
    backwards = Values(np.arange(10), -truths, truths, truths).summary()
    assert backwards["rank_correlation"] == pytest.approx(-1)


def test_pairs_are_raw_and_come_back_as_they_were() -> None:
    values = Values(np.array([4]), np.array([1.0]), np.array([2.0]), np.array([3.0]))
    pair = {"row": 4, "estimate": 1.0, "truth": 2.0, "limited": 3.0}
    assert list(values.pairs()) == [pair]
    again = Values.from_pairs([pair])
    assert [again.rows[0], again.estimates[0], again.truths[0], again.limited[0]] == [4, 1, 2, 3]


def test_intervals_hold_the_middle_ninety_five_of_a_hundred() -> None:
    """The bootstrap of a mean is nearly normal: 1.96 standard errors to either side."""
    random = np.random.default_rng(0)
    truths = random.normal(50, 20, 200)
    estimates = truths + random.normal(3, 2, 200)
    figures = Values(np.arange(200), estimates, truths, truths).summary(seed=1)
    half = 1.96 * np.std(estimates - truths) / 200**0.5
    low, high = figures["bias_interval"]  # type: ignore[misc]
    assert figures["bias"] - low == pytest.approx(half, rel=0.12)  # type: ignore[operator]
    assert high - figures["bias"] == pytest.approx(half, rel=0.12)  # type: ignore[operator]


def test_intervals_are_of_two_thousand_resamples_of_the_pairs_from_seed_zero() -> None:
    random = np.random.default_rng(3)
    truths = random.normal(5, 1, 12)
    estimates = truths + random.normal(0, 1, 12)
    figures = Values(np.arange(12), estimates, truths, truths).summary()
    draws = np.random.default_rng(0).integers(12, size=(2_000, 12))
    sums = np.array([[estimates[rows].sum(), truths[rows].sum()] for rows in draws])
    expected = {"bias": (sums[:, 0] - sums[:, 1]) / 12, "ratio": sums[:, 0] / sums[:, 1]}
    for name, resampled in expected.items():
        ordered = np.sort(resampled)
        low, high = ordered[[49, 1949]], ordered[[50, 1950]]  # 2.5% and 97.5% lie between
        interval: Any = figures[f"{name}_interval"]
        np.testing.assert_allclose(interval, low + np.array([0.975, 0.025]) * (high - low))


def test_resamples_without_a_measure_are_left_out_of_its_interval() -> None:
    estimates, truths = np.array([1.0, 2.0, 3.0]), np.array([3.0, 1.0, 2.0])
    figures = Values(np.arange(3), estimates, truths, truths).summary()
    low, high = figures["rank_correlation_interval"]  # type: ignore[misc]
    assert figures["rank_correlation"] == pytest.approx(-0.5)
    assert (low, high) == (pytest.approx(-1), pytest.approx(1))


def test_there_is_no_rank_correlation_with_values_that_are_all_alike() -> None:
    alike, different = np.full(5, 7.0), np.arange(5.0)
    for estimates, truths in ((alike, different), (different, alike)):
        figures = Values(np.arange(5), estimates, truths, truths).summary()
        assert figures["rank_correlation"] is None


def test_measures_that_do_not_exist_are_none_and_no_broken_json() -> None:
    zero = np.zeros(5)
    figures = Values(np.arange(5), zero + 7, zero, zero).summary()
    assert figures["rank_correlation"] is figures["rank_correlation_interval"] is None
    assert figures["ratio"] is figures["ratio_interval"] is None
    assert "NaN" not in json.dumps(figures)


def test_equal_values_share_their_rank() -> None:
    assert average_ranks(np.array([5.0, 1.0, 5.0, 7.0])).tolist() == [1.5, 0, 1.5, 3]


@pytest.mark.parametrize(
    "name",
    [
        *("Hopper-v5", "HalfCheetah-v5", "Walker2d-v5", "Reacher-v5"),
        *("Pendulum-v1", "CartPole-v1", "Acrobot-v1"),
    ],
)
def test_states_rebuilt_from_observations_are_the_stored_ones(name: str) -> None:
    dataset = bcq.collect_random(name, transitions=60, seed=2)
    assert dataset.qpos is not None
    assert dataset.qvel is not None
    env = make(name, time_limit=False)
    env.reset(seed=0)
    exact = np.flatnonzero((np.abs(dataset.observations) != 10).all(axis=1))  # none is clipped
    assert len(exact) >= (20 if name == "Walker2d-v5" else 60)
    for row in exact:
        rebuilt = state_from_observation(env, dataset.observations[row])
        assert all(part.dtype == np.float64 for part in rebuilt)
        set_simulator_state(env, rebuilt)
        following, reward, *_ = env.step(dataset.actions[row])
        np.testing.assert_allclose(following, dataset.next_observations[row], atol=1e-3)
        assert float(reward) == pytest.approx(float(dataset.rewards[row]), abs=1e-3)


def test_a_state_set_is_the_state_got() -> None:
    for name in ("Hopper-v5", "Pendulum-v1", "CartPole-v1", "Acrobot-v1"):
        env = make(name)
        env.reset(seed=3)
        before = simulator_state(env)
        assert before is not None
        env.step(np.atleast_1d(env.action_space.sample()))
        set_simulator_state(env, before)
        after = simulator_state(env)
        assert after is not None
        assert all((a == b).all() for a, b in zip(before, after, strict=True))


def test_velocities_at_the_clip_are_refused() -> None:
    env = make("Hopper-v5")
    observation = np.zeros(11, np.float32)
    observation[7] = 10.0
    with pytest.raises(bcq.InputError, match="clipped by Hopper at 10"):
        state_from_observation(env, observation)
    with pytest.raises(bcq.InputError, match="clipped by Hopper at 10"):
        state_from_observation(env, -observation)
    observation[7] = 9.99
    observation[0] = 12.0  # a position
    assert state_from_observation(env, observation).qvel[2] == pytest.approx(9.99)
    fast = np.full(17, 12, np.float32)
    assert (state_from_observation(make("HalfCheetah-v5"), fast).qvel == 12).all()


def test_what_cannot_be_measured_is_said_in_one_sentence(tmp_path: Path) -> None:
    dataset = make_batch()
    without = replace(dataset, qpos=None, qvel=None)
    schedule = bcq.Schedule(steps=100, env=NAME, true_value_every=100)
    small = bcq.DDPGConfig(hidden_sizes=(4,))
    with pytest.raises(bcq.InputError, match=r"no simulator states.*bcq collect"):
        bcq.train_run(tmp_path / "a", small, schedule, without)
    with pytest.raises(bcq.InputError, match="no value function"):
        bcq.train_run(tmp_path / "b", bcq.BCConfig(hidden_sizes=(4,)), schedule, dataset)
    other = replace(schedule, env="Pendulum-v1")
    with pytest.raises(bcq.InputError, match="observations have 3 numbers, those of the data 1"):
        bcq.train_run(tmp_path / "c", small, other, dataset)
    with pytest.raises(bcq.InputError, match=r"true_value_every: needs an environment$") as refused:
        bcq.Schedule(true_value_every=100)
    assert refused.value.option == "env"
    with pytest.raises(bcq.InputError, match="true_value_every: 150 is not a positive multiple"):
        bcq.Schedule(env=NAME, true_value_every=150)
    longer = replace(dataset, qpos=np.zeros((len(dataset), 2)))
    with pytest.raises(bcq.InputError, match="2 positions and 1 velocities"):
        bcq.train_run(tmp_path / "d", small, schedule, longer)
    assert not list(tmp_path.iterdir())
    with pytest.raises(bcq.InputError, match="no value function"):
        measure_values(Policy(Restless(), dataset.task), dataset, NAME, discount=DISCOUNT)
    for half in (replace(dataset, qvel=None), replace(dataset, qpos=None)):
        with pytest.raises(bcq.InputError, match="no simulator states"):
            true_values(policy_for(half), half, NAME, np.arange(2), DISCOUNT, 0)


def test_a_run_without_values_is_not_measured(tmp_path: Path) -> None:
    dataset, cloning = make_batch(), bcq.BCConfig(hidden_sizes=(4,))
    run = bcq.train_run(tmp_path, cloning, bcq.Schedule(steps=1), dataset)
    with pytest.raises(bcq.InputError, match="no value function"):
        measure_run(run, dataset, NAME)


def test_a_simulator_that_cannot_be_set_is_refused() -> None:
    dataset = bcq.collect_random("MountainCarContinuous-v0", transitions=5)
    config = bcq.DDPGConfig(hidden_sizes=(4,))
    with pytest.raises(bcq.InputError, match="simulator of this environment cannot be set"):
        require_measurable(config, dataset, "MountainCarContinuous-v0")


def test_without_a_time_limit_both_truths_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = gymnasium.envs.registration.EnvSpec("Endless-v0", lambda **_: Decay())
    monkeypatch.setitem(gymnasium.registry, "Endless-v0", spec)
    monkeypatch.setattr("bcq.simulation.true_values.HORIZON", 40)
    dataset, rows = make_batch(), np.array([0, 20, 45])  # two of them first of their episodes
    truths, limited = true_values(policy_for(dataset), dataset, "Endless-v0", rows, DISCOUNT, 0)
    np.testing.assert_allclose(truths, closed_form(dataset, rows, 40), atol=1e-4)
    np.testing.assert_allclose(limited[:2], truths[:2])
    np.testing.assert_allclose(limited[2], closed_form(dataset, rows[2:], 35)[0], atol=1e-4)


def test_measuring_closes_what_it_made_and_can_be_interrupted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened: list[Decay] = []

    def close(env: Decay) -> None:
        opened.remove(env)

    def create(env: Decay) -> None:
        opened.append(env)

    monkeypatch.setattr(Decay, "__init__", create)
    monkeypatch.setattr(Decay, "close", close)
    monkeypatch.setattr("bcq.simulation.true_values.HORIZON", 5)
    dataset = make_batch()
    require_measurable(bcq.DDPGConfig(hidden_sizes=(4,)), dataset, NAME)
    measured = measure_values(policy_for(dataset), dataset, NAME, discount=DISCOUNT, window=9)
    assert len(measured.rows) == 9
    assert opened == []

    def interrupt() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("bcq.system.interruption.check", interrupt)
    with pytest.raises(KeyboardInterrupt):
        measure_values(policy_for(dataset), dataset, NAME, discount=DISCOUNT, window=9)


def test_progress_is_shown_if_wanted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("bcq.simulation.true_values.HORIZON", 2)
    monkeypatch.setattr("bcq.system.progress.EVERY", 0.0)
    dataset = make_batch()
    measure_values(policy_for(dataset), dataset, NAME, discount=DISCOUNT, window=9)
    assert capsys.readouterr().err == ""
    measure_values(policy_for(dataset), dataset, NAME, discount=DISCOUNT, window=9, progress=True)
    lines = [line.split(",")[0] for line in capsys.readouterr().err.splitlines()]
    assert lines == ["true values: 1 of 2 steps", "true values: 2 of 2 steps"]


def test_rollouts_that_end_compile_for_few_numbers_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sizes = set()
    original = policies.act_in_rows

    def watched(learner: Any, observations: Any, *others: Any) -> Any:
        sizes.add(len(observations))
        return original(learner, observations, *others)

    monkeypatch.setattr("bcq.training.policy.act_in_rows", watched)
    monkeypatch.setattr("bcq.simulation.true_values.HORIZON", 3)
    dataset = make_batch()
    values = measure_values(policy_for(dataset), dataset, NAME, discount=DISCOUNT, seed=1)
    ended = np.abs(dataset.observations + dataset.actions)[values.rows, 0] > CLIFF
    assert 0 < ended.sum() < 50
    assert sizes == {100}


def drawn_pairs(seed: int, window: int) -> list[int]:
    """Which rows the fourth role of a seed measures."""
    own = int(np.random.SeedSequence(seed, spawn_key=(4,)).generate_state(1)[0] >> 1)
    chosen = np.random.default_rng(own).choice(window, min(100, window), replace=False)
    return sorted(chosen.tolist())


def test_a_runs_pairs_depend_on_seed_and_step_and_are_of_rows_seen_so_far(tmp_path: Path) -> None:
    ends = np.arange(160) % 20 == 19
    ends[98] = True  # so that row 99 is an episode
    dataset = replace(make_batch(), truncated=ends)
    config = bcq.DDPGConfig(hidden_sizes=(8, 8))
    schedule = bcq.Schedule(
        steps=140,
        seed=3,
        env=NAME,
        evaluate_every=200,
        evaluate_episodes=1,
        true_value_every=100,
        checkpoint_every=200,
        concurrent=True,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bcq.simulation.true_values.HORIZON", 1)
        run = bcq.train_run(tmp_path / "run", config, schedule, dataset)
        assert measure_run(run, dataset, NAME).rows.tolist() == drawn_pairs(0, 160)
    values = values_by_step(run)
    assert {step: one.rows.tolist() for step, one in values.items()} == {
        step: drawn_pairs(int(np.random.SeedSequence((3, step)).generate_state(1)[0] >> 1), step)
        for step in (100, 140)  # ends of episodes: so many rows are there
    }
    assert [row["step"] for row in run.read("episodes.jsonl")] == [0, 140]
    assert run.checkpoint_step() == 140
    assert (run.directory / "values-at-140-seed0.jsonl").exists()


def test_measuring_during_training_changes_nothing_of_it_and_is_stored_raw(tmp_path: Path) -> None:
    dataset, config = make_batch(), bcq.DDPGConfig(hidden_sizes=(8, 8))
    plain = bcq.Schedule(steps=200, env=NAME, evaluate_every=100)
    measured = replace(plain, true_value_every=100)
    runs = [
        bcq.train_run(tmp_path / str(i), config, schedule, dataset)
        for i, schedule in enumerate((plain, measured))
    ]
    for log in ("metrics.jsonl", "episodes.jsonl"):
        first, second = ((run.directory / log).read_bytes() for run in runs)
        assert first == second
    checkpoint = "step-200.safetensors"
    assert (runs[0].directory / checkpoint).read_bytes() == (
        runs[1].directory / checkpoint
    ).read_bytes()
    values = values_by_step(runs[1])
    assert list(values) == [100, 200]
    assert values[100].rows.tolist() != values[200].rows.tolist()
    last = values[200]
    learner: Any = runs[1].policy().learner
    scaling = runs[1].task.scaling  # the batch is of no recipe, so its run is scaled
    assert scaling is not None
    observations = (dataset.observations[last.rows] - scaling.centre) / scaling.spread
    actions = dataset.actions[last.rows] / 2
    expected = learner.value(jnp.asarray(observations), jnp.asarray(actions))
    np.testing.assert_allclose(last.estimates, expected * scaling.reward_spread, rtol=1e-5)
    text = (runs[1].directory / "values.jsonl").read_text()
    rows = [json.loads(line) for line in text.splitlines()]
    assert len(rows) == 200
    assert rows[0].keys() == {"step", "row", "estimate", "truth", "limited"}
    assert Values.from_pairs(rows[100:]).truths.tolist() == last.truths.tolist()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bcq.simulation.true_values.HORIZON", 1)
        rows = [measure_run(runs[0], dataset, NAME, seed=seed).rows.tolist() for seed in (0, 1)]
    assert rows[0] != rows[1]
    for seed in (0, 1):
        path = runs[0].directory / f"values-at-200-seed{seed}.jsonl"
        stored = [json.loads(line)["row"] for line in path.read_text().splitlines()]
        assert stored == rows[seed]
