"""Where episodes end, and which observation follows which."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from bcq.data.columns import Column, Columns, Flags


def transitions(columns: Columns) -> dict[str, Column]:
    """The rows that can be learned from, each with both flags and its next observation."""
    arrays = with_flags(columns.arrays)
    return arrays if "next_observations" in arrays else paired_within_episodes(arrays)


def with_flags(arrays: Mapping[str, Column]) -> dict[str, Column]:
    """The same columns with both flags there, as booleans and never both set: terminated wins."""
    terminated = arrays["terminated"].astype(bool)
    truncated = stored_truncated(arrays).astype(bool) & ~terminated
    return {**arrays, "terminated": terminated, "truncated": truncated}


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


def without_rows(
    arrays: Mapping[str, Column], bad: Flags
) -> tuple[dict[str, Column], NDArray[np.int64]]:
    """The other rows, and which they are; the episode is cut before each that is left out."""
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


def episode_spans(is_end: Flags) -> NDArray[np.int64]:
    """First row and row past the end of each episode, (episodes, 2); the last may be unfinished."""
    stops = np.flatnonzero(is_end) + 1
    if len(stops) == 0 or stops[-1] != len(is_end):
        stops = np.append(stops, len(is_end))
    return np.stack([np.concatenate([[0], stops[:-1]]), stops], axis=1)
