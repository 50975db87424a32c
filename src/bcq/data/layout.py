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
class Past:
    """The past steps in an observation: after the newest reading, a reading and an action each."""

    lags: int  # how many steps, the newest first
    reading_size: int
    action_size: int  # numbers of one past action
    actions: tuple[str, ...] = ()  # their names, if known

    @classmethod
    def from_json(cls, content: Any) -> "Past":
        """The inverse of `vars`; raises ValueError for anything else."""
        try:
            found = cls(**content | {"actions": tuple(content["actions"])})
        except (KeyError, TypeError) as error:
            raise ValueError(f"layout: {error!r}") from error
        sizes = (found.lags, found.reading_size, found.action_size)
        if not all(type(size) is int and size > 0 for size in sizes) or not all(
            isinstance(name, str) for name in found.actions
        ):
            raise ValueError("layout: its past steps are not three sizes and names of actions")
        return found


@dataclass(frozen=True)
class Layout:
    """What the numbers of an observation are."""

    columns: tuple[ObservationColumn, ...] = ()  # of a reading; none if they need no names
    past: Past | None = None  # None if an observation is one reading

    @property
    def reading_labels(self) -> tuple[str, ...]:
        """The names of the numbers of a reading, in order."""
        return tuple(label for column in self.columns for label in column.labels)

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of all numbers, in order; none if they are not known."""
        now, past = self.reading_labels, self.past
        if past is None:
            return now
        step, lags = (*now, *past.actions), range(1, past.lags + 1)
        known = len(step) == past.reading_size + past.action_size
        return (*now, *(f"{label}@-{lag}" for lag in lags for label in step)) if known else ()

    def renamed(self, names: Sequence[str]) -> "Layout":
        """The same with other names of columns."""
        pairs = zip(self.columns, names, strict=True)
        return replace(self, columns=tuple(replace(column, name=name) for column, name in pairs))

    def unscaled(self, size: int) -> NDArray[np.bool_]:
        """Which numbers are on a scale for learning as they are: categories and past actions.

        Divided by its standard deviation, a category would count the more the rarer it is, up to
        the limit of scaled numbers.
        """
        categories = [bool(column.categories) for column in self.columns]
        widths = [len(column.labels) for column in self.columns]
        width = size if self.past is None else self.past.reading_size
        now = np.repeat(categories, widths) if self.columns else np.zeros(width, bool)
        if self.past is None:
            return now
        step = np.append(now, np.ones(self.past.action_size, bool))
        return np.append(now, np.tile(step, self.past.lags))

    def require_size(self, size: int) -> None:
        """Refuses observations with another number of numbers, with a ValueError."""
        expected, past = len(self.reading_labels), self.past
        if past is not None:
            if expected not in (0, past.reading_size):
                raise ValueError(f"layout: a reading has {expected} or {past.reading_size} numbers")
            expected = past.reading_size + past.lags * (past.reading_size + past.action_size)
        if expected not in (0, size):
            raise ValueError(f"layout: is for {expected} numbers, not {size}")

    def encode(self, values: Mapping[str, Any]) -> NDArray[np.float32]:
        """The reading of a row of a table, given by the names of its columns.

        Columns may have several rows; the result has then one row for each. A missing value is
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
            ],
            **({} if self.past is None else {"past": vars(self.past)}),
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
        past = Past.from_json(content["past"]) if "past" in content else None
        return cls(tuple(ObservationColumn(name, tuple(found)) for name, found in columns), past)


PLAIN = Layout()  # every column is a number
