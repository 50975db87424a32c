"""Equal seeds, independent streams: agent, batch, learner, evaluation and values."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

import bcq
import short_task
from bcq.algorithms import ALGORITHMS
from bcq.algorithms.learning import Algorithm, Metrics, Minibatch
from bcq.collection import behaviour
from bcq.collection.behaviour import behaviour_dataset, train_behaviour
from bcq.collection.experts import Expert
from bcq.collection.recipes import collect, imitation, imperfect, random_batch
from bcq.data.dataset import Dataset
from bcq.runs.arrays import named_arrays
from bcq.runs.directory import Run, returns_by_step
from bcq.runs.recorder import Recorder
from bcq.runs.schedules import BehaviourSchedule
from bcq.runs.value_logs import values_by_step
from bcq.system.seeds import Role, derive, exploration, reset_seed
from bcq.training import loop as training
from short_task import AGENT, NAME, STEPS

SEED = 0


@pytest.fixture(autouse=True, scope="module")
def _surroundings() -> Iterator[None]:
    with short_task.registered():
        yield


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A behavioural agent."""
    schedule = BehaviourSchedule(
        env=NAME, steps=STEPS, seed=SEED, random_steps=30, evaluate_every=STEPS, evaluate_episodes=2
    )
    return train_behaviour(tmp_path_factory.mktemp("agent") / "run", AGENT, schedule)


def batch_of(recipe: str, agent: Run) -> Dataset:
    """A batch with the agent's own seed; in all but the random one the agent had a part."""
    if recipe in ("final-buffer", "concurrent"):
        return behaviour_dataset(agent, recipe)
    if recipe == "random":
        return collect(random_batch(NAME, transitions=150, seed=SEED))
    expert = Expert("agent", NAME, agent.policy(), agent.config.as_json())
    make = {"imitation": imitation, "imperfect": imperfect}[recipe]
    return collect(make(expert, transitions=150, seed=SEED))


def differs(one: Algorithm, other: Algorithm) -> bool:
    """Whether every weight matrix is another."""
    ours, theirs = named_arrays(one), named_arrays(other)
    names = [name for name in ours if "model" in name and "weight" in name]
    assert len(names) == 6  # of actor and critic
    return all((ours[name] != theirs[name]).mean() > 0.9 for name in names)


def first_weights_of_agent() -> Algorithm:
    """What an agent with this seed starts from, by its own streams."""
    keys = training.Keys.of(derive(SEED, Role.AGENT))
    return training.create_compiled(AGENT, 4, 2, keys.creation)


def rows_drawn(keys: training.Keys, step: int) -> list[int]:
    """Rows of a batch of 100,000 that an update draws with these streams."""
    key = jax.random.split(jax.random.fold_in(keys.updates, step))[0]
    return jax.random.randint(key, (100,), 0, 100_000).tolist()


@pytest.mark.parametrize("recipe", ["final-buffer", "concurrent", "imitation", "imperfect"])
def test_a_learner_with_its_agents_seed_has_other_first_weights_and_minibatches(
    recipe: str, agent: Run
) -> None:
    dataset = batch_of(recipe, agent)
    assert differs(training.create(AGENT, dataset, seed=SEED), first_weights_of_agent())
    concurrent = recipe == "concurrent"
    steps = min(100, training.concurrent_updates(dataset)) if concurrent else 100
    *_, offline = bcq.train(AGENT, dataset, steps=steps, seed=SEED, concurrent=concurrent)
    *_, agents = bcq.train(
        AGENT,
        dataset,
        steps=steps,
        seed=SEED,
        concurrent=concurrent,
        start=(0, training.create(AGENT, dataset, seed=derive(SEED, Role.AGENT))),
    )
    assert differs(offline.learner, agents.learner)


def begun(
    module: ModuleType, train: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> tuple[Algorithm, training.Keys]:
    """The learner and the streams that a training makes its first update with."""
    found: list[tuple[Algorithm, training.Keys]] = []

    def stop(
        start: tuple[int, Algorithm], _: Any, windows: Any, keys: Any, **settings: Any
    ) -> None:
        found.append((start[1], keys))
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "updates", stop)
    with pytest.raises(KeyboardInterrupt):
        train()
    return found[0]


@pytest.mark.parametrize(
    "recipe", ["final-buffer", "concurrent", "imitation", "imperfect", "random"]
)
def test_an_agent_and_a_learner_with_its_seed_begin_apart_and_draw_apart(
    recipe: str, agent: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset, concurrent = batch_of(recipe, agent), recipe == "concurrent"
    schedule = bcq.Schedule(steps=100, seed=SEED, concurrent=concurrent)
    learner, ours = begun(
        training,
        lambda: bcq.train_run(tmp_path / "learner", AGENT, schedule, dataset),
        monkeypatch,
    )
    life = BehaviourSchedule(env=NAME, steps=STEPS, seed=SEED)
    first, theirs = begun(
        behaviour, lambda: train_behaviour(tmp_path / "agent", AGENT, life), monkeypatch
    )
    assert differs(learner, first)
    for step in (0, 1, 1_000):
        both = set(rows_drawn(ours, step)) & set(rows_drawn(theirs, step))
        assert len(both) <= 3  # 0.1 expected


def test_an_agent_starts_from_its_own_streams(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Algorithm] = []

    def stop(recorder: Recorder, step: int, learner: Algorithm) -> None:
        started.append(learner)
        raise KeyboardInterrupt

    monkeypatch.setattr(Recorder, "evaluate", stop)
    with pytest.raises(KeyboardInterrupt):
        train_behaviour(tmp_path / "run", AGENT, BehaviourSchedule(env=NAME, steps=STEPS))
    ours, theirs = named_arrays(started[0]), named_arrays(first_weights_of_agent())
    assert all((ours[name] == theirs[name]).all() for name in ours)


def test_episodes_of_agent_batch_and_evaluation_start_differently(
    agent: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts = {}
    for name, dataset in (
        ("agent", behaviour_dataset(agent, "concurrent")),
        ("batch", collect(random_batch(NAME, transitions=150, seed=SEED))),
    ):
        starts[name] = dataset.observations[dataset.episodes[:10, 0]]
    seen: list[Any] = []
    reset = short_task.ShortTask.reset

    def noted(self: short_task.ShortTask, *, seed: int | None = None, options: None = None) -> Any:
        seen.append(reset(self, seed=seed, options=options)[0])
        return seen[-1], {}

    monkeypatch.setattr(short_task.ShortTask, "reset", noted)
    bcq.evaluate(agent.policy(), NAME, episodes=10, seed=SEED)
    starts["evaluation"] = np.array(seen, np.float32)
    together = np.concatenate(list(starts.values()))
    assert len(np.unique(together, axis=0)) == len(together) == 30


def test_roles_make_seeds_of_their_own_that_fit() -> None:
    seeds = [derive(seed, role) for seed in range(200) for role in Role]
    assert len(set(seeds)) == 200 * len(Role)
    assert all(0 <= seed < 2**31 for seed in seeds)
    assert derive(3, Role.AGENT) == derive(3, Role.AGENT)


def test_the_numbers_of_the_roles_stay() -> None:
    """Results would change with them."""
    assert [(role.name, int(role)) for role in Role] == [
        ("AGENT", 1),
        ("BATCH", 2),
        ("EVALUATION", 3),
        ("VALUES", 4),
        ("CHOICE", 5),
        ("JUDGE", 6),
    ]
    made = [derive(0, role) for role in Role]
    assert made == [336614359, 1620722436, 1842996703, 608273276, 1039430863, 1235561164]
    assert [reset_seed(0, 1), reset_seed(5, 7)] == [1982462498, 1262370631]
    assert exploration(5, 7).random() == np.random.default_rng((5, 7, 1)).random()
    assert exploration(5, 7).random() != np.random.default_rng(reset_seed(5, 7)).random()


@dataclass(frozen=True, kw_only=True)
class DiaryConfig:
    """A learner that writes down what it was given, and acts by the keys alone."""

    discount: float = 0.9
    batch_size: int = 8

    def create(self, observation_size: int, action_size: int, key: Array) -> "Diary":
        empty = jnp.zeros((training.ESTIMATE_EVERY, self.batch_size))
        return Diary(jax.random.normal(key), jnp.int32(0), empty, empty[:, 0], self)


class Diary(eqx.Module):
    first_weight: Array
    count: Array
    rewards: Array  # (updates, batch): which rows were drawn
    noise: Array  # (updates,)
    config: DiaryConfig = eqx.field(static=True)

    def update(self, batch: Minibatch, key: Array) -> tuple["Diary", Metrics]:
        rewards = self.rewards.at[self.count].set(batch.rewards)
        noise = self.noise.at[self.count].set(jax.random.normal(key))
        made = Diary(self.first_weight, self.count + 1, rewards, noise, self.config)
        return made, {"drawn": batch.rewards.mean()}

    def act(self, observations: Array, keys: Array) -> Array:
        del observations
        return jax.vmap(lambda key: jax.random.uniform(key, (2,), minval=-1))(keys)

    def value(self, observations: Array, actions: Array) -> Array:
        return observations[:, 0] + actions[:, 0]


@pytest.fixture(scope="module")
def diaries(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Run]:
    """Runs that differ in their seed alone."""
    dataset = collect(random_batch(NAME, transitions=600, seed=SEED))
    dataset = replace(dataset, rewards=np.arange(600, dtype=np.float32))
    schedule = bcq.Schedule(
        steps=training.ESTIMATE_EVERY,
        env=NAME,
        evaluate_every=training.ESTIMATE_EVERY,
        evaluate_episodes=3,
        true_value_every=training.ESTIMATE_EVERY,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(ALGORITHMS, "diary", DiaryConfig)
        return {
            seed: bcq.train_run(
                tmp_path_factory.mktemp("diary") / str(seed),
                DiaryConfig(),
                replace(schedule, seed=seed),
                dataset,
            )
            for seed in (0, 1, 2)
        }


def written(run: Run, what: str) -> Any:
    """An entry of the diary that a run ended with."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(ALGORITHMS, "diary", DiaryConfig)
        return named_arrays(run.policy().learner)[what].tolist()


PARTS: dict[str, Callable[[Run], Any]] = {
    "first weights": lambda run: written(run, "first_weight"),
    "minibatches": lambda run: written(run, "rewards"),
    "noise": lambda run: written(run, "noise"),
    "first evaluation": lambda run: returns_by_step(run)[0],
    "last evaluation": lambda run: returns_by_step(run)[training.ESTIMATE_EVERY],
    "estimates": lambda run: run.read("metrics.jsonl")[-1]["value_estimate"],
    "measured pairs": lambda run: values_by_step(run)[training.ESTIMATE_EVERY].rows.tolist(),
}


@pytest.mark.parametrize("part", PARTS)
def test_every_part_of_a_run_depends_on_its_seed(part: str, diaries: dict[int, Run]) -> None:
    zero, one, two = (PARTS[part](diaries[seed]) for seed in (0, 1, 2))
    assert zero != one != two != zero


def test_a_runs_minibatches_and_noise_are_those_of_its_seed(diaries: dict[int, Run]) -> None:
    creation, updates, _ = jax.random.split(jax.random.key(2), 3)
    rewards, noise = written(diaries[2], "rewards"), written(diaries[2], "noise")
    assert written(diaries[2], "first_weight") == jax.random.normal(creation)
    for step in (0, 1, 100, 2_499):
        to_sample, to_update = jax.random.split(jax.random.fold_in(updates, step))
        assert rewards[step] == jax.random.randint(to_sample, (8,), 0, 600).tolist()
        assert noise[step] == jax.random.normal(to_update)
