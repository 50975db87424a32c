"""The kinds of jobs that the paper's experiments are made of."""

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import ClassVar

from bcq.algorithms import DDPGConfig, name_of
from bcq.algorithms.learning import AlgorithmConfig
from bcq.collection.behaviour import behaviour_dataset, train_behaviour
from bcq.collection.experts import Expert, bundled, find, keep_best, read_expert
from bcq.collection.recipes import Recipe, collect_to, imitation, imperfect, random_batch
from bcq.data.dataset import Dataset
from bcq.data.saving import save
from bcq.data.splits import HoldOut
from bcq.experiments.jobs import Job, directory_name
from bcq.experiments.measures import final_measures
from bcq.runs.configuration import mean_return
from bcq.runs.directory import Run
from bcq.runs.recording import train_run
from bcq.runs.schedules import BehaviourSchedule, Schedule
from bcq.simulation.batches import load
from bcq.system.errors import InputError
from bcq.system.files import Row, write_json
from bcq.tabular.illustrations import DISCOUNTS, counterexample
from bcq.tabular.theorems import STATEMENTS, largest


@dataclass(frozen=True)
class OnlineAgent:
    """A DDPG agent that learns online. Its transitions are a batch for offline learners."""

    schedule: BehaviourSchedule
    needs: ClassVar[Sequence[Job]] = ()

    @property
    def name(self) -> str:
        """Environment, noise and seed."""
        schedule = self.schedule
        return f"behaviour-{schedule.env}-noise{schedule.noise:g}-seed{schedule.seed}"

    @property
    def length(self) -> int:
        """Its time steps."""
        return self.schedule.steps

    def as_json(self) -> Row:
        """Its schedule and settings. The kind is in fingerprints, so it keeps its old name."""
        return {
            "kind": "Behaviour",
            "schedule": asdict(self.schedule),
            "settings": asdict(DDPGConfig()),
        }

    def perform(self, folder: Path) -> None:
        """Trains the agent."""
        directory = folder / directory_name(self)
        train_behaviour(directory, DDPGConfig(), self.schedule, resume=True)


@dataclass(frozen=True)
class Experts:
    """The best of several agents."""

    needs: tuple[OnlineAgent, ...]
    keep: int
    length: ClassVar[int] = 1

    @property
    def name(self) -> str:
        """The environment, and how many of how many agents are kept."""
        return f"experts-{self.needs[0].schedule.env}-{self.keep}-of-{len(self.needs)}"

    def as_json(self) -> Row:
        """The settings of every agent."""
        return {
            "kind": "Experts",
            "agents": [agent.as_json() for agent in self.needs],
            "keep": self.keep,
        }

    def perform(self, folder: Path) -> None:
        """Ranks the agents and keeps the best."""
        runs = [Run.open(folder / directory_name(agent)) for agent in self.needs]
        keep_best(runs, folder / directory_name(self), keep=self.keep)


@dataclass(frozen=True)
class Batch:
    """A batch of the paper. Trial i uses agent i or expert i (supplement F)."""

    recipe: str
    env: str
    transitions: int
    trial: int
    source: OnlineAgent | Experts | None = None  # None: a bundled expert, or no expert

    @property
    def name(self) -> str:
        """Recipe, environment and trial."""
        return f"batch-{self.recipe}-{self.env}-seed{self.trial}"

    @property
    def needs(self) -> Sequence[Job]:
        """The agent or the experts that collect it."""
        return () if self.source is None else (self.source,)

    @property
    def length(self) -> int:
        """Its transitions."""
        return self.transitions

    def as_json(self) -> Row:
        """Its settings."""
        return {
            "kind": "Batch",
            **{key: getattr(self, key) for key in ("recipe", "env", "transitions", "trial")},
            "source": None if self.source is None else self.source.as_json(),
            "expert": self.bundled_expert(),
        }

    def bundled_expert(self) -> Row | None:
        """Name and SHA-256 of the bundled expert that collects the batch, if there is one."""
        if self.source is not None or self.recipe not in ("imitation", "imperfect"):
            return None
        path = bundled(self.env)[self.number(len(bundled(self.env)))]
        return {"name": path.stem, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}

    def number(self, experts: int) -> int:
        """Trial i uses expert i; with fewer experts than trials, they are used in turn."""
        if experts == 0:
            raise InputError(
                f"no expert of {self.env} is bundled; train one with `bcq experts train`"
            )
        return self.trial % experts

    def perform(self, folder: Path) -> None:
        """Collects `batch.hdf5`, and writes the returns of its episodes to `batch.json`."""
        path = folder / directory_name(self) / "batch.hdf5"
        dataset = load(path) if path.exists() else self.collect(path, folder)
        summary = {
            "transitions": len(dataset),
            "complete_episodes": len(dataset.episode_returns),
            "mean_return": mean_return(dataset),
            "largest_reward": float(abs(dataset.rewards).max()),
            "expert_return": self.expert_return(folder),
        }
        write_json(path.with_suffix(".json"), summary)

    def collect(self, path: Path, folder: Path) -> Dataset:
        """The transitions."""
        if isinstance(self.source, OnlineAgent):
            run = Run.open(folder / directory_name(self.source))
            dataset = behaviour_dataset(run, self.recipe, first=self.transitions)
            save(dataset, path)
            return dataset
        return collect_to(path, self.made_by(folder))

    def made_by(self, folder: Path) -> Recipe:
        """The recipe, if a fixed policy collects the batch."""
        if self.recipe == "random":
            return random_batch(self.env, transitions=self.transitions, seed=self.trial)
        make = {"imitation": imitation, "imperfect": imperfect}[self.recipe]
        return make(self.expert(folder), transitions=self.transitions, seed=self.trial)

    def expert(self, folder: Path) -> Expert:
        """The expert of the trial: one of those that were kept, or a bundled one."""
        if isinstance(self.source, Experts):
            number = self.number(self.source.keep)
            return read_expert(
                folder / directory_name(self.source) / f"{self.env}-{number}.safetensors"
            )
        return find(str(self.number(len(bundled(self.env)))), self.env)

    def expert_return(self, folder: Path) -> float | None:
        """The return of the expert without noise, if there is an expert."""
        if self.recipe not in ("imitation", "imperfect"):
            return None
        return float(self.expert(folder).card["mean_return_of_100_fresh_episodes"])


@dataclass(frozen=True)
class Training:
    """An algorithm on a batch."""

    config: AlgorithmConfig
    schedule: Schedule
    batch: Batch
    hold_out: HoldOut | None = None  # episodes that it does not learn from

    @property
    def name(self) -> str:
        """Algorithm, settings that differ from its defaults, batch and seed."""
        usual, batch = type(self.config)(), self.batch
        varied = "".join(
            f"-{key}{value}"
            for key, value in asdict(self.config).items()
            if value != getattr(usual, key)
        )
        return f"{name_of(self.config)}{varied}-{batch.recipe}-{batch.env}-seed{self.schedule.seed}"

    @property
    def needs(self) -> Sequence[Job]:
        """The batch."""
        return (self.batch,)

    @property
    def length(self) -> int:
        """Its updates."""
        return self.schedule.steps

    def as_json(self) -> Row:
        """Every setting. What is not set is left out: older fingerprints stay the same."""
        return {
            "kind": "Training",
            "algorithm": name_of(self.config),
            "settings": asdict(self.config),
            "schedule": asdict(self.schedule),
            "batch": self.batch.as_json(),
            **({} if self.hold_out is None else {"hold_out": asdict(self.hold_out)}),
        }

    def perform(self, folder: Path) -> None:
        """Trains, and compares the last policy and critics with the data in `measures.json`."""
        dataset = load(folder / directory_name(self.batch) / "batch.hdf5")
        directory = folder / directory_name(self)
        run = train_run(
            directory,
            self.config,
            self.schedule,
            dataset,
            scaling="none",
            hold_out=self.hold_out,
            resume=True,
        )
        measures = final_measures(run.policy(), dataset, seed=self.schedule.seed)
        write_json(directory / "measures.json", measures)


@dataclass(frozen=True)
class Theory:
    """Every statement of Section 4.1 on random MDPs, and the kernel counterexample."""

    seed: int = 0
    needs: ClassVar[Sequence[Job]] = ()
    name: ClassVar[str] = "theory"
    length: ClassVar[int] = 1

    def as_json(self) -> Row:
        """Its seed and the version of the checks. A new version makes the job run again."""
        return {"kind": "Theory", "seed": self.seed, "checks": 2}

    def perform(self, folder: Path) -> None:
        """Writes the largest violation of each statement to `theory.json`."""
        figure_6 = [counterexample(discount) for discount in DISCOUNTS]
        found = {
            "statements": [
                {
                    "name": statement.name,
                    "says": statement.says,
                    "cases": statement.cases,
                    "worst": largest(*statement.violations(self.seed)),
                    "tolerance": statement.tolerance,
                }
                for statement in STATEMENTS
            ],
            "kernel_fails": all(one.kernel_fails for one in figure_6),
            "kernel_values_off_by": largest(*(one.kernel_values_off_by for one in figure_6)),
            "bcql_is_optimal": all(one.bcql_is_optimal for one in figure_6),
            "bcql_values_off_by": largest(*(one.bcql_values_off_by for one in figure_6)),
        }
        path = folder / directory_name(self) / "theory.json"
        write_json(path, found)
