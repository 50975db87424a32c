"""Evaluates a policy in an environment."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bcq.simulation.environments import make_for
from bcq.simulation.rollouts import lockstep, remembering
from bcq.system import interruption
from bcq.system.errors import InputError, require_seed
from bcq.system.seeds import Role, derive, reset_seed
from bcq.training.policy import Policy


@dataclass(frozen=True)
class Evaluation:
    """Undiscounted return and length of each episode."""

    returns: NDArray[np.float64]
    lengths: NDArray[np.int64]

    @property
    def mean(self) -> float:
        """Average return."""
        return float(self.returns.mean())

    def summary(self) -> dict[str, object]:
        """The figures and the raw numbers behind them."""
        return {
            "mean_return": self.mean,
            "std_return": self.std,
            "returns": self.returns.tolist(),
            "lengths": self.lengths.tolist(),
        }

    @property
    def std(self) -> float:
        """Standard deviation of the returns."""
        return float(self.returns.std())


def evaluate(policy: Policy, environment: str, *, episodes: int = 10, seed: int = 0) -> Evaluation:
    """Plays complete episodes, all in lock-step, without exploration noise."""
    if episodes < 1:
        raise InputError(f"episodes: {episodes} is not at least 1")
    require_seed(seed)
    seed = derive(seed, Role.EVALUATION)
    environments = [make_for(environment, policy.task) for _ in range(episodes)]
    observations = np.stack(
        [env.reset(seed=reset_seed(seed, i))[0] for i, env in enumerate(environments)]
    )
    returns, lengths = np.zeros(episodes), np.zeros(episodes, np.int64)
    act = remembering(
        policy.task,
        lambda observations, rows, time: policy.act(
            observations, seed=seed, step=time, rows=rows, capacity=episodes
        ),
    )
    for step in lockstep(environments, observations, act):
        returns[step.episodes] += step.rewards
        lengths[step.episodes] += 1
        interruption.check()
    for env in environments:
        env.close()
    return Evaluation(returns, lengths)
