"""Deep Deterministic Policy Gradients, as the paper has it (Eq. 3, supplement G)."""

from dataclasses import dataclass

import equinox as eqx
import jax
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
from bcq.algorithms.networks import Actor, LateActionCritic


@dataclass(frozen=True, kw_only=True)
class DDPGConfig:
    """Deep Deterministic Policy Gradients: the behavioural agent, and an offline baseline."""

    discount: float = 0.99
    """gamma: weight of a reward one step later, relative to one now"""
    target_rate: float = 0.005
    """tau: update rate of the target networks"""
    batch_size: int = 100
    """number of transitions per minibatch"""
    actor_learning_rate: float = 1e-4
    """learning rate of Adam, for the actor"""
    critic_learning_rate: float = 1e-3
    """learning rate of Adam, for the critic"""
    critic_l2: float = 1e-2
    """L2 regularisation of the critic"""
    hidden_sizes: tuple[int, ...] = (400, 300)
    """sizes of the hidden layers; the second layer of the critic also takes the action"""

    def __post_init__(self) -> None:
        check_settings(
            self,
            at_least_one=("batch_size", "hidden_sizes"),
            positive=("actor_learning_rate", "critic_learning_rate"),
            not_negative=("critic_l2",),
            fractions=("discount", "target_rate"),
            not_empty=("hidden_sizes",),
        )

    def create(self, observation_size: int, action_size: int, key: Array) -> "DDPG":
        """A fresh learner; the target networks start as exact copies."""
        actor_key, critic_key = jax.random.split(key)
        sizes = (observation_size, action_size, self.hidden_sizes)
        actor, critic = Actor(*sizes, actor_key), LateActionCritic(*sizes, critic_key)
        return DDPG(
            actor=Trainable(actor, adam(self.actor_learning_rate)),
            critic=Trainable(critic, adam(self.critic_learning_rate, self.critic_l2)),
            target_actor=actor,
            target_critic=critic,
            config=self,
        )


class DDPG(eqx.Module):
    """The learner: actor, critic, and the slow copies."""

    actor: Trainable[Actor]
    critic: Trainable[LateActionCritic]
    target_actor: Actor
    target_critic: LateActionCritic
    config: DDPGConfig = eqx.field(static=True)

    def act(self, observations: Array, keys: Array) -> Array:
        """The actor's action, without noise."""
        del keys  # nothing is drawn
        return self.actor.model(observations)

    def value(self, observations: Array, actions: Array) -> Array:
        """The critic's Q(s, a)."""
        return self.critic.model(observations, actions)

    def bellman_target(self, batch: Minibatch) -> Array:
        """The learning target: a' is the target actor's, in the batch or not (Eq. 2, 25)."""
        following = batch.next_observations
        values = self.target_critic(following, self.target_actor(following))
        return bellman_target(batch, values, self.config.discount)

    def update(self, batch: Minibatch, key: Array) -> tuple["DDPG", Metrics]:
        """One iteration: critic, actor, target networks."""
        del key  # nothing is drawn
        config = self.config
        target = self.bellman_target(batch)

        def critic_loss(critic: LateActionCritic) -> tuple[Array, Metrics]:  # Eq. 5
            loss = ((critic(batch.observations, batch.actions) - target) ** 2).mean()
            return loss, {"critic_loss": loss, "target_mean": target.mean()}

        critic, critic_metrics = self.critic.descend(critic_loss)

        def policy_loss(actor: Actor) -> tuple[Array, Metrics]:  # Eq. 3
            loss = -critic.model(batch.observations, actor(batch.observations)).mean()
            return loss, {"policy_loss": loss}

        actor, policy_metrics = self.actor.descend(policy_loss)

        learner = DDPG(
            actor=actor,
            critic=critic,
            target_actor=track(self.target_actor, actor.model, config.target_rate),
            target_critic=track(self.target_critic, critic.model, config.target_rate),
            config=config,
        )
        return learner, critic_metrics | policy_metrics
