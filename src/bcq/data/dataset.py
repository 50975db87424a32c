"""The paper's batch B: logged transitions, checked once and then immutable."""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bcq.system.errors import InputError

Column = NDArray[Any]  # of any dtype, as a file may hold it
Floats = NDArray[np.float32]
Flags = NDArray[np.bool_]

REQUIRED = ("observations", "actions", "rewards", "terminated")
MATRICES = ("observations", "actions", "next_observations", "qpos", "qvel")
FLAGS = ("terminated", "truncated")
NUMBERS = "biuf"  # NumPy's kinds: bool, int, unsigned, float
BOUNDS_TOLERANCE = (
    1e-5  # of the half-width: what rounding to float32 may do to an action at a bound
)


@dataclass(frozen=True)
class Provenance:
    """Where a batch comes from, as far as is known."""

    environment: str | None = None
    recipe: str | None = None
    behaviour: str | None = None
    seed: int | None = None
    version: str | None = None


@dataclass(frozen=True, eq=False)
class ActionBounds:
    """The box actions live in, and the affine map between it and [-1, 1] in each dimension.

    Where low is high the action is a constant, which becomes 0.
    """

    low: Floats  # (action_size,)
    high: Floats

    def __post_init__(self) -> None:
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is refused below
            for name, values in (("low", self.low), ("high", self.high)):
                object.__setattr__(self, name, frozen(np.array(values, np.float32).reshape(-1)))
            usable = self.low.shape == self.high.shape and np.isfinite(self.half_width).all()
        if not usable:
            raise InputError(
                "action bounds must be finite and of one length, "
                f"not {self.low.tolist()} and {self.high.tolist()}"
            )
        if (self.low > self.high).any():
            dimension = int(np.argmax(self.low > self.high))
            raise InputError(
                f"action bounds: low {self.low[dimension]} is above high "
                f"{self.high[dimension]} in dimension {dimension}"
            )

    @classmethod
    def of_data(cls, lowest: Column, highest: Column, margin: float) -> "ActionBounds":
        """The range that actions were seen in, widened on each side by a share of its width.

        A dimension that never moved keeps its one value: there is nothing to learn in it.
        """
        if not 0 <= margin < np.inf:
            raise InputError(f"action_margin: {margin} is not a share of the actions' range")
        room: Column = margin * (highest - lowest)
        low: Column = lowest - room
        high: Column = highest + room
        return cls(low, high)

    @property
    def centre(self) -> Floats:
        """The action that becomes 0."""
        return (self.low + self.high) / np.float32(2)

    @property
    def half_width(self) -> Floats:
        """How far a bound is from the centre."""
        return (self.high - self.low) / np.float32(2)

    def normalise(self, actions: Floats) -> Floats:
        """The environment's scale to [-1, 1]."""
        width = np.where(self.half_width > 0, self.half_width, 1).astype(np.float32)
        return (actions - self.centre) / width

    def denormalise(self, actions: Floats) -> Floats:
        """[-1, 1] to the environment's scale, never past a bound."""
        return np.clip(actions * self.half_width + self.centre, self.low, self.high)


@dataclass(frozen=True)
class TaskSpec:
    """What a policy must know of its task."""

    observation_size: int
    bounds: ActionBounds

    @property
    def action_size(self) -> int:
        """How many numbers an action has."""
        return len(self.bounds.low)

    def as_json(self) -> dict[str, Any]:
        """The form it has in a file."""
        return {
            "observation_size": self.observation_size,
            "action_low": self.bounds.low.tolist(),
            "action_high": self.bounds.high.tolist(),
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "TaskSpec":
        """The inverse of `as_json`; of anything else, a ValueError."""
        try:
            low, high = (np.array(content[name], float) for name in ("action_low", "action_high"))
            size, bounds = content["observation_size"], ActionBounds(low, high)
        except (KeyError, TypeError, InputError) as error:
            raise ValueError(f"task: {error!r}") from error
        if type(size) is not int or size < 1 or low.size < 1:
            raise ValueError(f"task: observations of size {size}, actions of size {low.size}")
        return cls(size, bounds)


Severity = Literal["error", "warning", "note"]


@dataclass(frozen=True, eq=False)
class Finding:
    """Something about the data that its user should know. Errors are what no batch may have."""

    kind: str
    field: str
    problem: str
    remedy: str
    why: str = ""
    rows: NDArray[np.int64] | None = None  # all rows concerned, where it is about rows
    severity: Severity = "error"

    def __str__(self) -> str:
        where = self.field if self.rows is None else f"{self.field}, row {self.rows[0]}"
        return f"{where}: {self.problem}; {self.remedy}"


@dataclass(frozen=True)
class Columns:
    """What a file holds, under this project's names, before any judgement."""

    source: str
    arrays: Mapping[str, Column]
    provenance: Provenance
    action_low: Column | None = None
    action_high: Column | None = None
    rows: NDArray[np.int64] | None = None  # of the file, where they are not 0, 1, 2, ...
    findings: tuple[Finding, ...] = ()  # what reading it brought to light

    def in_file(self, finding: Finding) -> Finding:
        """The same finding with its rows numbered as in the file."""
        if self.rows is None or finding.rows is None:
            return finding
        return replace(finding, rows=np.sort(self.rows[finding.rows]))


Check = Callable[[Mapping[str, Column]], Iterator[Finding]]


def missing_fields(arrays: Mapping[str, Column]) -> Iterator[Finding]:
    """A batch needs observations, actions, rewards and how its episodes end."""
    for name in REQUIRED:
        if name not in arrays:
            yield Finding(
                "missing-field",
                name,
                "is missing",
                f"the file must hold it (it holds {', '.join(arrays) or 'none'})",
                "a transition is an observation, an action, a reward and whether it ended there",
            )


def not_numbers(arrays: Mapping[str, Column]) -> Iterator[Finding]:
    """Object arrays and text are refused: reading them could run code."""
    for name, values in arrays.items():
        if values.dtype.kind not in NUMBERS:
            yield Finding(
                "not-numbers",
                name,
                f"holds {values.dtype}, not numbers",
                "store it as float32",
                "only numbers can be learned from, and objects could run code when they are read",
            )


def wrong_shapes(arrays: Mapping[str, Column]) -> Iterator[Finding]:
    """Matrices have a row and scalars a number a transition."""
    why = "each row of each field must belong to one transition"
    for name, values in arrays.items():
        dimensions = 2 if name in MATRICES else 1
        if values.ndim != dimensions:
            shape = "(transitions, size)" if dimensions == 2 else "(transitions,)"
            problem, remedy = f"has shape {values.shape}", f"it must be {shape}"
            yield Finding("wrong-shape", name, problem, remedy, why)
        elif dimensions == 2 and values.shape[1] == 0:
            remedy = "each row needs at least one number"
            yield Finding("wrong-shape", name, "has no columns", remedy, why)
    following, observations = arrays.get("next_observations"), arrays["observations"]
    if following is not None and following.shape[1:] != observations.shape[1:]:
        yield Finding(
            "wrong-shape",
            "next_observations",
            f"has rows of shape {following.shape[1:]}",
            f"they must match the observations' {observations.shape[1:]}",
            why,
        )


def different_lengths(arrays: Mapping[str, Column]) -> Iterator[Finding]:
    """Every column has one entry a transition."""
    rows = len(arrays["observations"])
    why = "row i of each field must belong to transition i"
    if rows == 0:
        remedy = "a batch needs at least one transition"
        yield Finding("different-lengths", "observations", "has no rows", remedy, why)
    for name, values in arrays.items():
        if len(values) != rows:
            yield Finding(
                "different-lengths",
                name,
                f"has {len(values)} rows but observations has {rows}",
                "every column needs one row a transition",
                why,
            )


def not_finite(arrays: Mapping[str, Column]) -> Iterator[Finding]:
    """NaN and infinity (also what is too large for float32) would spread to every weight."""
    for name, values in arrays.items():
        bad = ~np.isfinite(values)
        if bad.any():
            place = tuple(int(index[0]) for index in np.nonzero(bad))
            yield Finding(
                "not-finite",
                name,
                f"is {values[place]} (one of {int(bad.sum())} values that are not finite)",
                "remove or repair these rows",
                "one such number spreads to every weight; also what is too large for float32",
                np.flatnonzero(bad.reshape(len(bad), -1).any(axis=1)),
            )


def not_flags(arrays: Mapping[str, Column]) -> Iterator[Finding]:
    """Ends of episodes are yes or no."""
    for name in FLAGS:
        values = arrays.get(name)
        if values is not None and values.dtype.kind != "b":
            bad = np.flatnonzero(np.isfinite(values) & (values != 0) & (values != 1))
            if len(bad):
                problem, remedy = f"is {values[bad[0]]}", "it must be 0 or 1"
                why = "an episode ends at a row or it does not"
                yield Finding("not-a-flag", name, problem, remedy, why, bad)


# Error-level checks, in the order in which one makes the next possible; those of the last row
# look at single values and need not wait for one another.
STRUCTURE: tuple[Check, ...] = (missing_fields, not_numbers, wrong_shapes, different_lengths)
CONTENT: tuple[Check, ...] = (not_finite, not_flags)


def out_of_bounds(actions: Floats, bounds: ActionBounds) -> Iterator[Finding]:
    """Actions must lie in the box that the policy is told about."""
    why = "the policy only ever proposes actions within the bounds"
    if actions.shape[1] != len(bounds.low):
        yield Finding(
            "out-of-bounds",
            "actions",
            f"have {actions.shape[1]} dimensions but the bounds have {len(bounds.low)}",
            "give as many bounds as dimensions",
            why,
        )
        return
    beyond = np.maximum(bounds.low - actions, actions - bounds.high)
    bad = np.flatnonzero((beyond > BOUNDS_TOLERANCE * bounds.half_width).any(axis=1))
    if len(bad):
        yield Finding(
            "out-of-bounds",
            "actions",
            f"{actions[bad[0]].tolist()} is not between {bounds.low.tolist()} and "
            f"{bounds.high.tolist()} (one of {len(bad)} such rows)",
            "give the true bounds with --action-low and --action-high, or take those of the data "
            "with --action-margin 0.05",
            why,
            bad,
        )


def errors(columns: Columns, bounds: ActionBounds | None) -> list[Finding]:
    """All that keeps these columns from being a batch: what a `Dataset` refuses."""
    arrays = as_stored_all(columns.arrays)
    for check in STRUCTURE:
        if found := list(check(arrays)):
            return found
    found = [finding for check in CONTENT for finding in check(arrays)]
    bounds = bounds or bounds_of(columns, arrays["actions"].shape[1])
    return [columns.in_file(f) for f in (*found, *out_of_bounds(arrays["actions"], bounds))]


def require_sound(columns: Columns, bounds: ActionBounds | None) -> None:
    """Raises on the first error, naming it and counting the rest."""
    if found := errors(columns, bounds):
        others = f" (and {len(found) - 1} more such problems)" if len(found) > 1 else ""
        raise InputError(f"{columns.source}: {found[0]}{others}")


@dataclass(frozen=True, eq=False)
class Dataset:
    """The batch B: one transition a row, in the order they were logged.

    `terminated` marks the environment's own ends, `truncated` those of a time limit or of the
    log; never both. `qpos` and `qvel` are the simulator's state before the step, if known.
    """

    observations: Floats
    actions: Floats
    rewards: Floats
    next_observations: Floats
    terminated: Flags
    truncated: Flags
    bounds: ActionBounds
    provenance: Provenance
    qpos: NDArray[np.float64] | None = None
    qvel: NDArray[np.float64] | None = None

    @classmethod
    def from_columns(cls, columns: Columns, bounds: ActionBounds | None = None) -> "Dataset":
        """Checks the columns and makes the batch; `bounds` goes before what the file says.

        With neither, [-1, 1] is taken if every action fits. The batch takes the arrays over: they
        are not copied and become read-only.
        """
        columns = replace(columns, arrays=as_stored_all(columns.arrays))
        require_sound(columns, bounds)
        arrays = with_flags(columns.arrays)
        if "next_observations" not in arrays:
            arrays = paired_within_episodes(arrays)
        if len(arrays["rewards"]) == 0:
            raise InputError(
                f"{columns.source}: next_observations: is missing, and every row ends an episode; "
                "the file must hold it"
            )
        bounds = bounds or bounds_of(columns, arrays["actions"].shape[1])
        fields = {name: frozen(values) for name, values in arrays.items()}
        return cls(**fields, bounds=bounds, provenance=columns.provenance)

    def __len__(self) -> int:
        return len(self.rewards)

    @property
    def task(self) -> TaskSpec:
        """What a policy for this data must know."""
        return TaskSpec(self.observations.shape[1], self.bounds)

    @cached_property
    def episodes(self) -> NDArray[np.int64]:
        """First row and row past the end of each episode, (episodes, 2), in order."""
        stops = np.flatnonzero(self.terminated | self.truncated) + 1
        if len(stops) == 0 or stops[-1] != len(self):
            stops = np.append(stops, len(self))  # an unfinished last episode
        return np.stack([np.concatenate([[0], stops[:-1]]), stops], axis=1)

    @cached_property
    def episode_returns(self) -> NDArray[np.float64]:
        """Undiscounted return of each episode that was logged to its end."""
        starts, stops = self.episodes.T
        complete = (self.terminated | self.truncated)[stops - 1]
        returns = np.add.reduceat(self.rewards.astype(np.float64), starts)
        return returns[complete]

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of everything that training can see."""
        digest = hashlib.sha256()
        for name in ("observations", "actions", "rewards", "next_observations", *FLAGS):
            values = np.ascontiguousarray(getattr(self, name))
            digest.update(f"{name} {values.dtype.str} {values.shape}".encode())
            digest.update(values.data)
        digest.update(self.bounds.low.tobytes() + self.bounds.high.tobytes())
        return digest.hexdigest()

    def columns(self) -> Columns:
        """What a file should hold."""
        names = (*MATRICES, "rewards", *FLAGS)
        arrays = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        return Columns("dataset", arrays, self.provenance, self.bounds.low, self.bounds.high)


def as_stored(name: str, values: Column) -> Column:
    """The shape and precision a column is kept in; what is no number is left for the checks."""
    if name not in MATRICES and values.shape[1:] == (1,):
        values = values[:, 0]
    if values.dtype.kind not in NUMBERS or name in FLAGS:
        return values
    with np.errstate(over="ignore"):  # found by `not_finite`
        return values.astype(precision(name), copy=False)


def precision(name: str) -> type[np.float32 | np.float64]:
    """float32, but for simulator states, which need every bit to be set again."""
    return np.float64 if name in ("qpos", "qvel") else np.float32


def as_stored_all(arrays: Mapping[str, Column]) -> dict[str, Column]:
    """Every column in the shape and precision it is kept in."""
    return {name: as_stored(name, values) for name, values in arrays.items()}


def with_flags(arrays: Mapping[str, Column]) -> dict[str, Column]:
    """The same columns with both flags there, as booleans and never both set: terminated wins."""
    terminated = arrays["terminated"].astype(bool)
    truncated = arrays.get("truncated", np.zeros(len(terminated))).astype(bool) & ~terminated
    return {**arrays, "terminated": terminated, "truncated": truncated}


def frozen(values: Column) -> Column:
    """The same numbers, contiguous and read-only, for whoever else holds the array too."""
    values = np.ascontiguousarray(values)
    values.flags.writeable = False
    return values


def paired_within_episodes(arrays: Mapping[str, Column]) -> dict[str, Column]:
    """Derives next observations from the following row, never across an end.

    What follows the last row of an episode is not in the file. A terminal needs no successor (its
    value is the reward alone, Eq. 25), so the row stays, with its own observation in that place. A
    cut episode's last row cannot bootstrap and is left out; the row before it ends the episode.
    """
    observations, terminated, truncated = (
        arrays[name] for name in ("observations", "terminated", "truncated")
    )
    following = np.concatenate([observations[1:], observations[-1:]])
    following[terminated] = observations[terminated]
    unknown = truncated.copy()
    unknown[-1] |= ~terminated[-1]
    cut_before = np.append(truncated[1:], False) & ~(terminated | truncated)
    paired = {**arrays, "next_observations": following, "truncated": truncated | cut_before}
    return {name: values[~unknown] for name, values in paired.items()}


def bounds_of(columns: Columns, size: int) -> ActionBounds:
    """The file's own bounds, or [-1, 1] where it names none."""
    low, high = columns.action_low, columns.action_high
    if low is None and high is None:
        return ActionBounds(np.full(size, -1.0), np.full(size, 1.0))
    if low is None or high is None:
        raise InputError(f"{columns.source}: names only one of action_low and action_high")
    try:
        return ActionBounds(low, high)
    except InputError as error:
        raise InputError(f"{columns.source}: {error}") from error
