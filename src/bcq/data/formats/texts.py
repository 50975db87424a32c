"""Columns of text in a table: their categories, and one number for each of these."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from bcq.data.columns import Flags, Floats
from bcq.data.formats.arrow import can_be_number, record_batches
from bcq.data.formats.dialect import Dialect
from bcq.data.formats.mapping import Names
from bcq.data.layout import MISSING, Layout, ObservationColumn
from bcq.system.errors import InputError

MOST_CATEGORIES = 50  # more are rather names, notes or times than kinds of state
LONGEST = 100  # characters of a category
Categories = Mapping[str, tuple[str, ...]]  # by column
WORD = r"^\p{L}"
NUMBER = r"^[+-]?(\d+S?\d*|S\d+)([eE][+-]?\d+)?$"  # S stands for the decimal sign


def find_categories(file: pq.ParquetFile, names: Names, dialect: Dialect) -> Categories:
    """The categories of each text column, in one pass.

    A column of next observations has the categories of its column of observations, and these are
    found in both.
    """
    pairs = text_pairs(file.schema_arrow, names)
    found = {column: Texts(role, column, dialect) for role, column, _ in pairs}
    row = 0
    for batch in record_batches(file, {"text": tuple(found)}, ["text"]) if found else ():
        for column, texts in found.items():
            texts.add(as_texts(batch.column(column)), row)
        row += len(batch)
    together: dict[str, set[str]] = {}
    for _, column, observed in pairs:
        together.setdefault(observed, set()).update(found[column].categories())
    return {column: tuple(sorted(together[observed])) for _, column, observed in pairs}


def text_pairs(schema: pa.Schema, names: Names) -> list[tuple[str, str, str]]:
    """Role and name of each text column, and the column of observations in its place."""
    observed, following = names["observations"], names.get("next_observations", ())
    texts = [column for column in observed if not can_be_number(schema.field(column).type)]
    pairs = [("observations", column, column) for column in texts]
    if following and texts and len(following) != len(observed):
        raise InputError(
            f"next_observations: has {len(following)} columns and observations {len(observed)}; "
            "give the same columns in the same order"
        )
    for before, after in zip(observed, following, strict=False):
        kinds = [schema.field(column).type for column in (before, after)]
        if can_be_number(kinds[0]) != can_be_number(kinds[1]):
            raise InputError(
                f"next_observations: column {after} contains {kinds[1]} and {before} {kinds[0]}; "
                "give the columns in the order of observations"
            )
        if before in texts:
            pairs.append(("next_observations", after, before))
    return pairs


@dataclass
class Texts:
    """What the cells of a text column are."""

    role: str
    column: str
    dialect: Dialect
    most: int = MOST_CATEGORIES
    words: set[str] = field(default_factory=set)
    # Per kind of cell: how many there are, and row and text of the first.
    counts: Counter[str] = field(default_factory=Counter)
    first: dict[str, tuple[int, str]] = field(default_factory=dict)

    def add(self, texts: pa.Array, before: int) -> None:
        """Takes more cells into account; `before` rows were read already."""
        known = texts.is_valid().to_numpy(zero_copy_only=False)
        word = matches(texts, WORD)
        number = matches(texts, NUMBER.replace("S", re.escape(self.dialect.decimal_sign)))
        kinds = {"word": word, "number": number, "other": known & ~word & ~number}
        for kind, cells in kinds.items():
            if cells.any():
                row = int(np.argmax(cells))
                self.first.setdefault(kind, (before + row, texts[row].as_py()))
                self.counts[kind] += int(cells.sum())
        self.words.update(pc.unique(texts.filter(pa.array(word))).to_pylist())
        self.require_few()

    def require_few(self) -> None:
        """Refuses an id or a note."""
        if len(self.words) > self.most or any(len(word) > LONGEST for word in self.words):
            raise InputError(
                f"{self.role}: column {self.column} has more than {self.most:,} different "
                f"texts, or texts of more than {LONGEST} characters; leave it out if it is an id "
                "or a note, else group its values"
            )

    def categories(self) -> set[str]:
        """The words, if there is nothing else."""
        if "other" in self.first:
            row, cell = self.first["other"]
            raise InputError(
                f"{self.role}, row {row}: {self.column} is {cell!r:.100}, neither a number nor a "
                f"word that begins with a letter; {self.dialect.remedy(cell)}"
            )
        if not self.first:
            raise InputError(f"{self.role}: column {self.column} has no value; leave it out")
        if "word" not in self.first:
            row, cell = self.first["number"]
            raise InputError(
                f"{self.role}: column {self.column} contains text that looks like numbers "
                f"({cell!r:.100} in row {row}); store numbers"
            )
        if "number" in self.first:
            rare = min(self.counts, key=lambda kind: self.counts[kind])
            row, cell = self.first[rare]
            raise InputError(
                f"{self.role}, row {row}: {self.column} is {cell!r:.100}, "
                + (
                    f"not a number; {self.dialect.remedy(cell)}"
                    if rare == "word"
                    else "and other cells are words; begin each category with a letter"
                )
            )
        return self.words


def matches(texts: pa.Array, pattern: str) -> Flags:
    """Whether each text matches; a missing one does not."""
    found = pc.match_substring_regex(texts, pattern).fill_null(False)
    return np.asarray(found.to_numpy(zero_copy_only=False))


def as_texts(column: pa.Array) -> pa.Array:
    """The texts of a column without spaces around them; a missing one is null."""
    texts = pc.utf8_trim_whitespace(column.cast(pa.string()))
    return pc.if_else(pc.is_in(texts, pa.array(MISSING, pa.string())), None, texts)


def places_among(column: pa.Array, words: Sequence[str]) -> NDArray[np.float64]:
    """The place of each text among these words; NaN if the cell is missing."""
    places = pc.index_in(as_texts(column), pa.array(words))
    return np.asarray(places.cast(pa.float64()).to_numpy(zero_copy_only=False))


def one_hot(column: pa.Array, categories: tuple[str, ...]) -> Floats:
    """One column of numbers for each category; NaN in all of them if the cell is missing."""
    places = places_among(column, categories)
    numbers = (places[:, None] == np.arange(len(categories))).astype(np.float32)
    numbers[np.isnan(places)] = np.nan
    return numbers


def layout_of(names: Names, categories: Categories) -> Layout:
    """What the numbers of an observation are; nothing is stored if all columns are numbers."""
    if not categories:
        return Layout()
    return Layout(
        tuple(ObservationColumn(name, categories.get(name, ())) for name in names["observations"])
    )
