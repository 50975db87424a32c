"""What the numbers of an observation are, where a row of them does not say it all."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bcq.system.errors import InputError

# What stands for a missing value in the text of a table; the same as in a column of numbers.
MISSING = frozenset(
    {
        *("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND"),
        *("1.#QNAN", "N/A", "NA", "NULL", "NaN", "n/a", "nan", "null"),
    }
)


def is_missing(cell: Any) -> bool:
    """Whether a cell has no value."""
    if isinstance(cell, str):
        return cell in MISSING
    return cell is None or (isinstance(cell, float) and math.isnan(cell))


@dataclass(frozen=True)
class ObservationColumn:
    """A column of a table: numbers, or text.

    Text becomes one number for each of its categories: 1 for the category of the row, else 0.
    """

    name: str
    categories: tuple[str, ...] = ()  # in order; none for a column of numbers

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of its numbers."""
        return tuple(f"{self.name}={each}" for each in self.categories) or (self.name,)

    def encode(self, cells: Any) -> NDArray[np.float32]:
        """The numbers of one cell, or of several; those of a missing one are NaN."""
        given = np.asarray(cells, object)
        rows = [self.numbers(cell) for cell in given.reshape(-1)]
        return np.array(rows, np.float32).reshape(*given.shape, len(self.labels))

    def numbers(self, cell: Any) -> Sequence[float]:
        """The numbers of one cell."""
        text = cell.strip() if isinstance(cell, str) else cell
        if is_missing(text):
            return [np.nan] * len(self.labels)
        if self.categories:
            if text not in self.categories:
                known = ", ".join(self.categories)
                raise InputError(f"{self.name}: {text!r} is not in the data, which has {known}")
            return [float(text == each) for each in self.categories]
        try:
            return [float(text)]
        except (TypeError, ValueError) as error:
            raise InputError(f"{self.name}: {text!r} is not a number") from error


@dataclass(frozen=True)
class Layout:
    """What the numbers of an observation are."""

    columns: tuple[ObservationColumn, ...] = ()  # none if they are the columns of the log as such

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the numbers, in order."""
        return tuple(label for column in self.columns for label in column.labels)

    def renamed(self, names: Sequence[str]) -> "Layout":
        """The same with other names of columns."""
        pairs = zip(self.columns, names, strict=True)
        return Layout(tuple(replace(column, name=name) for column, name in pairs))

    def unscaled(self, size: int) -> NDArray[np.bool_]:
        """Which numbers are on a scale for learning as they are: those of categories.

        Divided by its standard deviation, a category would count the more the rarer it is, up to
        the limit of scaled numbers.
        """
        if not self.columns:
            return np.zeros(size, bool)
        return np.repeat(
            [bool(column.categories) for column in self.columns],
            [len(column.labels) for column in self.columns],
        )

    def require_size(self, size: int) -> None:
        """Refuses observations with another number of numbers, with a ValueError."""
        if self.columns and len(self.labels) != size:
            raise ValueError(f"layout: is for {len(self.labels)} numbers, not {size}")

    def encode(self, values: Mapping[str, Any]) -> NDArray[np.float32]:
        """The observation of a row of a table, given by the names of its columns.

        Columns may have several rows; an observation has then one row for each. A missing value is
        None, NaN or an empty text; its numbers are NaN.
        """
        if not self.columns:
            raise InputError("the names of the columns are not known; give numbers in their order")
        for column in self.columns:
            if column.name not in values:
                names = ", ".join(each.name for each in self.columns)
                raise InputError(f"{column.name}: is missing; an observation has {names}")
        parts = [column.encode(values[column.name]) for column in self.columns]
        if len({part.shape[:-1] for part in parts}) > 1:
            raise InputError("the columns of an observation have different numbers of rows")
        return np.concatenate(parts, axis=-1)

    def as_json(self) -> dict[str, Any]:
        """The form in a file."""
        return {
            "columns": [
                {"name": column.name}
                | ({"categories": list(column.categories)} if column.categories else {})
                for column in self.columns
            ]
        }

    @classmethod
    def from_json(cls, content: Any) -> "Layout":
        """The inverse of `as_json`; raises ValueError for anything else."""
        try:
            columns = [(each["name"], each.get("categories", [])) for each in content["columns"]]
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"layout: {error!r}") from error
        for name, categories in columns:
            if not isinstance(categories, list) or not all(
                isinstance(text, str) for text in (name, *categories)
            ):
                raise ValueError(f"layout: column {name!r:.50} is not a name and its categories")
        return cls(tuple(ObservationColumn(name, tuple(found)) for name, found in columns))


PLAIN = Layout()  # every column is a number
