"""What every training writes into its run directory, and how it is resumed from there."""

import math
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
from jax import Array

from bcq.algorithms.learning import Algorithm
from bcq.runs.arrays import names_of
from bcq.runs.configuration import Continuation, RunConfiguration
from bcq.runs.directory import Run, last_step
from bcq.runs.origin import Origin
from bcq.runs.schedules import BehaviourSchedule, Schedule
from bcq.simulation.evaluation import evaluate
from bcq.system import interruption, progress
from bcq.system.errors import DivergenceError, InputError, InterruptionError
from bcq.system.files import Row, read_json
from bcq.system.progress import Progress
from bcq.system.seeds import reset_seed
from bcq.training.policy import Policy

MAY_CHANGE = ("schedule.steps", "schedule.keep")  # when a run is resumed


def open_run(directory: Path, config: RunConfiguration, *, resume: bool) -> Run:
    """A new run, or the one in the folder if it was started with the same settings."""
    path = directory / "config.json"
    if not resume or not path.exists():
        return Run.create(directory, config)
    run = Run.open(directory)
    # Compared as JSON: a setting that the file lacks differs from one that has its default.
    stored, given = read_json(path), config.as_json()
    for part in ("algorithm", "settings", "schedule", "dataset", "task"):
        before, now = flat(part, stored[part]), flat(part, given[part])
        for name in sorted(before.keys() | now.keys()):
            if name not in MAY_CHANGE and before.get(name) != now.get(name):
                raise InputError(
                    f"{directory}: was started with {name} = {before.get(name)!s:.60}, not "
                    f"{now.get(name)!s:.60}; resume with the same settings, or use another folder"
                )
    run.load()  # a run that cannot be continued is refused before anything is written
    run.extend(config.schedule)
    note_continuation(run, config.origin)
    return run


def note_continuation(run: Run, now: Origin) -> None:
    """Warns of a run that continues with other software or on another machine, and records it."""
    step, continuations = run.checkpoint_step() or 0, run.config.continuations
    before = continuations[-1].origin if continuations else run.config.origin
    changed = before.differences(now)
    if changed and step < run.config.schedule.steps:
        run.config = replace(run.config, continuations=(*continuations, Continuation(step, now)))
        run.write_config()
        progress.say(
            f"warning: {run.directory}: continues with {'; '.join(changed)}: the numbers may "
            "differ from those of an uninterrupted run; config.json records the change"
        )


def flat(name: str, value: object) -> Row:
    """{"a": {"b": 1}} as {"a.b": 1}."""
    if isinstance(value, dict):
        return {f"{name}.{key}": item for key, item in value.items()}
    return {name: value}


class Recorder:
    """Writes the metrics, evaluations and checkpoints of a run, and stops it when asked to."""

    def __init__(self, run: Run, schedule: Schedule | BehaviourSchedule, bar: Progress):
        self.run = run
        self.schedule = schedule
        self.bar = bar

    def log(self, step: int, learner: Algorithm, metrics: dict[str, float], **more: int) -> None:
        """Appends a row of metrics; if any number is not finite, it ends the run instead."""
        stop_if_not_finite(self.run, step, learner, metrics)
        self.run.append("metrics.jsonl", [{"step": step, **more, **metrics}])

    def evaluate(self, step: int, learner: Algorithm) -> None:
        """Appends the return of each episode of an evaluation, which depends on (seed, step)."""
        schedule = self.schedule
        if schedule.env is None:
            return
        seed = reset_seed(schedule.seed, step)
        policy = Policy(learner, self.run.task)
        result = evaluate(policy, schedule.env, episodes=schedule.evaluate_episodes, seed=seed)
        self.run.append(
            "episodes.jsonl",
            [
                {"step": step, "episode": i, "return": total, "length": length}
                for i, (total, length) in enumerate(
                    zip(result.returns.tolist(), result.lengths.tolist(), strict=True)
                )
            ],
        )
        self.bar.note(f"return {result.mean:.1f} at {step}")

    def checkpoint(self, step: int, learner: Algorithm, *, due: bool) -> None:
        """Saves a checkpoint if one is due, or if the user wants to stop; then it stops."""
        stopping = interruption.requested() and step < self.schedule.steps
        if due or stopping:
            self.run.save(step, learner, keep=self.schedule.keep, passing=not due)
        self.bar.advance(step - self.bar.done)
        if stopping:
            raise InterruptionError(
                f"{self.bar.unit} {step:,} of {self.schedule.steps:,} is saved in "
                f"{self.run.directory}"
            )

    def finish(self, step: int, learner: Algorithm) -> None:
        """Makes the last evaluation and the last checkpoint, if they have not been made."""
        if last_step(self.run.directory / "episodes.jsonl") != step:
            self.evaluate(step, learner)
        pointer = self.run.pointer()
        if pointer is None or pointer["step"] != step or pointer.get("passing"):
            self.run.save(step, learner, keep=self.schedule.keep)


@jax.jit
def are_finite(learner: Algorithm) -> Array:
    """For each array, whether all its numbers are finite. The arrays stay on the device."""
    return jnp.stack([jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(learner)])


def stop_if_not_finite(run: Run, step: int, learner: Algorithm, metrics: dict[str, float]) -> None:
    """Ends a run with a number that is not finite, before this step is stored.

    Metrics are computed before each update, so a fault of the last update is only in the weights.
    """
    finite = {name: math.isfinite(value) for name, value in metrics.items()}
    finite |= dict(zip(names_of(learner), are_finite(learner).tolist(), strict=True))
    broken = next((name for name, fine in finite.items() if not fine), None)
    if broken is not None:
        run.note_divergence(step, broken)
        kept = run.checkpoint_step()
        rest = "no checkpoint was written" if kept is None else f"update {kept} is kept"
        raise DivergenceError(
            f"{run.directory}: {broken} is {metrics.get(broken, 'not finite')} by update {step}; "
            f"{rest}. "
            "The usual causes are large rewards or a large learning rate: divide the rewards, or "
            "lower the learning rate"
        )
