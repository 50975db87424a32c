"""Many trainings on users' files: what is checked before, which jobs there are, how they run."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import NamedTuple, TextIO

from bcq.algorithms.learning import AlgorithmConfig
from bcq.data.bounds import TaskSpec
from bcq.data.dataset import Dataset
from bcq.data.scaling import ScalingChoice
from bcq.data.splits import HoldOut
from bcq.experiments.board import Outcome
from bcq.experiments.comparison import compare, find_runs, measure
from bcq.experiments.comparison_report import write_comparison
from bcq.experiments.file_jobs import FileTraining, JudgedTraining, LoggedFile
from bcq.experiments.jobs import Job, fingerprint, is_finished, with_needs
from bcq.experiments.runner import Engine, run_jobs
from bcq.judging.candidates import DISCOUNT
from bcq.judging.values import LEAST_EPISODES
from bcq.runs.schedules import Schedule
from bcq.simulation.environments import make_for
from bcq.simulation.true_values import require_measurable
from bcq.system.errors import BCQError, InputError
from bcq.training.loop import require_kind

JOBS = "jobs"  # folder of the jobs, in that of the sweep


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is tried on every file."""

    configs: Sequence[AlgorithmConfig]
    schedules: Sequence[Schedule]  # one for each seed
    scaling: ScalingChoice = "auto"
    hold_out: HoldOut | None = None
    discount: float | None = None  # by which policies are judged, if there is no environment

    @property
    def env(self) -> str | None:
        """The environment of the evaluations."""
        return self.schedules[0].env

    @property
    def is_judged(self) -> bool:
        """Whether policies are ranked by the judge."""
        return self.env is None and self.hold_out is not None

    @property
    def is_ranked(self) -> bool:
        """Whether the results will say which setting is better."""
        return self.env is not None or self.is_judged

    def check(self, dataset: Dataset) -> None:
        """Refuses a batch that no job could use, before any job starts."""
        for config in self.configs:
            require_kind(config, dataset.task)
        if self.env is not None:
            make_for(self.env, dataset.task).close()
            if self.schedules[0].true_value_every is not None:
                require_measurable(self.configs[0], dataset, self.env)
        if self.hold_out is not None:
            aside = len(self.hold_out.episodes(dataset))
            if self.is_judged and aside < LEAST_EPISODES:
                raise InputError(
                    f"hold_out: keeps {aside} episodes aside; judging needs {LEAST_EPISODES}"
                )

    def jobs(self, files: Sequence[LoggedFile]) -> list[Job]:
        """Seed by seed, so that at any moment all settings have about as many runs."""
        trainings = [
            FileTraining(config, schedule, file, self.scaling, self.hold_out)
            for schedule, file, config in product(self.schedules, files, self.configs)
        ]
        if not self.is_judged:
            return [*trainings]
        discount = DISCOUNT if self.discount is None else self.discount
        return [job for one in trainings for job in (one, JudgedTraining(one, discount))]


def require_place(out: Path) -> None:
    """Refuses the folder of a run for a sweep."""
    if (out / "config.json").exists():
        raise InputError(f"{out}: is the folder of a run; a sweep needs a folder of its own")
    if out.exists() and not out.is_dir():
        raise InputError(f"{out}: is a file; a sweep needs a folder")


class Seen(NamedTuple):
    """A file that was read."""

    path: str
    task: TaskSpec
    content: str  # fingerprint of the batch


def require_alike(files: Sequence[Seen]) -> None:
    """Refuses a last file of another task than the first, or with the content of one before."""
    *before, new = files
    for one in before:
        if one.content == new.content:
            raise InputError(
                f"{new.path}: has the same content as {one.path}; leave one of them out"
            )
    first = files[0]
    for part in ("observation_size", "action_size", "choices", "layout"):
        if getattr(new.task, part) != getattr(first.task, part):
            raise InputError(
                f"{new.path}: is of another task than {first.path}: their "
                f"{part.replace('_', ' ')} differs; sweep them separately"
            )


def listing(jobs: Sequence[Job], out: Path) -> str:
    """The jobs, and which are done."""
    everything = with_needs(jobs)
    lines = [
        f"{job.name:<60} {job.length:>10,}  "
        f"{'done' if is_finished(job, out / JOBS) else 'to do':>5}  {fingerprint(job)}"
        for job in everything
    ]
    left = sum(not is_finished(job, out / JOBS) for job in everything)
    return "\n".join([*lines, f"{len(everything)} jobs, {left} to do, in {out / JOBS}"])


def run(jobs: Sequence[Job], out: Path, engine: Engine, screen: TextIO) -> Outcome:
    """Runs what is not done yet."""
    return run_jobs(jobs, out / JOBS, engine, screen=screen)


def compare_in(out: Path) -> str:
    """Compares everything that a folder has so far, and writes the result there."""
    return write_comparison(compare(measure(find_runs([out]))), out)


def require_success(outcome: Outcome, out: Path) -> None:
    """Reports the jobs that failed, in a line each."""
    if outcome.failed:
        lines = [f"  {out / JOBS / name}: {line}" for name, line in outcome.failed.items()]
        raise BCQError(
            f"{len(outcome.failed)} jobs failed, {len(outcome.skipped)} that need them were "
            "skipped; run the same command to try them again\n" + "\n".join(lines)
        )
