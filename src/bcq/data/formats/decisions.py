"""Logs of decisions, as `bcq.serving` writes them: a folder of Parquet files, and how it is read.

`decisions-*.parquet` has one row for each decision, `outcomes-*.parquet` what it brought, which is
known later. Each file is complete whenever it has its name, so a log can be read at any time.
"""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from glob import escape
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bcq.data.bounds import TaskSpec
from bcq.data.formats.arrow import explain_read_errors
from bcq.data.formats.mapping import Names
from bcq.data.layout import Layout, ObservationColumn
from bcq.system import interruption
from bcq.system.errors import InputError

DECISIONS, OUTCOMES = "decisions", "outcomes"  # how names of files begin
KEY = b"bcq"  # of the metadata of decisions
OUTCOME_SCHEMA = pa.schema(
    [
        ("decision", pa.string()),
        ("reward", pa.float64()),
        ("terminated", pa.bool_()),
        ("truncated", pa.bool_()),
    ]
)
ABOUT = tuple(f"decision_{what}" for what in ("valid", "inside", "time", "policy"))
OWN = ("episode", "step", "propensity", *ABOUT, *OUTCOME_SCHEMA.names)


@dataclass(frozen=True)
class LogForm:
    """The columns of a log of decisions about one task."""

    task: TaskSpec  # without scaling and past steps, which are not those of the next batch
    observations: tuple[str, ...]  # a column for each reading
    actions: tuple[str, ...]

    @classmethod
    def of(cls, task: TaskSpec, readings: Iterable[str], actions: Iterable[str]) -> "LogForm":
        """The form for a task; a name that the log itself needs, or has already, is changed."""
        size, columns = task.reading_size, task.layout.columns
        plain = TaskSpec(size, task.bounds, layout=Layout(columns))
        taken = set(OWN)
        numbers = range(len(columns) or size)
        named = names_apart(readings, [f"observation_{i}" for i in numbers], taken)
        count = 1 if task.choices else task.action_size
        acts = names_apart(actions, [f"action_{i}" for i in range(count)], taken)
        return cls(plain, tuple(named), tuple(acts))

    @property
    def columns(self) -> tuple[ObservationColumn, ...]:
        """The readings: numbers, or categories."""
        known = self.task.layout.columns
        return known or tuple(ObservationColumn(name) for name in self.observations)

    @property
    def masks(self) -> tuple[str, ...]:
        """The columns that say which choices there were."""
        return tuple(f"permitted_{i}" for i in range(len(self.task.choices or ())))

    @property
    def schema(self) -> pa.Schema:
        """Of the decisions."""
        kinds = [pa.string() if column.categories else pa.float32() for column in self.columns]
        choices = self.task.choices is not None
        fields = [
            *((name, pa.string()) for name in ("decision", "episode")),
            ("step", pa.int64()),
            *zip(self.observations, kinds, strict=True),
            *((name, pa.int64() if choices else pa.float32()) for name in self.actions),
            *((name, pa.bool_()) for name in self.masks),
            *([("propensity", pa.float64())] if choices else []),
            *zip(
                ABOUT,
                (pa.bool_(), pa.bool_(), pa.timestamp("ms", "UTC"), pa.string()),
                strict=True,
            ),
        ]
        return pa.schema(fields, {KEY: json.dumps(self.as_json()).encode()})

    @property
    def roles(self) -> Names:
        """Which columns a batch is made of; a name stands for itself, whatever its characters."""
        roles = {
            "episode": ("episode",),
            "observations": self.observations,
            "actions": self.actions,
            **{"rewards": ("reward",), "terminated": ("terminated",), "truncated": ("truncated",)},
            **({"permitted": self.masks, "propensities": ("propensity",)} if self.masks else {}),
        }
        return {role: tuple(map(escape, columns)) for role, columns in roles.items()}

    def as_json(self) -> dict[str, Any]:
        """The form in a file."""
        names = {"observations": list(self.observations), "actions": list(self.actions)}
        return {"task": self.task.as_json(), **names}

    @classmethod
    def from_json(cls, content: Any) -> "LogForm":
        """The inverse of `as_json`; raises ValueError for anything else."""
        try:
            names = [tuple(map(str, content[name])) for name in ("observations", "actions")]
            return cls(TaskSpec.from_json(content["task"]), *names)
        except (KeyError, TypeError) as error:
            raise ValueError(f"form: {error!r}") from error


def names_apart(wanted: Iterable[str], usual: list[str], taken: set[str]) -> list[str]:
    """The names if they are known, else the usual ones; each different from all names before it."""
    found = []
    for name, instead in zip(tuple(wanted) or usual, usual, strict=True):
        free = name if name not in taken else instead
        while free in taken:
            free += "_"
        taken.add(free)
        found.append(free)
    return found


def parts_of(folder: Path, kind: str) -> list[Path]:
    """The files of a kind, the oldest first."""
    named = re.compile(rf"{kind}-\d{{8}}\.parquet")
    return sorted(path for path in folder.iterdir() if named.fullmatch(path.name))


def form_of(folder: Path) -> LogForm | None:
    """The form of a log; None if it has no decisions yet."""
    parts = parts_of(folder, DECISIONS)
    if not parts:
        return None
    with explain_read_errors(parts[0]):
        stored = pq.read_schema(parts[0]).metadata or {}
        try:
            return LogForm.from_json(json.loads(stored[KEY]))
        except (KeyError, ValueError, RecursionError) as error:
            raise InputError("is not a log of decisions") from error


def combine(folder: Path, target: Path) -> LogForm:
    """Copies all decisions, with their outcomes beside them, to one Parquet file."""
    form = form_of(folder)
    if form is None:
        raise InputError(f"has no decisions ({DECISIONS}-*.parquet)")
    outcomes = read_outcomes(folder)
    parts, schema = parts_of(folder, DECISIONS), form.schema
    unknown = sum(read_part(part, schema, ["step"])["step"].null_count for part in parts)
    # If a decision has no step, decisions of an episode follow each other as they were made.
    names = [name for name in schema.names if not unknown or name != "step"]
    fields = [schema.field(name) for name in names] + list(OUTCOME_SCHEMA)[1:]
    with pq.ParquetWriter(target, pa.schema(fields), compression="lz4") as writer:
        for part in parts:
            interruption.check()
            writer.write_table(with_outcomes(read_part(part, schema, names), outcomes))
    return form


def read_part(part: Path, schema: pa.Schema, names: list[str]) -> pa.Table:
    """Some columns of a file, which must be those of the log."""
    with explain_read_errors(part):
        file = pq.ParquetFile(part)
        if not file.schema_arrow.equals(schema):
            raise InputError("has other columns than the first file of this log")
        return file.read(names)


def read_outcomes(folder: Path) -> pa.Table:
    """The newest outcome of each decision."""
    parts = [
        read_part(part, OUTCOME_SCHEMA, OUTCOME_SCHEMA.names) for part in parts_of(folder, OUTCOMES)
    ]
    table = pa.concat_tables([OUTCOME_SCHEMA.empty_table(), *parts])
    rows = table.append_column("row", pa.array(range(len(table)), pa.int64()))
    newest = rows.group_by("decision").aggregate([("row", "max")])["row_max"]
    return table.take(newest)


def with_outcomes(decisions: pa.Table, outcomes: pa.Table) -> pa.Table:
    """Decisions with what they brought; a reward that is not known yet is missing."""
    places = pc.index_in(decisions["decision"], outcomes["decision"].combine_chunks())
    found = outcomes.take(places)
    for name in ("reward", "terminated", "truncated"):
        column = found[name] if name == "reward" else pc.fill_null(found[name], False)
        decisions = decisions.append_column(OUTCOME_SCHEMA.field(name), column)
    return decisions
