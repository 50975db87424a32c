"""Jobs as their files tell them, and how far each has come."""

from contextlib import suppress
from pathlib import Path
from typing import Any

from bcq.algorithms import ALGORITHMS
from bcq.data.splits import HoldOut
from bcq.experiments.file_jobs import FILE_JOBS, file_job
from bcq.experiments.jobs import Job, directory_name
from bcq.experiments.judged import Judging, judged_in
from bcq.experiments.kinds import Batch, Experts, OnlineAgent, Theory, Training
from bcq.experiments.storage import workplace
from bcq.runs.directory import last_step
from bcq.runs.schedules import BehaviourSchedule, Schedule
from bcq.system.errors import InputError
from bcq.system.files import Row, read_json


def from_json(told: Row) -> Any:
    """The inverse of `as_json`."""
    return file_job(told) if told["kind"] in FILE_JOBS else paper_job(told)


def paper_job(told: Row) -> Any:
    """A job of the paper's experiments."""
    match told["kind"]:
        case "Behaviour":
            return OnlineAgent(BehaviourSchedule(**told["schedule"]))
        case "Experts":
            return Experts(tuple(from_json(agent) for agent in told["agents"]), told["keep"])
        case "Batch":
            keys = ("recipe", "env", "transitions", "trial")
            source = told["source"] and from_json(told["source"])
            return Batch(**{key: told[key] for key in keys}, source=source)
        case "Training":
            settings = {
                k: tuple(v) if isinstance(v, list) else v for k, v in told["settings"].items()
            }
            return Training(
                ALGORITHMS[told["algorithm"]](**settings),
                Schedule(**told["schedule"]),
                from_json(told["batch"]),
                HoldOut(**told["hold_out"]) if "hold_out" in told else None,
            )
        case "Judging":
            return Judging(from_json(told["training"]), tuple(told["checkpoints"]))
        case "Theory":
            return Theory(told["seed"])
        case kind:
            raise ValueError(f"no job is of kind {kind!r}")


def steps_done(job: Job, folder: Path) -> int:
    """The number of steps that are done, according to its folder."""
    directory = workplace(folder / directory_name(job))
    with suppress(InputError):  # not started, or just finished
        match job:
            case Batch():
                return int(read_json(directory / "batch.hdf5.partial" / "progress.json")["rows"])
            case Judging():
                return len(judged_in(directory))
            case _:
                return last_step(directory / "metrics.jsonl")
    return 0
