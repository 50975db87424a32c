"""The only way to read a batch: a source and options become columns, which are checked once."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from bcq.data.actions import ActionKind, SeenActions
from bcq.data.bounds import ActionBounds
from bcq.data.checks import Checked, check, is_well_formed
from bcq.data.columns import Columns
from bcq.data.formats import hdf5, minari, npz
from bcq.data.missing import MissingChoice, handle_missing
from bcq.system.errors import InputError
from bcq.system.files import require_regular

SUFFIXES = (".hdf5", ".h5")


TABLES = (".csv", ".parquet")


MOST_LAGS = 1_000  # a mistyped number would exhaust memory


READABLE = (*SUFFIXES, ".npz", *TABLES)


def no_known_bounds(name: str | None) -> ActionBounds | None:
    """The bounds of an environment, if no environment is known: none."""
    del name
    return None


@dataclass(frozen=True, kw_only=True)
class Options:
    """Information that may be missing in a file; see `bcq.load`."""

    columns: Mapping[str, Sequence[str]] = field(default_factory=dict)
    environment: str | None = None
    action_low: Sequence[float] | None = None
    action_high: Sequence[float] | None = None
    action_margin: float | None = None
    action_kind: ActionKind = "auto"
    step_format: str | None = None
    missing: MissingChoice = "refuse"
    lags: int = 0
    bounds_of: Callable[[str | None], ActionBounds | None] = (
        no_known_bounds  # of an environment, by name
    )

    def __post_init__(self) -> None:
        if (self.action_low is None) != (self.action_high is None):
            raise InputError(
                "action_low and action_high must be given together", option="action_low"
            )
        if self.action_low is not None and self.action_margin is not None:
            raise InputError(
                "action_margin replaces action_low and action_high; give one or the other",
                option="action_margin",
            )
        if type(self.lags) is not int or not 0 <= self.lags <= MOST_LAGS:
            raise InputError(f"lags: {self.lags} is not a whole number from 0 to {MOST_LAGS}")

    def bounds(self) -> ActionBounds | None:
        """The bounds that were given, if any."""
        if self.action_low is None or self.action_high is None:
            return None
        return ActionBounds(np.array(self.action_low), np.array(self.action_high))


def read(path: str | Path, options: Options) -> Columns:
    """Reads the content of a file, without checks."""
    path = locate(path)
    if path.suffix in TABLES:
        from bcq.data.formats import tables  # noqa: PLC0415 - pyarrow takes a quarter of a second to import

        return tables.read(path, options.columns, options.step_format)
    if options.step_format is not None:
        raise InputError(f"{path}: has no column of steps; step_format is for tables")
    if path.is_dir():
        return minari.read(path)
    if path.suffix == ".npz":
        return npz.read(path, options.columns)
    if options.columns:
        raise InputError(f"{path}: has the column names of D4RL; columns is for tables and npz")
    return hdf5.read(path)


def locate(name: str | Path) -> Path:
    """The path of a batch; refuses one that does not exist or has an unknown format."""
    path = minari.folder_of(str(name)) if str(name).startswith(minari.PREFIX) else Path(name)
    if not path.exists():
        raise InputError(f"{path}: no such file")
    if is_decision_log(path):
        return path
    if path.is_dir():
        if not any((path / inner).is_file() for inner in ("metadata.json", "data/metadata.json")):
            raise InputError(
                f"{path}: is a folder but not a Minari data set; give the file inside it"
            )
        return path
    require_regular(path)
    if path.suffix not in READABLE:
        raise InputError(f"{path}: unknown file type; known types are {', '.join(READABLE)}")
    return path


def is_decision_log(path: Path) -> bool:
    """Whether a path is a log of decisions, which is a folder of Parquet files."""
    return path.suffix == ".parquet" and path.is_dir()


def open_batch(source: str | Path, options: Options) -> Checked:
    """Reads a file and checks it, with the bounds that `bcq.load` describes."""
    columns = read(source, options)
    require_layout(columns)
    require_one_past(columns, options)
    columns = replace(columns, lags=options.lags)
    missing = options.missing
    if missing == "refuse" and is_decision_log(Path(source)):
        missing = "cut"  # the newest decisions of a log have no rewards yet
    if is_well_formed(columns):
        columns = handle_missing(columns, missing)
    try:
        bounds = bounds_for(options, columns, SeenActions.of_arrays(columns.arrays))
    except InputError as error:
        raise error.within(columns.source) from error
    return check(columns, bounds)


def require_layout(columns: Columns) -> None:
    """Refuses a stored layout of other observations."""
    observations = columns.arrays.get("observations", np.empty(0))
    try:
        if observations.ndim == 2:
            columns.layout.require_size(observations.shape[1])
    except ValueError as error:
        raise InputError(f"{columns.source}: is damaged ({error})") from error


def require_one_past(columns: Columns, options: Options) -> None:
    """Refuses settings that do not fit observations which include past steps already."""
    past = columns.layout.past
    if past is not None and options.lags:
        raise InputError(
            f"{columns.source}: its observations include past steps already (lags: {past.lags}); "
            "leave lags out, or start from the original log"
        )
    if past is not None and (options.bounds() is not None or options.action_margin is not None):
        raise InputError(
            f"{columns.source}: its observations include past actions, scaled by its own action "
            "bounds; give other bounds with the original log"
        )


def bounds_for(options: Options, columns: Columns, seen: SeenActions) -> ActionBounds | None:
    """The bounds or choices that override those of the file; None if the file has its own."""
    given = options.bounds()
    if columns.choices is not None:
        if given is None and options.action_margin is None and options.action_kind != "continuous":
            return None
        raise InputError("actions: are choices; they have no bounds and cannot be continuous")
    if options.action_margin is not None and (found := seen.range()) is not None:
        finite = np.isfinite(found).all()
        return ActionBounds.of_data(*found, options.action_margin) if finite else None
    own = columns.action_low is not None or columns.action_high is not None
    if options.action_kind == "discrete":
        return seen.choices()
    if given is not None or own:
        return given
    known = options.bounds_of(options.environment or columns.provenance.environment)
    if known is None and options.action_kind == "auto" and seen.are_choices():
        return seen.choices()
    return known
