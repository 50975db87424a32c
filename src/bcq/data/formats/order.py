"""The order of rows by episode and step, and where episodes are cut."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from bcq.data.columns import Finding
from bcq.data.formats.arrow import can_be_number, record_batches
from bcq.data.formats.mapping import Names
from bcq.system.errors import InputError

GAP = 1.5  # times the median step: a longer one means that rows are missing


def read_key(
    file: pq.ParquetFile, names: Names, name: str, numbers: "EpisodeNumbers | StepNumbers"
) -> NDArray[Any] | None:
    """Reads the column of episodes or of steps as numbers."""
    if name not in names:
        return None
    found = [np.empty(0, np.int64)]
    for batch in record_batches(file, names, [name]):
        column, before = batch.column(0), sum(map(len, found))
        if column.null_count:
            first = before + int(np.argmax(column.is_null().to_numpy(False)))
            raise InputError(f"{name}, row {first}: is missing; every row needs a value")
        of = pa.types
        if of.is_temporal(column.type):
            width = pa.int32() if column.type.bit_width == 32 else pa.int64()
            found.append(column.cast(width).to_numpy().astype(np.int64))
        elif of.is_integer(column.type) or of.is_boolean(column.type):
            found.append(column.cast(pa.int64()).to_numpy(zero_copy_only=False))
        elif of.is_floating(column.type) or of.is_decimal(column.type):
            found.append(column.cast(pa.float64()).to_numpy(zero_copy_only=False))
        else:
            found.append(numbers.of_text(column, before))
    return np.concatenate(found[1:] or found)


@dataclass
class EpisodeNumbers:
    """Episodes named by text, numbered as they appear."""

    known: dict[str, int] = field(default_factory=dict)

    def of_text(self, column: pa.Array, before: int) -> NDArray[Any]:
        """One number per row; `before` rows were read already."""
        del before
        dictionary = pa.types.is_dictionary(column.type)
        encoded = column if dictionary else column.dictionary_encode()
        texts = encoded.dictionary.to_pylist()
        codes = [self.known.setdefault(text, len(self.known)) for text in texts]
        return np.array(codes, np.int64)[encoded.indices.to_numpy()]


@dataclass(frozen=True)
class StepNumbers:
    """Times written as text, in microseconds: in a stated format, or ISO 8601."""

    format: str | None  # as for strftime

    def of_text(self, column: pa.Array, before: int) -> NDArray[Any]:
        """One number per row; `before` rows were read already."""
        texts = column.cast(pa.string())
        if self.format is None:
            times = iso_times(texts)
        else:
            times = pc.strptime(texts, format=self.format, unit="us", error_is_null=True)
        if times.null_count:
            row = int(np.argmax(times.is_null().to_numpy(False)))
            expected = "an ISO time" if self.format is None else f"a time like {self.format}"
            raise InputError(
                f"step, row {before + row}: {texts[row].as_py()!r} is neither a number nor "
                f"{expected}; state the format as step_format, for example %d.%m.%Y %H:%M",
                option="step_format",
            )
        return times.cast(pa.int64()).to_numpy()


def require_text(schema: pa.Schema, names: Names) -> None:
    """Refuses a format of steps that are not text: it would have no effect."""
    if "step" not in names:
        raise InputError("step_format: no column has the role step", option="columns")
    kind = schema.field(names["step"][0]).type
    if can_be_number(kind) or pa.types.is_temporal(kind):
        raise InputError(
            f"step_format: column {names['step'][0]} contains {kind}, not text; leave it out"
        )


def iso_times(texts: pa.Array) -> pa.Array:
    """ISO times; null where a text is not one."""
    try:
        return texts.cast(pa.timestamp("us"))
    except pa.ArrowInvalid:  # one at a time, to find which
        return pa.array([one_iso_time(text) for text in texts], pa.timestamp("us"))


def one_iso_time(text: pa.Scalar) -> Any:
    """The time, or None."""
    try:
        return text.cast(pa.timestamp("us")).as_py()
    except pa.ArrowInvalid:
        return None


def is_in_order(episodes: NDArray[Any], steps: NDArray[Any] | None) -> bool:
    """Whether the rows of each episode are together and their steps never decrease."""
    begins = np.flatnonzero(episodes[1:] != episodes[:-1]) + 1
    together = len(begins) + 1 == len(np.unique(episodes[np.append(0, begins)]))
    if steps is None or not together:
        return together
    falls = steps[1:] < steps[:-1]
    falls[begins - 1] = False
    return not falls.any()


def rows_moved(order: NDArray[np.int64], moved: NDArray[np.int64]) -> Finding:
    """Reports that rows were not in order."""
    return Finding(
        "out-of-order",
        "rows",
        f"{len(moved)} rows were not in order of episode and step; they have been sorted",
        "no action needed",
        "the next observation is taken from the following row",
        np.sort(order[moved]),
        "note",
    )


def find_gaps(
    steps: NDArray[Any], cuts: NDArray[np.bool_], order: NDArray[np.int64] | None
) -> Iterator[Finding]:
    """Cuts episodes where steps are missing; refuses a step that occurs twice."""
    inside = ~cuts[:-1]
    strides = np.diff(steps)
    if not inside.any():
        return
    repeated = np.flatnonzero(inside & (strides == 0))
    if len(repeated):
        row = repeated[0] + 1 if order is None else order[repeated[0] + 1]
        raise InputError(
            f"step, row {row}: another row of this episode has this step (one of {len(repeated)} "
            "such rows); remove the copies, or map the column that distinguishes episodes"
        )
    gaps = np.flatnonzero(inside & (strides > GAP * np.median(strides[inside])))
    if len(gaps):
        cuts[gaps] = True
        yield Finding(
            "gap",
            "step",
            f"rows are missing after {len(gaps)} rows",
            "add the missing rows, if they exist; the episode is cut there",
            "the next observation was not logged; the following row belongs to a later step",
            gaps if order is None else np.sort(order[gaps]),
            "warning",
        )


def no_terminals() -> Finding:
    """Reports that no column marks terminated episodes."""
    return Finding(
        "no-terminal-column",
        "terminated",
        "no column marks where episodes terminated; every end is treated as a time-out",
        "name its column in columns if any episode terminated",
        "values bootstrap after a time-out, so a failure looks as if the episode continued",
        severity="warning",
        option="columns",
    )
