"""`bcq train` and `bcq evaluate`."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from tyro.conf import Positional
from tyro.extras import SubcommandApp

from bcq.algorithms import ALGORITHMS, name_of
from bcq.algorithms.learning import AlgorithmConfig
from bcq.cli.verbs import ReadingOptions, Verb, beside, say_choices, say_columns, with_hint
from bcq.data.dataset import Dataset
from bcq.data.doctor.examination import examine
from bcq.data.opening import open_batch
from bcq.data.scaling import ScalingChoice
from bcq.data.splits import HoldOut, HoldOutBy
from bcq.judging.meter import extrapolation_meter
from bcq.runs.configuration import LoggedBatch
from bcq.runs.directory import Run
from bcq.runs.recording import train_run
from bcq.runs.schedules import Schedule
from bcq.runs.value_logs import measure_run
from bcq.simulation.environments import require_registered
from bcq.simulation.evaluation import evaluate
from bcq.system import progress
from bcq.system.errors import InputError

Config = TypeVar("Config", bound=AlgorithmConfig)


@dataclass(frozen=True, kw_only=True)
class Learning(Verb, Generic[Config]):
    """How an algorithm learns from a batch."""

    scaling: ScalingChoice = "auto"
    """scale of observations and rewards while learning: standard (observations with mean 0 and
    standard deviation 1, rewards divided by their root mean square) or none (as logged);
    auto is none for a batch of `bcq collect`, as in the paper, and standard for any other"""
    hold_out: float | None = None
    """share of the episodes that the run does not learn from; `bcq judge` judges it by them"""
    hold_out_by: HoldOutBy = "random"
    """which episodes are kept aside: random ones, the same for every run on this batch, or the
    last ones of the log"""
    reading: ReadingOptions = field(default_factory=ReadingOptions)
    schedule: Schedule = field(default_factory=Schedule)
    algorithm: Config

    def kept_aside(self) -> HoldOut | None:
        """The episodes that are kept aside, if any."""
        if self.hold_out is None:
            if self.hold_out_by != "random":
                raise InputError("hold_out_by: there is no share to keep aside", option="share")
            return None
        return HoldOut(self.hold_out, self.hold_out_by)

    def read(self, data: Path) -> Dataset:
        """Reads a batch and prints the warnings of the doctor."""
        checked = open_batch(data, self.reading.options(self.schedule.env))
        dataset = Dataset.from_checked(checked)
        say_columns(checked.columns.names)
        say_choices(dataset.task)
        for finding in examine(checked, discount=self.algorithm.discount).findings:
            if finding.severity == "warning":
                progress.say(f"warning: {data}: {with_hint(finding)}")
        return dataset


@dataclass(frozen=True, kw_only=True)
class Train(Learning[Config]):
    """Train a policy on a fixed batch of logged transitions."""

    data: Path
    """the batch: HDF5 in the layout of D4RL, npz, CSV, Parquet, a Minari folder or minari:NAME"""
    out: Path | None = None
    """run directory; if not given, runs/ALGORITHM-DATA-seedS"""
    resume: bool = False
    """resume an interrupted run; the result is the same as without the interruption"""

    def __call__(self) -> None:
        """Trains and prints where the run is."""
        dataset = self.read(self.data)
        stem = beside(self.data).stem
        name = f"{name_of(self.algorithm)}-{stem}-seed{self.schedule.seed}"
        directory = self.out or Path("runs") / name
        run = train_run(
            directory,
            self.algorithm,
            self.schedule,
            dataset,
            scaling=self.scaling,
            hold_out=self.kept_aside(),
            resume=self.resume,
        )
        if self.schedule.true_value_every is not None:
            from bcq.runs import plots  # noqa: PLC0415 - matplotlib takes half a second to import

            plots.value_curve(run, directory / "values.png")
            print(f"picture of the estimated and true values: {directory / 'values.png'}")
        print(f"trained for {run.checkpoint_step():,} updates; the run is in {directory}")


@dataclass(frozen=True, kw_only=True)
class Evaluate(Verb):
    """Measure a trained policy in an environment, without exploration noise."""

    run: Positional[Path]
    """run directory of `bcq train`"""
    env: str | None = None
    """Gymnasium environment; if not given, the one of the run or of its data"""
    episodes: int = 10
    """number of episodes"""
    seed: int = 0
    """seed of the start of each episode and of the random choices of the policy"""
    data: Path | None = None
    """the batch that the run was trained on, for --values and --meter"""
    reading: ReadingOptions = field(default_factory=ReadingOptions)
    values: bool = False
    """compare estimated and true values at 100 state-action pairs of the batch"""
    meter: bool = False
    """measure how far the policy is from the batch (1 = like the data); needs no simulator"""
    json: bool = False
    """print the result as JSON; an evaluation includes the return and length of every episode"""

    def __call__(self) -> None:
        """Prints the returns."""
        run = Run.open(self.run)
        if self.values or self.meter:
            self.against_the_batch(run)
            return
        env = self.environment(run)
        result = evaluate(run.policy(), env, episodes=self.episodes, seed=self.seed)
        if self.json:
            print(json.dumps(result.summary() | {"env": env, "seed": self.seed}))
            return
        print(
            f"{env}, {self.episodes} episodes at update {run.checkpoint_step():,}: "
            f"return {result.mean:.1f} ± {result.std:.1f} (std), "
            f"from {result.returns.min():.1f} to {result.returns.max():.1f}, "
            f"length {result.lengths.mean():.0f}"
        )

    def environment(self, run: Run) -> str:
        """The one given, or the one that the run or its data names."""
        env = self.env or run.config.environment
        if env is None:
            raise InputError("this run does not name an environment; give one with --env")
        if self.env is None:
            require_registered(env)
        return env

    def against_the_batch(self, run: Run) -> None:
        """Prints true values, the extrapolation meter, or both."""
        if self.data is None:
            raise InputError(
                "--values and --meter need --data, the batch that the run was trained on"
            )
        options = self.reading.options(run.config.schedule.env)
        checked = open_batch(self.data, options)
        say_columns(checked.columns.names)
        dataset = Dataset.from_checked(checked)
        say_choices(dataset.task)
        batch = run.config.dataset
        if not isinstance(batch, LoggedBatch) or dataset.fingerprint != batch.fingerprint:
            raise InputError(f"{self.data}: is not the batch that {self.run} was trained on")
        figures: dict[str, object] = {"step": run.checkpoint_step(), "seed": self.seed}
        if self.values:
            from bcq.runs import plots  # noqa: PLC0415 - matplotlib takes half a second to import

            values = measure_run(run, dataset, self.environment(run), seed=self.seed)
            picture = run.directory / f"values-at-{run.checkpoint_step()}-seed{self.seed}.png"
            plots.value_scatter(values, run.config.algorithm_name.upper(), picture)
            figures |= {**values.summary(), "picture": str(picture)}
        if self.meter:
            figures |= extrapolation_meter(run.policy(), dataset, seed=self.seed).summary()
        print(json.dumps(figures) if self.json else as_text(figures))


def as_text(figures: Mapping[str, object]) -> str:
    """Figures as text, one per line; without those that do not exist for this learner."""

    def words(value: object) -> str:
        if isinstance(value, list):
            return f"{value[0]:.4g} to {value[1]:.4g}"
        return f"{value:.4g}" if isinstance(value, float) else str(value)

    return "\n".join(
        f"{name.replace('_', ' '):<30} {words(v)}" for name, v in figures.items() if v is not None
    )


def algorithms(verb: Any) -> SubcommandApp:
    """One subcommand per algorithm, with its settings."""
    app = SubcommandApp()
    for name, config in ALGORITHMS.items():
        app.command(name=name, help=config.__doc__)(verb[config])
    return app


VERBS = {"train": algorithms(Train), "evaluate": Evaluate}
