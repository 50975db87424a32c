"""Everything the numbers of a run depend on: typed in memory, config.json on disk."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from bcq.algorithms import ALGORITHMS, name_of
from bcq.algorithms.learning import AlgorithmConfig
from bcq.data.bounds import TaskSpec
from bcq.data.columns import Provenance
from bcq.data.dataset import Dataset
from bcq.data.splits import HoldOut
from bcq.runs.origin import Origin
from bcq.runs.schedules import BehaviourSchedule, Schedule
from bcq.system.errors import InputError
from bcq.system.files import Row, read_json

FORMAT = 1
NOTHING = type(None)
# What config.json must contain, and of which type; a part comes before what is in it.
REQUIRED: dict[str, Any] = {
    **{"algorithm": str, "settings": dict, "schedule": dict, "dataset": dict, "task": dict},
    **{"schedule.steps": int, "schedule.seed": int, "schedule.env": (str, NOTHING)},
    **{"dataset.environment": (str, NOTHING), "versions": dict, "versions.bcq": str},
    **{"commit": (str, NOTHING), "device": str, "threads": (int, NOTHING)},
}
# The same for a run that learns from a logged batch.
REQUIRED_OF_BATCH: dict[str, Any] = {
    **{"dataset.fingerprint": str, "dataset.transitions": int, "dataset.episodes": int},
    "dataset.mean_return": (float, int, NOTHING),
}


@dataclass(frozen=True, kw_only=True)
class LoggedBatch:
    """The batch that an offline run learns from."""

    fingerprint: str
    transitions: int
    episodes: int
    mean_return: float | None  # of its complete episodes, if there are any
    provenance: Provenance
    hold_out: HoldOut | None = None  # episodes of it that the run does not learn from

    @classmethod
    def of(cls, dataset: Dataset, hold_out: HoldOut | None = None) -> "LoggedBatch":
        """The description of a batch."""
        return cls(
            hold_out=hold_out,
            fingerprint=dataset.fingerprint,
            transitions=len(dataset),
            episodes=len(dataset.episodes),
            mean_return=mean_return(dataset),
            provenance=dataset.provenance,
        )

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "LoggedBatch":
        """The inverse of `as_json`."""
        parts = ("provenance", "hold_out")
        own = {name: content[name] for name in cls.__dataclass_fields__ if name not in parts}
        rest = {name: value for name, value in content.items() if name not in own}
        hold_out = HoldOut(**rest.pop("hold_out")) if "hold_out" in rest else None
        return cls(**own, provenance=Provenance(**rest), hold_out=hold_out)

    def as_json(self) -> Row:
        """One flat object."""
        own = asdict(self)
        provenance, hold_out = own.pop("provenance"), own.pop("hold_out")
        return {**own, **provenance, **({} if hold_out is None else {"hold_out": hold_out})}

    @property
    def environment(self) -> str | None:
        """The environment that the data comes from, if it is known."""
        return self.provenance.environment


@dataclass(frozen=True)
class OwnExperience:
    """The transitions that an agent collects itself, learning online."""

    environment: str | None

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "OwnExperience":
        """The inverse of `as_json`."""
        return cls(content["environment"])

    def as_json(self) -> Row:
        """The form in config.json."""
        return {"recipe": "online", "environment": self.environment}


class Continuation(NamedTuple):
    """Where a run was resumed with other versions, another device or other threads."""

    step: int
    origin: Origin

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "Continuation":
        """The inverse of `as_json`."""
        return cls(content["step"], Origin.from_json(content))

    def as_json(self) -> Row:
        """One flat object."""
        return {"step": self.step, **asdict(self.origin)}


@dataclass(frozen=True, kw_only=True)
class RunConfiguration:
    """Everything that the numbers of a run depend on."""

    algorithm: AlgorithmConfig
    schedule: Schedule | BehaviourSchedule  # offline | online
    dataset: LoggedBatch | OwnExperience  # offline | online
    task: TaskSpec
    origin: Origin
    continuations: tuple[Continuation, ...] = ()

    @property
    def algorithm_name(self) -> str:
        """The name of the algorithm, as on the command line."""
        return name_of(self.algorithm)

    @property
    def environment(self) -> str | None:
        """The environment of the evaluations, or else of the data, if one is known."""
        return self.schedule.env or self.dataset.environment

    def as_json(self) -> Row:
        """The content of config.json."""
        content = {
            "format": FORMAT,
            "algorithm": self.algorithm_name,
            "settings": asdict(self.algorithm),
            "schedule": asdict(self.schedule),
            "dataset": self.dataset.as_json(),
            "task": self.task.as_json(),
            **asdict(self.origin),
        }
        if self.continuations:
            content["continuations"] = [each.as_json() for each in self.continuations]
        plain: Row = json.loads(json.dumps(content))  # tuples become lists
        return plain


def read_configuration(path: Path) -> RunConfiguration:
    """The inverse of `as_json`, from a file; anything else is refused in one line."""
    content = read_json(path)
    if content.get("format") != FORMAT:
        raise InputError(f"{path}: does not have the format of this version ({FORMAT})")
    require(content, REQUIRED, path)
    offline = "fingerprint" in content["dataset"]
    if offline:
        require(content, REQUIRED_OF_BATCH, path)
    try:
        task = TaskSpec.from_json(content["task"])
        schedule = (Schedule if offline else BehaviourSchedule)(**content["schedule"])
        dataset = (LoggedBatch if offline else OwnExperience).from_json(content["dataset"])
        continuations = tuple(map(Continuation.from_json, content.get("continuations", [])))
    except (KeyError, TypeError, ValueError, InputError) as error:
        raise InputError(f"{path}: is damaged ({error})") from error
    return RunConfiguration(
        algorithm=algorithm_of(content["algorithm"], content["settings"], path),
        schedule=schedule,
        dataset=dataset,
        task=task,
        origin=Origin.from_json(content),
        continuations=continuations,
    )


def require(content: Row, places: Mapping[str, Any], path: Path) -> None:
    """Refuses content that lacks one of these places, or has something else there."""
    for place, kinds in places.items():
        value: Any = content
        for key in place.split("."):
            if key not in value:
                raise InputError(f"{path}: is damaged ({place} is missing)")
            value = value[key]
        if not isinstance(value, kinds):
            raise InputError(f"{path}: is damaged ({place} is {value!r:.50})")


def algorithm_of(name: str, settings: Row, path: Path) -> AlgorithmConfig:
    """The settings of an algorithm from JSON, where tuples are lists."""
    try:
        return ALGORITHMS[name](
            **{k: tuple(v) if isinstance(v, list) else v for k, v in settings.items()}
        )
    except (KeyError, TypeError, InputError) as error:
        raise InputError(
            f"{path}: algorithm {name!r} with these settings is unknown to this version: {error}"
        ) from error


def mean_return(dataset: Dataset) -> float | None:
    """The mean return of the complete episodes of a batch, if there are any."""
    return float(dataset.episode_returns.mean()) if len(dataset.episode_returns) else None
