"""The offline loop, the contract every algorithm keeps, and the numbers it must go on giving."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bcq
from bcq.algorithms import ALGORITHMS, CONTINUOUS, DISCRETE
from bcq.algorithms.learning import Acting, Algorithm, AlgorithmConfig, Minibatch, Trainable
from bcq.data.bounds import ActionBounds, Choices
from bcq.data.columns import Columns, Provenance
from bcq.data.dataset import Dataset
from bcq.runs.arrays import named_arrays
from bcq.system.errors import InputError
from bcq.training import loop
from bcq.training import policy as policies
from bcq.training.loop import Keys, create, on_device, sample, train, value_estimate
from bcq.training.policy import Policy
from made_up import made_up

SMALL: dict[str, AlgorithmConfig] = {
    "bcq": bcq.BCQConfig(hidden_sizes=(32, 24), vae_hidden_sizes=(32, 32)),
    "ddpg": bcq.DDPGConfig(hidden_sizes=(32, 24)),
    "dqn": bcq.DQNConfig(hidden_sizes=(32, 24)),
    "bc": bcq.BCConfig(hidden_sizes=(32, 24)),
    "vae-bc": bcq.VAEBCConfig(vae_hidden_sizes=(32, 32)),
    "ensemble": bcq.EnsembleConfig(hidden_sizes=(32, 24)),
    "discrete-bcq": bcq.DiscreteBCQConfig(hidden_sizes=(32, 24)),
    "discrete-dqn": bcq.DiscreteDQNConfig(hidden_sizes=(32, 24)),
    "discrete-bc": bcq.DiscreteBCConfig(hidden_sizes=(32, 24)),
}
GOLDEN = Path(__file__).parent / "golden.json"


def make_dataset(rows: int = 300, seed: int = 0) -> Dataset:
    """Transitions of no particular meaning, with asymmetric action bounds."""
    random = np.random.default_rng(seed)
    columns = Columns(
        source="made up",
        arrays={
            "observations": random.normal(size=(rows, 4)),
            "actions": random.uniform([-1, 0], [3, 10], (rows, 2)),
            "rewards": random.normal(size=rows),
            "next_observations": random.normal(size=(rows, 4)),
            "terminated": random.random(rows) < 0.05,
        },
        provenance=Provenance(),
    )
    return Dataset.from_columns(columns, ActionBounds(np.array([-1, 0]), np.array([3, 10])))


def make_choices(rows: int = 300) -> Dataset:
    """The same with three choices for actions."""
    columns = make_dataset(rows).columns()
    numbers = np.random.default_rng(1).integers(3, size=rows)
    columns = replace(columns, arrays={**columns.arrays, "actions": numbers})
    return Dataset.from_columns(columns, Choices(["left", "right", "stay"]))


def data_for(config: AlgorithmConfig) -> Dataset:
    return make_choices() if type(config) in DISCRETE.values() else make_dataset()


def last(
    config: AlgorithmConfig, steps: int, **settings: Any
) -> tuple[Algorithm, dict[str, float]]:
    *_, (step, learner, metrics) = train(config, data_for(config), steps=steps, **settings)
    assert step == steps
    return learner, metrics


def test_every_algorithm_has_a_small_configuration_to_be_tested_with() -> None:
    assert SMALL.keys() == ALGORITHMS.keys()


@pytest.mark.parametrize("name", ALGORITHMS)
def test_acting_takes_no_array_of_an_optimizer_and_gives_the_same_bits(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = data_for(SMALL[name])
    learner = create(SMALL[name], dataset, seed=0)
    handed: list[Acting] = []
    original = policies.act_in_rows

    def watched(learner: Acting, *others: Any) -> Any:
        handed.append(learner)
        return original(learner, *others)

    monkeypatch.setattr(policies, "act_in_rows", watched)
    policy = Policy(learner, dataset.task)
    actions = policy.act(dataset.observations, seed=3, step=4)
    rows = np.arange(len(dataset))
    whole = np.asarray(original(learner, dataset.observations, rows, 3, 4))
    assert actions.tobytes() == dataset.bounds.denormalise(whole).tobytes()
    expected = {path for path in named_arrays(learner) if ".moments." not in path}
    assert named_arrays(handed[0]).keys() == expected
    assert expected < named_arrays(policy.learner).keys()


@pytest.mark.parametrize("name", ALGORITHMS)
def test_contract(name: str) -> None:
    learner, metrics = last(SMALL[name], 30)
    assert metrics
    assert all(np.isfinite(value) for value in metrics.values())
    dataset = data_for(SMALL[name])
    policy = Policy(learner, dataset.task)
    actions = policy.act(dataset.observations)
    assert actions.shape == dataset.actions.shape
    assert actions.dtype == np.float32
    assert (actions >= dataset.bounds.low).all()
    assert (actions <= dataset.bounds.high).all()
    assert (actions == policy.act(dataset.observations)).all()
    one_by_one = policy.act(dataset.observations[:1])
    np.testing.assert_allclose(actions[:1], one_by_one, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_same_seed_same_bytes_and_another_seed_others(name: str) -> None:
    first, again, other = (named_arrays(last(SMALL[name], 30, seed=s)[0]) for s in (1, 1, 2))
    assert all((first[key] == again[key]).all() for key in first)
    assert any((first[key] != other[key]).any() for key in first)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_golden(name: str) -> None:
    """Changing what this compares takes a line "numbers changed" in the CHANGELOG."""
    learner, metrics = last(SMALL[name], 20)
    arrays = named_arrays(learner)
    sums = {key: float(np.abs(values).sum()) for key, values in arrays.items() if ".model." in key}
    golden = json.loads(GOLDEN.read_text())[name]
    assert metrics == pytest.approx(golden["metrics"], rel=1e-4)
    assert sums == pytest.approx(golden["sums"], rel=1e-4)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_an_algorithm_for_the_other_kind_of_actions_is_refused(name: str) -> None:
    config, discrete = SMALL[name], name in DISCRETE
    dataset = make_dataset() if discrete else make_choices()
    words = "quantities, not choices; use " if discrete else "3 choices, not quantities; use "
    fitting = ", ".join(CONTINUOUS if discrete else DISCRETE)
    with pytest.raises(InputError, match=f"{name}: the actions of this batch are {words}{fitting}"):
        next(train(config, dataset, steps=100))


RATES: list[tuple[AlgorithmConfig, dict[str, tuple[float, float]]]] = [
    (
        bcq.BCQConfig(hidden_sizes=(4,), vae_hidden_sizes=(4,), learning_rate=0.03, vae_l2=0.2),
        {"vae": (0.03, 0.2), "critics": (0.03, 0), "perturbation": (0.03, 0)},
    ),
    (
        bcq.DDPGConfig(
            hidden_sizes=(4,), actor_learning_rate=0.02, critic_learning_rate=0.05, critic_l2=0.3
        ),
        {"actor": (0.02, 0), "critic": (0.05, 0.3)},
    ),
    (bcq.DQNConfig(hidden_sizes=(4,), learning_rate=0.03), {"network": (0.03, 0)}),
    (bcq.BCConfig(hidden_sizes=(4,), learning_rate=0.03), {"actor": (0.03, 0)}),
    (
        bcq.VAEBCConfig(vae_hidden_sizes=(4,), learning_rate=0.03, vae_l2=0.2),
        {"vae": (0.03, 0.2)},
    ),
    (
        bcq.EnsembleConfig(hidden_sizes=(4,), learning_rate=0.03),
        {"actor": (0.03, 0), "critics": (0.03, 0)},
    ),
    (
        bcq.DiscreteBCQConfig(hidden_sizes=(4,), learning_rate=0.03),
        {"network": (0.03, 0), "behaviour": (0.03, 0)},
    ),
    (bcq.DiscreteDQNConfig(hidden_sizes=(4,), learning_rate=0.03), {"network": (0.03, 0)}),
    (bcq.DiscreteBCConfig(hidden_sizes=(4,), learning_rate=0.03), {"behaviour": (0.03, 0)}),
]


@pytest.mark.parametrize(("config", "networks"), RATES)
def test_every_network_learns_at_its_rate_and_with_its_l2(
    config: AlgorithmConfig, networks: dict[str, tuple[float, float]]
) -> None:
    """Adam's first step is the rate along the gradient's sign, and none where L2 cancels it."""
    learner = made_up(config, 3, 2, seed=0, scale=1)
    trained = {name: one for name, one in vars(learner).items() if isinstance(one, Trainable)}
    assert trained.keys() == networks.keys()
    for name, (rate, l2) in networks.items():
        model, moments, update = (
            trained[name].model,
            trained[name].moments,
            trained[name].optimizer.update,
        )
        steep = update(jax.tree.map(lambda leaf: 0 * leaf + 9, model), moments, model)[0]
        flat = update(jax.tree.map(lambda leaf, l2=l2: -l2 * leaf, model), moments, model)[0]
        for down, still in zip(jax.tree.leaves(steep), jax.tree.leaves(flat), strict=True):
            np.testing.assert_allclose(down, -rate, rtol=1e-5)
            np.testing.assert_array_equal(still, 0)


def test_every_algorithm_is_among_those_whose_rates_are_known() -> None:
    assert {type(config) for config, _ in RATES} == set(ALGORITHMS.values())


def test_defaults_are_the_papers() -> None:
    config = bcq.BCQConfig()
    assert (config.discount, config.target_rate, config.batch_size) == (0.99, 0.005, 100)
    assert (config.num_samples, config.num_acting_samples, config.min_weight) == (10, 10, 0.75)
    assert (config.learning_rate, config.latent_clip, config.vae_l2) == (1e-3, 0.5, 0.0)
    assert (config.max_perturbation, config.hidden_sizes) == (0.05, (400, 300))
    assert config.vae_hidden_sizes == (750, 750)
    learner = jax.eval_shape(lambda: config.create(11, 3, jax.random.key(0)))
    assert learner.vae.model.latent_size == 6
    assert asdict(bcq.Schedule()) == {
        "steps": 1_000_000,
        "seed": 0,
        "env": None,
        "evaluate_every": 5_000,
        "evaluate_episodes": 10,
        "checkpoint_every": 5_000,
        "keep": 1,
        "true_value_every": None,
        "concurrent": False,
    }


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"steps": 0}, "steps: 0 is not at least 1"),
        ({"evaluate_episodes": 0}, "evaluate_episodes: 0 is not at least 1"),
        ({"evaluate_every": 0}, "evaluate_every: 0 is not at least 1"),
        ({"evaluate_every": 150}, "evaluate_every: 150 is not a positive multiple of 100"),
        ({"checkpoint_every": 0}, "checkpoint_every: 0 is not at least 1"),
        ({"checkpoint_every": 99}, "checkpoint_every: 99 is not a positive multiple of 100"),
        ({"true_value_every": 0}, "true_value_every: 0 is not a positive multiple of 100"),
        ({"true_value_every": -100}, "true_value_every: -100 is not a positive multiple of 100"),
        ({"seed": 2**31}, "seed: 2147483648 is not between"),
        ({"keep": 0}, "keep: 0 is not at least 1"),
    ],
)
def test_impossible_schedules_are_refused_by_name(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(bcq.InputError, match=words):
        bcq.Schedule(env="Pendulum-v1", **wrong)


def test_training_is_with_seed_zero_unless_told() -> None:
    unsaid, zero = (last(SMALL["bc"], 3, **seed)[1] for seed in ({}, {"seed": 0}))
    assert unsaid == zero


def test_hands_over_at_whole_hundreds_and_at_the_end() -> None:
    dataset, config = make_dataset(), SMALL["bcq"]
    assert [step for step, _, _ in train(config, dataset, steps=250)] == [100, 200, 250]
    start = (150, create(config, dataset, seed=0))
    assert [step for step, _, _ in train(config, dataset, steps=400, start=start)] == [
        200,
        300,
        400,
    ]


def test_sampling_is_uniform_with_replacement_and_keeps_rows_together() -> None:
    rows = 20
    index = jnp.arange(rows)
    batch = Minibatch(
        observations=index[:, None].astype(float),
        actions=index[:, None] + 100.0,
        rewards=index + 200.0,
        next_observations=index[:, None] + 300.0,
        terminated=index % 2 == 1,
    )
    drawn = sample(batch, None, rows, 40_000, jax.random.key(0))
    picked = np.asarray(drawn.observations[:, 0]).astype(int)
    assert (drawn.actions[:, 0] == picked + 100).all()
    assert (drawn.rewards == picked + 200).all()
    assert (drawn.next_observations[:, 0] == picked + 300).all()
    assert (drawn.terminated == (picked % 2 == 1)).all()
    counts = np.bincount(picked, minlength=rows)
    spread = np.sqrt(40_000 * (1 / rows) * (1 - 1 / rows))
    assert (np.abs(counts - 40_000 / rows) < 5 * spread).all()


def test_each_update_draws_its_own_minibatch_and_noise() -> None:
    config, dataset = SMALL["bcq"], make_dataset()
    start = create(config, dataset, seed=0)
    at_zero, at_one = (
        next(train(config, dataset, steps=step + 1, start=(step, start))).metrics for step in (0, 1)
    )
    assert at_zero["reconstruction"] != at_one["reconstruction"]
    assert at_zero["target_mean"] != at_one["target_mean"]


def test_only_terminals_end_the_bootstrap() -> None:
    dataset = make_dataset()
    cut = replace(dataset, truncated=~dataset.terminated)
    assert (on_device(cut).terminated == dataset.terminated).all()


def test_the_batch_is_put_on_the_device_once_and_for_all() -> None:
    dataset = make_dataset()
    batch = on_device(dataset)
    assert batch.next_permitted is None
    assert all(isinstance(column, jax.Array) for column in batch[:-1])
    np.testing.assert_array_equal(batch.observations, dataset.observations)
    np.testing.assert_array_equal(batch.rewards, dataset.rewards)
    np.testing.assert_array_equal(batch.next_observations, dataset.next_observations)


def test_learner_sees_actions_between_minus_one_and_one() -> None:
    actions = on_device(make_dataset()).actions
    assert (jnp.abs(actions) <= 1).all()
    assert (jnp.abs(actions).max(axis=0) > 0.9).all()


def test_metrics_are_means_over_the_updates_since_the_last() -> None:
    config, dataset = SMALL["bcq"], make_dataset()
    whole = next(train(config, dataset, steps=3)).metrics
    singles, start = [], (0, create(config, dataset, seed=0))
    for step in range(3):
        progress = next(train(config, dataset, steps=step + 1, start=start))
        singles.append(progress.metrics)
        start = (progress.step, progress.learner)
    for name, value in whole.items():
        assert value == pytest.approx(np.mean([single[name] for single in singles]), rel=1e-5)


def test_value_estimate_is_the_mean_first_critic(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "ESTIMATE_EVERY", 200)
    dataset = make_dataset()
    metrics = {p.step: p for p in train(SMALL["bcq"], dataset, steps=300, seed=3)}
    assert [step for step, p in metrics.items() if "value_estimate" in p.metrics] == [200]
    learner: Any = metrics[200].learner
    key = jax.random.fold_in(Keys.of(3).estimates, 200)
    rows = sample(on_device(dataset), None, len(dataset), 100, key)
    first = learner.critics.model.members[0](rows.observations, rows.actions)
    expected = metrics[200].metrics["value_estimate"]
    assert first.shape == (100, 1)
    assert float(first.mean()) == pytest.approx(expected, rel=1e-5)
    assert (
        float(value_estimate(learner, on_device(dataset), None, jnp.array(len(dataset)), key))
        == expected
    )
