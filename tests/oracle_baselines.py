"""The baselines of Section 5 and supplement D.2 in plain NumPy: slow, float64, row by row.

Written from the paper (Section 2, supplement D.2 and the supplement's implementation
details) with every gradient derived by hand, so that a fast implementation can be
compared with it. Equation numbers are the paper's: 1-5 are in the main text, 22, 25, 32
and 33 in the supplement. What BCQ's oracle already has is imported from there.

Actions live on the [-1, 1] scale. A network is a list of (weight, bias), the weight of
shape (in, out), with a ReLU between layers and nothing after the last; every policy is a
network followed by a tanh. Nothing here is random. The states, with `count` the number of
updates so far and `moments` those of Adam, per layer ((m_w, v_w), (m_b, v_b)):

    DDPG       actor, critic, target_actor, target_critic: networks; the action joins the
               critic at its second layer of three;
               moments: {"actor": ..., "critic": ...}; count
    DQN        network, target_network: networks; output j * num_bins + i is the value of
               bin i of dimension j; moments: {"network": ...}; count
    BC         policy: a network; moments: {"policy": ...}; count
    ensemble   critics, target_critics: lists of N networks, the action joined to the
               observation; policy, target_policy: networks;
               moments: {"critics": [one per member, in order], "policy": ...}; count

    batch      observations, actions, rewards, next_observations, terminated; for the
               ensemble N * M rows, of which [i * M, (i + 1) * M) are for critic i
    settings   DDPG: discount, critic_l2, critic_learning_rate, actor_learning_rate,
               target_rate; DQN: num_bins, discount, learning_rate, target_rate;
               BC: learning_rate; ensemble: discount, epsilon, learning_rate, target_rate
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from oracle import (
    Array,
    Moments,
    Network,
    adam_network,
    add,
    add_l2,
    backward,
    critic_gradients,
    float64,
    forward,
    join,
    mlp,
    move_target,
    value,
    zero_gradients,
)

TRAINED = ("actor", "critic", "network", "policy")


# Shared by the baselines


def act(actor: Network, observations: ArrayLike) -> Array:
    """The actions of a deterministic policy: its network, then tanh."""
    return np.array([np.tanh(mlp(actor, observation)) for observation in float64(observations)])


def bootstrap(batch: dict[str, Any], next_values: ArrayLike, discount: float) -> Array:
    """The learning target y of Eq. 25: r + gamma times the next value; r if terminal."""
    targets = []
    for row, next_value in enumerate(float64(next_values)):
        reward = float(batch["rewards"][row])
        if batch["terminated"][row]:
            targets.append(reward)
        else:
            targets.append(reward + discount * float(next_value))
    return np.array(targets)


def zero_moments(network: Network) -> Moments:
    """Adam's moments of one network before the first update."""
    return [
        (
            (np.zeros(np.shape(weight)), np.zeros(np.shape(weight))),
            (np.zeros(np.shape(bias)), np.zeros(np.shape(bias))),
        )
        for weight, bias in network
    ]


def initial_moments(state: dict[str, Any]) -> dict[str, Any]:
    """The `moments` of any of the four states before the first update."""
    moments: dict[str, Any] = {}
    for name in TRAINED:
        if name in state:
            moments[name] = zero_moments(state[name])
    if "critics" in state:
        moments["critics"] = [zero_moments(critic) for critic in state["critics"]]
    return moments


def begin(state: dict[str, Any]) -> dict[str, Any]:
    """A copy whose entries an update may replace, with the update counted."""
    new = dict(state)
    new["moments"] = dict(state["moments"])
    new["count"] = state["count"] + 1
    return new


def step(new: dict[str, Any], name: str, gradients: Network, learning_rate: float) -> None:
    """Replace one network of the state, and its moments, by a step of Adam."""
    new[name], new["moments"][name] = adam_network(
        new[name], gradients, new["moments"][name], new["count"], learning_rate
    )


def track(new: dict[str, Any], name: str, target_rate: float) -> None:
    """Move the target of one network of the state towards that network."""
    new["target_" + name] = move_target(new["target_" + name], new[name], target_rate)


# DDPG


def late_forward(
    critic: Network, observation: ArrayLike, action: ArrayLike
) -> tuple[Array, list[Array]]:
    """Q(s, a) and the row that entered each layer; the action enters at the second."""
    observation = float64(observation)
    (weight, bias), *later_layers = critic
    hidden = np.maximum(observation @ float64(weight) + float64(bias), 0.0)
    estimate, later_inputs = forward(later_layers, join(hidden, action))
    return estimate, [observation, *later_inputs]


def late_backward(
    critic: Network, layer_inputs: list[Array], d_estimate: Array
) -> tuple[Network, Array]:
    """Gradients of the critic's parameters and of the action, from that of Q(s, a)."""
    observation, joined = layer_inputs[0], layer_inputs[1]
    later_gradients, d_joined = backward(critic[1:], layer_inputs[1:], d_estimate)
    hidden_size = len(critic[0][1])
    d_action = d_joined[hidden_size:]
    d_hidden = d_joined[:hidden_size] * (joined[:hidden_size] > 0.0)
    return [(np.outer(observation, d_hidden), d_hidden), *later_gradients], d_action


def late_action_value(critic: Network, observation: ArrayLike, action: ArrayLike) -> float:
    """Q(s, a) of one pair, by the figure "DDPG Critic Network Architecture"."""
    estimate, _ = late_forward(critic, observation, action)
    return float(estimate[0])


def ddpg_target(state: dict[str, Any], batch: dict[str, Any], settings: dict[str, float]) -> Array:
    """The target y = r + gamma Q'(s', pi'(s')), both target networks (Eqs. 5 and 25)."""
    next_observations = float64(batch["next_observations"])
    next_actions = act(state["target_actor"], next_observations)
    next_values = []
    for observation, action in zip(next_observations, next_actions, strict=True):
        next_values.append(late_action_value(state["target_critic"], observation, action))
    return bootstrap(batch, next_values, settings["discount"])


def ddpg_critic_loss(critic: Network, batch: dict[str, Any], targets: ArrayLike) -> float:
    """The mean of (y - Q(s, a))^2 (Eq. 5), without the L2 term."""
    squared_errors = []
    for row, target in enumerate(float64(targets)):
        estimate = late_action_value(critic, batch["observations"][row], batch["actions"][row])
        squared_errors.append((target - estimate) ** 2)
    return float(np.mean(squared_errors))


def ddpg_critic_gradients(critic: Network, batch: dict[str, Any], targets: ArrayLike) -> Network:
    """Gradients of `ddpg_critic_loss`; the targets are constants."""
    targets = float64(targets)
    total = zero_gradients(critic)
    for row, target in enumerate(targets):
        estimate, layer_inputs = late_forward(
            critic, batch["observations"][row], batch["actions"][row]
        )
        d_estimate = 2.0 * (estimate - target) / len(targets)
        gradients, _ = late_backward(critic, layer_inputs, d_estimate)
        total = add(total, gradients)
    return total


def ddpg_policy_loss(actor: Network, critic: Network, observations: ArrayLike) -> float:
    """Minus the mean of Q(s, pi(s)) (Eq. 3)."""
    observations = float64(observations)
    values = []
    for observation, action in zip(observations, act(actor, observations), strict=True):
        values.append(late_action_value(critic, observation, action))
    return -float(np.mean(values))


def ddpg_policy_gradients(actor: Network, critic: Network, observations: ArrayLike) -> Network:
    """Gradients of `ddpg_policy_loss` for the actor, the deterministic policy gradient."""
    observations = float64(observations)
    total = zero_gradients(actor)
    for observation in observations:
        output, actor_inputs = forward(actor, observation)
        action = np.tanh(output)
        _, critic_inputs = late_forward(critic, observation, action)

        # Back through the critic to its action, and through the tanh.
        d_estimate = np.array([-1.0 / len(observations)])
        _, d_action = late_backward(critic, critic_inputs, d_estimate)
        gradients, _ = backward(actor, actor_inputs, d_action * (1.0 - action**2))
        total = add(total, gradients)
    return total


def ddpg_update(
    state: dict[str, Any], batch: dict[str, Any], settings: dict[str, float]
) -> tuple[dict[str, Any], dict[str, float]]:
    """One update of DDPG; each loss is taken just before its own step."""
    new = begin(state)
    observations = batch["observations"]

    # The critic, with L2 regularisation in its gradient (Eq. 5).
    critic = state["critic"]
    targets = ddpg_target(state, batch, settings)
    critic_loss = ddpg_critic_loss(critic, batch, targets)
    gradients = ddpg_critic_gradients(critic, batch, targets)
    gradients = add_l2(gradients, critic, settings["critic_l2"])
    step(new, "critic", gradients, settings["critic_learning_rate"])

    # The actor, by the critic just updated (Eq. 3).
    policy_loss = ddpg_policy_loss(state["actor"], new["critic"], observations)
    gradients = ddpg_policy_gradients(state["actor"], new["critic"], observations)
    step(new, "actor", gradients, settings["actor_learning_rate"])

    # The target networks.
    track(new, "critic", settings["target_rate"])
    track(new, "actor", settings["target_rate"])

    metrics = {
        "critic_loss": critic_loss,
        "policy_loss": policy_loss,
        "target_mean": float(np.mean(targets)),
    }
    return new, metrics


# DQN over an independently discretised action space


def dqn_bins(actions: ArrayLike, num_bins: int) -> NDArray[np.int64]:
    """The bin i of every action number: num_bins equal bins of [-1, 1], from 0."""
    rows = []
    for action in float64(actions):
        row = []
        for number in action:
            chosen = int(np.floor(num_bins * (number + 1.0) / 2.0))
            row.append(max(min(chosen, num_bins - 1), 0))
        rows.append(row)
    return np.array(rows, dtype=np.int64)


def dqn_centre(chosen: int, num_bins: int) -> float:
    """The action number that stands for a bin: the bin's centre."""
    return -1.0 + (2.0 * chosen + 1.0) / num_bins


def dqn_values(network: Network, observation: ArrayLike, num_bins: int) -> Array:
    """Q(s, a_ij) of one observation, a row of bins i for every dimension j."""
    output = mlp(network, observation)
    num_dimensions = len(output) // num_bins
    rows = []
    for j in range(num_dimensions):
        rows.append([output[j * num_bins + i] for i in range(num_bins)])
    return np.array(rows)


def dqn_act(network: Network, observations: ArrayLike, num_bins: int) -> Array:
    """The greedy action: in every dimension the centre of its best bin, first if tied."""
    rows = []
    for observation in float64(observations):
        row = []
        for bin_values in dqn_values(network, observation, num_bins):
            row.append(dqn_centre(int(np.argmax(bin_values)), num_bins))
        rows.append(row)
    return np.array(rows)


def dqn_value(
    network: Network, observations: ArrayLike, actions: ArrayLike, num_bins: int
) -> Array:
    """The mean over dimensions of Q(s, a_ij) at the bins of the actions, one per row."""
    bins = dqn_bins(actions, num_bins)
    estimates = []
    for row, observation in enumerate(float64(observations)):
        values = dqn_values(network, observation, num_bins)
        estimates.append(np.mean([values[j, i] for j, i in enumerate(bins[row])]))
    return np.array(estimates)


def dqn_target(state: dict[str, Any], batch: dict[str, Any], settings: dict[str, float]) -> Array:
    """The target y of Eq. 32, its 1 / n read as 1 / J; just r if terminal (Eq. 25)."""
    num_bins = int(settings["num_bins"])
    next_values = []
    for observation in float64(batch["next_observations"]):
        values = dqn_values(state["target_network"], observation, num_bins)
        next_values.append(np.mean([max(bin_values) for bin_values in values]))
    return bootstrap(batch, next_values, settings["discount"])


def dqn_loss(network: Network, batch: dict[str, Any], targets: ArrayLike, num_bins: int) -> float:
    """The mean over rows of the sum over j of (y - Q(s, a_ij))^2 (Eq. 33)."""
    bins = dqn_bins(batch["actions"], num_bins)
    losses = []
    for row, target in enumerate(float64(targets)):
        values = dqn_values(network, batch["observations"][row], num_bins)
        losses.append(sum((target - values[j, i]) ** 2 for j, i in enumerate(bins[row])))
    return float(np.mean(losses))


def dqn_gradients(
    network: Network, batch: dict[str, Any], targets: ArrayLike, num_bins: int
) -> Network:
    """Gradients of `dqn_loss`: zero at the outputs of all bins but the data's."""
    targets = float64(targets)
    bins = dqn_bins(batch["actions"], num_bins)
    total = zero_gradients(network)
    for row, target in enumerate(targets):
        output, layer_inputs = forward(network, batch["observations"][row])
        d_output = np.zeros(len(output))
        for j, i in enumerate(bins[row]):
            place = j * num_bins + i
            d_output[place] = 2.0 * (output[place] - target) / len(targets)
        gradients, _ = backward(network, layer_inputs, d_output)
        total = add(total, gradients)
    return total


def dqn_update(
    state: dict[str, Any], batch: dict[str, Any], settings: dict[str, float]
) -> tuple[dict[str, Any], dict[str, float]]:
    """One update of the discretised DQN (Eqs. 32 and 33)."""
    new = begin(state)
    num_bins = int(settings["num_bins"])
    targets = dqn_target(state, batch, settings)
    loss = dqn_loss(state["network"], batch, targets, num_bins)
    gradients = dqn_gradients(state["network"], batch, targets, num_bins)
    step(new, "network", gradients, settings["learning_rate"])
    track(new, "network", settings["target_rate"])
    return new, {"critic_loss": loss, "target_mean": float(np.mean(targets))}


# Behavioral cloning


def bc_loss(policy: Network, batch: dict[str, Any]) -> float:
    """The mean squared error of the policy's actions, over rows and dimensions."""
    squared_errors = []
    predictions = act(policy, batch["observations"])
    for prediction, action in zip(predictions, float64(batch["actions"]), strict=True):
        for predicted, number in zip(prediction, action, strict=True):
            squared_errors.append((predicted - number) ** 2)
    return float(np.mean(squared_errors))


def bc_gradients(policy: Network, batch: dict[str, Any]) -> Network:
    """Gradients of `bc_loss`."""
    actions = float64(batch["actions"])
    total = zero_gradients(policy)
    for row, action in enumerate(actions):
        output, layer_inputs = forward(policy, batch["observations"][row])
        prediction = np.tanh(output)
        d_prediction = 2.0 * (prediction - action) / actions.size
        gradients, _ = backward(policy, layer_inputs, d_prediction * (1.0 - prediction**2))
        total = add(total, gradients)
    return total


def bc_update(
    state: dict[str, Any], batch: dict[str, Any], settings: dict[str, float]
) -> tuple[dict[str, Any], dict[str, float]]:
    """One update of behavioral cloning."""
    new = begin(state)
    loss = bc_loss(state["policy"], batch)
    step(new, "policy", bc_gradients(state["policy"], batch), settings["learning_rate"])
    return new, {"bc_loss": loss}


# The ensemble of critics, a measure of uncertainty


def minibatches(batch: dict[str, Any], num_critics: int) -> list[dict[str, Any]]:
    """The minibatch of every critic: M successive rows of the N * M."""
    size, left_over = divmod(len(batch["rewards"]), num_critics)
    if left_over:
        raise ValueError(f"{len(batch['rewards'])} rows for {num_critics} critics")
    parts = []
    for i in range(num_critics):
        parts.append({name: rows[i * size : (i + 1) * size] for name, rows in batch.items()})
    return parts


def member_values(critics: list[Network], observation: ArrayLike, action: ArrayLike) -> Array:
    """Q_i(s, a) of one pair, by every member i."""
    return np.array([value(critic, observation, action) for critic in critics])


def ensemble_value(critics: list[Network], observations: ArrayLike, actions: ArrayLike) -> Array:
    """The mean over members of Q_i(s, a), one per row."""
    means = []
    for observation, action in zip(float64(observations), float64(actions), strict=True):
        means.append(np.mean(member_values(critics, observation, action)))
    return np.array(means)


def ensemble_targets(
    state: dict[str, Any], batch: dict[str, Any], settings: dict[str, float]
) -> Array:
    """The targets y = r + gamma Q'_i(s', pi'(s')), (N, M), by the member's own target."""
    target_critics = state["target_critics"]
    targets = []
    for critic, part in zip(target_critics, minibatches(batch, len(target_critics)), strict=True):
        next_observations = float64(part["next_observations"])
        next_actions = act(state["target_policy"], next_observations)
        next_values = []
        for observation, action in zip(next_observations, next_actions, strict=True):
            next_values.append(value(critic, observation, action))
        targets.append(bootstrap(part, next_values, settings["discount"]))
    return np.array(targets)


def ensemble_critic_loss(
    critics: list[Network], batch: dict[str, Any], targets: ArrayLike
) -> float:
    """The sum over members of the mean of (y - Q_i(s, a))^2 on their minibatch (Eq. 5)."""
    loss = 0.0
    parts = minibatches(batch, len(critics))
    for critic, part, part_targets in zip(critics, parts, float64(targets), strict=True):
        squared_errors = []
        for row, target in enumerate(part_targets):
            estimate = value(critic, part["observations"][row], part["actions"][row])
            squared_errors.append((target - estimate) ** 2)
        loss += float(np.mean(squared_errors))
    return loss


def ensemble_critic_gradients(
    critics: list[Network], batch: dict[str, Any], targets: ArrayLike
) -> list[Network]:
    """Gradients of `ensemble_critic_loss`, one network's worth per member."""
    parts = minibatches(batch, len(critics))
    gradients = []
    for critic, part, part_targets in zip(critics, parts, float64(targets), strict=True):
        gradients.append(critic_gradients(critic, part, part_targets))
    return gradients


def deviation(values: Array, epsilon: float) -> float:
    """The standard deviation of Eq. 22: the root of variance (over N) plus epsilon."""
    mean = sum(values) / len(values)
    variance = sum((number - mean) ** 2 for number in values) / len(values)
    return float(np.sqrt(variance + epsilon))


def ensemble_policy_loss(
    policy: Network, critics: list[Network], observations: ArrayLike, epsilon: float
) -> float:
    """The mean over observations of the members' deviation at pi(s) (Eq. 22)."""
    observations = float64(observations)
    deviations = []
    for observation, action in zip(observations, act(policy, observations), strict=True):
        deviations.append(deviation(member_values(critics, observation, action), epsilon))
    return float(np.mean(deviations))


def ensemble_policy_gradients(
    policy: Network, critics: list[Network], observations: ArrayLike, epsilon: float
) -> Network:
    """Gradients of `ensemble_policy_loss` for the policy (Eq. 22)."""
    observations = float64(observations)
    batch_size, observation_size = observations.shape
    total = zero_gradients(policy)
    for observation in observations:
        output, policy_inputs = forward(policy, observation)
        action = np.tanh(output)
        values = member_values(critics, observation, action)
        sigma = deviation(values, epsilon)

        # The deviation's slope in Q_i is (Q_i - mean) / (N sigma); back to the shared action.
        d_action = np.zeros(len(action))
        for critic, member_value in zip(critics, values, strict=True):
            slope = (member_value - np.mean(values)) / (len(critics) * sigma)
            _, critic_inputs = forward(critic, join(observation, action))
            _, d_input = backward(critic, critic_inputs, np.array([slope / batch_size]))
            d_action = d_action + d_input[observation_size:]

        gradients, _ = backward(policy, policy_inputs, d_action * (1.0 - action**2))
        total = add(total, gradients)
    return total


def ensemble_update(
    state: dict[str, Any], batch: dict[str, Any], settings: dict[str, float]
) -> tuple[dict[str, Any], dict[str, float]]:
    """One update of supplement D.2; each loss is taken just before its own step."""
    new = begin(state)
    critics = state["critics"]

    # The critics, each on its own minibatch towards its own target (Eq. 5).
    targets = ensemble_targets(state, batch, settings)
    critic_loss = ensemble_critic_loss(critics, batch, targets)
    gradients_of_critics = ensemble_critic_gradients(critics, batch, targets)
    new["critics"], new["moments"]["critics"] = [], []
    for critic, gradients, moments in zip(
        critics, gradients_of_critics, state["moments"]["critics"], strict=True
    ):
        new_critic, new_moments = adam_network(
            critic, gradients, moments, new["count"], settings["learning_rate"]
        )
        new["critics"].append(new_critic)
        new["moments"]["critics"].append(new_moments)

    # The policy, on the first minibatch, by the critics just updated (Eq. 22).
    observations = minibatches(batch, len(critics))[0]["observations"]
    policy, epsilon = state["policy"], settings["epsilon"]
    policy_loss = ensemble_policy_loss(policy, new["critics"], observations, epsilon)
    gradients = ensemble_policy_gradients(policy, new["critics"], observations, epsilon)
    step(new, "policy", gradients, settings["learning_rate"])

    # The target networks.
    new["target_critics"] = []
    for target, critic in zip(state["target_critics"], new["critics"], strict=True):
        new["target_critics"].append(move_target(target, critic, settings["target_rate"]))
    track(new, "policy", settings["target_rate"])

    metrics = {
        "critic_loss": critic_loss,
        "policy_loss": policy_loss,
        "target_mean": float(np.mean(targets)),
    }
    return new, metrics
