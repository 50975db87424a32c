"""The paper's experiments as data: which runs, which figures, which claims."""

from types import ModuleType

from bcq.experiments.jobs import Job
from bcq.experiments.judged import Judging
from bcq.experiments.kinds import Training
from bcq.paper import (
    beyond_judging,
    figure_1_extrapolation,
    figure_2_results,
    figure_3_values,
    figure_7_perturbation,
    figure_8_uncertainty,
    figure_9_random_behaviour,
    section_4_theory,
)
from bcq.paper.presets import ExperimentName, Preset
from bcq.system.errors import InputError

EXPERIMENTS: dict[ExperimentName, ModuleType] = {
    "theory": section_4_theory,
    "extrapolation": figure_1_extrapolation,
    "results": figure_2_results,
    "values": figure_3_values,
    "perturbation": figure_7_perturbation,
    "uncertainty": figure_8_uncertainty,
    "random": figure_9_random_behaviour,
    "judging": beyond_judging,
}
BEYOND = ("judging",)  # not in the paper: run only if named


def jobs_of(
    preset: Preset, names: tuple[ExperimentName, ...], environments: tuple[str, ...]
) -> list[Job]:
    """The jobs of the named experiments in the named environments.

    No environment means all, no name all experiments of the paper.
    The most useful jobs come first.
    """
    named = names or [name for name in EXPERIMENTS if name not in BEYOND]
    known = sorted({plan.env for name in named for plan in preset.plans.get(name, ())})
    for env in environments:
        if env not in known:
            raise InputError(f"env {env!r}: is not in this preset; it has {', '.join(known)}")
    found = [job for name in named for job in EXPERIMENTS[name].jobs(preset)]
    found.sort(key=lambda part_and_job: part_and_job[0])
    return [job for _, job in found if not environments or environment_of(job) in environments]


def experiments_of(preset: Preset) -> dict[ExperimentName, list[Job]]:
    """The jobs of each experiment; a job can be part of several."""
    return {name: jobs_of(preset, (name,), ()) for name in EXPERIMENTS}


def environment_of(job: Job) -> str | None:
    """The environment of a run; other jobs belong to the runs that need them."""
    match job:
        case Training():
            return job.batch.env
        case Judging():
            return job.training.batch.env
    return None
