"""Each baseline must learn what it is for, and offline DDPG must fail as the paper says it does."""

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray

import bcq
from bcq.algorithms.ensemble import uncertainty
from bcq.algorithms.learning import Algorithm, AlgorithmConfig
from bcq.data.bounds import ActionBounds
from bcq.data.columns import Columns, Floats, Provenance
from bcq.data.dataset import Dataset
from bcq.training.loop import create
from small_task import NAME, registered

Numbers = NDArray[np.float64]


def learned(config: AlgorithmConfig, dataset: Dataset, *, steps: int, seed: int) -> Algorithm:
    *_, progress = bcq.train(config, dataset, steps=steps, seed=seed)
    return progress.learner


# From data that covers every action, values alone are enough.


@pytest.fixture(scope="module")
def task() -> Iterator[None]:
    with registered():
        yield


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(
    ("config", "enough"),  # going straight to 0 earns -0.4; no bin's move is 0
    [
        (bcq.DDPGConfig(hidden_sizes=(64, 64), discount=0.9), -2.5),
        (bcq.DQNConfig(hidden_sizes=(64, 64), discount=0.9), -4),
    ],
    ids=["ddpg", "dqn"],
)
@pytest.mark.usefixtures("task")
def test_a_value_learner_solves_a_task_from_random_actions(
    config: AlgorithmConfig, enough: float, seed: int
) -> None:
    dataset = bcq.collect_random(NAME, transitions=2_000, seed=seed)
    # Paid a step late, for where it was before the move: only the next state's value tells actions
    # apart (with a discount of 0 the same learners earn -10 and less).
    late = replace(dataset, rewards=-np.abs(dataset.observations[:, 0]))
    learner = learned(config, late, steps=2_000, seed=seed)
    result = bcq.evaluate(bcq.Policy(learner, dataset.task), NAME, episodes=10, seed=seed)
    assert dataset.episode_returns.mean() < -15
    assert result.mean > enough


# Imitation.

EXPERT_BOUNDS = ActionBounds(np.array([-1, 0]), np.array([3, 10]))


def expert(states: Floats) -> Floats:
    """Smooth, not linear, inside the bounds, and on a scale that is not the learner's."""
    one, two, three = states.T
    return np.stack(
        [0.5 + np.sin(2 * one) + 0.5 * two * three, 5 + 4 * np.cos(3 * two) * three], axis=1
    )


def states_of(seed: int, rows: int) -> Floats:
    return np.random.default_rng(seed).uniform(-1, 1, (rows, 3)).astype(np.float32)


def expert_batch(seed: int, *, noise: float = 0.0) -> Dataset:
    """The expert's actions, and noise in parts of the action range; states do not depend on it."""
    rows = 2_000
    states, following = states_of(seed, rows), states_of(seed + 1_000, rows)
    spread = states_of(seed + 2_000, rows)[:, :2] * EXPERT_BOUNDS.half_width
    actions = np.clip(expert(states) + noise * spread, EXPERT_BOUNDS.low, EXPERT_BOUNDS.high)
    columns = Columns(
        source="expert",
        arrays={
            "observations": states,
            "actions": actions,
            "rewards": np.sin(3 * states[:, 0]) + actions[:, 0],
            "next_observations": following,
            "terminated": np.zeros(rows, bool),
        },
        provenance=Provenance(),
    )
    return Dataset.from_columns(columns, EXPERT_BOUNDS)


@pytest.mark.parametrize(
    ("config", "unexplained"),
    [
        (bcq.BCConfig(hidden_sizes=(64, 64)), 0.01),
        (bcq.VAEBCConfig(vae_hidden_sizes=(64, 64)), 0.02),
    ],
    ids=["bc", "vae-bc"],
)
def test_cloning_imitates_an_expert_in_states_it_has_not_seen(
    config: AlgorithmConfig, unexplained: float
) -> None:
    dataset = expert_batch(0)
    policy = bcq.Policy(learned(config, dataset, steps=2_000, seed=0), dataset.task)
    states = states_of(99, 500)
    errors = ((policy.act(states) - expert(states)) ** 2).mean(axis=0)
    assert (errors < unexplained * expert(states).var(axis=0)).all()


def test_the_ensembles_policy_goes_where_its_critics_agree_and_that_is_where_the_data_is() -> None:
    config = bcq.EnsembleConfig(
        hidden_sizes=(32, 32), member_batch_size=64, discount=0.5, target_rate=0.05
    )
    dataset = expert_batch(0, noise=0.05)
    unseen = states_of(99, 500)
    states, logged = jnp.asarray(unseen), jnp.asarray(dataset.bounds.normalise(expert(unseen)))
    anywhere = jax.random.uniform(jax.random.key(0), logged.shape, minval=-1, maxval=1)

    before = create(config, dataset, seed=0)
    after = learned(config, dataset, steps=2_000, seed=0)
    assert isinstance(before, bcq.Ensemble)
    assert isinstance(after, bcq.Ensemble)
    first, chosen = before.actor.model(states), after.actor.model(states)
    at_chosen, at_first, at_random = (
        float(uncertainty(after.critics.model, states, actions).mean())
        for actions in (chosen, first, anywhere)
    )
    assert at_chosen < at_random / 2
    assert at_chosen < at_first / 2
    assert jnp.abs(chosen - logged).mean() < jnp.abs(first - logged).mean() / 2


# The paper's point, in miniature: a point in five dimensions that is paid for being near 0, logged
# by a policy that hardly moves. Of all actions the batch knows only a thin band.

DISCOUNT = 0.97
BEST = 1 / (1 - DISCOUNT)  # the largest reward, for ever: what no policy can earn more than
SIZE, EPISODES, LENGTH = 5, 20, 50


def move(positions: Numbers, actions: Numbers | Floats) -> tuple[Numbers, Numbers]:
    """The next positions and the rewards, which are between 0 and 1."""
    following = np.clip(positions + 0.5 * actions, -2, 2)
    return following, 1 - np.abs(following).mean(axis=1) / 2


def narrow_batch(seed: int) -> Dataset:
    """Episodes that only a time limit ends, with actions within 0.14 of 0 out of [-1, 1]."""
    generator = np.random.default_rng(seed)
    positions = generator.uniform(-2, 2, (EPISODES, SIZE))
    steps = []
    for _ in range(LENGTH):
        actions = -0.02 * positions + generator.uniform(-0.1, 0.1, positions.shape)
        following, rewards = move(positions, actions)
        steps.append((positions, actions, rewards, following))
        positions = following
    observations, logged, earned, followed = (
        np.concatenate(np.stack(column, axis=1)) for column in zip(*steps, strict=True)
    )
    columns = Columns(
        source="narrow",
        arrays={
            "observations": observations,
            "actions": logged,
            "rewards": earned,
            "next_observations": followed,
            "terminated": np.zeros(len(earned), bool),
            "truncated": np.arange(len(earned)) % LENGTH == LENGTH - 1,
        },
        provenance=Provenance(),
    )
    return Dataset.from_columns(columns)


class Values(NamedTuple):
    estimated: float
    true: float


def values_of(config: AlgorithmConfig, seed: int) -> Values:
    """What a learner expects of logged pairs, and what they and then its policy really earn."""
    dataset = narrow_batch(seed)
    learner = learned(config, dataset, steps=1_500, seed=seed)
    assert isinstance(learner, bcq.DDPG | bcq.BCQ)
    policy = bcq.Policy(learner, dataset.task)
    positions, actions = dataset.observations[::10], dataset.actions[::10]
    values = jax.jit(type(learner).value)(learner, positions, actions)
    estimated = float(values.mean())
    true, state = np.zeros(len(positions)), positions.astype(np.float64)
    for step in range(300):  # what comes later is worth less than a hundredth of a point
        state, rewards = move(state, actions)
        true += DISCOUNT**step * rewards
        actions = policy.act(state, step=step)
    return Values(estimated, float(true.mean()))


@pytest.mark.parametrize("seed", range(3))
def test_ddpg_believes_in_actions_it_never_saw_and_bcq_does_not(seed: int) -> None:
    ddpg = values_of(
        bcq.DDPGConfig(
            discount=DISCOUNT,
            target_rate=0.1,
            batch_size=32,
            actor_learning_rate=2e-3,
            critic_learning_rate=2e-3,
            hidden_sizes=(32, 32),
        ),
        seed,
    )
    assert ddpg.estimated > 1.5 * BEST
    assert ddpg.estimated > 10 * ddpg.true

    batch_constrained = values_of(
        bcq.BCQConfig(
            discount=DISCOUNT,
            target_rate=0.1,
            batch_size=32,
            learning_rate=2e-3,
            hidden_sizes=(32, 32),
            vae_hidden_sizes=(32, 32),
        ),
        seed,
    )
    assert batch_constrained.estimated < BEST
    assert batch_constrained.estimated < 2 * batch_constrained.true
    assert batch_constrained.true > 5 * ddpg.true
