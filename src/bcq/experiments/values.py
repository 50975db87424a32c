"""Figures 3 and 5: estimated against true values of the algorithms that have any."""

from bcq.algorithms import BCQConfig, DDPGConfig, DQNConfig
from bcq.experiments.jobs import Job
from bcq.experiments.presets import RECIPES, Preset
from bcq.learning import AlgorithmConfig

ALGORITHMS: tuple[AlgorithmConfig, ...] = (BCQConfig(), DDPGConfig(), DQNConfig())


def jobs(preset: Preset) -> list[Job]:
    """BCQ, DDPG and DQN on every batch that the preset has."""
    return [
        preset.training(config, recipe, env, trial)
        for env in preset.environments
        for recipe in RECIPES
        if recipe in preset.lengths
        for config in ALGORITHMS
        for trial in range(preset.trials)
    ]
