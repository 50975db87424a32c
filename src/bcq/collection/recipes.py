"""The batches of the paper (Sections 3.1 and 5, supplement D.3 and F)."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, Protocol

import numpy as np

from bcq.algorithms.learning import check_settings
from bcq.collection.agents import config_for
from bcq.collection.behaviour import behaviour_dataset, train_behaviour
from bcq.collection.buffer import RowFile, as_dataset, as_rows, row_type
from bcq.collection.experts import Expert
from bcq.collection.noise import perturbed, require_noise, uniform
from bcq.data.bounds import ActionBounds
from bcq.data.columns import Floats, Provenance
from bcq.data.dataset import Dataset
from bcq.data.saving import require_new, save
from bcq.runs.schedules import BehaviourSchedule
from bcq.simulation.environments import Environment, make, task_of
from bcq.simulation.rollouts import RowNumbers, Step, lockstep
from bcq.system import interruption
from bcq.system.errors import InputError, InterruptionError, require_seed
from bcq.system.files import locked, make_directory, read_json, write_json
from bcq.system.progress import Progress
from bcq.system.seeds import Role, derive, exploration, reset_seed

WAVE = 10  # episodes that are played together


class Wave(NamedTuple):
    """Episodes that are played together, and their sources of random numbers."""

    seed: int
    generators: Sequence[np.random.Generator]  # one per episode


class FixedBehaviour(Protocol):
    """A behaviour that does not learn while it collects a batch."""

    @property
    def description(self) -> str:
        """A description, for the attributes of the batch."""
        ...

    def act(self, observations: Floats, rows: RowNumbers, time: int, wave: Wave) -> Floats:
        """One action per row; row i may draw from generator i of the wave."""
        ...


@dataclass(frozen=True)
class UniformlyRandom:
    """Uniformly random actions (supplement D.3)."""

    bounds: ActionBounds
    description: str = "uniform"

    def act(self, observations: Floats, rows: RowNumbers, time: int, wave: Wave) -> Floats:
        """Actions that do not depend on the observations."""
        del observations, time
        return np.array([uniform(self.bounds, wave.generators[row]) for row in rows], np.float32)


@dataclass(frozen=True)
class Demonstrator:
    """An expert, as it is (Batch 3) or with two kinds of noise (imperfect demonstrations)."""

    expert: Expert
    noise: float = 0.0  # standard deviation, in half-widths; probability, if actions are choices
    random_probability: float = 0.0  # of a uniformly random action instead

    def __post_init__(self) -> None:
        check_settings(self, not_negative=("noise",), fractions=("random_probability",))
        require_noise(self.noise, self.expert.policy.task.bounds)

    @property
    def description(self) -> str:
        """The expert and its noise."""
        return (
            f"{self.expert.name}, random with probability {self.random_probability:g}, "
            f"otherwise noise {self.noise:g}"
        )

    def act(self, observations: Floats, rows: RowNumbers, time: int, wave: Wave) -> Floats:
        """The expert's action with noise, or a random one."""
        policy = self.expert.policy
        bounds = policy.task.bounds
        actions = policy.act(
            observations, seed=wave.seed, step=time, rows=rows, capacity=len(wave.generators)
        )
        for i, row in enumerate(rows.tolist()):
            generator = wave.generators[row]
            if generator.random() < self.random_probability:
                actions[i] = uniform(bounds, generator)
            else:
                actions[i] = perturbed(actions[i], self.noise, bounds, generator)
        return actions


@dataclass(frozen=True)
class Recipe:
    """Everything that the numbers of a batch of a fixed behaviour depend on."""

    name: str
    environment: str
    behaviour: FixedBehaviour
    transitions: int
    seed: int

    def __post_init__(self) -> None:
        check_settings(self, at_least_one=("transitions",))
        require_seed(self.seed)

    def settings(self) -> dict[str, Any]:
        """The form it has in a file."""
        return {
            "recipe": self.name,
            "environment": self.environment,
            "behaviour": self.behaviour.description,
            "transitions": self.transitions,
            "seed": self.seed,
            "version": version("bcq"),
        }


def random_batch(environment: str, *, transitions: int = 5_000, seed: int = 0) -> Recipe:
    """Uniformly random actions (supplement D.3)."""
    behaviour = UniformlyRandom(task_of(make(environment)).bounds)
    return Recipe("random", environment, behaviour, transitions, seed)


def imitation(expert: Expert, *, transitions: int = 1_000_000, seed: int = 0) -> Recipe:
    """An expert, without noise (Batch 3)."""
    return Recipe("imitation", expert.environment, Demonstrator(expert), transitions, seed)


def imperfect(
    expert: Expert,
    *,
    transitions: int = 100_000,
    noise: float = 0.3,
    random_probability: float = 0.3,
    seed: int = 0,
) -> Recipe:
    """An expert with two kinds of noise (Section 5, imperfect demonstrations)."""
    behaviour = Demonstrator(expert, noise, random_probability)
    return Recipe("imperfect", expert.environment, behaviour, transitions, seed)


def collect(recipe: Recipe, *, folder: Path | None = None, progress: bool = False) -> Dataset:
    """Plays episodes until there are enough transitions; the last episode may be cut.

    Episode i starts from (seed, i). If a folder is given, an interrupted collection can be
    continued from it, and the batch is the same as without the interruption.
    """
    environments = [make(recipe.environment) for _ in range(WAVE)]
    environments[0].reset(seed=0)
    with collecting_in(folder) as directory:
        log = RowFile(directory / "rows.bin", row_type(environments[0]))
        waves, count = progress_of(directory, recipe)
        log.cut_back(count)
        with Progress("collecting", recipe.transitions, "step", done=count, shown=progress) as bar:
            while count < recipe.transitions:
                left = recipe.transitions - count
                steps = islice(play(environments, recipe, WAVE * waves), left)
                rows = as_rows(counted(steps, left, bar), log.kind)
                log.append(rows)
                log.sync()
                waves, count = waves + 1, count + len(rows)
                note_progress(directory, recipe, waves, count)
                if folder is not None and interruption.requested() and count < recipe.transitions:
                    raise InterruptionError(
                        f"{count:,} of {recipe.transitions:,} transitions are kept in {folder}"
                    )
        rows = log.read()[: recipe.transitions]
    bounds = task_of(environments[0]).bounds
    for environment in environments:
        environment.close()
    provenance = Provenance(
        environment=recipe.environment,
        recipe=recipe.name,
        behaviour=recipe.behaviour.description,
        seed=recipe.seed,
        version=version("bcq"),
    )
    return as_dataset(rows, bounds, provenance, f"{recipe.name} batch of {recipe.environment}")


def play(environments: Sequence[Environment], recipe: Recipe, first: int) -> Iterator[Step]:
    """Plays episodes `first`, `first` + 1, ..., one per environment."""
    own = derive(recipe.seed, Role.BATCH)
    numbers = range(first, first + len(environments))
    seeds = [reset_seed(own, number) for number in numbers]
    observations = np.array(
        [env.reset(seed=seed)[0] for env, seed in zip(environments, seeds, strict=True)]
    )
    wave = Wave(seeds[0], [exploration(own, number) for number in numbers])
    return lockstep(environments, observations, partial(recipe.behaviour.act, wave=wave))


def counted(steps: Iterator[Step], left: int, bar: Progress) -> Iterator[Step]:
    """The same steps, counted on the progress bar, at most as many rows as are left to collect."""
    for step in steps:
        shown = min(len(step.episodes), left)
        bar.advance(shown)
        left -= shown
        yield step


@contextmanager
def collecting_in(folder: Path | None) -> Iterator[Path]:
    """The folder for the rows; if none is given, a temporary one."""
    if folder is None:
        with TemporaryDirectory() as temporary:
            yield Path(temporary)
    else:
        make_directory(folder)
        with locked(folder):
            yield folder


def progress_of(directory: Path, recipe: Recipe) -> tuple[int, int]:
    """The number of waves and of rows that are complete."""
    path = directory / "progress.json"
    if not path.exists():
        return 0, 0
    notes = read_json(path)
    for name, value in recipe.settings().items():
        if notes.get(name) != value:
            raise InputError(
                f"{directory}: contains an unfinished collection with {name} = {notes.get(name)}, "
                f"not {value}; finish it with its own settings, or remove the folder"
            )
    return notes["waves"], notes["rows"]


def note_progress(directory: Path, recipe: Recipe, waves: int, rows: int) -> None:
    """Records the number of waves and of rows that are safely on disk."""
    notes = {**recipe.settings(), "waves": waves, "rows": rows}
    write_json(directory / "progress.json", notes)


def collect_random(environment: str, *, transitions: int = 5_000, seed: int = 0) -> Dataset:
    """Uniformly random actions (supplement D.3), in memory."""
    return collect(random_batch(environment, transitions=transitions, seed=seed))


def collect_to(path: Path, recipe: Recipe) -> Dataset:
    """Collects into a file. If interrupted, the same call continues from a folder beside it."""
    require_new(path)
    folder = path.with_name(path.name + ".partial")
    dataset = collect(recipe, folder=folder, progress=True)
    for torn in path.parent.glob(f".{path.name}.*.tmp"):  # of a process killed while saving
        torn.unlink()
    save(dataset, path)
    for name in ("progress.json", "rows.bin", ".lock", ".*.tmp"):  # safe to interrupt
        for leftover in folder.glob(name):
            leftover.unlink()
    folder.rmdir()
    return dataset


def collect_behaviour_to(path: Path, recipe: str, schedule: BehaviourSchedule) -> Dataset:
    """All transitions of an agent that learns, in order (Batches 1 and 2).

    Its run directory stays beside the file: Figure 1 also shows its returns and values.
    """
    require_new(path)
    config, directory = config_for(schedule.env), path.with_suffix(".behaviour")
    run = train_behaviour(directory, config, schedule, resume=True)
    dataset = behaviour_dataset(run, recipe)
    save(dataset, path)
    return dataset
