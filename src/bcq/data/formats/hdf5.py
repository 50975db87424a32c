"""HDF5 in D4RL's layout, with the batch's provenance as attributes of the file."""

import io
import json
import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from h5py import h5d, h5g, h5l, h5o, h5s

from bcq.data.actions import numbers_of_names
from bcq.data.bounds import TaskSpec
from bcq.data.columns import Column, Columns, Provenance
from bcq.data.dataset import Dataset
from bcq.data.formats.limits import require_plausible
from bcq.data.layout import PLAIN, Layout
from bcq.system import interruption
from bcq.system.errors import InputError
from bcq.system.files import replacing

# D4RL's name -> ours
NAMES = {
    "observations": "observations",
    "actions": "actions",
    "rewards": "rewards",
    "next_observations": "next_observations",
    "terminals": "terminated",
    "timeouts": "truncated",
    "infos/qpos": "qpos",
    "infos/qvel": "qvel",
    "infos/permitted": "permitted",
    "infos/next_permitted": "next_permitted",
    "infos/propensities": "propensities",
}
CHUNK_ROWS = 65_536
CHUNK_CACHE = 2**25  # bytes per column: holds a chunk, uncompressed, until it is full
ALIGNMENT = 64  # bytes: JAX uses memory with this alignment directly, and copies other memory


def read(path: Path) -> Columns:
    """Reads the columns of the file as they are."""
    try:
        with h5py.File(path, "r") as file:
            arrays = {
                ours: values
                for name, ours in NAMES.items()
                if (values := read_column(file, name)) is not None
            }
            return Columns(
                source=str(path),
                arrays=arrays,
                provenance=Provenance(
                    environment=read_text(file, "environment"),
                    recipe=read_text(file, "recipe"),
                    behaviour=read_text(file, "behaviour"),
                    seed=None if "seed" not in file.attrs else int(file.attrs["seed"]),
                    version=read_text(file, "version"),
                ),
                action_low=read_bound(file, "action_low"),
                action_high=read_bound(file, "action_high"),
                choices=choices_in(file, arrays),
                layout=read_layout(file),
            )
    except InputError as error:
        raise error.within(path) from error
    except (OSError, RuntimeError, KeyError, ValueError, TypeError, OverflowError) as error:
        raise InputError(f"{path}: cannot be read as HDF5: {error}") from error


def read_column(file: h5py.Group, name: str) -> Column | None:
    """Reads one array of the file, or returns None if it has none; links are refused.

    This uses the low-level interface of h5py: the high-level one takes three times as long for each
    of the many small arrays of a Minari data set.
    """
    interruption.check()
    item = file.id
    for part in name.encode().split(b"/"):
        if not isinstance(item, h5g.GroupID) or not item.links.exists(part):
            return None
        if item.links.get_info(part).type != h5l.TYPE_HARD:
            raise InputError(f"{name}: is a link; store the numbers in the file itself")
        item = h5o.open(item, part)
    if not isinstance(item, h5d.DatasetID):
        raise InputError(f"{name}: is a group; store it as an array of numbers")
    storage = item.get_create_plist()
    if storage.get_external_count() or storage.get_layout() == h5d.VIRTUAL:
        raise InputError(f"{name}: is stored in other files; copy the numbers into this file")
    shape, dtype = item.shape, item.dtype
    if name == "actions" and h5py.check_string_dtype(dtype):
        return np.asarray(h5py.Dataset(item).asstr()[()], str)  # names of choices
    if dtype.kind == "O":
        raise InputError(f"{name}: contains objects, not numbers; store it as float32")
    if not shape:
        raise InputError(f"{name}: is a single value; store one row per transition")
    size = math.prod(shape) * dtype.itemsize
    require_plausible(name, size, item.get_storage_size())
    if size == 0 or dtype.subdtype:
        return np.asarray(h5py.Dataset(item)[()])
    values = aligned(shape, dtype)
    item.read(h5s.ALL, h5s.ALL, values)
    return values


def aligned(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Column:
    """Memory that JAX uses without a copy: a batch may fill most of the memory."""
    size = math.prod(shape) * dtype.itemsize
    memory = np.empty(size + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + size].view(dtype).reshape(shape)


def choices_in(file: h5py.Group, arrays: dict[str, Column]) -> tuple[str, ...] | None:
    """The names of the choices, if the actions are names or have names; they become numbers."""
    if "actions" in arrays and arrays["actions"].dtype.kind == "U":
        arrays["actions"], names = numbers_of_names(arrays["actions"])
        return names
    if "action_names" not in file.attrs:
        return None
    return tuple(str(name) for name in np.atleast_1d(file.attrs["action_names"]))


def read_text(file: h5py.File, name: str) -> str | None:
    """Reads an attribute as text."""
    value = file.attrs.get(name)
    return value.decode() if isinstance(value, bytes) else None if value is None else str(value)


def read_bound(file: h5py.File, name: str) -> Column | None:
    """Reads an action bound, one number per dimension."""
    return None if name not in file.attrs else np.atleast_1d(np.asarray(file.attrs[name], float))


def read_layout(file: h5py.File) -> Layout:
    """Reads what the numbers of an observation are."""
    text = read_text(file, "layout")
    return PLAIN if text is None else Layout.from_json(json.loads(text))


class FileForHDF5(io.FileIO):
    """A file whose writes never fail: HDF5 crashes if a write fails while it closes the file.

    After the first failure, writes stay in memory until HDF5 has closed the file. They are small,
    because the writer calls `raise_failure` after each column.
    """

    def __init__(self, path: Path):
        super().__init__(path, "w+")
        self.failure: BaseException | None = None
        self.kept: list[tuple[int, bytes]] = []  # place and content

    def raise_failure(self) -> None:
        """Raises the error of the first failed write, if there is one."""
        if self.failure is not None:
            raise self.failure

    def write(self, content: Any) -> int:
        """Writes everything, to the disk or, after a failure, to memory."""
        place, written = self.tell(), 0
        try:
            self.raise_failure()
            while written < len(content):
                written += super().write(content[written:])
        except BaseException as failure:  # including an interruption
            self.failure = failure
            self.kept.append((place, bytes(content)))
        return len(content)

    def readinto(self, target: Any) -> int:
        """Reads from the disk and from the writes in memory."""
        place = self.tell()
        there = super().readinto(target) or 0
        for start, content in self.kept:
            first = max(start, place)
            last = min(start + len(content), place + len(target))
            if first < last:
                target[first - place : last - place] = content[first - start : last - start]
                there = max(there, last - place)
        return there

    def truncate(self, size: int | None = None) -> int:
        """Sets the length; a failure is raised later."""
        try:
            return super().truncate(size)
        except OSError as failure:
            self.failure = self.failure or failure
            return self.tell()


@contextmanager
def new_file(path: Path, **options: Any) -> Iterator[tuple[h5py.File, FileForHDF5]]:
    """A new HDF5 file and the file below it, whose failure is raised at the end."""
    with FileForHDF5(path) as disk:
        with h5py.File(disk, "w", **options) as file:
            yield file, disk
        disk.raise_failure()


def write(dataset: Dataset, path: Path) -> None:
    """Writes the batch completely or not at all."""
    write_parts([dataset], path)


def write_parts(parts: Iterable[Dataset], path: Path) -> tuple[int, TaskSpec]:
    """Writes a batch in parts, completely or not at all; returns its length and its task."""
    rows, task = 0, None
    with (
        replacing(path) as temporary,
        new_file(temporary, rdcc_nbytes=CHUNK_CACHE) as (file, disk),
    ):
        for part in parts:
            columns = part.columns()
            for name, ours in NAMES.items():
                if ours in columns.arrays:
                    append(file, name, columns.arrays[ours])
                    disk.raise_failure()
                    interruption.check()
            rows, task = rows + len(part), part.task
            attributes: dict[str, Any] = {
                **{
                    name: value
                    for name, value in vars(part.provenance).items()
                    if value is not None
                },
                **as_attributes(columns),
                **({} if part.layout == PLAIN else {"layout": json.dumps(part.layout.as_json())}),
            }
            file.attrs.update(attributes)
        if task is None:
            raise InputError(f"cannot write {path}: no transition has a next observation")
    return rows, task


def as_attributes(columns: Columns) -> dict[str, Any]:
    """The bounds of the actions, or the names of the choices."""
    if columns.choices is not None:
        return {"action_names": list(columns.choices)}
    return {"action_low": columns.action_low, "action_high": columns.action_high}


def append(file: h5py.File, name: str, values: Column) -> None:
    """Appends rows to a column; creates the column if it does not exist."""
    if name in file:
        file[name].resize(len(file[name]) + len(values), axis=0)
        file[name][-len(values) :] = values
        return
    file.create_dataset(
        name,
        data=values,
        chunks=(min(CHUNK_ROWS, len(values)), *values.shape[1:]),
        maxshape=(None, *values.shape[1:]),
        compression="gzip",
        compression_opts=1,  # higher levels gain 1% on simulator data
        shuffle=True,
    )
