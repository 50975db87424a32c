"""Reading and writing batches, one file a format."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bcq.dataset import ActionBounds, Dataset
from bcq.environments import registered_bounds
from bcq.errors import InputError
from bcq.files import make_directory
from bcq.formats import hdf5

SUFFIXES = (".hdf5", ".h5")


def load(
    path: str | Path,
    *,
    environment: str | None = None,
    action_low: Sequence[float] | None = None,
    action_high: Sequence[float] | None = None,
) -> Dataset:
    """Reads a batch and checks it.

    Action bounds: those given, else the file's, else the environment's (the one given or the one
    the file names), else [-1, 1] if every action fits.
    """
    path = Path(path)
    if not path.exists():
        raise InputError(f"{path}: no such file")
    if path.is_dir():
        raise InputError(f"{path}: is a folder; name the file inside it")
    if path.suffix not in SUFFIXES:
        raise InputError(f"{path}: unknown kind of file; known are {', '.join(SUFFIXES)}")
    columns = hdf5.read(path)
    if (action_low is None) != (action_high is None):
        raise InputError("--action-low and --action-high go together")
    bounds = None
    if action_low is not None and action_high is not None:
        bounds = ActionBounds(np.array(action_low), np.array(action_high))
    elif columns.action_low is None and columns.action_high is None:
        bounds = registered_bounds(environment or columns.provenance.environment)
    return Dataset.from_columns(columns, bounds)


def save(dataset: Dataset, path: str | Path) -> None:
    """Writes a batch as HDF5."""
    path = Path(path)
    require_known_suffix(path)
    hdf5.write(dataset, path)


def require_known_suffix(path: Path) -> None:
    """Refuses a file name that does not say which format it is."""
    if path.suffix not in SUFFIXES:
        raise InputError(f"{path}: name the file with one of {', '.join(SUFFIXES)}")


def require_new(path: Path) -> None:
    """Refuses, before any work is done, a file that could not be written in the end."""
    require_known_suffix(path)
    if path.exists():
        raise InputError(f"{path}: exists already; name another file, or remove it")
    make_directory(path.parent)
