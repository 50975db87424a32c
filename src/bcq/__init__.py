"""Batch-constrained reinforcement learning: a policy from a fixed batch of logged transitions."""

from importlib.metadata import version

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

__version__ = version("bcq")

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
