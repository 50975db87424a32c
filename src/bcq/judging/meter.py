"""The extrapolation meter: how far a policy's actions are from the batch, without a simulator.

At states of the batch, the action of the policy is compared with the actions logged at the nearest
other states. The same distance is computed for the logged action itself (leave-one-out). The meter
is the ratio of the two means: 1 is like the data, 10 is ten times as far away. Between choices the
distance is 0 or 1.
"""

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from bcq.algorithms.bcq import propose
from bcq.algorithms.learning import Acting
from bcq.algorithms.networks import MLP, ConditionalVAE, PerturbationModel
from bcq.data.columns import Column, Floats
from bcq.data.dataset import Dataset
from bcq.system.errors import InputError
from bcq.training.policy import Policy

STATES = 1_000  # states of the batch at which the policy acts
REFERENCES = 100_000  # rows of the batch, evenly spread, to compare with
NEIGHBOURS = 10  # nearest states, by observations scaled to unit variance


@dataclass(frozen=True)
class Meter:
    """The actions of a policy compared with those of the batch; `data_x` is x of the data."""

    distance: float  # mean distance to the nearest logged action at near states, [-1, 1] scale;
    # between choices: mean share of the near states at which another choice was logged
    data_distance: float
    outside: float  # share of action numbers outside the range logged at near states;
    # of choices: share of states without a near state at which this choice was logged
    data_outside: float
    reconstruction: float | None = None  # mean squared error of the learner's own VAE, if any
    data_reconstruction: float | None = None
    latents_beyond_clip: float | None = None  # share of the encoder's means of logged actions
    perturbations_near_limit: float | None = None  # share of BCQ's within 5% of +-Phi
    probability: float | None = None  # of a choice, under the learner's behaviour model, if any
    data_probability: float | None = None

    @property
    def ratio(self) -> float:
        """The meter itself: 1 is like the data."""
        return self.distance / self.data_distance

    def summary(self) -> dict[str, float | None]:
        """The meter, and the figures behind it."""
        figures = {
            "extrapolation_meter": self.ratio,
            **vars(self),
            "reconstruction_ratio": self.reconstruction_ratio,
        }
        optional = ("probability", "data_probability")
        return {n: v for n, v in figures.items() if n not in optional or v is not None}

    @property
    def reconstruction_ratio(self) -> float | None:
        """The ratio of the reconstruction errors, if there is a VAE."""
        if self.reconstruction is None or self.data_reconstruction is None:
            return None
        return self.reconstruction / self.data_reconstruction


def extrapolation_meter(policy: Policy, dataset: Dataset, *, seed: int = 0) -> Meter:
    """Compares a policy with the batch that it learned from."""
    if len(dataset) < 2:
        raise InputError(
            "meter: the batch has only one transition; a comparison needs at least two"
        )
    random = np.random.default_rng(seed)
    rows = np.sort(random.choice(len(dataset), min(STATES, len(dataset)), replace=False))
    observations = dataset.observations[rows]
    permitted = None if dataset.permitted is None else dataset.permitted[rows]
    actions = dataset.bounds.normalise(policy.act(observations, seed=seed, permitted=permitted))
    logged = dataset.bounds.normalise(dataset.actions)
    near = logged[nearest_rows(dataset, rows)]  # (states, neighbours, action_size)
    compared = compare if dataset.task.choices is None else compare_choices
    distance, outside = compared(actions, near)
    data_distance, data_outside = compared(logged[rows], near)
    if data_distance == 0:
        raise InputError(
            "meter: the logged actions at similar states are all equal; there is nothing to compare"
        )
    learner = policy.learner
    if dataset.task.choices is not None:
        chances = [likelihood(policy, observations, taken) for taken in (actions, logged[rows])]
        figures = (distance, data_distance, outside, data_outside)
        return Meter(*figures, probability=chances[0], data_probability=chances[1])
    vae, perturbation = (model_of(learner, name) for name in ("vae", "perturbation"))
    error = data_error = beyond = limit = None
    if isinstance(vae, ConditionalVAE):
        observations = policy.scaled(observations)
        error = float(reconstruction_error(vae, observations, actions))
        data_error = float(reconstruction_error(vae, observations, logged[rows]))
        beyond = float(beyond_clip(vae, observations, logged[rows]))
        if isinstance(perturbation, PerturbationModel) and perturbation.limit > 0:
            limit = float(near_limit(vae, perturbation, observations, jax.random.key(seed)))
    return Meter(distance, data_distance, outside, data_outside, error, data_error, beyond, limit)


def model_of(learner: Acting, name: str) -> object:
    """A network of a learner by name, or None."""
    return getattr(getattr(learner, name, None), "model", None)


def nearest_rows(dataset: Dataset, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each row, the rows of the nearest other states, (rows, neighbours)."""
    stride = -(-len(dataset) // REFERENCES)
    references = np.arange(0, len(dataset), stride)
    scale = dataset.observations.std(axis=0, dtype=float).astype(np.float32)
    centre = dataset.observations.mean(axis=0, dtype=float).astype(np.float32)  # keeps the digits
    scaled = (dataset.observations - centre) / np.where(scale > 0, scale, 1)
    count = min(NEIGHBOURS, len(references) - 1)
    found = [
        nearest(scaled[row], scaled[references], jnp.asarray(references == row), count)
        for row in rows.tolist()
    ]
    return np.asarray(references[np.array(found)])


@partial(jax.jit, static_argnums=3)
def nearest(state: Array, states: Array, excluded: Array, count: int) -> Array:
    """The numbers of the nearest states, without those excluded."""
    squares = ((states - state) ** 2).sum(axis=1)
    return jax.lax.top_k(-jnp.where(excluded, jnp.inf, squares), count)[1]


def compare(actions: Floats, near: Floats) -> tuple[float, float]:
    """Mean distance to the nearest neighbouring action, and the share outside their range."""
    distances = np.linalg.norm(near - actions[:, None], axis=2).min(axis=1)
    beyond = (actions < near.min(axis=1)) | (actions > near.max(axis=1))
    return float(distances.mean(dtype=float)), float(beyond.mean())


def compare_choices(choices: Column, near: Column) -> tuple[float, float]:
    """Mean share of the near states with another choice, and the share of states with only such."""
    other = near != choices[:, None]
    return float(other.mean()), float(other.all(axis=1).mean())


def likelihood(policy: Policy, observations: Floats, choices: Column) -> float | None:
    """Mean probability of choices under the learner's own model of the behaviour."""
    behaviour = model_of(policy.learner, "behaviour")
    if not isinstance(behaviour, MLP):
        return None
    chances = jax.nn.softmax(behaviour(jnp.asarray(policy.scaled(observations))))
    return float(np.take_along_axis(np.asarray(chances), choices[:, None], axis=1).mean())


@jax.jit
def reconstruction_error(vae: ConditionalVAE, observations: Array, actions: Array) -> Array:
    """Mean squared error of actions that are encoded and decoded."""
    latents, _ = vae.encode(observations, actions)
    return ((vae.decode(observations, latents) - actions) ** 2).mean()


@jax.jit
def beyond_clip(vae: ConditionalVAE, observations: Array, actions: Array) -> Array:
    """Share of latents beyond the clip of acting, which acting therefore never samples."""
    means, _ = vae.encode(observations, actions)
    return (jnp.abs(means) > vae.latent_clip).mean()


@jax.jit
def near_limit(
    vae: ConditionalVAE, perturbation: PerturbationModel, observations: Array, key: Array
) -> Array:
    """Share of perturbations at their limit, or nearly."""
    noise = jax.random.normal(key, (len(observations), 1, vae.latent_size))
    residuals = propose(vae, perturbation, observations, noise).residuals
    return (jnp.abs(residuals) > 0.95 * perturbation.limit).mean()
