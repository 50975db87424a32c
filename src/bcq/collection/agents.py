"""Which algorithm learns online in an environment, and what of it acts.

Quantities as actions: DDPG, as in the paper. Choices: double DQN. The settings of both are the
defaults of their algorithms.
"""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from bcq.algorithms import DDPG, DDPGConfig, DiscreteDQN, DiscreteDQNConfig
from bcq.algorithms.learning import best
from bcq.algorithms.networks import MLP, Actor
from bcq.data.bounds import TaskSpec
from bcq.simulation.environments import make, task_of

AgentConfig = DDPGConfig | DiscreteDQNConfig
AgentLearner = DDPG | DiscreteDQN
IN_WORDS = {"ddpg": "DDPG", "discrete-dqn": "double DQN"}  # for the origin of a batch


class ActorAlone(eqx.Module):
    """The actor of DDPG without everything that it needs for learning."""

    actor: Actor

    def act(self, observations: Array, keys: Array) -> Array:
        """The actor's action, without noise."""
        del keys  # nothing is drawn
        return self.actor(observations)


class NetworkAlone(eqx.Module):
    """The network of double DQN without everything that it needs for learning."""

    network: MLP

    def act(self, observations: Array, keys: Array, permitted: Array | None = None) -> Array:
        """The choice with the highest value."""
        del keys  # nothing is drawn
        return best(self.network(observations), permitted)


def config_for(environment: str) -> AgentConfig:
    """The agent that learns online in an environment, by the kind of its actions."""
    made = make(environment)
    task = task_of(made)
    made.close()
    return DDPGConfig() if task.choices is None else DiscreteDQNConfig()


def alone(learner: AgentLearner) -> ActorAlone | NetworkAlone:
    """The part of an agent that acts."""
    if isinstance(learner, DDPG):
        return ActorAlone(learner.actor.model)
    return NetworkAlone(learner.network.model)


def untrained(task: TaskSpec, hidden: Sequence[int], key: Array) -> ActorAlone | NetworkAlone:
    """The same part of a new agent."""
    observations, actions, sizes = task.observation_size, task.action_size, tuple(hidden)
    if task.choices is None:
        return ActorAlone(Actor(observations, actions, sizes, key))
    return NetworkAlone(MLP(observations, sizes, actions, key))


@jax.jit
def act(acting: ActorAlone | NetworkAlone, observations: Array) -> Array:
    """Actions as learners use them, without noise."""
    return acting.act(observations, jnp.empty(0))
