"""Where episodes end, and which observation follows which."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from bcq.data.columns import FOLLOWING, MASKS, Column, Columns, Flags


def transitions(columns: Columns) -> dict[str, Column]:
    """The rows that can be used for learning, each with both flags and a next observation."""
    arrays = with_flags(columns.arrays)
    return arrays if "next_observations" in arrays else paired_within_episodes(arrays)


def with_flags(arrays: Mapping[str, Column]) -> dict[str, Column]:
    """Makes all flags boolean and adds a missing one; where both are set, terminated wins."""
    terminated = arrays["terminated"].astype(bool)
    truncated = stored_truncated(arrays).astype(bool) & ~terminated
    masks = {name: arrays[name].astype(bool) for name in MASKS if name in arrays}
    return {**arrays, **masks, "terminated": terminated, "truncated": truncated}


def paired_within_episodes(arrays: Mapping[str, Column]) -> dict[str, Column]:
    """Takes next observations from the following row, only within episodes.

    The observation after the last row of an episode is not in the file. A terminal does not need
    it (its value is the reward alone, Eq. 25): the row stays, with its own observation as the next.
    The last row of a cut episode cannot bootstrap and is left out; the row before it becomes the
    end of the episode.
    """
    terminated, truncated = arrays["terminated"], arrays["truncated"]
    following = {}
    for name, own in FOLLOWING.items():
        if own in arrays:
            following[name] = np.concatenate([arrays[own][1:], arrays[own][-1:]])
            following[name][terminated] = arrays[own][terminated]
    unknown = truncated.copy()
    unknown[-1] |= ~terminated[-1]
    cut_before = np.append(truncated[1:], False) & ~(terminated | truncated)
    paired = {**arrays, **following, "truncated": truncated | cut_before}
    return {name: values[~unknown] for name, values in paired.items()}


def without_rows(
    arrays: Mapping[str, Column], bad: Flags
) -> tuple[dict[str, Column], NDArray[np.int64]]:
    """Leaves out bad rows and cuts the episode before each; also returns which rows remain."""
    if not bad.any():
        return dict(arrays), np.arange(len(bad))
    kept = np.flatnonzero(~bad)
    arrays = cut(arrays, np.append(bad[1:], False))
    return {name: values[kept] for name, values in arrays.items()}, kept


def cut(arrays: Mapping[str, Column], rows: Flags) -> dict[str, Column]:
    """Truncates the episode at these rows, except where it terminates."""
    truncated = stored_truncated(arrays).copy()
    truncated[rows & (arrays["terminated"] == 0)] = True
    return {**arrays, "truncated": truncated}


def stored_truncated(arrays: Mapping[str, Column]) -> Column:
    """The column `truncated` as stored; without one, no row is truncated."""
    return arrays.get("truncated", np.zeros(len(arrays["terminated"]), bool))


def first_rows(is_end: Flags) -> NDArray[np.int64]:
    """The first row of the episode of each row."""
    begins = np.append(True, is_end[:-1])
    return np.maximum.accumulate(np.where(begins, np.arange(len(is_end)), 0))


def episode_spans(is_end: Flags) -> NDArray[np.int64]:
    """First row and row past the end of each episode, (episodes, 2); the last may be unfinished."""
    stops = np.flatnonzero(is_end) + 1
    if len(stops) == 0 or stops[-1] != len(is_end):
        stops = np.append(stops, len(is_end))
    return np.stack([np.concatenate([[0], stops[:-1]]), stops], axis=1)
