"""The paper's experiments as data: which runs, which figures, which claims."""

from types import ModuleType

from bcq.errors import InputError
from bcq.experiments import (
    extrapolation,
    perturbation,
    random_behaviour,
    results,
    theory,
    uncertainty,
    values,
)
from bcq.experiments.jobs import Job, Training
from bcq.experiments.presets import ExperimentName, Preset

EXPERIMENTS: dict[ExperimentName, ModuleType] = {
    "theory": theory,
    "extrapolation": extrapolation,
    "results": results,
    "values": values,
    "perturbation": perturbation,
    "uncertainty": uncertainty,
    "random": random_behaviour,
}


def jobs_of(
    preset: Preset, names: tuple[ExperimentName, ...], environments: tuple[str, ...]
) -> list[Job]:
    """The jobs of some experiments, all unless named, in some environments, all unless named."""
    for name in names:
        if name not in preset.experiments:
            known = ", ".join(preset.experiments)
            raise InputError(f"experiment {name!r}: this preset has {known}")
    for env in environments:
        if env not in (*preset.environments, *preset.toys):
            known = ", ".join((*preset.environments, *preset.toys))
            raise InputError(f"env {env!r}: this preset has {known}")
    jobs = [job for name in names or preset.experiments for job in EXPERIMENTS[name].jobs(preset)]
    return [job for job in jobs if not environments or environment_of(job) in environments]


def environment_of(job: Job) -> str | None:
    """Where a run is measured; what it needs goes along with it."""
    return job.batch.env if isinstance(job, Training) else None
