"""A batch as it is stored in its file, for the checks of the doctor."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from bcq.data.bounds import ActionBounds, Choices
from bcq.data.columns import Finding, Flags, Floats
from bcq.data.episodes import episode_spans

SAME = 1e-3  # of a column's standard deviation: closer numbers are equal up to rounding


@dataclass(frozen=True, eq=False)
class StoredBatch:
    """A batch as it is stored in its file, for the checks of the doctor."""

    observations: Floats
    actions: Floats
    rewards: Floats
    next_observations: Floats | None
    terminated: Flags  # as stored: both flags may be set
    truncated: Flags
    bounds: ActionBounds
    discount: float | None  # of the algorithm; None if it has none
    names: Mapping[str, Sequence[str]] = field(default_factory=dict)  # of columns, by role

    def __len__(self) -> int:
        return len(self.rewards)

    @cached_property
    def rows(self) -> NDArray[np.int64]:
        """All row numbers."""
        return np.arange(len(self))

    @cached_property
    def is_end(self) -> Flags:
        """Whether each row is the last of its episode."""
        return self.terminated | self.truncated

    @cached_property
    def ends(self) -> NDArray[np.int64]:
        """Rows that end an episode."""
        return np.flatnonzero(self.is_end)

    @cached_property
    def episodes(self) -> NDArray[np.int64]:
        """First row and row past the end of each episode, the unfinished one included."""
        return episode_spans(self.is_end)

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        """Number of rows of each complete episode."""
        return np.diff(self.ends, prepend=-1)

    @cached_property
    def inside(self) -> Flags:
        """For each row except the last: whether the next row is in the same episode."""
        return ~self.is_end[:-1]

    @cached_property
    def spread(self) -> NDArray[np.float64]:
        """Standard deviation of each observation column."""
        return self.observations.std(axis=0, dtype=np.float64)

    @cached_property
    def signals(self) -> Floats:
        """The actions as numbers that a regression can use: choices have no order."""
        if isinstance(self.bounds, Choices):
            return (self.actions == np.arange(self.bounds.outputs)).astype(np.float32)
        return self.actions

    def same(self, one: Floats, other: Floats) -> Flags:
        """For each row, whether two observations are equal up to rounding."""
        return (np.abs(one - other) <= (SAME * self.spread).astype(np.float32)).all(axis=1)

    def in_words(self, role: str, columns: Sequence[int] | NDArray[np.int64]) -> str:
        """For example column 3, or columns inside, outside and 5 more: by name, if it is known."""
        names, width = self.names.get(role, ()), getattr(self, role).shape[1]
        known = names if len(names) >= width else range(width)  # an array can have one name
        shown = ", ".join(str(known[i]) for i in columns[:8])
        more = f" and {len(columns) - 8} more" if len(columns) > 8 else ""
        return f"column{'s' if len(columns) > 1 else ''} {shown}{more}"


AdvisoryCheck = Callable[[StoredBatch], Iterator[Finding]]
