"""Slow float64 reference for discrete BCQ, double DQN and BC, row by row, from the equations.

A network is a list of (weight (out, in), bias (out,)) pairs; ReLU after every layer but the last.
Settings are a dict; see DEFAULTS. "discount" has no default (BCQ and DQN need it).
"""

import math
from typing import Any

import numpy as np

DEFAULTS = {
    "threshold": 0.3,
    "logit_penalty": 0.01,
    "learning_rate": 3e-4,
    "beta1": 0.9,
    "beta2": 0.999,
    "epsilon": 1e-8,
    "slow_rate": 0.005,
}


def forward(layers: Any, x: Any) -> Any:
    """The input of every layer, followed by the outputs of the last one."""
    values = [np.asarray(x, dtype=np.float64)]
    for index, (weight, bias) in enumerate(layers):
        z = np.asarray(weight, np.float64) @ values[-1] + np.asarray(bias, np.float64)
        values.append(z if index == len(layers) - 1 else np.maximum(z, 0.0))
    return values


def mlp(layers: Any, x: Any) -> Any:
    """Outputs of the network for one vector, or for each row of a matrix."""
    x = np.asarray(x, dtype=np.float64)
    if x.ndim == 2:
        return np.array([forward(layers, row)[-1] for row in x])
    return forward(layers, x)[-1]


def backward(layers: Any, values: Any, output_gradient: Any, total: Any) -> Any:
    """Add one row's gradient, from the gradient at its outputs, to total (changed in place)."""
    delta = np.asarray(output_gradient, dtype=np.float64)
    for index in reversed(range(len(layers))):
        total[index][0][...] += np.outer(delta, values[index])
        total[index][1][...] += delta
        if index > 0:
            delta = np.asarray(layers[index][0], np.float64).T @ delta
            delta = delta * (values[index] > 0.0)


def zeros(layers: Any) -> Any:
    """Zeros in the shapes of the network's parameters."""
    return [(np.zeros(np.shape(w)), np.zeros(np.shape(b))) for w, b in layers]


def log_softmax(logits: Any) -> Any:
    """Logarithms of the softmax over all actions."""
    top = max(logits)
    total = sum(math.exp(value - top) for value in logits)
    return np.array([value - top - math.log(total) for value in logits])


def huber(x: Any) -> Any:
    """x^2/2 within 1 of zero, |x| - 1/2 beyond."""
    return x * x / 2.0 if abs(x) <= 1.0 else abs(x) - 0.5


def allowed(logits: Any, threshold: Any, permitted: Any = None) -> Any:
    """Permitted actions whose probability is over threshold times the largest permitted one."""
    logits = [float(value) for value in logits]
    mask = [True] * len(logits) if permitted is None else [bool(p) for p in permitted]
    if not any(mask):
        return [False] * len(logits)
    top = max(value for value, p in zip(logits, mask, strict=True) if p)
    # The ratio of two softmax probabilities is exp of the difference of their logits.
    return [p and math.exp(value - top) > threshold for value, p in zip(logits, mask, strict=True)]


def first_best(scores: Any, mask: Any = None) -> Any:
    """Index of the first largest score among the actions in the mask (all if None)."""
    best = None
    for action, score in enumerate(scores):
        if (mask is None or mask[action]) and (best is None or score > scores[best]):
            best = action
    if best is None:
        raise ValueError("no action to choose from")
    return best


def bcq_act(q: Any, behaviour: Any, threshold: Any, s: Any, permitted: Any = None) -> Any:
    """The allowed action of largest value."""
    return first_best(mlp(q, s), allowed(mlp(behaviour, s), threshold, permitted))


def dqn_act(q: Any, s: Any, permitted: Any = None) -> Any:
    """The permitted action of largest value."""
    return first_best(mlp(q, s), permitted)


def bc_act(behaviour: Any, s: Any, permitted: Any = None) -> Any:
    """The permitted action of largest logit."""
    return first_best(mlp(behaviour, s), permitted)


def targets(slow_q: Any, batch: Any, discount: Any, choose: Any) -> Any:
    """r, or r + discount * Q'(s', choose(s', mask)) where the row is not terminated."""
    result = []
    for row in range(len(batch["actions"])):
        y = float(batch["rewards"][row])
        if not batch["terminated"][row]:
            s, masks = batch["next_observations"][row], batch.get("next_permitted")
            action = choose(s, None if masks is None else masks[row])
            y += discount * float(mlp(slow_q, s)[action])
        result.append(y)
    return result


def bcq_targets(
    q: Any, slow_q: Any, behaviour: Any, batch: Any, discount: Any, threshold: Any
) -> Any:
    """Targets with the next action chosen by bcq_act."""
    return targets(slow_q, batch, discount, lambda s, p: bcq_act(q, behaviour, threshold, s, p))


def dqn_targets(q: Any, slow_q: Any, batch: Any, discount: Any) -> Any:
    """Targets with the next action chosen by dqn_act."""
    return targets(slow_q, batch, discount, lambda s, p: dqn_act(q, s, p))


def value_part(q: Any, batch: Any, ys: Any) -> Any:
    """Mean Huber loss and its gradient, the targets held constant."""
    count, loss, gradient = len(batch["actions"]), 0.0, zeros(q)
    for row in range(count):
        values = forward(q, batch["observations"][row])
        action = int(batch["actions"][row])
        error = float(values[-1][action]) - ys[row]
        loss += huber(error) / count
        output_gradient = np.zeros(len(values[-1]))
        output_gradient[action] = min(1.0, max(-1.0, error)) / count
        backward(q, values, output_gradient, gradient)
    return loss, gradient


def behaviour_part(behaviour: Any, batch: Any, logit_penalty: Any) -> Any:
    """Mean negative log likelihood, mean squared logit, gradient of nll + penalty * squares."""
    count, nll, squares, gradient = len(batch["actions"]), 0.0, 0.0, zeros(behaviour)
    for row in range(count):
        values = forward(behaviour, batch["observations"][row])
        logits, action = values[-1], int(batch["actions"][row])
        logs = log_softmax(logits)
        nll -= float(logs[action]) / count
        squares += float(sum(value * value for value in logits)) / (count * len(logits))
        output_gradient = np.exp(logs) / count
        output_gradient[action] -= 1.0 / count
        output_gradient += logit_penalty * 2.0 * logits / (count * len(logits))
        backward(behaviour, values, output_gradient, gradient)
    return nll, squares, gradient


def losses_and_gradients(state: Any, batch: Any, settings: Any) -> Any:
    """Loss parts and gradients per network; BCQ, DQN or BC by the networks in the state.

    Losses: value_loss, behaviour_loss (nll alone), logit_penalty (times its weight),
    mean_squared_logits (without weight), loss (the sum that is minimised).
    """
    settings = {**DEFAULTS, **settings}
    q, behaviour = state.get("q"), state.get("behaviour")
    losses, gradients = {"loss": 0.0}, {}
    if q is not None:
        slow_q, discount = state["slow_q"], settings["discount"]
        if behaviour is None:
            ys = dqn_targets(q, slow_q, batch, discount)
        else:
            ys = bcq_targets(q, slow_q, behaviour, batch, discount, settings["threshold"])
        losses["value_loss"], gradients["q"] = value_part(q, batch, ys)
        losses["loss"] += losses["value_loss"]
    if behaviour is not None:
        weight = settings["logit_penalty"]
        nll, squares, gradients["behaviour"] = behaviour_part(behaviour, batch, weight)
        losses.update(
            behaviour_loss=nll, logit_penalty=weight * squares, mean_squared_logits=squares
        )
        losses["loss"] += nll + weight * squares
    return losses, gradients


def loss_parts(state: Any, batch: Any, settings: Any) -> Any:
    """The loss parts of a minibatch at these parameters, before any step."""
    return losses_and_gradients(state, batch, settings)[0]


def new_adam(state: Any) -> Any:
    """Zero moments of the networks that learn, each in the layout of its network."""
    names = [name for name in ("q", "behaviour") if state.get(name) is not None]
    first, second = ({name: zeros(state[name]) for name in names} for _ in range(2))
    return {"step": 0, "first": first, "second": second}


def adam_array(
    parameter: Any, gradient: Any, first: Any, second: Any, step: Any, settings: Any
) -> Any:
    """One Adam step of one array: the new parameter, first and second moment."""
    beta1, beta2 = settings["beta1"], settings["beta2"]
    first = beta1 * first + (1.0 - beta1) * gradient
    second = beta2 * second + (1.0 - beta2) * gradient * gradient
    root = np.sqrt(second / (1.0 - beta2**step)) + settings["epsilon"]
    change = settings["learning_rate"] * (first / (1.0 - beta1**step)) / root
    return np.asarray(parameter, np.float64) - change, first, second


def take_step(state: Any, batch: Any, settings: Any) -> Any:
    """A new state after one Adam step and the slow copy, and the losses before it."""
    settings = {**DEFAULTS, **settings}
    losses, gradients = losses_and_gradients(state, batch, settings)
    old = state["adam"] or new_adam(state)
    new, step, first, second = dict(state), old["step"] + 1, {}, {}
    for name, gradient in gradients.items():
        layers = [
            [adam_array(p[i], g[i], m[i], v[i], step, settings) for i in (0, 1)]
            for p, g, m, v in zip(
                state[name], gradient, old["first"][name], old["second"][name], strict=True
            )
        ]
        new[name], first[name], second[name] = ([(w[j], b[j]) for w, b in layers] for j in range(3))
    new["adam"] = {"step": step, "first": first, "second": second}
    if "q" in new:
        rate, pairs = settings["slow_rate"], zip(new["q"], state["slow_q"], strict=True)
        new["slow_q"] = [
            tuple(rate * fast[i] + (1.0 - rate) * np.asarray(slow[i], np.float64) for i in (0, 1))
            for fast, slow in pairs
        ]
    return new, losses


def bcq_step(state: Any, batch: Any, settings: Any) -> Any:
    """BCQ step; the state has q, slow_q, behaviour, adam (None for a fresh one)."""
    return take_step({k: state[k] for k in ("q", "slow_q", "behaviour", "adam")}, batch, settings)


def dqn_step(state: Any, batch: Any, settings: Any) -> Any:
    """Double DQN step; the state has q, slow_q, adam (None for a fresh one)."""
    return take_step({k: state[k] for k in ("q", "slow_q", "adam")}, batch, settings)


def bc_step(state: Any, batch: Any, settings: Any) -> Any:
    """BC step; the state has behaviour, adam (None for a fresh one)."""
    return take_step({k: state[k] for k in ("behaviour", "adam")}, batch, settings)
