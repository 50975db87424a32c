"""Policies judged by logged episodes, beside their true values in the simulator."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np

from bcq.collection.recipes import Recipe, Wave
from bcq.data.bounds import TaskSpec
from bcq.data.columns import Floats
from bcq.data.dataset import Dataset
from bcq.experiments.jobs import Job, directory_name
from bcq.experiments.kinds import Training
from bcq.judging.candidates import discount_of, judge
from bcq.judging.fitting import FitSettings
from bcq.judging.report import numbers
from bcq.runs.directory import Run
from bcq.simulation.batches import load
from bcq.simulation.rollouts import Act, RowNumbers
from bcq.simulation.true_values import values_from_start
from bcq.system.files import Row, read_json, write_json
from bcq.system.seeds import Role, derive, exploration
from bcq.training.policy import Policy

EPISODES = 50  # that a true value is the mean of
VERSION = 3  # raised when the judge gives different numbers for the same settings
JUDGED = "judged.json"


@dataclass(frozen=True)
class Judging:
    """Checkpoints of a training, judged by the episodes it kept aside and by the simulator."""

    training: Training
    checkpoints: tuple[int, ...]

    @property
    def name(self) -> str:
        """That of the training."""
        return f"judging-{self.training.name}"

    @property
    def needs(self) -> Sequence[Job]:
        """The training."""
        return (self.training,)

    @property
    def length(self) -> int:
        """The number of checkpoints."""
        return len(self.checkpoints)

    def as_json(self) -> Row:
        """The settings of the training and of the judge, and which checkpoints are judged."""
        return {
            "kind": "Judging",
            "training": self.training.as_json(),
            "checkpoints": list(self.checkpoints),
            "judge": {**asdict(FitSettings()), "episodes": EPISODES, "version": VERSION},
        }

    def perform(self, folder: Path) -> None:
        """Writes what was found about each checkpoint to `judged.json`."""
        training, directory = self.training, folder / directory_name(self)
        env, seed = training.batch.env, training.schedule.seed
        dataset = load(folder / directory_name(training.batch) / "batch.hdf5")
        run = Run.open(folder / directory_name(training))
        kept = {one["step"] for one in run.checkpoints()}  # a run that diverged has not all
        wanted = [step for step in self.checkpoints if step in kept]
        found = judged_in(directory) if (directory / JUDGED).exists() else []
        discount = discount_of([run])
        recipe = training.batch.made_by(folder)
        behaviour = behaviour_value(recipe, dataset.task, discount=discount, seed=seed)
        aside = held_out(training, dataset)
        for step in wanted[len(found) :]:
            judged = policy_judged(run.policy(step), aside, env, discount=discount, seed=seed)
            found.append({"step": step, "behaviour": behaviour, **judged})
            write_json(directory / JUDGED, {"checkpoints": found})


def judged_in(directory: Path) -> list[Row]:
    """What was found about the checkpoints so far."""
    return list(read_json(directory / JUDGED)["checkpoints"])


def held_out(training: Training, dataset: Dataset) -> Dataset:
    """The episodes that a training kept aside."""
    if training.hold_out is None:
        raise ValueError(f"{training.name} kept no episodes aside")
    return training.hold_out.divide(dataset)[1]


def policy_judged(
    policy: Policy, aside: Dataset, environment: str, *, discount: float, seed: int
) -> Row:
    """The judgement on a policy by these episodes, and its true value."""
    own = derive(seed, Role.EVALUATION)

    def act(observations: Floats, rows: RowNumbers, time: int) -> Floats:
        return policy.act(observations, seed=own, step=time, rows=rows, capacity=EPISODES)

    return {
        "truth": true_value(environment, policy.task, act, discount, own),
        "episodes": len(aside.episodes),
        "transitions": len(aside),
        "judgement": numbers(judge(policy, aside, discount=discount, seed=seed)),
    }


def behaviour_value(recipe: Recipe, task: TaskSpec, *, discount: float, seed: int) -> Row:
    """The true value of the behaviour that collected a batch."""
    own = derive(seed, Role.EVALUATION)
    wave = Wave(own, [exploration(own, number) for number in range(EPISODES)])
    act = partial(recipe.behaviour.act, wave=wave)
    return true_value(recipe.environment, task, act, discount, own)


def true_value(environment: str, task: TaskSpec, act: Act, discount: float, seed: int) -> Row:
    """The mean over new episodes, with its standard error."""
    values = values_from_start(
        environment, task, act, discount=discount, episodes=EPISODES, seed=seed
    )
    error = values.std(ddof=1) / np.sqrt(EPISODES)
    return {"mean": float(values.mean()), "standard_error": float(error)}
