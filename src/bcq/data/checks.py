"""Errors that make a batch unusable, each with its rows and its remedy."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bcq.data.bounds import ActionBounds, Choices
from bcq.data.columns import (
    FLAGS,
    FOLLOWING,
    MASKS,
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


PROBABILITY_TOLERANCE = 1e-6  # rounding to float32 can move a probability this far past 1


Check = Callable[[Mapping[str, Column]], Iterator[Finding]]


def missing_fields(arrays: Mapping[str, Column]) -> Iterator[Finding]:
    """A batch needs observations, actions, rewards and how its episodes end."""
    masked = "permitted" in arrays and "next_observations" in arrays
    for name in (*REQUIRED, *(FOLLOWING if masked else ())):
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
    for name, own in FOLLOWING.items():
        expected = arrays[own].shape[1:] if own in arrays else ()
        if name in arrays and arrays[name].shape[1:] != expected:
            yield Finding(
                "wrong-shape",
                name,
                f"has rows of shape {arrays[name].shape[1:]}",
                f"they must match the {expected} of {own}",
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
    for name in (*FLAGS, *MASKS):
        values = arrays.get(name)
        if values is not None and values.dtype.kind != "b":
            wrong = np.isfinite(values) & (values != 0) & (values != 1)
            if wrong.any():
                problem, remedy = f"is {values[wrong][0]}", "it must be 0 or 1"
                why = "an episode either ends at a row or does not"
                if name in MASKS:
                    why = "a choice is either permitted or not"
                rows = np.flatnonzero(wrong.reshape(len(wrong), -1).any(axis=1))
                yield Finding("not-a-flag", name, problem, remedy, why, rows)


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
    if isinstance(bounds, Choices):
        yield from not_choices(actions[:, 0], bounds)
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


def not_choices(numbers: Floats, choices: Choices) -> Iterator[Finding]:
    """A discrete action is the number of one of the choices."""
    last = len(choices.names) - 1
    whole = (numbers % 1 == 0) & (numbers >= 0) & (numbers <= last)
    bad = np.flatnonzero(np.isfinite(numbers) & ~whole)
    if len(bad):
        yield Finding(
            "not-a-choice",
            "actions",
            f"{numbers[bad[0]]:g} is not the number of a choice, 0 to {last} (one of {len(bad)} "
            "such rows)",
            "number the choices 0, 1, 2, ..., or set action_kind to continuous",
            "the policy proposes only choices",
            bad,
            option="action_kind",
        )


def not_permitted(arrays: Mapping[str, Column], bounds: ActionBounds) -> Iterator[Finding]:
    """A mask has one flag for each choice, and permits the logged action."""
    why, remedy = "values are compared only among permitted choices", "check the mask of this row"
    if "permitted" not in arrays:
        return
    permitted, width = arrays["permitted"] != 0, arrays["permitted"].shape[1]
    if not isinstance(bounds, Choices) or width != bounds.outputs:
        found = bounds.outputs if isinstance(bounds, Choices) else "no"
        problem = f"has {width} columns but there are {found} choices"
        yield Finding("wrong-mask", "permitted", problem, "give one column for each choice", why)
        return
    numbers = arrays["actions"][:, 0]
    taken = numbers[:, None] == np.arange(width)
    forbidden = {"actions": taken.any(axis=1) & ~(taken & permitted).any(axis=1)}
    if "next_permitted" in arrays:  # after a terminal nothing is chosen
        none = ~(arrays["next_permitted"] != 0).any(axis=1)
        forbidden["next_permitted"] = none & (arrays["terminated"] == 0)
    for name, wrong in forbidden.items():
        rows = np.flatnonzero(wrong)
        if len(rows):
            choice = f"choice {numbers[rows[0]]:g} was not" if name == "actions" else "no choice is"
            problem = f"{choice} permitted (one of {len(rows)} such rows)"
            yield Finding("wrong-mask", name, problem, remedy, why, rows)


def not_propensities(arrays: Mapping[str, Column], bounds: ActionBounds) -> Iterator[Finding]:
    """The probability or density of an action that was taken is above 0."""
    values = arrays.get("propensities")
    if values is None:
        return
    most = 1 + PROBABILITY_TOLERANCE if isinstance(bounds, Choices) else np.inf
    bad = np.flatnonzero(np.isfinite(values) & ~((values > 0) & (values <= most)))
    if len(bad):
        words = "between 0 and 1" if isinstance(bounds, Choices) else "above 0"
        yield Finding(
            "not-a-propensity",
            "propensities",
            f"is {values[bad[0]]:g} (one of {len(bad)} such rows)",
            f"it must be {words}: what the behaviour gave to the action that it took",
            "an action of probability 0 cannot have been taken",
            bad,
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
    found += (*not_permitted(columns.arrays, bounds), *not_propensities(columns.arrays, bounds))
    return Checked(columns, bounds, (*found, *out_of_bounds(actions, bounds)))


def bounds_of(columns: Columns, size: int) -> ActionBounds:
    """The choices or bounds in the file, or [-1, 1] if it has none."""
    low, high = columns.action_low, columns.action_high
    if columns.choices is None and low is None and high is None:
        return ActionBounds(np.full(size, -1.0), np.full(size, 1.0))
    try:
        if columns.choices is not None:
            return Choices(columns.choices)
        if low is None or high is None:
            raise InputError("contains only one of action_low and action_high")
        return ActionBounds(low, high)
    except InputError as error:
        raise error.within(columns.source) from error
