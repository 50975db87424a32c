import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy

import bcq
import short_task
from bcq.algorithms import DDPG
from bcq.collection import behaviour
from bcq.collection.behaviour import Agent, behaviour_dataset, episode, train_behaviour
from bcq.collection.buffer import (
    RowFile,
    StoredRows,
    as_rows,
    empty_on_device,
    row_type,
    write_in_place,
)
from bcq.data.bounds import TaskSpec
from bcq.data.columns import Provenance
from bcq.runs.directory import LOGS, Run
from bcq.runs.recorder import Recorder
from bcq.runs.schedules import BehaviourSchedule
from bcq.simulation.environments import Environment, make, task_of
from bcq.system.errors import InputError
from bcq.system.progress import Progress
from bcq.system.seeds import Role, derive, reset_seed
from bcq.training import loop as training
from bcq.training.loop import Keys, create_compiled, update_until
from short_task import AGENT as CONFIG
from short_task import CENTRE, HALF_WIDTH, HIGH, LOW, NAME, STEPS

PAPERS_INTERVAL, ESTIMATE_EVERY = training.ESTIMATE_EVERY, 200  # the runs here are short
SCHEDULE = BehaviourSchedule(
    env=NAME,
    steps=703,
    seed=49,
    noise=0.001,
    random_steps=150,
    evaluate_every=150,
    evaluate_episodes=2,
)
OWN_SEED = derive(SCHEDULE.seed, Role.AGENT)  # a learner that is given it replays the agent


@contextmanager
def surroundings() -> Iterator[None]:
    with short_task.registered(), pytest.MonkeyPatch.context() as patch:
        for module in (behaviour, training):
            patch.setattr(module, "ESTIMATE_EVERY", ESTIMATE_EVERY)
        yield


@pytest.fixture(autouse=True, scope="module")
def _surroundings() -> Iterator[None]:
    with surroundings():
        yield


def contents(directory: Path) -> dict[str, bytes]:
    """Every file of a run, but for the wall-clock figures and the commit: one may be made now."""
    files = {path.name: path.read_bytes() for path in directory.iterdir()}
    if "config.json" in files:
        config = json.loads(files["config.json"]) | {"commit": None}
        files["config.json"] = (json.dumps(config, indent=2) + "\n").encode()
    return {name: content for name, content in files.items() if name != "timing.jsonl"}


def rows_of(run: Run, environment: Environment) -> StoredRows:
    return RowFile(run.directory / "rows.bin", row_type(environment)).read()


def compilations() -> tuple[int, ...]:
    functions: tuple[Any, ...] = (update_until, write_in_place)
    return tuple(function._cache_size() for function in functions)


class Life(NamedTuple):
    run: Run
    rows: StoredRows
    compiled: tuple[int, ...]  # how often, by this run

    @property
    def ends(self) -> list[int]:
        """Rows past the end of each episode that ended."""
        flags = self.rows["terminated"] | self.rows["truncated"]
        return (np.flatnonzero(flags) + 1).tolist()


@pytest.fixture(scope="module")
def environment(_surroundings: None) -> Environment:
    environment = make(NAME)
    environment.reset(seed=0)
    return environment


@pytest.fixture(scope="module")
def task(environment: Environment) -> TaskSpec:
    return task_of(environment)


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory, environment: Environment) -> Life:
    """A run that is never interrupted."""
    before = compilations()
    run = train_behaviour(tmp_path_factory.mktemp("behaviour") / "run", CONFIG, SCHEDULE)
    compiled = tuple(now - then for now, then in zip(compilations(), before, strict=True))
    return Life(run, rows_of(run, environment), compiled)


@pytest.fixture(scope="module")
def replayed(life: Life) -> list[training.Progress]:
    """DDPG on the same rows, by the loop that learns offline: one update a row, in order."""
    dataset = behaviour_dataset(life.run, "concurrent")
    return list(bcq.train(CONFIG, dataset, steps=life.ends[-1], seed=OWN_SEED, concurrent=True))


def replayed_to(life: Life, step: int) -> bcq.Policy:
    dataset = behaviour_dataset(life.run, "concurrent")
    *_, last = bcq.train(CONFIG, dataset, steps=step, seed=OWN_SEED, concurrent=True)
    assert last.step == step
    return bcq.Policy(last.learner, dataset.task)


# The regime


def test_the_defaults_are_the_papers() -> None:
    schedule = BehaviourSchedule(env="Hopper-v5")
    assert asdict(schedule) == {
        "env": "Hopper-v5",
        "steps": 1_000_000,
        "seed": 0,
        "noise": 0.1,
        "random_steps": 1_000,
        "evaluate_every": 5_000,
        "evaluate_episodes": 10,
        "keep": 1,
    }
    assert PAPERS_INTERVAL == 2_500
    assert BehaviourSchedule(env="HalfCheetah-v5").random_steps == 10_000
    assert BehaviourSchedule(env="HalfCheetah-v5", random_steps=7).random_steps == 7
    assert BehaviourSchedule(env="Hopper-v5", random_steps=0).random_steps == 0


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"steps": 0}, "steps: 0 is not at least 1"),
        ({"noise": -0.1}, "noise: -0.1 is not 0 or more"),
        ({"noise": float("nan")}, "noise: nan is not 0 or more"),
        ({"random_steps": -1}, "random_steps: -1 is not 0 or more"),
        ({"evaluate_every": 0}, "evaluate_every: 0 is not at least 1"),
        ({"evaluate_episodes": 0}, "evaluate_episodes: 0 is not at least 1"),
        ({"seed": -1}, "seed: -1 is not between"),
        ({"keep": 0}, "keep: 0 is not at least 1"),
    ],
)
def test_impossible_schedules_are_refused_by_name(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        replace(SCHEDULE, **wrong)


def test_episodes_are_of_both_kinds_and_many_lengths(life: Life) -> None:
    assert life.rows["terminated"].sum() > 10
    assert life.rows["truncated"].sum() > 10
    assert len(set(np.diff(life.ends))) > 5


def test_training_is_one_update_a_row_after_each_episode_from_all_rows_so_far(
    life: Life, replayed: list[training.Progress]
) -> None:
    checkpoint = life.run.load()
    assert checkpoint is not None
    assert checkpoint[0] == replayed[-1].step == life.ends[-1]
    ours, theirs = (jax.tree.leaves(learner) for learner in (checkpoint[1], replayed[-1].learner))
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


def test_there_are_as_many_updates_as_rows_warm_up_included(life: Life) -> None:
    arrays = safetensors.numpy.load(next(life.run.directory.glob("step-*")).read_bytes())
    counts = [int(values) for name, values in arrays.items() if name.endswith("count")]
    assert counts == [life.ends[-1]] * 2  # actor and critic


def test_metrics_come_with_each_episode_and_each_value_estimate(life: Life) -> None:
    rows = life.run.read("metrics.jsonl")
    estimates = list(range(ESTIMATE_EVERY, life.ends[-1] + 1, ESTIMATE_EVERY))
    assert len(estimates) == 3
    assert [row["step"] for row in rows] == sorted({*life.ends, *estimates})
    assert [row["step"] for row in rows if "value_estimate" in row] == estimates
    for row in rows:
        assert row["episode"] == sum(end < row["step"] for end in life.ends)


def test_value_estimates_are_those_of_the_learner_at_the_time(
    life: Life, replayed: list[training.Progress]
) -> None:
    estimates = {p.step: p.metrics.get("value_estimate") for p in replayed}
    for row in life.run.read("metrics.jsonl"):
        if "value_estimate" in row:
            assert row["value_estimate"] == pytest.approx(estimates[row["step"]], rel=1e-4)


def test_metrics_are_means_over_their_updates(
    life: Life, replayed: list[training.Progress]
) -> None:
    def total(rows: list[tuple[int, float]]) -> float:
        starts = [0, *(step for step, _ in rows)]
        return sum((step - start) * mean for start, (step, mean) in zip(starts, rows, strict=False))

    for name in ("critic_loss", "policy_loss", "target_mean"):
        ours = total([(row["step"], row[name]) for row in life.run.read("metrics.jsonl")])
        theirs = total([(p.step, p.metrics[name]) for p in replayed])
        assert ours == pytest.approx(theirs, rel=1e-4)


def test_an_episode_is_played_by_the_agent_as_it_was_at_its_start_with_the_noise_asked_for(
    life: Life,
) -> None:
    residuals = []
    for number in (30, 45, 60):
        start, stop = life.ends[number - 1 : number + 1]
        rows = life.rows[start:stop]
        chosen = replayed_to(life, start).act(rows["observations"])
        assert (np.abs(chosen - CENTRE) < 0.9 * HALF_WIDTH).all()  # no noise is clipped
        residuals += ((rows["actions"] - chosen) / HALF_WIDTH).ravel().tolist()
    assert len(residuals) > 40
    assert np.max(np.abs(residuals)) < 5 * SCHEDULE.noise  # an episode moves the actor by more
    assert np.std(residuals) == pytest.approx(SCHEDULE.noise, rel=0.35)


def test_evaluations_are_at_the_first_end_of_an_episode_past_each_interval(life: Life) -> None:
    expected = [0]
    for multiple in range(150, 701, 150):
        later = [end for end in life.ends if end >= multiple]
        expected += later[:1]
    if life.ends[-1] not in expected:
        expected.append(life.ends[-1])
    assert 450 in expected  # an end that falls on it
    assert any(step % 150 for step in expected)
    steps = [row["step"] for row in life.run.read("episodes.jsonl")]
    assert steps == [step for step in expected for _ in range(2)]


def test_evaluations_are_without_noise(life: Life) -> None:
    step = life.ends[-1]
    result = bcq.evaluate(life.run.policy(), NAME, episodes=2, seed=reset_seed(49, step))
    rows = [row for row in life.run.read("episodes.jsonl") if row["step"] == step]
    assert [row["return"] for row in rows] == result.returns.tolist()
    assert [row["length"] for row in rows] == result.lengths.tolist()


def test_nothing_is_compiled_twice_for_episodes_of_different_lengths(life: Life) -> None:
    assert life.compiled == (1, 1)


def test_each_episode_starts_from_the_seed_and_its_number(
    life: Life, environment: Environment
) -> None:
    starts = [0, *life.ends]
    for number in (0, 1, 2, 40, len(starts) - 1):
        observation, _ = environment.reset(seed=reset_seed(derive(49, Role.AGENT), number))
        first = life.rows["observations"][starts[number]]
        np.testing.assert_array_equal(first, observation.astype(np.float32))
    assert len(np.unique(life.rows["observations"][starts], axis=0)) == len(starts)


def test_the_run_says_what_it_is(life: Life, task: TaskSpec) -> None:
    config = json.loads((life.run.directory / "config.json").read_text())
    assert config["algorithm"] == "ddpg"
    assert config["schedule"] == asdict(SCHEDULE)
    assert config["settings"] == {**asdict(CONFIG), "hidden_sizes": [8, 8]}
    assert config["task"] == task.as_json()
    files = {".lock", "config.json", "checkpoint.json", f"step-{life.ends[-1]}.safetensors"}
    files |= {"rows.bin", "metrics.jsonl", "episodes.jsonl"}
    assert files <= set(contents(life.run.directory)) <= files | set(LOGS)  # some may be empty


def test_timing_has_a_row_an_episode(life: Life) -> None:
    rows = life.run.read("timing.jsonl")
    assert [row["step"] for row in rows] == life.ends
    assert all(row["acting"] > 0 and row["learning"] > 0 for row in rows)


# Exploration


def learner_of(task: TaskSpec) -> DDPG:
    sizes = (task.observation_size, task.action_size)
    learner = create_compiled(CONFIG, *sizes, Keys.of(0).creation)
    assert isinstance(learner, DDPG)
    return learner


def explored(learner: DDPG, environment: Environment, schedule: BehaviourSchedule) -> StoredRows:
    """Episodes without any learning in between."""
    agent = Agent(learner, empty_on_device(task_of(environment), 1))
    parts = []
    while agent.steps < schedule.steps:
        parts.append(as_rows(episode(environment, agent, schedule), row_type(environment)))
        agent.steps += len(parts[-1])
        agent.episodes += 1
    return np.concatenate(parts)


@pytest.fixture(scope="module")
def still(task: TaskSpec) -> DDPG:
    """An actor that answers 0, the centre of the range, so that all else is noise."""
    return jax.tree.map(jnp.zeros_like, learner_of(task))


@pytest.mark.parametrize("random_steps", [0, 1, 100, 107])
def test_actions_are_random_for_so_many_steps_and_then_the_actors(
    random_steps: int, still: DDPG, environment: Environment
) -> None:
    schedule = replace(SCHEDULE, noise=0.0, random_steps=random_steps, steps=150)
    actions = explored(still, environment, schedule)["actions"]
    assert (actions[:random_steps] != CENTRE).all()
    assert (actions[random_steps:] == CENTRE).all()


def test_the_first_actions_are_uniform_within_the_bounds(
    still: DDPG, environment: Environment
) -> None:
    schedule = replace(SCHEDULE, random_steps=2_000, steps=2_000)
    actions = explored(still, environment, schedule)["actions"]
    assert ((actions >= LOW) & (actions <= HIGH)).all()
    for column in ((actions - CENTRE) / HALF_WIDTH).T:
        counts = np.histogram(column, 10, (-1, 1))[0]
        assert np.abs(counts - 200).max() < 5 * np.sqrt(200 * 0.9)
    assert abs(np.corrcoef(actions.T)[0, 1]) < 0.1


def test_noise_is_normal_in_half_widths_of_each_dimension(
    still: DDPG, environment: Environment
) -> None:
    schedule = replace(SCHEDULE, noise=0.2, random_steps=0, steps=2_000)
    actions = explored(still, environment, schedule)["actions"]
    noise = (actions - CENTRE) / HALF_WIDTH
    np.testing.assert_allclose(noise.std(axis=0), 0.2, rtol=0.08)
    np.testing.assert_allclose(noise.mean(axis=0), 0, atol=0.02)
    np.testing.assert_allclose((np.abs(noise) < 0.2).mean(axis=0), 0.683, atol=0.05)
    assert abs(np.mean(noise[:, 0] * noise[:, 1])) < 0.1 * 0.2**2
    assert abs(np.mean(noise[:-1] * noise[1:])) < 0.1 * 0.2**2


@pytest.mark.parametrize("random_steps", [0, 100])
def test_exploration_is_drawn_from_the_agents_seed_and_the_episode(
    random_steps: int, still: DDPG, environment: Environment
) -> None:
    schedule = replace(SCHEDULE, noise=0.2, random_steps=random_steps, steps=60)
    rows = explored(still, environment, schedule)
    stops = np.flatnonzero(rows["terminated"] | rows["truncated"]) + 1
    for number, part in enumerate(np.split(rows["actions"], stops)[:-1]):
        own = np.random.default_rng((OWN_SEED, number, 1))
        drawn = own.uniform(-1, 1, part.shape) if random_steps else own.normal(0, 0.2, part.shape)
        np.testing.assert_allclose((part - CENTRE) / HALF_WIDTH, drawn, atol=1e-5)


def test_actions_are_clipped_to_the_bounds(still: DDPG, environment: Environment) -> None:
    schedule = replace(SCHEDULE, noise=5.0, random_steps=0, steps=400)
    actions = explored(still, environment, schedule)["actions"]
    for bound in (LOW, HIGH):
        assert ((actions == bound).mean(axis=0) > 0.3).all()
    assert ((actions >= LOW) & (actions <= HIGH)).all()


def test_without_noise_actions_are_the_actors(task: TaskSpec, environment: Environment) -> None:
    learner = learner_of(task)
    schedule = replace(SCHEDULE, noise=0.0, random_steps=0, steps=100)
    rows = explored(learner, environment, schedule)
    expected = bcq.Policy(learner, task).act(rows["observations"])
    np.testing.assert_allclose(rows["actions"], expected, rtol=1e-6, atol=1e-6)


def test_random_actions_have_nothing_to_do_with_where_an_episode_starts(
    still: DDPG, environment: Environment
) -> None:
    schedule = replace(SCHEDULE, random_steps=800, steps=800)
    rows = explored(still, environment, schedule)
    firsts = np.append(0, np.flatnonzero(rows["terminated"] | rows["truncated"])[:-1] + 1)
    assert len(firsts) > 50
    start, action = rows["qpos"][firsts, 0], rows["actions"][firsts, 0]
    assert abs(np.corrcoef(start, action)[0, 1]) < 0.5


def test_another_seed_explores_otherwise(still: DDPG, environment: Environment) -> None:
    schedule = replace(SCHEDULE, steps=60)
    one, same, other = (
        explored(still, environment, replace(schedule, seed=seed)) for seed in (4, 4, 5)
    )
    assert one.tobytes() == same.tobytes()
    assert (one["actions"][:20] != other["actions"][:20]).all()
    assert (one["qpos"][0] != other["qpos"][0]).all()


# The rows


def test_every_row_can_be_replayed_from_its_state(life: Life, environment: Environment) -> None:
    simulator: Any = environment.unwrapped
    for row in life.rows:
        simulator.set_state(row["qpos"], row["qvel"])
        np.testing.assert_array_equal(row["observations"], simulator.seen().astype(np.float32))
        following, reward, terminated, *_ = simulator.step(row["actions"])
        np.testing.assert_array_equal(row["next_observations"], following.astype(np.float32))
        assert row["rewards"] == np.float32(reward)
        assert row["terminated"] == terminated


def test_the_rows_as_a_batch(life: Life) -> None:
    dataset = behaviour_dataset(life.run, "concurrent")
    assert dataset.provenance == Provenance(
        NAME, "concurrent", "DDPG learning, noise 0.001", 49, bcq.__version__
    )
    assert len(dataset) == SCHEDULE.steps
    for name in life.rows.dtype.names or ():
        if name != "truncated":
            np.testing.assert_array_equal(getattr(dataset, name), life.rows[name])
    np.testing.assert_array_equal(dataset.bounds.high, HIGH)
    first = behaviour_dataset(life.run, "final-buffer", first=40)
    assert first.observations.tobytes() == dataset.observations[:40].tobytes()


def test_checkpoints_are_kept_environments_closed_and_acting_and_learning_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[short_task.ShortTask] = []

    def create(env: short_task.ShortTask) -> None:
        opened.append(env)

    def close(env: short_task.ShortTask) -> None:
        opened.remove(env)

    monkeypatch.setattr(short_task.ShortTask, "__init__", create)
    monkeypatch.setattr(short_task.ShortTask, "close", close)
    advances: list[int] = []
    advance = Progress.advance

    def advanced(bar: Progress, steps: int) -> None:
        advances.append(steps)
        advance(bar, steps)

    monkeypatch.setattr(Progress, "advance", advanced)
    clock = SimpleNamespace(perf_counter=count().__next__)  # a second between two looks at it
    monkeypatch.setattr(behaviour, "time", clock)
    schedule = replace(SCHEDULE, steps=STEPS, evaluate_every=100, keep="all")
    run = train_behaviour(tmp_path / "run", CONFIG, schedule)
    assert opened == []
    evaluated = sorted({row["step"] for row in run.read("episodes.jsonl")})
    assert len(evaluated) == 4
    assert evaluated[-1] // 100 == evaluated[-2] // 100  # the last is made because the life ends
    assert [one["step"] for one in run.checkpoints()] == evaluated[1:]
    assert np.cumsum(advances).tolist() == [row["step"] for row in run.read("timing.jsonl")]
    assert {(row["acting"], row["learning"]) for row in run.read("timing.jsonl")} == {(1, 1)}


def test_an_unfinished_last_episode_is_kept_and_not_learned_from(life: Life) -> None:
    assert len(life.rows) == SCHEDULE.steps
    assert life.ends[-1] < SCHEDULE.steps
    assert not (life.rows["terminated"] | life.rows["truncated"])[life.ends[-1] :].any()
    assert life.run.checkpoint_step() == life.ends[-1]


# Interrupted


class InterruptionError(Exception):
    pass


@pytest.fixture
def interrupting(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Makes the so-many-th call of a function fail, before or after it has done its work."""

    def interrupt(place: Any, name: str, at: int, *, after: bool = False) -> None:
        original, calls = getattr(place, name), 0

        def failing(*arguments: Any, **options: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == at and not after:
                raise InterruptionError
            result = original(*arguments, **options)
            if calls == at:
                raise InterruptionError
            return result

        monkeypatch.setattr(place, name, failing)

    return interrupt


def tear(directory: Path) -> None:
    """What a kill in the middle of a write leaves."""
    for name, rest in (("rows.bin", b"\1\2\3"), ("metrics.jsonl", b'{"step": 12')):
        with (directory / name).open("ab") as file:
            file.write(rest)
    (directory / ".config.json.1.tmp").write_bytes(b"{")


@pytest.mark.parametrize(
    ("place", "name", "at", "after"),
    [
        (behaviour, "learn", 2, False),  # no checkpoint yet
        (behaviour, "learn", 45, False),  # rows of an episode that is not learned from
        (Recorder, "evaluate", 3, False),
        (Run, "save", 2, False),  # evaluated, not saved
        (Run, "save", 3, True),
    ],
)
def test_a_run_interrupted_and_resumed_is_a_run_never_interrupted(
    place: Any,
    name: str,
    at: int,
    after: bool,
    life: Life,
    interrupting: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    directory = tmp_path / "run"
    interrupting(place, name, at, after=after)
    with pytest.raises(InterruptionError):
        train_behaviour(directory, CONFIG, SCHEDULE)
    tear(directory)
    monkeypatch.undo()
    train_behaviour(directory, CONFIG, SCHEDULE, resume=True)
    assert contents(directory) == contents(life.run.directory)
    steps = [row["step"] for row in Run.open(directory).read("timing.jsonl")]
    assert steps == life.ends


def live(directory: str) -> None:
    """What the process does that is killed."""
    with surroundings():
        train_behaviour(Path(directory), CONFIG, SCHEDULE)


def test_a_run_killed_and_resumed_is_byte_for_byte_a_run_left_alone(
    life: Life, tmp_path: Path
) -> None:
    directory = tmp_path / "run"
    code = "import sys; from test_behaviour import live; live(sys.argv[1])"
    command = [sys.executable, "-c", code, str(directory)]
    here = Path(__file__).parent
    with subprocess.Popen(command, cwd=here, stderr=subprocess.DEVNULL) as process:
        while not (directory / "checkpoint.json").exists():
            assert process.poll() is None
            time.sleep(0.005)
        time.sleep(0.02)
        process.kill()
    assert process.returncode == -signal.SIGKILL
    train_behaviour(directory, CONFIG, SCHEDULE, resume=True)
    assert contents(directory) == contents(life.run.directory)


def test_a_finished_run_resumed_changes_no_byte(life: Life) -> None:
    before = contents(life.run.directory)
    train_behaviour(life.run.directory, CONFIG, SCHEDULE, resume=True)
    assert contents(life.run.directory) == before


def test_a_run_resumed_for_longer_is_a_run_that_long_from_the_start(
    life: Life, environment: Environment, tmp_path: Path
) -> None:
    shorter = replace(SCHEDULE, steps=STEPS)
    first = train_behaviour(tmp_path / "run", CONFIG, shorter)
    rows = rows_of(first, environment)
    assert len(rows) == STEPS
    assert rows.tobytes() == life.rows[:STEPS].tobytes()
    assert STEPS not in life.ends
    run = train_behaviour(tmp_path / "run", CONFIG, SCHEDULE, resume=True)
    ours, theirs = contents(run.directory), contents(life.run.directory)
    assert ours.keys() == theirs.keys()
    for name in ours.keys() - {"episodes.jsonl"}:  # has an evaluation at its first end
        assert ours[name] == theirs[name], name
    evaluations = first.read("episodes.jsonl")
    assert [row for row in life.run.read("episodes.jsonl") if row not in evaluations] == []


def test_a_run_shorter_than_an_episode_is_evaluated_once(tmp_path: Path) -> None:
    schedule = replace(SCHEDULE, steps=2)
    for _ in range(2):
        run = train_behaviour(tmp_path / "run", CONFIG, schedule, resume=True)
        assert (run.directory / "rows.bin").stat().st_size > 0
        assert run.checkpoint_step() == 0
        assert [row["step"] for row in run.read("episodes.jsonl")] == [0, 0]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"noise": 0.5}, "schedule.noise = 0.001, not 0.5"),
        ({"seed": 5}, "schedule.seed = 49, not 5"),
        ({"random_steps": 10}, "schedule.random_steps = 150, not 10"),
        ({"steps": 400}, "is already at update"),
    ],
)
def test_resuming_with_other_settings_is_refused(
    changes: dict[str, Any], words: str, life: Life
) -> None:
    before = contents(life.run.directory)
    with pytest.raises(InputError, match=words):
        train_behaviour(life.run.directory, CONFIG, replace(SCHEDULE, **changes), resume=True)
    assert contents(life.run.directory) == before


def test_a_run_is_not_begun_again_unasked(life: Life) -> None:
    with pytest.raises(InputError, match="already contains a run"):
        train_behaviour(life.run.directory, CONFIG, SCHEDULE)


def test_rows_lost_from_the_disk_are_noticed(life: Life, tmp_path: Path) -> None:
    for name, content in contents(life.run.directory).items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "rows.bin").write_bytes(life.rows[:400].tobytes())
    with pytest.raises(InputError, match=r"rows\.bin: is damaged \(it has 400 rows"):
        train_behaviour(tmp_path, CONFIG, SCHEDULE, resume=True)


def test_an_unknown_environment_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="environment Nowhere-v0: "):
        train_behaviour(tmp_path / "run", CONFIG, replace(SCHEDULE, env="Nowhere-v0"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("evaluate_every", [100, 1])
def test_rows_are_on_the_disk_before_a_checkpoint_that_counts_them_and_at_the_end(
    evaluate_every: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    append, fsync, rename = RowFile.append, os.fsync, Path.replace

    def appended(file: RowFile, rows: StoredRows) -> None:
        events.append("appended")
        append(file, rows)

    def synced(descriptor: int) -> None:
        if Path(f"/proc/self/fd/{descriptor}").readlink().name == "rows.bin":
            events.append("synced")
        fsync(descriptor)

    def renamed(path: Path, target: Path) -> Path:
        if target.name == "checkpoint.json":
            events.append("saved")
        return rename(path, target)

    monkeypatch.setattr(RowFile, "append", appended)
    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "replace", renamed)
    schedule = replace(SCHEDULE, steps=STEPS, evaluate_every=evaluate_every, evaluate_episodes=1)
    train_behaviour(tmp_path / "run", CONFIG, schedule)
    for place in [*(i for i, event in enumerate(events) if event == "saved"), len(events)]:
        last = max(i for i, event in enumerate(events[:place]) if event == "appended")
        assert "synced" in events[last:place]
    assert events.count("saved") >= 2
    within = evaluate_every == 1  # the rows of the last episode, which is not learned from
    assert (events[-2:] == ["appended", "synced"]) == within
