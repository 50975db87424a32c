"""Reading and writing batches, one file a format."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from bcq.data.bounds import ActionBounds
from bcq.data.columns import Column, Columns, Finding
from bcq.data.dataset import Dataset
from bcq.data.formats import hdf5, minari, npz
from bcq.system.errors import InputError
from bcq.system.files import make_directory, require_regular

SUFFIXES = (".hdf5", ".h5")
TABLES = (".csv", ".parquet")
READABLE = (*SUFFIXES, ".npz", *TABLES)


def unknown(name: str | None) -> ActionBounds | None:
    """No environment is known."""
    del name
    return None


@dataclass(frozen=True, kw_only=True)
class Hints:
    """What a file may not say of itself; see `bcq.load`."""

    columns: Mapping[str, Sequence[str]] = field(default_factory=dict)
    environment: str | None = None
    action_low: Sequence[float] | None = None
    action_high: Sequence[float] | None = None
    action_margin: float | None = None
    bounds_of: Callable[[str | None], ActionBounds | None] = unknown  # of an environment, by name

    def __post_init__(self) -> None:
        if (self.action_low is None) != (self.action_high is None):
            raise InputError("--action-low and --action-high go together")
        if self.action_low is not None and self.action_margin is not None:
            raise InputError("--action-margin takes the data's bounds; give it, or the bounds")

    def bounds(self) -> ActionBounds | None:
        """Those given."""
        if self.action_low is None or self.action_high is None:
            return None
        return ActionBounds(np.array(self.action_low), np.array(self.action_high))


def read(path: str | Path, hints: Hints) -> Columns:
    """What a file holds, before any judgement."""
    path = existing(path)
    if path.is_dir():
        return minari.read(path)
    if path.suffix in TABLES:
        from bcq.data.formats import tables  # noqa: PLC0415 - pyarrow takes a quarter of a second to import

        return tables.read(path, hints.columns)
    if path.suffix == ".npz":
        return npz.read(path, hints.columns)
    if hints.columns:
        raise InputError(f"{path}: its columns have D4RL's names; --columns is for tables and npz")
    return hdf5.read(path)


def existing(name: str | Path) -> Path:
    """Where the batch is, if it is there and is of a kind that can be read."""
    path = minari.folder_of(str(name)) if str(name).startswith(minari.PREFIX) else Path(name)
    if not path.exists():
        raise InputError(f"{path}: no such file")
    if path.is_dir():
        if not any((path / inner).is_file() for inner in ("metadata.json", "data/metadata.json")):
            raise InputError(
                f"{path}: is a folder, and no Minari data set; name the file inside it"
            )
        return path
    require_regular(path)
    if path.suffix not in READABLE:
        raise InputError(f"{path}: unknown kind of file; known are {', '.join(READABLE)}")
    return path


def as_dataset(columns: Columns, hints: Hints) -> Dataset:
    """What was read, as a batch."""
    return Dataset.from_columns(columns, bounds_for(columns, hints))


def bounds_for(columns: Columns, hints: Hints) -> ActionBounds | None:
    """The bounds that go before the file's own, as `bcq.load` has them."""
    actions = columns.arrays.get("actions", np.empty(0))
    if hints.action_margin is not None and actions.ndim == 2 and actions.size:
        finite = np.where(np.isfinite(actions), actions, np.nan)
        return data_bounds(np.fmin.reduce(finite), np.fmax.reduce(finite), hints)
    if columns.action_low is None and columns.action_high is None:
        return hints.bounds() or hints.bounds_of(
            hints.environment or columns.provenance.environment
        )
    return hints.bounds()


def data_bounds(lowest: Column, highest: Column, hints: Hints) -> ActionBounds | None:
    """The range of the data with the margin asked for, if one was and there are any numbers."""
    if hints.action_margin is None or not np.isfinite([lowest, highest]).all():
        return None
    return ActionBounds.of_data(lowest, highest, hints.action_margin)


def convert(source: str | Path, target: str | Path, hints: Hints) -> tuple[int, Sequence[Finding]]:
    """Reads a batch and writes it anew; says how many rows, and what reading brought to light.

    A table becomes HDF5 in parts, so it may be larger than memory.
    """
    require_new(target)
    path = existing(source)
    if path.suffix in TABLES and not is_minari(target):
        from bcq.data.formats import tables  # noqa: PLC0415 - pyarrow takes a quarter of a second to import

        with tables.opened(path, hints.columns) as log:
            bounds = hints.bounds() or hints.bounds_of(hints.environment)
            if hints.action_margin is not None:
                bounds = data_bounds(*log.action_range(), hints)
            parts = tables.parts(log, bounds, hints.environment)
            return hdf5.write_parts(parts, Path(target)), log.findings
    columns = read(source, hints)
    named = columns.provenance.environment or hints.environment
    columns = replace(columns, provenance=replace(columns.provenance, environment=named))
    dataset = as_dataset(columns, hints)
    save(dataset, target)
    return len(dataset), columns.findings


def save(dataset: Dataset, path: str | Path) -> None:
    """Writes a batch as HDF5, or as a Minari data set where the path is named like one."""
    if is_minari(path):
        folder = minari_folder(path)
        make_directory(folder.parent)
        named = str(path).startswith(minari.PREFIX)
        minari.write(dataset, folder, str(path)[len(minari.PREFIX) :] if named else folder.name)
    else:
        require_known_suffix(Path(path))
        hdf5.write(dataset, Path(path))


def is_minari(path: str | Path) -> bool:
    """Whether a path names a Minari data set: minari:space/name-v0, or a folder name-v0."""
    return str(path).startswith(minari.PREFIX) or bool(minari.NAME.fullmatch(Path(path).name))


def minari_folder(path: str | Path) -> Path:
    """The folder that such a path means."""
    return minari.folder_of(str(path)) if str(path).startswith(minari.PREFIX) else Path(path)


def require_known_suffix(path: Path) -> None:
    """Refuses a file name that does not say which format it is."""
    if path.suffix not in SUFFIXES:
        raise InputError(
            f"{path}: name the file with one of {', '.join(SUFFIXES)}, or a Minari folder name-v0"
        )


def require_new(path: str | Path) -> None:
    """Refuses, before any work is done, a file that could not be written in the end."""
    place = minari_folder(path)
    if not is_minari(path):
        require_known_suffix(place)
    if place.exists():
        raise InputError(f"{place}: exists already; name another file, or remove it")
    make_directory(place.parent)
