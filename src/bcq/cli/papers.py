"""`bcq reproduce`, `bcq theory` and `bcq demo`."""

import sys
from dataclasses import dataclass
from pathlib import Path

from tyro.conf import Positional
from tyro.extras import SubcommandApp

from bcq.cli.verbs import CONTINUES, Verb
from bcq.experiments.engines import EngineChoice, EngineName
from bcq.paper.presets import ExperimentName, PresetName


@dataclass(frozen=True, kw_only=True)
class CheetahDemo(Verb):
    """BCQ, DDPG and BC learn to run from imperfect demonstrations (Section 5)."""

    out: Path = Path("runs/demo-cheetah")
    """folder of the batch, the runs and the picture; an interrupted demo continues there"""
    steps: int = 15_000
    """number of updates of each algorithm"""
    seed: int = 0
    """seed of the batch and of training"""
    if_stopped = CONTINUES

    def __call__(self) -> None:
        """Collects, trains, evaluates, draws."""
        from bcq.paper import demo  # noqa: PLC0415 - matplotlib takes half a second to import

        demo.cheetah(self.out, steps=self.steps, seed=self.seed)


@dataclass(frozen=True, kw_only=True)
class PendulumDemo(Verb):
    """BCQ learns to swing up a pendulum from 5,000 random actions (supplement D.3)."""

    out: Path = Path("runs/demo-pendulum")
    """folder of the batch, the run and the picture; an interrupted demo continues there"""
    steps: int = 8_000
    """number of updates"""
    seed: int = 0
    """seed of the batch and of training"""
    if_stopped = CONTINUES

    def __call__(self) -> None:
        """Collects, trains, evaluates, draws."""
        from bcq.paper import demo  # noqa: PLC0415 - matplotlib takes half a second to import

        demo.pendulum(self.out, steps=self.steps, seed=self.seed)


@dataclass(frozen=True, kw_only=True)
class Theory(Verb):
    """Demonstrate the theory of the paper, check its statements and draw its pictures."""

    out: Path = Path("runs/theory")
    """folder of the pictures"""
    seed: int = 0
    """seed of the random MDPs"""

    def __call__(self) -> None:
        """Prints, draws, and fails if a statement does not hold."""
        from bcq.tabular import walk as theory  # noqa: PLC0415 - matplotlib takes half a second to import

        if not theory.walk(self.out, seed=self.seed):
            sys.exit("bcq: a statement of the paper does not hold")


@dataclass(frozen=True, kw_only=True)
class Reproduce(Verb):
    """Reproduce the paper: run its experiments, draw its figures and judge its claims."""

    experiments: Positional[tuple[ExperimentName, ...]] = ()
    """experiments to run; if not given, all of the paper;
    judging goes beyond it: how often `bcq judge` is right"""
    preset: PresetName = "quick"
    """smoke (minutes, only tests the machinery), quick (an hour and a half on two cores),
    standard (about 35 core-hours, judges most claims),
    or paper (the scale of the paper, two months)"""
    env: tuple[str, ...] = ()
    """environments to use; if not given, all of the preset"""
    out: Path | None = None
    """folder of all results; if not given, runs/reproduce-PRESET;
    finished jobs in it are not repeated, interrupted jobs continue"""
    engine: EngineName = "local"
    """local (a process for each core of this machine) or ray (the nodes of a Ray cluster, which
    share the folder of the results; needs the extra ray)"""
    address: str | None = None
    """address of the Ray cluster, such as 10.0.0.1:6379; if not given, the one that runs on this
    machine, else a new one that ends with this command"""
    store: str | None = None
    """object store that results travel through if the nodes of a Ray cluster share no folder, such
    as s3://bucket/results; needs the extra store"""
    gpus: float = 0.0
    """share of a GPU that each job gets in a Ray cluster, such as 0.25; if 0, it gets a core"""
    dry_run: bool = False
    """list the jobs with an estimate of their time and disk space, but do not run them"""
    check: bool = False
    """do not run jobs; draw the figures and judge the claims from the results in --out"""

    def __call__(self) -> None:
        """Runs the jobs, lists them, or judges existing results."""
        from bcq.paper import reproduce  # noqa: PLC0415 - matplotlib takes half a second to import

        out = self.out or Path("runs") / f"reproduce-{self.preset}"
        if self.check:
            reproduce.show(out)
        elif self.dry_run:
            reproduce.dry_run(self.preset, self.experiments, self.env, out)
        else:
            engine = EngineChoice(self.engine, self.address, self.gpus, self.store)
            reproduce.reproduce(self.preset, self.experiments, self.env, out, engine)


def demos() -> SubcommandApp:
    """One subcommand per demo."""
    app = SubcommandApp()
    app.command(name="cheetah")(CheetahDemo)
    app.command(name="pendulum")(PendulumDemo)
    return app


VERBS = {"theory": Theory, "reproduce": Reproduce, "demo": demos()}
