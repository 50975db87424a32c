"""A task with short episodes of different lengths, for the tests of collecting and exploring.

Its two actions have different ranges, neither of them [-1, 1] nor around 0. An episode ends of
itself when a fuse that was lit at its start has burnt down, or at a time limit, or both: so its
length depends on its seed alone. The state can be read and set as MuJoCo's.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box
from numpy.typing import NDArray

from bcq.algorithms import DDPGConfig

NAME = "ShortTask-v0"
LIMIT = 12  # steps
SHORTEST, LONGEST = 3, 19  # fuse
LOW, HIGH = np.array([-1, -2], np.float32), np.array([3, 0.5], np.float32)
CENTRE, HALF_WIDTH = (LOW + HIGH) / 2, (HIGH - LOW) / 2
# One small agent and one length for several files, so that compiled code is found again.
AGENT = DDPGConfig(hidden_sizes=(8, 8), batch_size=16, actor_learning_rate=3e-4)
STEPS = 300


class ShortTask(gymnasium.Env[NDArray[np.float64], NDArray[np.float32]]):
    """A point that the actions push about, and a fuse."""

    observation_space = Box(-np.inf, np.inf, (4,), np.float64)
    action_space = Box(LOW, HIGH)
    data: SimpleNamespace

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float64], dict[str, Any]]:
        super().reset(seed=seed)
        place, speed = np.split(self.np_random.uniform(-0.1, 0.1, 3), [2])
        fuse = self.np_random.integers(SHORTEST, LONGEST, endpoint=True)
        self.set_state(np.append(place, fuse), speed)
        return self.seen(), {}

    def set_state(self, qpos: NDArray[np.float64], qvel: NDArray[np.float64]) -> None:
        self.data = SimpleNamespace(qpos=qpos.copy(), qvel=qvel.copy())

    def seen(self) -> NDArray[np.float64]:
        return np.concatenate([self.data.qpos / [1, 1, LONGEST], self.data.qvel])

    def step(
        self, action: NDArray[np.float32]
    ) -> tuple[NDArray[np.float64], float, bool, bool, dict[str, Any]]:
        assert action.dtype == np.float32
        assert self.action_space.contains(action)
        push = (action.astype(float) - CENTRE) / HALF_WIDTH
        self.data.qvel[:] = 0.5 * self.data.qvel + 0.15 * push[0]
        self.data.qpos += [self.data.qvel[0], 0.3 * push[1], -1]  # in place, as MuJoCo
        reward = 0.1 - float(np.square(self.data.qpos[:2]).sum())
        return self.seen(), reward, bool(self.data.qpos[2] == 0), False, {}


@contextmanager
def registered() -> Iterator[None]:
    """Makes the task known by its name, for as long as it lasts."""
    gymnasium.register(NAME, lambda **_: ShortTask(), max_episode_steps=LIMIT)
    yield
    del gymnasium.registry[NAME]
