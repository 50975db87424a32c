import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from jax import Array

import bcq
import short_task
from bcq.algorithms.learning import Acting
from bcq.algorithms.networks import Actor
from bcq.collection import agents
from bcq.collection import recipes as collection
from bcq.collection.agents import ActorAlone
from bcq.collection.buffer import RowFile
from bcq.collection.experts import Expert
from bcq.collection.recipes import (
    WAVE,
    Demonstrator,
    Recipe,
    UniformlyRandom,
    collect,
    collect_behaviour_to,
    collect_to,
    imitation,
    imperfect,
    random_batch,
)
from bcq.data.columns import Provenance
from bcq.data.dataset import Dataset
from bcq.runs.schedules import BehaviourSchedule
from bcq.simulation.environments import Environment, make, task_of
from bcq.simulation.rollouts import lockstep
from bcq.system import errors
from bcq.system.errors import InputError
from bcq.system.seeds import Role, derive, reset_seed
from bcq.training import policy as policies
from bcq.training.policy import Policy
from kill_and_resume_collection import Instant, Workshop, differing
from short_task import HALF_WIDTH, HIGH, LIMIT, LOW, NAME

PENDULUM = "Pendulum-v1"
COLUMNS = (
    *("observations", "actions", "rewards", "next_observations"),
    *("terminated", "truncated", "qpos", "qvel"),
)


@pytest.fixture(autouse=True, scope="module")
def _registered() -> Iterator[None]:
    with short_task.registered():
        yield


class Still(eqx.Module):
    """Always answers 0, the centre of the range: whatever else is stored is noise."""

    size: int = eqx.field(static=True)

    def act(self, observations: Array, keys: Array) -> Array:
        del keys
        return jnp.zeros((len(observations), self.size))


@cache
def expert(environment: str, *, still: bool = False) -> Expert:
    """A policy with random weights, or one that does not move."""
    task = task_of(make(environment))
    sizes = (task.observation_size, task.action_size, (8, 8))
    learner: Acting = Still(task.action_size)
    if not still:
        learner = jax.jit(lambda: ActorAlone(Actor(*sizes, jax.random.key(5))))()
    return Expert("somebody", environment, Policy(learner, task), {})


def assert_same(one: Dataset, other: Dataset, rows: int | None = None) -> None:
    for name in COLUMNS:
        ours, theirs = getattr(one, name)[:rows], getattr(other, name)[:rows]
        assert ours.dtype == theirs.dtype, name
        assert ours.tobytes() == theirs.tobytes(), name
    assert one.provenance == other.provenance


def scaled(dataset: Dataset) -> np.ndarray:
    """Actions in half-widths from the centre."""
    low, high = dataset.bounds.low, dataset.bounds.high
    return (dataset.actions - (low + high) / 2) / ((high - low) / 2)


# Recipes


def test_the_recipes_have_the_papers_numbers() -> None:
    assert random_batch(PENDULUM).transitions == 5_000
    assert isinstance(random_batch(PENDULUM).behaviour, UniformlyRandom)
    somebody = expert(PENDULUM)
    assert imitation(somebody).transitions == 1_000_000
    assert imitation(somebody).behaviour == Demonstrator(somebody, 0.0, 0.0)
    assert imperfect(somebody).transitions == 100_000
    assert imperfect(somebody).behaviour == Demonstrator(somebody, 0.3, 0.3)
    assert [recipe(somebody).environment for recipe in (imitation, imperfect)] == [PENDULUM] * 2
    assert imitation(somebody).seed == imperfect(somebody).seed == random_batch(PENDULUM).seed == 0


def test_random_actions_in_memory_are_five_thousand_of_seed_zero_unless_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[Recipe] = []
    monkeypatch.setattr(collection, "collect", asked.append)
    bcq.collect_random(NAME)
    bcq.collect_random(NAME, transitions=7, seed=3)
    assert [(one.name, one.environment) for one in asked] == [("random", NAME)] * 2
    assert [(one.transitions, one.seed) for one in asked] == [(5_000, 0), (7, 3)]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"noise": -0.1}, "noise: -0.1 is not 0 or more"),
        ({"random_probability": 1.1}, "random_probability: 1.1 is not between 0 and 1"),
        ({"transitions": 0}, "transitions: 0 is not at least 1"),
        ({"seed": -1}, "seed: -1 is not between"),
    ],
)
def test_impossible_recipes_are_refused_by_name(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        imperfect(expert(PENDULUM), **wrong)


@pytest.mark.parametrize(
    ("recipe", "name", "behaviour"),
    [
        (lambda: random_batch(NAME, transitions=5, seed=7), "random", "uniform"),
        (
            lambda: imitation(expert(NAME), transitions=5, seed=7),
            "imitation",
            "somebody, random with probability 0, otherwise noise 0",
        ),
        (
            lambda: imperfect(expert(NAME), transitions=5, noise=0.25, seed=7),
            "imperfect",
            "somebody, random with probability 0.3, otherwise noise 0.25",
        ),
    ],
)
def test_a_batch_says_where_it_comes_from(
    recipe: Callable[[], Recipe], name: str, behaviour: str
) -> None:
    batch = collect(recipe())
    assert batch.provenance == Provenance(NAME, name, behaviour, 7, bcq.__version__)
    np.testing.assert_array_equal(batch.bounds.low, LOW)
    np.testing.assert_array_equal(batch.bounds.high, HIGH)


# Behaviour


@pytest.mark.parametrize("environment", [PENDULUM, NAME])
def test_random_actions_are_uniform_within_the_bounds(environment: str) -> None:
    batch = collect(random_batch(environment, transitions=2_000, seed=1))
    assert ((batch.actions >= batch.bounds.low) & (batch.actions <= batch.bounds.high)).all()
    for column in scaled(batch).T:
        counts = np.histogram(column, 10, (-1, 1))[0]
        assert np.abs(counts - 200).max() < 5 * np.sqrt(200 * 0.9)


@pytest.mark.parametrize("environment", [PENDULUM, NAME])
def test_demonstrations_for_imitation_are_the_experts_actions_without_noise(
    environment: str,
) -> None:
    somebody = expert(environment)
    batch = collect(imitation(somebody, transitions=300, seed=2))
    expected = somebody.policy.act(batch.observations)
    np.testing.assert_allclose(batch.actions, expected, rtol=0, atol=1e-6)
    assert len(np.unique(batch.actions[:, 0])) > 100


class Drawing(eqx.Module):
    """Acts by its keys alone, as a policy that samples."""

    def act(self, observations: Array, keys: Array) -> Array:
        del observations
        return jax.vmap(lambda key: jax.random.uniform(key, (2,), minval=-1))(keys)


def test_an_expert_that_samples_draws_by_wave_time_and_episode() -> None:
    task = task_of(make(NAME))
    somebody = Expert("somebody", NAME, Policy(Drawing(), task), {})
    batch = collect(imitation(somebody, transitions=250, seed=2))
    assert len(batch.episodes) > WAVE + 5
    for number, (start, stop) in enumerate(batch.episodes.tolist()):
        wave, row = number // WAVE, number % WAVE
        key = jax.random.key(reset_seed(derive(2, Role.BATCH), WAVE * wave))
        for time in range(min(3, stop - start)):
            own = jax.random.fold_in(jax.random.fold_in(key, time), row)
            drawn = (LOW + HIGH) / 2 + HALF_WIDTH * jax.random.uniform(own, (2,), minval=-1)
            np.testing.assert_allclose(batch.actions[start + time], drawn, atol=1e-5)


def test_demonstrations_compile_once_for_a_wave_and_close_its_environments(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sizes, closed = set(), []
    original = policies.act_in_rows

    def watched(learner: Any, observations: Any, *others: Any) -> Any:
        sizes.add(len(observations))
        return original(learner, observations, *others)

    monkeypatch.setattr("bcq.training.policy.act_in_rows", watched)
    monkeypatch.setattr(short_task.ShortTask, "close", lambda env: closed.append(id(env)))
    collect(imitation(expert(NAME), transitions=200))
    assert sizes == {WAVE}
    assert len(set(closed)) == WAVE


@pytest.mark.parametrize("environment", [PENDULUM, NAME])
def test_noise_is_normal_in_half_widths_of_each_dimension(environment: str) -> None:
    recipe = imperfect(
        expert(environment, still=True), transitions=2_000, noise=0.2, random_probability=0
    )
    noise = scaled(collect(recipe))  # never clipped: the bounds are five standard deviations away
    np.testing.assert_allclose(noise.std(axis=0), 0.2, rtol=0.08)
    np.testing.assert_allclose(noise.mean(axis=0), 0, atol=0.02)
    np.testing.assert_allclose((np.abs(noise) < 0.2).mean(axis=0), 0.683, atol=0.05)
    assert abs(np.mean(noise[:-1] * noise[1:])) < 0.1 * 0.2**2
    if noise.shape[1] == 2:
        assert abs(np.mean(noise[:, 0] * noise[:, 1])) < 0.1 * 0.2**2


@pytest.mark.parametrize("environment", [PENDULUM, NAME])
def test_random_actions_come_with_their_probability_and_uniformly(environment: str) -> None:
    recipe = imperfect(expert(environment, still=True), transitions=2_000, noise=0)
    actions = scaled(collect(recipe))
    random = (actions != 0).all(axis=1)
    assert ((actions == 0).all(axis=1) == ~random).all()  # all dimensions of an action at once
    assert random.mean() == pytest.approx(0.3, abs=5 * np.sqrt(0.3 * 0.7 / 2_000))
    np.testing.assert_allclose(actions[random].std(axis=0), 3**-0.5, rtol=0.08)
    np.testing.assert_allclose(np.abs(actions[random]).max(axis=0), 1, atol=0.02)
    together = random[:-1] & random[1:]  # one has nothing to do with the next
    assert together.mean() == pytest.approx(0.09, abs=0.035)


def test_every_draw_comes_from_the_batchs_seed_and_the_episode() -> None:
    own = derive(4, Role.BATCH)
    random = collect(random_batch(NAME, transitions=60, seed=4))
    noisy = collect(imperfect(expert(NAME, still=True), transitions=60, noise=0.2, seed=4))
    for batch in (random, noisy):
        for episode, (start, stop) in enumerate(batch.episodes[:-1].tolist()):
            generator = np.random.default_rng((own, episode, 1))
            for row in range(start, stop):
                if batch is random or generator.random() < 0.3:
                    expected = generator.uniform(LOW, HIGH)
                else:
                    expected = (LOW + HIGH) / 2 + HALF_WIDTH * generator.normal(0, 0.2, 2)
                np.testing.assert_allclose(batch.actions[row], expected, atol=1e-5)


def test_progress_is_counted_in_transitions_and_no_further(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    advances: list[int] = []
    monkeypatch.setattr(
        "bcq.system.progress.Progress.advance", lambda _, rows: advances.append(rows)
    )
    collect(random_batch(NAME, transitions=97))
    assert advances[:2] == [WAVE, WAVE]
    assert sum(advances) == 97


def test_progress_is_shown_while_a_file_is_collected(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("bcq.system.progress.EVERY", 0.0)
    recipe = random_batch(NAME, transitions=15)
    collect(recipe)
    assert capsys.readouterr().err == ""
    collect_to(tmp_path / "batch.hdf5", recipe)
    lines = [line.split(",")[0] for line in capsys.readouterr().err.splitlines()]
    assert lines[0] == "collecting: 10 of 15 steps"
    assert set(lines[1:]) == {"collecting: 15 of 15 steps"}


def test_everything_that_a_batch_depends_on_is_noted() -> None:
    assert random_batch(NAME, transitions=7, seed=3).settings() == {
        "recipe": "random",
        "environment": NAME,
        "behaviour": "uniform",
        "transitions": 7,
        "seed": 3,
        "version": bcq.__version__,
    }


def test_only_a_collection_that_can_go_on_and_is_not_done_is_interrupted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("bcq.system.interruption.requested", lambda: True)
    assert len(collect(random_batch(NAME, transitions=250))) == 250
    assert len(collect(random_batch(NAME, transitions=20), folder=tmp_path / "short")) == 20
    with pytest.raises(errors.InterruptionError, match="of 250 transitions are kept in"):
        collect(random_batch(NAME, transitions=250), folder=tmp_path / "long")


def test_an_agents_batch_that_could_not_be_saved_is_saved_by_the_same_call(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(agents, "DDPGConfig", lambda: short_task.AGENT)
    schedule = BehaviourSchedule(env=NAME, steps=short_task.STEPS, evaluate_episodes=1, seed=2)
    path = tmp_path / "batch.hdf5"
    with monkeypatch.context() as patch:
        interrupt(patch, collection, "save", 1)
        with pytest.raises(InterruptionError):
            collect_behaviour_to(path, "concurrent", schedule)
    batch = collect_behaviour_to(path, "concurrent", schedule)
    assert_same(bcq.load(path), batch)
    assert (len(batch), batch.provenance.recipe) == (short_task.STEPS, "concurrent")
    assert sorted(item.name for item in tmp_path.iterdir()) == ["batch.behaviour", "batch.hdf5"]


def test_both_kinds_of_noise_come_together_as_the_paper_has_them() -> None:
    recipe = imperfect(expert(PENDULUM, still=True), transitions=4_000)
    actions = scaled(collect(recipe))
    expected = 0.3 / 3 + 0.7 * 0.3**2  # of the uniform part and of the normal
    assert actions.var() == pytest.approx(expected, rel=0.08)
    beyond = (np.abs(actions) > 0.6).mean()  # two standard deviations, or 0.4 of the random ones
    assert beyond == pytest.approx(0.3 * 0.4 + 0.7 * 0.0455, abs=0.025)


def test_noise_is_added_to_what_the_expert_does() -> None:
    somebody = expert(NAME)
    recipe = imperfect(somebody, transitions=500, noise=0.01, random_probability=0)
    batch = collect(recipe)
    noise = (batch.actions - somebody.policy.act(batch.observations)) / HALF_WIDTH
    np.testing.assert_allclose(noise.std(axis=0), 0.01, rtol=0.2)


@pytest.mark.parametrize("environment", [PENDULUM, NAME])
def test_actions_are_clipped_to_the_bounds(environment: str) -> None:
    recipe = imperfect(
        expert(environment, still=True), transitions=400, noise=5, random_probability=0
    )
    batch = collect(recipe)
    for bound in (batch.bounds.low, batch.bounds.high):
        assert ((batch.actions == bound).mean(axis=0) > 0.3).all()
    assert ((batch.actions >= batch.bounds.low) & (batch.actions <= batch.bounds.high)).all()


@pytest.mark.parametrize("behaviour", ["random", "imitation", "imperfect"])
def test_actions_are_stored_as_they_were_executed(
    behaviour: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    executed = []
    step = short_task.ShortTask.step

    def remember(self: short_task.ShortTask, action: np.ndarray) -> Any:
        assert action.dtype == np.float32
        executed.append(action.tobytes())
        return step(self, action)

    monkeypatch.setattr(short_task.ShortTask, "step", remember)
    recipes = {
        "random": lambda: random_batch(NAME, transitions=100),
        "imitation": lambda: imitation(expert(NAME), transitions=100),
        "imperfect": lambda: imperfect(expert(NAME), transitions=100),
    }
    batch = collect(recipes[behaviour]())
    assert batch.actions.dtype == np.float32
    assert {action.tobytes() for action in batch.actions} <= set(executed)


def test_random_actions_have_nothing_to_do_with_where_an_episode_starts() -> None:
    batch = collect(random_batch(NAME, transitions=800))
    firsts = batch.episodes[:, 0]
    assert batch.qpos is not None
    assert len(firsts) > 50
    correlation = np.corrcoef(batch.qpos[firsts, 0], batch.actions[firsts, 0])[0, 1]
    assert abs(correlation) < 0.5


# Rows


def without_warm_start(name: str) -> Environment:
    """MuJoCo's solver otherwise starts from the step before, which is no part of the state."""
    env = make(name)
    simulator: Any = env.unwrapped
    if hasattr(simulator, "model"):
        simulator.model.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_WARMSTART)
    return env


@pytest.mark.parametrize(
    "environment", ["Hopper-v5", "HalfCheetah-v5", "Walker2d-v5", "Reacher-v5", PENDULUM, NAME]
)
def test_a_stored_state_and_action_give_the_stored_next_observation(
    environment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collection, "make", without_warm_start)
    batch = collect(random_batch(environment, transitions=300, seed=4))
    assert batch.qpos is not None
    assert batch.qvel is not None
    env = without_warm_start(environment)
    env.reset(seed=123)
    simulator: Any = env.unwrapped
    for row in np.random.default_rng(0).permutation(300)[:200]:
        if environment == PENDULUM:
            simulator.state = np.array([batch.qpos[row, 0], batch.qvel[row, 0]])
        else:
            simulator.set_state(batch.qpos[row], batch.qvel[row])
        following, reward, terminated, *_ = simulator.step(batch.actions[row])
        np.testing.assert_array_equal(
            batch.next_observations[row], np.asarray(following, np.float32)
        )
        assert batch.terminated[row] == terminated
        assert batch.rewards[row] == pytest.approx(float(reward), rel=1e-5, abs=1e-6)


@pytest.fixture(scope="module")
def short(_registered: None) -> Dataset:
    """Some forty episodes, the last of them unfinished."""
    return collect(random_batch(NAME, transitions=400, seed=6))


def test_each_row_follows_the_one_before_it_within_an_episode(short: Dataset) -> None:
    ends = short.terminated | short.truncated
    within = np.flatnonzero(~ends[:-1])
    np.testing.assert_array_equal(short.next_observations[within], short.observations[within + 1])
    across = np.flatnonzero(ends[:-1])
    changed = (short.next_observations[across] != short.observations[across + 1]).any(axis=1)
    assert changed.all()


def test_terminated_and_truncated_are_what_gymnasium_says(short: Dataset) -> None:
    assert short.qpos is not None
    starts, stops = short.episodes[:-1].T  # the last is unfinished
    fuses = short.qpos[starts, 2]
    assert {LIMIT - 1, LIMIT, LIMIT + 1} <= set(fuses)
    np.testing.assert_array_equal(stops - starts, np.minimum(fuses, LIMIT))
    np.testing.assert_array_equal(short.terminated[stops - 1], fuses <= LIMIT)
    np.testing.assert_array_equal(short.truncated[stops - 1], fuses > LIMIT)
    assert (short.terminated | short.truncated).sum() == len(stops)


def test_an_unfinished_last_episode_is_kept_without_an_end(short: Dataset) -> None:
    assert len(short) == 400
    assert not short.terminated[-1]
    assert not short.truncated[-1]
    assert len(short.episode_returns) == len(short.episodes) - 1


def test_each_episode_starts_from_the_seed_and_its_number(short: Dataset) -> None:
    assert len(short.episodes) > 3 * WAVE
    env = make(NAME)
    for number, start in enumerate(short.episodes[:, 0]):
        observation, _ = env.reset(seed=reset_seed(derive(6, Role.BATCH), number))
        np.testing.assert_array_equal(short.observations[start], observation.astype(np.float32))


@pytest.mark.parametrize("transitions", [1, 11, 12, 95, 96, 97, 250])
def test_a_shorter_batch_is_the_beginning_of_a_longer_one(short: Dataset, transitions: int) -> None:
    shorter = collect(random_batch(NAME, transitions=transitions, seed=6))
    assert len(shorter) == transitions
    assert_same(shorter, short, transitions)


def test_the_same_seed_gives_the_same_batch_and_another_seed_another() -> None:
    one, same, other = (
        collect(imperfect(expert(NAME), transitions=150, seed=seed)) for seed in (3, 3, 4)
    )
    assert_same(one, same)
    assert one.fingerprint == same.fingerprint
    assert (one.actions[:20] != other.actions[:20]).any(axis=1).all()
    assert (one.observations[0] != other.observations[0]).any()


# Interrupted


class InterruptionError(Exception):
    pass


def interrupt(
    monkeypatch: pytest.MonkeyPatch, place: Any, name: str, at: int, *, after: bool = False
) -> None:
    """Makes the so-many-th call of a function fail."""
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


def demonstrations(**changes: Any) -> Recipe:
    return replace(imperfect(expert(NAME), transitions=350, seed=8), **changes)


@pytest.mark.parametrize(
    ("name", "at", "after"),
    [
        ("note_progress", 1, False),  # rows that nothing tells of
        ("note_progress", 2, True),
        ("play", 3, False),
        ("save", 1, False),  # all collected, nothing written
    ],
)
def test_a_collection_interrupted_and_resumed_gives_the_batch_it_would_have_given(
    name: str, at: int, after: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    whole = collect(demonstrations())
    path = tmp_path / "batch.hdf5"
    interrupt(monkeypatch, collection, name, at, after=after)
    with pytest.raises(InterruptionError):
        collect_to(path, demonstrations())
    assert not path.exists()
    with (tmp_path / "batch.hdf5.partial" / "rows.bin").open("ab") as file:
        file.write(b"torn")
    monkeypatch.undo()
    assert_same(collect_to(path, demonstrations()), whole)
    assert_same(bcq.load(path), whole)
    assert list(tmp_path.iterdir()) == [path]


def test_a_resumed_collection_does_not_begin_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "batch.hdf5"
    interrupt(monkeypatch, collection, "play", 3)
    with pytest.raises(InterruptionError):
        collect_to(path, demonstrations())
    monkeypatch.undo()
    firsts = []

    def play(environments: Any, recipe: Recipe, first: int) -> Any:
        firsts.append(first)
        return original(environments, recipe, first)

    original = collection.play
    monkeypatch.setattr(collection, "play", play)
    collect_to(path, demonstrations())
    assert firsts[0] == 2 * WAVE


def test_what_a_kill_left_half_written_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "batch.hdf5"
    folder = tmp_path / "batch.hdf5.partial"
    folder.mkdir()
    (folder / ".progress.json.123.tmp").write_text("{")
    (tmp_path / ".batch.hdf5.123.tmp").write_text("half a file")
    collect_to(path, demonstrations())
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"seed": 9}, "seed = 8, not 9"),
        ({"transitions": 351}, "transitions = 350, not 351"),
        ({"name": "imitation"}, "recipe = imperfect, not imitation"),
        ({"environment": PENDULUM}, f"environment = {NAME}, not {PENDULUM}"),
        ({"behaviour": "noise"}, "otherwise noise 0.3, not somebody, .*otherwise noise 0.4"),
    ],
)
def test_an_unfinished_collection_with_other_settings_is_refused_in_one_line(
    changes: dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "batch.hdf5"
    interrupt(monkeypatch, collection, "play", 2)
    with pytest.raises(InterruptionError):
        collect_to(path, demonstrations())
    monkeypatch.undo()
    before = {item.name: item.read_bytes() for item in (tmp_path / "batch.hdf5.partial").iterdir()}
    if "behaviour" in changes:
        changes = {"behaviour": Demonstrator(expert(NAME), 0.4, 0.3)}
    with pytest.raises(InputError, match=f"unfinished collection with .*{words}") as caught:
        collect_to(path, demonstrations(**changes))
    assert "\n" not in str(caught.value)
    after = {item.name: item.read_bytes() for item in (tmp_path / "batch.hdf5.partial").iterdir()}
    assert after == before


def test_rows_lost_from_the_disk_are_noticed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "batch.hdf5"
    interrupt(monkeypatch, collection, "play", 3)
    with pytest.raises(InterruptionError):
        collect_to(path, demonstrations())
    monkeypatch.undo()
    rows = tmp_path / "batch.hdf5.partial" / "rows.bin"
    rows.write_bytes(rows.read_bytes()[:-1])
    with pytest.raises(InputError, match=r"rows\.bin: is damaged"):
        collect_to(path, demonstrations())


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("batch.hdf5", "batch.hdf5: already exists"),
        ("batch.pkl", "unknown ending; use one of .hdf5, .h5"),
        ("batch.hdf5/inside.hdf5", "cannot create folder"),
    ],
)
def test_a_file_that_cannot_be_written_is_refused_before_any_work(
    place: str, words: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("collect", "train_behaviour"):
        monkeypatch.delattr(collection, name)  # any work would fail
    (tmp_path / "batch.hdf5").write_text("mine")
    schedule = BehaviourSchedule(env=NAME, steps=10)
    with pytest.raises(InputError, match=words):
        collect_to(tmp_path / place, demonstrations())
    with pytest.raises(InputError, match=words):
        collect_behaviour_to(tmp_path / place, "concurrent", schedule)
    assert [path.name for path in tmp_path.iterdir()] == ["batch.hdf5"]
    assert (tmp_path / "batch.hdf5").read_text() == "mine"


def test_a_second_collection_into_the_same_file_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    refusals = []

    def meanwhile(*arguments: Any) -> Any:
        with pytest.raises(InputError, match="another process is writing") as caught:
            collect_to(tmp_path / "batch.hdf5", demonstrations())
        refusals.append(caught.value)
        return lockstep(*arguments)

    monkeypatch.setattr(collection, "lockstep", meanwhile)
    collect_to(tmp_path / "batch.hdf5", demonstrations(transitions=5))
    assert len(refusals) == 1
    assert len(bcq.load(tmp_path / "batch.hdf5")) == 5


def test_collecting_in_memory_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    batch = bcq.collect_random(NAME, transitions=50, seed=6)
    assert_same(batch, collect(random_batch(NAME, transitions=50, seed=6)))
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    workshop = Workshop(tmp_path_factory.mktemp("killed"))
    workshop.prepare("imperfect")
    return workshop


def test_a_killed_collection_resumed_is_byte_for_byte_one_left_alone(workshop: Workshop) -> None:
    stood, different = workshop.killed("imperfect", "killed", [Instant(rows=2_000, seconds=0.05)])
    assert len(stood) == 1
    assert different == []
    assert [path.name for path in (workshop.folder / "killed").iterdir()] == ["batch.hdf5"]


def test_the_comparison_sees_one_byte_more_and_one_file_more(
    workshop: Workshop, tmp_path: Path
) -> None:
    reference = workshop.reference("imperfect")
    copy = shutil.copytree(reference, tmp_path / "copy")
    assert differing(reference, copy) == []
    with (copy / "batch.hdf5").open("ab") as file:
        file.write(b"0")
    (copy / "left").mkdir()
    assert differing(reference, copy) == ["batch.hdf5", "left"]


def test_rows_are_on_the_disk_before_progress_is_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    for owner, name in ((RowFile, "append"), (RowFile, "sync"), (collection, "note_progress")):
        original = getattr(owner, name)

        def noted(*given: Any, name: str = name, original: Any = original) -> Any:
            events.append(name)
            return original(*given)

        monkeypatch.setattr(owner, name, noted)
    collect(random_batch(NAME, transitions=200), folder=tmp_path / "partial")
    waves = len(events) // 3
    assert waves > 1
    assert events == ["append", "sync", "note_progress"] * waves
