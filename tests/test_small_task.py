"""BCQ must learn a better policy than the one that logged the batch."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box
from numpy.typing import NDArray

import bcq

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


@pytest.fixture(autouse=True, scope="module")
def registered() -> Any:
    gymnasium.register(NAME, lambda **_: BringToZero(), max_episode_steps=20)
    yield
    del gymnasium.registry[NAME]


@pytest.mark.parametrize("seed", range(2))
def test_bcq_beats_the_random_behaviour_it_learned_from(seed: int) -> None:
    dataset = bcq.collect_random(NAME, transitions=2_000, seed=seed)
    config = bcq.BCQConfig(hidden_sizes=(64, 64), vae_hidden_sizes=(64, 64), discount=0.9)
    *_, (_, learner, _) = bcq.train(config, dataset, steps=2_000, seed=seed)
    result = bcq.evaluate(bcq.Policy(learner, dataset.task), NAME, episodes=10, seed=seed)
    behaviour = dataset.episode_returns.mean()
    assert behaviour < -15
    assert result.mean > -5  # going straight to 0 earns -0.4 on average
