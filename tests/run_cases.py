"""Configurations of runs, for tests that need a run directory and no training."""

import numpy as np

from bcq.algorithms import BCQConfig
from bcq.algorithms.learning import AlgorithmConfig
from bcq.data.bounds import ActionBounds, TaskSpec
from bcq.data.columns import Provenance
from bcq.runs.configuration import LoggedBatch, RunConfiguration
from bcq.runs.origin import Origin
from bcq.runs.schedules import Schedule


def configuration(
    algorithm: AlgorithmConfig | None = None,
    *,
    schedule: Schedule | None = None,
    transitions: int = 60,
    mean_return: float | None = 1.5,
) -> RunConfiguration:
    """An offline run, on a machine that does not exist."""
    return RunConfiguration(
        algorithm=algorithm or BCQConfig(),
        schedule=schedule or Schedule(),
        dataset=LoggedBatch(
            fingerprint="abc",
            transitions=transitions,
            episodes=3,
            mean_return=mean_return,
            provenance=Provenance(environment="Task-v0", recipe="test", seed=4),
        ),
        task=TaskSpec(3, ActionBounds(np.array([-2.0, 0.1]), np.array([2.0, 0.3]))),
        origin=Origin({"bcq": "0.1", "jax": "0.2"}, "c0ffee", "cpu", 2),
    )
