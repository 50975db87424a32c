"""Batches of tasks whose actions are choices: the agent, the recipes, the experts."""

import importlib.util
import json
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bcq
from bcq.algorithms import DDPGConfig, DiscreteDQN, DiscreteDQNConfig
from bcq.cli.application import main
from bcq.collection import agents, behaviour, experts
from bcq.collection.agents import NetworkAlone, config_for
from bcq.collection.behaviour import Agent, behaviour_dataset, episode, train_behaviour
from bcq.collection.buffer import StoredRows, as_rows, empty_on_device, row_type
from bcq.collection.experts import Expert, bundled, describe, find, read_expert, train_experts
from bcq.collection.recipes import (
    collect,
    collect_behaviour_to,
    imitation,
    imperfect,
    random_batch,
)
from bcq.data.bounds import Choices
from bcq.data.dataset import Dataset
from bcq.runs.directory import Run
from bcq.runs.schedules import BehaviourSchedule
from bcq.simulation.environments import (
    SimulatorState,
    make,
    set_simulator_state,
    task_of,
)
from bcq.system.errors import InputError
from bcq.system.seeds import Role, derive
from bcq.training.loop import Keys, create_compiled
from bcq.training.policy import Policy

CARTPOLE, ACROBOT = "CartPole-v1", "Acrobot-v1"
SMALL = DiscreteDQNConfig(hidden_sizes=(8, 8), batch_size=16)
SCHEDULE = BehaviourSchedule(
    env=CARTPOLE,
    steps=200,
    seed=3,
    noise=0.3,
    random_steps=60,
    evaluate_every=70,
    evaluate_episodes=1,
    keep="all",
)


def contents(directory: Path) -> dict[str, bytes]:
    """Every file of a run, but for the wall-clock figures and the settings, compared elsewhere."""
    left_out = ("timing.jsonl", "config.json")
    return {one.name: one.read_bytes() for one in directory.iterdir() if one.name not in left_out}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """An agent that is never interrupted."""
    return train_behaviour(tmp_path_factory.mktemp("agent") / "run", SMALL, SCHEDULE)


@pytest.fixture(scope="module")
def batch(run: Run) -> Dataset:
    return behaviour_dataset(run, "final-buffer")


def within(counts: np.ndarray, expected: np.ndarray) -> bool:
    """Whether counts are those of a multinomial; one in ten thousand is refused wrongly."""
    return bool((((counts - expected) ** 2) / expected).sum() < 22)


def counts(actions: np.ndarray, choices: int = 3) -> np.ndarray:
    return np.bincount(actions.astype(int).ravel(), minlength=choices)


# The agent


@pytest.mark.parametrize(
    ("environment", "config"),
    [
        (CARTPOLE, DiscreteDQNConfig()),
        (ACROBOT, DiscreteDQNConfig()),
        ("Pendulum-v1", DDPGConfig()),
    ],
)
def test_the_kind_of_actions_picks_the_agent(environment: str, config: Any) -> None:
    assert config_for(environment) == config


@cache
def learner_of(environment: str) -> DiscreteDQN:
    task = task_of(make(environment))
    sizes = (task.observation_size, task.action_size)
    learner = create_compiled(SMALL, *sizes, Keys.of(8).creation)  # one that takes both choices
    assert isinstance(learner, DiscreteDQN)
    return learner


@cache
def stubborn() -> DiscreteDQN:
    """Prefers choice 1 everywhere."""
    still = jax.tree.map(jnp.zeros_like, learner_of(ACROBOT))
    biases = jnp.array([0.0, 1.0, 0.0])
    return eqx.tree_at(lambda each: each.network.model.layers[-1].bias, still, biases)


def explored(learner: DiscreteDQN, schedule: BehaviourSchedule) -> StoredRows:
    """Episodes without any learning in between."""
    environment = make(schedule.env)
    environment.reset(seed=0)
    agent = Agent(learner, empty_on_device(task_of(environment), 1))
    parts = []
    while agent.steps < schedule.steps:
        parts.append(as_rows(episode(environment, agent, schedule), row_type(environment)))
        agent.steps += len(parts[-1])
        agent.episodes += 1
    return np.concatenate(parts)


@pytest.mark.parametrize("noise", [0.0, 0.5, 1.0])
def test_noise_is_the_probability_of_a_random_choice(noise: float) -> None:
    schedule = replace(SCHEDULE, env=ACROBOT, steps=900, noise=noise, random_steps=0)
    found = counts(explored(stubborn(), schedule)["actions"])
    expected = 900 * (noise / 3 + (1 - noise) * np.array([0, 1, 0]))
    assert within(found, expected) if noise else found.tolist() == [0, 900, 0]


def test_the_first_choices_are_uniform_and_then_the_networks() -> None:
    schedule = replace(SCHEDULE, env=ACROBOT, steps=1_000, noise=0.0, random_steps=700)
    actions = explored(stubborn(), schedule)["actions"]
    assert within(counts(actions[:700]), np.full(3, 700 / 3))
    assert (actions[700:] == 1).all()


def test_without_noise_choices_are_those_of_the_highest_value() -> None:
    learner = learner_of(CARTPOLE)
    rows = explored(learner, replace(SCHEDULE, steps=100, noise=0.0, random_steps=0))
    policy = Policy(learner, task_of(make(CARTPOLE)))
    assert policy.act(rows["observations"]).tolist() == rows["actions"].tolist()
    assert len(np.unique(rows["actions"])) == 2


def test_training_is_one_update_a_row_after_each_episode(run: Run, batch: Dataset) -> None:
    checkpoint = run.load()
    assert checkpoint is not None
    seed = derive(SCHEDULE.seed, Role.AGENT)
    steps = checkpoint[0]
    assert SCHEDULE.steps - 60 < steps < SCHEDULE.steps
    *_, last = bcq.train(SMALL, batch, steps=steps, seed=seed, concurrent=True)
    ours, theirs = (jax.tree.leaves(learner) for learner in (checkpoint[1], last.learner))
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("at", [2, 7])  # before and after the first checkpoint
def test_a_run_interrupted_and_resumed_is_a_run_never_interrupted(
    at: int, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learn, calls = behaviour.learn, 0

    def failing(*arguments: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == at:
            raise KeyboardInterrupt
        learn(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(behaviour, "learn", failing)
        with pytest.raises(KeyboardInterrupt):
            train_behaviour(tmp_path, SMALL, SCHEDULE)
    assert (tmp_path / "checkpoint.json").exists() == (at == 7)
    train_behaviour(tmp_path, SMALL, SCHEDULE, resume=True)
    assert contents(tmp_path) == contents(run.directory)


def test_an_agent_of_the_other_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"ddpg: .* 2 choices, not quantities"):
        train_behaviour(tmp_path / "run", DDPGConfig(), SCHEDULE)
    with pytest.raises(InputError, match=r"discrete-dqn: .* quantities, not choices"):
        train_behaviour(tmp_path / "run", SMALL, replace(SCHEDULE, env="Pendulum-v1"))
    assert list(tmp_path.iterdir()) == []


def test_noise_that_is_no_probability_is_refused(tmp_path: Path) -> None:
    words = "noise: 1.5 is above 1; if the actions are choices"
    with pytest.raises(InputError, match=words):
        train_behaviour(tmp_path / "run", SMALL, replace(SCHEDULE, noise=1.5))
    with pytest.raises(InputError, match=words):
        imperfect(somebody(CARTPOLE), noise=1.5)
    assert list(tmp_path.iterdir()) == []


# Batches


def assert_replayed(batch: Dataset, environment: str) -> None:
    """A row is what the simulator does with its choice in its state."""
    made = make(environment, time_limit=False)
    assert batch.qpos is not None
    assert batch.qvel is not None
    for i in range(0, len(batch), 7):
        made.reset(seed=0)
        set_simulator_state(made, SimulatorState(batch.qpos[i], batch.qvel[i]))
        following, reward, terminated, *_ = made.step(batch.actions[i])
        np.testing.assert_allclose(batch.next_observations[i], following, rtol=1e-5, atol=1e-6)
        assert (batch.rewards[i], batch.terminated[i]) == (reward, terminated)


def test_the_batch_of_an_agent(run: Run, batch: Dataset) -> None:
    assert run.config.algorithm_name == "discrete-dqn"
    assert batch.provenance.behaviour == "double DQN learning, noise 0.3"
    assert batch.provenance.recipe == "final-buffer"
    assert isinstance(batch.bounds, Choices)
    assert batch.bounds.names == ("0", "1")
    assert len(batch) == SCHEDULE.steps
    assert batch.actions.dtype == np.float32
    assert sorted(np.unique(batch.actions).tolist()) == [0, 1]
    assert_replayed(batch, CARTPOLE)


def test_the_file_of_an_agent_holds_its_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch: Dataset
) -> None:
    monkeypatch.setattr(agents, "DiscreteDQNConfig", lambda: SMALL)
    path = tmp_path / "batch.hdf5"
    collect_behaviour_to(path, "final-buffer", SCHEDULE)
    stored = bcq.load(path)
    assert isinstance(stored.bounds, Choices)
    for name in ("observations", "actions", "rewards", "qpos"):
        assert getattr(stored, name).tobytes() == getattr(batch, name).tobytes()
    assert stored.provenance == batch.provenance


def somebody(environment: str) -> Expert:
    """Random weights."""
    learner = NetworkAlone(learner_of(environment).network.model)
    return Expert("somebody", environment, Policy(learner, task_of(make(environment))), {})


@pytest.fixture
def obstinate() -> Expert:
    """Always takes choice 1."""
    policy = Policy(NetworkAlone(stubborn().network.model), task_of(make(ACROBOT)))
    return Expert("obstinate", ACROBOT, policy, {})


def test_random_choices_are_uniform_and_can_be_replayed() -> None:
    batch = collect(random_batch(ACROBOT, transitions=600))
    assert isinstance(batch.bounds, Choices)
    assert within(counts(batch.actions), np.full(3, 200))
    assert_replayed(batch, ACROBOT)
    other = collect(random_batch(ACROBOT, transitions=600, seed=1))
    assert (batch.actions != other.actions).mean() > 0.5


def test_demonstrations_for_imitation_are_the_experts_choices() -> None:
    expert = somebody(CARTPOLE)
    batch = collect(imitation(expert, transitions=100))
    assert batch.actions.tolist() == expert.policy.act(batch.observations).tolist()


@pytest.mark.parametrize(
    ("probability", "noise", "random"),
    [(0.3, 0.3, 0.51), (0.3, 0.0, 0.3), (0.0, 0.3, 0.3)],
)
def test_two_kinds_of_noise_make_so_many_choices_random(
    probability: float, noise: float, random: float, obstinate: Expert
) -> None:
    recipe = imperfect(
        obstinate, transitions=900, noise=noise, random_probability=probability, seed=1
    )
    batch = collect(recipe)
    expected = 900 * (random / 3 + (1 - random) * np.array([0, 1, 0]))
    assert within(counts(batch.actions), expected)
    assert batch.provenance.behaviour == (
        f"obstinate, random with probability {probability:g}, otherwise noise {noise:g}"
    )


# Experts


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An agent that was trained, ranked and kept as an expert."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(agents, "DiscreteDQNConfig", lambda: SMALL)
        patch.setattr(experts, "CHOICE_EPISODES", 2)
        patch.setattr(experts, "CARD_EPISODES", 3)
        folder = tmp_path_factory.mktemp("experts")
        (path,) = train_experts(folder, [SCHEDULE], keep=1)
        yield path


def test_an_expert_acts_as_the_checkpoint_it_comes_from(kept: Path, batch: Dataset) -> None:
    expert = read_expert(kept)
    card = expert.card
    run = Run.open(kept.parent.parent / f"{CARTPOLE}-seed{SCHEDULE.seed}")
    expected = run.policy(card["steps"]).act(batch.observations)
    assert expert.policy.act(batch.observations).tolist() == expected.tolist()
    assert expert.policy.task.choices == ("0", "1")
    assert (card["algorithm"], card["hidden_sizes"]) == ("discrete-dqn", [8, 8])
    assert "; discrete-dqn, seed 3, " in describe(expert)
    assert find(str(kept), CARTPOLE).name == expert.name
    permitted = np.zeros((len(batch), 2), bool)
    permitted[:, 1] = True
    assert (expert.policy.act(batch.observations, permitted=permitted) == 1).all()


def test_an_expert_whose_card_is_for_quantities_is_refused(kept: Path, tmp_path: Path) -> None:
    card = json.loads(kept.with_suffix(".json").read_text())
    del card["task"]["action_names"]
    (tmp_path / "expert.json").write_text(json.dumps(card))
    (tmp_path / "expert.safetensors").write_bytes(kept.read_bytes())
    with pytest.raises(InputError, match="belongs to a different learner"):
        read_expert(tmp_path / "expert.safetensors")


@pytest.mark.parametrize("environment", [CARTPOLE, ACROBOT])
def test_a_bundled_expert_earns_what_its_card_says(environment: str) -> None:
    assert len(bundled(environment)) == 1
    expert = find("0", environment)
    result = bcq.evaluate(expert.policy, environment, episodes=10, seed=5)
    mean, std = (expert.card[f"{kind}_return_of_100_fresh_episodes"] for kind in ("mean", "std"))
    assert abs(result.mean - mean) <= 4 * std / np.sqrt(10) + 1
    assert mean > {CARTPOLE: 450, ACROBOT: -95}[environment]


# The command line


def test_demonstrations_of_a_bundled_expert_are_collected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], own_compilation_cache: None
) -> None:
    path = tmp_path / "batch.hdf5"
    main(["collect", "imperfect", f"--env={CARTPOLE}", "--transitions=300", f"--out={path}"])
    assert f"{path}: 300 transitions" in capsys.readouterr().out
    batch = bcq.load(path)
    assert isinstance(batch.bounds, Choices)
    greedy = find("0", CARTPOLE).policy.act(batch.observations)
    differing = (greedy != batch.actions).sum()
    assert within(np.array([differing]), np.array([300 * 0.51 / 2]))


@pytest.mark.skipif(importlib.util.find_spec("Box2D") is not None, reason="Box2D is installed here")
def test_an_environment_that_lacks_a_package_is_refused_in_one_line() -> None:
    with pytest.raises(InputError, match=r"LunarLander-v3: .*gymnasium\[box2d\]") as caught:
        make("LunarLander-v3")
    assert "\n" not in str(caught.value)
