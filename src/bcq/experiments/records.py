"""The measurements of every run, in one small file. Figures and claims use only this file."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from bcq.experiments.jobs import Job, directory_name, fingerprint, is_finished, with_needs
from bcq.experiments.kinds import Batch, Experts, OnlineAgent, Theory, Training
from bcq.runs.directory import Run, returns_by_step
from bcq.runs.value_logs import values_by_step
from bcq.system.errors import InputError
from bcq.system.files import Row, as_json_lines, read_json, require_regular, write_text

Numbers = NDArray[np.float64]
Name = TypeVar("Name", bound=str)
Key = tuple[str | None, str, str]  # fingerprint of the run's job, task, role
LAST = 3  # evaluations that count as final
FORMAT = 3
CANDIDATES = "experts"  # the task of agents that experts are chosen from


@dataclass(frozen=True)
class Record:
    """One run: its settings, and the raw series that it recorded."""

    fingerprint: str | None  # of its job; None: made before records had fingerprints
    experiments: list[str]  # that the run is part of
    task: str  # recipe of the batch that it learned from or collected
    role: str  # learner, agent (collected the batch) or candidate (may become an expert)
    env: str
    algorithm: str
    seed: int  # also the number of the trial
    settings: Row
    schedule: Row
    batch: Row | None  # batch.json: returns of its episodes and of its expert
    evaluations: list[tuple[int, list[float]]]  # step, return of each episode
    estimates: list[tuple[int, float]]  # step, mean Q of a minibatch
    truths: list[Row]  # step, and over the same pairs: mean estimate, mean and std of the truth
    measures: Row  # of the last policy and critics
    divergence: Row | None  # the update at which it diverged, and the last finite estimate
    made: Row  # commit, versions, threads, seconds of updates and acting

    @property
    def key(self) -> Key:
        """Identifies the record, if it has a fingerprint."""
        return self.fingerprint, self.task, self.role

    @property
    def label(self) -> str:
        """The algorithm, and the number of members of an ensemble."""
        if self.role != "learner":
            return "behaviour"
        if self.algorithm == "ensemble":
            return f"ensemble of {self.settings['members']}"
        return self.algorithm

    @property
    def updates(self) -> int:
        """The number of updates that were planned."""
        return int(self.schedule["steps"])

    @property
    def final(self) -> float:
        """The mean return of the last three evaluations; of a diverged run, of those before."""
        return float(np.mean([mean for _, mean in returns(self)[-LAST:]]))

    @property
    def best(self) -> float:
        """The mean return of the best evaluation. It is biased, because it is chosen afterwards."""
        return max(mean for _, mean in returns(self))


def aligned(series: Iterable[Sequence[tuple[int, float]]]) -> tuple[Numbers, Numbers]:
    """Interpolates the series of (step, value) of several trials at the steps of the first trial.

    Returns the steps, and one row per trial. The steps of two trials can differ: a concurrent run
    ends with the last episode of its batch, and an agent is evaluated at the end of an episode.
    """
    curves = [np.array(each, float).reshape(-1, 2) for each in series]
    steps = curves[0][:, 0]
    return steps, np.array([np.interp(steps, *curve.T) for curve in curves])


def returns(one: Record) -> list[tuple[int, float]]:
    """Step and mean return of each evaluation."""
    return [(step, float(np.mean(episodes))) for step, episodes in one.evaluations]


def gather(
    experiments: Mapping[Name, Sequence[Job]], folder: Path, recorded: Sequence[Record] = ()
) -> list[Record]:
    """A record of every run in each of its roles: from its folder, or an earlier record."""
    before = {one.key: one for one in recorded}
    roles: dict[Key, tuple[Training | OnlineAgent, Batch | None, list[str]]] = {}
    for experiment, jobs in experiments.items():
        for job in with_needs(jobs):
            for run, task, role in roles_of(job):
                batch = job.batch if isinstance(job, Training) else None
                key: Key = (fingerprint(run), task, role)
                names = roles.setdefault(key, (run, batch, []))[2]
                if experiment not in names:
                    names.append(experiment)
    found = []
    for (told, task, role), (run, batch, names) in roles.items():
        if is_finished(run, folder):
            found.append(record(run, folder, batch, experiments=names, task=task, role=role))
        elif (told, task, role) in before:
            found.append(replace(before[told, task, role], experiments=names))
    return found


def unrecorded(jobs: Sequence[Job], recorded: Sequence[Record], theory: Row | None) -> list[Job]:
    """The runs without a record in one of their roles, and the theory if its result is missing.

    The jobs that they need are not included: what only recorded runs need is not run again.
    """
    keys = {one.key for one in recorded}
    checked = None if theory is None else theory.get("fingerprint")
    found: list[Job] = []
    for job in jobs:
        for run, task, role in roles_of(job):
            if (fingerprint(run), task, role) not in keys:
                found.append(run)
        if isinstance(job, Theory) and fingerprint(job) != checked:
            found.append(job)
    return found


def roles_of(job: Job) -> list[tuple[Training | OnlineAgent, str, str]]:
    """The runs that get a role from a job, each with its task and role.

    An agent gets its roles from the jobs that need it: it can collect a batch and be a candidate.
    """
    match job:
        case Training() if job.hold_out is None:  # the others are recorded with their judgements
            return [(job, job.batch.recipe, "learner")]
        case Batch() if isinstance(job.source, OnlineAgent):
            return [(job.source, job.recipe, "agent")]
        case Experts():
            return [(agent, CANDIDATES, "candidate") for agent in job.needs]
    return []


def record(job: Training | OnlineAgent, folder: Path, batch: Batch | None, **known: Any) -> Record:
    """The record of one run directory."""
    directory = folder / directory_name(job)
    run = Run.open(directory)
    stored = run.config.as_json()
    parts = ("seconds", "acting", "learning")
    seconds = sum(row.get(part, 0) for row in run.read("timing.jsonl") for part in parts)
    truths = [
        {
            "step": step,
            "pairs": len(values.rows),
            "estimate": rounded(values.estimates.mean()),
            "truth": rounded(values.truths.mean()),
            "truth_std": rounded(values.truths.std()),
            "truth_to_time_limit": rounded(values.limited.mean()),
        }
        for step, values in values_by_step(run).items()
    ]
    measures = directory / "measures.json"
    return Record(
        **known,
        fingerprint=fingerprint(job),
        env=stored["schedule"]["env"],
        algorithm=stored["algorithm"],
        seed=stored["schedule"]["seed"],
        settings=stored["settings"],
        schedule=stored["schedule"],
        batch=None if batch is None else read_json(folder / directory_name(batch) / "batch.json"),
        evaluations=[
            (step, [rounded(value) for value in episodes])
            for step, episodes in returns_by_step(run).items()
        ],
        estimates=[
            (row["step"], rounded(row["value_estimate"]))
            for row in run.read("metrics.jsonl")
            if "value_estimate" in row
        ],
        truths=truths,
        measures=read_json(measures) if measures.exists() else {},
        divergence=run.divergence(),
        made={
            "seconds": round(seconds, 1),
            **{key: stored[key] for key in ("commit", "threads", "versions")},
        },
    )


def rounded(value: Any) -> float:
    """Rounds to six digits, which keeps the file small."""
    return float(f"{float(value):.6g}")


def write_records(records: Iterable[Record], path: Path) -> None:
    """One run per line."""
    rows = [{"format": FORMAT, **asdict(one)} for one in records]
    write_text(path, as_json_lines(sorted(rows, key=lambda row: json.dumps(row["schedule"]))))


def read_records(path: Path) -> list[Record]:
    """The inverse. Of two records with the same key, the later one counts.

    So the records of two machines can be put into one file.
    """
    require_regular(path)
    try:
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        records = [from_row(row, path) for row in rows]
        each = {one.key if one.fingerprint else n: one for n, one in enumerate(records)}
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(f"{path}: is not a file of records: {error}") from error
    return list(each.values())


def from_row(row: Row, path: Path) -> Record:
    """The record of one line."""
    match row.pop("format"):
        case 2:  # without fingerprints
            row["fingerprint"] = None
        case version if version != FORMAT:
            raise InputError(f"{path}: does not have the format of this version ({FORMAT})")
    row["evaluations"] = [(step, episodes) for step, episodes in row["evaluations"]]
    row["estimates"] = [(step, value) for step, value in row["estimates"]]
    return Record(**row)


def theory_of(jobs: Sequence[Job], folder: Path) -> Row | None:
    """The result of the theory's job, if it is finished, with the job's fingerprint."""
    for job in jobs:
        if isinstance(job, Theory) and is_finished(job, folder):
            found = read_json(folder / directory_name(job) / "theory.json")
            return {"fingerprint": fingerprint(job), **found}
    return None
