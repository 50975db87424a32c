"""Discrete BCQ, DQN and BC against the oracle written from their equations, and against BCQL."""

from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bcq
import oracle_discrete as oracle
from bcq.algorithms import DiscreteBCConfig, DiscreteBCQConfig, DiscreteDQNConfig
from bcq.algorithms.discrete_bcq import candidates
from bcq.algorithms.learning import Minibatch
from bcq.algorithms.networks import MLP
from bcq.tabular import bcql_fixed_point, complete_batch, greedy_in_batch, random_mdp

ROWS, OBSERVATION, ACTIONS, STEPS = 12, 4, 5, 5
BCQ = DiscreteBCQConfig(
    discount=0.9, threshold=0.45, logit_penalty=0.03, target_rate=0.02, hidden_sizes=(8, 6)
)
DQN = DiscreteDQNConfig(discount=0.9, target_rate=0.02, hidden_sizes=(8, 6))
BC = DiscreteBCConfig(logit_penalty=0.03, hidden_sizes=(8, 6))
NETWORKS = {"q": "network", "slow_q": "target_network", "behaviour": "behaviour"}
KINDS = [DiscreteBCQConfig, DiscreteDQNConfig, DiscreteBCConfig]
CASES = [(BCQ, oracle.bcq_step), (DQN, oracle.dqn_step), (BC, oracle.bc_step)]

pytestmark = pytest.mark.usefixtures("double_precision")


@pytest.fixture
def double_precision() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def make_learner(config: Any, seed: int = 0) -> Any:
    """Every network has weights of its own, twice as large as at the start of training."""
    shapes = jax.eval_shape(lambda: config.create(OBSERVATION, ACTIONS, jax.random.key(0)))
    random = np.random.default_rng(seed)

    def fill(path: Any, leaf: Any) -> np.ndarray:
        if "moments" in jax.tree_util.keystr(path):
            return np.zeros(leaf.shape, leaf.dtype)
        limit = 2 * leaf.shape[0] ** -0.5
        return random.uniform(-limit, limit, leaf.shape).astype(leaf.dtype)

    return jax.tree_util.tree_map_with_path(fill, shapes)


def make_batch(seed: int = 0, *, masked: bool) -> Minibatch:
    random = np.random.default_rng(seed)
    actions = random.integers(ACTIONS, size=ROWS)
    permitted = random.random((ROWS, ACTIONS)) < 0.5
    permitted[np.arange(ROWS), random.integers(ACTIONS, size=ROWS)] = True
    return Minibatch(
        observations=random.normal(size=(ROWS, OBSERVATION)),  # type: ignore[arg-type]
        actions=actions,  # type: ignore[arg-type]
        rewards=3 * random.normal(size=ROWS),  # type: ignore[arg-type]
        next_observations=random.normal(size=(ROWS, OBSERVATION)),  # type: ignore[arg-type]
        terminated=random.random(ROWS) < 0.3,  # type: ignore[arg-type]
        next_permitted=permitted if masked else None,  # type: ignore[arg-type]
    )


def layers(network: MLP) -> Any:
    return [(np.asarray(layer.weight).T, np.asarray(layer.bias)) for layer in network.layers]


def state_of(learner: Any) -> dict[str, Any]:
    """A learner's networks under the oracle's names."""
    found = {name: getattr(learner, field, None) for name, field in NETWORKS.items()}
    models = {name: getattr(part, "model", part) for name, part in found.items() if part}
    return {**{name: layers(model) for name, model in models.items()}, "adam": None}


def batch_of(batch: Minibatch) -> dict[str, Any]:
    """A minibatch under the oracle's names."""
    return {**batch._asdict(), "permitted": None}


def settings_of(config: Any) -> dict[str, Any]:
    settings = asdict(config)
    return {**settings, "slow_rate": settings.get("target_rate")}


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(("config", "oracle_step"), CASES)
def test_five_updates_agree_with_the_oracle_to_nine_digits(
    config: Any, oracle_step: Any, masked: bool
) -> None:
    learner = make_learner(config)
    state = state_of(learner)
    update = eqx.filter_jit(lambda learner, batch: learner.update(batch, jax.random.key(0)))
    for seed in range(STEPS):
        batch = make_batch(seed, masked=masked)
        learner, metrics = update(learner, batch)
        state, losses = oracle_step(state, batch_of(batch), settings_of(config))
        for name, loss in (("critic_loss", "value_loss"), ("behaviour_loss", "behaviour_loss")):
            assert (name in metrics) == (loss in losses)
            if loss in losses:
                assert float(metrics[name]) == pytest.approx(losses[loss], rel=1e-9)
    for name, expected in state_of(learner).items():
        if name != "adam":
            for (weight, bias), (slow_weight, slow_bias) in zip(expected, state[name], strict=True):
                np.testing.assert_allclose(weight, slow_weight, rtol=1e-9, atol=1e-12)
                np.testing.assert_allclose(bias, slow_bias, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("masked", [False, True])
def test_actions_and_targets_agree_with_the_oracle(masked: bool) -> None:
    batch = make_batch(3, masked=masked)
    masks = [None] * ROWS if batch.next_permitted is None else np.asarray(batch.next_permitted)
    keys = jax.random.split(jax.random.key(0), ROWS)
    for name, config, seed in (("bcq", BCQ, 1), ("dqn", DQN, 2), ("bc", BC, 3)):
        learner = make_learner(config, seed)
        state = state_of(learner)
        networks = {
            "bcq": (state.get("q"), state.get("behaviour"), BCQ.threshold),
            "dqn": (state.get("q"),),
            "bc": (state.get("behaviour"),),
        }[name]
        act = getattr(oracle, f"{name}_act")
        expected = [
            act(*networks, observation, mask)
            for observation, mask in zip(np.asarray(batch.next_observations), masks, strict=True)
        ]
        actions = learner.act(batch.next_observations, keys, batch.next_permitted)
        assert actions.tolist() == expected
    learner = make_learner(BCQ, seed=1)
    state = state_of(learner)
    q, slow_q, behaviour = (state[name] for name in ("q", "slow_q", "behaviour"))
    settings = (batch_of(batch), BCQ.discount, BCQ.threshold)
    targets = oracle.bcq_targets(q, slow_q, behaviour, *settings)
    np.testing.assert_allclose(learner.bellman_target(batch), targets, rtol=1e-9)
    by_value = learner.network.model(batch.next_observations).argmax(axis=1)
    by_likelihood = learner.behaviour.model(batch.next_observations).argmax(axis=1)
    actions = learner.act(batch.next_observations, keys)
    assert (actions != by_value).any()  # the constraint matters in these rows
    assert (actions != by_likelihood).any()


def test_candidates_are_those_above_a_share_of_the_likeliest() -> None:
    network = eqx.tree_at(
        lambda mlp: (mlp.layers[0].weight, mlp.layers[0].bias),
        MLP(1, (), 3, jax.random.key(0)),
        (jnp.zeros((1, 3)), jnp.log(jnp.array([0.2, 0.59, 0.21]))),
    )
    states = jnp.zeros((1, 1))
    assert candidates(network, states, 0.35, None).tolist() == [[False, True, True]]
    assert candidates(network, states, 0.33, None).tolist() == [[True, True, True]]
    permitted = jnp.array([[True, False, True]])  # the share is of the likeliest permitted one
    assert candidates(network, states, 0.35, permitted).tolist() == [[True, False, True]]
    assert candidates(network, states, 0.0, permitted).tolist() == [[True, False, True]]


def test_a_threshold_of_one_would_leave_no_action() -> None:
    with pytest.raises(bcq.InputError, match=r"threshold: 1.0 is not below 1"):
        replace(BCQ, threshold=1.0)


@pytest.mark.parametrize(
    ("kind", "name", "wrong"),
    [
        *((kind, "batch_size", 0) for kind in KINDS),
        *((kind, "hidden_sizes", (256, 0)) for kind in KINDS),
        *((kind, "learning_rate", 0.0) for kind in KINDS),
        *((kind, "discount", 1.1) for kind in KINDS[:2]),
        *((kind, "target_rate", -0.1) for kind in KINDS[:2]),
        *((kind, "logit_penalty", -1e-2) for kind in KINDS[::2]),
        (DiscreteBCQConfig, "threshold", -0.1),
    ],
)
def test_settings_out_of_range_are_refused_by_name(kind: Any, name: str, wrong: Any) -> None:
    with pytest.raises(bcq.InputError, match=f"^{name}: "):
        kind(**{name: wrong})


def test_defaults_are_those_of_its_paper_and_shared_by_the_baselines() -> None:
    behaviour = {"logit_penalty": 1e-2}
    values = {"discount": 0.99, "target_rate": 0.005}
    shared = {"batch_size": 64, "learning_rate": 3e-4, "hidden_sizes": (256, 256)}
    assert asdict(DiscreteBCQConfig()) == {"threshold": 0.3, **behaviour, **values, **shared}
    assert asdict(DiscreteDQNConfig()) == values | shared
    assert asdict(DiscreteBCConfig()) == behaviour | shared


@pytest.mark.parametrize("config", [BCQ, DQN])
def test_a_terminal_is_worth_its_reward_even_if_nothing_can_be_said_of_what_follows(
    config: Any,
) -> None:
    learner, batch = make_learner(config), make_batch(masked=False)
    lost = jax.tree.map(lambda leaf: np.full_like(leaf, np.nan), learner.target_network)
    target = np.asarray(replace(learner, target_network=lost).bellman_target(batch))
    assert np.isnan(target).tolist() == (~np.asarray(batch.terminated)).tolist()
    np.testing.assert_array_equal(target[batch.terminated], batch.rewards[batch.terminated])


@pytest.mark.parametrize("seed", range(4))
def test_with_one_hot_states_and_every_pair_logged_it_acts_as_bcql(seed: int) -> None:
    random = np.random.default_rng(seed)
    mdp = random_mdp(random, num_states=5, num_actions=3, discount=0.8, deterministic=True)
    batch = complete_batch(mdp, copies=1)
    q = bcql_fixed_point(mdp, batch, np.zeros((5, 3)))
    eye = np.eye(5)
    transitions = Minibatch(
        observations=jnp.array(eye[batch.states]),
        actions=jnp.array(batch.actions),
        rewards=jnp.array(batch.rewards),
        next_observations=jnp.array(eye[batch.next_states]),
        terminated=jnp.array(mdp.terminal[batch.next_states]),
    )
    config = DiscreteBCQConfig(
        discount=0.8, threshold=0.0, learning_rate=3e-2, target_rate=0.1, hidden_sizes=()
    )

    def step(_: int, learner: Any) -> Any:
        return learner.update(transitions, jax.random.key(0))[0]

    learner = config.create(5, 3, jax.random.key(seed))
    learner = jax.jit(lambda start: jax.lax.fori_loop(0, 3_000, step, start))(learner)
    states = np.flatnonzero(~mdp.terminal)
    np.testing.assert_allclose(learner.network.model(jnp.array(eye[states])), q[states], atol=1e-3)
    keys = jax.random.split(jax.random.key(0), len(states))
    actions = learner.act(jnp.array(eye[states]), keys)
    assert actions.tolist() == greedy_in_batch(q, batch)[states].tolist()
