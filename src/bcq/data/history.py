"""Past steps as part of an observation, where one reading does not make a state.

An observation is the newest reading, then for each lag the reading and the action of that step, the
newest first: `inside`, `inside@-1`, `heat@-1`, `inside@-2`, `heat@-2`. Past actions are on the
learner's scale, whatever the unit. Nothing reaches back before the first step of an episode: its
reading is repeated, since a made-up one could lie anywhere, and past actions are 0, the centre of
the bounds.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from bcq.data.bounds import ActionBounds, Choices, TaskSpec
from bcq.data.columns import Column, Columns, Floats
from bcq.data.episodes import first_rows
from bcq.data.layout import Layout, ObservationColumn, Past
from bcq.system.errors import InputError


def as_past(actions: Floats, bounds: ActionBounds) -> Floats:
    """Actions as numbers of later observations; all of them are 0 where there was no action.

    A choice becomes one number for each choice, 1 for the one that was taken.
    """
    if isinstance(bounds, Choices):
        return (actions == np.arange(bounds.outputs)).astype(np.float32)
    return bounds.normalise(actions)


def with_past(arrays: Mapping[str, Column], lags: int, bounds: ActionBounds) -> dict[str, Column]:
    """Transitions whose observations include past steps of their episode.

    The next observation has the action of its row as its newest past action.
    """
    observations, done = arrays["observations"], as_past(arrays["actions"], bounds)
    begins = first_rows(arrays["terminated"] | arrays["truncated"])
    rows, past = np.arange(len(begins)), []
    for lag in range(1, lags + 1):
        past.append(observations[np.maximum(rows - lag, begins)])
        past.append(np.where((rows - lag >= begins)[:, None], done[rows - lag], np.float32(0)))
    following = [arrays["next_observations"], observations, done, *past[:-2]]
    return {
        **arrays,
        "observations": np.concatenate([observations, *past], axis=1),
        "next_observations": np.concatenate(following, axis=1),
    }


def layout_with_past(columns: Columns, bounds: ActionBounds) -> Layout:
    """The layout of observations that include the past steps that the columns ask for."""
    size = columns.arrays["observations"].shape[1]
    action_size = as_past(bounds.centre[None], bounds).shape[1]
    names, actions = (tuple(columns.names.get(name, ())) for name in ("observations", "actions"))
    if isinstance(bounds, Choices):
        actions = tuple(f"{name}={choice}" for name in actions for choice in bounds.names)
    known = tuple(map(ObservationColumn, names)) if len(names) == size else ()
    return Layout(
        columns.layout.columns or known,  # an array has one name for all of its numbers
        Past(columns.lags, size, action_size, actions if len(actions) == action_size else ()),
    )


class History:
    """The past steps of one episode, for acting with a policy that needs them.

    Call `observe` with each reading and give the result to the policy, then call `acted` with the
    action that was really taken. Each episode needs a history of its own.
    """

    def __init__(self, task: TaskSpec, past: Floats | None = None):
        """Begins an episode, or continues one after the past numbers of an observation."""
        self.task = task
        self.past = past
        self.reading: Floats | None = None  # the newest, until its action is known

    def observe(self, reading: ArrayLike | Mapping[str, Any]) -> Floats:
        """The observation of the policy: a reading, or a row of a table by name, and the past."""
        if self.reading is not None:
            raise InputError("history: the last reading has no action yet; call acted first")
        given = self.task.encode(reading) if isinstance(reading, Mapping) else reading
        found = np.asarray(given, np.float32)
        if found.shape != (self.task.reading_size,):
            raise InputError(
                f"history: a reading has shape {found.shape}, not ({self.task.reading_size},)"
            )
        kept = self.task.layout.past
        if self.past is None:
            none = np.zeros(0 if kept is None else kept.action_size, np.float32)
            self.past = np.tile(np.append(found, none), 0 if kept is None else kept.lags)
        self.reading = found
        return np.append(found, self.past)

    def acted(self, action: ArrayLike) -> None:
        """Takes note of the action after the last reading, in the units of the data."""
        found, bounds = np.asarray(action, np.float32), self.task.bounds
        if self.reading is None or self.past is None:
            raise InputError("history: there is no reading before this action; call observe first")
        if found.shape != bounds.low.shape:
            raise InputError(f"history: an action has shape {found.shape}, not {bounds.low.shape}")
        step = np.append(self.reading, as_past(found[None], bounds)[0])
        self.past = np.append(step, self.past)[: len(self.past)]
        self.reading = None
