"""BCQ as a textbook would write it in PyTorch: Algorithm 1 line by line, eager.

What a careful reader of the paper has after an afternoon, and the yardstick of this project's
speed. `benchmarks/agreement.py` checks that it computes what this project computes.
"""

import copy
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

DISCOUNT, TAU, LAMBDA, PHI, LATENT_CLIP, LEARNING_RATE = 0.99, 0.005, 0.75, 0.05, 0.5, 1e-3


class Batch(NamedTuple):
    """Transitions, one a row."""

    observations: Tensor
    actions: Tensor
    rewards: Tensor
    next_observations: Tensor
    terminated: Tensor


class Noise(NamedTuple):
    """Everything random in an update but the minibatch, standard normal."""

    vae: Tensor  # (batch, J)
    policy: Tensor  # (batch, J)
    target: Tensor  # (batch * n, J)


def mlp(*sizes: int) -> nn.Sequential:
    """Fully connected, ReLU between the layers."""
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class TextbookBCQ:
    """The learner, with the paper's sizes and settings."""

    def __init__(self, observation_size: int, action_size: int, num_samples: int = 10):
        self.num_samples, self.latent_size = num_samples, 2 * action_size
        pair = observation_size + action_size
        self.encoder = mlp(pair, 750, 750, 2 * self.latent_size)
        self.decoder = mlp(observation_size + self.latent_size, 750, 750, action_size)
        self.critics = nn.ModuleList([mlp(pair, 400, 300, 1), mlp(pair, 400, 300, 1)])
        self.perturbation = mlp(pair, 400, 300, action_size)
        self.target_critics = copy.deepcopy(self.critics)
        self.target_perturbation = copy.deepcopy(self.perturbation)
        self.vae_optimizer, self.critic_optimizer, self.perturbation_optimizer = (
            torch.optim.Adam([p for model in models for p in model.parameters()], lr=LEARNING_RATE)
            for models in ((self.encoder, self.decoder), (self.critics,), (self.perturbation,))
        )

    def decode(self, observations: Tensor, latents: Tensor) -> Tensor:
        """Actions of the generative model."""
        return torch.tanh(self.decoder(torch.cat([observations, latents], dim=1)))

    def propose(self, perturbation: nn.Module, observations: Tensor, noise: Tensor) -> Tensor:
        """Generated actions, moved by at most Phi (Eq. 11)."""
        actions = self.decode(observations, noise.clamp(-LATENT_CLIP, LATENT_CLIP))
        moved = perturbation(torch.cat([observations, actions], dim=1))
        return (actions + PHI * torch.tanh(moved)).clamp(-1.0, 1.0)

    def draw(self, rows: int) -> Noise:
        """Fresh noise for one update."""
        shapes = rows, rows, rows * self.num_samples
        return Noise(*(torch.randn(count, self.latent_size) for count in shapes))

    def update(self, batch: Batch, noise: Noise) -> tuple[Tensor, Tensor, Tensor]:
        """One iteration of Algorithm 1; the losses of VAE, critics and policy."""
        pairs = torch.cat([batch.observations, batch.actions], dim=1)
        mean, log_std = self.encoder(pairs).chunk(2, dim=1)
        log_std = log_std.clamp(-4.0, 15.0)
        std = log_std.exp()
        reconstructions = self.decode(batch.observations, mean + std * noise.vae)
        kl = -0.5 * (1 + 2 * log_std - mean**2 - std**2).mean()
        vae_loss = functional.mse_loss(reconstructions, batch.actions) + 0.5 * kl
        self.vae_optimizer.zero_grad()
        vae_loss.backward()
        self.vae_optimizer.step()

        with torch.no_grad():
            repeated = batch.next_observations.repeat_interleave(self.num_samples, dim=0)
            actions = self.propose(self.target_perturbation, repeated, noise.target)
            candidates = torch.cat([repeated, actions], dim=1)
            first, second = (critic(candidates) for critic in self.target_critics)
            values = LAMBDA * torch.min(first, second) + (1 - LAMBDA) * torch.max(first, second)
            best = values.reshape(-1, self.num_samples).max(dim=1).values
            target = batch.rewards + DISCOUNT * best * (1 - batch.terminated)
        critic_losses = [
            functional.mse_loss(critic(pairs)[:, 0], target) for critic in self.critics
        ]
        critic_loss = torch.stack(critic_losses).sum()
        self.critic_optimizer.zero_grad()
        critic_loss.backward()
        self.critic_optimizer.step()

        with torch.no_grad():
            generated = self.decode(
                batch.observations, noise.policy.clamp(-LATENT_CLIP, LATENT_CLIP)
            )
        moved = self.perturbation(torch.cat([batch.observations, generated], dim=1))
        actions = (generated + PHI * torch.tanh(moved)).clamp(-1.0, 1.0)
        values = self.critics[0](torch.cat([batch.observations, actions], dim=1))
        policy_loss = -values.mean()
        self.perturbation_optimizer.zero_grad()
        policy_loss.backward()
        self.perturbation_optimizer.step()

        self.follow()
        return vae_loss.detach(), critic_loss.detach(), policy_loss.detach()

    @torch.no_grad()
    def follow(self) -> None:
        """The target networks move a little towards the trained ones."""
        for slow, fast in (
            (self.target_critics, self.critics),
            (self.target_perturbation, self.perturbation),
        ):
            for target, parameter in zip(slow.parameters(), fast.parameters(), strict=True):
                target.lerp_(parameter, TAU)

    @torch.no_grad()
    def act(self, observation: Tensor) -> Tensor:
        """The best of n candidates in one state."""
        repeated = observation.repeat(self.num_samples, 1)
        noise = torch.randn(self.num_samples, self.latent_size)
        actions = self.propose(self.perturbation, repeated, noise)
        return actions[self.critics[0](torch.cat([repeated, actions], dim=1)).argmax()]


def sample(transitions: Batch, rows: int = 100) -> Batch:
    """A minibatch, drawn uniformly with replacement."""
    indices = torch.randint(len(transitions.rewards), (rows,))
    return Batch(*(column[indices] for column in transitions))
