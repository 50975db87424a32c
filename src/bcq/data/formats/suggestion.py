"""A first mapping for a table, guessed from the names of its columns, to be edited."""

import json
import re
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from bcq.data.columns import MATRICES
from bcq.data.formats.arrow import (
    KEYS,
    TABLE_NAMES,
    can_be_key,
    can_be_number,
    can_be_text,
    explain_read_errors,
)
from bcq.data.formats.dialect import dialect_of
from bcq.data.formats.mapping import Names, find_columns

# Words in the names of columns, for roles whose columns have no common name. The first that fits.
WORDS: Mapping[str, str] = {
    "episode": "episode|trajectory|session|batch|run|day|patient|customer|unit|id",
    "step": "timestamp|datetime|date|time|step|second|minute|hour|index",
    "rewards": "reward|return|cost|profit|score|comfort|gain|yield|pay",
    "terminated": "terminated|terminal|died|dead|failed|failure|tripped|crashed|frozen|fell|broken",
    "truncated": "truncated|timeout|cut",
    "actions": "action|control|command|setpoint|dose|treatment|valve|power|kilowatts|torque|input",
}
ORDER = (
    *("episode", "step", "observations", "actions", "rewards", "terminated", "truncated"),
    *("permitted", "propensities"),
)


def suggest(path: Path) -> str:
    """A mapping file for a table: every column is in it, as a role or in a comment."""
    with explain_read_errors(path):
        schema = schema_of(path)
        found = guess(schema)
    lines = [
        f"# Guessed from the names of the columns of {path.name}: check every line.",
        "# Observations are known before the action is chosen. A reward is earned by the action.",
    ]
    for role in ORDER:
        if role in found:
            columns = list(found[role])
            lines.append(f"{role} = {json.dumps(columns if role in MATRICES else columns[0])}")
        elif role in ("observations", "actions", "rewards"):
            lines.append(f"{role} = []  # not found: name at least one column")
    used = {column for columns in found.values() for column in columns}
    unused = [f"{field.name} ({field.type})" for field in schema if field.name not in used]
    if unused:
        lines.append(f"# Not used: {', '.join(unused)}")
    return "\n".join(lines) + "\n"


def schema_of(path: Path) -> pa.Schema:
    """Names and types of the columns."""
    if path.suffix == ".parquet":
        return pq.read_schema(path)
    with dialect_of(path).open(path) as reader:
        return reader.schema


def guess(schema: pa.Schema) -> Names:
    """Columns with common names, then those with telling words; other numbers are observations."""
    found = {
        role: columns
        for role, columns in find_columns({}, TABLE_NAMES, schema.names).items()
        if role in ORDER
    }
    used = {column for columns in found.values() for column in columns}
    rest = {
        field.name: field.type
        for field in schema
        if field.name not in used and not field.name.startswith(("qpos", "qvel", "next_"))
    }
    for role, words in WORDS.items():
        if role in found:
            continue
        telling = [
            name for name in rest if re.search(rf"(?<![a-z])({words})s?(?![a-z])", name.lower())
        ]
        fitting = [
            name
            for name in telling
            if can_be_number(rest[name]) or (role in KEYS and can_be_key(rest[name]))
        ]
        if role == "actions" and not fitting:  # choices, with names
            fitting = [name for name in telling if can_be_text(rest[name])][:1]
        if fitting:
            found[role] = tuple(fitting if role in MATRICES else fitting[:1])
            for name in found[role]:
                del rest[name]
    if "observations" not in found:
        numbers = tuple(name for name, kind in rest.items() if can_be_number(kind))
        if numbers:
            found["observations"] = numbers
    return found
