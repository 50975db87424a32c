"""Columns of Arrow tables as numbers, one record batch at a time."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from bcq.data.columns import MATRICES
from bcq.data.formats.dialect import Dialect, dialect_of, explain_bad_cells
from bcq.data.formats.mapping import USUAL_NAMES, Names, find_columns
from bcq.system import interruption
from bcq.system.errors import InputError
from bcq.system.progress import Progress

KEYS = ("episode", "step")


TEXTS = ("observations", "next_observations")  # a text column becomes categories


BATCH_ROWS = 65_536


CSV_BLOCK = 2**24


# In a table, a matrix has one column per dimension: obs_0, obs_1, ...
TABLE_NAMES: Names = {
    name: usual if name not in MATRICES else tuple(f"{n}_*" for n in usual) + usual
    for name, usual in USUAL_NAMES.items()
}


@contextmanager
def explain_read_errors(path: Path) -> Iterator[None]:
    """Turns errors of the reader into an InputError that names the file."""
    try:
        yield
    except InputError as error:
        raise error.within(path) from error
    except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
        kind = "Parquet" if path.suffix == ".parquet" else "CSV"
        words = " ".join(str(error).split())[:300]
        raise InputError(f"{path}: cannot be read as {kind}: {words}") from error


@contextmanager
def explain_temporary_disk_errors() -> Iterator[None]:
    """Turns errors of the temporary folder into an InputError."""
    try:
        yield
    except OSError as error:
        raise InputError(
            f"no space for a temporary copy of it ({os.strerror(error.errno or 0)}); set the "
            "environment variable TMPDIR to another folder"
        ) from error


def map_columns(schema: pa.Schema, names: Mapping[str, Sequence[str]]) -> Names:
    """Finds the columns of each role and checks their types."""
    found = find_columns(names, TABLE_NAMES, schema.names)
    for name in ("observations", "actions", "rewards"):
        if name not in found:
            there = ", ".join(schema.names[:50])
            raise InputError(
                f"{name}: is missing; name its column in columns (there are {there})",
                option="columns",
            )
    for name, columns in found.items():
        if len(columns) != 1 and name not in MATRICES:
            raise InputError(f"{name}: give one column, not {', '.join(columns)}")
        for column in columns:
            if schema.names.count(column) > 1:
                raise InputError(f"{column}: several columns have this name")
            kind = schema.field(column).type
            if not (
                can_be_number(kind)
                or (name in KEYS and can_be_key(kind))
                or (name in TEXTS and can_be_text(kind))
                or (name == "actions" and len(columns) == 1 and can_be_text(kind))
            ):
                raise InputError(
                    f"{name}: column {column} contains {kind}, not numbers; store one "
                    "number per column"
                )
    return found


def can_be_number(kind: pa.DataType) -> bool:
    """Whether a column can be observations, actions, rewards or flags."""
    of = pa.types
    return of.is_integer(kind) or of.is_floating(kind) or of.is_boolean(kind) or of.is_decimal(kind)


def can_be_key(kind: pa.DataType) -> bool:
    """Whether a column can identify episodes or steps."""
    of = pa.types
    return (
        of.is_temporal(kind)
        or can_be_text(kind)
        or (of.is_dictionary(kind) and can_be_key(kind.value_type))
    )


def can_be_text(kind: pa.DataType) -> bool:
    """Whether a column can be categories."""
    of = pa.types
    return (
        of.is_string(kind)
        or of.is_large_string(kind)
        or (of.is_dictionary(kind) and can_be_text(kind.value_type))
    )


def as_float64(column: pa.Array) -> NDArray[Any]:
    """A column as float64; missing values become NaN, which the checks of a batch find."""
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.uint8())
    return column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)


def record_batches(
    file: pq.ParquetFile, names: Names, wanted: Sequence[str], groups: list[int] | None = None
) -> Iterator[pa.RecordBatch]:
    """Reads some columns of some row groups (default: all), in the order of the file."""
    columns = [column for name in wanted for column in names.get(name, ())]
    for batch in file.iter_batches(BATCH_ROWS, row_groups=groups, columns=columns):
        interruption.check()
        yield batch


def group_sizes(file: pq.ParquetFile) -> list[int]:
    """Number of rows in each row group."""
    return [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]


def with_types(schema: pa.Schema, types: Mapping[str, pa.DataType]) -> pa.Schema:
    """The schema with the types of some columns replaced."""
    return pa.schema([field.with_type(types.get(field.name, field.type)) for field in schema])


def types_of(schema: pa.Schema, roles: Mapping[str, str]) -> dict[str, pa.DataType]:
    """The types of the columns of a CSV file, where those of its first block may mislead.

    A float may look like an integer there, and one bad cell makes numbers look like text.
    Observations may be text, and the only action may be: their cells are judged later (`texts`).
    """
    types = {}
    texts = (*TEXTS, "actions") if list(roles.values()).count("actions") == 1 else TEXTS
    for field in schema:
        role = roles.get(field.name)
        if role in texts and pa.types.is_string(field.type):
            types[field.name] = pa.string()
        elif role not in (None, *KEYS) and not pa.types.is_boolean(field.type):
            types[field.name] = pa.float64()
    return types


def as_parquet(
    path: Path, parquet: Path, names: Mapping[str, Sequence[str]], texts: Sequence[str] = ()
) -> Dialect:
    """Copies the mapped columns of a CSV file, block by block; roles in `texts` stay text."""
    dialect = dialect_of(path)
    with dialect.open(path, block_size=CSV_BLOCK) as reader:
        schema = reader.schema
    found = find_columns(names, TABLE_NAMES, schema.names)
    roles = {column: name for name, columns in found.items() for column in columns}
    types = types_of(schema, roles)
    types |= {column: pa.string() for name in texts for column in found.get(name, ())}
    map_columns(with_types(schema, types), names)
    with (
        explain_bad_cells(dialect, schema.names, roles),
        path.open("rb") as content,
        dialect.open(content, block_size=CSV_BLOCK, types=types, wanted=list(roles)) as reader,
        explain_temporary_disk_errors(),
        pq.ParquetWriter(parquet, reader.schema, compression="lz4") as writer,
        Progress(f"reading {path.name}", path.stat().st_size, "byte", delay=1) as progress,
    ):
        for batch in reader:
            writer.write_batch(batch)
            progress.advance(content.tell() - progress.done)
            interruption.check()
    return dialect
