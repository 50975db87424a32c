"""CSV and Parquet logs: a row a step, streamed in batches, never held as Python objects."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from bcq.data.dataset import (
    FLAGS,
    MATRICES,
    ActionBounds,
    Column,
    Columns,
    Dataset,
    Finding,
    Provenance,
    paired_within_episodes,
    precision,
    require_sound,
    with_flags,
)
from bcq.data.formats.mapping import USUAL_NAMES, Names, find_columns
from bcq.system import interruption
from bcq.system.errors import InputError

KEYS = ("episode", "step")
BATCH_ROWS = 65_536
WINDOW_BYTES = 2**26  # of numbers that are in memory at a time while a table is converted
CSV_BLOCK = 2**24
ROWS_PER_BYTE = 10_000  # more than any encoding of a log reaches
GAP = 1.5  # times the usual step: more, and rows are missing in between

# A matrix has a column for each of its numbers: obs_0, obs_1, ...
TABLE_NAMES: Names = {
    name: usual if name not in MATRICES else tuple(f"{n}_*" for n in usual) + usual
    for name, usual in USUAL_NAMES.items()
}


@dataclass(frozen=True, eq=False)
class Log:
    """An open table, and the order in which its rows make episodes."""

    source: str
    file: pq.ParquetFile
    names: Names
    order: NDArray[np.int64] | None  # the file's row at each place, where rows had to be moved
    cuts: NDArray[np.bool_]  # at each place: the next one is not what followed
    findings: tuple[Finding, ...]

    def __len__(self) -> int:
        return len(self.cuts)

    @cached_property
    def places(self) -> NDArray[np.int64] | None:
        """The place of each row of the file, where rows had to be moved."""
        if self.order is None:
            return None
        places = np.empty_like(self.order)
        places[self.order] = np.arange(len(self.order))
        return places

    def window(self, start: int, stop: int) -> dict[str, Column]:
        """Places [start, stop) as arrays, read from the row groups that may hold some of them."""
        arrays = self.empty(stop - start)
        ends = np.cumsum([0, *group_sizes(self.file)]).tolist()
        for group, (first, end) in enumerate(pairwise(ends)):
            if self.places is None and (end <= start or first >= stop):
                continue
            for batch in batches(self.file, self.names, list(arrays), [group]):
                rows = slice(first, first := first + len(batch))
                places = (
                    np.arange(rows.start, rows.stop) if self.places is None else self.places[rows]
                )
                inside = (places >= start) & (places < stop)
                if inside.any():
                    self.put(arrays, batch, places[inside] - start, inside)
                if self.places is None and first >= stop:
                    break
        arrays["truncated"][self.cuts[start:stop]] = 1
        return arrays

    def empty(self, rows: int) -> dict[str, Column]:
        """Room for so many rows of each column."""
        sizes = {name: len(columns) for name, columns in self.names.items() if name not in KEYS}
        return {
            name: np.zeros((rows, sizes[name]) if name in MATRICES else rows, precision(name))
            for name in dict.fromkeys((*sizes, *FLAGS))
        }

    def put(
        self,
        arrays: Mapping[str, Column],
        batch: pa.RecordBatch,
        places: NDArray[np.int64],
        chosen: NDArray[np.bool_],
    ) -> None:
        """Copies the chosen rows of a batch to their places."""
        for name in arrays:
            for i, column in enumerate(self.names.get(name, ())):
                target = arrays[name][:, i] if name in MATRICES else arrays[name]
                with np.errstate(over="ignore"):  # what float32 cannot hold is found as infinite
                    target[places] = numbers(batch.column(column))[chosen]

    def action_range(self) -> tuple[Column, Column]:
        """Smallest and largest action in each dimension."""
        columns = self.names.get("actions", ())
        low, high = np.full(len(columns), np.inf), np.full(len(columns), -np.inf)
        for batch in batches(self.file, self.names, ["actions"]):
            values = np.stack([numbers(batch.column(column)) for column in columns])
            low = np.fmin(low, np.fmin.reduce(values, axis=1))
            high = np.fmax(high, np.fmax.reduce(values, axis=1))
        return low, high


def read(path: Path, names: Mapping[str, Sequence[str]]) -> Columns:
    """The whole table, its rows in order, time-outs where an episode is cut."""
    with opened(path, names) as log, told_of(path):
        arrays = log.window(0, len(log))
        return Columns(log.source, arrays, Provenance(), rows=log.order, findings=log.findings)


def parts(
    log: Log, bounds: ActionBounds | None, environment: str | None = None
) -> Iterator[Dataset]:
    """The table as batches that follow one another, so that it is never in memory whole."""
    for start, stop in pairwise(window_ends(log)):
        ahead = min(stop + 1, len(log))  # the row after the last gives its next observation
        with told_of(Path(log.source)):
            arrays = log.window(start, ahead)
        rows = np.arange(start, ahead) if log.order is None else log.order[start:ahead]
        columns = Columns(log.source, arrays, Provenance(), rows=rows)
        require_sound(columns, bounds)
        kept = stop - start
        if "next_observations" not in arrays:
            arrays = paired_within_episodes(with_flags(arrays))
            kept = len(arrays["rewards"]) - (
                ahead > stop and bool(columns.arrays["terminated"][-1])
            )
        if kept:
            arrays = {name: values[:kept] for name, values in arrays.items()}
            provenance = Provenance(environment)
            yield Dataset.from_columns(Columns(log.source, arrays, provenance), bounds)


def window_ends(log: Log) -> list[int]:
    """Where windows end: with a row group where that leaves them at most twice their size."""
    width = sum(len(columns) for columns in log.names.values())
    size, ends = max(1, WINDOW_BYTES // (4 * width)), [0]
    for end in np.cumsum(group_sizes(log.file)).tolist():
        while end - ends[-1] > 2 * size:
            ends.append(ends[-1] + size)
        if end - ends[-1] >= size:
            ends.append(end)
    return ends if ends[-1] == len(log) else [*ends, len(log)]


@contextmanager
def opened(path: Path, names: Mapping[str, Sequence[str]]) -> Iterator[Log]:
    """The table with its rows in order; a CSV file is first put into a temporary Parquet file."""
    with told_of(path), room_for_a_copy():
        temporary = TemporaryDirectory()
    with temporary as folder:
        with told_of(path):
            parquet = path if path.suffix == ".parquet" else Path(folder) / "log.parquet"
            if parquet != path:
                as_parquet(path, parquet, names)
            # Buffered, not mapped nor fetched ahead: a page of a column at a time is in memory.
            file = pq.ParquetFile(parquet, pre_buffer=False, buffer_size=2**20)
        with file:
            with told_of(path):
                names = mapped(file.schema_arrow, names)
                log = in_order(str(path), file, names, parquet.stat().st_size)
            yield log


@contextmanager
def told_of(path: Path) -> Iterator[None]:
    """Errors of the reader as words about the file."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
        kind = "Parquet" if path.suffix == ".parquet" else "CSV"
        words = " ".join(str(error).split())[:300]
        raise InputError(f"{path}: cannot be read as {kind}: {words}") from error


@contextmanager
def room_for_a_copy() -> Iterator[None]:
    """What the disk of temporary files refuses, in words."""
    try:
        yield
    except OSError as error:
        raise InputError(
            f"no room for a temporary copy of it ({os.strerror(error.errno or 0)}); name another "
            "folder for temporary files in the environment variable TMPDIR"
        ) from error


def mapped(schema: pa.Schema, names: Mapping[str, Sequence[str]]) -> Names:
    """Which columns are what, if each is of a type that can be it."""
    found = find_columns(names, TABLE_NAMES, schema.names)
    for name in ("observations", "actions", "rewards"):
        if name not in found:
            there = ", ".join(schema.names[:50])
            raise InputError(f"{name}: is missing; name it with --columns (there are {there})")
    for name, columns in found.items():
        if len(columns) != 1 and name not in MATRICES:
            raise InputError(f"{name}: give one column, not {', '.join(columns)}")
        for column in columns:
            if schema.names.count(column) > 1:
                raise InputError(f"{column}: there are several columns of that name")
            kind = schema.field(column).type
            if not (is_number(kind) or (name in KEYS and is_key(kind))):
                raise InputError(
                    f"{name}: column {column} holds {kind}, not numbers; store one number a column"
                )
    return found


def is_number(kind: pa.DataType) -> bool:
    """Whether a column can be observations, actions, rewards or flags."""
    of = pa.types
    return of.is_integer(kind) or of.is_floating(kind) or of.is_boolean(kind) or of.is_decimal(kind)


def is_key(kind: pa.DataType) -> bool:
    """Whether a column can say which episode or when."""
    of = pa.types
    return (
        of.is_temporal(kind)
        or of.is_string(kind)
        or of.is_large_string(kind)
        or (of.is_dictionary(kind) and is_key(kind.value_type))
    )


def numbers(column: pa.Array) -> NDArray[Any]:
    """A column as float64; what is missing becomes NaN, which the checks of a batch find."""
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.uint8())
    return column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)


def batches(
    file: pq.ParquetFile, names: Names, wanted: Sequence[str], groups: list[int] | None = None
) -> Iterator[pa.RecordBatch]:
    """Some columns of some row groups (of all), in the file's order."""
    columns = [column for name in wanted for column in names.get(name, ())]
    for batch in file.iter_batches(BATCH_ROWS, row_groups=groups, columns=columns):
        interruption.check()
        yield batch


def group_sizes(file: pq.ParquetFile) -> list[int]:
    """Rows in each row group."""
    return [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]


def in_order(source: str, file: pq.ParquetFile, names: Names, size: int) -> Log:
    """Puts the rows of each episode together and in the order of their steps."""
    rows = file.metadata.num_rows
    if rows == 0:
        raise InputError("holds no rows")
    if rows > ROWS_PER_BYTE * size:
        raise InputError(f"claims {rows:,} rows in {size:,} bytes; its header is damaged")
    episodes, steps = (key(file, names, name) for name in KEYS)
    findings: list[Finding] = []
    order = None
    if episodes is None and steps is not None:
        episodes = np.cumsum(np.append(False, steps[1:] <= steps[:-1]))  # a step that falls back
    if episodes is not None and not is_in_order(episodes, steps):
        order = np.lexsort((episodes,) if steps is None else (steps, episodes))
        moved = np.flatnonzero(order != np.arange(rows))
        findings.append(rows_moved(order, moved))
        episodes, steps = episodes[order], None if steps is None else steps[order]
    cuts = np.zeros(rows, bool)
    if episodes is not None:
        cuts[:-1] = episodes[1:] != episodes[:-1]
    if steps is not None:
        findings += find_gaps(steps, cuts, order)
    if "terminated" not in names:
        findings.append(no_terminals())
    return Log(source, file, names, order, cuts, tuple(findings))


def key(file: pq.ParquetFile, names: Names, name: str) -> NDArray[Any] | None:
    """The column that says which episode, or when, as numbers."""
    if name not in names:
        return None
    known: dict[str, int] = {}  # episodes by text, numbered as they appear
    found = [np.empty(0, np.int64)]
    for batch in batches(file, names, [name]):
        column = batch.column(0)
        if column.null_count:
            first = sum(map(len, found)) + int(np.argmax(column.is_null().to_numpy(False)))
            raise InputError(f"{name}, row {first}: is missing; every row needs one")
        found.append(key_numbers(column, known))
    return np.concatenate(found[1:] or found)


def key_numbers(column: pa.Array, known: dict[str, int]) -> NDArray[Any]:
    """Keys as numbers that compare as they do."""
    of = pa.types
    if of.is_temporal(column.type):
        width = pa.int32() if column.type.bit_width == 32 else pa.int64()
        return column.cast(width).to_numpy().astype(np.int64)
    if of.is_integer(column.type) or of.is_boolean(column.type):
        return column.cast(pa.int64()).to_numpy(zero_copy_only=False)
    if of.is_floating(column.type) or of.is_decimal(column.type):
        return column.cast(pa.float64()).to_numpy(zero_copy_only=False)
    encoded = column if of.is_dictionary(column.type) else column.dictionary_encode()
    codes = [known.setdefault(text, len(known)) for text in encoded.dictionary.to_pylist()]
    return np.array(codes, np.int64)[encoded.indices.to_numpy()]


def is_in_order(episodes: NDArray[Any], steps: NDArray[Any] | None) -> bool:
    """Whether each episode's rows are together, and their steps never fall."""
    begins = np.flatnonzero(episodes[1:] != episodes[:-1]) + 1
    together = len(begins) + 1 == len(np.unique(episodes[np.append(0, begins)]))
    if steps is None or not together:
        return together
    falls = steps[1:] < steps[:-1]
    falls[begins - 1] = False
    return not falls.any()


def rows_moved(order: NDArray[np.int64], moved: NDArray[np.int64]) -> Finding:
    """Says that the file's rows were out of order."""
    return Finding(
        "out-of-order",
        "rows",
        f"{len(moved)} rows were not in the order of episode and step, and were sorted",
        "nothing to do",
        "a next observation is that of the following row",
        np.sort(order[moved]),
        "note",
    )


def find_gaps(
    steps: NDArray[Any], cuts: NDArray[np.bool_], order: NDArray[np.int64] | None
) -> Iterator[Finding]:
    """Marks as cut the rows that something is missing after; refuses one step twice."""
    inside = ~cuts[:-1]
    strides = np.diff(steps)
    if not inside.any():
        return
    repeated = np.flatnonzero(inside & (strides == 0))
    if len(repeated):
        row = repeated[0] + 1 if order is None else order[repeated[0] + 1]
        raise InputError(
            f"step, row {row}: is the step of another row of its episode (one of {len(repeated)} "
            "such rows); remove the copies, or map the column that tells episodes apart"
        )
    gaps = np.flatnonzero(inside & (strides > GAP * np.median(strides[inside])))
    if len(gaps):
        cuts[gaps] = True
        yield Finding(
            "gap",
            "step",
            f"rows are missing after {len(gaps)} rows",
            "find the missing rows, if they exist; the episode is cut there",
            "the next observation was not logged, and the following row's is not it",
            gaps if order is None else np.sort(order[gaps]),
            "warning",
        )


def no_terminals() -> Finding:
    """Says what is made of a log that names no terminal."""
    return Finding(
        "no-terminal-column",
        "terminated",
        "no column says where episodes terminated; every end is taken for a cut",
        "name it with --columns terminated=COLUMN, if any episode ended of itself",
        "values bootstrap past a cut, so a failure would look as if the episode had gone on",
        severity="warning",
    )


def as_parquet(path: Path, parquet: Path, names: Mapping[str, Sequence[str]]) -> None:
    """Copies the columns of a CSV file that are wanted, block by block."""
    options = pyarrow.csv.ReadOptions(block_size=CSV_BLOCK, use_threads=False)
    with pyarrow.csv.open_csv(path, options) as reader:
        schema = reader.schema
    found = mapped(schema, names)
    types = {
        column: pa.float64()
        for name, columns in found.items()
        for column in columns
        # The first block decides what flags and keys are; a number may look like an integer there.
        if name not in KEYS and not pa.types.is_boolean(schema.field(column).type)
    }
    wanted = [column for columns in found.values() for column in columns]
    convert = pyarrow.csv.ConvertOptions(column_types=types, include_columns=wanted)
    with (
        pyarrow.csv.open_csv(path, options, convert_options=convert) as reader,
        room_for_a_copy(),
        pq.ParquetWriter(parquet, reader.schema, compression="lz4") as writer,
    ):
        for batch in reader:
            writer.write_batch(batch)
            interruption.check()
