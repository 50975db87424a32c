"""Choices in tables: actions that are text, and masks with one column for each choice."""

import pyarrow.parquet as pq

from bcq.data.bounds import MOST_CHOICES, Choices
from bcq.data.columns import MASKS
from bcq.data.formats.arrow import can_be_text, record_batches
from bcq.data.formats.dialect import Dialect
from bcq.data.formats.mapping import Names
from bcq.data.formats.texts import Texts, as_texts
from bcq.system.errors import InputError


def names_of_choices(
    file: pq.ParquetFile, names: Names, dialect: Dialect
) -> tuple[str, ...] | None:
    """The texts in the column of the actions and those with a mask, sorted; None if not text."""
    (column, *_), masks = names["actions"], names.get("permitted", ())
    if not can_be_text(file.schema_arrow.field(column).type):
        return None
    texts, row = Texts("actions", column, dialect, MOST_CHOICES), 0
    for batch in record_batches(file, names, ["actions"]):
        texts.add(as_texts(batch.column(0)), row)
        row += len(batch)
    masked = {name.removeprefix("permitted_") for name in masks if name.startswith("permitted_")}
    return Choices(sorted(texts.categories() | masked)).names


def with_ordered_masks(names: Names, choices: tuple[str, ...] | None) -> Names:
    """The columns of the masks in the order of the choices, if their names end with them."""
    ordered = dict(names)
    for role in [mask for mask in MASKS if mask in names]:
        columns = names[role]
        wanted = choices or tuple(map(str, range(len(columns))))
        found = [[c for c in columns if c == name or c.endswith(f"_{name}")] for name in wanted]
        if len(columns) == len(wanted) and all(len(fitting) == 1 for fitting in found):
            ordered[role] = tuple(fitting[0] for fitting in found)
        elif choices is not None:
            raise InputError(
                f"{role}: name one column for each of the choices {', '.join(choices)}, such as "
                f"{role}_{choices[0]}"
            )
    return ordered
