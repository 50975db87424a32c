"""`bcq collect` and `bcq experts`."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from tyro.extras import SubcommandApp

from bcq.cli.verbs import CONTINUES, Verb, parse_seeds
from bcq.collection.experts import bundled, describe, find, read_expert, train_experts
from bcq.collection.recipes import (
    collect_behaviour_to,
    collect_to,
    imitation,
    imperfect,
    random_batch,
)
from bcq.data.dataset import Dataset
from bcq.runs.schedules import BehaviourSchedule, Keep
from bcq.system.errors import InputError


@dataclass(frozen=True, kw_only=True)
class CollectBehaviour(Verb):
    """Options of the batches that a learning agent leaves behind."""

    env: str
    """Gymnasium environment; the agent is DDPG, or double DQN if the actions are choices"""
    out: Path
    """HDF5 file to write; the run directory of the agent is NAME.behaviour, next to it"""
    transitions: int = 1_000_000
    """number of time steps to explore; the batch contains all of them"""
    seed: int = 0
    """seed of all random numbers"""
    noise: float
    """standard deviation of the exploration noise, in half-widths of the action range;
    if the actions are choices, the probability of a random choice"""
    random_steps: int | None = None
    """number of uniformly random actions at the start; if not given, 1,000 (HalfCheetah: 10,000)"""
    keep: Keep = 1
    """number of checkpoints of the agent to keep (the newest); each evaluation makes one"""
    recipe: ClassVar[str]
    if_stopped = CONTINUES

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
    """Batch 1: the complete buffer of an agent that learns with much exploration noise."""

    noise: float = 0.5
    recipe = "final-buffer"


@dataclass(frozen=True, kw_only=True)
class CollectConcurrent(CollectBehaviour):
    """Batch 2: the buffer of an agent in the order of time, for `bcq train --concurrent`."""

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
    """seed of all random numbers"""
    if_stopped = CONTINUES


@dataclass(frozen=True, kw_only=True)
class CollectImitation(CollectFixed):
    """Batch 3: demonstrations of an expert, without noise."""

    policy: str = "0"
    """the expert: the number of a bundled one, a run directory, or the file of an expert"""
    transitions: int = 1_000_000
    """number of transitions to collect"""

    def __call__(self) -> None:
        """Collects."""
        expert = find(self.policy, self.env)
        recipe = imitation(expert, transitions=self.transitions, seed=self.seed)
        report(self.out, collect_to(self.out, recipe))


@dataclass(frozen=True, kw_only=True)
class CollectImperfect(CollectFixed):
    """Imperfect demonstrations: an expert with some random actions and noise on the others."""

    policy: str = "0"
    """the expert: the number of a bundled one, a run directory, or the file of an expert"""
    transitions: int = 100_000
    """number of transitions to collect"""
    random_probability: float = 0.3
    """probability of a uniformly random action instead of the expert's"""
    noise: float = 0.3
    """standard deviation of the noise on the other actions, in half-widths of the action range;
    if the actions are choices, the probability that one of the others is random too"""

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
    """Supplement D.3: uniformly random actions or choices (the paper uses Pendulum and Reacher)."""

    transitions: int = 5_000
    """number of transitions to collect"""

    def __call__(self) -> None:
        """Collects."""
        recipe = random_batch(self.env, transitions=self.transitions, seed=self.seed)
        report(self.out, collect_to(self.out, recipe))


def report(path: Path, dataset: Dataset) -> None:
    """Prints what was collected."""
    returns = dataset.episode_returns
    mean = f", return {returns.mean():.1f} ± {returns.std():.1f} (std)" if len(returns) else ""
    print(f"{path}: {len(dataset):,} transitions, {len(returns):,} complete episodes{mean}")


@dataclass(frozen=True, kw_only=True)
class TrainExperts(Verb):
    """Train agents, take the best checkpoint of each, rank them and keep the best.

    Agents are DDPG, or double DQN if the actions are choices.
    Checkpoints are compared on new episodes. The card of an expert reports other episodes.
    """

    env: str
    """Gymnasium environment"""
    seeds: str = "0..14"
    """seeds of the agents, as in 0..14 or 0,2,5"""
    keep: int = 5
    """number of experts to keep"""
    steps: int = 1_000_000
    """number of time steps of each agent"""
    longest: int = 0
    """largest number of time steps: the best agents are trained further,
    100,000 steps at a time, while they improve"""
    out: Path = Path("runs/experts")
    """folder of the runs of the agents; the experts that are kept are in its folder `kept`"""
    if_stopped = "the agents trained so far are saved; run the same command to continue"

    def __call__(self) -> None:
        """Trains what is not trained yet, and ranks."""
        seeds = parse_seeds(self.seeds)
        if not 1 <= self.keep <= len(seeds):
            raise InputError(
                f"keep: {self.keep} is not between 1 and {len(seeds)}, the number of seeds"
            )
        schedules = [
            BehaviourSchedule(env=self.env, steps=self.steps, seed=s, keep="all") for s in seeds
        ]
        for path in train_experts(self.out, schedules, keep=self.keep, longest=self.longest):
            print(describe(read_expert(path)))


@dataclass(frozen=True, kw_only=True)
class ListExperts:
    """List the bundled experts with their returns."""

    def __call__(self) -> None:
        """Prints one line per expert."""
        for path in bundled("*"):
            print(describe(read_expert(path)))


def recipes() -> SubcommandApp:
    """One subcommand per recipe."""
    app = SubcommandApp()
    app.command(name="final-buffer")(CollectFinalBuffer)
    app.command(name="concurrent")(CollectConcurrent)
    app.command(name="imitation")(CollectImitation)
    app.command(name="imperfect")(CollectImperfect)
    app.command(name="random")(CollectRandom)
    return app


def experts() -> SubcommandApp:
    """The subcommands about experts."""
    app = SubcommandApp()
    app.command(name="train")(TrainExperts)
    app.command(name="list")(ListExperts)
    return app


VERBS = {"collect": recipes(), "experts": experts()}
