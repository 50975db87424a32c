"""Discrete BCQ (Fujimoto et al. 2019, Benchmarking Batch Deep Reinforcement Learning Algorithms).

The counterpart of BCQ for a finite set of actions: the generative model becomes a classifier of the
logged actions, and the candidates are those it finds likely enough. No equation of the main paper.
"""

from dataclasses import dataclass

import equinox as eqx
import jax
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
    cloning_loss,
    track,
    value_loss,
    values_of,
)
from bcq.algorithms.networks import MLP


@dataclass(frozen=True, kw_only=True)
class DiscreteBCQConfig:
    """Batch-Constrained Q-learning for discrete actions, with the defaults of its paper."""

    discount: float = 0.99
    """gamma: weight of a reward one step later, relative to one now"""
    threshold: float = 0.3
    """tau: an action is a candidate if it is more likely than this share of the likeliest one"""
    logit_penalty: float = 1e-2
    """weight of the mean squared logit in the loss of the behaviour model"""
    target_rate: float = 0.005
    """update rate of the target network"""
    batch_size: int = 64
    """number of transitions per minibatch"""
    learning_rate: float = 3e-4
    """learning rate of Adam, for both networks"""
    hidden_sizes: tuple[int, ...] = (256, 256)
    """sizes of the hidden layers of both networks"""

    def __post_init__(self) -> None:
        check_settings(
            self,
            at_least_one=("batch_size", "hidden_sizes"),
            positive=("learning_rate",),
            not_negative=("logit_penalty",),
            fractions=("discount", "target_rate"),
            below_one=("threshold",),
        )

    def create(self, observation_size: int, action_size: int, key: Array) -> "DiscreteBCQ":
        """A fresh learner for `action_size` actions; the target network starts as an exact copy."""
        network_key, behaviour_key = jax.random.split(key)
        network = MLP(observation_size, self.hidden_sizes, action_size, network_key)
        behaviour = MLP(observation_size, self.hidden_sizes, action_size, behaviour_key)
        return DiscreteBCQ(
            network=Trainable(network, adam(self.learning_rate)),
            behaviour=Trainable(behaviour, adam(self.learning_rate)),
            target_network=network,
            config=self,
        )


def candidates(
    behaviour: MLP, observations: Array, threshold: float, permitted: Array | None
) -> Array:
    """The only source of actions: which ones the behaviour model finds likely enough.

    Acting and the learning target both come through here. pi_b(a|s) / max pi_b(.|s) is the
    exponential of a difference of logits; the maximum is over the actions that are permitted.
    """
    logits = behaviour(observations)
    if permitted is not None:
        logits = jnp.where(permitted, logits, -jnp.inf)
    return jnp.exp(logits - logits.max(axis=-1, keepdims=True)) > threshold


class DiscreteBCQ(eqx.Module):
    """The learner: a value and a behaviour logit for every action, and the values' slow copy."""

    network: Trainable[MLP]  # Q
    behaviour: Trainable[MLP]
    target_network: MLP
    config: DiscreteBCQConfig = eqx.field(static=True)

    def act(self, observations: Array, keys: Array, permitted: Array | None = None) -> Array:
        """The candidate with the highest value."""
        del keys  # nothing is drawn
        threshold = self.config.threshold
        allowed = candidates(self.behaviour.model, observations, threshold, permitted)
        return best(self.network.model(observations), allowed)

    def value(self, observations: Array, actions: Array) -> Array:
        """Q(s, a)."""
        return values_of(self.network.model, observations, actions)

    def bellman_target(self, batch: Minibatch) -> Array:
        """The target network's value of the action that the learner would take next."""
        following = batch.next_observations
        actions = self.act(following, jnp.empty(0), batch.next_permitted)
        values = values_of(self.target_network, following, actions)
        return bellman_target(batch, values, self.config.discount)

    def update(self, batch: Minibatch, key: Array) -> tuple["DiscreteBCQ", Metrics]:
        """One iteration: values, behaviour model, target network."""
        del key  # nothing is drawn
        config = self.config
        target = self.bellman_target(batch)
        network, critic_metrics = self.network.descend(
            lambda network: value_loss(network, batch, target)
        )
        behaviour, behaviour_metrics = self.behaviour.descend(
            lambda model: cloning_loss(
                model(batch.observations), batch.actions, config.logit_penalty
            )
        )

        learner = DiscreteBCQ(
            network=network,
            behaviour=behaviour,
            target_network=track(self.target_network, network.model, config.target_rate),
            config=config,
        )
        return learner, critic_metrics | behaviour_metrics
