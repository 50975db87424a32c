"""Missing cells of a log: refused, filled from the row before, or left out with their rows."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

import numpy as np

from bcq.data.columns import Column, Columns, Finding, Flags, as_stored_all
from bcq.data.episodes import first_rows, with_flags, without_rows

MissingChoice = Literal["refuse", "fill", "cut"]
FILLED = ("observations", "actions")  # a reward is not known from the row before


def handle_missing(columns: Columns, choice: MissingChoice) -> Columns:
    """Fills cells that are NaN from the same episode, or leaves out their rows, and reports it.

    A cell without a value before it in its episode cannot be filled: its row is left out, and the
    episode is cut there.
    """
    arrays = as_stored_all(columns.arrays)
    numbers = {name: values for name, values in arrays.items() if values.dtype.kind == "f"}
    missing = {name: cells for name, v in numbers.items() if (cells := np.isnan(v)).any()}
    if choice == "refuse" or not missing:
        return columns
    if choice == "fill":
        flags = with_flags(arrays)
        begins = first_rows(flags["terminated"] | flags["truncated"])
        arrays |= {name: filled(arrays[name], begins) for name in FILLED}
    total, touched = sum(int(cells.sum()) for cells in missing.values()), any_in_row(missing)
    bad = any_in_row({name: np.isnan(arrays[name]) for name in missing})
    arrays, kept = without_rows(arrays, bad)
    rows = np.arange(len(bad)) if columns.rows is None else columns.rows
    finding = Finding(
        "missing-cells",
        "rows",
        f"{total} cells of {touched.sum()} rows are missing; {bad.sum()} rows are left out",
        "check that the values before them are good guesses"
        if choice == "fill"
        else "fill them from the row before, if values change slowly",
        "a cell is filled from its own episode; an episode is cut where a row is left out",
        np.sort(rows[touched]),
        "warning",
    )
    return replace(columns, arrays=arrays, rows=rows[kept], findings=(*columns.findings, finding))


def any_in_row(cells: Mapping[str, Flags]) -> Flags:
    """Whether a cell of each row is marked."""
    rows = [marks.reshape(len(marks), -1).any(axis=1) for marks in cells.values()]
    return np.logical_or.reduce(rows)


def filled(values: Column, begins: Column) -> Column:
    """Missing cells replaced by the last value before them, not from before the episode begins."""
    rows = np.arange(len(values))[:, None]
    last = np.maximum.accumulate(np.where(np.isnan(values), -1, rows), axis=0)
    known = last >= begins[:, None]
    return np.where(known, np.take_along_axis(values, np.maximum(last, 0), axis=0), values)
