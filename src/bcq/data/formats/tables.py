"""CSV and Parquet logs: one row per step, read in batches, never as Python objects."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from bcq.data.actions import SeenActions
from bcq.data.bounds import ActionBounds, TaskSpec
from bcq.data.checks import check
from bcq.data.columns import (
    FLAGS,
    MATRICES,
    Column,
    Columns,
    Finding,
    Provenance,
    frozen,
    precision,
)
from bcq.data.dataset import Dataset
from bcq.data.episodes import cut, transitions
from bcq.data.formats.arrow import (
    KEYS,
    as_float64,
    as_parquet,
    explain_read_errors,
    explain_temporary_disk_errors,
    group_sizes,
    map_columns,
    record_batches,
)
from bcq.data.formats.choices import names_of_choices, with_ordered_masks
from bcq.data.formats.decisions import LogForm, combine
from bcq.data.formats.dialect import Dialect
from bcq.data.formats.mapping import Names
from bcq.data.formats.order import (
    EpisodeNumbers,
    StepNumbers,
    find_gaps,
    is_in_order,
    no_terminals,
    read_key,
    require_text,
    rows_moved,
)
from bcq.data.formats.texts import (
    Categories,
    find_categories,
    layout_of,
    one_hot,
    places_among,
)
from bcq.system.errors import InputError
from bcq.system.progress import Progress, over

WINDOW_BYTES = 2**26  # of numbers in memory at a time while a table is converted
ROWS_PER_BYTE = 10_000  # more than any encoding of a log reaches


@dataclass(frozen=True, eq=False)
class Log:
    """An open table, and the order of its rows by episode and step."""

    source: str
    file: pq.ParquetFile
    names: Names
    order: NDArray[np.int64] | None  # row of the file at each place; None if in order
    cuts: NDArray[np.bool_]  # at each place: whether the episode is cut after it
    findings: tuple[Finding, ...]
    categories: Categories = field(default_factory=dict)  # of text columns
    choices: tuple[str, ...] | None = None  # names of the actions, if they are text
    task: TaskSpec | None = None  # as the table itself tells it

    def __len__(self) -> int:
        return len(self.cuts)

    @cached_property
    def places(self) -> NDArray[np.int64] | None:
        """The place of each row of the file; None if the rows are in order."""
        if self.order is None:
            return None
        places = np.empty_like(self.order)
        places[self.order] = np.arange(len(self.order))
        return places

    def window(
        self, start: int, stop: int, advance: Callable[[int], None] = lambda rows: None
    ) -> dict[str, Column]:
        """Reads places [start, stop) from the row groups that may contain them."""
        arrays = self.empty(stop - start)
        ends = np.cumsum([0, *group_sizes(self.file)]).tolist()
        for group, (first, end) in enumerate(pairwise(ends)):
            if self.places is None and (end <= start or first >= stop):
                continue
            for batch in record_batches(self.file, self.names, list(arrays), [group]):
                rows = slice(first, first := first + len(batch))
                places = (
                    np.arange(rows.start, rows.stop) if self.places is None else self.places[rows]
                )
                inside = (places >= start) & (places < stop)
                if inside.any():
                    self.put(arrays, batch, places[inside] - start, inside)
                advance(len(batch))
                if self.places is None and first >= stop:
                    break
        return cut(arrays, self.cuts[start:stop])

    def width(self, name: str) -> int:
        """How many numbers a role has in a row: one for each column, or for each category."""
        return sum(len(self.categories.get(column, (column,))) for column in self.names[name])

    def empty(self, rows: int) -> dict[str, Column]:
        """Arrays of zeros for this number of rows."""
        sizes = {name: self.width(name) for name in self.names if name not in KEYS}
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
            first = 0
            for column in self.names.get(name, ()):
                cells = batch.column(column)
                numbers: Column
                if column in self.categories:
                    numbers = one_hot(cells, self.categories[column])[chosen]
                elif name == "actions" and self.choices is not None:
                    numbers = places_among(cells, self.choices)[chosen, None]
                else:
                    numbers = as_float64(cells)[chosen, None]
                target = arrays[name] if name in MATRICES else arrays[name][:, None]
                with np.errstate(over="ignore"):  # the checks find infinity
                    target[places, first : first + numbers.shape[1]] = numbers
                first += numbers.shape[1]

    def seen_actions(self) -> SeenActions:
        """The actions, one record batch at a time."""
        columns = self.names["actions"]

        def blocks() -> Iterator[Column]:
            for batch in record_batches(self.file, self.names, ["actions"]):
                yield np.stack([as_float64(batch.column(column)) for column in columns], axis=1)

        return SeenActions(blocks, len(self.names.get("permitted", ())))

    def columns(
        self,
        arrays: Mapping[str, Column],
        rows: NDArray[np.int64] | None = None,
        environment: str | None = None,
    ) -> Columns:
        """Arrays of this table with what is known about all of it."""
        told = self.task
        bounds = None if told is None or told.choices else told.bounds
        return Columns(
            self.source,
            arrays,
            Provenance(environment),
            action_low=None if bounds is None else bounds.low,
            action_high=None if bounds is None else bounds.high,
            rows=rows,
            names=self.names,
            choices=self.choices if told is None else told.choices,
            layout=layout_of(self.names, self.categories),
        )


def read(path: Path, names: Mapping[str, Sequence[str]], step_format: str | None = None) -> Columns:
    """Reads the whole table with its rows in order; cut episodes are truncated."""
    with open_log(path, names, step_format) as log, explain_read_errors(path):
        with Progress(f"loading {path.name}", len(log), "row", delay=1) as progress:
            arrays = log.window(0, len(log), progress.advance)
        return replace(log.columns(arrays, log.order), findings=log.findings)


def parts(
    log: Log, bounds: ActionBounds | None, environment: str | None = None
) -> Iterator[Dataset]:
    """The table as consecutive batches, so that it is never completely in memory."""
    windows = list(pairwise(window_ends(log)))
    for start, stop in over(windows, f"converting {Path(log.source).name}", "part", delay=1):
        ahead = min(stop + 1, len(log))  # the row after the last gives its next observation
        with explain_read_errors(Path(log.source)):
            arrays = log.window(start, ahead)
        rows = np.arange(start, ahead) if log.order is None else log.order[start:ahead]
        checked = check(log.columns(arrays, rows, environment), bounds)
        own = checked.require_sound()
        arrays = transitions(checked.columns)
        ahead_is_there = (
            "next_observations" in log.names or checked.columns.arrays["terminated"][-1]
        )
        kept = len(arrays["rewards"]) - (ahead > stop and bool(ahead_is_there))
        if kept:
            fields = {name: frozen(values[:kept]) for name, values in arrays.items()}
            origin, layout = checked.columns.provenance, checked.columns.layout
            yield Dataset(**fields, bounds=own, provenance=origin, layout=layout)


def window_ends(log: Log) -> list[int]:
    """Ends of windows: those of row groups if that makes windows at most twice as long."""
    width = sum(log.width(name) for name in log.names)
    size, ends = max(1, WINDOW_BYTES // (4 * width)), [0]
    for end in np.cumsum(group_sizes(log.file)).tolist():
        while end - ends[-1] > 2 * size:
            ends.append(ends[-1] + size)
        if end - ends[-1] >= size:
            ends.append(end)
    return ends if ends[-1] == len(log) else [*ends, len(log)]


@contextmanager
def open_log(
    path: Path, names: Mapping[str, Sequence[str]], step_format: str | None = None
) -> Iterator[Log]:
    """Opens a table and orders its rows.

    A CSV file or a log of decisions is first copied to a temporary Parquet file.
    """
    with explain_read_errors(path), explain_temporary_disk_errors():
        temporary = TemporaryDirectory()
    with temporary as folder:
        with explain_read_errors(path):
            copied = path.is_dir() or path.suffix != ".parquet"
            parquet = Path(folder) / "log.parquet" if copied else path
            dialect, form = Dialect(), None
            if path.is_dir():
                with explain_temporary_disk_errors():
                    form = combine(path, parquet)
                names = {**form.roles, **names}
            elif copied:
                texts = ["step"] if step_format is not None else []
                dialect = as_parquet(path, parquet, names, texts)
            # Buffered, without prefetching: one page of a column is in memory at a time.
            file = pq.ParquetFile(parquet, pre_buffer=False, buffer_size=2**20)
        with file:
            with explain_read_errors(path):
                names = map_columns(file.schema_arrow, names)
                choices = names_of_choices(file, names, dialect)
                names = with_ordered_masks(names, choices)
                log = put_in_order(str(path), file, names, parquet.stat().st_size, step_format)
                categories = find_categories(file, log.names, dialect)
            log = replace(log, categories=categories, choices=choices)
            yield log if form is None else as_told(log, form)


def as_told(log: Log, form: LogForm) -> Log:
    """A log of decisions, with the categories, bounds and choices of its policy."""
    pairs = zip(form.observations, form.columns, strict=True)
    told = {name: column.categories for name, column in pairs if column.categories}
    return replace(log, categories={**log.categories, **told}, task=form.task)


def last_is_whole(cuts: NDArray[np.bool_]) -> bool:
    """Whether the last episode is as long as most of the others; else the log may end within it."""
    ends = np.flatnonzero(cuts)
    return len(ends) > 0 and bool(len(cuts) - 1 - ends[-1] >= np.median(np.diff(ends, prepend=-1)))


def put_in_order(
    source: str, file: pq.ParquetFile, names: Names, size: int, step_format: str | None
) -> Log:
    """Orders the rows by episode and step, and finds where episodes are cut."""
    rows = file.metadata.num_rows
    if rows == 0:
        raise InputError("has no rows")
    if rows > ROWS_PER_BYTE * size:
        raise InputError(f"claims {rows:,} rows in {size:,} bytes; its header is damaged")
    episodes = read_key(file, names, "episode", EpisodeNumbers())
    if step_format is not None:
        require_text(file.schema_arrow, names)
    steps = read_key(file, names, "step", StepNumbers(step_format))
    findings: list[Finding] = []
    order = None
    if episodes is None and steps is not None:
        episodes = np.cumsum(
            np.append(False, steps[1:] <= steps[:-1])
        )  # a step that does not increase
    if episodes is not None and not is_in_order(episodes, steps):
        order = np.lexsort((episodes,) if steps is None else (steps, episodes))
        moved = np.flatnonzero(order != np.arange(rows))
        findings.append(rows_moved(order, moved))
        episodes, steps = episodes[order], None if steps is None else steps[order]
    cuts = np.zeros(rows, bool)
    if episodes is not None:
        cuts[:-1] = episodes[1:] != episodes[:-1]
        cuts[-1] = "episode" in names and last_is_whole(cuts)
    if steps is not None:
        findings += find_gaps(steps, cuts, order)
    if "terminated" not in names:
        findings.append(no_terminals())
    return Log(source, file, names, order, cuts, tuple(findings))
