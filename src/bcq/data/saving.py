"""Batches as files: HDF5 or Minari."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from bcq.data.bounds import TaskSpec
from bcq.data.columns import Finding
from bcq.data.dataset import Dataset
from bcq.data.formats import hdf5, minari
from bcq.data.opening import SUFFIXES, TABLES, Options, bounds_for, locate, open_batch
from bcq.system.errors import InputError
from bcq.system.files import make_directory


class Converted(NamedTuple):
    """What was written: its transitions, what the reader found, and the columns it used."""

    transitions: int
    findings: Sequence[Finding]
    names: Mapping[str, Sequence[str]]
    task: TaskSpec


def convert(source: str | Path, target: str | Path, options: Options) -> Converted:
    """Reads a batch and writes it.

    A table is converted to HDF5 in parts, so it can be larger than memory; not if missing cells
    are to be filled or cut out, or if past steps are to be included, and not a log of decisions.
    """
    require_new(target)
    path = locate(source)
    whole = is_minari(target) or options.missing != "refuse" or options.lags > 0 or path.is_dir()
    if path.suffix in TABLES and not whole:
        from bcq.data.formats import tables  # noqa: PLC0415 - pyarrow takes a quarter of a second to import

        with tables.open_log(path, options.columns, options.step_format) as log:
            bounds = bounds_for(options, log.columns({}), log.seen_actions())
            parts = tables.parts(log, bounds, options.environment)
            written, task = hdf5.write_parts(parts, Path(target))
            return Converted(written, log.findings, log.names, task)
    checked = open_batch(source, options)
    origin = checked.columns.provenance
    dataset = Dataset.from_checked(checked)
    named = replace(origin, environment=origin.environment or options.environment)
    save(replace(dataset, provenance=named), target)
    return Converted(len(dataset), checked.columns.findings, checked.columns.names, dataset.task)


def save(dataset: Dataset, path: str | Path) -> None:
    """Writes a batch as HDF5, or as a Minari data set if the path has such a name."""
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
    """The folder that a path stands for."""
    return minari.folder_of(str(path)) if str(path).startswith(minari.PREFIX) else Path(path)


def require_known_suffix(path: Path) -> None:
    """Refuses a file name whose ending is not a known format."""
    if path.suffix not in SUFFIXES:
        raise InputError(
            f"{path}: unknown ending; use one of {', '.join(SUFFIXES)}, or a Minari folder name-v0"
        )


def require_new(path: str | Path) -> None:
    """Refuses a target that cannot be written, before any work is done."""
    place = minari_folder(path)
    if not is_minari(path):
        require_known_suffix(place)
    if place.exists():
        raise InputError(f"{place}: already exists; give another file, or remove it")
    make_directory(place.parent)
