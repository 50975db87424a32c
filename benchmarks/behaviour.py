"""What a behavioural agent's life costs, against its updates alone plus bare stepping.

    python benchmarks/behaviour.py [--env Hopper-v5] [--steps 20000]

A life is lived twice, the first to compile; the second, evaluations and checkpoints included, is
compared with the same number of updates in one call and the same actions stepped with nothing
else. Matrix products are timed before and after the updates.
"""

import argparse
import tempfile
import time
from pathlib import Path

import jax
import jax.numpy as jnp
from updates import MULTIPLY_ADDS, Products

from bcq.algorithms import DDPGConfig
from bcq.collection.behaviour import behaviour_dataset, train_behaviour
from bcq.data.dataset import Dataset
from bcq.runs.origin import threads
from bcq.runs.schedules import BehaviourSchedule
from bcq.simulation.environments import make
from bcq.training.loop import create_compiled, on_device, update_until


def updates_alone(dataset: Dataset, count: int, products: Products) -> tuple[float, float]:
    """Seconds for this many updates, and for their matrix products (at Hopper's sizes)."""
    task, config, batch = dataset.task, DDPGConfig(), on_device(dataset)
    learner = create_compiled(config, task.observation_size, task.action_size, jax.random.key(0))
    windows, key = jnp.array([len(dataset)]), jax.random.key(1)

    def update(stop: int) -> float:
        start = time.perf_counter()
        _, totals = update_until(learner, batch, None, windows, key, 0, stop, config.batch_size)
        for total in totals.values():
            total.block_until_ready()
        return time.perf_counter() - start

    update(10)
    before = products.multiply_adds_per_second()
    seconds = update(count)
    speed = (before + products.multiply_adds_per_second()) / 2
    return seconds, count * MULTIPLY_ADDS["ddpg"] / speed


def bare_stepping(dataset: Dataset, env: str) -> float:
    """Seconds to take the batch's actions in turn, starting anew whenever an episode ends."""
    environment = make(env)
    environment.reset(seed=0)
    start = time.perf_counter()
    for action in dataset.actions:
        _, _, terminated, truncated, _ = environment.step(action)
        if terminated or truncated:
            environment.reset()
    return time.perf_counter() - start


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--env", default="Hopper-v5")
    parser.add_argument("--steps", type=int, default=20_000)
    arguments = parser.parse_args()
    schedule = BehaviourSchedule(env=arguments.env, steps=arguments.steps)
    with tempfile.TemporaryDirectory() as folder:
        for life in ("first", "second"):
            start = time.perf_counter()
            run = train_behaviour(Path(folder) / life, DDPGConfig(), schedule)
            whole = time.perf_counter() - start
        dataset = behaviour_dataset(run, "concurrent")
        timing = run.read("timing.jsonl")
    products = Products()
    learned = max(row["step"] for row in timing)
    updates, limit = updates_alone(dataset, learned, products)
    stepping = bare_stepping(dataset, arguments.env)
    parts = {part: sum(row.get(part, 0.0) for row in timing) for part in ("acting", "learning")}
    print(f"{threads()} threads, {len(dataset)} steps of {arguments.env}, {learned} updates")
    print(f"whole life {whole:.1f} s: " + ", ".join(f"{k} {v:.1f} s" for k, v in parts.items()))
    print(f"the rest, mostly evaluations: {whole - sum(parts.values()):.1f} s")
    print(f"updates alone {updates:.1f} s, {limit / updates:.0%} of the matrix-multiply limit")
    print(f"bare stepping {stepping:.1f} s ({len(dataset) / stepping:.0f} steps/s)")
    print(
        f"ratio {whole / (updates + stepping):.2f}; without the rest "
        f"{sum(parts.values()) / (updates + stepping):.2f}"
    )


if __name__ == "__main__":
    main()
