"""NumPy's `.npz`: plain arrays under common names."""

import math
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy

from bcq.data.actions import numbers_of_names
from bcq.data.columns import NUMBERS, Column, Columns, Provenance
from bcq.data.formats.limits import require_plausible
from bcq.data.formats.mapping import USUAL_NAMES, find_columns
from bcq.system.errors import InputError

BOUNDS = ("action_low", "action_high")
NAMES = "action_names"  # of choices


def read(path: Path, names: Mapping[str, Sequence[str]]) -> Columns:
    """Reads the arrays; `names` gives the names of arrays that have no common name."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = {Path(name).stem: name for name in archive.namelist() if is_array(name)}
            chosen = choose_arrays(names, members)
            arrays = {
                ours: read_array(archive, members[name], NUMBERS + "U" * (ours == "actions"))
                for ours, name in chosen.items()
            }
            low, high = (
                read_array(archive, members[name]) if name in members else None for name in BOUNDS
            )
            choices = choices_in(archive, members, arrays)
    except InputError as error:
        raise error.within(path) from error
    except (OSError, zipfile.BadZipFile, zlib.error, ValueError, NotImplementedError) as error:
        raise InputError(f"{path}: cannot be read as npz: {error}") from error
    used = {ours: (name,) for ours, name in chosen.items()}
    return Columns(str(path), arrays, Provenance(), low, high, names=used, choices=choices)


def choices_in(
    archive: zipfile.ZipFile, members: Mapping[str, str], arrays: dict[str, Column]
) -> tuple[str, ...] | None:
    """The names of the choices, if the actions are names or have names; they become numbers."""
    if "actions" in arrays and arrays["actions"].dtype.kind == "U":
        arrays["actions"], names = numbers_of_names(arrays["actions"])
        return names
    if NAMES not in members:
        return None
    return tuple(map(str, read_array(archive, members[NAMES], "U").reshape(-1)))


def is_array(name: str) -> bool:
    """Whether a member is an array at the top level of the archive."""
    return name.endswith(".npy") and "/" not in name and "\\" not in name


def choose_arrays(names: Mapping[str, Sequence[str]], members: Mapping[str, str]) -> dict[str, str]:
    """Our name -> name in the file, for each array that the file has."""
    arrays = {n: patterns for n, patterns in USUAL_NAMES.items() if n not in ("episode", "step")}
    for ours in names:
        if ours not in arrays or len(names[ours]) != 1:
            raise InputError(f"columns: {ours}: give one array for each of {', '.join(arrays)}")
    found = find_columns(names, arrays, list(members))
    if "terminated" not in found and "dones" in members:
        raise InputError(
            "dones: does not show whether an episode terminated or was cut by a time limit; map "
            "terminated to dones if it never marks a time limit, else store two flags",
            option="columns",
        )
    return {ours: columns[0] for ours, columns in found.items()}


def read_array(archive: zipfile.ZipFile, name: str, kinds: str = NUMBERS) -> Column:
    """Reads one array without NumPy's loader; objects are refused."""
    member = archive.getinfo(name)
    with archive.open(member) as file:
        shape, in_columns, kind = read_header(file)
        if kind.kind not in kinds:
            raise InputError(f"{name}: contains {kind}, not numbers; no pickle is opened")
        size = math.prod(shape) * kind.itemsize
        require_plausible(name, size, member.compress_size)
        values = np.frombuffer(file.read(size), kind)
    if values.nbytes != size:
        raise InputError(f"{name}: has fewer numbers than its shape {shape} needs")
    return values.reshape(shape, order="F" if in_columns else "C").copy()


def read_header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Reads the shape, whether the order is Fortran's, and the type."""
    match npy.read_magic(file):
        case (1, 0):
            return npy.read_array_header_1_0(file)
        case (2, 0):
            return npy.read_array_header_2_0(file)
        case version:
            raise InputError(f"version {version} of the NumPy format contains records, not numbers")
