"""Replaying a buffer as it grew (the paper's concurrent task), and what all algorithms share."""

import json
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import Array

import bcq
from bcq.algorithms import ALGORITHMS, DISCRETE
from bcq.algorithms.learning import Algorithm, Metrics, Minibatch
from bcq.cli.application import main
from bcq.data.columns import Columns, Provenance
from bcq.data.dataset import Dataset
from bcq.training.loop import (
    Keys,
    concurrent_updates,
    create,
    growing_windows,
    on_device,
    sample,
    train,
    window_at,
)
from kill_and_resume import differing

# A letter a row: "." goes on, "T" terminates, "C" is cut by a time limit.
LAYOUTS = {
    "one episode": "....T",
    "one row": "T",
    "only single rows": "TCTTC",
    "terminated and cut": "..T.C....T..C",
    "single rows among others": "T..C.TC....T",
    "unfinished": "..T...C...",
    "unfinished single row": "...T.",
}


def dataset_of(layout: str) -> Dataset:
    """A batch with these ends, whose observations are the numbers of its rows."""
    rows = np.arange(len(layout))[:, None]
    ends = np.array(list(layout))
    columns = Columns(
        source=layout,
        arrays={
            "observations": rows,
            "actions": np.cos(rows),
            "rewards": np.sin(rows[:, 0]),
            "next_observations": rows + 1,
            "terminated": ends == "T",
            "truncated": ends == "C",
        },
        provenance=Provenance(),
    )
    return Dataset.from_columns(columns)


def simulated(layout: str) -> list[int]:
    """Every update's window, by logging row after row and training whenever an episode ends."""
    windows: list[int] = []
    length = 0
    for rows, row in enumerate(layout, start=1):
        length += 1
        if row in "TC":
            for _ in range(length):
                windows.append(rows)
            length = 0
    return windows


@dataclass(frozen=True, kw_only=True)
class WatcherConfig:
    """Learns nothing and writes down how often each row came in each of the first updates."""

    rows: int
    watched: int
    discount: ClassVar[None] = None
    batch_size: int = 4_000

    def create(self, observation_size: int, action_size: int, key: Array) -> "Watcher":
        del observation_size, action_size, key
        return Watcher(step=jnp.array(0), seen=jnp.zeros((self.watched, self.rows), int))


class Watcher(eqx.Module):
    step: Array
    seen: Array  # (updates, rows)

    def act(self, observations: Array, keys: Array) -> Array:
        raise NotImplementedError

    def value(self, observations: Array, actions: Array) -> Array:
        return observations[:, 0]

    def update(self, batch: Minibatch, key: Array) -> tuple["Watcher", Metrics]:
        rows = batch.observations[:, 0].astype(int)
        seen = self.seen.at[self.step, rows].add(1, mode="drop")
        return Watcher(step=self.step + 1, seen=seen), {"first": rows[0]}


def watch(layout: str, steps: int, *, concurrent: bool) -> np.ndarray:
    """How often each update of a training saw each row, (updates, rows)."""
    config = WatcherConfig(rows=len(layout), watched=steps)
    *_, progress = train(config, dataset_of(layout), steps=steps, concurrent=concurrent)
    assert isinstance(progress.learner, Watcher)
    assert progress.learner.step == steps
    return np.asarray(progress.learner.seen)


def leaves_of(learner: Algorithm) -> list[bytes]:
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(learner)]


# The window


def test_the_windows_of_an_example_counted_by_hand() -> None:
    dataset = dataset_of("..T.C..")
    windows = growing_windows(dataset, 5)
    assert isinstance(windows, jax.Array)  # on the device once and for all
    assert windows.tolist() == [3, 3, 3, 5, 5]
    assert concurrent_updates(dataset) == 5


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_windows_are_those_of_training_after_each_episode(layout: str) -> None:
    expected = simulated(layout)
    windows = growing_windows(dataset_of(layout), len(expected))
    assert windows.tolist() == expected
    assert [int(window_at(windows, step)) for step in range(len(expected))] == expected


@given(layout=st.text("..TC", min_size=1, max_size=60))
def test_windows_of_any_batch_are_those_of_training_after_each_episode(layout: str) -> None:
    dataset, expected = dataset_of(layout), simulated(layout)
    if expected:
        assert concurrent_updates(dataset) == len(expected)
        assert growing_windows(dataset, len(expected)).tolist() == expected
    else:
        with pytest.raises(bcq.InputError, match="needs complete episodes; this batch has none"):
            concurrent_updates(dataset)


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_updates_sample_every_row_of_their_window_and_no_other(layout: str) -> None:
    expected = simulated(layout)
    seen = watch(layout, len(expected), concurrent=True)
    assert [np.flatnonzero(counts).tolist() for counts in seen] == [
        list(range(window)) for window in expected
    ]
    for counts, window in zip(seen, expected, strict=True):
        chance = 1 / window
        spread = np.sqrt(4_000 * chance * (1 - chance))
        assert (np.abs(counts[:window] - 4_000 * chance) <= 5 * spread).all()


def test_the_window_goes_on_growing_in_the_next_hundreds_of_updates() -> None:
    layout = "." * 59 + "T" + "." * 69 + "C" + "." * 9 + "T" + "." * 89 + "T" + "." * 20
    expected = simulated(layout)
    seen = watch(layout, len(expected), concurrent=True)
    assert len(expected) == 230
    assert [(counts > 0).sum() for counts in seen] == expected
    assert [np.flatnonzero(counts).max() + 1 for counts in seen] == expected


def test_training_is_not_concurrent_unless_told_and_has_all_rows_at_every_update() -> None:
    layout = LAYOUTS["unfinished"]
    config = WatcherConfig(rows=len(layout), watched=120)
    *_, progress = train(config, dataset_of(layout), steps=120)
    assert isinstance(progress.learner, Watcher)
    assert (progress.learner.seen > 0).all()
    assert bcq.Schedule().concurrent is False


def test_a_fixed_batch_needs_no_complete_episode() -> None:
    assert (watch("...", 7, concurrent=False) > 0).all()


def test_values_are_estimated_on_rows_that_the_last_update_could_see() -> None:
    layout = ("." * 99 + "T") * 24 + "." * 98 + "TT" + "." * 199 + "T"  # row 2,499 is an episode
    dataset = dataset_of(layout)
    config = WatcherConfig(rows=len(layout), watched=1, batch_size=1)
    start = (2_350, create(config, dataset, seed=3))
    estimates = {
        progress.step: progress.metrics["value_estimate"]
        for progress in train(config, dataset, steps=2_700, seed=3, concurrent=True, start=start)
        if "value_estimate" in progress.metrics
    }
    assert list(estimates) == [2_500]
    key = jax.random.fold_in(Keys.of(3).estimates, 2_500)
    rows = sample(on_device(dataset), None, 2_500, 100, key).observations[:, 0]
    assert estimates[2_500] == pytest.approx(float(rows.mean()))


# Where it ends


@pytest.mark.parametrize(("layout", "allowed"), [("..T.C..", 5), ("..T.C", 5), ("T.", 1)])
def test_more_updates_than_rows_of_complete_episodes_are_refused(layout: str, allowed: int) -> None:
    dataset, config = dataset_of(layout), WatcherConfig(rows=len(layout), watched=1)
    with pytest.raises(bcq.InputError, match=rf"steps: {allowed + 1} is more than {allowed}; "):
        next(train(config, dataset, steps=allowed + 1, concurrent=True))


CLONING = bcq.BCConfig(batch_size=8, hidden_sizes=(8,))
BUFFER = dataset_of("." * 149 + "T" + "." * 79 + "C" + "." * 40)
SCHEDULE = bcq.Schedule(concurrent=True)


def test_a_batch_without_a_complete_episode_is_refused_before_anything_is_written(
    tmp_path: Path,
) -> None:
    dataset = dataset_of(".....")
    words = "a concurrent run needs complete episodes; this batch has none"
    with pytest.raises(bcq.InputError, match=words):
        next(train(CLONING, dataset, steps=1, concurrent=True))
    with pytest.raises(bcq.InputError, match=words):
        bcq.train_run(tmp_path / "run", CLONING, SCHEDULE, dataset)
    assert list(tmp_path.iterdir()) == []


def test_a_concurrent_run_is_concurrent_training_to_the_last_complete_episode(
    tmp_path: Path,
) -> None:
    run = bcq.train_run(tmp_path / "run", CLONING, SCHEDULE, BUFFER, scaling="none")
    assert run.checkpoint_step() == 230
    assert [row["step"] for row in run.read("metrics.jsonl")] == [100, 200, 230]
    stored = json.loads((tmp_path / "run" / "config.json").read_text())["schedule"]
    assert (stored["steps"], stored["concurrent"]) == (230, True)
    *_, progress = train(CLONING, BUFFER, steps=230, concurrent=True)
    checkpoint = run.load()
    assert checkpoint is not None
    assert leaves_of(checkpoint[1]) == leaves_of(progress.learner)

    shorter = bcq.train_run(tmp_path / "shorter", CLONING, replace(SCHEDULE, steps=120), BUFFER)
    assert shorter.checkpoint_step() == 120


# Stopping and going on


@pytest.mark.parametrize("stop", [1, 100, 149, 150, 151, 229])
def test_concurrent_training_stopped_and_continued_is_training_never_stopped(stop: int) -> None:
    *_, whole = train(CLONING, BUFFER, steps=230, seed=5, concurrent=True)
    *_, first = train(CLONING, BUFFER, steps=stop, seed=5, concurrent=True)
    start = (first.step, first.learner)
    *_, second = train(CLONING, BUFFER, steps=230, seed=5, concurrent=True, start=start)
    assert (first.step, second.step) == (stop, 230)
    assert leaves_of(second.learner) == leaves_of(whole.learner)


def test_a_run_cannot_be_continued_in_the_other_way_of_sampling(tmp_path: Path) -> None:
    bcq.train_run(tmp_path, CLONING, replace(SCHEDULE, steps=100), BUFFER)
    fixed = replace(SCHEDULE, concurrent=False, steps=200)
    with pytest.raises(
        bcq.InputError, match=r"started with schedule\.concurrent = True, not False"
    ):
        bcq.train_run(tmp_path, CLONING, fixed, BUFFER, resume=True)


# Every algorithm, by the command line


@pytest.fixture(scope="module")
def pendulum(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An episode of 200 rows, and 50 of the next."""
    path = tmp_path_factory.mktemp("data") / "pendulum.hdf5"
    bcq.save(bcq.collect_random("Pendulum-v1", transitions=250), path)
    return path


@pytest.fixture(scope="module")
def cart_pole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Balancing, as if every 200 rows were an episode; 50 of the next."""
    path = tmp_path_factory.mktemp("data") / "cart_pole.hdf5"
    batch = bcq.collect_random("CartPole-v1", transitions=250)
    ends = np.arange(250) == 199
    bcq.save(replace(batch, terminated=np.zeros(250, bool), truncated=ends), path)
    return path


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_trains_resumes_and_is_evaluated_by_the_same_commands(
    name: str,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data, env = ("cart_pole", "CartPole-v1") if name in DISCRETE else ("pendulum", "Pendulum-v1")
    monkeypatch.setattr("bcq.runs.origin.use_compilation_cache", lambda: None)
    known = {field.name for field in fields(ALGORITHMS[name])}
    sizes = {"hidden_sizes", "vae_hidden_sizes"} & known
    assert sizes
    tiny = [word for size in sizes for word in (f"--{size.replace('_', '-')}", "8")]
    tiny += ["--members", "2"] if "members" in known else []
    command = ["train", name, "--data", str(request.getfixturevalue(data)), "--env", env]
    command += ["--concurrent", *tiny, "--evaluate-every", "100", "--evaluate-episodes", "1"]
    command += ["--checkpoint-every", "100"]
    whole, resumed = tmp_path / "whole", tmp_path / "resumed"

    main([*command, "--out", str(whole), "--steps", "1000"])
    assert "trained for 200 updates" in capsys.readouterr().out
    run = bcq.Run.open(whole)
    assert run.config.algorithm_name == name
    assert isinstance(run.config.schedule, bcq.Schedule)
    assert run.config.schedule.concurrent is True
    assert run.config.schedule.steps == 200
    rows = run.read("metrics.jsonl")
    assert [row["step"] for row in rows] == [100, 200]
    assert all(len(row) > 1 and np.isfinite(list(row.values())).all() for row in rows)
    assert [row["step"] for row in run.read("episodes.jsonl")] == [0, 100, 200]

    main([*command, "--out", str(resumed), "--steps", "100"])
    assert differing(whole, resumed) != []
    main([*command, "--out", str(resumed), "--steps", "1000", "--resume"])
    assert differing(whole, resumed) == []

    capsys.readouterr()
    main(["evaluate", str(resumed), "--episodes", "1", "--json"])
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    if name in DISCRETE:  # a point for every step
        assert result["lengths"] == result["returns"]
        assert 8 <= result["mean_return"] <= 500
    else:
        assert result["lengths"] == [200]
        assert -2_000 < result["mean_return"] < 0


def test_the_command_line_refuses_a_concurrent_run_without_complete_episodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bcq.runs.origin.use_compilation_cache", lambda: None)
    bcq.save(bcq.collect_random("Pendulum-v1", transitions=50), tmp_path / "cut.hdf5")
    with pytest.raises(SystemExit) as caught:
        main(["train", "bc", "--data", str(tmp_path / "cut.hdf5"), "--concurrent"])
    assert caught.value.code == (
        "bcq: a concurrent run needs complete episodes; this batch has none"
    )
