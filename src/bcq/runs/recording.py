"""Training into a run directory: what is evaluated, appended, saved, and gone on from."""

import math
import time
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from bcq.algorithms.learning import Algorithm, AlgorithmConfig
from bcq.data.dataset import Dataset
from bcq.runs.arrays import names_of
from bcq.runs.configuration import Continuation, LoggedBatch, RunConfiguration
from bcq.runs.directory import Run
from bcq.runs.origin import Origin
from bcq.runs.schedules import Schedule
from bcq.simulation.environments import make_for
from bcq.simulation.evaluation import evaluate
from bcq.simulation.values import measure_values, require_measurable
from bcq.system import interruption, progress
from bcq.system.errors import DivergenceError, InputError, InterruptionError
from bcq.system.files import Row, locked, make_directory, read_json
from bcq.system.seeds import reset_seed
from bcq.training.loop import (
    concurrent_updates,
    create,
    growing_windows,
    train,
    window_at,
)
from bcq.training.policy import Policy

MAY_CHANGE = ("schedule.steps", "schedule.keep")  # of a run that is resumed


def train_run(
    directory: Path,
    config: AlgorithmConfig,
    schedule: Schedule,
    dataset: Dataset,
    *,
    resume: bool = False,
) -> Run:
    """Trains into a run directory; resumed, the result is that of a run never interrupted."""
    if schedule.env is not None:
        make_for(schedule.env, dataset.task).close()
    if schedule.true_value_every is not None and schedule.env is not None:
        require_measurable(config, dataset, schedule.env)
    if schedule.concurrent:
        schedule = replace(schedule, steps=min(schedule.steps, concurrent_updates(dataset)))
    make_directory(directory)
    with locked(directory):
        run = open_run(directory, configuration_of(config, schedule, dataset), resume=resume)
        with interruption.deferred():
            continue_run(run, config, schedule, dataset)
    return run


def continue_run(run: Run, config: AlgorithmConfig, schedule: Schedule, dataset: Dataset) -> None:
    """Trains from the newest checkpoint, or from the beginning, to the end of the schedule."""
    checkpoint = run.load()
    run.remove_leftovers()
    run.cut_back(-1 if checkpoint is None else checkpoint[0])
    start = checkpoint or (0, create(config, dataset, seed=schedule.seed))
    ceiling = largest_value(config, dataset)
    alarm = 2 * ceiling + 1  # a young network's noise is no alarm
    with progress.Progress("training", schedule.steps, "update", done=start[0]) as bar:
        if checkpoint is None:
            evaluate_into(run, *start, schedule, bar)
            if interruption.requested():
                raise InterruptionError(f"{run.directory} has no update yet")
        clock = time.perf_counter()
        for step, learner, metrics in train(
            config,
            dataset,
            steps=schedule.steps,
            seed=schedule.seed,
            concurrent=schedule.concurrent,
            start=start,
        ):
            seconds = time.perf_counter() - clock
            stop_if_not_finite(run, step, learner, metrics)
            run.append("metrics.jsonl", [{"step": step, **metrics}])
            run.append("timing.jsonl", [{"step": step, "seconds": round(seconds, 4)}])
            if abs(metrics.get("target_mean", 0.0)) > alarm:
                alarm = math.inf  # said once
                progress.say(
                    f"warning: the mean value target is {metrics['target_mean']:.4g} at update "
                    f"{step}; the highest possible value with these rewards is {ceiling:.4g}. "
                    "The value estimate diverges; training continues."
                )
            last = step == schedule.steps
            if schedule.true_value_every and (last or step % schedule.true_value_every == 0):
                measure_values_into(run, step, learner, schedule, dataset)
            if last or step % schedule.evaluate_every == 0:
                evaluate_into(run, step, learner, schedule, bar)
            stopping = interruption.requested()
            due = last or step % schedule.checkpoint_every == 0
            if due or stopping:
                run.save(step, learner, keep=schedule.keep, passing=not due)
            bar.advance(step - bar.done)
            if stopping and not last:
                raise InterruptionError(
                    f"update {step:,} of {schedule.steps:,} is saved in {run.directory}"
                )
            clock = time.perf_counter()


def largest_value(config: AlgorithmConfig, dataset: Dataset) -> float:
    """No policy can be worth more with these rewards: the largest of them, for ever."""
    if config.discount is None or config.discount == 1:
        return math.inf
    return float(np.abs(dataset.rewards).max()) / (1 - config.discount)


def configuration_of(
    config: AlgorithmConfig, schedule: Schedule, dataset: Dataset
) -> RunConfiguration:
    """Everything that an offline run depends on."""
    return RunConfiguration(
        algorithm=config,
        schedule=schedule,
        dataset=LoggedBatch.of(dataset),
        task=dataset.task,
        origin=Origin.of_this_process(),
    )


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
                    f"{directory}: was started with {name} = {before.get(name)}, not "
                    f"{now.get(name)}; resume with the same settings, or use another folder"
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


def measure_values_into(
    run: Run, step: int, learner: Algorithm, schedule: Schedule, dataset: Dataset
) -> None:
    """Appends estimates and truths to the run, raw, pair by pair; they depend on (seed, step)."""
    discount = run.algorithm.discount
    assert schedule.env is not None
    assert discount is not None  # both were asked for before the first update
    values = measure_values(
        Policy(learner, run.task),
        dataset,
        schedule.env,
        discount=discount,
        seed=reset_seed(schedule.seed, step),
        window=int(window_at(growing_windows(dataset, step), step - 1))
        if schedule.concurrent
        else None,
    )
    run.append("values.jsonl", [{"step": step, **pair} for pair in values.pairs()])


class Evaluated(Protocol):
    """What a schedule says of evaluations."""

    @property
    def env(self) -> str | None:
        """Where."""
        ...

    @property
    def seed(self) -> int:
        """From which seed."""
        ...

    @property
    def evaluate_episodes(self) -> int:
        """How many episodes."""
        ...


def evaluate_into(
    run: Run, step: int, learner: Algorithm, schedule: Evaluated, bar: progress.Progress
) -> None:
    """Appends an evaluation's raw returns to the run; its episodes depend on (seed, step)."""
    if schedule.env is None:
        return
    seed = reset_seed(schedule.seed, step)
    policy = Policy(learner, run.task)
    result = evaluate(policy, schedule.env, episodes=schedule.evaluate_episodes, seed=seed)
    run.append(
        "episodes.jsonl",
        [
            {"step": step, "episode": i, "return": total, "length": length}
            for i, (total, length) in enumerate(
                zip(result.returns.tolist(), result.lengths.tolist(), strict=True)
            )
        ],
    )
    bar.note(f"return {result.mean:.1f} at {step}")


@jax.jit
def are_finite(learner: Algorithm) -> Array:
    """Of each array, whether all its numbers are; only the answers leave the device."""
    return jnp.stack([jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(learner)])


def stop_if_not_finite(run: Run, step: int, learner: Algorithm, metrics: dict[str, float]) -> None:
    """Ends a run whose numbers are lost, before anything of it is stored.

    The metrics are those before each step, so the last step can break the weights alone.
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
