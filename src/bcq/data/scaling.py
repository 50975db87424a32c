"""Observations and rewards in the units of a log, and on a scale that networks learn from."""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from bcq.data.columns import Flags, Floats, frozen

BLOCK = 100_000  # rows in double precision at a time, so that a large batch is not copied
LIMIT = 10.0  # of scaled observations: an outlier or a rare flag must not drown the rest

ScalingChoice = Literal["auto", "standard", "none"]


class Scaling(NamedTuple):
    """What is subtracted and divided by before learning; values are multiplied back.

    A constant column becomes 0. Rewards are divided and not shifted: a constant added to every
    reward makes long episodes better or worse than short ones. The numbers may be arrays of JAX.
    """

    centre: Floats  # (observation_size,)
    spread: Floats  # (observation_size,)
    reward_spread: Floats  # ()

    @classmethod
    def of(cls, observations: Floats, rewards: Floats, unscaled: Flags | None = None) -> Self:
        """Mean and standard deviation of the observations, root mean square of the rewards.

        Columns of observations that are marked as unscaled are left as they are.
        """
        centre = mean(observations).astype(np.float32)
        spread = np.sqrt(mean(observations, centre, squared=True))
        varies = spread > np.abs(centre) * np.finfo(np.float32).eps
        if unscaled is not None:
            centre, varies = np.where(unscaled, np.float32(0), centre), varies & ~unscaled
        reward_spread = np.sqrt(mean(rewards, squared=True))
        return cls(
            frozen(centre),
            frozen(np.where(varies, spread, 1.0).astype(np.float32)),
            np.where(reward_spread > 0, reward_spread, 1.0).astype(np.float32),
        )

    def observations(self, observations: Any) -> Any:
        """Observations in the units of the log to the scale of the learner."""
        return ((observations - self.centre) / self.spread).clip(-LIMIT, LIMIT)

    def rewards(self, rewards: Any) -> Any:
        """Rewards in the units of the log to the scale of the learner."""
        return rewards / self.reward_spread

    def values(self, values: Any) -> Any:
        """Values on the scale of the learner to the units of the log."""
        return values * self.reward_spread

    def as_json(self) -> dict[str, Any]:
        """The form in a file."""
        return {
            "observation_centre": np.asarray(self.centre).tolist(),
            "observation_spread": np.asarray(self.spread).tolist(),
            "reward_spread": float(self.reward_spread),
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any], size: int) -> Self:
        """The inverse of `as_json` for observations of a size; of anything else, a ValueError."""
        try:
            centre, spread = (
                frozen(np.array(content[name], np.float32))
                for name in ("observation_centre", "observation_spread")
            )
            reward_spread = np.array(content["reward_spread"], np.float32)
        except (KeyError, TypeError) as error:
            raise ValueError(f"scaling: {error!r}") from error
        found = cls(centre, spread, reward_spread)
        if [part.shape for part in found] != [(size,), (size,), ()]:
            raise ValueError(f"scaling: is not for observations of size {size}")
        if not all(np.isfinite(part).all() for part in found):
            raise ValueError("scaling: a number is not finite")
        if (spread <= 0).any() or reward_spread <= 0:
            raise ValueError("scaling: a spread is not above 0")
        return found


def mean(
    rows: Floats, centre: Floats | float = 0.0, *, squared: bool = False
) -> NDArray[np.float64]:
    """The mean row, or the mean square of the distance to a centre, in double precision."""
    total = np.zeros(rows.shape[1:])
    for start in range(0, len(rows), BLOCK):
        block = rows[start : start + BLOCK].astype(np.float64) - centre
        total += (block**2 if squared else block).sum(axis=0)
    return total / len(rows)
