"""Behavioural cloning with a feed-forward network (supplement G)."""

from dataclasses import dataclass
from typing import ClassVar

import equinox as eqx
from jax import Array

from bcq.algorithms.learning import Metrics, Minibatch, Trainable, adam, check_settings
from bcq.algorithms.networks import Actor


@dataclass(frozen=True, kw_only=True)
class BCConfig:
    """Behavioural cloning (baseline): imitates the actions of the batch."""

    batch_size: int = 100
    """number of transitions per minibatch"""
    learning_rate: float = 1e-3
    """learning rate of Adam"""
    hidden_sizes: tuple[int, ...] = (400, 300)
    """sizes of the hidden layers of the policy"""

    discount: ClassVar[None] = None  # nothing is valued

    def __post_init__(self) -> None:
        check_settings(
            self, at_least_one=("batch_size", "hidden_sizes"), positive=("learning_rate",)
        )

    def create(self, observation_size: int, action_size: int, key: Array) -> "BC":
        """A fresh learner."""
        actor = Actor(observation_size, action_size, self.hidden_sizes, key)
        return BC(actor=Trainable(actor, adam(self.learning_rate)), config=self)


class BC(eqx.Module):
    """The learner: a policy."""

    actor: Trainable[Actor]
    config: BCConfig = eqx.field(static=True)

    def act(self, observations: Array, keys: Array) -> Array:
        """What the batch's policy would do, on average."""
        del keys  # nothing is drawn
        return self.actor.model(observations)

    def update(self, batch: Minibatch, key: Array) -> tuple["BC", Metrics]:
        """One iteration: a step towards the batch's actions."""
        del key  # nothing is drawn

        def loss(actor: Actor) -> tuple[Array, Metrics]:
            loss = ((actor(batch.observations) - batch.actions) ** 2).mean()
            return loss, {"reconstruction": loss}

        actor, metrics = self.actor.descend(loss)
        return BC(actor=actor, config=self.config), metrics
