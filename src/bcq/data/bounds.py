"""Action bounds, and what a policy must know about its task."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from bcq.data.columns import Column, Flags, Floats, frozen
from bcq.data.layout import PLAIN, Layout
from bcq.data.scaling import Scaling
from bcq.system.errors import InputError


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

    def normalise(self, actions: Floats) -> Floats:
        """Maps actions to [-1, 1]."""
        width = np.where(self.half_width > 0, self.half_width, 1).astype(np.float32)
        return (actions - self.centre) / width

    def denormalise(self, actions: Floats) -> Floats:
        """Maps actions from [-1, 1] back to their own scale, clipped to the bounds."""
        return np.clip(actions * self.half_width + self.centre, self.low, self.high)


@dataclass(frozen=True)
class TaskSpec:
    """What a policy must know about its task."""

    observation_size: int
    bounds: ActionBounds
    scaling: Scaling | None = None  # of observations and rewards; None: they are used as they are
    layout: Layout = PLAIN  # of observations

    @property
    def action_size(self) -> int:
        """Number of action dimensions."""
        return len(self.bounds.low)

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
            **({} if self.scaling is None else {"scaling": self.scaling.as_json()}),
            **({} if self.layout == PLAIN else {"layout": self.layout.as_json()}),
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "TaskSpec":
        """The inverse of `as_json`; raises ValueError for anything else."""
        try:
            low, high = (np.array(content[name], float) for name in ("action_low", "action_high"))
            size, bounds = content["observation_size"], ActionBounds(low, high)
        except (KeyError, TypeError, InputError) as error:
            raise ValueError(f"task: {error!r}") from error
        if type(size) is not int or size < 1 or low.size < 1:
            raise ValueError(f"task: observations of size {size}, actions of size {low.size}")
        scaling = content.get("scaling")
        layout = Layout.from_json(content["layout"]) if "layout" in content else PLAIN
        layout.require_size(size)
        known = None if scaling is None else Scaling.from_json(scaling, size)
        return cls(size, bounds, known, layout)
