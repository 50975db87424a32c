"""Figure 8: ensembles that minimise their disagreement, on Hopper imitation (supplement D.2)."""

from bcq.algorithms import BCQConfig, EnsembleConfig
from bcq.experiments.jobs import Job
from bcq.experiments.presets import Preset
from bcq.learning import AlgorithmConfig

ENVIRONMENT = "Hopper-v5"


def jobs(preset: Preset) -> list[Job]:
    """Two sizes of ensemble, and BCQ."""
    configs: list[AlgorithmConfig] = [EnsembleConfig(members=m) for m in preset.members]
    return [
        preset.training(config, "imitation", ENVIRONMENT, trial)
        for config in (*configs, BCQConfig())
        if ENVIRONMENT in preset.environments
        for trial in range(preset.trials)
    ]
