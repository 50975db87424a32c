"""A run directory: settings, metrics, raw returns and checkpoints, each written completely or not.

config.json       everything the run depends on, and each resumption with other threads or versions
metrics.jsonl     one row for every hundred updates
episodes.jsonl    one row per evaluation episode
values.jsonl      one row per state-action pair whose true value was measured
divergence.json   where a number became infinite or NaN, if one did
timing.jsonl      wall-clock times; the only file that differs between two equal runs
rows.bin          the transitions of an agent that learns online, in order
checkpoint.json   names the newest checkpoint, its step and its SHA-256, and the older ones kept
step-N.safetensors  every array of the learner, optimizer included, by name
"""

import hashlib
import json
import os
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Self

import jax
import safetensors.numpy
from safetensors import SafetensorError

from bcq.algorithms.learning import Algorithm, AlgorithmConfig
from bcq.data.bounds import TaskSpec
from bcq.runs.arrays import named_arrays, with_arrays
from bcq.runs.configuration import RunConfiguration, read_configuration
from bcq.runs.schedules import BehaviourSchedule, Keep, Schedule
from bcq.system.errors import InputError
from bcq.system.files import (
    Row,
    as_json_lines,
    make_directory,
    read_json,
    replacing,
    require_regular,
    write_json,
    write_text,
)
from bcq.training.policy import Policy

LOGS = ("metrics.jsonl", "episodes.jsonl", "values.jsonl", "timing.jsonl")
ROWS = "rows.bin"


class Run:
    """An open run directory."""

    def __init__(self, directory: Path, config: RunConfiguration):
        self.directory = directory
        self.config = config

    @classmethod
    def create(cls, directory: Path, config: RunConfiguration) -> Self:
        """A new run; a folder that already contains one is refused."""
        if (directory / "config.json").exists():
            raise InputError(f"{directory} already contains a run", option="resume")
        make_directory(directory)
        run = cls(directory, config)
        run.write_config()
        return run

    @classmethod
    def open(cls, directory: str | Path) -> Self:
        """A run that exists."""
        directory = Path(directory)
        path = directory / "config.json"
        if not path.exists():
            raise InputError(f"{directory}: does not contain a run (config.json is missing)")
        return cls(directory, read_configuration(path))

    def write_config(self) -> None:
        """Writes the configuration to config.json."""
        write_json(self.directory / "config.json", self.config.as_json())

    @property
    def algorithm(self) -> AlgorithmConfig:
        """The settings of the algorithm."""
        return self.config.algorithm

    @property
    def task(self) -> TaskSpec:
        """Sizes and action bounds of the data that it learned from."""
        return self.config.task

    def append(self, log: str, rows: Iterable[Row]) -> None:
        """Adds rows to a log. A crash can damage only the last line; `cut_back` removes it."""
        lines, path = as_json_lines(rows), self.directory / log
        try:
            with path.open("a", encoding="utf-8") as file:
                file.write(lines)
        except OSError as error:
            raise InputError(f"cannot write {path}: {error.strerror}") from error

    def read(self, log: str, *numbers: str) -> list[Row]:
        """All complete rows of a log; each must have a step and the named numbers."""
        path = self.directory / log
        require_regular(path)
        try:
            lines = path.read_text(encoding="utf-8").split("\n")[:-1] if path.exists() else []
            rows = [json.loads(line) for line in lines]
        except (OSError, ValueError, RecursionError) as error:
            raise InputError(f"{path}: is damaged: {error}") from error
        for number, row in enumerate(rows):
            for name in ("step", *numbers):
                if not isinstance(row, dict) or not isinstance(row.get(name), int | float):
                    raise InputError(f"{path}: is damaged: row {number} has no {name}")
        return rows

    def cut_back(self, step: int) -> None:
        """Removes the rows after a step from every log; step -1 removes all rows."""
        for log in LOGS:
            if not (self.directory / log).exists():
                continue
            rows = [row for row in self.read(log) if row["step"] <= step]
            write_text(self.directory / log, as_json_lines(rows))
        (self.directory / "divergence.json").unlink(missing_ok=True)

    def note_divergence(self, step: int, what: str) -> None:
        """Records that training ended at this step because a number was not finite."""
        estimates = [
            row["value_estimate"] for row in self.read("metrics.jsonl") if "value_estimate" in row
        ]
        notes = {"step": step, "what": what, "last_estimate": (estimates or [None])[-1]}
        write_json(self.directory / "divergence.json", notes)

    def divergence(self) -> Row | None:
        """What `note_divergence` recorded, or None."""
        path = self.directory / "divergence.json"
        return read_json(path) if path.exists() else None

    def save(self, step: int, learner: Algorithm, *, keep: Keep = 1, passing: bool = False) -> None:
        """Writes a checkpoint: first the arrays, then the file that points to them.

        `passing` marks a checkpoint that was only made because of an interruption. The next one
        replaces it: a resumed run must leave the same files as a run without interruptions.
        """
        for log in (*LOGS, ROWS):  # what the checkpoint builds on reaches the disk before it
            path = self.directory / log
            if path.exists():
                with path.open("rb") as file:
                    os.fsync(file.fileno())
        content = safetensors.numpy.save(named_arrays(learner))
        path = self.directory / f"step-{step}.safetensors"
        with replacing(path) as temporary:
            temporary.write_bytes(content)
        before = self.pointer() or {}
        known = self.checkpoints()[: -1 if before.get("passing") else None]
        older = [one for one in known if one["step"] < step]
        pointer = {
            **entry(step, hashlib.sha256(content).hexdigest()),
            **({"passing": True} if passing else {}),
            "older": older if keep == "all" else older[max(0, len(older) + 1 - keep) :],
        }
        write_json(self.directory / "checkpoint.json", pointer)
        self.remove_leftovers()

    def remove_leftovers(self) -> None:
        """Removes unfinished files of a killed process, and checkpoints that are not kept.

        A checkpoint is not kept if it is older than the newest one and not in its list. Without a
        list nothing is removed.
        """
        for path in self.directory.glob(".*.tmp"):
            path.unlink()
        known = [one["step"] for one in self.checkpoints()]
        for path in self.directory.glob("step-*.safetensors"):
            step = path.stem.removeprefix("step-")
            if step.isdecimal() and known and int(step) < known[-1] and int(step) not in known:
                path.unlink()

    def checkpoints(self) -> list[Row]:
        """Step, file and SHA-256 of each checkpoint that is kept, the newest last."""
        pointer = self.pointer()
        if pointer is None:
            return []
        return [*pointer.get("older", []), entry(pointer["step"], pointer["sha256"])]

    def pointer(self) -> Row | None:
        """The content of checkpoint.json: step, file and SHA-256 of the newest checkpoint."""
        path = self.directory / "checkpoint.json"
        if not path.exists():
            return None
        pointer = read_json(path)
        older = pointer.get("older", [])
        for one in (*(older if isinstance(older, list) else [older]), pointer):
            if not isinstance(one, dict) or not isinstance(one.get("sha256"), str):
                raise InputError(f"{path}: is damaged ({one!r} has no SHA-256)")
            step = one.get("step")
            if not isinstance(step, int) or one.get("file") != entry(step, "")["file"]:
                raise InputError(
                    f"{path}: is damaged (step is {step!r} and file is {one.get('file')!r})"
                )
        return pointer

    def checkpoint_step(self) -> int | None:
        """The step of the newest checkpoint, if there is one."""
        pointer = self.pointer()
        return None if pointer is None else pointer["step"]

    def extend(self, schedule: Schedule | BehaviourSchedule) -> None:
        """Takes over a new length of the run, and a new number of checkpoints to keep."""
        done = self.checkpoint_step() or 0
        if done > schedule.steps:
            raise InputError(
                f"{self.directory}: is already at update {done}, more than {schedule.steps}"
            )
        if self.config.schedule != schedule:
            self.config = replace(self.config, schedule=schedule)
            self.write_config()

    def load(self, step: int | None = None) -> tuple[int, Algorithm] | None:
        """Step and learner of a checkpoint (by default the newest), or None if there is none."""
        known = {one["step"]: one for one in self.checkpoints()}
        if not known:
            return None
        if step is None:
            step = max(known)
        if step not in known:
            kept = ", ".join(map(str, known))
            raise InputError(f"{self.directory}: update {step} was not kept; available: {kept}")
        pointer = known[step]
        path = self.directory / pointer["file"]
        require_regular(path)
        try:
            content = path.read_bytes()
        except OSError as error:
            raise InputError(f"{path}: cannot be read: {error.strerror}") from error
        if hashlib.sha256(content).hexdigest() != pointer["sha256"]:
            raise InputError(
                f"{path}: is damaged (its SHA-256 differs from checkpoint.json); "
                "restore both files or train again"
            )
        try:
            arrays = safetensors.numpy.load(content)
        except SafetensorError as error:
            raise InputError(f"{path}: is not a safetensors file: {error}") from error
        return pointer["step"], with_arrays(self.skeleton(), arrays, path)

    def rewind(self) -> tuple[int, Algorithm] | None:
        """The newest checkpoint, as from `load`; anything the run wrote after it is removed."""
        checkpoint = self.load()
        self.remove_leftovers()
        self.cut_back(-1 if checkpoint is None else checkpoint[0])
        return checkpoint

    def skeleton(self) -> Algorithm:
        """A learner with shapes instead of arrays."""
        task, algorithm = self.task, self.algorithm
        try:
            shapes: Algorithm = jax.eval_shape(
                lambda: algorithm.create(task.observation_size, task.action_size, jax.random.key(0))
            )
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise InputError(
                f"{self.directory / 'config.json'}: these settings do not define a learner: "
                f"{' '.join(str(error).split()):.200}"
            ) from error
        return shapes

    def policy(self, step: int | None = None) -> Policy:
        """The policy of a checkpoint, by default the newest."""
        checkpoint = self.load(step)
        if checkpoint is None:
            raise InputError(f"{self.directory}: has no checkpoint yet; train it for longer")
        return Policy(checkpoint[1], self.task)


def entry(step: int, sha256: str) -> Row:
    """A checkpoint as listed in checkpoint.json."""
    return {"step": step, "file": f"step-{step}.safetensors", "sha256": sha256}


def returns_by_step(run: Run) -> dict[int, list[float]]:
    """The returns of each evaluation, in the order of the evaluations."""
    returns: dict[int, list[float]] = defaultdict(list)
    for row in run.read("episodes.jsonl", "return"):
        returns[row["step"]].append(row["return"])
    return returns


def last_step(log: Path) -> int:
    """The step of the last complete row of a log, or 0 if there is none."""
    if not log.exists():
        return 0
    require_regular(log)
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - 10_000))
        lines = file.read().split(b"\n")[:-1]
    try:
        return int(json.loads(lines[-1])["step"]) if lines else 0
    except (ValueError, LookupError, TypeError) as error:
        raise InputError(f"{log}: the last row is damaged: {error!r}") from error
