"""`bcq sweep` and `bcq compare`."""

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tyro.conf import Fixed, Positional, Suppress

from bcq.cli.training import Config, Learning, algorithms
from bcq.cli.verbs import ReadingOptions, Verb, beside, parse_seeds, say_columns
from bcq.data.dataset import Dataset
from bcq.data.opening import open_batch
from bcq.experiments.comparison import JudgeRun, compare, find_runs, measure
from bcq.experiments.comparison_report import NAME, write_comparison
from bcq.experiments.engines import EngineChoice, EngineName
from bcq.experiments.file_jobs import LoggedFile, judge_by
from bcq.experiments.grids import combinations
from bcq.experiments.jobs import with_needs
from bcq.experiments.sweeps import (
    JOBS,
    Plan,
    Seen,
    compare_in,
    listing,
    require_alike,
    require_place,
    require_success,
    run,
)
from bcq.judging.candidates import discount_of
from bcq.runs.directory import Run
from bcq.runs.schedules import Schedule
from bcq.system import progress
from bcq.system.errors import InputError


@dataclass(frozen=True, kw_only=True)
class SweepSchedule(Schedule):
    """Length of each run, evaluations and checkpoints."""

    seed: Suppress[Fixed[int]] = 0

    def with_seed(self, seed: int) -> Schedule:
        """The schedule of one run."""
        return Schedule(**{**asdict(self), "seed": seed})


@dataclass(frozen=True, kw_only=True)
class Sweep(Learning[Config]):
    """Train with several settings and seeds on your files, and compare the results."""

    data: tuple[Path, ...]
    """the batches, of one task; each is stored in the folder of the sweep"""
    out: Path
    """folder of all results; finished jobs in it are not repeated, interrupted jobs continue"""
    seeds: str = "0..4"
    """seeds of the runs, as in 0..9 or 0,2,5"""
    grid: tuple[str, ...] = ()
    """settings of the algorithm to vary, as in max_perturbation=0,0.05,0.5 discount=0.9,0.99;
    every combination is tried; sizes are written as in hidden_sizes=64x64,256x256"""
    engine: EngineName = "local"
    """local (a process for each core of this machine) or ray (the nodes of a Ray cluster, which
    share the folder of the results; needs the extra ray)"""
    address: str | None = None
    """address of the Ray cluster, such as 10.0.0.1:6379; if not given, the one that runs on this
    machine, else a new one that ends with this command"""
    dry_run: bool = False
    """list the jobs, but do not run them"""
    schedule: SweepSchedule = field(default_factory=SweepSchedule)
    if_stopped = "finished work is kept; run the same command to continue"

    def __call__(self) -> None:
        """Runs the jobs and compares what they gave, or lists them."""
        require_place(self.out)
        plan = self.plan()
        jobs = plan.jobs(self.files(plan))
        if self.dry_run:
            print(listing(jobs, self.out))
            return
        if not plan.is_ranked:
            progress.say(
                "warning: these runs cannot be ranked; give an environment with --env, or keep "
                "episodes aside with --hold-out 0.2"
            )
        progress.say(f"{len(with_needs(jobs))} jobs, in {self.out / JOBS}")
        with EngineChoice(self.engine, self.address).opened(self.out / JOBS) as engine:
            outcome = run(jobs, self.out, engine, sys.stdout)
        if plan.is_ranked and outcome.done:
            show(compare_in(self.out), self.out)
        require_success(outcome, self.out)

    def plan(self) -> Plan:
        """What is tried on every file."""
        return Plan(
            configs=combinations(self.algorithm, self.grid),
            schedules=[self.schedule.with_seed(seed) for seed in parse_seeds(self.seeds)],
            scaling=self.scaling,
            hold_out=self.kept_aside(),
            discount=self.algorithm.discount,
        )

    def files(self, plan: Plan) -> list[LoggedFile]:
        """Reads and checks every file; stores it, unless the jobs are only listed."""
        if not self.data:
            raise InputError("give at least one batch with --data")
        options = self.reading.options(self.schedule.env)
        found: list[LoggedFile] = []
        seen: list[Seen] = []
        for path in self.data:
            dataset = self.read(path)
            try:
                plan.check(dataset)
            except InputError as error:
                raise error.within(path) from error
            seen.append(Seen(str(path), dataset.task, dataset.fingerprint))
            require_alike(seen)
            found.append(LoggedFile.of(beside(path).stem, dataset, options))
            if not self.dry_run:
                found[-1].store(dataset, self.out / JOBS)
        return found


def show(text: str, out: Path) -> None:
    """Prints a comparison and where it is."""
    print(f"\n{text}\n{out / NAME}.md has this table; .png is the picture, .jsonl every number")


@dataclass(frozen=True, kw_only=True)
class Compare(Verb):
    """Compare trained policies: a table and a picture over seeds."""

    runs: Positional[tuple[Path, ...]]
    """the folder of a sweep, or run directories of `bcq train`"""
    out: Path | None = None
    """folder of the table, the picture and the numbers; if not given, that of the sweep, or
    runs/comparison"""
    data: Path | None = None
    """the batch of the runs, to judge those that have no evaluations and were not judged yet"""
    reading: ReadingOptions = field(default_factory=ReadingOptions)
    discount: float | None = None
    """weight of a reward one step later, for the judge; if not given, that of the runs, or 0.99"""

    def __call__(self) -> None:
        """Prints the table and writes everything."""
        if not self.runs:
            raise InputError("give the folder of a sweep, or run directories")
        runs = find_runs(self.runs)
        sections = compare(measure(runs, self.judge(runs)))
        sweep = len(self.runs) == 1 and (self.runs[0] / JOBS).is_dir()
        out = self.out or (self.runs[0] if sweep else Path("runs") / NAME)
        show(write_comparison(sections, out), out)

    def judge(self, runs: Sequence[Run]) -> JudgeRun | None:
        """Judges a run by the batch, if one is given."""
        if self.data is None:
            return None
        checked = open_batch(self.data, self.reading.options())
        say_columns(checked.columns.names)
        discount = discount_of(runs) if self.discount is None else self.discount
        return judge_by(Dataset.from_checked(checked), discount)


VERBS = {"sweep": algorithms(Sweep), "compare": Compare}
