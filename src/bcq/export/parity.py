"""Whether an exported file acts like the learner."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from bcq.algorithms import BCQ, DQN, DiscreteBC, DiscreteBCQ, DiscreteDQN
from bcq.algorithms.bcq import propose
from bcq.algorithms.learning import Acting, Drawing
from bcq.data.columns import Floats
from bcq.export.content import Content
from bcq.export.files import Actor
from bcq.system.errors import InputError
from bcq.training.policy import Policy

TOLERANCE = 1e-5  # of the action range
ROUNDING = 1e-5  # of a value: choices whose values differ by less are a near-tie


@dataclass(frozen=True)
class Parity:
    """How far a file's actions are from the learner's."""

    rows: int
    largest: float  # difference, in action ranges; of choices, 1 is another choice
    ties: int  # rows left out: near-ties of the choice, which rounding decided otherwise

    def __str__(self) -> str:
        ties = f"; near-ties of the choice, left out: {self.ties}" if self.ties else ""
        return (
            f"checked on {self.rows:,} states: it differs from the learner by at most "
            f"{self.largest:.1e} of the action range{ties}"
        )


def noise_for(content: Content, rows: int, seed: int) -> NDArray[np.float32] | None:
    """Standard normal noise, if the file takes it."""
    acting = content.card["acting"]
    if acting["mode"] != "noise-input":
        return None
    shape = (rows, *acting["noise_shape"])
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def learner_inputs(
    policy: Policy, content: Content, observations: Floats, noise: NDArray[np.float32] | None
) -> tuple[Floats, NDArray[np.float32]]:
    """The same rows as the learner sees them: scaled observations, and noise."""
    latents = content.arrays.get("latents", np.zeros(0, np.float32)) if noise is None else noise
    shape = (len(observations), *content.card["acting"]["noise_shape"])
    repeated = np.broadcast_to(latents, shape) if latents.size else np.zeros(shape, np.float32)
    return policy.scaled(observations), repeated


def compare(
    policy: Policy,
    content: Content,
    act: Actor,
    observations: Floats,
    noise: NDArray[np.float32] | None = None,
) -> Parity:
    """Acts in the same states by both; near-ties of the learner's choice are counted apart."""
    inputs = learner_inputs(policy, content, observations, noise)
    expected = policy.task.bounds.denormalise(np.asarray(act_with(policy.models, *inputs)))
    if not np.isfinite(expected).all():
        raise InputError("the policy's actions are not finite; has its training diverged?")
    found = np.asarray(act(observations, noise), np.float32).reshape(expected.shape)
    differences = shares_of_range(policy, found, expected)
    differs = differences > TOLERANCE
    ties = differs & np.asarray(margins(policy.models, *inputs) < ROUNDING)
    kept = differences[~ties]
    return Parity(len(observations), float(kept.max(initial=0.0)), int(ties.sum()))


def shares_of_range(policy: Policy, found: Floats, expected: Floats) -> NDArray[np.float32]:
    """The largest difference of each row in action ranges; infinite if a number is not finite."""
    bounds = policy.task.bounds
    ranges = np.where(bounds.high > bounds.low, bounds.high - bounds.low, 1)
    differences = np.abs(found - expected) / (1 if policy.task.choices else ranges)
    largest: NDArray[np.float32] = np.where(np.isfinite(differences), differences, np.inf).max(1)
    return largest


def require_parity(parity: Parity) -> None:
    """Refuses a file that differs from the learner."""
    if not parity.largest <= TOLERANCE:
        raise InputError(
            f"the exported policy differs from the learner by {parity.largest:.1e} of the action "
            f"range, more than {TOLERANCE:.0e}; nothing was written"
        )


@jax.jit
def act_with(learner: Acting, observations: Array, noise: Array) -> Array:
    """Actions of the learner, with given noise if it draws any."""
    if isinstance(learner, Drawing):
        return learner.act_with(observations, noise)
    return learner.act(observations, jnp.zeros(len(observations)))  # reads no keys


@jax.jit
def margins(learner: Acting, observations: Array, noise: Array) -> Array:
    """How clearly the learner's choice is the best, relative to its value; 0 is a tie."""
    match learner:
        case BCQ():
            models = learner.vae.model, learner.perturbation.model
            actions, _ = propose(*models, observations, noise)
            return lead(learner.value(observations[:, None], actions))
        case DQN():
            return lead(learner.values(learner.network.model, observations)).min(axis=-1)
        case DiscreteDQN():
            return lead(learner.network.model(observations))
        case DiscreteBC():
            return lead(learner.behaviour.model(observations))
        case DiscreteBCQ():
            logits = learner.behaviour.model(observations)
            shares = jnp.exp(logits - logits.max(axis=-1, keepdims=True))
            beyond = shares - learner.config.threshold
            values = jnp.where(beyond > 0, learner.network.model(observations), -jnp.inf)
            return jnp.minimum(lead(values), jnp.abs(beyond).min(axis=-1))
    return jnp.full(len(observations), jnp.inf)


def lead(values: Array) -> Array:
    """By how much the highest value is above the second, relative to it."""
    if values.shape[-1] == 1:
        return jnp.full(values.shape[:-1], jnp.inf)
    second, first = jnp.moveaxis(jax.lax.top_k(values, 2)[0], -1, 0)[::-1]
    return (first - second) / (1 + jnp.abs(first))
