"""The pure pieces every algorithm shares."""

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, Self, TypeVar, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import Array

from bcq.system.errors import InputError

Metrics = dict[str, Array]
Model = TypeVar("Model")


class Transitions(NamedTuple):
    """Transitions on the device, one per row.

    Continuous actions are on the [-1, 1] scale; discrete actions are their numbers.
    """

    observations: Array  # (batch, observation_size)
    actions: Array  # (batch, action_size), or (batch,) integers
    rewards: Array  # (batch,)
    next_observations: Array  # (batch, observation_size)
    terminated: Array  # (batch,), true where the environment itself ended, not a time limit
    next_permitted: Array | None = None  # (batch, actions): which actions exist at s', if not all


class Minibatch(Transitions):
    """The transitions of one update, drawn at random."""

    __slots__ = ()


class Acting(Protocol):
    """A pytree that can act."""

    def act(self, observations: Array, keys: Array) -> Array:
        """Actions on the [-1, 1] scale, or the numbers of choices; one random key a row."""
        ...


@runtime_checkable
class Choosing(Protocol):
    """A learner whose actions are choices; not every choice is permitted everywhere."""

    def act(self, observations: Array, keys: Array, permitted: Array | None) -> Array:
        """The number of a permitted choice for each row."""
        ...


@runtime_checkable
class Drawing(Protocol):
    """A learner that acts from noise, so that the same noise gives the same action anywhere."""

    @property
    def noise_shape(self) -> tuple[int, ...]:
        """Of the noise of one state."""
        ...

    def act_with(self, observations: Array, noise: Array) -> Array:
        """Actions on the [-1, 1] scale from standard normal noise, one row a state."""
        ...


class Algorithm(Acting, Protocol):
    """A learner: an immutable pytree that an update turns into the next one."""

    def update(self, batch: Minibatch, key: Array) -> tuple[Self, Metrics]:
        """One iteration of training on one minibatch."""
        ...


@runtime_checkable
class ValueFunction(Protocol):
    """A learner that also estimates the value of its policy."""

    def value(self, observations: Array, actions: Array) -> Array:
        """The estimated value of each state-action pair, (batch,)."""
        ...


class AlgorithmConfig(Protocol):
    """An algorithm's settings: a dataclass, from which a learner is made."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def batch_size(self) -> int:
        """Transitions one update takes."""
        ...

    @property
    def discount(self) -> float | None:
        """Gamma; None where nothing is valued, as in imitation."""
        ...

    def create(self, observation_size: int, action_size: int, key: Array) -> Algorithm:
        """A fresh learner."""
        ...


def check_settings(
    settings: object,
    *,
    at_least_one: Sequence[str] = (),
    positive: Sequence[str] = (),
    not_negative: Sequence[str] = (),
    fractions: Sequence[str] = (),
    below_one: Sequence[str] = (),
    not_empty: Sequence[str] = (),
) -> None:
    """Refuses settings outside their range, by name."""
    ranges: tuple[tuple[Sequence[str], str, Callable[[float], bool]], ...] = (
        (at_least_one, "at least 1", lambda value: value >= 1),
        (at_least_one, f"below {2**31}", lambda value: value < 2**31),  # JAX counts in 32 bits
        ((*positive, *not_negative), "finite", lambda value: not math.isinf(value)),
        (positive, "above 0", lambda value: value > 0),
        ((*not_negative, *below_one), "0 or more", lambda value: value >= 0),
        (below_one, "below 1", lambda value: value < 1),
        (fractions, "between 0 and 1", lambda value: 0 <= value <= 1),
    )
    for names, words, holds in ranges:
        for name in names:
            value = getattr(settings, name)
            if not all(
                holds(number) for number in (value if isinstance(value, tuple) else [value])
            ):
                raise InputError(f"{name}: {value} is not {words}")
    for name in not_empty:
        if not getattr(settings, name):
            raise InputError(f"{name}: is empty; it needs at least one number")


@cache  # one object for one setting, so that compiled code is found again
def adam(learning_rate: float, l2: float = 0.0) -> optax.GradientTransformation:
    """Adam, with L2 regularisation in the gradient, biases included (supplement G)."""
    if l2 == 0.0:
        return optax.adam(learning_rate)
    return optax.chain(optax.add_decayed_weights(l2), optax.adam(learning_rate))


class Trainable(eqx.Module, Generic[Model]):
    """A model and its optimizer's state."""

    model: Model
    moments: optax.OptState
    optimizer: optax.GradientTransformation = eqx.field(static=True)

    def __init__(self, model: Model, optimizer: optax.GradientTransformation):
        self.model = model
        self.optimizer = optimizer
        self.moments = optimizer.init(model)

    def descend(
        self, loss: Callable[[Model], tuple[Array, Metrics]]
    ) -> tuple["Trainable[Model]", Metrics]:
        """One step down the loss's gradient; the metrics are those before the step."""
        gradient, metrics = jax.grad(loss, has_aux=True)(self.model)
        change, moments = self.optimizer.update(gradient, self.moments, self.model)
        stepped = eqx.tree_at(
            lambda trainable: (trainable.model, trainable.moments),
            self,
            (optax.apply_updates(self.model, change), moments),
        )
        return stepped, metrics


def without_optimizers(learner: Model) -> Model:
    """The same learner for acting only: its models, without the state of their optimizers."""

    def strip(part: object) -> object:
        if isinstance(part, Trainable):
            return eqx.tree_at(lambda trainable: trainable.moments, part, None)
        return part

    stripped: Model = jax.tree.map(strip, learner, is_leaf=lambda part: isinstance(part, Trainable))
    return stripped


def bellman_target(batch: Minibatch, next_values: Array, discount: float) -> Array:
    """The reward plus gamma Q(s', a'), or alone at terminals (Eq. 25); time limits bootstrap."""
    return batch.rewards + discount * jnp.where(batch.terminated, 0.0, next_values)


def soft_minimum(values: Array, min_weight: float) -> Array:
    """Lambda min_j Q_j + (1 - lambda) max_j Q_j over the first axis (Eq. 13)."""
    return min_weight * values.min(axis=0) + (1 - min_weight) * values.max(axis=0)


def values_of(network: Callable[[Array], Array], observations: Array, actions: Array) -> Array:
    """Q(s, a) of discrete actions, from a network with an output for each: (batch,)."""
    return jnp.take_along_axis(network(observations), actions[..., None], axis=-1)[..., 0]


def value_loss(
    network: Callable[[Array], Array], batch: Minibatch, target: Array
) -> tuple[Array, Metrics]:
    """Huber's loss of the values of logged discrete actions."""
    values = values_of(network, batch.observations, batch.actions)
    loss = optax.huber_loss(values, target).mean()
    return loss, {"critic_loss": loss, "target_mean": target.mean()}


def best(values: Array, allowed: Array | None) -> Array:
    """The discrete action with the highest value, of those allowed."""
    if allowed is not None:
        values = jnp.where(allowed, values, -jnp.inf)
    return values.argmax(axis=-1)


def cloning_loss(logits: Array, actions: Array, logit_penalty: float) -> tuple[Array, Metrics]:
    """Negative log likelihood of discrete actions, plus a penalty that keeps the logits small."""
    loss = optax.softmax_cross_entropy_with_integer_labels(logits, actions).mean()
    return loss + logit_penalty * (logits**2).mean(), {"behaviour_loss": loss}


def track(target: Model, model: Model, rate: float) -> Model:
    """Theta' <- tau theta + (1 - tau) theta'."""
    return jax.tree.map(lambda slow, fast: rate * fast + (1 - rate) * slow, target, model)
