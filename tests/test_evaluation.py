import random
from collections.abc import Iterator
from typing import Any, ClassVar

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
from bcq.algorithms.learning import Metrics, Minibatch
from bcq.data.bounds import ActionBounds, TaskSpec
from bcq.system.errors import InputError
from bcq.system.seeds import Role, derive, reset_seed
from bcq.training import policy as policies
from bcq.training.policy import Policy

pytestmark = pytest.mark.usefixtures("compiled_as_for_users")
LOW = np.array([-0.5, 1.0], np.float32)
HIGH = np.array([2.0, 1.25], np.float32)
TASK = TaskSpec(2, ActionBounds(LOW, HIGH))
NAME = "bcq-tests/Corridor-v0"


class Corridor(gymnasium.Env[NDArray[np.float32], NDArray[np.float32]]):
    """Ends after 1 to 9 steps, as its seed has it, terminated or truncated; never step it then."""

    made: ClassVar[list["Corridor"]] = []

    def __init__(self) -> None:
        self.observation_space = Box(-np.inf, np.inf, (2,), np.float32)
        self.action_space = Box(LOW, HIGH)
        self.actions: list[NDArray[np.float32]] = []
        self.seeds: list[int | None] = []
        self.ended = True
        self.closed = False
        Corridor.made.append(self)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        super().reset(seed=seed)
        self.seeds.append(seed)
        self.length = int(self.np_random.integers(1, 10))
        self.terminates = bool(self.np_random.integers(2))
        self.ended = False
        self.position = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        return self.position.copy(), {}

    def step(
        self, action: NDArray[np.float32]
    ) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        assert not self.ended, "stepped after its end"
        self.actions.append(action.copy())
        self.position = (0.5 * self.position + 0.25 * action).astype(np.float32)
        self.ended = len(self.actions) == self.length
        reward = float(self.position[0]) - 3 * float(self.position[1])
        terminated = self.ended and self.terminates
        return self.position.copy(), reward, terminated, self.ended and not terminated, {}

    def close(self) -> None:
        self.closed = True


class Sampling(eqx.Module):
    """Acts with noise of its own, as a policy that samples candidates does."""

    gain: Array

    def update(self, batch: Minibatch, key: Array) -> tuple["Sampling", Metrics]:
        raise NotImplementedError

    def act(self, observations: Array, keys: Array) -> Array:
        noise = jax.vmap(lambda key: jax.random.uniform(key, (2,), minval=-2, maxval=2))(keys)
        return jnp.clip(self.gain * observations + noise, -1, 1)


class Mirror(eqx.Module):
    """Deterministic: the observation itself, cut to [-1, 1]."""

    def update(self, batch: Minibatch, key: Array) -> tuple["Mirror", Metrics]:
        raise NotImplementedError

    def act(self, observations: Array, keys: Array) -> Array:
        return jnp.clip(observations, -1, 1)


SAMPLING = Policy(Sampling(jnp.float32(0.5)), TASK)


@pytest.fixture(autouse=True)
def _corridor_is_registered() -> Iterator[None]:
    gymnasium.register(NAME, lambda **_: Corridor())
    Corridor.made.clear()
    yield
    del gymnasium.registry[NAME]


def one_after_another(
    policy: Policy, episodes: int, seed: int
) -> tuple[list[float], list[int], list[bool]]:
    """Return, length and kind of end of each episode, played alone."""
    own = derive(seed, Role.EVALUATION)
    returns, lengths, terminals = [], [], []
    for episode in range(episodes):
        env = Corridor()
        observation, _ = env.reset(seed=reset_seed(own, episode))
        total, length, ended = 0.0, 0, False
        while not ended:
            step_key = jax.random.fold_in(jax.random.key(own), length)
            row_key = jax.random.fold_in(step_key, episode)
            scaled = policy.learner.act(jnp.asarray(observation)[None], row_key[None])[0]
            action = np.clip((LOW + HIGH) / 2 + (HIGH - LOW) / 2 * np.asarray(scaled), LOW, HIGH)
            observation, reward, terminated, truncated, _ = env.step(action)
            total, length, ended = total + reward, length + 1, terminated or truncated
        returns.append(total)
        lengths.append(length)
        terminals.append(terminated)
    return returns, lengths, terminals


def test_returns_and_lengths_are_those_of_episodes_played_one_after_another() -> None:
    returns, lengths, terminals = one_after_another(SAMPLING, episodes=20, seed=4)
    assert len(set(lengths)) > 4
    assert 0 < sum(terminals) < 20
    result = bcq.evaluate(SAMPLING, NAME, episodes=20, seed=4)
    np.testing.assert_allclose(result.returns, returns, rtol=0, atol=1e-5)
    assert result.lengths.tolist() == lengths


def test_an_environment_is_reset_once_and_never_stepped_after_its_end() -> None:
    result = bcq.evaluate(SAMPLING, NAME, episodes=12, seed=1)
    assert [len(env.actions) for env in Corridor.made] == result.lengths.tolist()
    assert [env.seeds for env in Corridor.made] == [
        [reset_seed(derive(1, Role.EVALUATION), i)] for i in range(12)
    ]
    assert all(env.closed for env in Corridor.made)


def test_a_deterministic_policys_actions_reach_the_environment_unchanged() -> None:
    bcq.evaluate(Policy(Mirror(), TASK), NAME, episodes=5)
    for env in tuple(Corridor.made):
        replayed = Corridor()
        observation, _ = replayed.reset(seed=env.seeds[0])
        for action in env.actions:
            expected = TASK.bounds.denormalise(np.clip(observation, -1, 1))
            np.testing.assert_array_equal(action, expected)
            observation, *_ = replayed.step(action)


def test_actions_are_float32_inside_asymmetric_bounds_and_use_their_range() -> None:
    bcq.evaluate(SAMPLING, NAME, episodes=40)
    actions = np.stack([action for env in Corridor.made for action in env.actions])
    assert actions.dtype == np.float32
    assert (actions >= LOW).all()
    assert (actions <= HIGH).all()
    np.testing.assert_array_equal(actions.min(axis=0), LOW)
    np.testing.assert_array_equal(actions.max(axis=0), HIGH)


def test_the_same_seed_gives_the_same_returns_and_another_seed_others() -> None:
    first, again, other = (bcq.evaluate(SAMPLING, NAME, seed=seed) for seed in (3, 3, 4))
    assert first.returns.tobytes() == again.returns.tobytes()
    assert first.lengths.tolist() == again.lengths.tolist()
    assert not np.isin(other.returns, first.returns).any()


def test_the_first_episodes_do_not_depend_on_how_many_follow() -> None:
    few = bcq.evaluate(SAMPLING, NAME, episodes=3)
    many = bcq.evaluate(SAMPLING, NAME, episodes=8)
    np.testing.assert_array_equal(few.returns, many.returns[:3])


def test_global_random_states_neither_matter_nor_change() -> None:
    results = []
    for seed in (1, 2):
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002 - the global state is what is tested
        before = np.random.get_state(legacy=False), random.getstate()  # noqa: NPY002
        results.append(bcq.evaluate(SAMPLING, NAME).returns)
        after = np.random.get_state(legacy=False), random.getstate()  # noqa: NPY002
        np.testing.assert_equal(after, before)
    np.testing.assert_array_equal(results[0], results[1])


def test_evaluating_during_training_changes_nothing_of_it() -> None:
    config = bcq.BCQConfig(batch_size=8, hidden_sizes=(8,), vae_hidden_sizes=(8,))
    data = bcq.collect_random("Pendulum-v1", transitions=50)
    alone = list(bcq.train(config, data, steps=200))
    watched = []
    for progress in bcq.train(config, data, steps=200):
        bcq.evaluate(Policy(progress.learner, data.task), "Pendulum-v1", episodes=2)
        watched.append(progress)
    assert len(alone) == len(watched) == 2
    for one, other in zip(alone, watched, strict=True):
        assert one.metrics == other.metrics
        for leaf, twin in zip(
            jax.tree.leaves(one.learner), jax.tree.leaves(other.learner), strict=True
        ):
            assert np.asarray(leaf).tobytes() == np.asarray(twin).tobytes()


@pytest.mark.parametrize(
    ("task", "named"),
    [
        (
            TaskSpec(3, ActionBounds(LOW, HIGH)),
            "its observations have 2 numbers, those of the data 3",
        ),
        (
            TaskSpec(2, ActionBounds(LOW[:1], HIGH[:1])),
            "its actions have 2 numbers, those of the data 1",
        ),
    ],
)
def test_an_environment_of_other_sizes_is_refused(task: TaskSpec, named: str) -> None:
    with pytest.raises(InputError, match=f"environment {NAME}: {named}"):
        bcq.evaluate(Policy(Mirror(), task), NAME)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("CartPole-v1", "its actions are 2 choices, those of the data quantities"),
        ("FrozenLake-v1", "its observations are Discrete"),
        ("NoSuchThing-v1", "doesn't exist"),
    ],
)
def test_an_environment_that_cannot_be_used_is_refused(name: str, reason: str) -> None:
    with pytest.raises(InputError, match=f"environment {name}: .*{reason}"):
        bcq.evaluate(SAMPLING, name)


@pytest.mark.parametrize("episodes", [0, -1])
def test_fewer_episodes_than_one_are_refused(episodes: int) -> None:
    with pytest.raises(InputError, match=f"episodes: {episodes} is not at least 1"):
        bcq.evaluate(SAMPLING, NAME, episodes=episodes)


@pytest.mark.parametrize("seed", [-1, 2**31])
def test_seeds_outside_their_range_are_refused(seed: int) -> None:
    with pytest.raises(InputError, match=f"seed: {seed} is not between"):
        bcq.evaluate(SAMPLING, NAME, seed=seed)


def test_episode_seeds_differ_and_fit() -> None:
    seeds = [reset_seed(seed, i) for seed in range(30) for i in range(30)]
    assert len(set(seeds)) == 900
    assert all(0 <= seed < 2**31 for seed in seeds)


def test_the_summary_is_that_of_the_raw_returns() -> None:
    result = bcq.evaluate(SAMPLING, NAME, episodes=4)
    returns = result.returns.tolist()
    mean = sum(returns) / 4
    assert result.mean == pytest.approx(mean)
    assert result.std == pytest.approx((sum((x - mean) ** 2 for x in returns) / 4) ** 0.5)
    assert result.summary() == {
        "mean_return": result.mean,
        "std_return": result.std,
        "returns": returns,
        "lengths": result.lengths.tolist(),
    }
    assert all(isinstance(length, int) for length in result.lengths.tolist())


@pytest.mark.parametrize("count", [1, 24, 25, 26, 49, 50, 51, 100])
def test_a_shrinking_number_of_rows_is_padded_to_few_sizes_and_changes_no_action(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = []
    original = policies.act_in_rows

    def watched(learner: Any, observations: Any, *others: Any) -> Any:
        sizes.append(len(observations))
        return original(learner, observations, *others)

    monkeypatch.setattr(policies, "act_in_rows", watched)
    config = bcq.BCQConfig(hidden_sizes=(8,), vae_hidden_sizes=(8,))
    task = TaskSpec(2, ActionBounds(np.array([-1.0]), np.array([3.0])))
    policy = bcq.Policy(config.create(2, 1, jax.random.key(0)), task)
    observations = np.random.default_rng(0).normal(size=(100, 2)).astype(np.float32)
    rows = np.sort(np.random.default_rng(1).choice(100, count, replace=False))
    whole = policy.act(observations, seed=5, step=7)
    part = policy.act(observations[rows], seed=5, step=7, rows=rows, capacity=100)
    assert part.shape == (count, 1)
    np.testing.assert_allclose(part, whole[rows], atol=1e-5)
    assert sizes == [100, 25 if count <= 25 else 50 if count <= 50 else 100]


def test_a_policy_draws_from_seed_step_and_row_all_zero_and_on_unless_told() -> None:
    def drawn(seed: int, step: int, rows: list[int]) -> NDArray[np.float32]:
        key = jax.random.fold_in(jax.random.key(seed), step)
        draws = [
            jax.random.uniform(jax.random.fold_in(key, row), (2,), minval=-2, maxval=2)
            for row in rows
        ]
        return (LOW + HIGH) / 2 + (HIGH - LOW) / 2 * np.clip(np.stack(draws), -1, 1)

    still = np.zeros((3, 2))
    for said, expected in (
        ({}, drawn(0, 0, [0, 1, 2])),
        ({"seed": 4}, drawn(4, 0, [0, 1, 2])),
        ({"step": 4}, drawn(0, 4, [0, 1, 2])),
        ({"seed": 1, "step": 2, "rows": [7, 0, 3]}, drawn(1, 2, [7, 0, 3])),
    ):
        np.testing.assert_allclose(SAMPLING.act(still, **said), expected, atol=1e-5)


@pytest.mark.parametrize("shape", [(2,), (1, 3), (1, 1), (1, 2, 2)])
def test_a_policy_refuses_observations_of_another_shape(shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match=r"observations have shape .* needs \(rows, 2\)"):
        SAMPLING.act(np.zeros(shape))


@pytest.mark.parametrize(
    ("capacity", "count", "size"),
    [(32, 1, 32), (33, 16, 17), (33, 17, 33), (64, 1, 32), (65, 32, 33), (100, 100, 100)],
)
def test_rows_are_padded_to_halves_of_the_capacity_where_that_is_worth_it(
    capacity: int, count: int, size: int
) -> None:
    assert policies.halved(capacity, count) == size


def test_ten_episodes_of_seed_zero_are_played_unless_told() -> None:
    result = bcq.evaluate(SAMPLING, NAME)
    assert len(result.returns) == 10
    expected = bcq.evaluate(SAMPLING, NAME, episodes=10, seed=0)
    assert result.returns.tobytes() == expected.returns.tobytes()


def test_an_evaluation_compiles_for_few_numbers_of_episodes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sizes = []
    original = policies.act_in_rows

    def watched(learner: Any, observations: Any, *others: Any) -> Any:
        sizes.append(len(observations))
        return original(learner, observations, *others)

    monkeypatch.setattr("bcq.training.policy.act_in_rows", watched)
    result = bcq.evaluate(SAMPLING, NAME, episodes=40)
    assert len(set(result.lengths.tolist())) > 5
    assert set(sizes) == {40, 20}
