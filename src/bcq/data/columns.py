"""What a file holds, under this project's names, before any judgement."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Column = NDArray[Any]  # of any dtype, as a file may hold it


Floats = NDArray[np.float32]


Flags = NDArray[np.bool_]


MATRICES = ("observations", "actions", "next_observations", "qpos", "qvel")


FLAGS = ("terminated", "truncated")


NUMBERS = "biuf"  # NumPy's kinds: bool, int, unsigned, float


@dataclass(frozen=True)
class Provenance:
    """Where a batch comes from, as far as is known."""

    environment: str | None = None
    recipe: str | None = None
    behaviour: str | None = None
    seed: int | None = None
    version: str | None = None


Severity = Literal["error", "warning", "note"]


@dataclass(frozen=True, eq=False)
class Finding:
    """Something about the data that its user should know. Errors are what no batch may have."""

    kind: str
    field: str
    problem: str
    remedy: str
    why: str = ""
    rows: NDArray[np.int64] | None = None  # all rows concerned, where it is about rows
    severity: Severity = "error"
    option: str | None = None  # the setting that helps, as in `InputError`

    def __str__(self) -> str:
        where = self.field if self.rows is None else f"{self.field}, row {self.rows[0]}"
        return f"{where}: {self.problem}; {self.remedy}"


@dataclass(frozen=True)
class Columns:
    """What a file holds, under this project's names, before any judgement."""

    source: str
    arrays: Mapping[str, Column]
    provenance: Provenance
    action_low: Column | None = None
    action_high: Column | None = None
    rows: NDArray[np.int64] | None = None  # of the file, where they are not 0, 1, 2, ...
    findings: tuple[Finding, ...] = ()  # what reading it brought to light

    def in_file(self, finding: Finding) -> Finding:
        """The same finding with its rows numbered as in the file."""
        if self.rows is None or finding.rows is None:
            return finding
        return replace(finding, rows=np.sort(self.rows[finding.rows]))


def as_stored(name: str, values: Column) -> Column:
    """The shape and precision a column is kept in; what is no number is left for the checks."""
    if name not in MATRICES and values.shape[1:] == (1,):
        values = values[:, 0]
    if values.dtype.kind not in NUMBERS or name in FLAGS:
        return values
    with np.errstate(over="ignore"):  # found by `not_finite`
        return values.astype(precision(name), copy=False)


def precision(name: str) -> type[np.float32 | np.float64]:
    """float32, but for simulator states, which need every bit to be set again."""
    return np.float64 if name in ("qpos", "qvel") else np.float32


def as_stored_all(arrays: Mapping[str, Column]) -> dict[str, Column]:
    """Every column in the shape and precision it is kept in."""
    return {name: as_stored(name, values) for name, values in arrays.items()}


def frozen(values: Column) -> Column:
    """The same numbers, contiguous and read-only, for whoever else holds the array too."""
    values = np.ascontiguousarray(values)
    values.flags.writeable = False
    return values
