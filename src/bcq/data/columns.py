"""The content of a file under this project's names, before any check."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bcq.data.layout import PLAIN, Layout

Column = NDArray[Any]  # of any dtype that a file may contain


Floats = NDArray[np.float32]  # the precision of training; `tabular` has its own


Flags = NDArray[np.bool_]


MASKS = ("permitted", "next_permitted")  # which choices there are: one flag for each


MATRICES = ("observations", "actions", "next_observations", "qpos", "qvel", *MASKS)


FLAGS = ("terminated", "truncated")


# What follows a row, and which column of the next row it is.
FOLLOWING = {"next_observations": "observations", "next_permitted": "permitted"}


NUMBERS = "biuf"  # NumPy's kinds: bool, int, unsigned, float


@dataclass(frozen=True)
class Provenance:
    """Origin of a batch, as far as it is known."""

    environment: str | None = None
    recipe: str | None = None
    behaviour: str | None = None
    seed: int | None = None
    version: str | None = None


Severity = Literal["error", "warning", "note"]


@dataclass(frozen=True, eq=False)
class Finding:
    """Something that the user should know about the data. An error makes a batch unusable."""

    kind: str
    field: str
    problem: str
    remedy: str
    why: str = ""
    rows: NDArray[np.int64] | None = None  # all rows concerned, if it is about rows
    severity: Severity = "error"
    option: str | None = None  # the setting that helps, as in `InputError`

    def __str__(self) -> str:
        where = self.field if self.rows is None else f"{self.field}, row {self.rows[0]}"
        return f"{where}: {self.problem}; {self.remedy}"


@dataclass(frozen=True)
class Columns:
    """The content of a file under this project's names, before any check."""

    source: str
    arrays: Mapping[str, Column]
    provenance: Provenance
    action_low: Column | None = None
    action_high: Column | None = None
    rows: NDArray[np.int64] | None = None  # numbers in the file, if not 0, 1, 2, ...
    findings: tuple[Finding, ...] = ()  # problems found while reading
    names: Mapping[str, Sequence[str]] = field(default_factory=dict)  # in the file, by role
    choices: Sequence[str] | None = None  # names of the actions, if they are known to be choices
    layout: Layout = PLAIN  # of observations
    lags: int = 0  # past steps that the observations of the batch are to include

    @property
    def labels(self) -> dict[str, Sequence[str]]:
        """The names of single numbers by role: a text column has one for each category."""
        known = dict(self.names)
        if self.layout.labels:
            known["observations"] = self.layout.labels
        if self.layout.columns and "next_observations" in known:
            known["next_observations"] = self.layout.renamed(known["next_observations"]).labels
        return known

    def in_file(self, finding: Finding) -> Finding:
        """The same finding with its rows numbered as in the file."""
        if self.rows is None or finding.rows is None:
            return finding
        return replace(finding, rows=np.sort(self.rows[finding.rows]))


def as_stored(name: str, values: Column) -> Column:
    """Converts a column to its stored shape and precision; the checks find what is not a number."""
    if name not in MATRICES and values.shape[1:] == (1,):
        values = values[:, 0]
    if name == "actions" and values.ndim == 1:
        values = values[:, None]
    if values.dtype.kind not in NUMBERS or name in (*FLAGS, *MASKS):
        return values
    with np.errstate(over="ignore"):  # found by `not_finite`
        return values.astype(precision(name), copy=False)


def precision(name: str) -> type[np.float32 | np.float64]:
    """float32, or float64 for simulator states, which must be restored exactly."""
    return np.float64 if name in ("qpos", "qvel") else np.float32


def as_stored_all(arrays: Mapping[str, Column]) -> dict[str, Column]:
    """Converts every column to its stored shape and precision."""
    return {name: as_stored(name, values) for name, values in arrays.items()}


def frozen(values: Column) -> Column:
    """The array, contiguous and read-only; it is only copied if it is not contiguous."""
    values = np.ascontiguousarray(values)
    values.flags.writeable = False
    return values
