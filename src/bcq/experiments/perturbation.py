"""Figure 7: how far BCQ may move a sampled action, on imitation data (supplement D.1)."""

from bcq.algorithms import BCQConfig
from bcq.experiments.jobs import Job
from bcq.experiments.presets import Preset


def jobs(preset: Preset) -> list[Job]:
    """BCQ with each Phi."""
    return [
        preset.training(BCQConfig(max_perturbation=phi), "imitation", env, trial)
        for env in preset.environments
        for phi in preset.perturbations
        for trial in range(preset.trials)
    ]
