"""Double DQN for discrete actions (van Hasselt et al. 2016): a baseline without constraint."""

from dataclasses import dataclass

import equinox as eqx
import jax.numpy as jnp
from jax import Array

from bcq.algorithms.learning import (
    Metrics,
    Minibatch,
    Trainable,
    adam,
    bellman_target,
    best,
    check_settings,
    track,
    value_loss,
    values_of,
)
from bcq.algorithms.networks import MLP


@dataclass(frozen=True, kw_only=True)
class DiscreteDQNConfig:
    """Double DQN for discrete actions (baseline), with the settings of discrete BCQ."""

    discount: float = 0.99
    """gamma: weight of a reward one step later, relative to one now"""
    target_rate: float = 0.005
    """update rate of the target network"""
    batch_size: int = 64
    """number of transitions per minibatch"""
    learning_rate: float = 3e-4
    """learning rate of Adam"""
    hidden_sizes: tuple[int, ...] = (256, 256)
    """sizes of the hidden layers of the network"""

    def __post_init__(self) -> None:
        check_settings(
            self,
            at_least_one=("batch_size", "hidden_sizes"),
            positive=("learning_rate",),
            fractions=("discount", "target_rate"),
        )

    def create(self, observation_size: int, action_size: int, key: Array) -> "DiscreteDQN":
        """A fresh learner for `action_size` actions; the target network starts as an exact copy."""
        network = MLP(observation_size, self.hidden_sizes, action_size, key)
        return DiscreteDQN(
            network=Trainable(network, adam(self.learning_rate)),
            target_network=network,
            config=self,
        )


class DiscreteDQN(eqx.Module):
    """The learner: a value for every action, and its slow copy."""

    network: Trainable[MLP]
    target_network: MLP
    config: DiscreteDQNConfig = eqx.field(static=True)

    def act(self, observations: Array, keys: Array, permitted: Array | None = None) -> Array:
        """The action with the highest value."""
        del keys  # nothing is drawn
        return best(self.network.model(observations), permitted)

    def value(self, observations: Array, actions: Array) -> Array:
        """Q(s, a)."""
        return values_of(self.network.model, observations, actions)

    def bellman_target(self, batch: Minibatch) -> Array:
        """The target network's value of the action that the learner would take next."""
        following = batch.next_observations
        actions = self.act(following, jnp.empty(0), batch.next_permitted)
        values = values_of(self.target_network, following, actions)
        return bellman_target(batch, values, self.config.discount)

    def update(self, batch: Minibatch, key: Array) -> tuple["DiscreteDQN", Metrics]:
        """One iteration: network, target network."""
        del key  # nothing is drawn
        config = self.config
        target = self.bellman_target(batch)
        network, metrics = self.network.descend(lambda network: value_loss(network, batch, target))
        learner = DiscreteDQN(
            network=network,
            target_network=track(self.target_network, network.model, config.target_rate),
            config=config,
        )
        return learner, metrics
