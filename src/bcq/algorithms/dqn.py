"""DQN over independently discretised actions (supplement G, Eq. 32-33, Figure 12)."""

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
    check_settings,
    track,
)
from bcq.algorithms.networks import MLP


@dataclass(frozen=True, kw_only=True)
class DQNConfig:
    """DQN (baseline): each action dimension is divided into bins."""

    discount: float = 0.99
    """gamma: weight of a reward one step later, relative to one now"""
    num_bins: int = 10
    """number of bins per action dimension"""
    target_rate: float = 0.005
    """tau: update rate of the target network"""
    batch_size: int = 100
    """number of transitions per minibatch"""
    learning_rate: float = 1e-3
    """learning rate of Adam"""
    hidden_sizes: tuple[int, ...] = (400, 300)
    """sizes of the hidden layers of the network"""

    def __post_init__(self) -> None:
        check_settings(
            self,
            at_least_one=("num_bins", "batch_size", "hidden_sizes"),
            positive=("learning_rate",),
            fractions=("discount", "target_rate"),
        )

    def create(self, observation_size: int, action_size: int, key: Array) -> "DQN":
        """A fresh learner; the target network starts as an exact copy."""
        network = MLP(observation_size, self.hidden_sizes, self.num_bins * action_size, key)
        return DQN(
            network=Trainable(network, adam(self.learning_rate)),
            target_network=network,
            config=self,
        )


class DQN(eqx.Module):
    """The learner: a value for every bin of every action dimension, and its slow copy."""

    network: Trainable[MLP]
    target_network: MLP
    config: DQNConfig = eqx.field(static=True)

    def bins(self, actions: Array) -> Array:
        """The bin i that each dimension of an action falls into."""
        position = (actions + 1) / 2 * self.config.num_bins
        return jnp.clip(jnp.floor(position), 0, self.config.num_bins - 1).astype(int)

    def centres(self, bins: Array) -> Array:
        """The action in the middle of each bin."""
        return (2 * bins + 1) / self.config.num_bins - 1

    def values(self, network: MLP, observations: Array) -> Array:
        """Q(s, a_ij), (..., dimensions, bins)."""
        outputs = network(observations)
        return outputs.reshape(*outputs.shape[:-1], -1, self.config.num_bins)

    def values_at(self, network: MLP, observations: Array, actions: Array) -> Array:
        """Q(s, a_ij) at the bins of given actions, (..., dimensions)."""
        bins = self.bins(actions)[..., None]
        return jnp.take_along_axis(self.values(network, observations), bins, axis=-1)[..., 0]

    def act(self, observations: Array, keys: Array) -> Array:
        """The centre of the best bin, dimension by dimension."""
        del keys  # nothing is drawn
        return self.centres(self.values(self.network.model, observations).argmax(axis=-1))

    def value(self, observations: Array, actions: Array) -> Array:
        """The mean over dimensions of Q at the action's bins."""
        return self.values_at(self.network.model, observations, actions).mean(axis=-1)

    def bellman_target(self, batch: Minibatch) -> Array:
        """The learning target of every dimension (Eq. 25, 32)."""
        best = self.values(self.target_network, batch.next_observations).max(axis=-1)
        return bellman_target(batch, best.mean(axis=-1), self.config.discount)

    def update(self, batch: Minibatch, key: Array) -> tuple["DQN", Metrics]:
        """One iteration: network, target network."""
        del key  # nothing is drawn
        config = self.config
        target = self.bellman_target(batch)

        def loss(network: MLP) -> tuple[Array, Metrics]:  # Eq. 33
            values = self.values_at(network, batch.observations, batch.actions)
            loss = ((values - target[:, None]) ** 2).sum(axis=1).mean()
            return loss, {"critic_loss": loss, "target_mean": target.mean()}

        network, metrics = self.network.descend(loss)

        learner = DQN(
            network=network,
            target_network=track(self.target_network, network.model, config.target_rate),
            config=config,
        )
        return learner, metrics
