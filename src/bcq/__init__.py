"""Batch-constrained reinforcement learning: a policy from a fixed batch of logged transitions."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bcq.algorithms import (
        BC,
        BCQ,
        DDPG,
        DQN,
        VAEBC,
        BCConfig,
        BCQConfig,
        DDPGConfig,
        DQNConfig,
        Ensemble,
        EnsembleConfig,
        VAEBCConfig,
    )
    from bcq.collection import collect_random
    from bcq.dataset import ActionBounds, Dataset
    from bcq.doctor import examine_dataset
    from bcq.errors import BCQError, InputError
    from bcq.evaluation import Evaluation, evaluate
    from bcq.formats import load, save
    from bcq.meter import Meter, extrapolation_meter
    from bcq.policy import Policy
    from bcq.runs import Run
    from bcq.training import Schedule, train, train_run
    from bcq.values import Values, measure_values

    __version__: str

# Imported when first asked for: JAX and MuJoCo take seconds, and Ctrl-C is to work from the first.
PLACES = {
    "bcq.algorithms": (
        *("BC", "BCQ", "DDPG", "DQN", "VAEBC", "Ensemble"),
        *("BCConfig", "BCQConfig", "DDPGConfig", "DQNConfig", "VAEBCConfig", "EnsembleConfig"),
    ),
    "bcq.collection": ("collect_random",),
    "bcq.dataset": ("ActionBounds", "Dataset"),
    "bcq.doctor": ("examine_dataset",),
    "bcq.errors": ("BCQError", "InputError"),
    "bcq.evaluation": ("Evaluation", "evaluate"),
    "bcq.formats": ("load", "save"),
    "bcq.meter": ("Meter", "extrapolation_meter"),
    "bcq.policy": ("Policy",),
    "bcq.runs": ("Run",),
    "bcq.training": ("Schedule", "train", "train_run"),
    "bcq.values": ("Values", "measure_values"),
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return import_module("importlib.metadata").version("bcq")
    for module, names in PLACES.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module 'bcq' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *__all__]


__all__ = [
    "BC",
    "BCQ",
    "DDPG",
    "DQN",
    "VAEBC",
    "ActionBounds",
    "BCConfig",
    "BCQConfig",
    "BCQError",
    "DDPGConfig",
    "DQNConfig",
    "Dataset",
    "Ensemble",
    "EnsembleConfig",
    "Evaluation",
    "InputError",
    "Meter",
    "Policy",
    "Run",
    "Schedule",
    "VAEBCConfig",
    "Values",
    "collect_random",
    "evaluate",
    "examine_dataset",
    "extrapolation_meter",
    "load",
    "measure_values",
    "save",
    "train",
    "train_run",
]
