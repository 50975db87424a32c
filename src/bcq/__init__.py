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
        DiscreteBC,
        DiscreteBCConfig,
        DiscreteBCQ,
        DiscreteBCQConfig,
        DiscreteDQN,
        DiscreteDQNConfig,
        DQNConfig,
        Ensemble,
        EnsembleConfig,
        VAEBCConfig,
    )
    from bcq.collection.recipes import collect_random
    from bcq.data.bounds import ActionBounds, Choices
    from bcq.data.dataset import Dataset
    from bcq.data.doctor.examination import examine_dataset
    from bcq.data.history import History
    from bcq.data.saving import save
    from bcq.data.scaling import Scaling
    from bcq.data.splits import HoldOut
    from bcq.judging.candidates import judge
    from bcq.judging.meter import Meter, extrapolation_meter
    from bcq.judging.verdict import Judgement
    from bcq.runs.directory import Run
    from bcq.runs.recording import train_run
    from bcq.runs.schedules import Schedule
    from bcq.simulation.batches import load
    from bcq.simulation.evaluation import Evaluation, evaluate
    from bcq.simulation.true_values import Values, measure_values
    from bcq.system.errors import BCQError, InputError
    from bcq.training.loop import train
    from bcq.training.policy import Policy

    __version__: str

# Imported when first asked for: JAX and MuJoCo take seconds, and Ctrl-C is to work from the first.
PLACES = {
    "bcq.algorithms": (
        *("BC", "BCQ", "DDPG", "DQN", "VAEBC", "Ensemble"),
        *("BCConfig", "BCQConfig", "DDPGConfig", "DQNConfig", "VAEBCConfig", "EnsembleConfig"),
        *("DiscreteBC", "DiscreteBCQ", "DiscreteDQN"),
        *("DiscreteBCConfig", "DiscreteBCQConfig", "DiscreteDQNConfig"),
    ),
    "bcq.data.bounds": ("Choices",),
    "bcq.collection.recipes": ("collect_random",),
    "bcq.data.dataset": ("ActionBounds", "Dataset"),
    "bcq.data.doctor.examination": ("examine_dataset",),
    "bcq.data.history": ("History",),
    "bcq.system.errors": ("BCQError", "InputError"),
    "bcq.simulation.evaluation": ("Evaluation", "evaluate"),
    "bcq.data.saving": ("save",),
    "bcq.data.scaling": ("Scaling",),
    "bcq.data.splits": ("HoldOut",),
    "bcq.judging.candidates": ("judge",),
    "bcq.judging.verdict": ("Judgement",),
    "bcq.simulation.batches": ("load",),
    "bcq.judging.meter": ("Meter", "extrapolation_meter"),
    "bcq.training.policy": ("Policy",),
    "bcq.runs.directory": ("Run",),
    "bcq.runs.recording": ("train_run",),
    "bcq.runs.schedules": ("Schedule",),
    "bcq.training.loop": ("train",),
    "bcq.simulation.true_values": ("Values", "measure_values"),
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
    "Choices",
    "DDPGConfig",
    "DQNConfig",
    "Dataset",
    "DiscreteBC",
    "DiscreteBCConfig",
    "DiscreteBCQ",
    "DiscreteBCQConfig",
    "DiscreteDQN",
    "DiscreteDQNConfig",
    "Ensemble",
    "EnsembleConfig",
    "Evaluation",
    "History",
    "HoldOut",
    "InputError",
    "Judgement",
    "Meter",
    "Policy",
    "Run",
    "Scaling",
    "Schedule",
    "VAEBCConfig",
    "Values",
    "collect_random",
    "evaluate",
    "examine_dataset",
    "extrapolation_meter",
    "judge",
    "load",
    "measure_values",
    "save",
    "train",
    "train_run",
]
