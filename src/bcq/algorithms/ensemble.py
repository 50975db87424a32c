"""A policy that minimises the uncertainty of an ensemble of critics (supplement D.2, Eq. 22)."""

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
    check_settings,
    track,
)
from bcq.algorithms.networks import Actor, Critics
from bcq.system.errors import InputError

EPSILON = 1e-8  # inside the root: without it the gradient is NaN where all critics agree


@dataclass(frozen=True, kw_only=True)
class EnsembleConfig:
    """Ensemble of critics (baseline): their uncertainty replaces the constraint of BCQ."""

    discount: float = 0.99
    """gamma: weight of a reward one step later, relative to one now"""
    members: int = 4
    """number of critics in the ensemble (the paper uses 4 and 10)"""
    target_rate: float = 0.005
    """tau: update rate of the target networks"""
    member_batch_size: int = 100
    """number of transitions per minibatch; each critic has its own minibatch"""
    learning_rate: float = 1e-3
    """learning rate of Adam, for all networks"""
    hidden_sizes: tuple[int, ...] = (400, 300)
    """sizes of the hidden layers of the policy and the critics"""

    def __post_init__(self) -> None:
        check_settings(
            self,
            at_least_one=("member_batch_size", "hidden_sizes"),
            positive=("learning_rate",),
            fractions=("discount", "target_rate"),
        )
        if self.members < 2:
            raise InputError(
                f"members: {self.members} is not at least 2; one critic has no uncertainty"
            )

    @property
    def batch_size(self) -> int:
        """Transitions one update takes: a minibatch for each critic."""
        return self.members * self.member_batch_size

    def create(self, observation_size: int, action_size: int, key: Array) -> "Ensemble":
        """A fresh learner; the target networks start as exact copies."""
        actor_key, critics_key = jax.random.split(key)
        sizes = (observation_size, action_size, self.hidden_sizes)
        actor, critics = Actor(*sizes, actor_key), Critics(*sizes, critics_key, self.members)
        return Ensemble(
            actor=Trainable(actor, adam(self.learning_rate)),
            critics=Trainable(critics, adam(self.learning_rate)),
            target_actor=actor,
            target_critics=critics,
            config=self,
        )


def uncertainty(critics: Critics, observations: Array, actions: Array) -> Array:
    """The standard deviation of the critics' values, (batch,)."""
    return jnp.sqrt(critics(observations, actions).var(axis=0) + EPSILON)


class Ensemble(eqx.Module):
    """The learner: policy, critics, and the slow copies."""

    actor: Trainable[Actor]
    critics: Trainable[Critics]
    target_actor: Actor
    target_critics: Critics
    config: EnsembleConfig = eqx.field(static=True)

    def act(self, observations: Array, keys: Array) -> Array:
        """The policy's action."""
        del keys  # nothing is drawn
        return self.actor.model(observations)

    def value(self, observations: Array, actions: Array) -> Array:
        """The mean of the critics' Q(s, a)."""
        return self.critics.model(observations, actions).mean(axis=0)

    def bellman_target(self, batches: Minibatch) -> Array:
        """Each critic's learning target, by its own target network (Eq. 2, 25)."""
        following = batches.next_observations
        values = self.target_critics.each(following, self.target_actor(following))
        return bellman_target(batches, values, self.config.discount)

    def update(self, batch: Minibatch, key: Array) -> tuple["Ensemble", Metrics]:
        """One iteration: every critic on its own part of the batch, policy, target networks."""
        del key  # nothing is drawn
        config = self.config
        batches = jax.tree.map(
            lambda column: column.reshape(config.members, -1, *column.shape[1:]), batch
        )
        target = self.bellman_target(batches)  # (members, minibatch)

        def critic_loss(critics: Critics) -> tuple[Array, Metrics]:  # Eq. 5
            errors = critics.each(batches.observations, batches.actions) - target
            loss = (errors**2).mean(axis=1).sum()
            return loss, {"critic_loss": loss, "target_mean": target.mean()}

        critics, critic_metrics = self.critics.descend(critic_loss)
        observations = batches.observations[0]

        def policy_loss(actor: Actor) -> tuple[Array, Metrics]:  # Eq. 22 with a = pi(s)
            loss = uncertainty(critics.model, observations, actor(observations)).mean()
            return loss, {"policy_loss": loss}

        actor, policy_metrics = self.actor.descend(policy_loss)

        learner = Ensemble(
            actor=actor,
            critics=critics,
            target_actor=track(self.target_actor, actor.model, config.target_rate),
            target_critics=track(self.target_critics, critics.model, config.target_rate),
            config=config,
        )
        return learner, critic_metrics | policy_metrics
