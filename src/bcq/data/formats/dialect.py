"""How a CSV file is written: its encoding, separator and decimal sign, decided in one place."""

import codecs
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

import pyarrow as pa
import pyarrow.csv

from bcq.system.errors import InputError

HEADER = 2**20  # bytes in which the first line ends, if it has names
UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
QUOTED = re.compile(rb'"[^"]*"')
BAD_CELL = re.compile(
    r"In CSV column #(\d+): Row #(\d+): CSV conversion error to (\S+): invalid value '(.*)'",
    re.DOTALL,
)


class Dialect(NamedTuple):
    """Separator and decimal sign of a CSV file."""

    separator: str = ","
    decimal_sign: str = "."

    def open(
        self,
        source: Path | IO[bytes],
        *,
        block_size: int | None = None,
        types: Mapping[str, pa.DataType] | None = None,
        wanted: Sequence[str] | None = None,
    ) -> Any:
        """A reader of record batches, in the order of the file: of the wanted columns, or all."""
        return pyarrow.csv.open_csv(
            source,
            pyarrow.csv.ReadOptions(block_size=block_size, use_threads=False),
            pyarrow.csv.ParseOptions(delimiter=self.separator),
            pyarrow.csv.ConvertOptions(
                decimal_point=self.decimal_sign, column_types=types, include_columns=wanted
            ),
        )

    def remedy(self, cell: str) -> str:
        """What to do about a cell that is not a number."""
        other = "." if self.decimal_sign == "," else ","
        if other not in cell or not re.fullmatch(r"[\d.,'\s+-]+", cell):
            return "correct the cell, or leave it empty if the value is missing"
        if self.separator == ",":
            return (
                "where commas separate columns, decimals have a point; write 1.5, or separate the "
                "columns by semicolons"
            )
        return (
            "where semicolons separate columns, decimals have a comma; write 1,5, or separate the "
            "columns by commas"
        )


def dialect_of(path: Path) -> Dialect:
    """The dialect of a CSV file, from its first line; what could be read in two ways is refused.

    Columns are separated by commas, or by semicolons if the first line has these and no comma.
    Programs separate by semicolons where the decimal sign is a comma. A point is then refused and
    not read: it may separate thousands.
    """
    with path.open("rb") as file:
        beginning = file.read(HEADER)
    if beginning.startswith(UTF_16):
        raise InputError("is UTF-16 text; save it as UTF-8 (Excel calls this CSV UTF-8)")
    lines = beginning.removeprefix(codecs.BOM_UTF8).lstrip(b"\r\n")
    header = re.split(rb"[\r\n]", lines, maxsplit=1)[0]
    try:
        header.decode()
    except UnicodeDecodeError as error:
        raise InputError("its first line is not UTF-8 text; save it as UTF-8") from error
    unquoted = QUOTED.sub(b"", header)
    if b";" not in unquoted:
        return Dialect()
    if b"," in unquoted:
        raise InputError(
            "its first line has both commas and semicolons; put names that contain one of them in "
            "double quotes"
        )
    return Dialect(";", ",")


@contextmanager
def explain_bad_cells(
    dialect: Dialect, columns: Sequence[str], roles: Mapping[str, str]
) -> Iterator[None]:
    """Names the role, the row and the column of a cell that the reader could not convert."""
    try:
        yield
    except pa.ArrowInvalid as error:
        if not (found := BAD_CELL.fullmatch(str(error))):
            raise
        number, line, kind, cell = found.groups()
        column = columns[int(number)]
        expected = "a number" if kind == "double" else f"{kind} like the cells before it"
        raise InputError(
            f"{roles[column]}, row {int(line) - 2}: {column} is {cell!r:.100}, not {expected}; "
            f"{dialect.remedy(cell)}"
        ) from error
