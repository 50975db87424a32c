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
    truncated = arrays.get("truncated", np.zeros(len(terminated))).astype(bool) & ~terminated
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
    before = np.append(bad[1:], False)
    truncated = arrays.get("truncated", np.zeros(len(bad), bool)).copy()
    truncated[before & (arrays["terminated"] == 0)] = True
    kept = np.flatnonzero(~bad)
    return {n: values[kept] for n, values in {**arrays, "truncated": truncated}.items()}, kept
