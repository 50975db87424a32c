"""Figure 9: learning from 5,000 uniformly random actions (supplement D.3)."""

from bcq.algorithms import BCQConfig, DDPGConfig
from bcq.experiments.jobs import Job
from bcq.experiments.presets import Preset
from bcq.learning import AlgorithmConfig

ALGORITHMS: tuple[AlgorithmConfig, ...] = (BCQConfig(vae_l2=1e-3), DDPGConfig())


def jobs(preset: Preset) -> list[Job]:
    """BCQ, its VAE regularised, and DDPG."""
    return [
        preset.training(config, "random", env, trial)
        for env in preset.toys
        for config in ALGORITHMS
        for trial in range(preset.trials)
    ]
