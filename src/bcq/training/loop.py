"""The learning loop: draws minibatches and updates the learner. It knows no files."""

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from bcq.algorithms import CONTINUOUS, DISCRETE, name_of
from bcq.algorithms.learning import (
    Algorithm,
    AlgorithmConfig,
    Metrics,
    Minibatch,
    Transitions,
    ValueFunction,
)
from bcq.data.bounds import TaskSpec
from bcq.data.dataset import Dataset
from bcq.data.scaling import Scaling
from bcq.system.errors import InputError

CHUNK = 100  # updates in one call of compiled code, and in one row of metrics
ESTIMATE_EVERY = 2_500  # updates between two value estimates, over 100 transitions (supplement F)
ESTIMATE_ROWS = 100


class Progress(NamedTuple):
    """The state of training at a step."""

    step: int
    learner: Algorithm
    metrics: dict[str, float]


class Keys(NamedTuple):
    """Random keys, one per use, so that no use affects another."""

    creation: Array
    updates: Array
    estimates: Array

    @classmethod
    def of(cls, seed: int) -> "Keys":
        """The keys of a seed. What is drawn at a step depends only on (seed, step)."""
        return cls(*jax.random.split(jax.random.key(seed), 3))


def require_kind(config: AlgorithmConfig, task: TaskSpec) -> None:
    """Refuses an algorithm for the other kind of actions."""
    if isinstance(config, tuple(DISCRETE.values())) and task.choices is None:
        kind, fitting = "quantities, not choices", CONTINUOUS
    elif isinstance(config, tuple(CONTINUOUS.values())) and task.choices is not None:
        kind, fitting = f"{len(task.choices)} choices, not quantities", DISCRETE
    else:
        return
    raise InputError(
        f"{name_of(config)}: the actions of this batch are {kind}; use {', '.join(fitting)}",
        option="action_kind",
    )


def create(config: AlgorithmConfig, dataset: Dataset, *, seed: int) -> Algorithm:
    """The learner that training with this seed starts from."""
    require_kind(config, dataset.task)
    sizes = dataset.task.observation_size, dataset.task.action_size
    return create_compiled(config, *sizes, Keys.of(seed).creation)


@partial(jax.jit, static_argnums=(0, 1, 2))  # one program, not dozens: a second instead of six
def create_compiled(
    config: AlgorithmConfig, observation_size: int, action_size: int, key: Array
) -> Algorithm:
    """A new learner."""
    return config.create(observation_size, action_size, key)


def train(
    config: AlgorithmConfig,
    dataset: Dataset,
    *,
    steps: int,
    seed: int = 0,
    concurrent: bool = False,
    scaling: Scaling | None = None,
    start: tuple[int, Algorithm] | None = None,
) -> Iterator[Progress]:
    """Trains offline and yields (step, learner, metrics) every hundred updates.

    The caller logs, evaluates and stops. `start` is a step and the learner at that step: training
    continues from there exactly as if it had not been interrupted. `concurrent` replays a growing
    buffer (see `growing_windows`). With a `scaling`, the learner sees scaled observations and
    rewards; give it to the policy too, as part of its task.
    """
    windows = growing_windows(dataset, steps) if concurrent else jnp.array([len(dataset)])
    start = start or (0, create(config, dataset, seed=seed))
    batch = on_device(dataset)
    yield from updates(
        start,
        batch,
        windows,
        Keys.of(seed),
        until=steps,
        every=CHUNK,
        rows=config.batch_size,
        scaling=scaling,
    )


def updates(
    start: tuple[int, Algorithm],
    batch: Transitions,
    windows: Array,
    keys: Keys,
    *,
    until: int,
    every: int,
    rows: int,
    scaling: Scaling | None = None,
) -> Iterator[Progress]:
    """Updates a learner on minibatches of `rows` transitions; offline and online use this loop.

    `start` is a step and the learner at that step. It yields (step, learner, metrics) at each
    multiple of `every` and at the end. Metrics are means over the updates since the last yield.
    Values are in the units of the rewards, whatever the scaling; losses are those of the learner.
    """
    step, learner = start
    while step < until:
        stop = min(step - step % every + every, until)
        learner, totals = update_until(
            learner, batch, scaling, windows, keys.updates, step, stop, rows
        )
        metrics = {name: float(total) / (stop - step) for name, total in totals.items()}
        if scaling is not None and "target_mean" in metrics:
            metrics["target_mean"] = float(scaling.values(metrics["target_mean"]))
        step = stop
        if step % ESTIMATE_EVERY == 0 and isinstance(learner, ValueFunction):
            key = jax.random.fold_in(keys.estimates, step)
            window = window_at(windows, step - 1)
            metrics["value_estimate"] = float(value_estimate(learner, batch, scaling, window, key))
        yield Progress(step, learner, metrics)


def on_device(dataset: Dataset) -> Transitions:
    """The whole batch on the device, with actions as learners use them.

    On a CPU the columns are not copied. Both sides can share them because a batch is read-only.
    """
    return Transitions(
        observations=jax.device_put(dataset.observations),
        actions=jax.device_put(dataset.bounds.normalise(dataset.actions)),
        rewards=jax.device_put(dataset.rewards),
        next_observations=jax.device_put(dataset.next_observations),
        terminated=jax.device_put(dataset.terminated),
        next_permitted=jax.device_put(dataset.next_permitted),
    )


def growing_windows(dataset: Dataset, steps: int) -> Array:
    """The paper's concurrent task: which rows [0, t) each update may sample from.

    After an episode that ends at row t there is one update per row of it. So update u takes place
    at the end of the episode of row u. The behaviour does not depend on the learner.
    """
    allowed = concurrent_updates(dataset)
    if steps > allowed:
        raise InputError(
            f"steps: {steps} is more than {allowed}; a concurrent run has one update per row of "
            "the complete episodes of the batch"
        )
    starts, stops = dataset.episodes.T
    return jnp.asarray(np.repeat(stops, stops - starts)[:allowed])


def concurrent_updates(dataset: Dataset) -> int:
    """The number of updates of a concurrent run: one per row, up to the last end of an episode."""
    ends = np.flatnonzero(dataset.terminated | dataset.truncated)
    if len(ends) == 0:
        raise InputError("a concurrent run needs complete episodes; this batch has none")
    return int(ends[-1]) + 1


def window_at(windows: Array, step: Array | int) -> Array:
    """The window at a step: rows [0, window) can be drawn. A fixed batch has only one window."""
    return windows[jnp.minimum(step, len(windows) - 1)]


def sample(
    batch: Transitions, scaling: Scaling | None, window: Array | int, rows: int, key: Array
) -> Minibatch:
    """Transitions drawn uniformly from rows [0, window), with replacement, on the learner's scale.

    The rows drawn are scaled, not the batch: a second copy of it would need as much memory again.
    """
    indices = jax.random.randint(key, (rows,), 0, window)
    drawn = Minibatch(*jax.tree.map(lambda column: column[indices], batch))
    if scaling is None:
        return drawn
    return drawn._replace(
        observations=scaling.observations(drawn.observations),
        rewards=scaling.rewards(drawn.rewards),
        next_observations=scaling.observations(drawn.next_observations),
    )


@partial(jax.jit, static_argnums=7)
def update_until(
    learner: Algorithm,
    batch: Transitions,
    scaling: Scaling | None,
    windows: Array,
    key: Array,
    start: int,
    stop: int,
    rows: int,
) -> tuple[Algorithm, Metrics]:
    """The learner after updates `start` to `stop`, and the sums of their metrics.

    The bounds are dynamic, so that one compilation is enough for every length.
    """

    def update(learner: Algorithm, step: Array | int) -> tuple[Algorithm, Metrics]:
        sample_key, update_key = jax.random.split(jax.random.fold_in(key, step))
        minibatch = sample(batch, scaling, window_at(windows, step), rows, sample_key)
        return learner.update(minibatch, update_key)

    def body(step: int, carry: tuple[Algorithm, Metrics]) -> tuple[Algorithm, Metrics]:
        learner, totals = carry
        learner, metrics = update(learner, step)
        return learner, jax.tree.map(jnp.add, totals, metrics)

    shapes = jax.eval_shape(update, learner, 0)[1]
    zeros = jax.tree.map(lambda shape: jnp.zeros(shape.shape, shape.dtype), shapes)
    return jax.lax.fori_loop(start, stop, body, (learner, zeros))


@jax.jit
def value_estimate(
    learner: ValueFunction,
    batch: Transitions,
    scaling: Scaling | None,
    window: Array,
    key: Array,
) -> Array:
    """The value estimate of the paper: mean Q of a minibatch, in the units of the rewards."""
    rows = sample(batch, scaling, window, ESTIMATE_ROWS, key)
    estimate = learner.value(rows.observations, rows.actions).mean()
    return estimate if scaling is None else scaling.values(estimate)
