"""Writes decisions and their outcomes, so that a kill loses only what was not flushed yet."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bcq.data.formats.decisions import (
    DECISIONS,
    OUTCOME_SCHEMA,
    OUTCOMES,
    LogForm,
    form_of,
    parts_of,
)
from bcq.serving.policy import Acted, ServedPolicy
from bcq.serving.requests import Outcome, Question
from bcq.system import progress
from bcq.system.errors import InputError
from bcq.system.files import locked, make_directory, replacing

ROWS_PER_PART = 20_000  # the newest part is written again at each flush: few enough for that
MOST_WAITING = 100_000  # rows in memory while nothing can be written


class Parts:
    """Rows of one kind in files; the newest file is replaced until it is full.

    So each file is a whole Parquet file at any time, and there is nothing to repair after a kill.
    """

    def __init__(self, folder: Path, kind: str, schema: pa.Schema):
        self.folder, self.kind, self.schema = folder, kind, schema
        last = [int(part.stem.rpartition("-")[2]) for part in parts_of(folder, kind)]
        self.number = max(last, default=0) + 1  # files of earlier processes are not touched
        self.new: list[dict[str, Any]] = []
        self.taking = Lock()  # rows come from another thread than the one that writes
        self.written: list[pa.RecordBatch] = []  # in the newest file, or waiting for it

    @property
    def waiting(self) -> int:
        """Rows that are not in a file."""
        return len(self.new)

    def add(self, rows: Sequence[dict[str, Any]]) -> None:
        """Takes rows, for the next flush."""
        with self.taking:
            self.new += rows

    def flush(self) -> None:
        """Writes the rows that came since the last flush; an error leaves them for the next one."""
        with self.taking:
            rows, self.new = self.new, []
        if not rows:
            return
        try:
            batch = pa.RecordBatch.from_pylist(rows, self.schema)
            with replacing(self.folder / f"{self.kind}-{self.number:08}.parquet") as temporary:
                table = pa.Table.from_batches([*self.written, batch])
                pq.write_table(table, temporary, compression="zstd")
        except Exception:
            with self.taking:
                self.new = rows + self.new
            raise
        self.written.append(batch)
        if len(table) >= ROWS_PER_PART:
            self.number, self.written = self.number + 1, []


class DecisionLog:
    """A log of decisions in a folder, of one process at a time."""

    def __init__(self, folder: Path, policy: ServedPolicy):
        self.form, self.policy = policy.log_form, policy
        self.decisions = Parts(folder, DECISIONS, self.form.schema)
        self.outcomes = Parts(folder, OUTCOMES, OUTCOME_SCHEMA)
        # No later process gives the same name to another decision: it begins at another time.
        self.begun, self.count = f"{time.time_ns() // 1_000_000:x}", 0
        self.failure: str | None = None  # why the last flush wrote nothing
        self.flushing = Lock()

    @property
    def waiting(self) -> int:
        """Rows that a kill would lose."""
        return self.decisions.waiting + self.outcomes.waiting

    @property
    def overflows(self) -> bool:
        """Whether no more rows can wait."""
        return self.waiting >= MOST_WAITING

    def add(self, question: Question, acted: Acted, said: Sequence[Any]) -> list[str | None]:
        """Takes the decisions that are to be logged; their names."""
        named = [self.next_name() if logged else None for logged in question.logged]
        now = datetime.now(UTC)
        self.decisions.add(
            [
                self.row(question, acted, said, row, name, now)
                for row, name in enumerate(named)
                if name is not None
            ]
        )
        return named

    def next_name(self) -> str:
        """A name that no other decision has."""
        self.count += 1
        return f"{self.begun}-{self.count}"

    def row(
        self,
        question: Question,
        acted: Acted,
        said: Sequence[Any],
        row: int,
        name: str,
        now: datetime,
    ) -> dict[str, Any]:
        """One decision; `said` are the actions as clients see them."""
        form, choices = self.form, self.form.task.choices
        numbers = said[row] if choices is None else [int(acted.actions[row])]
        mask = [True] * len(form.masks) if question.permitted is None else question.permitted[row]
        return {
            "decision": name,
            "episode": question.episodes[row] or name,
            "step": question.steps[row],
            **dict(zip(form.observations, cells_of(form, question.observations[row]), strict=True)),
            **dict(zip(form.actions, numbers, strict=True)),
            **{column: bool(flag) for column, flag in zip(form.masks, mask, strict=True)},
            "propensity": 1.0,  # of choices: nothing is drawn
            "decision_valid": bool(acted.valid[row]),
            "decision_inside": bool(acted.inside[row]),
            "decision_time": now,
            "decision_policy": self.policy.fingerprint,
        }

    def learn(self, outcomes: Sequence[Outcome]) -> None:
        """Takes outcomes of decisions."""
        self.outcomes.add([dict(vars(outcome)) for outcome in outcomes])

    def flush(self) -> None:
        """Writes everything that waits; says and remembers why, if it cannot be written."""
        with self.flushing:
            before = self.failure
            try:
                self.decisions.flush()
                self.outcomes.flush()
                self.failure = None
            except (InputError, OSError, pa.ArrowException) as error:
                self.failure = str(error)[:300]
            if before is None and self.failure is not None:  # once, not at each flush
                progress.write_line(f"bcq: {self.failure}; rows of the log wait in memory")
            elif before is not None and self.failure is None:
                progress.write_line("bcq: the log is written again, with the rows that waited")


def cells_of(form: LogForm, numbers: np.ndarray[Any, Any]) -> Iterator[float | str | None]:
    """The cells of a reading: numbers, or the names of categories; None if missing."""
    first = 0
    for column in form.columns:
        own = numbers[first : first + len(column.labels)]
        first += len(column.labels)
        if not np.isfinite(own).all():
            yield None
        else:
            yield column.categories[int(own.argmax())] if column.categories else float(own[0])


@contextmanager
def opened(folder: Path, policy: ServedPolicy) -> Iterator[DecisionLog]:
    """A log that this process alone writes; one with other columns is refused."""
    if folder.suffix != ".parquet" or (folder.exists() and not folder.is_dir()):
        raise InputError(f"{folder}: a log is a folder with a name such as decisions.parquet")
    make_directory(folder)
    with locked(folder):
        found = form_of(folder)
        if found is not None and found.as_json() != policy.log_form.as_json():
            raise InputError(f"{folder}: is the log of another task; give another name")
        log = DecisionLog(folder, policy)
        try:
            yield log
        finally:
            log.flush()
            if log.failure is not None:
                raise InputError(f"{folder}: {log.waiting} rows are lost: {log.failure}")
