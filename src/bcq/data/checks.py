"""Errors that make a batch unusable, each with its rows and its remedy."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bcq.data.bounds import ActionBounds
from bcq.data.columns import (
    FLAGS,
    MATRICES,
    NUMBERS,
    Column,
    Columns,
    Finding,
    Floats,
    as_stored_all,
)
from bcq.system.errors import InputError

REQUIRED = ("observations", "actions", "rewards", "terminated")


BOUNDS_TOLERANCE = (
    1e-5  # of the half-width: rounding to float32 can move an action this far past its bound
)


Check = Callable[[Mapping[str, Column]], Iterator[Finding]]


def missing_fields(arrays: Mapping[str, Column]) -> Iterator[Finding]:
    """A batch needs observations, actions, rewards and how its episodes end."""
    for name in REQUIRED:
        if name not in arrays:
            yield Finding(
                "missing-field",
                name,
                "is missing",
                f"store it in the file (the file has {', '.join(arrays) or 'none'})",
                "a transition is an observation, an action, a reward and whether the episode ended",
            )


def not_numbers(arrays: Mapping[str, Column]) -> Iterator[Finding]:
    """Object arrays and text are refused: reading them could run code."""
    for name, values in arrays.items():
        if values.dtype.kind not in NUMBERS:
            yield Finding(
                "not-numbers",
                name,
                f"contains {values.dtype}, not numbers",
                "store it as float32",
                "training needs numbers, and objects could run code when they are read",
            )


def wrong_shapes(arrays: Mapping[str, Column]) -> Iterator[Finding]:
    """Matrices have one row per transition, the other columns one number."""
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
            f"they must match the {observations.shape[1:]} of observations",
            why,
        )


def different_lengths(arrays: Mapping[str, Column]) -> Iterator[Finding]:
    """Every column has one entry per transition."""
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
                "every column needs one row per transition",
                why,
            )


def not_finite(
    arrays: Mapping[str, Column], names: Mapping[str, Sequence[str]]
) -> Iterator[Finding]:
    """NaN and infinity would spread to every weight; numbers too large for float32 count too."""
    for name, values in arrays.items():
        bad = ~np.isfinite(values)
        if bad.any():
            place = tuple(int(index[0]) for index in np.nonzero(bad))
            named = values.ndim == 2 and len(names.get(name, ())) == values.shape[1]
            column = f"{names[name][place[1]]} " if named else ""
            yield Finding(
                "not-finite",
                name,
                f"{column}is {values[place]} (one of {int(bad.sum())} values that are not finite)",
                "remove or repair these rows, or set missing to fill or cut if cells are missing",
                "one such number spreads to every weight; numbers too large for float32 count too",
                np.flatnonzero(bad.reshape(len(bad), -1).any(axis=1)),
                option="fix",
            )


def not_flags(arrays: Mapping[str, Column]) -> Iterator[Finding]:
    """Flags are 0 or 1."""
    for name in FLAGS:
        values = arrays.get(name)
        if values is not None and values.dtype.kind != "b":
            bad = np.flatnonzero(np.isfinite(values) & (values != 0) & (values != 1))
            if len(bad):
                problem, remedy = f"is {values[bad[0]]}", "it must be 0 or 1"
                why = "an episode either ends at a row or does not"
                yield Finding("not-a-flag", name, problem, remedy, why, bad)


# Each of these checks relies on the ones before it.
STRUCTURE: tuple[Check, ...] = (missing_fields, not_numbers, wrong_shapes, different_lengths)


def out_of_bounds(actions: Floats, bounds: ActionBounds) -> Iterator[Finding]:
    """Actions must lie within the bounds of the policy."""
    why = "the policy proposes only actions within the bounds"
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
            "give the true bounds as action_low and action_high, or take them from the data with "
            "action_margin",
            why,
            bad,
            option="action_margin",
        )


@dataclass(frozen=True, eq=False)
class Checked:
    """Columns in their stored types, with all errors that were found in them."""

    columns: Columns
    bounds: ActionBounds | None  # None if errors prevent them from being known
    errors: tuple[Finding, ...]  # their rows are those of the columns, not of the file

    def require_sound(self) -> ActionBounds:
        """Returns the bounds, or raises the first error with the number of the others."""
        if self.errors or self.bounds is None:
            others = f" (other problems: {len(self.errors) - 1})" * (len(self.errors) > 1)
            first = self.columns.in_file(self.errors[0])
            raise InputError(f"{self.columns.source}: {first}{others}", option=first.option)
        return self.bounds


def is_well_formed(columns: Columns) -> bool:
    """Whether every field is there, with numbers in the right shape."""
    arrays = as_stored_all(columns.arrays)
    return not any(next(look(arrays), None) for look in STRUCTURE)


def check(columns: Columns, bounds: ActionBounds | None = None) -> Checked:
    """Finds all errors of the columns; `bounds` override those of the file."""
    columns = replace(columns, arrays=as_stored_all(columns.arrays))
    for look in STRUCTURE:
        if found := tuple(look(columns.arrays)):
            return Checked(columns, None, found)
    found = (*not_finite(columns.arrays, columns.labels), *not_flags(columns.arrays))
    actions = columns.arrays["actions"]
    bounds = bounds or bounds_of(columns, actions.shape[1])
    return Checked(columns, bounds, (*found, *out_of_bounds(actions, bounds)))


def bounds_of(columns: Columns, size: int) -> ActionBounds:
    """The bounds in the file, or [-1, 1] if it has none."""
    low, high = columns.action_low, columns.action_high
    if low is None and high is None:
        return ActionBounds(np.full(size, -1.0), np.full(size, 1.0))
    if low is None or high is None:
        raise InputError(f"{columns.source}: contains only one of action_low and action_high")
    try:
        return ActionBounds(low, high)
    except InputError as error:
        raise error.within(columns.source) from error
