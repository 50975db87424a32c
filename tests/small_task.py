"""A task small enough to be learned in seconds, for the tests that require learning."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box
from numpy.typing import NDArray

NAME = "BringToZero-v0"


class BringToZero(gymnasium.Env[NDArray[np.float32], NDArray[np.float32]]):
    """A point on a line, moved by the action; the reward is minus its distance from 0."""

    observation_space = Box(-4, 4, (1,), np.float32)
    action_space = Box(-1, 1, (1,), np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        super().reset(seed=seed)
        self.position = self.np_random.uniform(-1.5, 1.5)
        return np.array([self.position], np.float32), {}

    def step(
        self, action: NDArray[np.float32]
    ) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        self.position = float(np.clip(self.position + 0.5 * float(action[0]), -4, 4))
        return np.array([self.position], np.float32), -abs(self.position), False, False, {}


@contextmanager
def registered() -> Iterator[None]:
    """Makes the task known by its name, for as long as it lasts."""
    gymnasium.register(NAME, lambda **_: BringToZero(), max_episode_steps=20)
    yield
    del gymnasium.registry[NAME]
