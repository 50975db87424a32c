"""The command line: verbs only, no logic."""

import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import ClassVar, Generic, NoReturn, TypeVar

from jax.errors import JaxRuntimeError
from tyro.conf import FlagCreatePairsOff, OmitArgPrefixes, Positional
from tyro.extras import SubcommandApp

import bcq
from bcq.algorithms import ALGORITHMS, name_of
from bcq.algorithms.learning import AlgorithmConfig
from bcq.collection.behaviour import BehaviourSchedule
from bcq.collection.experts import bundled, describe, find, read_expert, train_experts
from bcq.collection.recipes import (
    collect_behaviour_to,
    collect_to,
    imitation,
    imperfect,
    random_batch,
)
from bcq.data.dataset import Finding
from bcq.data.doctor import as_json, as_text, examine, repair
from bcq.data.formats import Hints, as_dataset, bounds_for, convert, read, require_new, save
from bcq.data.formats.mapping import parse_columns
from bcq.data.formats.minari import PREFIX
from bcq.paper.presets import ExperimentName, PresetName
from bcq.runs.directory import Keep, use_compilation_cache
from bcq.runs.recording import Schedule
from bcq.runs.values import measure_run
from bcq.simulation.environments import registered_bounds, require_registered
from bcq.system import interruption, progress
from bcq.system.errors import BCQError, InputError, InterruptionError

Config = TypeVar("Config", bound=AlgorithmConfig)
GOES_ON = "what was finished is kept; the same command goes on from there"


@dataclass(frozen=True, kw_only=True)
class Verb:
    """What every verb that takes a while has."""

    quiet: bool = False
    """say nothing but errors and the result: no progress, no warnings"""
    if_stopped: ClassVar[str] = "nothing was saved; the same command begins anew"


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What a file of logs may not say of itself."""

    columns: tuple[str, ...] = ()
    """which columns of a table (or arrays of an npz file) are what, where their names are not
    usual: observations=x,y actions=torque rewards=r terminated=fell truncated=cut episode=run
    step=t; or one mapping file, JSON or TOML"""
    action_low: tuple[float, ...] | None = None
    """lower bounds of the actions, one a dimension, where the file does not know them"""
    action_high: tuple[float, ...] | None = None
    """upper bounds of the actions"""
    action_margin: float | None = None
    """take the bounds from the data, widened on each side by this share of their range"""

    def hints(self, environment: str | None = None) -> Hints:
        """The same for the reader."""
        return Hints(
            columns=parse_columns(self.columns) if self.columns else {},
            environment=environment,
            action_low=self.action_low,
            action_high=self.action_high,
            action_margin=self.action_margin,
            bounds_of=registered_bounds,
        )


def beside(data: Path) -> Path:
    """A path for what is made of a batch: beside it, or here if Minari keeps it."""
    return Path(data.name.removeprefix(PREFIX)) if str(data).startswith(PREFIX) else data


@dataclass(frozen=True, kw_only=True)
class Train(Verb, Generic[Config]):
    """Learn a policy from a fixed batch of logged transitions."""

    data: Path
    """the batch: HDF5 in D4RL's layout, npz, CSV, Parquet, a Minari folder or minari:NAME"""
    out: Path | None = None
    """run directory; runs/ALGORITHM-DATA-seedS unless given"""
    resume: bool = False
    """continue an interrupted run, exactly as if it had not been interrupted"""
    reading: Reading = field(default_factory=Reading)
    schedule: Schedule = field(default_factory=Schedule)
    algorithm: Config

    def __call__(self) -> None:
        """Trains and says where the run is."""
        dataset = self.dataset()
        stem = beside(self.data).stem
        name = f"{name_of(self.algorithm)}-{stem}-seed{self.schedule.seed}"
        directory = self.out or Path("runs") / name
        run = bcq.train_run(directory, self.algorithm, self.schedule, dataset, resume=self.resume)
        if self.schedule.true_value_every is not None:
            from bcq.runs import plots  # noqa: PLC0415 - matplotlib takes half a second to import

            plots.value_curve(run, directory / "values.png")
            print(f"estimated and true values are drawn in {directory / 'values.png'}")
        print(f"trained for {run.checkpoint_step():,} updates; the run is in {directory}")

    def dataset(self) -> bcq.Dataset:
        """The batch, once the doctor has warned of what is wrong with it."""
        columns = read(self.data, hints := self.reading.hints(self.schedule.env))
        bounds = bounds_for(columns, hints)
        dataset = bcq.Dataset.from_columns(columns, bounds)
        for finding in examine(columns, bounds, discount=getattr(self.algorithm, "discount", 0)):
            if finding.severity == "warning":
                progress.say(f"warning: {self.data}: {finding}")
        return dataset


@dataclass(frozen=True, kw_only=True)
class Evaluate(Verb):
    """Measure a trained policy in an environment, without exploration noise."""

    run: Positional[Path]
    """run directory of `bcq train`"""
    env: str | None = None
    """Gymnasium environment; unless given, the one of the run or of its data"""
    episodes: int = 10
    """how many episodes"""
    seed: int = 0
    """seed of the episodes' starts and of the policy's sampling"""
    data: Path | None = None
    """the batch it learned from, for --values and --meter"""
    reading: Reading = field(default_factory=Reading)
    values: bool = False
    """compare the estimated value with the true one, measured at 100 pairs of the batch"""
    meter: bool = False
    """say how far the policy is from the batch (1 = like the data); needs no simulator"""
    json: bool = False
    """print JSON; of an evaluation, with every episode's return and length"""

    def __call__(self) -> None:
        """Prints the returns."""
        run = bcq.Run.open(self.run)
        if self.values or self.meter:
            self.against_the_batch(run)
            return
        env = self.environment(run)
        result = bcq.evaluate(run.policy(), env, episodes=self.episodes, seed=self.seed)
        if self.json:
            print(json.dumps(result.summary() | {"env": env, "seed": self.seed}))
            return
        print(
            f"{env}, {self.episodes} episodes at update {run.checkpoint_step():,}: "
            f"return {result.mean:.1f} ± {result.std:.1f} (std), "
            f"from {result.returns.min():.1f} to {result.returns.max():.1f}, "
            f"length {result.lengths.mean():.0f}"
        )

    def environment(self, run: bcq.Run) -> str:
        """The one given, or the one that the run or its data names."""
        env = self.env or run.config["schedule"]["env"] or run.config["dataset"]["environment"]
        if env is None:
            raise InputError("this run names no environment; give one with --env")
        if self.env is None:
            require_registered(env)
        return str(env)

    def against_the_batch(self, run: bcq.Run) -> None:
        """Prints true values and the extrapolation meter, whichever was asked for."""
        if self.data is None:
            raise InputError(
                "--values and --meter need --data, the batch that the run learned from"
            )
        hints = self.reading.hints(run.config["schedule"]["env"])
        dataset = as_dataset(read(self.data, hints), hints)
        if dataset.fingerprint != run.config["dataset"].get("fingerprint"):
            raise InputError(f"{self.data}: is not the batch that {self.run} learned from")
        figures: dict[str, object] = {"step": run.checkpoint_step(), "seed": self.seed}
        if self.values:
            from bcq.runs import plots  # noqa: PLC0415 - matplotlib takes half a second to import

            values = measure_run(run, dataset, self.environment(run), seed=self.seed)
            picture = run.directory / f"values-at-{run.checkpoint_step()}-seed{self.seed}.png"
            plots.value_scatter(values, f"{run.config['algorithm'].upper()}", picture)
            figures |= {**values.summary(), "picture": str(picture)}
        if self.meter:
            figures |= bcq.extrapolation_meter(run.policy(), dataset, seed=self.seed).summary()
        print(json.dumps(figures) if self.json else as_lines(figures))


def as_lines(figures: Mapping[str, object]) -> str:
    """Figures for people, one a line."""

    def words(value: object) -> str:
        if isinstance(value, list):
            return f"{value[0]:.4g} to {value[1]:.4g}"
        return f"{value:.4g}" if isinstance(value, float) else str(value)

    return "\n".join(f"{name.replace('_', ' '):<30} {words(v)}" for name, v in figures.items())


@dataclass(frozen=True, kw_only=True)
class CollectBehaviour(Verb):
    """Options of the batches that a learning DDPG agent leaves behind."""

    env: str
    """Gymnasium environment"""
    out: Path
    """HDF5 file to write; the agent's run directory stays beside it, as NAME.behaviour"""
    transitions: int = 1_000_000
    """time steps to explore for; every one of them is kept"""
    seed: int = 0
    """seed of everything random"""
    noise: float
    """standard deviation of the exploration noise, in half-widths of the action range"""
    random_steps: int | None = None
    """time steps of uniformly random actions at the start; 10,000 for HalfCheetah, else 1,000"""
    keep: Keep = 1
    """checkpoints of the agent to keep, the newest ones; one is made at each evaluation"""
    recipe: ClassVar[str]
    if_stopped = GOES_ON

    def __call__(self) -> None:
        """Trains the agent and writes its buffer."""
        schedule = BehaviourSchedule(
            env=self.env,
            steps=self.transitions,
            seed=self.seed,
            noise=self.noise,
            random_steps=self.random_steps,
            keep=self.keep,
        )
        report(self.out, collect_behaviour_to(self.out, self.recipe, schedule))


@dataclass(frozen=True, kw_only=True)
class CollectFinalBuffer(CollectBehaviour):
    """Batch 1: all that a DDPG agent with much exploration saw while it learned."""

    noise: float = 0.5
    recipe = "final-buffer"


@dataclass(frozen=True, kw_only=True)
class CollectConcurrent(CollectBehaviour):
    """Batch 2: a DDPG agent's buffer in order, for `bcq train --concurrent`."""

    noise: float = 0.1
    recipe = "concurrent"


@dataclass(frozen=True, kw_only=True)
class CollectFixed(Verb):
    """Options of the batches that a fixed behaviour collects."""

    env: str
    """Gymnasium environment"""
    out: Path
    """HDF5 file to write"""
    seed: int = 0
    """seed of everything random"""
    if_stopped = GOES_ON


@dataclass(frozen=True, kw_only=True)
class CollectImitation(CollectFixed):
    """Batch 3: an expert at work, without noise."""

    policy: str = "0"
    """number of a bundled expert, or a run directory, or an expert's file"""
    transitions: int = 1_000_000
    """how many"""

    def __call__(self) -> None:
        """Collects."""
        expert = find(self.policy, self.env)
        recipe = imitation(expert, transitions=self.transitions, seed=self.seed)
        report(self.out, collect_to(self.out, recipe))


@dataclass(frozen=True, kw_only=True)
class CollectImperfect(CollectFixed):
    """Imperfect demonstrations: an expert with random actions and noise in between."""

    policy: str = "0"
    """number of a bundled expert, or a run directory, or an expert's file"""
    transitions: int = 100_000
    """how many"""
    random_probability: float = 0.3
    """how often a uniformly random action is taken instead"""
    noise: float = 0.3
    """standard deviation of the noise on the other actions, in half-widths of the action range"""

    def __call__(self) -> None:
        """Collects."""
        recipe = imperfect(
            find(self.policy, self.env),
            transitions=self.transitions,
            noise=self.noise,
            random_probability=self.random_probability,
            seed=self.seed,
        )
        report(self.out, collect_to(self.out, recipe))


@dataclass(frozen=True, kw_only=True)
class CollectRandom(CollectFixed):
    """Supplement D.3: uniformly random actions (the paper has Pendulum and Reacher)."""

    transitions: int = 5_000
    """how many"""

    def __call__(self) -> None:
        """Collects."""
        recipe = random_batch(self.env, transitions=self.transitions, seed=self.seed)
        report(self.out, collect_to(self.out, recipe))


def report(path: Path, dataset: bcq.Dataset) -> None:
    """Says what was collected."""
    returns = dataset.episode_returns
    mean = f", return {returns.mean():.1f} ± {returns.std():.1f} (std)" if len(returns) else ""
    print(f"{path}: {len(dataset):,} transitions, {len(returns):,} complete episodes{mean}")


@dataclass(frozen=True, kw_only=True)
class TrainExperts(Verb):
    """Train DDPG agents, take the best checkpoint of each, rank them, keep the best.

    Checkpoints are compared on fresh episodes; an expert's card has other ones.
    """

    env: str
    """Gymnasium environment"""
    seeds: str = "0..14"
    """seeds of the agents: 0..14, or 0,2,5"""
    keep: int = 5
    """how many to keep"""
    steps: int = 1_000_000
    """time steps of each"""
    longest: int = 0
    """carry the best on, 100,000 steps at a time, to at most so many, while they still improve"""
    out: Path = Path("runs/experts")
    """folder of the agents' runs; the kept ones are in its folder `kept`"""
    if_stopped = "the agents trained so far are saved; the same command goes on from there"

    def __call__(self) -> None:
        """Trains what is not trained yet, and ranks."""
        seeds = parse_seeds(self.seeds)
        if not 1 <= self.keep <= len(seeds):
            raise InputError(f"keep: {self.keep} is not between 1 and {len(seeds)}, the seeds")
        schedules = [
            BehaviourSchedule(env=self.env, steps=self.steps, seed=s, keep="all") for s in seeds
        ]
        for path in train_experts(self.out, schedules, keep=self.keep, longest=self.longest):
            print(describe(read_expert(path)))


@dataclass(frozen=True, kw_only=True)
class ListExperts:
    """The experts that ship with this package, and what they earn."""

    def __call__(self) -> None:
        """Prints a line each."""
        for path in bundled("*"):
            print(describe(read_expert(path)))


@dataclass(frozen=True, kw_only=True)
class Inspect(Verb):
    """What a batch holds, and what is wrong with it: figures, findings with rows, a picture."""

    data: Positional[Path]
    """the batch: HDF5 in D4RL's layout, npz, CSV, Parquet, a Minari folder or minari:NAME"""
    env: str | None = None
    """Gymnasium environment that the batch is of, where the file does not name it"""
    reading: Reading = field(default_factory=Reading)
    fix: Path | None = None
    """write what can be mended safely to this new file"""
    picture: Path | None = None
    """where the picture goes; the file's name with .png unless given"""
    json: bool = False
    """print JSON"""

    def __call__(self) -> None:
        """Prints and draws."""
        columns = read(self.data, hints := self.reading.hints(self.env))
        bounds = bounds_for(columns, hints)
        findings = examine(columns, bounds)
        if self.fix is not None:
            require_new(self.fix)
            save(bcq.Dataset.from_columns(repair(columns, bounds), bounds), self.fix)
        wrong = sum(finding.severity == "error" for finding in findings)
        if wrong:
            print(json.dumps({"findings": as_json(findings)}) if self.json else as_text(findings))
            raise InputError(f"{self.data}: {wrong} errors; nothing can learn from it as it is")
        self.show(bcq.Dataset.from_columns(columns, bounds), findings)

    def show(self, dataset: bcq.Dataset, findings: Sequence[Finding]) -> None:
        """Figures, findings and the picture of a batch without errors."""
        from bcq.data import inspection  # noqa: PLC0415 - matplotlib takes half a second to import

        figures = inspection.summary(dataset)
        path = self.picture or beside(self.data).with_suffix(".png")
        inspection.picture(dataset, path)
        if self.json:
            print(json.dumps(figures | {"findings": as_json(findings)}))
        else:
            print(inspection.as_text(figures), "", as_text(findings), "", sep="\n")
            print(f"picture        {path}")


@dataclass(frozen=True, kw_only=True)
class Convert(Verb):
    """Write a batch in another format: any that can be read, to HDF5 or Minari."""

    source: Positional[Path]
    """the batch: HDF5 in D4RL's layout, npz, CSV, Parquet, a Minari folder or minari:NAME"""
    target: Positional[Path]
    """new file .hdf5, or Minari data set: a folder NAME-v0, or minari:NAME-v0"""
    env: str | None = None
    """Gymnasium environment that the batch is of, where the file does not name it"""
    reading: Reading = field(default_factory=Reading)

    def __call__(self) -> None:
        """Converts and says how much."""
        rows, findings = convert(self.source, self.target, self.reading.hints(self.env))
        for finding in findings:
            progress.say(f"{finding.severity}: {self.source}: {finding}")
        print(f"{self.target}: {rows:,} transitions; bcq inspect says what is in them")


@dataclass(frozen=True, kw_only=True)
class CheetahDemo(Verb):
    """BCQ, DDPG and BC learn to run from imperfect demonstrations (Section 5)."""

    out: Path = Path("runs/demo-cheetah")
    """where batch, runs and picture go; an interrupted demo continues there"""
    steps: int = 15_000
    """updates to train each for"""
    seed: int = 0
    """seed of the batch and of training"""
    if_stopped = GOES_ON

    def __call__(self) -> None:
        """Collects, trains, evaluates, draws."""
        from bcq.paper import demo  # noqa: PLC0415 - matplotlib takes half a second to import

        demo.cheetah(self.out, steps=self.steps, seed=self.seed)


@dataclass(frozen=True, kw_only=True)
class PendulumDemo(Verb):
    """BCQ learns to swing up a pendulum from 5,000 random actions (supplement D.3)."""

    out: Path = Path("runs/demo-pendulum")
    """where batch, run and picture go; an interrupted demo continues there"""
    steps: int = 8_000
    """updates to train for"""
    seed: int = 0
    """seed of the batch and of training"""
    if_stopped = GOES_ON

    def __call__(self) -> None:
        """Collects, trains, evaluates, draws."""
        from bcq.paper import demo  # noqa: PLC0415 - matplotlib takes half a second to import

        demo.pendulum(self.out, steps=self.steps, seed=self.seed)


@dataclass(frozen=True, kw_only=True)
class Theory(Verb):
    """Walk through the paper's theory: counterexample, grid world, causes, theorems, pictures."""

    out: Path = Path("runs/theory")
    """where the pictures go"""
    seed: int = 0
    """seed of the random MDPs"""

    def __call__(self) -> None:
        """Prints, draws, and fails if a statement does not hold."""
        from bcq.tabular import walk as theory  # noqa: PLC0415 - matplotlib takes half a second to import

        if not theory.walk(self.out, seed=self.seed):
            sys.exit("bcq: a statement of the paper did not hold")


@dataclass(frozen=True, kw_only=True)
class Reproduce(Verb):
    """Reproduce the paper: run its experiments, draw its figures, judge its claims."""

    experiments: Positional[tuple[ExperimentName, ...]] = ()
    """which of them; all unless named"""
    preset: PresetName = "quick"
    """how long: smoke (minutes, proves the machinery), quick (an hour and a half on two cores),
    standard (some 35 core-hours, judges most claims), paper (its own scale, two months)"""
    env: tuple[str, ...] = ()
    """only these environments"""
    out: Path | None = None
    """where everything goes, runs/reproduce-PRESET unless given; what is finished there is not
    repeated, what was interrupted goes on"""
    dry_run: bool = False
    """list the jobs with an estimate of time and disk, and run none"""
    check: bool = False
    """run nothing: draw the figures and judge the claims from the results in --out"""

    def __call__(self) -> None:
        """Runs, or says what would be run, or judges."""
        from bcq.paper import reproduce  # noqa: PLC0415 - matplotlib takes half a second to import

        out = self.out or Path("runs") / f"reproduce-{self.preset}"
        if self.check:
            reproduce.show(out)
        elif self.dry_run:
            reproduce.dry_run(self.preset, self.experiments, self.env, out)
        else:
            reproduce.reproduce(self.preset, self.experiments, self.env, out)


def application() -> SubcommandApp:
    """The tree of verbs."""
    train = SubcommandApp()
    for name, config in ALGORITHMS.items():
        train.command(name=name, help=config.__doc__)(Train[config])  # type: ignore[valid-type]
    collect = SubcommandApp()
    collect.command(name="final-buffer")(CollectFinalBuffer)
    collect.command(name="concurrent")(CollectConcurrent)
    collect.command(name="imitation")(CollectImitation)
    collect.command(name="imperfect")(CollectImperfect)
    collect.command(name="random")(CollectRandom)
    experts = SubcommandApp()
    experts.command(name="train")(TrainExperts)
    experts.command(name="list")(ListExperts)
    demos = SubcommandApp()
    demos.command(name="cheetah")(CheetahDemo)
    demos.command(name="pendulum")(PendulumDemo)
    app = SubcommandApp()
    app.command(train, name="train", help="Learn a policy from a fixed batch of transitions.")
    app.command(name="evaluate")(Evaluate)
    app.command(collect, name="collect", help="Make a batch as the paper did.")
    app.command(experts, name="experts", help="Train experts, or list the bundled ones.")
    app.command(name="inspect")(Inspect)
    app.command(name="convert")(Convert)
    app.command(name="theory")(Theory)
    app.command(name="reproduce")(Reproduce)
    app.command(demos, name="demo", help="See it work, with nothing to prepare.")
    return app


def parse_seeds(text: str) -> list[int]:
    """0..14 or 0,2,5 as numbers."""
    try:
        if ".." in text:
            first, last = text.split("..")
            seeds = list(range(int(first), int(last) + 1))
        else:
            seeds = [int(part) for part in text.split(",")]
    except ValueError as error:
        raise InputError(f"seeds: {text!r} is neither like 0..14 nor like 0,2,5") from error
    if not seeds or len(set(seeds)) < len(seeds):
        raise InputError(f"seeds: {text!r} names no seed, or one twice")
    return seeds


def main(arguments: Sequence[str] | None = None) -> None:
    """What the `bcq` command does."""
    arguments = sys.argv[1:] if arguments is None else arguments
    with interruption.watched():
        try:
            try:
                run(arguments)
            finally:
                sys.stdout.flush()
        except BrokenPipeError:  # whoever read this, such as `head`, has seen enough
            progress.discard(sys.stdout)
            sys.exit(128 + signal.SIGPIPE)


def run(arguments: Sequence[str]) -> None:
    """Parses and obeys; what is wrong is said in one line."""
    if list(arguments) == ["--version"]:
        print(f"bcq {bcq.__version__}")
        return
    command = None
    try:
        interruption.check()
        command = application().cli(
            prog="bcq",
            description="Batch-constrained reinforcement learning: learn a policy from logged "
            "transitions, without exploring.",
            args=arguments,
            config=(OmitArgPrefixes, FlagCreatePairsOff),
        )
        use_compilation_cache()
        with progress.silenced(getattr(command, "quiet", False)):
            interruption.check()
            command()
        if interruption.requested():
            stop("interrupted, but everything was done already")
    except (InterruptionError, KeyboardInterrupt) as error:
        if isinstance(error, KeyboardInterrupt) and interruption.requested():  # the second signal
            interruption.write(interruption.AT_ONCE)
            os._exit(interruption.exit_code())  # threads that still compute are not waited for
        stop(f"stopped; {str(error) or getattr(command, 'if_stopped', Verb.if_stopped)}")
    except InputError as error:
        sys.exit("bcq: " + str(error).replace("\n", "\\n"))  # a file's name may have any character
    except BCQError as error:
        sys.exit(f"bcq: {error}")
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        sys.exit(f"bcq: {str(error.filename or 'a file')[:200]}: {error.strerror or error}")
    except (MemoryError, JaxRuntimeError) as error:
        if isinstance(error, JaxRuntimeError) and "RESOURCE_EXHAUSTED" not in str(error):
            raise
        sys.exit(f"bcq: memory is exhausted: {too_large(command)} ({first_line(error)})")


def too_large(command: object) -> str:
    """What there is to make smaller: the sizes that were given, of those that an algorithm has."""
    if not isinstance(command, Train):
        return "give it less to do at a time"
    sizes = [
        each
        for each in fields(command.algorithm)
        if each.name.endswith(("_size", "_sizes", "_samples", "members"))
    ]
    given = [each for each in sizes if getattr(command.algorithm, each.name) != each.default]
    named = (f"--{e.name.replace('_', '-')} {getattr(command.algorithm, e.name)}" for e in given)
    return f"{', '.join(named) or 'the batch, or the networks,'} is too large"


def first_line(error: BaseException) -> str:
    """An exception of somebody else's code in one line."""
    return (str(error) or type(error).__name__).split("\n")[0][:200]


def stop(words: str) -> NoReturn:
    """Ends with the last word on an interruption, and the exit code of one."""
    progress.put(f"bcq: {words}")
    sys.exit(interruption.exit_code())
