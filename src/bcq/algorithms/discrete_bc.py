"""Behavioural cloning of discrete actions: the behaviour model of discrete BCQ, alone."""

from dataclasses import dataclass
from typing import ClassVar

import equinox as eqx
from jax import Array

from bcq.algorithms.learning import (
    Metrics,
    Minibatch,
    Trainable,
    adam,
    best,
    check_settings,
    cloning_loss,
)
from bcq.algorithms.networks import MLP


@dataclass(frozen=True, kw_only=True)
class DiscreteBCConfig:
    """Behavioural cloning of discrete actions (baseline), with the settings of discrete BCQ."""

    logit_penalty: float = 1e-2
    """weight of the mean squared logit in the loss"""
    batch_size: int = 64
    """number of transitions per minibatch"""
    learning_rate: float = 3e-4
    """learning rate of Adam"""
    hidden_sizes: tuple[int, ...] = (256, 256)
    """sizes of the hidden layers of the network"""

    discount: ClassVar[None] = None  # nothing is valued

    def __post_init__(self) -> None:
        check_settings(
            self,
            at_least_one=("batch_size", "hidden_sizes"),
            positive=("learning_rate",),
            not_negative=("logit_penalty",),
        )

    def create(self, observation_size: int, action_size: int, key: Array) -> "DiscreteBC":
        """A fresh learner for `action_size` actions."""
        behaviour = MLP(observation_size, self.hidden_sizes, action_size, key)
        return DiscreteBC(behaviour=Trainable(behaviour, adam(self.learning_rate)), config=self)


class DiscreteBC(eqx.Module):
    """The learner: a logit for every action."""

    behaviour: Trainable[MLP]
    config: DiscreteBCConfig = eqx.field(static=True)

    def act(self, observations: Array, keys: Array, permitted: Array | None = None) -> Array:
        """The action that was logged most often in such a state."""
        del keys  # nothing is drawn
        return best(self.behaviour.model(observations), permitted)

    def update(self, batch: Minibatch, key: Array) -> tuple["DiscreteBC", Metrics]:
        """One iteration: a step towards the batch's actions."""
        del key  # nothing is drawn
        behaviour, metrics = self.behaviour.descend(
            lambda model: cloning_loss(
                model(batch.observations), batch.actions, self.config.logit_penalty
            )
        )
        return DiscreteBC(behaviour=behaviour, config=self.config), metrics
