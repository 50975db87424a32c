"""The one offline loop, and the run that is made of it."""

import json
import math
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from bcq import interruption, progress
from bcq.algorithms import name_of
from bcq.dataset import Dataset
from bcq.environments import make_for
from bcq.errors import DivergenceError, InputError, InterruptionError, require_seed
from bcq.evaluation import evaluate
from bcq.files import make_directory
from bcq.learning import (
    Algorithm,
    AlgorithmConfig,
    Metrics,
    Minibatch,
    ValueFunction,
    check_settings,
)
from bcq.policy import Policy
from bcq.runs import Keep, Row, Run, locked, named_arrays, require_keep, surroundings
from bcq.seeds import reset_seed
from bcq.values import measure_values, require_measurable

CHUNK = 100  # updates in one call of compiled code, and in one row of metrics
ESTIMATE_EVERY = 2_500  # updates between two value estimates, over 100 transitions (supplement F)
ESTIMATE_ROWS = 100
MAY_CHANGE = ("schedule.steps", "schedule.keep")  # of a run that is resumed


class Progress(NamedTuple):
    """Where training stands."""

    step: int
    learner: Algorithm
    metrics: dict[str, float]


class Keys(NamedTuple):
    """One stream of random numbers for each use, so that none disturbs another."""

    creation: Array
    updates: Array
    estimates: Array

    @classmethod
    def of(cls, seed: int) -> "Keys":
        """The streams of a seed; what they give at a step depends on (seed, step) alone."""
        return cls(*jax.random.split(jax.random.key(seed), 3))


def create(config: AlgorithmConfig, dataset: Dataset, *, seed: int) -> Algorithm:
    """The learner that training with this seed starts from."""
    sizes = dataset.task.observation_size, dataset.task.action_size
    return create_compiled(config, *sizes, Keys.of(seed).creation)


@partial(jax.jit, static_argnums=(0, 1, 2))  # one program, not dozens: a second instead of six
def create_compiled(
    config: AlgorithmConfig, observation_size: int, action_size: int, key: Array
) -> Algorithm:
    """A fresh learner."""
    return config.create(observation_size, action_size, key)


def train(
    config: AlgorithmConfig,
    dataset: Dataset,
    *,
    steps: int,
    seed: int = 0,
    concurrent: bool = False,
    start: tuple[int, Algorithm] | None = None,
) -> Iterator[Progress]:
    """Trains offline and hands over (step, learner, metrics) every hundred updates.

    Logging, evaluating and stopping are the caller's. `start` is a step and the learner it had:
    from there training goes on exactly as if it had never stopped. `concurrent` replays a growing
    buffer (see `growing_windows`).
    """
    windows = growing_windows(dataset, steps) if concurrent else jnp.array([len(dataset)])
    step, learner = start or (0, create(config, dataset, seed=seed))
    keys = Keys.of(seed)
    batch = on_device(dataset)
    while step < steps:
        stop = min(step - step % CHUNK + CHUNK, steps)
        learner, totals = update_until(
            learner, batch, windows, keys.updates, step, stop, config.batch_size
        )
        metrics = {name: float(total) / (stop - step) for name, total in totals.items()}
        step = stop
        if step % ESTIMATE_EVERY == 0 and isinstance(learner, ValueFunction):
            key = jax.random.fold_in(keys.estimates, step)
            window = window_at(windows, step - 1)
            metrics["value_estimate"] = float(value_estimate(learner, batch, window, key))
        yield Progress(step, learner, metrics)


def on_device(dataset: Dataset) -> Minibatch:
    """The whole batch where the updates run, its actions on the [-1, 1] scale.

    On a CPU columns of a file are not copied: the batch is read-only, so both may hold them.
    """
    return Minibatch(
        observations=jax.device_put(dataset.observations),
        actions=jax.device_put(dataset.bounds.normalise(dataset.actions)),
        rewards=jax.device_put(dataset.rewards),
        next_observations=jax.device_put(dataset.next_observations),
        terminated=jax.device_put(dataset.terminated),
    )


def growing_windows(dataset: Dataset, steps: int) -> Array:
    """The paper's concurrent task: which rows [0, t) each update may sample from.

    After an episode that ends at row t, one update for each of its rows. So update u comes with
    the end of the episode that row u is in; the behaviour never depends on the learner.
    """
    allowed = concurrent_updates(dataset)
    if steps > allowed:
        raise InputError(
            f"steps: {steps} is more than {allowed}, one update for each row of the batch's "
            "complete episodes; a concurrent run ends there"
        )
    starts, stops = dataset.episodes.T
    return jnp.asarray(np.repeat(stops, stops - starts)[:allowed])


def concurrent_updates(dataset: Dataset) -> int:
    """How many updates a concurrent run has: one a row, up to the last episode end."""
    ends = np.flatnonzero(dataset.terminated | dataset.truncated)
    if len(ends) == 0:
        raise InputError("a concurrent run needs complete episodes; this batch has none")
    return int(ends[-1]) + 1


def window_at(windows: Array, step: Array | int) -> Array:
    """Rows [0, window) are there at a step; a fixed batch has one window, for every step."""
    return windows[jnp.minimum(step, len(windows) - 1)]


def sample(batch: Minibatch, window: Array | int, rows: int, key: Array) -> Minibatch:
    """Transitions drawn uniformly from rows [0, window), with replacement."""
    indices = jax.random.randint(key, (rows,), 0, window)
    return Minibatch(*(column[indices] for column in batch))


@partial(jax.jit, static_argnums=6)
def update_until(
    learner: Algorithm,
    batch: Minibatch,
    windows: Array,
    key: Array,
    start: int,
    stop: int,
    rows: int,
) -> tuple[Algorithm, Metrics]:
    """Updates number `start` to `stop`, and the sums of their metrics.

    The bounds are dynamic: one compilation serves every length.
    """

    def update(learner: Algorithm, step: Array | int) -> tuple[Algorithm, Metrics]:
        sample_key, update_key = jax.random.split(jax.random.fold_in(key, step))
        minibatch = sample(batch, window_at(windows, step), rows, sample_key)
        return learner.update(minibatch, update_key)

    def body(step: int, carry: tuple[Algorithm, Metrics]) -> tuple[Algorithm, Metrics]:
        learner, totals = carry
        learner, metrics = update(learner, step)
        return learner, jax.tree.map(jnp.add, totals, metrics)

    shapes = jax.eval_shape(update, learner, 0)[1]
    zeros = jax.tree.map(lambda shape: jnp.zeros(shape.shape, shape.dtype), shapes)
    return jax.lax.fori_loop(start, stop, body, (learner, zeros))


@jax.jit
def value_estimate(learner: ValueFunction, batch: Minibatch, window: Array, key: Array) -> Array:
    """The paper's estimate: mean Q at state-action pairs of a minibatch."""
    rows = sample(batch, window, ESTIMATE_ROWS, key)
    return learner.value(rows.observations, rows.actions).mean()


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """How long a run is and what happens along the way, as in the paper unless changed."""

    steps: int = 1_000_000
    """updates to train for"""
    seed: int = 0
    """seed of everything random: first weights, minibatches, noise, evaluation"""
    env: str | None = None
    """Gymnasium environment to evaluate in; training itself needs none"""
    evaluate_every: int = 5_000
    """updates between two evaluations (a multiple of 100)"""
    evaluate_episodes: int = 10
    """episodes in an evaluation"""
    checkpoint_every: int = 5_000
    """updates between two checkpoints (a multiple of 100)"""
    keep: Keep = 1
    """checkpoints to keep, the newest ones"""
    true_value_every: int | None = None
    """updates between two measurements of true values in the environment (a multiple of 100)"""
    concurrent: bool = False
    """replay a buffer in the order it was logged, one update a row: after each episode, as many
    as it has rows, from the rows so far (the paper's concurrent task; to the last episode's end)"""

    def __post_init__(self) -> None:
        check_settings(
            self,
            at_least_one=("steps", "evaluate_every", "evaluate_episodes", "checkpoint_every"),
        )
        require_seed(self.seed)
        require_keep(self.keep)
        for name in ("evaluate_every", "checkpoint_every", "true_value_every"):
            if (every := getattr(self, name)) is not None and (every < 1 or every % CHUNK):
                raise InputError(f"{name}: {every} is not a multiple of {CHUNK}")
        if self.true_value_every is not None and self.env is None:
            raise InputError("true_value_every: needs --env, to measure in")


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
        run = open_run(directory, settings_of(config, schedule, dataset), resume=resume)
        try:
            with interruption.deferred():
                continue_run(run, config, schedule, dataset)
        except InterruptionError as error:
            again = "the same command" if resume else "the same command with --resume"
            raise InterruptionError(f"{error}; {again} goes on from there") from error
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
                raise InterruptionError(f"no update was made yet in {run.directory}")
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
                    f"warning: the value target averages {metrics['target_mean']:.4g} at update "
                    f"{step}; no policy could earn more than {ceiling:.4g} from these rewards. "
                    "The value estimate is running away; training goes on."
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
    discount: float = getattr(config, "discount", 1.0)  # imitation has none, and no values
    largest = float(np.abs(dataset.rewards).max())
    return largest / (1 - discount) if discount < 1 else math.inf


def settings_of(config: AlgorithmConfig, schedule: Schedule, dataset: Dataset) -> Row:
    """Everything a run depends on, as it stands in its config.json."""
    return {
        "algorithm": name_of(config),
        "settings": asdict(config),
        "schedule": asdict(schedule),
        "dataset": {
            "fingerprint": dataset.fingerprint,
            "transitions": len(dataset),
            "episodes": len(dataset.episodes),
            "mean_return": mean_return(dataset),
            **asdict(dataset.provenance),
        },
        "task": dataset.task.as_json(),
        **surroundings(),
    }


def mean_return(dataset: Dataset) -> float | None:
    """What the batch's complete episodes earned on average, if there are any."""
    return float(dataset.episode_returns.mean()) if len(dataset.episode_returns) else None


def open_run(directory: Path, settings: Row, *, resume: bool) -> Run:
    """A new run, or the one that is there if it was made with the same settings."""
    if not resume or not (directory / "config.json").exists():
        return Run.create(directory, settings)
    run = Run.open(directory)
    for part in ("algorithm", "settings", "schedule", "dataset", "task"):
        before, now = flat(part, run.config[part]), flat(part, settings[part])
        for name in sorted(before.keys() | now.keys()):
            if name not in MAY_CHANGE and before.get(name) != now.get(name):
                raise InputError(
                    f"{directory}: was begun with {name} = {before.get(name)}, not "
                    f"{now.get(name)}; resume with the same settings, or start anew elsewhere"
                )
    run.load()  # what cannot be continued is refused before anything is written
    run.extend(settings["schedule"])
    note_continuation(run, settings)
    return run


def note_continuation(run: Run, settings: Row) -> None:
    """Says and records where a run goes on in other surroundings: its bytes may then differ."""
    step, continuations = run.checkpoint_step() or 0, run.config.get("continuations", [])
    now = {name: settings[name] for name in ("versions", "commit", "device", "threads")}
    before, after = (
        {
            key: value
            for name in ("versions", "device", "threads")  # a commit may have changed a document
            for key, value in flat(name, row.get(name)).items()
        }
        for row in (continuations[-1] if continuations else run.config, now)
    )
    changed = [
        f"{name} = {after.get(name)}, not {before.get(name)}"
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
    ]
    if changed and step < run.config["schedule"]["steps"]:
        run.config["continuations"] = [*continuations, {"step": step, **now}]
        run.write_config()
        progress.say(
            f"warning: {run.directory}: goes on with {'; '.join(changed)}: the numbers may differ "
            "from those of a run never interrupted, and config.json says so"
        )


def flat(name: str, value: object) -> Row:
    """{"a": {"b": 1}} as {"a.b": 1}, in the form it has after a round trip through JSON."""
    if isinstance(value, dict):
        return {f"{name}.{key}": json.loads(json.dumps(item)) for key, item in value.items()}
    return {name: value}


def measure_values_into(
    run: Run, step: int, learner: Algorithm, schedule: Schedule, dataset: Dataset
) -> None:
    """Appends estimates and truths to the run, raw, pair by pair; they depend on (seed, step)."""
    assert schedule.env is not None
    values = measure_values(
        Policy(learner, run.task),
        dataset,
        schedule.env,
        discount=run.config["settings"]["discount"],
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


def stop_if_not_finite(run: Run, step: int, learner: Algorithm, metrics: dict[str, float]) -> None:
    """Ends a run whose numbers are lost, before anything of it is stored.

    The metrics are those before each step, so the last step can break the weights alone.
    """
    numbers: Row = {**metrics, **named_arrays(learner)}
    broken = next((name for name, value in numbers.items() if not np.isfinite(value).all()), None)
    if broken is not None:
        run.note_divergence(step, broken)
        kept = run.checkpoint_step()
        rest = "no checkpoint had been written" if kept is None else f"update {kept} is kept"
        raise DivergenceError(
            f"{run.directory}: {broken} is {metrics.get(broken, 'not finite')} by update {step}; "
            f"{rest}. "
            "Rewards of a large scale or a large learning rate are the usual causes: divide the "
            "rewards, or lower the learning rate"
        )
