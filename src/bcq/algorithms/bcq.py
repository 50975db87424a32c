"""Batch-Constrained deep Q-learning (Section 4.2, Algorithm 1, supplement G)."""

from dataclasses import dataclass
from typing import NamedTuple

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
    soft_minimum,
    track,
)
from bcq.algorithms.networks import ConditionalVAE, Critics, PerturbationModel


@dataclass(frozen=True, kw_only=True)
class BCQConfig:
    """Batch-Constrained deep Q-learning, the algorithm of the paper, with its defaults."""

    discount: float = 0.99
    """gamma: weight of a reward one step later, relative to one now"""
    max_perturbation: float = 0.05
    """Phi: largest perturbation of a generated action, in half-widths of the action range"""
    num_samples: int = 10
    """n: number of candidate actions per state in the learning target"""
    num_acting_samples: int = 10
    """n: number of candidate actions per state when acting"""
    min_weight: float = 0.75
    """lambda: weight of the smaller of the two values in the learning target"""
    target_rate: float = 0.005
    """tau: update rate of the target networks"""
    batch_size: int = 100
    """number of transitions per minibatch"""
    learning_rate: float = 1e-3
    """learning rate of Adam, for all networks"""
    vae_l2: float = 0.0
    """L2 regularisation of the VAE (the paper uses 1e-3 for small batches of random data, D.3)"""
    latent_clip: float = 0.5
    """limit of the latent of generated actions: it is clipped to plus or minus this value"""
    hidden_sizes: tuple[int, ...] = (400, 300)
    """sizes of the hidden layers of the critics and the perturbation model"""
    vae_hidden_sizes: tuple[int, ...] = (750, 750)
    """sizes of the hidden layers of the encoder and the decoder"""

    def __post_init__(self) -> None:
        check_settings(
            self,
            at_least_one=(
                *("num_samples", "num_acting_samples", "batch_size"),
                *("hidden_sizes", "vae_hidden_sizes"),
            ),
            positive=("learning_rate", "latent_clip"),
            not_negative=("max_perturbation", "vae_l2"),
            fractions=("discount", "min_weight", "target_rate"),
        )

    def create(self, observation_size: int, action_size: int, key: Array) -> "BCQ":
        """A fresh learner; the target networks start as exact copies."""
        vae_key, critics_key, perturbation_key = jax.random.split(key, 3)
        sizes = (observation_size, action_size)
        vae = ConditionalVAE(*sizes, self.vae_hidden_sizes, self.latent_clip, vae_key)
        critics = Critics(*sizes, self.hidden_sizes, critics_key)
        perturbation = PerturbationModel(
            *sizes, self.hidden_sizes, self.max_perturbation, perturbation_key
        )
        return BCQ(
            vae=Trainable(vae, adam(self.learning_rate, self.vae_l2)),
            critics=Trainable(critics, adam(self.learning_rate)),
            perturbation=Trainable(perturbation, adam(self.learning_rate)),
            target_critics=critics,
            target_perturbation=perturbation,
            config=self,
        )


class Proposals(NamedTuple):
    """Candidate actions and how far the perturbation model moved them."""

    actions: Array  # (batch, n, action_size)
    residuals: Array  # xi_phi(s, a, Phi), before the clip to the action bounds


def propose(
    vae: ConditionalVAE, perturbation: PerturbationModel, observations: Array, noise: Array
) -> Proposals:
    """The only source of actions: samples of the VAE, moved by at most Phi (Eq. 11).

    Acting, the learning target and the policy step all come through here, so that none can lose
    the perturbation. `noise` is standard normal, (batch, n, J).
    """
    observations = observations[:, None]
    generated = vae.generate(observations, noise)
    residuals = perturbation(observations, generated)
    return Proposals(jnp.clip(generated + residuals, -1.0, 1.0), residuals)


class BCQ(eqx.Module):
    """The learner: generative model, twin critics, perturbation model, and the slow copies."""

    vae: Trainable[ConditionalVAE]
    critics: Trainable[Critics]
    perturbation: Trainable[PerturbationModel]
    target_critics: Critics
    target_perturbation: PerturbationModel
    config: BCQConfig = eqx.field(static=True)

    def act(self, observations: Array, keys: Array) -> Array:
        """The best of n candidates by the first critic (Eq. 11)."""
        shape = self.noise_shape
        noise = jax.vmap(lambda key: jax.random.normal(key, shape))(keys)
        return self.act_with(observations, noise)

    @property
    def noise_shape(self) -> tuple[int, ...]:
        """Of the noise that acting draws in one state: n latents."""
        return (self.config.num_acting_samples, self.vae.model.latent_size)

    def act_with(self, observations: Array, noise: Array) -> Array:
        """The action from standard normal noise, (batch, n, J)."""
        candidates, _ = propose(self.vae.model, self.perturbation.model, observations, noise)
        best = self.value(observations[:, None], candidates).argmax(axis=1)
        return jnp.take_along_axis(candidates, best[:, None, None], axis=1)[:, 0]

    def value(self, observations: Array, actions: Array) -> Array:
        """The first critic's Q(s, a)."""
        return self.critics.model.first(observations, actions)

    def bellman_target(self, vae: ConditionalVAE, batch: Minibatch, noise: Array) -> Array:
        """The learning target of both critics (Eq. 13, 25, 27)."""
        actions, _ = propose(vae, self.target_perturbation, batch.next_observations, noise)
        values = self.target_critics(batch.next_observations[:, None], actions)  # (2, batch, n)
        best = soft_minimum(values, self.config.min_weight).max(axis=1)
        return bellman_target(batch, best, self.config.discount)

    def update(self, batch: Minibatch, key: Array) -> tuple["BCQ", Metrics]:
        """One iteration of Algorithm 1: VAE, critics, perturbation model, target networks."""
        config = self.config
        shape = (len(batch.rewards), config.num_samples + 2, self.vae.model.latent_size)
        noise = jax.random.normal(key, shape)  # all in one draw: many small ones are slow
        vae_noise, policy_noise, target_noise = noise[:, 0], noise[:, 1:2], noise[:, 2:]

        vae, vae_metrics = self.vae.descend(
            lambda vae: vae.loss(batch.observations, batch.actions, vae_noise)
        )

        target = self.bellman_target(vae.model, batch, target_noise)

        def critic_loss(critics: Critics) -> tuple[Array, Metrics]:  # Eq. 27
            errors = critics(batch.observations, batch.actions) - target  # (2, batch)
            loss = (errors**2).mean(axis=1).sum()
            return loss, {"critic_loss": loss, "target_mean": target.mean()}

        critics, critic_metrics = self.critics.descend(critic_loss)

        def policy_loss(perturbation: PerturbationModel) -> tuple[Array, Metrics]:  # Eq. 12, 26
            actions, residuals = propose(vae.model, perturbation, batch.observations, policy_noise)
            loss = -critics.model.first(batch.observations[:, None], actions).mean()
            near_limit = jnp.abs(residuals) > 0.95 * config.max_perturbation
            return loss, {"policy_loss": loss, "perturbations_near_limit": near_limit.mean()}

        perturbation, policy_metrics = self.perturbation.descend(policy_loss)

        learner = BCQ(
            vae=vae,
            critics=critics,
            perturbation=perturbation,
            target_critics=track(self.target_critics, critics.model, config.target_rate),
            target_perturbation=track(
                self.target_perturbation, perturbation.model, config.target_rate
            ),
            config=config,
        )
        return learner, vae_metrics | critic_metrics | policy_metrics
