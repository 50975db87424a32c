"""The paper's batch B: logged transitions, checked once and then immutable."""

import hashlib
import json
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from bcq.data.bounds import ActionBounds, Choices, TaskSpec
from bcq.data.checks import Checked, check
from bcq.data.columns import (
    FLAGS,
    MASKS,
    MATRICES,
    Columns,
    Flags,
    Floats,
    Provenance,
    frozen,
)
from bcq.data.episodes import episode_spans, transitions
from bcq.data.history import layout_with_past, with_past
from bcq.data.layout import PLAIN, Layout
from bcq.system.errors import InputError


@dataclass(frozen=True, eq=False)
class Dataset:
    """The batch B: one transition per row, in the order of the log.

    `terminated` marks ends by the environment itself, `truncated` ends by a time limit or by a
    cut in the log; no row has both. If `bounds` are `Choices`, an action is the number of a choice.
    If known: `qpos` and `qvel` are the simulator's state before the step, `permitted` and
    `next_permitted` say which choices there are before and after it, and `propensities` are the
    probabilities (for continuous actions, densities) that the behaviour gave to its actions.
    `layout` says what the numbers of an observation are, where a table has text or where they
    include past steps.
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
    permitted: Flags | None = None  # (transitions, choices)
    next_permitted: Flags | None = None
    propensities: Floats | None = None  # (transitions,)
    layout: Layout = PLAIN

    @classmethod
    def from_columns(cls, columns: Columns, bounds: ActionBounds | None = None) -> "Dataset":
        """Checks the columns and makes the batch; `bounds` override those of the file.

        Without either, the bounds are [-1, 1], and every action must fit. The arrays are not
        copied; they become read-only.
        """
        return cls.from_checked(check(columns, bounds))

    @classmethod
    def from_checked(cls, checked: Checked) -> "Dataset":
        """Makes the batch from columns that have been checked."""
        bounds, arrays = checked.require_sound(), transitions(checked.columns)
        if len(arrays["rewards"]) == 0:
            raise InputError(
                f"{checked.columns.source}: next_observations: is missing, and every row ends an "
                "episode; store it in the file"
            )
        columns, layout = checked.columns, checked.columns.layout
        if columns.lags:
            layout = layout_with_past(columns, bounds)
            arrays = with_past(arrays, columns.lags, bounds)
        fields = {name: frozen(values) for name, values in arrays.items()}
        return cls(**fields, bounds=bounds, provenance=columns.provenance, layout=layout)

    def __len__(self) -> int:
        return len(self.rewards)

    @property
    def task(self) -> TaskSpec:
        """What a policy for this data must know about its task."""
        return TaskSpec(self.observations.shape[1], self.bounds, layout=self.layout)

    @cached_property
    def is_end(self) -> Flags:
        """Whether each row is the last of its episode."""
        return self.terminated | self.truncated

    @cached_property
    def episodes(self) -> NDArray[np.int64]:
        """First row and row past the end of each episode, (episodes, 2), in order."""
        return episode_spans(self.is_end)

    @cached_property
    def episode_returns(self) -> NDArray[np.float64]:
        """Undiscounted return of each episode that was logged to its end."""
        starts, stops = self.episodes.T
        returns = np.add.reduceat(self.rewards.astype(np.float64), starts)
        return returns[self.is_end[stops - 1]]

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of everything that training can see."""
        digest = hashlib.sha256()
        masks = MASKS if self.permitted is not None else ()
        for name in ("observations", "actions", "rewards", "next_observations", *FLAGS, *masks):
            values = np.ascontiguousarray(getattr(self, name))
            digest.update(f"{name} {values.dtype.str} {values.shape}".encode())
            digest.update(values.data)
        digest.update(self.bounds.low.tobytes() + self.bounds.high.tobytes())
        if isinstance(self.bounds, Choices):
            digest.update(json.dumps(self.bounds.names).encode())
        return digest.hexdigest()

    def columns(self) -> Columns:
        """The content of a file that stores this batch."""
        names = (*MATRICES, "rewards", *FLAGS, "propensities")
        arrays = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        known = Columns("dataset", arrays, self.provenance, layout=self.layout)
        if (choices := self.task.choices) is not None:
            return replace(known, choices=choices)
        return replace(known, action_low=self.bounds.low, action_high=self.bounds.high)
