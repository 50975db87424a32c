"""The extrapolation meter, by hand and on policies that are known to be near or far."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

import bcq
from bcq.algorithms.networks import MLP
from bcq.data.bounds import ActionBounds, Choices
from bcq.data.columns import Columns, Provenance
from bcq.data.dataset import Dataset
from bcq.data.scaling import Scaling
from bcq.judging import meter as meters
from bcq.judging.meter import Meter, compare, extrapolation_meter, nearest_rows
from bcq.training.policy import Policy


class Shifted(eqx.Module):
    """What the batch's behaviour does, moved by a constant."""

    shift: float = eqx.field(static=True)

    def act(self, observations: Array, keys: Array) -> Array:
        del keys
        return jnp.clip(0.5 * jnp.sin(observations) + self.shift, -1, 1)


def make_batch(rows: int = 600, noise: float = 0.05, seed: int = 0) -> Dataset:
    """Actions near half the sine of the state, whose second number is on another scale."""
    random = np.random.default_rng(seed)
    states = random.uniform(-3, 3, (rows, 2))
    actions = np.clip(0.5 * np.sin(states) + noise * random.normal(size=(rows, 2)), -1, 1)
    columns = Columns(
        "made up",
        {
            "observations": states,
            "actions": 10 * actions,
            "rewards": np.zeros(rows),
            "next_observations": states,
            "terminated": np.zeros(rows, bool),
        },
        Provenance(),
    )
    return Dataset.from_columns(columns, ActionBounds(np.full(2, -10.0), np.full(2, 10.0)))


def measure(shift: float, dataset: Dataset) -> Meter:
    return extrapolation_meter(Policy(Shifted(shift), dataset.task), dataset)


class Holding(eqx.Module):
    """Where learners keep a network."""

    model: MLP


class Always(eqx.Module):
    """The same choice everywhere, and a model of the behaviour."""

    choice: int = eqx.field(static=True)
    behaviour: Holding | None = None

    def act(self, observations: Array, keys: Array, permitted: Array | None = None) -> Array:
        del keys
        if permitted is None:
            return jnp.full(len(observations), self.choice)
        return jnp.where(permitted[:, self.choice], self.choice, permitted.argmax(axis=1))


def choice_batch() -> Dataset:
    """At 0 the choices are 0, 0, 0, 1; at 9 they are 1, 2, 2, 2."""
    columns = Columns(
        "made up",
        {
            "observations": np.repeat([[0.0], [9.0]], 4, axis=0),
            "actions": np.array([0, 0, 0, 1, 1, 2, 2, 2]),
            "rewards": np.zeros(8),
            "next_observations": np.zeros((8, 1)),
            "terminated": np.ones(8, bool),
        },
        Provenance(),
    )
    return Dataset.from_columns(columns, Choices(["a", "b", "c"]))


def test_choices_are_compared_with_those_at_near_states_by_hand(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bcq.judging.meter.NEIGHBOURS", 3)  # all others at the same state
    dataset = choice_batch()
    meter = extrapolation_meter(Policy(Always(1), dataset.task), dataset)
    # A row with 0 at state 0 has the neighbours 0, 0, 1, the row with 1 has 0, 0, 0; likewise at 9.
    assert meter.data_distance == pytest.approx((3 * 1 / 3 + 1) / 4)
    assert meter.data_outside == pytest.approx(1 / 4)
    assert meter.distance == pytest.approx((3 * 2 / 3 + 1) / 4)
    assert meter.outside == pytest.approx(1 / 4)
    assert meter.ratio == pytest.approx(1.5)
    assert meter.probability is None
    assert "probability" not in meter.summary()


def test_the_policy_chooses_only_what_was_permitted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bcq.judging.meter.NEIGHBOURS", 3)
    masks = np.ones((8, 3), bool)
    masks[:, 1] = [False, False, False, True, True, False, False, False]  # where 1 was logged
    dataset = replace(choice_batch(), permitted=masks, next_permitted=masks)
    # It takes 1 in two rows, and there nobody else did; elsewhere the first that is permitted: 0.
    meter = extrapolation_meter(Policy(Always(1), dataset.task), dataset)
    assert meter.distance == pytest.approx((3 * 1 / 3 + 1 + 1 + 3 * 1) / 8)
    assert meter.outside == pytest.approx(5 / 8)  # 2 / 8 without the masks


def test_the_behaviour_model_judges_the_choices_by_hand() -> None:
    dataset = choice_batch()
    # Logits are log(1), log(2) + s/9 log(2), log(1): 2/4 for choice 1 at 0, and 4/6 at 9.
    shapes = jax.eval_shape(lambda: MLP(1, (), 3, jax.random.key(0)))
    behaviour = jax.tree.unflatten(
        jax.tree.structure(shapes),
        [
            np.array([[0, np.log(2) / 9, 0]], np.float32).reshape(leaf.shape)
            if leaf.ndim == 2
            else np.array([0, np.log(2), 0], np.float32)
            for leaf in jax.tree.leaves(shapes)
        ],
    )
    learner = Always(1, Holding(behaviour))
    figures = extrapolation_meter(Policy(learner, dataset.task), dataset).summary()
    assert figures["probability"] == pytest.approx((2 / 4 + 4 / 6) / 2)
    logged = (3 * 1 / 4 + 2 / 4) + (4 / 6 + 3 * 1 / 6)
    assert figures["data_probability"] == pytest.approx(logged / 8)


def test_a_policy_like_the_data_is_near_one_and_one_beside_it_is_far() -> None:
    dataset = make_batch()
    like, beside, far = (measure(shift, dataset) for shift in (0.0, 0.25, 0.5))
    assert 0.5 < like.ratio < 1.2
    assert 3 < beside.ratio < far.ratio
    assert like.outside < 0.3
    assert far.outside > 0.9
    assert like.data_distance == beside.data_distance
    assert like.reconstruction_ratio is None


def test_the_meter_does_not_depend_on_the_scale_of_actions_or_observations() -> None:
    dataset = make_batch()
    columns = dataset.columns()
    scaled = Dataset.from_columns(
        Columns("scaled", {**columns.arrays, "actions": dataset.actions / 5}, Provenance()),
        ActionBounds(np.full(2, -2.0), np.full(2, 2.0)),
    )
    assert measure(0.25, scaled).ratio == pytest.approx(measure(0.25, dataset).ratio, rel=1e-4)
    stretched = dataset.observations * np.array([0.001, 1000.0], np.float32)
    again = Dataset.from_columns(
        Columns("stretched", {**columns.arrays, "observations": stretched}, Provenance()),
        dataset.bounds,
    )
    rows = np.arange(50)
    assert (nearest_rows(again, rows) == nearest_rows(dataset, rows)).mean() > 0.99


def test_nearest_rows_leave_the_row_itself_out_and_agree_with_loops() -> None:
    dataset = make_batch(rows=80)
    rows = np.array([3, 40, 79])
    scaled = dataset.observations / dataset.observations.std(axis=0)
    for row, found in zip(rows, nearest_rows(dataset, rows), strict=True):
        distances = np.linalg.norm(scaled - scaled[row], axis=1)
        distances[row] = np.inf
        assert set(found.tolist()) == set(np.argsort(distances)[:10].tolist())


def test_a_large_batch_is_compared_with_every_second_row_of_it() -> None:
    dataset = make_batch(rows=100_003)
    rows = np.array([0, 4, 5, 99_999, 100_002])
    scaled = dataset.observations / dataset.observations.std(axis=0)
    for row, found in zip(rows.tolist(), nearest_rows(dataset, rows), strict=True):
        distances = np.linalg.norm(scaled - scaled[row], axis=1)
        distances[1::2] = np.inf  # 50,002 rows are left; every third alone would be fewer
        distances[row] = np.inf
        assert found.tolist() == np.argsort(distances)[:10].tolist()


def test_a_small_batch_is_compared_with_all_other_rows_of_it() -> None:
    dataset = make_batch(rows=5)
    for row, found in enumerate(nearest_rows(dataset, np.arange(5))):
        assert sorted(found.tolist()) == [other for other in range(5) if other != row]
    two = make_batch(rows=2)
    apart = float(np.linalg.norm(two.actions[0] - two.actions[1]) / 10)
    assert measure(0.0, two).data_distance == pytest.approx(apart, rel=1e-5)


def test_an_observation_that_never_changes_does_not_count() -> None:
    dataset = make_batch(rows=40)
    constant = dataset.observations.copy()
    constant[:, 1] = 3.0
    columns = {**dataset.columns().arrays, "observations": constant}
    flat = Dataset.from_columns(Columns("flat", columns, Provenance()), dataset.bounds)
    for row, found in enumerate(nearest_rows(flat, np.arange(40))):
        distances = np.abs(constant[:, 0] - constant[row, 0])
        distances[row] = np.inf
        assert set(found.tolist()) == set(np.argsort(distances)[:10].tolist())


def test_states_and_draws_are_those_of_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meters, "STATES", 20)
    dataset = make_batch(rows=60)
    learner = bcq.BCQConfig(hidden_sizes=(8,), vae_hidden_sizes=(8,)).create(
        2, 2, jax.random.key(0)
    )
    policy = Policy(learner, dataset.task)
    unsaid, zero, one = (
        extrapolation_meter(policy, dataset),
        extrapolation_meter(policy, dataset, seed=0),
        extrapolation_meter(policy, dataset, seed=1),
    )
    assert unsaid == zero
    assert zero.data_distance != one.data_distance
    assert zero.distance != one.distance


def test_distances_and_ranges_by_hand() -> None:
    near = np.array([[[0.0, 0.0], [1.0, 1.0]]], np.float32)
    distance, outside = compare(np.array([[1.0, 1.5]], np.float32), near)
    assert distance == pytest.approx(0.5)
    assert outside == 0.5
    assert compare(np.array([[-0.1, 0.5]], np.float32), near)[1] == 0.5
    assert compare(np.array([[0.0, 1.0]], np.float32), near) == (1.0, 0.0)  # ends are inside


def test_each_state_is_compared_with_its_own_neighbours() -> None:
    near = np.array([[[0.0, 0.0], [1.0, 1.0]], [[5.0, 5.0], [6.0, 7.0]]], np.float32)
    actions = np.array([[-1.0, 1.5], [4.0, 6.5]], np.float32)
    distance, outside = compare(actions, near)
    assert distance == pytest.approx(3.25**0.5)  # to the first neighbour of each
    assert outside == 0.75


def test_figures_that_a_learner_does_not_have_are_none() -> None:
    plain = Meter(0.5, 0.25, 0.1, 0.2)
    assert plain.summary() == {
        "extrapolation_meter": 2.0,
        "distance": 0.5,
        "data_distance": 0.25,
        "outside": 0.1,
        "data_outside": 0.2,
        "reconstruction": None,
        "data_reconstruction": None,
        "latents_beyond_clip": None,
        "perturbations_near_limit": None,
        "reconstruction_ratio": None,
    }
    assert replace(plain, reconstruction=1.0).reconstruction_ratio is None
    assert replace(plain, data_reconstruction=1.0).reconstruction_ratio is None
    assert replace(plain, probability=0.25).summary()["probability"] == 0.25
    assert "data_probability" not in replace(plain, probability=0.25).summary()


def test_neighbours_are_found_as_well_far_from_zero() -> None:
    dataset = make_batch(rows=80)
    moved = dataset.observations + np.float32(10_000)
    columns = {**dataset.columns().arrays, "observations": moved}
    far = Dataset.from_columns(Columns("far", columns, Provenance()), dataset.bounds)
    exact = moved.astype(float) / moved.astype(float).std(axis=0)
    for row, found in enumerate(nearest_rows(far, np.arange(80))):
        distances = np.linalg.norm(exact - exact[row], axis=1)
        distances[row] = np.inf
        assert distances[found].max() < np.sort(distances)[9] + 1e-6


def test_a_learner_with_a_vae_is_also_measured_by_it() -> None:
    dataset = make_batch()
    config = bcq.VAEBCConfig(vae_hidden_sizes=(32, 32))
    *_, (_, learner, _) = bcq.train(config, dataset, steps=600)
    meter = extrapolation_meter(Policy(learner, dataset.task), dataset)
    assert meter.reconstruction_ratio is not None
    assert meter.reconstruction is not None
    assert 0 < meter.reconstruction < 0.1
    assert meter.summary()["extrapolation_meter"] == meter.ratio


def test_the_vae_measures_actions_of_policy_and_data_at_the_same_states(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dataset = make_batch(rows=60)
    asked: list[int] = []

    def noted(dataset: Dataset, rows: np.ndarray) -> np.ndarray:
        asked.extend(rows.tolist())
        return nearest_rows(dataset, rows)

    assert meters.STATES == 1_000
    monkeypatch.setattr(meters, "STATES", 25)
    monkeypatch.setattr(meters, "nearest_rows", noted)
    learner = bcq.VAEBCConfig(vae_hidden_sizes=(8, 8)).create(2, 2, jax.random.key(1))
    policy = Policy(learner, dataset.task)
    measured = extrapolation_meter(policy, dataset, seed=3)
    assert len(set(asked)) == 25
    observations = dataset.observations[asked]
    nearest = [
        min(np.linalg.norm(dataset.actions[row] - dataset.actions[other]) / 10 for other in others)
        for row, others in zip(asked, nearest_rows(dataset, np.array(asked)), strict=True)
    ]
    assert measured.data_distance == pytest.approx(np.mean(nearest), rel=1e-4)

    def error(actions: np.ndarray) -> float:
        seen, vae = jnp.asarray(observations), learner.vae.model
        decoded = vae.decode(seen, vae.encode(seen, jnp.asarray(actions))[0])
        return float(np.square(np.asarray(decoded) - actions).sum() / (25 * 2))

    ours, theirs = error(policy.act(observations, seed=3) / 10), error(dataset.actions[asked] / 10)
    assert measured.reconstruction == pytest.approx(ours, rel=1e-4)
    assert measured.data_reconstruction == pytest.approx(theirs, rel=1e-4)
    assert measured.reconstruction_ratio == pytest.approx(ours / theirs, rel=1e-3)
    assert abs(ours / theirs - 1) > 0.1
    assert measured.summary()["reconstruction_ratio"] == measured.reconstruction_ratio


def test_bcqs_own_signs_of_strain_by_hand() -> None:
    dataset = make_batch(rows=60)
    config = bcq.BCQConfig(hidden_sizes=(8, 8), vae_hidden_sizes=(8, 8), max_perturbation=0.1)
    learner = config.create(2, 2, jax.random.key(0))

    def with_last_layers(perturbation: list[float], encoder: list[float]) -> Meter:
        changed = eqx.tree_at(
            lambda one: (
                one.perturbation.model.network.layers[-1].weight,
                one.perturbation.model.network.layers[-1].bias,
                one.vae.model.encoder.layers[-1].weight,
                one.vae.model.encoder.layers[-1].bias,
            ),
            learner,
            (jnp.zeros((8, 2)), jnp.array(perturbation), jnp.zeros((8, 8)), jnp.array(encoder)),
        )
        return extrapolation_meter(Policy(changed, dataset.task), dataset)

    at_ease = with_last_layers([1.0, -1.0], [0.4, -0.4, 0, 0, 9, 9, 9, 9])  # J = 4, log sigmas
    assert at_ease.perturbations_near_limit == 0  # tanh 1 = 0.76
    assert at_ease.latents_beyond_clip == 0
    at_the_clip = with_last_layers([1.0, -1.0], [0.5, -0.5, 0, 0, 9, 9, 9, 9])
    assert at_the_clip.latents_beyond_clip == 0
    for moved, mean in ((-9.0, 0.6), (9.0, -0.6)):
        strained = with_last_layers([1.0, moved], [mean, -0.4, 0, 0, 9, 9, 9, 9])
        assert strained.perturbations_near_limit == 0.5
        assert strained.latents_beyond_clip == 0.25
    other = bcq.VAEBCConfig(vae_hidden_sizes=(8,)).create(2, 2, jax.random.key(0))
    assert (
        extrapolation_meter(Policy(other, dataset.task), dataset).perturbations_near_limit is None
    )


def test_the_share_at_phi_is_that_of_one_sample_a_state() -> None:
    dataset = make_batch(rows=30)
    config = bcq.BCQConfig(hidden_sizes=(8,), vae_hidden_sizes=(8,), max_perturbation=0.5)
    learner = jax.tree.map(lambda leaf: 3 * leaf, config.create(2, 2, jax.random.key(2)))
    measured = extrapolation_meter(Policy(learner, dataset.task), dataset, seed=4)
    noise = np.clip(jax.random.normal(jax.random.key(4), (30, 1, 4)), -0.5, 0.5)[:, 0]
    vae, perturbation = learner.vae.model, learner.perturbation.model.network
    seen = jnp.asarray(dataset.observations)
    generated = jnp.tanh(vae.decoder(seen, jnp.asarray(noise)))
    share = np.mean(np.abs(np.tanh(perturbation(seen, generated))) > 0.95)
    assert 0.1 < share < 0.9
    assert measured.perturbations_near_limit == pytest.approx(share)
    means = np.asarray(vae.encoder(seen, jnp.asarray(dataset.actions / 10)))[:, :4]
    beyond = np.mean(np.abs(means) > 0.5)
    assert 0.1 < beyond < 0.9
    assert measured.latents_beyond_clip == pytest.approx(beyond)


def test_networks_are_measured_at_observations_on_their_own_scale() -> None:
    dataset = make_batch(rows=30)
    config = bcq.BCQConfig(hidden_sizes=(8,), vae_hidden_sizes=(8,), max_perturbation=0.5)
    learner = jax.tree.map(lambda leaf: 3 * leaf, config.create(2, 2, jax.random.key(2)))
    scaling = Scaling.of(5 + 3 * dataset.observations, dataset.rewards)
    policy = Policy(learner, replace(dataset.task, scaling=scaling))
    scaled = replace(dataset, observations=scaling.observations(dataset.observations))
    expected = extrapolation_meter(Policy(learner, dataset.task), scaled)
    assert extrapolation_meter(policy, dataset).summary() == pytest.approx(expected.summary())


def test_without_perturbation_there_is_no_share_at_its_limit() -> None:
    dataset = make_batch(rows=20)
    config = bcq.BCQConfig(hidden_sizes=(4,), vae_hidden_sizes=(4,), max_perturbation=0.0)
    learner = config.create(2, 2, jax.random.key(0))
    measured = extrapolation_meter(Policy(learner, dataset.task), dataset)
    assert measured.perturbations_near_limit is None
    assert measured.latents_beyond_clip is not None


def test_a_batch_with_nothing_to_compare_is_refused_in_one_line() -> None:
    alike = make_batch(rows=30, noise=0.0)
    columns = alike.columns()
    constant = Dataset.from_columns(
        Columns("constant", {**columns.arrays, "actions": 0 * alike.actions}, Provenance()),
        alike.bounds,
    )
    with pytest.raises(bcq.InputError, match="are all equal"):
        measure(0.1, constant)
    with pytest.raises(bcq.InputError, match="one transition"):
        measure(0.1, make_batch(rows=1))
