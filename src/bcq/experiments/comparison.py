"""Runs side by side: those that differ only in their seed are one setting.

Settings are compared within one batch, by the returns of their evaluations, or, where there is no
environment, by what `bcq judge` finds with the episodes that the runs kept aside.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from scipy import stats

from bcq.experiments.file_jobs import judgements_in, words
from bcq.experiments.records import LAST
from bcq.experiments.statistics import LEVEL, Best, Centre, best_of
from bcq.runs.configuration import LoggedBatch, RunConfiguration
from bcq.runs.directory import Run, returns_by_step
from bcq.system.errors import InputError
from bcq.system.files import Row, read_json

JudgeRun = Callable[[Run], Row]


@dataclass(frozen=True)
class Measured:
    """A run, and what it is ranked by."""

    run: Run
    batch: LoggedBatch
    source: str  # what the batch is called
    evaluations: Mapping[int, list[float]]  # returns by update
    diverged: Row | None
    judged: Row | None  # discount, and the judgement if there was a checkpoint

    @property
    def config(self) -> RunConfiguration:
        """Its settings."""
        return self.run.config

    @property
    def is_finished(self) -> bool:
        """Whether it made all its updates, or ended before because a number was not finite."""
        done = self.run.checkpoint_step() == self.config.schedule.steps
        return done or self.diverged is not None

    @property
    def score(self) -> float | None:
        """What the run is ranked by: the higher, the better.

        The mean return of the last three evaluations (of a diverged run, of those before), or the
        value that the judge gives to its policy. The evaluation before the first update counts
        only if there is no other.
        """
        if not self.is_finished:
            return None
        if self.evaluations:
            means = [np.mean(returns) for returns in self.evaluations.values()]
            return float(np.mean((means[1:] or means)[-LAST:]))
        return None if self.judgement is None else float(self.judgement["policy"]["value"])

    @property
    def judgement(self) -> Row | None:
        """What the judge found, if it counts: evaluations are better evidence."""
        return None if self.judged is None or self.evaluations else self.judged.get("judgement")

    def as_json(self, label: str) -> Row:
        """Every number."""
        stored = self.config.as_json()
        return {
            "run": str(self.run.directory),
            "setting": label,
            "seed": self.config.schedule.seed,
            "score": self.score,
            "finished": self.is_finished,
            "evaluations": [[step, returns] for step, returns in self.evaluations.items()],
            "judged": self.judged,
            "divergence": self.diverged,
            **{part: stored[part] for part in ("algorithm", "settings", "schedule", "dataset")},
            **{part: stored[part] for part in ("commit", "threads", "versions")},
        }


@dataclass(frozen=True)
class Setting:
    """Runs that differ only in their seed."""

    label: str
    runs: Sequence[Measured]  # by seed

    @property
    def counted(self) -> list[Measured]:
        """The runs that have a score."""
        return [one for one in self.runs if one.score is not None]

    @property
    def scores(self) -> list[float]:
        """One number for each run that counts."""
        return [score for one in self.runs if (score := one.score) is not None]

    @cached_property
    def centre(self) -> Centre:
        """Their interquartile mean.

        All runs are judged by the same episodes: that error does not become smaller with seeds.
        """
        policies = [one.judgement["policy"] for one in self.counted if one.judgement is not None]
        widths = [(one["high"] - one["low"]) / 2 for one in policies]
        reach = float(stats.norm.ppf((1 + LEVEL) / 2))
        return Centre.of(self.scores, float(np.mean(widths)) / reach if widths else 0.0)

    @property
    def diverged(self) -> int:
        """How many of its runs diverged."""
        return sum(one.diverged is not None for one in self.runs)

    @property
    def objected(self) -> int:
        """How many of its policies the judge objects to, whatever their value."""
        return sum(bool(one.judgement and one.judgement["objections"]) for one in self.counted)


@dataclass(frozen=True)
class Section:
    """The settings that learned from one batch, in one environment or judged alike."""

    env: str | None
    batch: LoggedBatch
    source: str
    discount: float | None  # of the judge
    settings: Sequence[Setting]

    @cached_property
    def ranked(self) -> list[Setting]:
        """The settings of which a run counts, the best first."""
        counted = [one for one in self.settings if one.scores]
        return sorted(counted, key=lambda one: (not one.objected, one.centre.value), reverse=True)

    @property
    def waiting(self) -> int:
        """The number of runs without a score."""
        return sum(len(one.runs) - len(one.scores) for one in self.settings)

    @property
    def eligible(self) -> list[Setting]:
        """The ranked settings that the judge does not object to; they are the first ones."""
        return [one for one in self.ranked if not one.objected]

    @cached_property
    def best(self) -> Best | None:
        """The best of the eligible settings, if there is a choice among them."""
        fit = [one.centre for one in self.eligible]
        return best_of(fit) if len(fit) > 1 else None


def find_runs(paths: Sequence[Path]) -> list[Run]:
    """The offline runs at these paths: run directories, or folders of run directories."""
    found: dict[Path, Run] = {}
    for path in paths:
        if (path / "config.json").exists():
            run = Run.open(path)
            if not isinstance(run.config.dataset, LoggedBatch):
                raise InputError(f"{path}: learned online, not from a batch")
            found[path.resolve()] = run
            continue
        places = ("*", "jobs/*", "jobs/*/generation-*/*")  # the last: of jobs that still run
        inside = [each for place in places for each in path.glob(f"{place}/config.json")]
        runs = [Run.open(each.parent) for each in sorted(inside)]
        offline = [run for run in runs if isinstance(run.config.dataset, LoggedBatch)]
        if not offline:
            raise InputError(
                f"{path}: contains no run of a batch; give run directories, or a folder of them"
                if path.exists()
                else f"{path}: no such folder"
            )
        found |= {run.directory.resolve(): run for run in offline}
    return list(found.values())


def measure(runs: Sequence[Run], judge_run: JudgeRun | None = None) -> list[Measured]:
    """What is known about each run; `judge_run` judges those that nothing else ranks."""
    judgements = {folder: judgements_in(folder) for folder in {r.directory.parent for r in runs}}
    found = []
    for run in runs:
        batch = run.config.dataset
        assert isinstance(batch, LoggedBatch)  # `find_runs` gives no others
        known = judgements[run.directory.parent].get(run.directory.name)
        one = Measured(
            run, batch, source_of(run, batch), returns_by_step(run), run.divergence(), known
        )
        unranked = not one.evaluations and known is None and one.is_finished
        if unranked and judge_run is not None and run.checkpoint_step() is not None:
            one = replace(one, judged=judge_run(run))
        found.append(one)
    return found


def source_of(run: Run, batch: LoggedBatch) -> str:
    """The file of a sweep; a run of `bcq train` knows only the content of its batch."""
    job = run.directory / "job.json"
    told = read_json(job) if job.exists() else {}
    return str(told["data"]["source"]) if "data" in told else f"batch {batch.fingerprint[:8]}"


def compare(measured: Sequence[Measured]) -> list[Section]:
    """Sections of settings, each setting with its runs."""
    parts: dict[Any, list[Measured]] = defaultdict(list)
    for one in measured:
        parts[one.config.schedule.env, one.batch.fingerprint, one.source].append(one)
    sections = []
    for (env, _, source), runs in parts.items():
        discounts = sorted({one.judged["discount"] for one in runs if one.judged and not env})
        if len(discounts) > 1:
            raise InputError(
                f"{source}: its runs were judged with different discounts "
                f"({', '.join(map(str, discounts))}); compare them separately"
            )
        discount = discounts[0] if discounts else None
        sections.append(Section(env, runs[0].batch, source, discount, settings_of(runs)))
    if not any(section.ranked for section in sections):
        refuse(measured)
    return sections


def refuse(measured: Sequence[Measured]) -> NoReturn:
    """Says why no run has a score."""
    left = [one for one in measured if not one.is_finished]
    if left:
        raise InputError(
            f"{left[0].run.directory}: is not finished, nor is any other of these {len(measured)} "
            "runs; continue them first"
        )
    one = measured[0]
    if one.batch.hold_out is not None:
        raise InputError(
            f"{one.run.directory}: has no evaluations and was not judged yet",
            option="compared_data",
        )
    raise InputError(
        f"{one.run.directory}: cannot be ranked: it has no evaluations and kept no episodes aside",
        option="ranking",
    )


def settings_of(runs: Sequence[Measured]) -> list[Setting]:
    """Groups runs that differ only in their seed, and labels them by what varies."""
    groups: dict[str, list[Measured]] = defaultdict(list)
    for one in runs:
        groups[json.dumps(facts(one), sort_keys=True)].append(one)
    told = [facts(group[0]) for group in groups.values()]
    settings = []
    for group in groups.values():
        group.sort(key=lambda one: one.config.schedule.seed)
        for one, other in pairwise(group):
            if one.config.schedule.seed == other.config.schedule.seed:
                raise InputError(
                    f"{one.run.directory} and {other.run.directory} have the same settings and "
                    "seed: they are one run; leave one of them out"
                )
        settings.append(Setting(label_of(facts(group[0]), told), group))
    return settings


def facts(one: Measured) -> Row:
    """Everything about a run but its seed."""
    stored = one.config.as_json()
    schedule = {name: value for name, value in stored["schedule"].items() if name != "seed"}
    return {
        "algorithm": stored["algorithm"],
        "settings": stored["settings"],
        "rest": {
            **schedule,
            "hold_out": None if one.batch.hold_out is None else asdict(one.batch.hold_out),
            "task": stored["task"],
        },
    }


def label_of(own: Row, told: Sequence[Row]) -> str:
    """The algorithm, and what differs between settings of it, or between any two runs."""
    alike = [one["settings"] for one in told if one["algorithm"] == own["algorithm"]]
    rest = [one["rest"] for one in told]
    varying = [
        *((name, value) for name, value in own["settings"].items() if varies(name, alike)),
        *((name, value) for name, value in own["rest"].items() if varies(name, rest)),
    ]
    shown = (f"{name}={told_briefly(name, value)}" for name, value in varying)
    return " ".join([own["algorithm"], *shown])


def varies(name: str, told: Sequence[Row]) -> bool:
    """Whether a value is not the same everywhere."""
    return any(one.get(name) != told[0].get(name) for one in told)


def told_briefly(name: str, value: Any) -> str:
    """A value for people."""
    if name == "task":
        return "scaled" if "scaling" in value else "unscaled"
    if name == "hold_out" and value is not None:
        return f"{value['share']:g}"
    return words(value)
