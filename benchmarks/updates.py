"""Updates per second of BCQ at Hopper's sizes, as a share of what matrix products allow.

    python benchmarks/updates.py [--rounds 30]

Rounds of updates and of large matrix products alternate in one process, so that a machine whose
speed wanders treats both alike. An update needs 1.50 G multiply-adds by hand count, whatever
algebra saves.
"""

import argparse
import time

import jax
import jax.numpy as jnp
import numpy as np
from tqdm import tqdm

from bcq.algorithms import BCQConfig
from bcq.learning import Minibatch
from bcq.runs import threads
from bcq.training import update_until

OBSERVATION, ACTION, TRANSITIONS = 11, 3, 100_000
UPDATE = 1.50e9  # multiply-adds
SIZE = 2048  # of the square matrices whose product is the yardstick


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


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    rounds = parser.parse_args().rounds

    learner = jax.jit(BCQConfig().create, static_argnums=(0, 1))(
        OBSERVATION, ACTION, jax.random.key(0)
    )
    batch, key = make_batch(), jax.random.key(1)
    square = jnp.asarray(np.random.default_rng(1).normal(size=(SIZE, SIZE)).astype(np.float32))
    product = jax.jit(jnp.matmul)

    def multiply_adds_per_second(repeats: int = 4) -> float:
        start = time.perf_counter()
        for _ in range(repeats):
            product(square, square).block_until_ready()
        return repeats * SIZE**3 / (time.perf_counter() - start)

    def updates_per_second(updates: int = 40) -> float:
        start = time.perf_counter()
        _, metrics = update_until(learner, batch, jnp.array([TRANSITIONS]), key, 0, updates, 100)
        metrics["vae_loss"].block_until_ready()
        return updates / (time.perf_counter() - start)

    updates_per_second(), multiply_adds_per_second()
    speeds, limits = [], []
    before = multiply_adds_per_second()
    for _ in tqdm(range(rounds), "rounds"):
        speeds.append(updates_per_second())
        after = multiply_adds_per_second()
        limits.append((before + after) / 2 / UPDATE)
        before = after
    shares = np.array(speeds) / np.array(limits)
    print(f"threads                {threads()}")
    for name, values in (("updates/s", speeds), ("limit, updates/s", limits), ("share", shares)):
        low, median, high = np.percentile(values, [25, 50, 75])
        print(f"{name:<22} {median:.3g}  (quartiles {low:.3g} to {high:.3g}, {rounds} rounds)")


if __name__ == "__main__":
    main()
