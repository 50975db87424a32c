import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import short_task
from bcq.algorithms.learning import Minibatch
from bcq.collection.buffer import (
    WRITE_ROWS,
    RowFile,
    StoredRows,
    as_dataset,
    as_rows,
    empty_on_device,
    row_type,
    write_in_place,
    write_to_device,
)
from bcq.data.bounds import TaskSpec
from bcq.data.columns import Provenance
from bcq.simulation.environments import SimulatorState, make, task_of
from bcq.simulation.rollouts import Step
from bcq.system.errors import InputError

FIELDS = ("observations", "actions", "rewards", "next_observations", "terminated", "truncated")


@pytest.fixture(autouse=True, scope="module")
def _registered() -> Iterator[None]:
    with short_task.registered():
        yield


@pytest.fixture(scope="module")
def kind() -> np.dtype[Any]:
    environment = make(short_task.NAME)
    environment.reset(seed=0)
    return row_type(environment)


@pytest.fixture(scope="module")
def task() -> TaskSpec:
    return task_of(make(short_task.NAME))


def some_rows(count: int, kind: np.dtype[Any], seed: int = 0) -> StoredRows:
    generator = np.random.default_rng(seed)
    rows = np.zeros(count, kind)
    for name in ("observations", "next_observations", "rewards", "qpos", "qvel"):
        rows[name] = generator.normal(size=rows[name].shape)
    rows["actions"] = generator.uniform(short_task.LOW, short_task.HIGH, (count, 2))
    for name in ("terminated", "truncated"):
        rows[name] = generator.random(count) < 0.2
    return rows


# Rows


def test_a_row_holds_a_transition_and_the_state_before_it(kind: np.dtype[Any]) -> None:
    assert kind == np.dtype(
        [
            ("observations", np.float32, (4,)),
            ("actions", np.float32, (2,)),
            ("rewards", np.float32),
            ("next_observations", np.float32, (4,)),
            ("terminated", np.bool_),
            ("truncated", np.bool_),
            ("qpos", np.float64, (3,)),
            ("qvel", np.float64, (1,)),
        ]
    )


def test_a_row_has_no_state_where_the_environment_gives_none() -> None:
    environment = make("MountainCarContinuous-v0")
    environment.reset(seed=0)
    assert row_type(environment).names == FIELDS


def a_step(episodes: list[int], time: int) -> Step:
    """Every number says which episode and time it is of."""
    marks = np.array([10 * episode + time for episode in episodes])
    return Step(
        episodes=np.array(episodes),
        observations=np.stack([marks] * 4, axis=1).astype(np.float32),
        states=[SimulatorState(np.array([mark, 0.1, 0]), np.array([-mark])) for mark in marks],
        actions=np.stack([marks, marks + 0.5], axis=1).astype(np.float32),
        rewards=marks + 0.25,
        next_observations=np.stack([marks + 1] * 4, axis=1).astype(np.float32),
        terminated=marks == 1,
        truncated=marks == 12,
    )


def test_steps_become_rows_episode_after_episode_each_in_time(kind: np.dtype[Any]) -> None:
    steps = [a_step([0, 1, 2], 0), a_step([0, 1, 2], 1), a_step([1, 2], 2), a_step([2], 3)]
    rows = as_rows(iter(steps), kind)
    marks = [0, 1, 10, 11, 12, 20, 21, 22, 23]
    assert rows.dtype == kind
    assert rows["rewards"].tolist() == [mark + 0.25 for mark in marks]
    assert rows["observations"].tolist() == [[mark] * 4 for mark in marks]
    assert rows["next_observations"].tolist() == [[mark + 1] * 4 for mark in marks]
    assert rows["actions"].tolist() == [[mark, mark + 0.5] for mark in marks]
    assert rows["qpos"].tolist() == [[mark, 0.1, 0] for mark in marks]  # all of its 64 bits
    assert rows["qvel"].tolist() == [[-mark] for mark in marks]
    assert np.flatnonzero(rows["terminated"]).tolist() == [1]
    assert np.flatnonzero(rows["truncated"]).tolist() == [4]


def test_rows_of_long_episodes_stay_in_time(kind: np.dtype[Any]) -> None:
    rows = as_rows([a_step([2, 0, 1], time) for time in range(200)], kind)
    marks = [10 * episode + time + 0.25 for episode in range(3) for time in range(200)]
    assert rows["rewards"].tolist() == marks


def test_rows_become_a_batch(kind: np.dtype[Any], task: TaskSpec) -> None:
    rows = some_rows(30, kind)
    provenance = Provenance(short_task.NAME, "test", "nobody", 3, "0")
    dataset = as_dataset(rows, task.bounds, provenance, "here")
    for name in kind.names or ():
        if name != "truncated":
            np.testing.assert_array_equal(getattr(dataset, name), rows[name], err_msg=name)
    np.testing.assert_array_equal(dataset.truncated, rows["truncated"] & ~rows["terminated"])
    assert dataset.bounds is task.bounds
    assert dataset.provenance == provenance


# On disk


def test_appended_rows_are_read_in_order(tmp_path: Path, kind: np.dtype[Any]) -> None:
    rows, log = some_rows(7, kind), RowFile(tmp_path / "rows.bin", kind)
    for part in (rows[:3], rows[3:4], rows[4:]):
        log.append(part)
        log.sync()
    assert log.read().tobytes() == rows.tobytes()
    assert log.read().dtype == kind


def test_syncing_is_of_the_file_itself(
    tmp_path: Path, kind: np.dtype[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(
        os, "fsync", lambda number: synced.append(Path(f"/proc/self/fd/{number}").readlink())
    )
    log = RowFile(tmp_path / "rows.bin", kind)
    log.append(some_rows(2, kind))
    log.sync()
    assert synced == [log.path]


@pytest.mark.parametrize("torn", [0, 1, 40])
def test_cutting_back_keeps_the_first_rows(tmp_path: Path, kind: np.dtype[Any], torn: int) -> None:
    rows, log = some_rows(7, kind), RowFile(tmp_path / "rows.bin", kind)
    log.append(rows)
    with log.path.open("ab") as file:
        file.write(bytes(torn))
    log.cut_back(7)
    assert log.path.stat().st_size == 7 * kind.itemsize
    log.cut_back(5)
    assert log.read().tobytes() == rows[:5].tobytes()
    log.append(rows[5:])
    assert log.read().tobytes() == rows.tobytes()
    log.cut_back(0)
    assert log.path.read_bytes() == b""


def test_nothing_collected_is_nothing_to_cut_back(tmp_path: Path, kind: np.dtype[Any]) -> None:
    log = RowFile(tmp_path / "rows.bin", kind)
    log.cut_back(0)
    assert len(log.read()) == 0


def test_rows_that_are_missing_are_named_and_nothing_is_changed(
    tmp_path: Path, kind: np.dtype[Any]
) -> None:
    log = RowFile(tmp_path / "rows.bin", kind)
    log.append(some_rows(3, kind))
    with log.path.open("ab") as file:
        file.write(b"1")  # not yet a fourth
    before = log.path.read_bytes()
    with pytest.raises(
        InputError, match=r"rows\.bin: is damaged \(it has 3 rows, its checkpoint has 4"
    ):
        log.cut_back(4)
    assert log.path.read_bytes() == before


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path, kind: np.dtype[Any]) -> None:
    log = RowFile(tmp_path / "nowhere" / "rows.bin", kind)
    with pytest.raises(InputError, match=rf"cannot write {log.path}: No such file"):
        log.append(some_rows(1, kind))


def test_a_folder_is_no_file_of_rows(tmp_path: Path, kind: np.dtype[Any]) -> None:
    with pytest.raises(InputError, match="is a folder"):
        RowFile(tmp_path, kind)


# On the device


def compilations(function: Any) -> int:
    return function._cache_size()


@pytest.mark.parametrize(
    "sizes",
    [
        (1, 1, 1),
        (5, WRITE_ROWS - 1, WRITE_ROWS, WRITE_ROWS + 1, 3),
        (2 * WRITE_ROWS + 500, 1, 17),
    ],
)
def test_the_device_holds_what_a_plain_buffer_would(
    sizes: tuple[int, ...], kind: np.dtype[Any], task: TaskSpec
) -> None:
    capacity = sum(sizes)  # the last write ends at its end
    rows = some_rows(capacity, kind)
    names = [name for name in Minibatch._fields if name != "next_permitted"]
    plain = {name: rows[name].copy() for name in names}
    plain["actions"] = (plain["actions"] - short_task.CENTRE) / short_task.HALF_WIDTH
    buffer, start, before = empty_on_device(task, capacity), 0, compilations(write_in_place)
    for size in sizes:
        buffer = write_to_device(buffer, rows[start : start + size], start, task.bounds)
        start += size
        assert buffer.next_permitted is None  # an agent may choose anything everywhere
        for name in names:
            column = getattr(buffer, name)
            np.testing.assert_array_equal(
                np.asarray(column)[:start], plain[name][:start], err_msg=name
            )
            assert column.dtype == (bool if name == "terminated" else jnp.float32)
    assert compilations(write_in_place) - before <= 1  # for every length


def test_an_action_at_a_bound_is_one_on_the_device(kind: np.dtype[Any], task: TaskSpec) -> None:
    rows = some_rows(2, kind)
    rows["actions"] = [short_task.LOW, short_task.HIGH]
    buffer = write_to_device(empty_on_device(task, 2), rows, 0, task.bounds)
    assert np.asarray(buffer.actions)[:2].tolist() == [[-1, -1], [1, 1]]


def test_time_limits_are_no_terminals_on_the_device(kind: np.dtype[Any], task: TaskSpec) -> None:
    rows = some_rows(2, kind)
    rows["terminated"], rows["truncated"] = [False, True], [True, False]
    buffer = write_to_device(empty_on_device(task, 2), rows, 0, task.bounds)
    assert np.asarray(buffer.terminated)[:2].tolist() == [False, True]


def test_writing_no_rows_changes_nothing(kind: np.dtype[Any], task: TaskSpec) -> None:
    rows = some_rows(3, kind)
    buffer = write_to_device(empty_on_device(task, 3), rows, 0, task.bounds)
    again = write_to_device(buffer, rows[:0], 3, task.bounds)
    np.testing.assert_array_equal(np.asarray(again.rewards)[:3], rows["rewards"])
