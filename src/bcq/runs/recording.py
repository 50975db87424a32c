"""Offline training into a run directory."""

import math
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from bcq.algorithms.learning import Algorithm, AlgorithmConfig
from bcq.data.bounds import TaskSpec
from bcq.data.dataset import Dataset
from bcq.data.scaling import Scaling, ScalingChoice
from bcq.data.splits import HoldOut
from bcq.runs.configuration import LoggedBatch, RunConfiguration
from bcq.runs.directory import Run
from bcq.runs.origin import Origin
from bcq.runs.recorder import Recorder, open_run
from bcq.runs.schedules import Schedule
from bcq.simulation.environments import make_for
from bcq.simulation.true_values import measure_values, require_measurable
from bcq.system import interruption, progress
from bcq.system.errors import InterruptionError
from bcq.system.files import locked, make_directory
from bcq.system.seeds import reset_seed
from bcq.training.loop import (
    concurrent_updates,
    create,
    growing_windows,
    require_kind,
    train,
    window_at,
)
from bcq.training.policy import Policy


def train_run(
    directory: Path,
    config: AlgorithmConfig,
    schedule: Schedule,
    dataset: Dataset,
    *,
    scaling: ScalingChoice = "auto",
    hold_out: HoldOut | None = None,
    resume: bool = False,
) -> Run:
    """Trains into a run directory. A resumed run gives the same result as an uninterrupted one.

    `scaling` "standard" scales observations and rewards by the statistics of the batch. "auto" is
    "none" for a batch of `bcq collect`, as in the paper, and "standard" for any other. The run
    does not learn from the episodes that `hold_out` keeps aside.
    """
    require_kind(config, dataset.task)
    whole, dataset = dataset, dataset if hold_out is None else hold_out.divide(dataset)[0]
    if schedule.env is not None:
        make_for(schedule.env, dataset.task).close()
    if schedule.true_value_every is not None and schedule.env is not None:
        require_measurable(config, dataset, schedule.env)
    if schedule.concurrent:
        schedule = replace(schedule, steps=min(schedule.steps, concurrent_updates(dataset)))
    make_directory(directory)
    with locked(directory):
        known = configuration_of(config, schedule, whole, hold_out)
        task = task_for(dataset, scaling, directory if resume else None)
        run = open_run(directory, replace(known, task=task), resume=resume)
        with interruption.deferred():
            continue_run(run, config, schedule, dataset)
    return run


def task_for(dataset: Dataset, choice: ScalingChoice, resumed: Path | None) -> TaskSpec:
    """The task of a batch, scaled as chosen; "auto" keeps the scaling of a run that is resumed."""
    if choice == "auto":
        if resumed is not None and (resumed / "config.json").exists():
            return replace(dataset.task, scaling=Run.open(resumed).task.scaling)
        choice = "standard" if dataset.provenance.recipe is None else "none"
    if choice == "none":
        return dataset.task
    scaling = Scaling.of(dataset.observations, dataset.rewards, dataset.task.unscaled)
    progress.say(
        f"scaling: observations are standardised, rewards are divided by "
        f"{scaling.reward_spread:.4g}; actions and values are in the units of the data"
    )
    return replace(dataset.task, scaling=scaling)


def continue_run(run: Run, config: AlgorithmConfig, schedule: Schedule, dataset: Dataset) -> None:
    """Trains from the newest checkpoint, or from the start, to the end of the schedule."""
    checkpoint = run.rewind()
    start = checkpoint or (0, create(config, dataset, seed=schedule.seed))
    ceiling = largest_value(config, dataset)
    alarm = 2 * ceiling + 1  # the values of an untrained network are not a reason to warn
    with progress.Progress("training", schedule.steps, "update", done=start[0]) as bar:
        recorder = Recorder(run, schedule, bar)
        if checkpoint is None:
            recorder.evaluate(*start)
            if interruption.requested():
                raise InterruptionError(f"{run.directory} has no update yet")
        clock = time.perf_counter()
        for step, learner, metrics in train(
            config,
            dataset,
            steps=schedule.steps,
            seed=schedule.seed,
            concurrent=schedule.concurrent,
            scaling=run.task.scaling,
            start=start,
        ):
            seconds = time.perf_counter() - clock
            recorder.log(step, learner, metrics)
            run.append("timing.jsonl", [{"step": step, "seconds": round(seconds, 4)}])
            if abs(metrics.get("target_mean", 0.0)) > alarm:
                alarm = math.inf  # warn once
                progress.say(
                    f"warning: the mean value target is {metrics['target_mean']:.4g} at update "
                    f"{step}; the highest possible value with these rewards is {ceiling:.4g}. "
                    "The value estimate diverges; training continues."
                )
            last = step == schedule.steps
            if schedule.true_value_every and (last or step % schedule.true_value_every == 0):
                measure_values_into(run, step, learner, schedule, dataset)
            if last or step % schedule.evaluate_every == 0:
                recorder.evaluate(step, learner)
            due = last or step % schedule.checkpoint_every == 0
            recorder.checkpoint(step, learner, due=due)
            clock = time.perf_counter()


def largest_value(config: AlgorithmConfig, dataset: Dataset) -> float:
    """The highest possible value with these rewards: the largest reward at every step."""
    if config.discount is None or config.discount == 1:
        return math.inf
    return float(np.abs(dataset.rewards).max()) / (1 - config.discount)


def configuration_of(
    config: AlgorithmConfig,
    schedule: Schedule,
    dataset: Dataset,
    hold_out: HoldOut | None = None,
) -> RunConfiguration:
    """Everything that an offline run depends on."""
    return RunConfiguration(
        algorithm=config,
        schedule=schedule,
        dataset=LoggedBatch.of(dataset, hold_out),
        task=dataset.task,
        origin=Origin.of_this_process(),
    )


def measure_values_into(
    run: Run, step: int, learner: Algorithm, schedule: Schedule, dataset: Dataset
) -> None:
    """Appends the estimated and true value of each pair; the pairs depend on (seed, step)."""
    discount = run.algorithm.discount
    assert schedule.env is not None
    assert discount is not None  # `train_run` has checked both
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
