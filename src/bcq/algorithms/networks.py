"""The paper's networks (supplement G, Figure 10), on the [-1, 1] scale of actions.

Every network takes inputs whose leading axes broadcast, so that one state can meet its n candidate
actions: `observations[:, None]` with actions of shape (batch, n, action_size).
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array


class Linear(eqx.Module):
    """An affine layer, weights and biases uniform in +-1/sqrt(fan-in)."""

    weight: Array  # (inputs, outputs)
    bias: Array

    def __init__(self, inputs: int, outputs: int, key: Array):
        weight_key, bias_key = jax.random.split(key)
        limit = inputs**-0.5
        self.weight = jax.random.uniform(weight_key, (inputs, outputs), minval=-limit, maxval=limit)
        self.bias = jax.random.uniform(bias_key, (outputs,), minval=-limit, maxval=limit)

    def __call__(self, inputs: Array) -> Array:
        """Inputs times weights plus biases."""
        return inputs @ self.weight + self.bias


class MLP(eqx.Module):
    """The default architecture (Figure 10): fully connected, ReLU between the layers."""

    layers: tuple[Linear, ...]

    def __init__(self, inputs: int, hidden: tuple[int, ...], outputs: int, key: Array):
        sizes = (inputs, *hidden, outputs)
        keys = jax.random.split(key, len(sizes) - 1)
        self.layers = tuple(
            Linear(i, o, k) for i, o, k in zip(sizes[:-1], sizes[1:], keys, strict=True)
        )

    def __call__(self, *inputs: Array) -> Array:
        """The output for the inputs side by side."""
        leading = jnp.broadcast_shapes(*(part.shape[:-1] for part in inputs))
        parts = [jnp.broadcast_to(part, (*leading, part.shape[-1])) for part in inputs]
        hidden = jnp.concatenate(parts, axis=-1)
        hidden = hidden.reshape(-1, hidden.shape[-1])  # plain matrix products, forwards and back
        for layer in self.layers[:-1]:
            hidden = jax.nn.relu(layer(hidden))
        return self.layers[-1](hidden).reshape(*leading, -1)


class Critics(eqx.Module):
    """Value networks Q_1, Q_2, ... (a pair in Section 4.2, an ensemble in supplement D.2)."""

    members: tuple[MLP, ...]

    def __init__(
        self,
        observation_size: int,
        action_size: int,
        hidden: tuple[int, ...],
        key: Array,
        count: int = 2,
    ):
        inputs = observation_size + action_size
        self.members = tuple(MLP(inputs, hidden, 1, k) for k in jax.random.split(key, count))

    def __call__(self, observations: Array, actions: Array) -> Array:
        """Every critic's value of the same pairs, stacked in front: (critics, ...)."""
        return jnp.stack([critic(observations, actions)[..., 0] for critic in self.members])

    def each(self, observations: Array, actions: Array) -> Array:
        """The i-th critic's value of the i-th pairs: (critics, ...)."""
        pairs = zip(self.members, observations, actions, strict=True)
        return jnp.stack([critic(states, chosen)[..., 0] for critic, states, chosen in pairs])

    def first(self, observations: Array, actions: Array) -> Array:
        """Q_1, which trains the perturbation model (Eq. 26) and picks the action (Eq. 11)."""
        return self.members[0](observations, actions)[..., 0]


class Actor(eqx.Module):
    """pi_phi(s): a deterministic policy; tanh keeps it inside the bounds (Figure 10)."""

    network: MLP

    def __init__(
        self, observation_size: int, action_size: int, hidden: tuple[int, ...], key: Array
    ):
        self.network = MLP(observation_size, hidden, action_size, key)

    def __call__(self, observations: Array) -> Array:
        """The action in each state."""
        return jnp.tanh(self.network(observations))


class LateActionCritic(eqx.Module):
    """DDPG's critic (Figure 11): the action joins at the second layer."""

    first: Linear
    rest: MLP

    def __init__(
        self, observation_size: int, action_size: int, hidden: tuple[int, ...], key: Array
    ):
        first_key, rest_key = jax.random.split(key)
        self.first = Linear(observation_size, hidden[0], first_key)
        self.rest = MLP(hidden[0] + action_size, hidden[1:], 1, rest_key)

    def __call__(self, observations: Array, actions: Array) -> Array:
        """Q(s, a)."""
        return self.rest(jax.nn.relu(self.first(observations)), actions)[..., 0]


class PerturbationModel(eqx.Module):
    """xi_phi(s, a, Phi): how to move an action, by at most Phi in each dimension (Section 4.2)."""

    network: MLP
    limit: float = eqx.field(static=True)  # Phi

    def __init__(
        self,
        observation_size: int,
        action_size: int,
        hidden: tuple[int, ...],
        limit: float,
        key: Array,
    ):
        self.network = MLP(observation_size + action_size, hidden, action_size, key)
        self.limit = limit

    def __call__(self, observations: Array, actions: Array) -> Array:
        """The adjustment, in [-Phi, Phi]."""
        return self.limit * jnp.tanh(self.network(observations, actions))


class ConditionalVAE(eqx.Module):
    """G_omega(s): a generative model of the batch's actions given the state (supplement E, G)."""

    encoder: MLP
    decoder: MLP
    latent_clip: float = eqx.field(static=True)

    def __init__(
        self,
        observation_size: int,
        action_size: int,
        hidden: tuple[int, ...],
        latent_clip: float,
        key: Array,
    ):
        encoder_key, decoder_key = jax.random.split(key)
        latent_size = 2 * action_size  # J
        self.encoder = MLP(observation_size + action_size, hidden, 2 * latent_size, encoder_key)
        self.decoder = MLP(observation_size + latent_size, hidden, action_size, decoder_key)
        self.latent_clip = latent_clip

    @property
    def latent_size(self) -> int:
        """J, the number of latent dimensions."""
        return self.encoder.layers[-1].bias.size // 2

    def encode(self, observations: Array, actions: Array) -> tuple[Array, Array]:
        """Mean and log standard deviation of the latent."""
        mean, log_std = jnp.split(self.encoder(observations, actions), 2, axis=-1)
        return mean, jnp.clip(log_std, -4.0, 15.0)  # keeps exp finite; not in the paper

    def decode(self, observations: Array, latents: Array) -> Array:
        """The action a latent stands for; tanh keeps it inside the bounds whatever the weights."""
        return jnp.tanh(self.decoder(observations, latents))

    def generate(self, observations: Array, noise: Array) -> Array:
        """Actions like the batch's (a ~ G_omega(s)) from standard normal noise, clipped."""
        return self.decode(observations, jnp.clip(noise, -self.latent_clip, self.latent_clip))

    def loss(
        self, observations: Array, actions: Array, noise: Array
    ) -> tuple[Array, dict[str, Array]]:
        """Reconstruction plus KL/(2J) (Eq. 28-31), noise being the epsilon of Eq. 24."""
        mean, log_std = self.encode(observations, actions)
        std = jnp.exp(log_std)
        reconstructions = self.decode(observations, mean + std * noise)
        reconstruction = jnp.mean((reconstructions - actions) ** 2)
        kl = -0.5 * jnp.mean(1 + 2 * log_std - mean**2 - std**2)  # of one latent dimension
        loss = reconstruction + 0.5 * kl
        return loss, {
            "vae_loss": loss,
            "reconstruction": reconstruction,
            "kl": kl,
            "latents_beyond_clip": jnp.mean(jnp.abs(mean) > self.latent_clip),
        }
