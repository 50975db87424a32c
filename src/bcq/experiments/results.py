"""Figures 2 and 5: BCQ and every baseline in four batches (Section 5)."""

from bcq.algorithms import BCConfig, BCQConfig, DDPGConfig, DQNConfig, VAEBCConfig
from bcq.experiments.jobs import Job
from bcq.experiments.presets import RECIPES, Preset
from bcq.learning import AlgorithmConfig

ALGORITHMS: tuple[AlgorithmConfig, ...] = (
    BCQConfig(),
    DDPGConfig(),
    DQNConfig(),
    BCConfig(),
    VAEBCConfig(),
)


def jobs(preset: Preset) -> list[Job]:
    """Every algorithm on every batch."""
    return [
        preset.training(config, recipe, env, trial)
        for env in preset.environments
        for recipe in RECIPES
        for config in ALGORITHMS
        for trial in range(preset.trials)
    ]
