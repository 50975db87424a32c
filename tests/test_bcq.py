"""BCQ against the oracle written from the paper, and against the mistakes other ports have made."""

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

import oracle
from bcq.algorithms.bcq import BCQ, BCQConfig, propose
from bcq.algorithms.learning import Minibatch
from bcq.algorithms.networks import MLP
from bcq.system.errors import InputError
from made_up import made_up

ROWS, OBSERVATION, ACTION = 7, 5, 3
LATENT = 2 * ACTION
CONFIG = BCQConfig(
    max_perturbation=0.2, vae_l2=1e-3, hidden_sizes=(16, 12), vae_hidden_sizes=(14, 14)
)
SETTINGS = {
    "discount": CONFIG.discount,
    "min_weight": CONFIG.min_weight,
    "max_perturbation": CONFIG.max_perturbation,
    "latent_clip": CONFIG.latent_clip,
    "target_rate": CONFIG.target_rate,
    "learning_rate": CONFIG.learning_rate,
    "vae_l2": CONFIG.vae_l2,
}


update = jax.jit(BCQ.update)


@pytest.fixture
def double_precision() -> Any:
    """Rounding out of the way, the two implementations must agree to nine digits."""
    with jax.enable_x64(True):
        yield


def make_learner(config: BCQConfig = CONFIG, seed: int = 0) -> BCQ:
    return made_up(config, OBSERVATION, ACTION, seed=seed, scale=3)


def make_batch(seed: int = 0, rows: int = ROWS) -> Minibatch:
    random = np.random.default_rng(seed)
    return Minibatch(
        observations=jnp.asarray(random.normal(size=(rows, OBSERVATION))),
        actions=jnp.asarray(random.uniform(-1, 1, (rows, ACTION))),
        rewards=jnp.asarray(random.normal(size=rows)),
        next_observations=jnp.asarray(random.normal(size=(rows, OBSERVATION))),
        terminated=jnp.asarray(np.arange(rows) % 3 == 0),
    )


def layers(network: MLP) -> oracle.Network:
    return [(np.array(layer.weight), np.array(layer.bias)) for layer in network.layers]


def as_state(learner: BCQ) -> dict[str, Any]:
    critics, targets = learner.critics.model.members, learner.target_critics.members
    state: dict[str, Any] = {
        "encoder": layers(learner.vae.model.encoder),
        "decoder": layers(learner.vae.model.decoder),
        "critic1": layers(critics[0]),
        "critic2": layers(critics[1]),
        "perturbation": layers(learner.perturbation.model.network),
        "target_critic1": layers(targets[0]),
        "target_critic2": layers(targets[1]),
        "target_perturbation": layers(learner.target_perturbation.network),
        "count": 0,
    }
    return {**state, "moments": oracle.initial_moments(state)}


def noise_of(key: Array) -> dict[str, Any]:
    """What `update` draws from its key."""
    noise = np.array(jax.random.normal(key, (ROWS, CONFIG.num_samples + 2, LATENT)))
    return {"vae": noise[:, 0], "policy": noise[:, 1], "target": noise[:, 2:]}


def normal(seed: int, *shape: int) -> Array:
    return jax.random.normal(jax.random.key(seed), shape)


@pytest.mark.usefixtures("double_precision")
@pytest.mark.parametrize("seed", range(3))
def test_vae_loss_is_the_papers(seed: int) -> None:
    learner, batch, noise = make_learner(seed=seed), make_batch(seed), normal(seed, ROWS, LATENT)
    vae = learner.vae.model
    loss, metrics = vae.loss(batch.observations, batch.actions, noise)
    expected = oracle.vae_loss(
        layers(vae.encoder), layers(vae.decoder), batch.observations, batch.actions, noise
    )
    np.testing.assert_allclose(
        (loss, metrics["reconstruction"], metrics["kl"]), expected, rtol=1e-9
    )


@pytest.mark.usefixtures("double_precision")
@pytest.mark.parametrize("seed", range(3))
def test_target_is_the_papers(seed: int) -> None:
    learner, batch = make_learner(seed=seed), make_batch(seed)
    noise = normal(seed, ROWS, CONFIG.num_samples, LATENT)
    target = learner.bellman_target(learner.vae.model, batch, noise)
    expected = oracle.bellman_target(as_state(learner), batch._asdict(), noise, SETTINGS)
    assert target.shape == (ROWS,)
    np.testing.assert_allclose(target, expected, rtol=1e-9)


@pytest.mark.usefixtures("double_precision")
@pytest.mark.parametrize("seed", range(3))
def test_acting_is_the_papers(seed: int) -> None:
    learner, batch = make_learner(seed=seed), make_batch(seed)
    keys = jax.random.split(jax.random.key(seed), ROWS)
    noise = np.stack([jax.random.normal(k, (CONFIG.num_acting_samples, LATENT)) for k in keys])
    expected = oracle.act(as_state(learner), batch.observations, noise, SETTINGS)
    np.testing.assert_allclose(learner.act(batch.observations, keys), expected, rtol=1e-9)


@pytest.mark.usefixtures("double_precision")
def test_critic_loss_is_the_papers() -> None:
    key, batch = jax.random.key(4), make_batch()
    state, noise = as_state(make_learner()), noise_of(key)
    _, metrics = update(make_learner(), batch, key)
    updated, _ = oracle.update(state, batch._asdict(), noise, SETTINGS)
    with_new_vae = {**state, "encoder": updated["encoder"], "decoder": updated["decoder"]}
    targets = oracle.bellman_target(with_new_vae, batch._asdict(), noise["target"], SETTINGS)
    expected = oracle.critic_loss(state["critic1"], state["critic2"], batch._asdict(), targets)
    np.testing.assert_allclose(metrics["critic_loss"], expected, rtol=1e-9)


@pytest.mark.usefixtures("double_precision")
def test_policy_loss_is_the_papers() -> None:
    key, batch = jax.random.key(4), make_batch()
    state, noise = as_state(make_learner()), noise_of(key)
    _, metrics = update(make_learner(), batch, key)
    updated, _ = oracle.update(state, batch._asdict(), noise, SETTINGS)
    before = {**updated, "perturbation": state["perturbation"]}
    expected = oracle.policy_loss(before, batch.observations, noise["policy"], SETTINGS)
    np.testing.assert_allclose(metrics["policy_loss"], expected, rtol=1e-9)


@pytest.mark.usefixtures("double_precision")
def test_whole_updates_are_the_papers() -> None:
    learner = make_learner()
    state = as_state(learner)
    for step in range(5):
        key, batch = jax.random.key(step), make_batch(step)
        learner, metrics = update(learner, batch, key)
        state, losses = oracle.update(state, batch._asdict(), noise_of(key), SETTINGS)
        for name, expected in losses.items():
            np.testing.assert_allclose(metrics[name], expected, rtol=1e-8, err_msg=name)
    actual = as_state(learner)
    for name in actual.keys() - {"moments", "count"}:
        for ours, theirs in zip(actual[name], state[name], strict=True):
            np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-7, atol=1e-9, err_msg=name)
            np.testing.assert_allclose(ours[1], theirs[1], rtol=1e-7, atol=1e-9, err_msg=name)


def test_single_precision_losses_are_the_papers() -> None:
    key, batch, learner = jax.random.key(1), make_batch(), make_learner()
    _, metrics = update(learner, batch, key)
    _, losses = oracle.update(as_state(learner), batch._asdict(), noise_of(key), SETTINGS)
    for name, expected in losses.items():
        np.testing.assert_allclose(metrics[name], expected, rtol=1e-5, err_msg=name)


def test_target_uses_the_target_perturbation_network() -> None:
    learner, batch, noise = make_learner(), make_batch(), normal(0, ROWS, 10, LATENT)
    vae = learner.vae.model
    online, target = learner.perturbation.model, learner.target_perturbation
    shifted = jax.tree.map(lambda leaf: leaf + 1, target)
    moved = eqx.tree_at(lambda bcq: bcq.target_perturbation, learner, shifted)
    ignored = eqx.tree_at(
        lambda bcq: bcq.perturbation.model, learner, jax.tree.map(lambda x: x + 1, online)
    )
    before = learner.bellman_target(vae, batch, noise)
    assert (before != moved.bellman_target(vae, batch, noise))[~batch.terminated].all()
    assert (before == ignored.bellman_target(vae, batch, noise)).all()


def test_a_terminal_is_worth_its_reward_even_if_nothing_can_be_said_of_what_follows() -> None:
    learner, batch, noise = make_learner(), make_batch(), normal(0, ROWS, 10, LATENT)
    lost = jax.tree.map(lambda leaf: np.full_like(leaf, np.nan), learner.target_critics)
    learner = replace(learner, target_critics=lost)
    target = learner.bellman_target(learner.vae.model, batch, noise)
    assert (jnp.isnan(target) == ~batch.terminated).all()
    assert (target == batch.rewards)[batch.terminated].all()


def test_a_target_depends_on_its_own_transition_alone() -> None:
    learner, batch, noise = make_learner(), make_batch(), normal(0, ROWS, 10, LATENT)
    before = learner.bellman_target(learner.vae.model, batch, noise)
    changed = batch._replace(
        rewards=batch.rewards.at[1].add(1.0),
        next_observations=batch.next_observations.at[1].add(1.0),
    )
    after = learner.bellman_target(learner.vae.model, changed, noise)
    assert (np.flatnonzero(before != after) == [1]).all()


def test_perturbation_has_one_value_a_row_and_dimension() -> None:
    learner, batch, noise = make_learner(), make_batch(), normal(0, ROWS, 10, LATENT)
    models = learner.vae.model, learner.perturbation.model
    _, residuals = propose(*models, batch.observations, noise)
    assert residuals.shape == (ROWS, 10, ACTION)
    assert (jnp.ptp(residuals, axis=2) > 0).all()
    order = jnp.arange(ROWS)[::-1]
    _, reordered = propose(*models, batch.observations[order], noise[order])
    np.testing.assert_allclose(reordered, residuals[order], rtol=1e-5)


def test_candidates_are_valued_by_plain_matrix_products() -> None:
    """A product for each state would give the same numbers, and take several times as long."""
    vae = make_learner().vae.model
    program = jax.make_jaxpr(vae.generate)(make_batch().observations[:, None], jnp.ones((1, 10, 6)))
    products = [step for step in program.jaxpr.eqns if step.primitive.name == "dot_general"]
    assert [[operand.aval.ndim for operand in step.invars] for step in products] == [[2, 2]] * 3


@pytest.mark.parametrize("phi", [0.0, 0.05, 0.5, 2.0])
def test_perturbation_stays_within_phi_and_bounds(phi: float) -> None:
    config = replace(CONFIG, max_perturbation=phi)
    learner, batch, noise = make_learner(config), make_batch(), normal(0, ROWS, 10, LATENT)
    actions, _ = propose(learner.vae.model, learner.perturbation.model, batch.observations, noise)
    generated = learner.vae.model.generate(batch.observations[:, None], noise)
    assert (jnp.abs(actions - generated) <= phi + 1e-6).all()
    assert (jnp.abs(actions) <= 1).all()
    if phi == 0:
        assert (actions == generated).all()


@pytest.mark.parametrize("scale", [1.0, 1e3, -1e6])
def test_generated_actions_are_bounded_for_any_weights(scale: float) -> None:
    learner = jax.tree.map(lambda leaf: scale * leaf, make_learner())
    actions = learner.vae.model.generate(make_batch().observations, normal(0, ROWS, LATENT))
    assert (jnp.abs(actions) <= 1).all()


def test_latents_beyond_the_clip_generate_the_same_action() -> None:
    vae, observations = make_learner().vae.model, make_batch().observations
    at_clip, beyond = (vae.generate(observations, jnp.full((ROWS, LATENT), z)) for z in (0.5, 9.0))
    assert (at_clip == beyond).all()


def test_twin_critics_differ_and_targets_start_as_copies() -> None:
    small = replace(CONFIG, hidden_sizes=(3,), vae_hidden_sizes=(3,))
    learner = small.create(OBSERVATION, ACTION, jax.random.key(0))
    first, second = learner.critics.model.members
    assert (first.layers[0].weight != second.layers[0].weight).any()
    for slow, fast in (
        (learner.target_critics, learner.critics.model),
        (learner.target_perturbation, learner.perturbation.model),
    ):
        assert all(jax.tree.leaves(jax.tree.map(lambda a, b: (a == b).all(), slow, fast)))


def test_without_perturbation_and_choice_acting_is_behavioural_cloning() -> None:
    config = replace(CONFIG, max_perturbation=0.0, num_acting_samples=1)
    learner, observations = make_learner(config), make_batch().observations
    keys = jax.random.split(jax.random.key(0), ROWS)
    noise = jnp.stack([jax.random.normal(key, (1, LATENT)) for key in keys])
    cloned = learner.vae.model.generate(observations[:, None], noise)[:, 0]
    assert (learner.act(observations, keys) == cloned).all()


@pytest.mark.parametrize(("reach", "share"), [(1.8, 0), (1.9, 1 / 3), (-1.9, 1 / 3)])
def test_perturbations_within_a_twentieth_of_phi_are_counted(reach: float, share: float) -> None:
    """tanh 1.8 = 0.947, tanh 1.9 = 0.956."""
    learner = make_learner()
    last = learner.perturbation.model.network.layers[-1]
    bias = jnp.zeros_like(last.bias).at[0].set(reach)
    learner = eqx.tree_at(
        lambda one: (
            one.perturbation.model.network.layers[-1].weight,
            one.perturbation.model.network.layers[-1].bias,
        ),
        learner,
        (jnp.zeros_like(last.weight), bias),
    )
    _, metrics = update(learner, make_batch(), jax.random.key(0))
    assert metrics["perturbations_near_limit"] == pytest.approx(share)


@pytest.mark.parametrize(("mean", "share"), [(0.5, 0), (0.51, 1 / 6), (-0.51, 1 / 6)])
def test_latents_that_acting_never_draws_are_counted(mean: float, share: float) -> None:
    learner = make_learner()
    last = learner.vae.model.encoder.layers[-1]
    learner = eqx.tree_at(
        lambda one: (
            one.vae.model.encoder.layers[-1].weight,
            one.vae.model.encoder.layers[-1].bias,
        ),
        learner,
        (jnp.zeros_like(last.weight), jnp.zeros_like(last.bias).at[0].set(mean)),
    )
    _, metrics = update(learner, make_batch(), jax.random.key(0))
    assert metrics["latents_beyond_clip"] == pytest.approx(share)


@pytest.mark.parametrize(
    ("output", "expected"), [(-99.0, -4), (-3.9, -3.9), (14.9, 14.9), (99.0, 15)]
)
def test_the_encoders_log_deviation_stays_between_minus_4_and_15(
    output: float, expected: float
) -> None:
    vae, batch = make_learner().vae.model, make_batch()
    last = vae.encoder.layers[-1]
    vae = eqx.tree_at(
        lambda one: (one.encoder.layers[-1].weight, one.encoder.layers[-1].bias),
        vae,
        (jnp.zeros_like(last.weight), jnp.full_like(last.bias, output)),
    )
    mean, log_std = vae.encode(batch.observations, batch.actions)
    assert mean.shape == log_std.shape == (ROWS, LATENT)
    np.testing.assert_allclose(mean, output, rtol=1e-6)
    np.testing.assert_allclose(log_std, expected, rtol=1e-6)


def test_no_arithmetic_beyond_the_papers() -> None:
    """At Hopper's sizes an update needs 1.50 G multiply-adds; unused gradients would add to it."""
    learner = jax.eval_shape(lambda: BCQConfig().create(11, 3, jax.random.key(0)))
    batch = Minibatch(
        observations=jnp.zeros((100, 11)),
        actions=jnp.zeros((100, 3)),
        rewards=jnp.zeros(100),
        next_observations=jnp.zeros((100, 11)),
        terminated=jnp.zeros(100, bool),
    )
    cost: Any = update.lower(learner, batch, jax.random.key(0)).cost_analysis()
    assert 2 * 1.4e9 < cost["flops"] < 2 * 1.55e9


@pytest.mark.parametrize(
    "wrong",
    [
        {"num_samples": 0},
        {"num_acting_samples": 0},
        {"batch_size": 0},
        {"learning_rate": 0.0},
        {"latent_clip": 0.0},
        {"max_perturbation": -0.1},
        {"vae_l2": -1e-3},
        {"min_weight": 1.1},
        {"discount": 1.5},
        {"target_rate": 1.1},
        {"hidden_sizes": (400, 0)},
        {"vae_hidden_sizes": (0, 750)},
    ],
)
def test_settings_out_of_range_are_refused_by_name(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(wrong))):
        BCQConfig(**wrong)
