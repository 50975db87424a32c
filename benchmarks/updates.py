"""Updates per second at Hopper's sizes, as a share of what matrix products allow.

    python benchmarks/updates.py [--rounds 30] [bcq ddpg dqn bc vae-bc ensemble]

Rounds of updates and of large matrix products alternate in one process, so that a machine whose
speed wanders treats both alike. The arithmetic of an update is counted by hand, whatever algebra
saves.
"""

import argparse
import time

import jax
import jax.numpy as jnp
import numpy as np
from tqdm import tqdm

from bcq.algorithms import ALGORITHMS
from bcq.learning import Minibatch
from bcq.runs import threads
from bcq.training import update_until

OBSERVATION, ACTION, TRANSITIONS = 11, 3, 100_000
SIZE = 2048  # of the square matrices whose product is the yardstick
SECONDS = 1.0  # of updates in a round

# Weights of a network are multiplied once a row forwards, once for their own gradient, and once
# for the gradient of their inputs where it is needed.
CRITIC = 14 * 400 + 400 * 300 + 300
LATE_CRITIC = 11 * 400 + 403 * 300 + 300
ACTOR = 11 * 400 + 400 * 300 + 300 * 3
BINS = 11 * 400 + 400 * 300 + 300 * 30
ENCODER = 14 * 750 + 750 * 750 + 750 * 12
DECODER = 17 * 750 + 750 * 750 + 750 * 3
TRAIN_ACTOR = 3 * ACTOR - 11 * 400
MULTIPLY_ADDS = {  # of one update, minibatches of 100
    "bcq": 1.50e9,
    "ddpg": 100
    * (
        (ACTOR + LATE_CRITIC)  # target
        + (3 * LATE_CRITIC - 11 * 400)  # critic
        + (TRAIN_ACTOR + LATE_CRITIC + 300 + 300 * 3)  # actor, through the critic to the action
    ),
    "dqn": 100 * (BINS + 3 * BINS - 11 * 400),
    "bc": 100 * TRAIN_ACTOR,
    "vae-bc": 100 * (3 * ENCODER - 14 * 750 + 3 * DECODER - 11 * 750),
    "ensemble": 100
    * (
        4 * (ACTOR + CRITIC)
        + 4 * (3 * CRITIC - 14 * 400)
        + (TRAIN_ACTOR + 4 * (CRITIC + 300 + 300 * 400 + 400 * 3))
    ),
}


def make_batch() -> Minibatch:
    """Random numbers in the shape of Hopper's transitions."""
    random = np.random.default_rng(0)
    observations, following = random.normal(size=(2, TRANSITIONS, OBSERVATION)).astype(np.float32)
    return Minibatch(
        observations=jnp.asarray(observations),
        actions=jnp.asarray(random.uniform(-1, 1, (TRANSITIONS, ACTION)).astype(np.float32)),
        rewards=jnp.asarray(random.normal(size=TRANSITIONS).astype(np.float32)),
        next_observations=jnp.asarray(following),
        terminated=jnp.zeros(TRANSITIONS, bool),
    )


class Products:
    """Large matrix products, the yardstick."""

    def __init__(self) -> None:
        values = np.random.default_rng(1).normal(size=(SIZE, SIZE)).astype(np.float32)
        self.square, self.product = jnp.asarray(values), jax.jit(jnp.matmul)
        self.multiply_adds_per_second()

    def multiply_adds_per_second(self, repeats: int = 4) -> float:
        """How fast they are at this moment."""
        start = time.perf_counter()
        for _ in range(repeats):
            self.product(self.square, self.square).block_until_ready()
        return repeats * SIZE**3 / (time.perf_counter() - start)


class Updates:
    """Updates of one algorithm."""

    def __init__(self, name: str, batch: Minibatch):
        self.config, self.batch = ALGORITHMS[name](), batch
        create = jax.jit(self.config.create, static_argnums=(0, 1))
        self.learner = create(OBSERVATION, ACTION, jax.random.key(0))
        self.count = 10
        self.per_second()
        self.count = max(10, int(SECONDS * self.per_second()))

    def per_second(self) -> float:
        """How fast they are at this moment."""
        windows, key = jnp.array([TRANSITIONS]), jax.random.key(1)
        rows = self.config.batch_size
        start = time.perf_counter()
        _, totals = update_until(self.learner, self.batch, windows, key, 0, self.count, rows)
        for total in totals.values():
            total.block_until_ready()
        return self.count / (time.perf_counter() - start)


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("algorithms", nargs="*", metavar="algorithm", default=list(MULTIPLY_ADDS))
    arguments = parser.parse_args()
    batch, products = make_batch(), Products()
    print(f"{threads()} threads, {arguments.rounds} rounds; medians (quartiles)\n")
    print(f"{'':<10} {'updates/s':>24} {'share of the limit':>26}")
    for name in arguments.algorithms:
        updates = Updates(name, batch)
        speeds, shares = [], []
        before = products.multiply_adds_per_second()
        for _ in tqdm(range(arguments.rounds), name, leave=False):
            speeds.append(updates.per_second())
            after = products.multiply_adds_per_second()
            limit = (before + after) / 2 / MULTIPLY_ADDS[name]
            shares.append(speeds[-1] / limit)
            before = after
        cells = []
        for values, form in ((speeds, "{:.4g}"), (shares, "{:.0%}")):
            low, median, high = (form.format(v) for v in np.percentile(values, [25, 50, 75]))
            cells.append(f"{median} ({low} to {high})")
        print(f"{name:<10} {cells[0]:>24} {cells[1]:>26}")


if __name__ == "__main__":
    main()
