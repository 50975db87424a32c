"""Jobs on users' files: the file itself, an algorithm on it, and the judgement on its policy.

A file is read once and stored in the folder of the jobs. They read only that copy, on whatever
machine they run, and their results can be compared later without the file.
"""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import ClassVar

from bcq.algorithms import name_of
from bcq.algorithms.learning import AlgorithmConfig
from bcq.data.dataset import Dataset
from bcq.data.opening import Options
from bcq.data.saving import save
from bcq.data.scaling import ScalingChoice
from bcq.data.splits import HoldOut
from bcq.experiments.jobs import Job, directory_name, perform
from bcq.experiments.judged import VERSION
from bcq.judging.candidates import judge
from bcq.judging.fitting import FitSettings
from bcq.judging.report import numbers
from bcq.runs.configuration import LoggedBatch, algorithm_of
from bcq.runs.directory import Run
from bcq.runs.recording import train_run
from bcq.runs.schedules import Schedule
from bcq.simulation.batches import load
from bcq.system import progress
from bcq.system.errors import InputError
from bcq.system.files import Row, make_directory, read_json, write_json
from bcq.training.policy import Policy

BATCH, JUDGED = "batch.hdf5", "judged.json"
LONGEST_NAME = 100  # characters: the name of a folder has at most 255, with its fingerprint


@dataclass(frozen=True)
class LoggedFile:
    """A user's file, as it was read."""

    source: str  # its name, without folder and ending
    content: str  # fingerprint of the batch
    reading: str  # the options that it was read with, as JSON
    needs: ClassVar[Sequence[Job]] = ()
    length: ClassVar[int] = 1

    @classmethod
    def of(cls, source: str, dataset: Dataset, options: Options) -> "LoggedFile":
        """A file that was read with these options."""
        names = [each.name for each in fields(options) if each.name != "bounds_of"]
        told = {name: getattr(options, name) for name in names}
        return cls(source, dataset.fingerprint, json.dumps(told, sort_keys=True))

    @property
    def name(self) -> str:
        """That of the file."""
        return short(f"data-{self.source}")

    def as_json(self) -> Row:
        """What is in it, and how it was read. A file can be moved, but not be renamed."""
        return {
            "kind": "LoggedFile",
            "source": self.source,
            "content": self.content,
            "reading": json.loads(self.reading),
        }

    def store(self, dataset: Dataset, folder: Path) -> None:
        """Puts the batch into the folder, if it is not there yet."""
        path = folder / directory_name(self) / BATCH
        if not path.exists():
            make_directory(path.parent)
            save(dataset, path)
        perform(self, folder)

    def perform(self, folder: Path) -> None:
        """Checks that it is stored, and is what it was."""
        self.read(folder)

    def read(self, folder: Path) -> Dataset:
        """The stored batch."""
        path = folder / directory_name(self) / BATCH
        dataset = load(path)
        if dataset.fingerprint != self.content:
            raise InputError(f"{path}: was changed; remove its folder and sweep again")
        return dataset


@dataclass(frozen=True)
class FileTraining:
    """An algorithm on a user's file."""

    config: AlgorithmConfig
    schedule: Schedule
    data: LoggedFile
    scaling: ScalingChoice
    hold_out: HoldOut | None

    @property
    def name(self) -> str:
        """Algorithm, file, settings that differ from the defaults, and seed."""
        usual = type(self.config)()
        varied = "".join(
            f"-{key}={words(value)}"
            for key, value in asdict(self.config).items()
            if value != getattr(usual, key)
        )
        stem = short(f"{name_of(self.config)}-{self.data.source}{varied}")
        return f"{stem}-seed{self.schedule.seed}"

    @property
    def needs(self) -> Sequence[Job]:
        """The file."""
        return (self.data,)

    @property
    def length(self) -> int:
        """Its updates."""
        return self.schedule.steps

    def as_json(self) -> Row:
        """Every setting."""
        return {
            "kind": "FileTraining",
            "algorithm": name_of(self.config),
            "settings": asdict(self.config),
            "schedule": asdict(self.schedule),
            "data": self.data.as_json(),
            "scaling": self.scaling,
            "hold_out": None if self.hold_out is None else asdict(self.hold_out),
        }

    def perform(self, folder: Path) -> None:
        """Trains, or continues."""
        train_run(
            folder / directory_name(self),
            self.config,
            self.schedule,
            self.data.read(folder),
            scaling=self.scaling,
            hold_out=self.hold_out,
            resume=True,
        )


@dataclass(frozen=True)
class JudgedTraining:
    """The last policy of a training, judged by the episodes that it kept aside."""

    training: FileTraining
    discount: float
    length: ClassVar[int] = 1

    @property
    def name(self) -> str:
        """That of the training."""
        return f"judged-{self.training.name}"

    @property
    def needs(self) -> Sequence[Job]:
        """The training, and the file."""
        return (self.training, self.training.data)

    def as_json(self) -> Row:
        """The settings of the training and of the judge."""
        return {
            "kind": "JudgedTraining",
            "training": self.training.as_json(),
            "discount": self.discount,
            "judge": {**asdict(FitSettings()), "version": VERSION},
        }

    def perform(self, folder: Path) -> None:
        """Writes the judgement to `judged.json`; there is none on a run without a checkpoint."""
        run = Run.open(folder / directory_name(self.training))
        found: Row = {"run": run.directory.name, "discount": self.discount}
        if run.checkpoint_step() is not None:  # it diverged before the first one
            aside = aside_of(self.training.hold_out, self.training.data.read(folder))
            found["judgement"] = judged(run.policy(), aside, self.discount)
        write_json(folder / directory_name(self) / JUDGED, found)


FILE_JOBS = ("LoggedFile", "FileTraining", "JudgedTraining")


def file_job(told: Row) -> LoggedFile | FileTraining | JudgedTraining:
    """The inverse of `as_json`."""
    match told["kind"]:
        case "LoggedFile":
            reading = json.dumps(told["reading"], sort_keys=True)
            return LoggedFile(told["source"], told["content"], reading)
        case "FileTraining":
            data, hold_out = file_job(told["data"]), told["hold_out"]
            assert isinstance(data, LoggedFile)
            return FileTraining(
                algorithm_of(told["algorithm"], told["settings"], Path("job.json")),
                Schedule(**told["schedule"]),
                data,
                told["scaling"],
                None if hold_out is None else HoldOut(**hold_out),
            )
        case _:
            training = file_job(told["training"])
            assert isinstance(training, FileTraining)
            return JudgedTraining(training, told["discount"])


def aside_of(hold_out: HoldOut | None, dataset: Dataset) -> Dataset:
    """The episodes that a run kept aside."""
    if hold_out is None:
        raise InputError("a run has no evaluations and kept no episodes aside", option="ranking")
    return hold_out.divide(dataset)[1]


def judged(policy: Policy, aside: Dataset, discount: float) -> Row:
    """What the judge finds. All policies are judged by the same draws."""
    return numbers(judge(policy, aside, discount=discount, seed=0))


def judge_by(dataset: Dataset, discount: float) -> Callable[[Run], Row]:
    """Judges runs on this batch by the episodes that each kept aside."""

    def judge_run(run: Run) -> Row:
        batch = run.config.dataset
        if not isinstance(batch, LoggedBatch) or batch.fingerprint != dataset.fingerprint:
            raise InputError(f"this is not the batch that {run.directory} was trained on")
        progress.say(f"{run.directory}: judging its policy")
        aside = aside_of(batch.hold_out, dataset)
        return {"discount": discount, "judgement": judged(run.policy(), aside, discount)}

    return judge_run


def judgements_in(folder: Path) -> dict[str, Row]:
    """What was found about the runs in a folder of jobs, by the name of their directories."""
    found = [read_json(path) for path in sorted(folder.glob(f"*/{JUDGED}"))]
    return {one["run"]: one for one in found if "run" in one}


def words(value: object) -> str:
    """A value as in a grid: 0.05, or 256x256."""
    return "x".join(map(str, value)) if isinstance(value, tuple | list) else str(value)


def short(name: str) -> str:
    """A name that a folder can have."""
    return re.sub(r"[^\w.=+-]", "_", name)[:LONGEST_NAME]
