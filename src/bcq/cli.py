"""The command line: verbs only, no logic."""

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

import jax
from tyro.conf import FlagCreatePairsOff, OmitArgPrefixes, Positional
from tyro.extras import SubcommandApp

import bcq
from bcq.algorithms import ALGORITHMS, name_of
from bcq.environments import require_registered
from bcq.errors import BCQError, InputError
from bcq.learning import AlgorithmConfig
from bcq.training import Schedule

Config = TypeVar("Config", bound=AlgorithmConfig)


@dataclass(frozen=True, kw_only=True)
class Train(Generic[Config]):
    """Learn a policy from a fixed batch of logged transitions."""

    data: Path
    """the batch: an HDF5 file in D4RL's layout"""
    out: Path | None = None
    """run directory; runs/ALGORITHM-DATA-seedS unless given"""
    resume: bool = False
    """continue an interrupted run, exactly as if it had not been interrupted"""
    action_low: tuple[float, ...] | None = None
    """lower bounds of the actions, one a dimension, where the file does not know them"""
    action_high: tuple[float, ...] | None = None
    """upper bounds of the actions"""
    schedule: Schedule = field(default_factory=Schedule)
    algorithm: Config

    def __call__(self) -> None:
        """Trains and says where the run is."""
        dataset = bcq.load(
            self.data,
            environment=self.schedule.env,
            action_low=self.action_low,
            action_high=self.action_high,
        )
        name = f"{name_of(self.algorithm)}-{self.data.stem}-seed{self.schedule.seed}"
        directory = self.out or Path("runs") / name
        run = bcq.train_run(directory, self.algorithm, self.schedule, dataset, resume=self.resume)
        print(f"trained for {run.checkpoint_step():,} updates; the run is in {directory}")


@dataclass(frozen=True, kw_only=True)
class Evaluate:
    """Measure a trained policy in an environment, without exploration noise."""

    run: Positional[Path]
    """run directory of `bcq train`"""
    env: str | None = None
    """Gymnasium environment; unless given, the one of the run or of its data"""
    episodes: int = 10
    """how many episodes"""
    seed: int = 0
    """seed of the episodes' starts and of the policy's sampling"""
    json: bool = False
    """print JSON, with every episode's return and length"""

    def __call__(self) -> None:
        """Prints the returns."""
        run = bcq.Run.open(self.run)
        env = self.env or run.config["schedule"]["env"] or run.config["dataset"]["environment"]
        if env is None:
            raise InputError("this run names no environment; give one with --env")
        if self.env is None:
            require_registered(env)
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


@dataclass(frozen=True, kw_only=True)
class PendulumDemo:
    """BCQ learns to swing up a pendulum from 5,000 random actions (supplement D.3)."""

    out: Path = Path("runs/demo-pendulum")
    """where batch, run and picture go; an interrupted demo continues there"""
    steps: int = 8_000
    """updates to train for"""
    seed: int = 0
    """seed of the batch and of training"""

    def __call__(self) -> None:
        """Collects, trains, evaluates, draws."""
        from bcq import demo  # noqa: PLC0415 - matplotlib takes half a second to import

        demo.pendulum(self.out, steps=self.steps, seed=self.seed)


@dataclass(frozen=True, kw_only=True)
class Theory:
    """Walk through the paper's theory: counterexample, grid world, causes, theorems, pictures."""

    out: Path = Path("runs/theory")
    """where the pictures go"""
    seed: int = 0
    """seed of the random MDPs"""

    def __call__(self) -> None:
        """Prints, draws, and fails if a statement does not hold."""
        from bcq import theory  # noqa: PLC0415 - matplotlib takes half a second to import

        if not theory.walk(self.out, seed=self.seed):
            sys.exit("bcq: a statement of the paper did not hold")


def application() -> SubcommandApp:
    """The tree of verbs."""
    train = SubcommandApp()
    for name, config in ALGORITHMS.items():
        train.command(name=name, help=config.__doc__)(Train[config])  # type: ignore[valid-type]
    demos = SubcommandApp()
    demos.command(name="pendulum")(PendulumDemo)
    app = SubcommandApp()
    app.command(train, name="train", help="Learn a policy from a fixed batch of transitions.")
    app.command(name="evaluate")(Evaluate)
    app.command(name="theory")(Theory)
    app.command(demos, name="demo", help="See it work, with nothing to prepare.")
    return app


def use_compilation_cache() -> None:
    """Keeps compiled code between calls, so that the second start is quick."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    options = {
        "jax_compilation_cache_dir": str(home / "bcq" / "compiled"),
        "jax_persistent_cache_min_compile_time_secs": 0.1,
    }
    for name, value in options.items():
        jax.config.update(name, value)  # type: ignore[no-untyped-call]


def main(arguments: Sequence[str] | None = None) -> None:
    """What the `bcq` command does."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if "--version" in arguments:
        print(f"bcq {bcq.__version__}")
        return
    try:
        command = application().cli(
            prog="bcq",
            description="Batch-constrained reinforcement learning: learn a policy from logged "
            "transitions, without exploring.",
            args=arguments,
            config=(OmitArgPrefixes, FlagCreatePairsOff),
        )
        use_compilation_cache()
        command()
    except BCQError as error:
        sys.exit(f"bcq: {error}")
    except KeyboardInterrupt:
        sys.exit(
            "\nbcq: interrupted; the same command goes on from the last checkpoint "
            "(train: with --resume)"
        )
