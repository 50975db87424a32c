"""The baselines against the oracle written from the paper, and against the usual mistakes."""

from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

import bcq
import oracle
import oracle_baselines as baselines
from bcq.algorithms.learning import Minibatch, ValueFunction
from bcq.algorithms.networks import MLP, Actor, LateActionCritic
from made_up import made_up, precision

ROWS, OBSERVATION, ACTION = 12, 4, 3
LATENT, BINS, MEMBERS = 2 * ACTION, 5, 3
State = dict[str, Any]

DDPG = bcq.DDPGConfig(discount=0.9, target_rate=0.02, actor_learning_rate=3e-4, hidden_sizes=(8, 6))
DQN = bcq.DQNConfig(discount=0.9, target_rate=0.02, num_bins=BINS, hidden_sizes=(8, 6))
BC = bcq.BCConfig(learning_rate=2e-3, hidden_sizes=(8, 6))
VAE_BC = bcq.VAEBCConfig(latent_clip=0.3, vae_l2=1e-2, vae_hidden_sizes=(7, 7))
ENSEMBLE = bcq.EnsembleConfig(
    discount=0.9,
    target_rate=0.02,
    members=MEMBERS,
    member_batch_size=ROWS // MEMBERS,
    hidden_sizes=(8, 6),
)

pytestmark = pytest.mark.usefixtures("double_precision")


@pytest.fixture
def double_precision() -> Any:
    """Rounding out of the way, the two implementations must agree to nine digits."""
    with jax.enable_x64(True):
        yield


# Learners and batches, and what the oracle calls them


def make_learner(config: Any, seed: int = 0, scale: float = 3.0) -> Any:
    return made_up(config, OBSERVATION, ACTION, seed=seed, scale=scale)


def columns_of(batch: Minibatch) -> dict[str, Any]:
    """What the oracle reads; a batch of quantities has no masks."""
    return {name: values for name, values in batch._asdict().items() if values is not None}


def make_batch(seed: int = 0) -> Minibatch:
    """Rows of no meaning; actions keep a tenth of a bin away from the edges of 5 or 10 bins."""
    random: Any = np.random.default_rng(seed)
    bins = random.integers(10, size=(ROWS, ACTION))
    return Minibatch(
        observations=random.normal(size=(ROWS, OBSERVATION)).astype(precision()),
        actions=((bins + random.uniform(0.1, 0.9, bins.shape)) / 5 - 1).astype(precision()),
        rewards=random.normal(size=ROWS).astype(precision()),
        next_observations=random.normal(size=(ROWS, OBSERVATION)).astype(precision()),
        terminated=np.arange(ROWS) % 3 == 0,
    )


def parts(batch: Minibatch) -> Minibatch:
    """The minibatches of the critics of an ensemble."""
    return jax.tree.map(lambda column: column.reshape(MEMBERS, -1, *column.shape[1:]), batch)


def layers(network: Any) -> oracle.Network:
    match network:
        case Actor():
            found = network.network.layers
        case LateActionCritic():
            found = (network.first, *network.rest.layers)
        case MLP():
            found = network.layers
    return [(np.array(layer.weight), np.array(layer.bias)) for layer in found]


def ddpg_state(learner: bcq.DDPG) -> State:
    return {
        "actor": layers(learner.actor.model),
        "critic": layers(learner.critic.model),
        "target_actor": layers(learner.target_actor),
        "target_critic": layers(learner.target_critic),
    }


def dqn_state(learner: bcq.DQN) -> State:
    return {
        "network": layers(learner.network.model),
        "target_network": layers(learner.target_network),
    }


def bc_state(learner: bcq.BC) -> State:
    return {"policy": layers(learner.actor.model)}


def vae_bc_state(learner: bcq.VAEBC) -> State:
    vae = learner.vae.model
    return {"encoder": layers(vae.encoder), "decoder": layers(vae.decoder)}


def ensemble_state(learner: bcq.Ensemble) -> State:
    return {
        "policy": layers(learner.actor.model),
        "critics": [layers(critic) for critic in learner.critics.model.members],
        "target_policy": layers(learner.target_actor),
        "target_critics": [layers(critic) for critic in learner.target_critics.members],
    }


def bc_update(state: State, batch: State, settings: State) -> tuple[State, dict[str, float]]:
    new, losses = baselines.bc_update(state, batch, settings)
    return new, {"reconstruction": losses["bc_loss"]}


def vae_bc_update(state: State, batch: State, settings: State) -> tuple[State, dict[str, float]]:
    """The first of the steps of BCQ's update."""
    new = baselines.begin(state)
    encoder, decoder = state["encoder"], state["decoder"]
    inputs = encoder, decoder, batch["observations"], batch["actions"], settings["noise"]
    loss, reconstruction, kl = oracle.vae_loss(*inputs)
    for name, gradients in zip(("encoder", "decoder"), oracle.vae_gradients(*inputs), strict=True):
        gradients_and_l2 = oracle.add_l2(gradients, state[name], settings["vae_l2"])
        baselines.step(new, name, gradients_and_l2, settings["learning_rate"])
    return new, {"vae_loss": loss, "reconstruction": reconstruction, "kl": kl}


class Case(NamedTuple):
    config: Any
    state: Callable[[Any], State]
    update: Callable[[State, State, State], tuple[State, dict[str, float]]]  # the oracle's


CASES = {
    "ddpg": Case(DDPG, ddpg_state, baselines.ddpg_update),
    "dqn": Case(DQN, dqn_state, baselines.dqn_update),
    "bc": Case(BC, bc_state, bc_update),
    "vae-bc": Case(VAE_BC, vae_bc_state, vae_bc_update),
    "ensemble": Case(ENSEMBLE, ensemble_state, baselines.ensemble_update),
}
WITH_TARGETS = {
    "ddpg": baselines.ddpg_target,
    "dqn": baselines.dqn_target,
    "ensemble": baselines.ensemble_targets,
}
ONLINE = {"ddpg": ("actor", "critic"), "dqn": ("network",), "ensemble": ("actor", "critics")}


def settings_of(config: Any) -> State:
    return {**asdict(config), "epsilon": 1e-8}


update = jax.jit(lambda learner, batch, key: learner.update(batch, key))
act = jax.jit(lambda learner, observations, keys: learner.act(observations, keys))
value = jax.jit(lambda learner, observations, actions: learner.value(observations, actions))
target_of = jax.jit(lambda learner, batch: learner.bellman_target(batch))


def target(learner: Any, batch: Minibatch) -> np.ndarray:
    return np.array(
        target_of(learner, parts(batch) if isinstance(learner, bcq.Ensemble) else batch)
    )


def noise_of(key: Array) -> np.ndarray:
    """What VAE-BC's update draws from its key."""
    return np.array(jax.random.normal(key, (ROWS, LATENT)))


def row_keys(seed: int = 0) -> Array:
    return jax.random.split(jax.random.key(seed), ROWS)


def first_update(config: Any) -> tuple[Any, Any, dict[str, Array]]:
    learner = make_learner(config)
    return learner, *update(learner, make_batch(), jax.random.key(0))


def assert_updates_agree(name: str, rtol: float, atol: float, scale: float = 3.0) -> None:
    case = CASES[name]
    learner, settings = make_learner(case.config, scale=scale), settings_of(case.config)
    state = case.state(learner)
    moments = baselines.initial_moments(state)
    if name == "vae-bc":
        moments = {network: baselines.zero_moments(state[network]) for network in state}
    state = {**state, "moments": moments, "count": 0}
    for step in range(5):
        key, batch = jax.random.key(step), make_batch(step)
        learner, metrics = update(learner, batch, key)
        noise = {"noise": noise_of(key)} if name == "vae-bc" else {}
        state, losses = case.update(state, columns_of(batch), settings | noise)
        assert metrics.keys() - {"latents_beyond_clip"} == losses.keys()
        for metric, expected in losses.items():
            np.testing.assert_allclose(metrics[metric], expected, rtol, atol, err_msg=metric)
    for network, actual in case.state(learner).items():
        pairs = zip(jax.tree.leaves(actual), jax.tree.leaves(state[network]), strict=True)
        for ours, theirs in pairs:
            np.testing.assert_allclose(ours, theirs, rtol, atol, err_msg=network)


def changed(learner: Any, field: str) -> Any:
    """The learner with all numbers of one part of it negated."""
    part = jax.tree.map(np.negative, getattr(learner, field))
    return eqx.tree_at(lambda tree: getattr(tree, field), learner, part)


NOTHING_TO_COME: Any = {"rewards": np.zeros(ROWS), "terminated": np.ones(ROWS, bool)}


def zeroed(learner: Any, where: Callable[[Any], Any]) -> Any:
    return eqx.tree_at(where, learner, jax.tree.map(np.zeros_like, where(learner)))


def same(first: Any, second: Any) -> bool:
    """Whether two trees are equal to the bit."""
    pairs = zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True)
    return all(np.array_equal(one, other) for one, other in pairs)


# Every baseline against the oracle


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", WITH_TARGETS)
def test_target_is_the_papers(name: str, seed: int) -> None:
    case = CASES[name]
    learner, batch = make_learner(case.config, seed), make_batch(seed)
    settings = settings_of(case.config)
    expected = WITH_TARGETS[name](case.state(learner), columns_of(batch), settings)
    actual = target(learner, batch)
    assert actual.shape == ((MEMBERS, ROWS // MEMBERS) if name == "ensemble" else (ROWS,))
    np.testing.assert_allclose(actual, expected, rtol=1e-9)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", CASES)
def test_acting_is_the_papers(name: str, seed: int) -> None:
    case = CASES[name]
    learner, batch, keys = make_learner(case.config, seed), make_batch(seed), row_keys(seed)
    state, observations = case.state(learner), batch.observations
    if name == "dqn":
        expected = baselines.dqn_act(state["network"], observations, BINS)
    elif name == "vae-bc":
        noise = np.stack([jax.random.normal(key, (LATENT,)) for key in keys])
        expected = oracle.generate(state["decoder"], observations, noise, 0.3)
    else:
        expected = baselines.act(state["actor" if name == "ddpg" else "policy"], observations)
    actions = act(learner, observations, keys)
    assert actions.shape == (ROWS, ACTION)
    np.testing.assert_allclose(actions, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", WITH_TARGETS)
def test_value_is_the_papers(name: str, seed: int) -> None:
    case = CASES[name]
    learner, batch = make_learner(case.config, seed), make_batch(seed)
    state, pairs = case.state(learner), (batch.observations, batch.actions)
    if name == "ddpg":
        rows = zip(*pairs, strict=True)
        expected = np.array(
            [baselines.late_action_value(state["critic"], *map(np.array, row)) for row in rows]
        )
    elif name == "dqn":
        expected = baselines.dqn_value(state["network"], *pairs, BINS)
    else:
        expected = baselines.ensemble_value(state["critics"], *pairs)
    actual = value(learner, *pairs)
    assert actual.shape == (ROWS,)
    np.testing.assert_allclose(actual, expected, rtol=1e-9)


@pytest.mark.parametrize("name", WITH_TARGETS)
def test_critic_loss_is_the_papers(name: str) -> None:
    case = CASES[name]
    learner, _, metrics = first_update(case.config)
    state, batch = case.state(learner), columns_of(make_batch())
    targets = WITH_TARGETS[name](state, batch, settings_of(case.config))
    if name == "ddpg":
        expected = baselines.ddpg_critic_loss(state["critic"], batch, targets)
    elif name == "dqn":
        expected = baselines.dqn_loss(state["network"], batch, targets, BINS)
    else:
        expected = baselines.ensemble_critic_loss(state["critics"], batch, targets)
    np.testing.assert_allclose(metrics["critic_loss"], expected, rtol=1e-9)
    np.testing.assert_allclose(metrics["target_mean"], targets.mean(), rtol=1e-9)


def test_cloning_losses_are_the_papers() -> None:
    batch = make_batch()
    learner, _, metrics = first_update(BC)
    expected = baselines.bc_loss(bc_state(learner)["policy"], columns_of(batch))
    np.testing.assert_allclose(metrics["reconstruction"], expected, rtol=1e-9)

    learner, _, metrics = first_update(VAE_BC)
    state, pairs = vae_bc_state(learner), (batch.observations, batch.actions)
    networks, noise = (state["encoder"], state["decoder"]), noise_of(jax.random.key(0))
    losses = oracle.vae_loss(*networks, *pairs, noise)
    beyond = np.abs(oracle.encode(state["encoder"], *pairs)[0]) > 0.3
    np.testing.assert_allclose(metrics["latents_beyond_clip"], beyond.mean(), rtol=1e-6)
    actual = [metrics[name] for name in ("vae_loss", "reconstruction", "kl")]
    np.testing.assert_allclose(actual, losses, rtol=1e-9)


def test_policy_steps_use_the_critics_just_updated() -> None:
    observations = make_batch().observations
    learner, updated, metrics = first_update(DDPG)
    before, after = ddpg_state(learner), ddpg_state(updated)
    loss = baselines.ddpg_policy_loss(before["actor"], after["critic"], observations)
    early = baselines.ddpg_policy_loss(before["actor"], before["critic"], observations)
    np.testing.assert_allclose(metrics["policy_loss"], loss, rtol=1e-9)
    assert abs(metrics["policy_loss"] - early) > 1e-4

    learner, updated, metrics = first_update(ENSEMBLE)
    before, after = ensemble_state(learner), ensemble_state(updated)
    inputs = observations[: ROWS // MEMBERS], 1e-8
    loss = baselines.ensemble_policy_loss(before["policy"], after["critics"], *inputs)
    early = baselines.ensemble_policy_loss(before["policy"], before["critics"], *inputs)
    np.testing.assert_allclose(metrics["policy_loss"], loss, rtol=1e-9)
    assert abs(metrics["policy_loss"] - early) > 1e-4


@pytest.mark.parametrize("name", CASES)
def test_whole_updates_are_the_papers(name: str) -> None:
    assert_updates_agree(name, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", CASES)
def test_single_precision_updates_are_the_papers(name: str) -> None:
    with jax.enable_x64(False):
        assert_updates_agree(name, rtol=1e-5, atol=1e-6, scale=1.0)


# What several baselines share


@pytest.mark.parametrize("name", WITH_TARGETS)
def test_targets_start_as_exact_copies(name: str) -> None:
    config = replace(CASES[name].config, hidden_sizes=(3,))
    learner = config.create(2, 1, jax.random.key(0))
    for field in ONLINE[name]:
        assert same(getattr(learner, f"target_{field}"), getattr(learner, field).model)
    if name == "ensemble":
        first, second, third = learner.critics.model.members
        for one, other in ((first, second), (first, third), (second, third)):
            assert (one.layers[0].weight != other.layers[0].weight).all()


@pytest.mark.parametrize("name", WITH_TARGETS)
def test_target_is_made_by_target_networks_alone(name: str) -> None:
    learner, batch = make_learner(CASES[name].config), make_batch()
    live, before = ~batch.terminated, target(learner, batch).reshape(-1)
    for field in ONLINE[name]:
        after = target(changed(learner, f"target_{field}"), batch).reshape(-1)
        assert (before != after)[live].all()
        assert same(before, target(changed(learner, field), batch).reshape(-1))


@pytest.mark.parametrize("name", WITH_TARGETS)
def test_terminated_rows_do_not_bootstrap(name: str) -> None:
    learner, batch = make_learner(CASES[name].config), make_batch()
    bootstrapped = target(learner, batch).reshape(-1) != batch.rewards
    assert same(bootstrapped, ~batch.terminated)


@pytest.mark.parametrize("name", WITH_TARGETS)
def test_a_terminal_is_worth_its_reward_even_if_nothing_can_be_said_of_what_follows(
    name: str,
) -> None:
    learner, batch = make_learner(CASES[name].config), make_batch()
    for field in ONLINE[name]:
        part = getattr(learner, f"target_{field}")
        lost = jax.tree.map(lambda leaf: np.full_like(leaf, np.nan), part)
        learner = replace(learner, **{f"target_{field}": lost})
    found = target(learner, batch).reshape(-1)
    assert same(np.isnan(found), ~batch.terminated)
    assert same(found[batch.terminated], batch.rewards[batch.terminated])


@pytest.mark.parametrize("name", WITH_TARGETS)
def test_a_target_depends_on_its_own_transition_alone(name: str) -> None:
    learner, batch = make_learner(CASES[name].config), make_batch()
    one = np.arange(ROWS) == 5
    other = batch._replace(
        rewards=batch.rewards + one,
        next_observations=batch.next_observations + one[:, None],
    )
    differs = (target(learner, batch) != target(learner, other)).reshape(-1)
    assert np.flatnonzero(differs).tolist() == [5]


@pytest.mark.parametrize("name", CASES)
def test_actions_stay_within_bounds_for_any_weights(name: str) -> None:
    learner = make_learner(CASES[name].config, scale=1000.0)
    actions = np.array(act(learner, make_batch().observations, row_keys()))
    assert (np.abs(actions) <= 1).all()


@pytest.mark.parametrize("name", ["ddpg", "dqn", "bc", "ensemble"])
def test_acting_draws_nothing(name: str) -> None:
    learner, observations = make_learner(CASES[name].config), make_batch().observations
    first, second = (act(learner, observations, row_keys(seed)) for seed in (0, 1))
    assert same(first, second)


# DDPG


def test_action_enters_ddpgs_critic_at_the_second_layer() -> None:
    critic = make_learner(DDPG).critic.model
    shapes = [weight.shape for weight, _ in layers(critic)]
    assert shapes == [(OBSERVATION, 8), (8 + ACTION, 6), (6, 1)]
    shallow = make_learner(replace(DDPG, hidden_sizes=(8,))).critic.model
    shapes = [weight.shape for weight, _ in layers(shallow)]
    assert shapes == [(OBSERVATION, 8), (8 + ACTION, 1)]


def test_l2_acts_on_ddpgs_critic_with_its_biases_and_not_on_its_actor() -> None:
    # Nothing but L2 has a gradient where the critic is 0 everywhere and right.
    learner = zeroed(make_learner(DDPG), lambda ddpg: ddpg.critic.model.rest.layers[-1])
    batch = make_batch()._replace(**NOTHING_TO_COME)
    updated, metrics = update(learner, batch, jax.random.key(0))
    assert metrics["critic_loss"] == 0.0
    assert same(learner.actor.model, updated.actor.model)
    before, after = layers(learner.critic.model), layers(updated.critic.model)
    for old, new in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True):
        # Adam's first step is the learning rate times the gradient's sign, however small the L2.
        np.testing.assert_allclose(new, old - 1e-3 * np.sign(old), rtol=0, atol=1e-4)


# DQN


def dqn_of(num_bins: int) -> bcq.DQN:
    """A DQN by its bins alone; its networks have another number of outputs."""
    return replace(make_learner(DQN), config=replace(DQN, num_bins=num_bins))


def dqn_with_values(table: np.ndarray) -> bcq.DQN:
    """A DQN whose values are the same in every state, (dimensions, bins)."""
    biases = table.reshape(-1)
    return eqx.tree_at(
        lambda dqn: (dqn.network.model.layers[-1].bias, dqn.target_network.layers[-1].bias),
        jax.tree.map(np.zeros_like, make_learner(DQN)),
        (biases, biases),
    )


@pytest.mark.parametrize("precise", [True, False])
def test_bins_cover_the_actions_and_what_lies_just_outside(precise: bool) -> None:
    with jax.enable_x64(precise):
        small = 1e-6
        actions = [-1, -1 - small, -1 + small, 1, 1 + small, 1 - small]
        actions += [-0.8 - small, -0.8 + small, 0.8 - small, 0.8 + small, -small, small, -9, 9]
        bins = [0, 0, 0, 9, 9, 9, 0, 1, 8, 9, 4, 5, 0, 9]
        found = dqn_of(10).bins(jnp.asarray([actions]))
        assert jnp.issubdtype(found.dtype, jnp.integer)
        assert found.tolist() == [bins]
        edges = jnp.asarray([[-1.0, -0.5, 0.0, 0.5, 1.0]])
        assert dqn_of(4).bins(edges).tolist() == [[0, 1, 2, 3, 3]]


@pytest.mark.parametrize("precise", [True, False])
@pytest.mark.parametrize("num_bins", [1, 3, 10, 100])
def test_the_centre_of_a_bin_falls_into_that_bin(num_bins: int, precise: bool) -> None:
    bins = np.arange(100) % num_bins
    with jax.enable_x64(precise):
        learner = dqn_of(num_bins)
        centres = learner.centres(jnp.asarray(bins))
        assert learner.bins(centres).tolist() == bins.tolist()
    expected = np.linspace(-1, 1, 2 * num_bins + 1)[1::2][bins]
    np.testing.assert_allclose(centres, expected, rtol=1e-5, atol=1e-6)


def test_dqn_picks_the_best_bin_of_each_dimension() -> None:
    table = np.zeros((ACTION, BINS))
    table[0, 4] = table[1, 0] = table[2, 2] = 1.0
    actions = act(dqn_with_values(table), make_batch().observations, row_keys())
    np.testing.assert_allclose(actions, np.tile([0.8, -0.8, 0.0], (ROWS, 1)), atol=1e-12)


def test_dqns_target_averages_over_dimensions() -> None:
    table = np.zeros((ACTION, BINS))
    table[0, 4], table[1, 0], table[2, 2] = 3.0, 6.0, 9.0
    learner, batch = dqn_with_values(table), make_batch()
    expected = batch.rewards + np.where(batch.terminated, 0.0, 0.9 * 6.0)
    np.testing.assert_allclose(target(learner, batch), expected, rtol=1e-12)


def test_dqns_loss_adds_up_dimensions() -> None:
    learner = dqn_with_values(np.repeat([[1.0], [2.0], [3.0]], BINS, axis=1))
    batch = make_batch()._replace(**NOTHING_TO_COME)
    _, metrics = update(learner, batch, jax.random.key(0))
    assert metrics["critic_loss"] == 14.0


def test_dqn_leaves_the_outputs_of_other_bins_alone() -> None:
    learner, batch = make_learner(DQN), make_batch()
    actions: Any = np.tile(batch.actions[:1], (ROWS, 1))
    batch = batch._replace(actions=actions)
    updated, _ = update(learner, batch, jax.random.key(0))
    taken = np.zeros((ACTION, BINS), bool)
    taken[np.arange(ACTION), baselines.dqn_bins(batch.actions[:1], BINS)[0]] = True
    (*_, (weight, bias)), (*_, (new_weight, new_bias)) = (
        layers(dqn.network.model) for dqn in (learner, updated)
    )
    assert same(bias != new_bias, taken.reshape(-1))
    assert same((weight != new_weight).any(axis=0), taken.reshape(-1))


def test_dqn_values_states_in_any_arrangement() -> None:
    learner, states = make_learner(DQN), make_batch().observations
    flat = np.asarray(learner.values(learner.network.model, states))
    assert flat.shape == (ROWS, ACTION, BINS)
    grid = learner.values(learner.network.model, states.reshape(3, 4, OBSERVATION))
    np.testing.assert_allclose(grid, flat.reshape(3, 4, ACTION, BINS), rtol=1e-12)


# Behavioural cloning


def test_cloning_has_no_value_and_the_others_do() -> None:
    for name, case in CASES.items():
        learner = make_learner(case.config)
        assert isinstance(learner, ValueFunction) == (name in WITH_TARGETS)
        assert hasattr(learner, "value") == (name in WITH_TARGETS)
    config = bcq.BCQConfig(hidden_sizes=(3,), vae_hidden_sizes=(3,))
    assert isinstance(make_learner(config), ValueFunction)


def test_bcs_loss_is_a_mean_over_rows_and_dimensions() -> None:
    learner = zeroed(make_learner(BC), lambda bc: bc.actor.model)
    actions: Any = np.tile([0.5, 0.0, -1.0], (ROWS, 1))
    batch = make_batch()._replace(actions=actions)
    _, metrics = update(learner, batch, jax.random.key(0))
    np.testing.assert_allclose(metrics["reconstruction"], 1.25 / 3, rtol=1e-12)


def test_vae_bc_learns_the_vae_of_bcq(monkeypatch: pytest.MonkeyPatch) -> None:
    config = bcq.BCQConfig(
        num_samples=1,
        vae_l2=VAE_BC.vae_l2,
        latent_clip=VAE_BC.latent_clip,
        hidden_sizes=(3,),
        vae_hidden_sizes=VAE_BC.vae_hidden_sizes,
    )
    whole, batch, key = make_learner(config), make_batch(), jax.random.key(0)
    alone = eqx.tree_at(lambda vae_bc: vae_bc.vae.model, make_learner(VAE_BC), whole.vae.model)
    noise = jnp.asarray(np.random.default_rng(0).normal(size=(ROWS, 3, LATENT)))
    draws = {noise.shape: noise, (ROWS, LATENT): noise[:, 0]}
    monkeypatch.setattr(jax.random, "normal", lambda key, shape: draws[shape])

    @jax.jit
    def learn(learner: Any) -> Any:  # compiled without what the VAE does not need
        updated, metrics = learner.update(batch, key)
        return updated.vae, {name: metrics[name] for name in ("vae_loss", "reconstruction", "kl")}

    assert same(learn(alone), learn(whole))


def test_vae_bc_clips_the_latent_when_acting() -> None:
    observations, keys = make_batch().observations, row_keys()
    noise = np.stack([jax.random.normal(key, (LATENT,)) for key in keys])
    assert (np.abs(noise) > 0.3).any(axis=1).all()
    learner = make_learner(VAE_BC)
    decoder = vae_bc_state(learner)["decoder"]
    actions = act(learner, observations, keys)
    clipped = oracle.decode(decoder, observations, np.clip(noise, -0.3, 0.3))
    np.testing.assert_allclose(actions, clipped, rtol=1e-9)
    assert (np.abs(actions - oracle.decode(decoder, observations, noise)) > 1e-6).any(axis=1).all()


def test_vae_bc_draws_for_each_row_by_its_own_key() -> None:
    learner, keys = make_learner(VAE_BC), row_keys()
    observations = np.tile(make_batch().observations[:1], (ROWS, 1))
    actions = act(learner, observations, keys)
    assert len(np.unique(actions, axis=0)) == ROWS
    np.testing.assert_allclose(act(learner, observations, keys[::-1]), actions[::-1], rtol=1e-9)


# The ensemble


def with_rows_changed(batch: Minibatch, member: int) -> Minibatch:
    """The batch with other transitions in the minibatch of one critic."""

    def changed(column: Any, other: Any) -> Any:
        column = np.array(column)
        column[member] = other[member]
        return column.reshape(ROWS, *column.shape[2:])

    return jax.tree.map(changed, parts(batch), parts(make_batch(seed=9)))


@pytest.mark.parametrize("member", range(MEMBERS))
def test_each_critic_learns_from_its_own_rows_alone(member: int) -> None:
    learner, batch, key = make_learner(ENSEMBLE), make_batch(), jax.random.key(0)
    before, _ = update(learner, batch, key)
    after, _ = update(learner, with_rows_changed(batch, member), key)
    for i in range(MEMBERS):
        kept = same(before.critics.model.members[i], after.critics.model.members[i])
        assert kept == (i != member)
        kept = same(before.target_critics.members[i], after.target_critics.members[i])
        assert kept == (i != member)


@pytest.mark.parametrize("member", range(MEMBERS))
def test_each_critic_has_its_own_target_network(member: int) -> None:
    learner, batch = make_learner(ENSEMBLE), make_batch()
    other = zeroed(learner, lambda ensemble: ensemble.target_critics.members[member])
    differs = target(learner, batch) != target(other, batch)
    mine = (np.arange(MEMBERS) == member)[:, None]
    assert same(differs, mine & ~parts(batch).terminated)


def test_the_policy_sees_the_first_minibatch_alone() -> None:
    # Other minibatches reach it through their critics, so these are held still: 0 and right.
    learner = zeroed(make_learner(ENSEMBLE), lambda ensemble: ensemble.critics.model.members[1:])
    later: Any = np.arange(ROWS) >= ROWS // MEMBERS

    def learn(batch: Minibatch) -> Any:
        batch = batch._replace(rewards=batch.rewards * ~later, terminated=later | batch.terminated)
        updated, _ = update(learner, batch, jax.random.key(0))
        assert same(updated.critics.model.members[1:], learner.critics.model.members[1:])
        return updated.actor.model

    first, *others = (
        learn(batch)
        for batch in (make_batch(), *(with_rows_changed(make_batch(), i) for i in range(MEMBERS)))
    )
    assert not same(first, learner.actor.model)
    assert [same(first, other) for other in others] == [False, True, True]


def test_the_policy_goes_on_where_all_critics_agree() -> None:
    learner = make_learner(ENSEMBLE)
    learner = eqx.tree_at(
        lambda ensemble: (ensemble.critics.model.members, ensemble.target_critics.members),
        learner,
        ((learner.critics.model.members[0],) * MEMBERS, (learner.target_critics.members[0],) * 3),
    )
    batch = jax.tree.map(lambda column: np.concatenate([column[:4]] * MEMBERS), make_batch())
    updated, metrics = update(learner, batch, jax.random.key(0))
    np.testing.assert_allclose(metrics["policy_loss"], 1e-4, rtol=1e-6)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(updated))


def test_the_value_is_the_mean_of_the_critics() -> None:
    learner, batch = make_learner(ENSEMBLE), make_batch()
    pairs = batch.observations, batch.actions
    each = [value(zeroed_but(learner, i), *pairs) * MEMBERS for i in range(MEMBERS)]
    np.testing.assert_allclose(value(learner, *pairs), np.mean(each, axis=0), rtol=1e-9)


def zeroed_but(learner: Any, member: int) -> Any:
    """The ensemble with all critics 0 but one."""
    return zeroed(
        learner,
        lambda ensemble: [
            critic for i, critic in enumerate(ensemble.critics.model.members) if i != member
        ],
    )


def test_two_critics_are_an_ensemble() -> None:
    assert bcq.EnsembleConfig(members=2).members == 2


def test_an_update_takes_a_minibatch_for_each_member() -> None:
    assert ENSEMBLE.batch_size == ROWS
    assert bcq.EnsembleConfig().batch_size == 400
    assert bcq.EnsembleConfig(members=10, member_batch_size=7).batch_size == 70


# Settings


@pytest.mark.parametrize(
    ("kind", "name", "wrong"),
    [
        (bcq.DDPGConfig, "hidden_sizes", ()),
        (bcq.DDPGConfig, "hidden_sizes", (400, 0)),
        (bcq.DDPGConfig, "actor_learning_rate", -1e-4),
        (bcq.DDPGConfig, "critic_learning_rate", 0.0),
        (bcq.DDPGConfig, "critic_l2", -1e-2),
        (bcq.DDPGConfig, "discount", 1.1),
        (bcq.DDPGConfig, "target_rate", -0.1),
        (bcq.DDPGConfig, "batch_size", 0),
        (bcq.DQNConfig, "num_bins", 0),
        (bcq.DQNConfig, "learning_rate", -1e-3),
        (bcq.DQNConfig, "discount", -0.1),
        (bcq.DQNConfig, "target_rate", 1.1),
        (bcq.DQNConfig, "batch_size", 0),
        (bcq.DQNConfig, "hidden_sizes", (0,)),
        (bcq.BCConfig, "learning_rate", -1e-3),
        (bcq.BCConfig, "batch_size", 0),
        (bcq.BCConfig, "hidden_sizes", (0, 300)),
        (bcq.VAEBCConfig, "learning_rate", -1e-3),
        (bcq.VAEBCConfig, "latent_clip", 0.0),
        (bcq.VAEBCConfig, "vae_l2", -1e-3),
        (bcq.VAEBCConfig, "batch_size", 0),
        (bcq.VAEBCConfig, "vae_hidden_sizes", (750, 0)),
        (bcq.EnsembleConfig, "members", 1),
        (bcq.EnsembleConfig, "learning_rate", -1e-3),
        (bcq.EnsembleConfig, "member_batch_size", 0),
        (bcq.EnsembleConfig, "discount", 2.0),
        (bcq.EnsembleConfig, "target_rate", -1.0),
        (bcq.EnsembleConfig, "hidden_sizes", (-1,)),
    ],
)
def test_settings_out_of_range_are_refused_by_name(kind: Any, name: str, wrong: Any) -> None:
    with pytest.raises(bcq.InputError, match=f"^{name}: "):
        kind(**{name: wrong})


PAPERS = {
    bcq.DDPGConfig: {
        "discount": 0.99,
        "target_rate": 0.005,
        "batch_size": 100,
        "actor_learning_rate": 1e-4,
        "critic_learning_rate": 1e-3,
        "critic_l2": 1e-2,
        "hidden_sizes": (400, 300),
    },
    bcq.DQNConfig: {
        "discount": 0.99,
        "num_bins": 10,
        "target_rate": 0.005,
        "batch_size": 100,
        "learning_rate": 1e-3,
        "hidden_sizes": (400, 300),
    },
    bcq.BCConfig: {"batch_size": 100, "learning_rate": 1e-3, "hidden_sizes": (400, 300)},
    bcq.VAEBCConfig: {
        "batch_size": 100,
        "learning_rate": 1e-3,
        "vae_l2": 0.0,
        "latent_clip": 0.5,
        "vae_hidden_sizes": (750, 750),
    },
    bcq.EnsembleConfig: {
        "discount": 0.99,
        "members": 4,
        "target_rate": 0.005,
        "member_batch_size": 100,
        "learning_rate": 1e-3,
        "hidden_sizes": (400, 300),
    },
}


@pytest.mark.parametrize("kind", PAPERS)
def test_defaults_are_the_papers(kind: Any) -> None:
    assert asdict(kind()) == PAPERS[kind]
