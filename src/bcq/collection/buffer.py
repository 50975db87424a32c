"""Transitions while they are collected: append-only on disk, preallocated on the device."""

import os
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from bcq.algorithms.learning import Transitions
from bcq.data.bounds import ActionBounds, TaskSpec
from bcq.data.columns import Columns, Provenance
from bcq.data.dataset import Dataset
from bcq.simulation.environments import Environment, simulator_state, task_of
from bcq.simulation.rollouts import Step
from bcq.system.errors import InputError
from bcq.system.files import require_regular

StoredRows = NDArray[Any]  # a structured array with one field per column of the batch
WRITE_ROWS = 1_000  # rows per write to the device


def row_type(environment: Environment) -> np.dtype[Any]:
    """The type of a transition on disk. The environment must have been reset."""
    task, state = task_of(environment), simulator_state(environment)
    fields: list[tuple[str, Any, tuple[int, ...]]] = [
        ("observations", np.float32, (task.observation_size,)),
        ("actions", np.float32, task.bounds.low.shape),
        ("rewards", np.float32, ()),
        ("next_observations", np.float32, (task.observation_size,)),
        ("terminated", np.bool_, ()),
        ("truncated", np.bool_, ()),
    ]
    if state is not None:
        fields += [
            (name, np.float64, part.shape)
            for name, part in zip(("qpos", "qvel"), state, strict=True)
        ]
    return np.dtype(fields)


def as_rows(steps: Iterable[Step], kind: np.dtype[Any]) -> StoredRows:
    """Steps of one or several episodes as rows, episode after episode."""
    steps = list(steps)
    episodes = np.concatenate([step.episodes for step in steps])
    rows = np.empty(len(episodes), kind)
    states = [state for step in steps for state in step.states]
    for name in kind.names or ():
        rows[name] = (
            np.array([getattr(state, name) for state in states])
            if name in ("qpos", "qvel")
            else np.concatenate([getattr(step, name) for step in steps])
        )
    return rows[np.argsort(episodes, kind="stable")]


class RowFile:
    """A file of rows. Rows appended since the last `sync` may be lost; `cut_back` removes them."""

    def __init__(self, path: Path, kind: np.dtype[Any]):
        require_regular(path)
        self.path = path
        self.kind = kind

    def append(self, rows: StoredRows) -> None:
        """Adds rows."""
        try:
            with self.path.open("ab") as file:
                file.write(rows.tobytes())
        except OSError as error:
            raise InputError(f"cannot write {self.path}: {error.strerror}") from error

    def sync(self) -> None:
        """Writes appended rows to the disk, so that they survive a power failure."""
        with self.path.open("ab") as file:
            os.fsync(file.fileno())

    def cut_back(self, count: int) -> None:
        """Keeps only the first rows."""
        size = count * self.kind.itemsize
        with self.path.open("ab") as file:
            if file.tell() < size:
                raise InputError(
                    f"{self.path}: is damaged (it has {file.tell() // self.kind.itemsize} rows, "
                    f"its checkpoint has {count}); collect it again"
                )
            file.truncate(size)

    def read(self) -> StoredRows:
        """All rows."""
        return np.fromfile(self.path, self.kind)


def as_dataset(
    rows: StoredRows, bounds: ActionBounds, provenance: Provenance, source: str
) -> Dataset:
    """Rows as a batch."""
    arrays = {name: np.ascontiguousarray(rows[name]) for name in rows.dtype.names or ()}
    return Dataset.from_columns(Columns(source, arrays, provenance), bounds)


def empty_on_device(task: TaskSpec, capacity: int) -> Transitions:
    """An empty buffer with room for `capacity` rows, and for the padding of the last write."""
    capacity += WRITE_ROWS
    observations = jnp.empty((capacity, task.observation_size))
    return Transitions(
        observations=observations,
        actions=jnp.asarray(task.bounds.normalise(np.zeros((capacity, *task.bounds.low.shape)))),
        rewards=jnp.empty(capacity),
        next_observations=jnp.empty_like(observations),
        terminated=jnp.empty(capacity, bool),
    )


def write_to_device(
    buffer: Transitions, rows: StoredRows, start: int, bounds: ActionBounds
) -> Transitions:
    """Writes rows into the buffer, starting at row `start`. The old buffer cannot be used again."""
    for first in range(0, len(rows), WRITE_ROWS):
        part = rows[first : first + WRITE_ROWS]
        padded = np.zeros(WRITE_ROWS, rows.dtype)
        padded[: len(part)] = part
        columns = {
            name: padded[name] for name in Transitions._fields if name in (rows.dtype.names or ())
        }
        columns["actions"] = bounds.normalise(padded["actions"])
        new = Transitions(**{name: jnp.asarray(values) for name, values in columns.items()})
        buffer = write_in_place(buffer, new, start + first)
    return buffer


@partial(jax.jit, donate_argnums=0)
def write_in_place(buffer: Transitions, new: Transitions, start: Array | int) -> Transitions:
    """The buffer with new rows, in the memory of the old buffer."""
    return jax.tree.map(
        lambda column, rows: jax.lax.dynamic_update_slice_in_dim(column, rows, start, axis=0),
        buffer,
        new,
    )
