"""Batch-Constrained deep Q-learning (BCQ) in plain NumPy: slow, float64, row by row.

Written from the paper (Section 4.2, Algorithm 1 and the supplement's implementation
details) with every gradient derived by hand, so that a fast implementation can be
compared with it. Equation numbers are the paper's: 11-13 are in the main text, 23-31
in the supplement.

Actions live on the [-1, 1] scale. A network is a list of (weight, bias), the weight of
shape (in, out), with a ReLU between layers and nothing after the last. All randomness
is standard normal noise handed in by the caller.

    state      encoder, decoder, critic1, critic2, perturbation, target_critic1,
               target_critic2, target_perturbation: networks;
               moments: network name -> per layer ((m_w, v_w), (m_b, v_b));
               count: the number of updates so far
    batch      observations, actions, rewards, next_observations, terminated
    noise      vae (B, J), target (B, n, J), policy (B, J)
    settings   discount, min_weight, max_perturbation, latent_clip, target_rate,
               learning_rate, vae_l2
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
Network = list[tuple[Array, Array]]
Moments = list[tuple[tuple[Array, Array], tuple[Array, Array]]]

LOG_SIGMA_LOWEST, LOG_SIGMA_HIGHEST = -4.0, 15.0
KL_WEIGHT = 0.5  # on the KL averaged over latents: lambda = 1 / (2J) on their sum
ADAM_BETA1, ADAM_BETA2, ADAM_EPSILON = 0.9, 0.999, 1e-8
TRAINED = ("encoder", "decoder", "critic1", "critic2", "perturbation")


# Networks


def float64(values: ArrayLike) -> Array:
    """The values as a float64 NumPy array."""
    return np.asarray(values, dtype=np.float64)


def join(first_row: ArrayLike, second_row: ArrayLike) -> Array:
    """Two rows, one after the other."""
    return np.concatenate([float64(first_row), float64(second_row)])


def forward(network: Network, inputs_row: ArrayLike) -> tuple[Array, list[Array]]:
    """The output for one row, and the row that entered each layer."""
    row = float64(inputs_row)
    layer_inputs = []
    for layer, (weight, bias) in enumerate(network):
        if layer > 0:
            row = np.maximum(row, 0.0)
        layer_inputs.append(row)
        row = row @ float64(weight) + float64(bias)
    return row, layer_inputs


def backward(
    network: Network, layer_inputs: list[Array], output_gradient: Array
) -> tuple[Network, Array]:
    """Gradients of the parameters and of the input row, from that of the output row."""
    gradients: Network = []
    gradient = output_gradient
    for layer in reversed(range(len(network))):
        weight, _ = network[layer]
        gradients.insert(0, (np.outer(layer_inputs[layer], gradient), gradient))
        gradient = float64(weight) @ gradient
        if layer > 0:
            gradient = gradient * (layer_inputs[layer] > 0.0)
    return gradients, gradient


def mlp(network: Network, inputs_row: ArrayLike) -> Array:
    """The output row of a network for one input row."""
    output, _ = forward(network, inputs_row)
    return output


def value(critic: Network, observation: ArrayLike, action: ArrayLike) -> float:
    """Q(s, a) of one pair."""
    return float(mlp(critic, join(observation, action))[0])


def zero_gradients(network: Network) -> Network:
    """Zeros in the shape of the network."""
    return [(np.zeros(np.shape(w)), np.zeros(np.shape(b))) for w, b in network]


def add(first: Network, second: Network) -> Network:
    """The sum of two networks' worth of numbers, layer by layer."""
    return [(a + c, b + d) for (a, b), (c, d) in zip(first, second, strict=True)]


# The generative model G, a conditional variational auto-encoder


def encode(encoder: Network, observations: ArrayLike, actions: ArrayLike) -> tuple[Array, Array]:
    """Mean and standard deviation of q(z | s, a), the posterior of Eq. 23."""
    means, sigmas = [], []
    for observation, action in zip(float64(observations), float64(actions), strict=True):
        output = mlp(encoder, join(observation, action))
        mean, log_sigma = np.split(output, 2)
        means.append(mean)
        sigmas.append(np.exp(np.clip(log_sigma, LOG_SIGMA_LOWEST, LOG_SIGMA_HIGHEST)))
    return np.array(means), np.array(sigmas)


def decode(decoder: Network, observations: ArrayLike, latents: ArrayLike) -> Array:
    """The actions D(s, z); tanh keeps them in [-1, 1]."""
    rows = []
    for observation, latent in zip(float64(observations), float64(latents), strict=True):
        rows.append(np.tanh(mlp(decoder, join(observation, latent))))
    return np.array(rows)


def generate(
    decoder: Network, observations: ArrayLike, noise: ArrayLike, latent_clip: float
) -> Array:
    """One action a ~ G(s) per row: the prior's z, clipped, then decoded."""
    return decode(decoder, observations, np.clip(float64(noise), -latent_clip, latent_clip))


def vae_loss(
    encoder: Network,
    decoder: Network,
    observations: ArrayLike,
    actions: ArrayLike,
    noise: ArrayLike,
) -> tuple[float, float, float]:
    """The loss of Eq. 30, the reconstruction of Eq. 28 and the KL of Eq. 29, as means."""
    actions, noise = float64(actions), float64(noise)
    means, sigmas = encode(encoder, observations, actions)
    latents = means + sigmas * noise  # Eq. 24, not clipped here
    reconstructions = decode(decoder, observations, latents)

    squared_errors = []
    divergences = []
    for row in range(len(actions)):
        for dimension in range(actions.shape[1]):
            error = reconstructions[row, dimension] - actions[row, dimension]
            squared_errors.append(error**2)
        for j in range(noise.shape[1]):
            mean, sigma = means[row, j], sigmas[row, j]
            divergences.append(-0.5 * (1 + np.log(sigma**2) - mean**2 - sigma**2))  # Eq. 31

    reconstruction = float(np.mean(squared_errors))
    kl = float(np.mean(divergences))
    return reconstruction + KL_WEIGHT * kl, reconstruction, kl


def vae_gradients(
    encoder: Network,
    decoder: Network,
    observations: ArrayLike,
    actions: ArrayLike,
    noise: ArrayLike,
) -> tuple[Network, Network]:
    """Gradients of `vae_loss` for the encoder and the decoder, without the L2 term."""
    observations, actions, noise = float64(observations), float64(actions), float64(noise)
    batch_size, action_size = actions.shape
    observation_size, latent_size = observations.shape[1], noise.shape[1]
    encoder_total, decoder_total = zero_gradients(encoder), zero_gradients(decoder)

    for observation, action, epsilon in zip(observations, actions, noise, strict=True):
        # Forward.
        output, encoder_inputs = forward(encoder, join(observation, action))
        mean, log_sigma = output[:latent_size], output[latent_size:]
        sigma = np.exp(np.clip(log_sigma, LOG_SIGMA_LOWEST, LOG_SIGMA_HIGHEST))
        latent = mean + sigma * epsilon  # Eq. 24
        output, decoder_inputs = forward(decoder, join(observation, latent))
        reconstruction = np.tanh(output)

        # Eq. 28, back through the tanh and the decoder to the latent.
        d_reconstruction = 2.0 * (reconstruction - action) / (batch_size * action_size)
        d_output = d_reconstruction * (1.0 - reconstruction**2)
        decoder_gradients, d_input = backward(decoder, decoder_inputs, d_output)
        d_latent = d_input[observation_size:]

        # Eq. 31: the divergence's slope is mu in mu, and sigma^2 - 1 in log sigma.
        share = KL_WEIGHT / (batch_size * latent_size)
        d_mean = d_latent + share * mean
        d_log_sigma = d_latent * epsilon * sigma + share * (sigma**2 - 1.0)
        inside = (log_sigma >= LOG_SIGMA_LOWEST) & (log_sigma <= LOG_SIGMA_HIGHEST)
        d_output = join(d_mean, d_log_sigma * inside)
        encoder_gradients, _ = backward(encoder, encoder_inputs, d_output)

        encoder_total = add(encoder_total, encoder_gradients)
        decoder_total = add(decoder_total, decoder_gradients)
    return encoder_total, decoder_total


# The perturbation model xi and the policy


def perturb(
    perturbation: Network,
    observations: ArrayLike,
    actions: ArrayLike,
    max_perturbation: float,
) -> Array:
    """a + xi(s, a, Phi), kept within the action bounds."""
    rows = []
    for observation, action in zip(float64(observations), float64(actions), strict=True):
        adjustment = max_perturbation * np.tanh(mlp(perturbation, join(observation, action)))
        rows.append(np.clip(action + adjustment, -1.0, 1.0))
    return np.array(rows)


def act(
    state: dict[str, Any],
    observations: ArrayLike,
    noise: ArrayLike,
    settings: dict[str, float],
) -> Array:
    """The policy pi(s) of Eq. 11: the best of n perturbed samples by the first critic."""
    chosen = []
    for observation, sample_noise in zip(float64(observations), float64(noise), strict=True):
        best_action, best_value = None, -np.inf
        for latent in sample_noise:
            action = generate(state["decoder"], [observation], [latent], settings["latent_clip"])
            action = perturb(
                state["perturbation"], [observation], action, settings["max_perturbation"]
            )
            action_value = value(state["critic1"], observation, action[0])
            if best_action is None or action_value > best_value:
                best_action, best_value = action[0], action_value
        chosen.append(best_action)
    return np.array(chosen)


def policy_loss(
    state: dict[str, Any],
    observations: ArrayLike,
    noise: ArrayLike,
    settings: dict[str, float],
) -> float:
    """Minus the mean of Q_1(s, a + xi(s, a, Phi)), a ~ G(s) (Eqs. 12 and 26)."""
    actions = generate(state["decoder"], observations, noise, settings["latent_clip"])
    actions = perturb(state["perturbation"], observations, actions, settings["max_perturbation"])
    values = []
    for observation, action in zip(float64(observations), actions, strict=True):
        values.append(value(state["critic1"], observation, action))
    return -float(np.mean(values))


def policy_gradients(
    state: dict[str, Any],
    observations: ArrayLike,
    noise: ArrayLike,
    settings: dict[str, float],
) -> Network:
    """Gradients of `policy_loss` for the perturbation network (Eqs. 12 and 26)."""
    observations = float64(observations)
    batch_size, observation_size = observations.shape
    perturbation, critic = state["perturbation"], state["critic1"]
    max_perturbation = settings["max_perturbation"]
    sampled = generate(state["decoder"], observations, noise, settings["latent_clip"])
    total = zero_gradients(perturbation)

    for observation, action in zip(observations, sampled, strict=True):
        # Forward; the sampled action is a constant.
        output, perturbation_inputs = forward(perturbation, join(observation, action))
        squashed = np.tanh(output)
        unclipped = action + max_perturbation * squashed
        perturbed = np.clip(unclipped, -1.0, 1.0)
        _, critic_inputs = forward(critic, join(observation, perturbed))

        # Back through the critic to its action, the clip, and the tanh.
        _, d_input = backward(critic, critic_inputs, np.array([-1.0 / batch_size]))
        d_perturbed = d_input[observation_size:]
        inside = (unclipped > -1.0) & (unclipped < 1.0)
        d_output = d_perturbed * inside * max_perturbation * (1.0 - squashed**2)
        gradients, _ = backward(perturbation, perturbation_inputs, d_output)
        total = add(total, gradients)
    return total


# The critics


def soft_minimum(first: float, second: float, min_weight: float) -> float:
    """lambda min(Q_1, Q_2) + (1 - lambda) max(Q_1, Q_2), inside Eq. 13."""
    return min_weight * min(first, second) + (1.0 - min_weight) * max(first, second)


def bellman_target(
    state: dict[str, Any],
    batch: dict[str, Any],
    noise: ArrayLike,
    settings: dict[str, float],
) -> Array:
    """The learning target y of Eqs. 13 and 27; just r after a terminal step (Eq. 25)."""
    noise = float64(noise)
    targets = []
    for row in range(len(noise)):
        reward = float(batch["rewards"][row])
        if batch["terminated"][row]:
            targets.append(reward)
            continue
        next_observation = batch["next_observations"][row]
        values = []
        for latent in noise[row]:
            action = generate(
                state["decoder"], [next_observation], [latent], settings["latent_clip"]
            )
            action = perturb(
                state["target_perturbation"],
                [next_observation],
                action,
                settings["max_perturbation"],
            )
            first = value(state["target_critic1"], next_observation, action[0])
            second = value(state["target_critic2"], next_observation, action[0])
            values.append(soft_minimum(first, second, settings["min_weight"]))
        targets.append(reward + settings["discount"] * max(values))
    return np.array(targets)


def critic_loss(
    critic1: Network, critic2: Network, batch: dict[str, Any], targets: ArrayLike
) -> float:
    """The mean of (y - Q_i(s, a))^2, summed over the two critics (Eq. 27)."""
    targets = float64(targets)
    loss = 0.0
    for critic in (critic1, critic2):
        squared_errors = []
        for row in range(len(targets)):
            estimate = value(critic, batch["observations"][row], batch["actions"][row])
            squared_errors.append((targets[row] - estimate) ** 2)
        loss += float(np.mean(squared_errors))
    return loss


def critic_gradients(critic: Network, batch: dict[str, Any], targets: ArrayLike) -> Network:
    """Gradients of `critic_loss` for one critic; the targets are constants."""
    targets = float64(targets)
    total = zero_gradients(critic)
    for row in range(len(targets)):
        pair = join(batch["observations"][row], batch["actions"][row])
        estimate, layer_inputs = forward(critic, pair)
        d_estimate = 2.0 * (estimate - targets[row]) / len(targets)
        gradients, _ = backward(critic, layer_inputs, d_estimate)
        total = add(total, gradients)
    return total


# Optimisation


def initial_moments(state: dict[str, Any]) -> dict[str, Moments]:
    """Adam's moments before the first update: zeros for every trained network."""
    moments = {}
    for name in TRAINED:
        moments[name] = [
            (
                (np.zeros(np.shape(weight)), np.zeros(np.shape(weight))),
                (np.zeros(np.shape(bias)), np.zeros(np.shape(bias))),
            )
            for weight, bias in state[name]
        ]
    return moments


def adam(
    parameter: ArrayLike,
    gradient: ArrayLike,
    first_moment: ArrayLike,
    second_moment: ArrayLike,
    count: int,
    learning_rate: float,
) -> tuple[Array, Array, Array]:
    """One step of Adam; `count` is 1 at the first step."""
    gradient = float64(gradient)
    first_moment = ADAM_BETA1 * float64(first_moment) + (1.0 - ADAM_BETA1) * gradient
    second_moment = ADAM_BETA2 * float64(second_moment) + (1.0 - ADAM_BETA2) * gradient**2
    first_unbiased = first_moment / (1.0 - ADAM_BETA1**count)
    second_unbiased = second_moment / (1.0 - ADAM_BETA2**count)
    step = learning_rate * first_unbiased / (np.sqrt(second_unbiased) + ADAM_EPSILON)
    return float64(parameter) - step, first_moment, second_moment


def adam_network(
    network: Network, gradients: Network, moments: Moments, count: int, learning_rate: float
) -> tuple[Network, Moments]:
    """One step of Adam on every parameter of a network."""
    new_network: Network = []
    new_moments: Moments = []
    for layer in range(len(network)):
        (weight, bias), (d_weight, d_bias) = network[layer], gradients[layer]
        (m_w, v_w), (m_b, v_b) = moments[layer]
        weight, m_w, v_w = adam(weight, d_weight, m_w, v_w, count, learning_rate)
        bias, m_b, v_b = adam(bias, d_bias, m_b, v_b, count, learning_rate)
        new_network.append((weight, bias))
        new_moments.append(((m_w, v_w), (m_b, v_b)))
    return new_network, new_moments


def add_l2(gradients: Network, network: Network, weight_of_l2: float) -> Network:
    """The gradients plus `weight_of_l2` times the parameters, weights and biases alike."""
    return add(
        gradients,
        [(weight_of_l2 * float64(w), weight_of_l2 * float64(b)) for w, b in network],
    )


def move_target(target: Network, network: Network, target_rate: float) -> Network:
    """theta' <- tau theta + (1 - tau) theta', the last lines of Algorithm 1."""
    moved = []
    for (target_weight, target_bias), (weight, bias) in zip(target, network, strict=True):
        new_weight = target_rate * float64(weight) + (1.0 - target_rate) * float64(target_weight)
        new_bias = target_rate * float64(bias) + (1.0 - target_rate) * float64(target_bias)
        moved.append((new_weight, new_bias))
    return moved


def update(
    state: dict[str, Any],
    batch: dict[str, Any],
    noise: dict[str, ArrayLike],
    settings: dict[str, float],
) -> tuple[dict[str, Any], dict[str, float]]:
    """One iteration of Algorithm 1; each loss is taken just before its own step."""
    new = dict(state)  # entries are replaced below, never changed in place
    new["moments"] = dict(state["moments"])
    new["count"] = state["count"] + 1

    def step(name: str, gradients: Network) -> None:
        new[name], new["moments"][name] = adam_network(
            new[name], gradients, new["moments"][name], new["count"], settings["learning_rate"]
        )

    observations, actions = batch["observations"], batch["actions"]

    # The VAE, omega (Eqs. 28-31).
    encoder, decoder = state["encoder"], state["decoder"]
    loss, reconstruction, kl = vae_loss(encoder, decoder, observations, actions, noise["vae"])
    encoder_gradients, decoder_gradients = vae_gradients(
        encoder, decoder, observations, actions, noise["vae"]
    )
    step("encoder", add_l2(encoder_gradients, encoder, settings["vae_l2"]))
    step("decoder", add_l2(decoder_gradients, decoder, settings["vae_l2"]))

    # The critics, theta: both towards one target, sampled from the VAE just updated (Eq. 27).
    targets = bellman_target(new, batch, noise["target"], settings)
    loss_of_critics = critic_loss(new["critic1"], new["critic2"], batch, targets)
    step("critic1", critic_gradients(new["critic1"], batch, targets))
    step("critic2", critic_gradients(new["critic2"], batch, targets))

    # The perturbation network, phi: by the VAE and the first critic just updated (Eq. 26).
    loss_of_policy = policy_loss(new, observations, noise["policy"], settings)
    step("perturbation", policy_gradients(new, observations, noise["policy"], settings))

    # The target networks.
    for name in ("critic1", "critic2", "perturbation"):
        new["target_" + name] = move_target(
            new["target_" + name], new[name], settings["target_rate"]
        )

    losses = {
        "vae_loss": loss,
        "reconstruction": reconstruction,
        "kl": kl,
        "critic_loss": loss_of_critics,
        "policy_loss": loss_of_policy,
        "target_mean": float(np.mean(targets)),
    }
    return new, losses
