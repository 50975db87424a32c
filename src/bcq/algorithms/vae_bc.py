"""Behavioural cloning with BCQ's generative model (supplement G)."""

from dataclasses import dataclass
from typing import ClassVar

import equinox as eqx
import jax
from jax import Array

from bcq.algorithms.learning import Metrics, Minibatch, Trainable, adam, check_settings
from bcq.algorithms.networks import ConditionalVAE


@dataclass(frozen=True, kw_only=True)
class VAEBCConfig:
    """Behavioural cloning with only the generative model of BCQ (baseline)."""

    batch_size: int = 100
    """number of transitions per minibatch"""
    learning_rate: float = 1e-3
    """learning rate of Adam"""
    vae_l2: float = 0.0
    """L2 regularisation of the VAE (the paper uses 1e-3 for small batches of random data, D.3)"""
    latent_clip: float = 0.5
    """limit of the latent of generated actions: it is clipped to plus or minus this value"""
    vae_hidden_sizes: tuple[int, ...] = (750, 750)
    """sizes of the hidden layers of the encoder and the decoder"""

    discount: ClassVar[None] = None  # nothing is valued

    def __post_init__(self) -> None:
        check_settings(
            self,
            at_least_one=("batch_size", "vae_hidden_sizes"),
            positive=("learning_rate", "latent_clip"),
            not_negative=("vae_l2",),
        )

    def create(self, observation_size: int, action_size: int, key: Array) -> "VAEBC":
        """A fresh learner."""
        sizes = (observation_size, action_size)
        vae = ConditionalVAE(*sizes, self.vae_hidden_sizes, self.latent_clip, key)
        return VAEBC(vae=Trainable(vae, adam(self.learning_rate, self.vae_l2)), config=self)


class VAEBC(eqx.Module):
    """The learner: a generative model of the batch's actions."""

    vae: Trainable[ConditionalVAE]
    config: VAEBCConfig = eqx.field(static=True)

    def act(self, observations: Array, keys: Array) -> Array:
        """One sample a state, its latent clipped."""
        shape = self.noise_shape
        noise = jax.vmap(lambda key: jax.random.normal(key, shape))(keys)
        return self.act_with(observations, noise)

    @property
    def noise_shape(self) -> tuple[int, ...]:
        """Of the noise that acting draws in one state: one latent."""
        return (self.vae.model.latent_size,)

    def act_with(self, observations: Array, noise: Array) -> Array:
        """The action from standard normal noise, (batch, J)."""
        return self.vae.model.generate(observations, noise)

    def update(self, batch: Minibatch, key: Array) -> tuple["VAEBC", Metrics]:
        """One iteration: the first of BCQ's three steps (Algorithm 1)."""
        noise = jax.random.normal(key, (len(batch.rewards), self.vae.model.latent_size))
        vae, metrics = self.vae.descend(
            lambda vae: vae.loss(batch.observations, batch.actions, noise)
        )
        return VAEBC(vae=vae, config=self.config), metrics
