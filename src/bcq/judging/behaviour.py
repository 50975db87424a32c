"""A model of the behaviour that made a log of choices: how likely it is to take each of them."""

from dataclasses import dataclass
from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from bcq.algorithms.discrete_bc import DiscreteBC, DiscreteBCConfig
from bcq.data.columns import Flags, Floats
from bcq.data.scaling import Scaling
from bcq.judging.values import Log
from bcq.training.loop import train

LEAST_PROBABILITY = 0.01  # of a choice: rarer ones cannot be told from one another
UPDATES = 3_000


@dataclass(frozen=True)
class Behaviour:
    """A clone of the behaviour."""

    learner: DiscreteBC
    scaling: Scaling

    def chances(self, observations: Floats, permitted: Flags | None = None) -> NDArray[np.floating]:
        """The probability of each choice, (rows, choices); 0 where it is not permitted."""
        scaled = jnp.asarray(self.scaling.observations(observations))
        chances = np.asarray(jax.nn.softmax(self.learner.behaviour.model(scaled)))
        chances = np.maximum(chances, LEAST_PROBABILITY)
        return chances if permitted is None else np.where(permitted, chances, 0.0)


@lru_cache(maxsize=1)  # several candidates are judged by the same episodes
def behaviour_of(log: Log, seed: int) -> Behaviour:
    """Fitted to logged choices."""
    config, scaling = DiscreteBCConfig(), log.scaling
    *_, (_, learner, _) = train(config, log.dataset, steps=UPDATES, seed=seed, scaling=scaling)
    assert isinstance(learner, DiscreteBC)
    return Behaviour(learner, scaling)
