"""Figures 1 and 4: offline DDPG against its behavioural agent, in three batches (Section 3.1)."""

from bcq.algorithms import DDPGConfig
from bcq.experiments.jobs import Job
from bcq.experiments.presets import Preset

RECIPES = ("final-buffer", "concurrent", "imitation")


def jobs(preset: Preset) -> list[Job]:
    """The behavioural agents are needed by the batches; their curves are drawn too."""
    return [
        preset.training(DDPGConfig(), recipe, env, trial)
        for env in preset.environments
        for recipe in RECIPES
        for trial in range(preset.trials)
    ]
