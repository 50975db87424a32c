"""What an exported policy consists of: arrays by name, and a card that says what they are.

Both kinds of file have this content. `graph` makes an ONNX graph of it, `read_policy` acts by it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bcq.algorithms import (
    BC,
    BCQ,
    DDPG,
    DQN,
    VAEBC,
    DiscreteBC,
    DiscreteBCQ,
    DiscreteDQN,
    Ensemble,
)
from bcq.algorithms.learning import Acting
from bcq.algorithms.networks import MLP
from bcq.data.bounds import TaskSpec
from bcq.data.dataset import Dataset
from bcq.data.scaling import LIMIT
from bcq.system.errors import InputError
from bcq.training.policy import Policy

FORMAT = 1  # of exported files
Mode = Literal["deterministic", "noise-input"]
Arrays = dict[str, NDArray[np.float32]]
Card = dict[str, Any]


class Plan(NamedTuple):
    """How a learner acts: the kind of its `act`, the networks in it and its constants."""

    kind: str  # a method of `read_policy.Policy`, and a function of `graph`
    networks: dict[str, MLP]
    constants: Mapping[str, float] = {}
    noise_shape: tuple[int, ...] = ()  # of one state; empty if nothing is drawn


def plan_of(learner: Acting) -> Plan:
    """The plan of each algorithm for quantities, or for choices."""
    match learner:
        case BC() | DDPG() | Ensemble():
            return Plan("actor", {"actor": learner.actor.model.network})
        case DQN():
            bins = {"num_bins": learner.config.num_bins}
            return Plan("bins", {"network": learner.network.model}, bins)
        case VAEBC():
            vae = learner.vae.model
            clip = {"latent_clip": vae.latent_clip}
            return Plan("sample", {"decoder": vae.decoder}, clip, learner.noise_shape)
        case BCQ():
            vae, perturbation = learner.vae.model, learner.perturbation.model
            networks = {
                "decoder": vae.decoder,
                "perturbation": perturbation.network,
                "critic": learner.critics.model.members[0],
            }
            constants = {"latent_clip": vae.latent_clip, "max_perturbation": perturbation.limit}
            return Plan("candidates", networks, constants, learner.noise_shape)
    return plan_of_choices(learner)


def plan_of_choices(learner: Acting) -> Plan:
    """The plan of each algorithm for choices."""
    match learner:
        case DiscreteBCQ():
            networks = {"behaviour": learner.behaviour.model, "network": learner.network.model}
            return Plan("likely", networks, {"threshold": learner.config.threshold})
        case DiscreteDQN():
            return Plan("best", {"network": learner.network.model})
        case DiscreteBC():
            return Plan("best", {"network": learner.behaviour.model})
    raise InputError(f"{type(learner).__name__}: this kind of learner cannot be exported")


@dataclass(frozen=True)
class Content:
    """The content of an exported file."""

    arrays: Arrays
    card: Card


def content_of(
    policy: Policy,
    card: Card,
    *,
    mode: Mode = "deterministic",
    fallback: Sequence[str | float] | None = None,
    dataset: Dataset | None = None,
    seed: int = 0,
) -> Content:
    """Everything that is needed to act like the policy.

    With a dataset, the file knows the range of the observations that the batch has.
    """
    plan, task = plan_of(policy.learner), policy.task
    arrays = network_arrays(plan.networks) | border_arrays(task)
    arrays["fallback"] = fallback_of(policy, fallback)
    if plan.noise_shape and mode == "deterministic":
        arrays["latents"] = bank_of_latents(plan.noise_shape, seed)
    if dataset is not None:
        seen = (dataset.observations, dataset.next_observations)
        arrays["seen_low"] = np.minimum(*(each.min(axis=0) for each in seen))
        arrays["seen_high"] = np.maximum(*(each.max(axis=0) for each in seen))
    acting = {
        "kind": plan.kind,
        "mode": mode if plan.noise_shape else "nothing is drawn",
        "noise_shape": list(plan.noise_shape),
        **plan.constants,
        **({} if task.scaling is None else {"scaled_limit": LIMIT}),
    }
    said: Card = {
        "fallback_given": fallback is not None,
        "fallback": words_of_fallback(task, arrays["fallback"], given=fallback is not None),
        "inside": "true for every valid observation: the file was made without the batch"
        if dataset is None
        else "whether every number of the observation is within the range of the batch",
    }
    if dataset is not None:
        said["seen"] = {end: arrays[f"seen_{end}"].tolist() for end in ("low", "high")}
    return Content(arrays, {"format": FORMAT, **card, "acting": acting, **said})


def network_arrays(networks: Mapping[str, MLP]) -> Arrays:
    """Weights and biases, such as `critic.0.weight` (inputs, outputs)."""
    return {
        f"{name}.{number}.{part}": np.asarray(getattr(layer, part), np.float32)
        for name, network in networks.items()
        for number, layer in enumerate(network.layers)
        for part in ("weight", "bias")
    }


def border_arrays(task: TaskSpec) -> Arrays:
    """What lies between the units of the user and those of the learner."""
    arrays: Arrays = {}
    if task.scaling is not None:
        arrays["centre"] = np.asarray(task.scaling.centre, np.float32)
        arrays["spread"] = np.asarray(task.scaling.spread, np.float32)
    if task.choices is None:
        bounds = task.bounds
        arrays |= {"action_low": bounds.low, "action_high": bounds.high}
        arrays |= {"action_centre": bounds.centre, "action_half_width": bounds.half_width}
    return arrays


def fallback_of(policy: Policy, given: Sequence[str | float] | None) -> NDArray[np.float32]:
    """The action of an observation that is not valid.

    If none is given: the middle of the range, or the number after that of the last choice, which
    is no choice. Neither is a decision by accident.
    """
    task = policy.task
    if given is None:
        none = np.array([task.action_size], np.float32)
        return none if task.choices else task.bounds.centre
    if task.choices is not None and len(given) == 1 and given[0] in task.choices:
        return policy.require_action(str(given[0]))
    try:
        numbers = [float(each) for each in given]
    except ValueError as error:
        known = f"; the choices are {', '.join(task.choices)}" if task.choices else ""
        raise InputError(f"fallback: {' '.join(map(str, given))} is no action{known}") from error
    return policy.require_action(numbers)


def words_of_fallback(task: TaskSpec, fallback: NDArray[np.float32], *, given: bool) -> str:
    """What happens in a row that is not valid."""
    if given:
        number = int(fallback[0])
        return f"{task.choices[number] if task.choices else fallback.tolist()}, as asked for"
    if task.choices:
        return f"{task.action_size}, which is the number of no choice"
    return f"{fallback.tolist()}, the middle of the action range"


def bank_of_latents(shape: tuple[int, ...], seed: int) -> NDArray[np.float32]:
    """Standard normal numbers, drawn once; the first latent is zero."""
    latents = np.random.default_rng(seed).standard_normal(shape, np.float32)
    latents.reshape(-1, shape[-1])[0] = 0
    return latents
