"""Updates per second at Hopper's sizes, as a share of what matrix products allow.

    python benchmarks/updates.py [--rounds 30] [bcq ddpg dqn bc vae-bc ensemble]

Rounds of updates and of large matrix products alternate in one process, so that a machine whose
speed wanders treats both alike. The arithmetic of an update is counted by hand, whatever algebra
saves.
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np
from contenders import SQUARE, ours, per_second, transitions
from results import spread
from tqdm import tqdm

from bcq.runs.origin import threads

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


class Products:
    """Large matrix products, the yardstick."""

    def __init__(self) -> None:
        values = np.random.default_rng(1).normal(size=(SQUARE, SQUARE)).astype(np.float32)
        self.square, self.product = jnp.asarray(values), jax.jit(jnp.matmul)
        self.multiply(1)

    def multiply_adds_per_second(self, repeats: int = 4) -> float:
        """How fast they are at this moment."""
        return per_second(self.multiply, repeats) * SQUARE**3

    def multiply(self, count: int) -> None:
        """That many."""
        for _ in range(count):
            self.product(self.square, self.square).block_until_ready()


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("algorithms", nargs="*", metavar="algorithm", default=list(MULTIPLY_ADDS))
    arguments = parser.parse_args()
    products = Products()
    print(f"{threads()} threads, {arguments.rounds} rounds; medians (quartiles)\n")
    print(f"{'':<10} {'updates/s':>24} {'share of the limit':>26}")
    for name in arguments.algorithms:
        work = ours("Hopper-v5", transitions("Hopper-v5"), name)
        work(10)  # compiles
        count = max(10, int(SECONDS * per_second(work, 10)))
        speeds, shares = [], []
        before = products.multiply_adds_per_second()
        for _ in tqdm(range(arguments.rounds), name, leave=False):
            speeds.append(per_second(work, count))
            after = products.multiply_adds_per_second()
            limit = (before + after) / 2 / MULTIPLY_ADDS[name]
            shares.append(speeds[-1] / limit)
            before = after
        print(f"{name:<10} {spread(speeds, '{:.4g}'):>24} {spread(shares, '{:.0%}'):>26}")


if __name__ == "__main__":
    main()
