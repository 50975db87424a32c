"""Action bounds or choices, and what a policy must know about its task."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bcq.data.columns import Column, Flags, Floats, frozen
from bcq.data.layout import PLAIN, Layout
from bcq.data.scaling import Scaling
from bcq.system.errors import InputError

MOST_CHOICES = 1_000  # a column with more is a quantity or an identity, not a choice
LONGEST_NAME = 100  # characters


@dataclass(frozen=True, eq=False)
class ActionBounds:
    """The bounds of the actions, and the affine map between them and [-1, 1] in each dimension.

    A dimension with equal bounds is constant: its value maps to 0.
    """

    low: Floats  # (action_size,)
    high: Floats

    def __post_init__(self) -> None:
        with np.errstate(over="ignore", invalid="ignore"):  # infinite values are refused below
            for name, values in (("low", self.low), ("high", self.high)):
                object.__setattr__(self, name, frozen(np.array(values, np.float32).reshape(-1)))
            usable = self.low.shape == self.high.shape and np.isfinite(self.half_width).all()
        if not usable:
            raise InputError(
                "action bounds must be finite and of the same length, "
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
        """The range of the logged actions, widened on each side by a share of its width.

        A constant dimension keeps its value: there is nothing to learn about it.
        """
        if not 0 <= margin < np.inf:
            raise InputError(f"action_margin: {margin} is not 0 or more; give a share of the range")
        room: Column = margin * (highest - lowest)
        low: Column = lowest - room
        high: Column = highest + room
        return cls(low, high)

    @property
    def centre(self) -> Floats:
        """The action that maps to 0."""
        return (self.low + self.high) / np.float32(2)

    @property
    def half_width(self) -> Floats:
        """Distance of each bound from the centre."""
        return (self.high - self.low) / np.float32(2)

    @property
    def outputs(self) -> int:
        """How many numbers a network needs to say for an action."""
        return len(self.low)

    def normalise(self, actions: Floats) -> Column:
        """Maps actions to [-1, 1]."""
        width = np.where(self.half_width > 0, self.half_width, 1).astype(np.float32)
        return (actions - self.centre) / width

    def denormalise(self, actions: Column) -> Floats:
        """Maps actions from [-1, 1] back to their own scale, clipped to the bounds."""
        return np.clip(actions * self.half_width + self.centre, self.low, self.high)


@dataclass(frozen=True, eq=False, init=False)
class Choices(ActionBounds):
    """A finite set of actions. In a batch an action is the number of its choice: 0, 1, ..."""

    names: tuple[str, ...]

    def __init__(self, names: Sequence[str]):
        if not 1 <= len(names) <= MOST_CHOICES:
            raise InputError(
                f"actions: {len(names):,} choices; there must be 1 to {MOST_CHOICES:,}"
            )
        for name in names:
            if not name.isprintable() or not name.strip() or len(name) > LONGEST_NAME:
                raise InputError(
                    f"actions: {name[:LONGEST_NAME]!r} is not a name for a choice; use 1 to "
                    f"{LONGEST_NAME} characters in one line"
                )
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise InputError(f"actions: two choices have the name {twice!r}")
        object.__setattr__(self, "names", tuple(names))
        super().__init__(np.zeros(1, np.float32), np.full(1, len(names) - 1, np.float32))

    @classmethod
    def numbered(cls, count: int) -> "Choices":
        """Choices that have no names but their numbers."""
        if count > MOST_CHOICES:  # before so many names are made
            raise InputError(
                f"actions: {count - 1:.10g} is too large for the number of a choice; at most "
                f"{MOST_CHOICES:,} choices are supported"
            )
        return cls([str(number) for number in range(count)])

    @property
    def outputs(self) -> int:
        """One for each choice."""
        return len(self.names)

    def normalise(self, actions: Floats) -> Column:
        """The numbers of the choices, as learners use them."""
        return actions[..., 0].astype(np.int32)

    def denormalise(self, actions: Column) -> Floats:
        """The numbers of the choices, as a batch stores them."""
        return np.asarray(actions, np.float32)[..., None]


@dataclass(frozen=True)
class TaskSpec:
    """What a policy must know about its task."""

    observation_size: int
    bounds: ActionBounds
    scaling: Scaling | None = None  # of observations and rewards; None: they are used as they are
    layout: Layout = PLAIN  # of observations

    @property
    def action_size(self) -> int:
        """Number of action dimensions, or of choices."""
        return self.bounds.outputs

    @property
    def choices(self) -> tuple[str, ...] | None:
        """The names of the actions, if they are choices."""
        return self.bounds.names if isinstance(self.bounds, Choices) else None

    @property
    def unscaled(self) -> Flags:
        """Which numbers of an observation a scaling leaves as they are."""
        return self.layout.unscaled(self.observation_size)

    @property
    def reading_size(self) -> int:
        """Number of numbers of one reading: an observation without past steps."""
        past = self.layout.past
        return self.observation_size if past is None else past.reading_size

    def encode(self, values: Mapping[str, Any]) -> Floats:
        """The reading of a row of a table, given by the names of its columns.

        Columns may have several rows. A category that the data did not have is refused. Numbers of
        a missing value (None, NaN or an empty text) are NaN; see the fallback of `Policy.act`.
        """
        return self.layout.encode(values)

    def as_json(self) -> dict[str, Any]:
        """The task as JSON values."""
        return {
            "observation_size": self.observation_size,
            "action_low": self.bounds.low.tolist(),
            "action_high": self.bounds.high.tolist(),
            **({"action_names": list(names)} if (names := self.choices) else {}),
            **({} if self.scaling is None else {"scaling": self.scaling.as_json()}),
            **({} if self.layout == PLAIN else {"layout": self.layout.as_json()}),
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "TaskSpec":
        """The inverse of `as_json`; raises ValueError for anything else."""
        try:
            low, high = (np.array(content[name], float) for name in ("action_low", "action_high"))
            names, size = content.get("action_names"), content["observation_size"]
            bounds = ActionBounds(low, high) if names is None else Choices(names)
        except (KeyError, TypeError, AttributeError, InputError) as error:
            raise ValueError(f"task: {error!r}") from error
        if type(size) is not int or size < 1 or low.size < 1:
            raise ValueError(f"task: observations of size {size}, actions of size {low.size}")
        scaling = content.get("scaling")
        layout = Layout.from_json(content["layout"]) if "layout" in content else PLAIN
        layout.require_size(size)
        known = None if scaling is None else Scaling.from_json(scaling, size)
        return cls(size, bounds, known, layout)
