"""What measuring true values costs, against bare stepping plus the matrix products of acting.

    python benchmarks/true_values.py [--env Hopper-v5] [--rounds 3]

BCQ with fresh weights at the paper's sizes, 100 pairs of a random batch. Bare stepping repeats the
same number of steps in the same number of environments with actions drawn beforehand.
"""

import argparse
import time
from itertools import pairwise

import jax
import numpy as np
from updates import Products

from bcq.algorithms import BCQConfig
from bcq.collection.recipes import collect_random
from bcq.runs.origin import threads
from bcq.simulation.environments import make
from bcq.simulation.true_values import PAIRS, true_values
from bcq.training.policy import Policy


def multiply_adds_of_acting(observation: int, action: int, config: BCQConfig) -> float:
    """Of one state: n candidates through decoder, perturbation model and critic."""

    def network(*sizes: int) -> int:
        return sum(i * o for i, o in pairwise(sizes))

    latent = 2 * action
    one = (
        network(observation + latent, *config.vae_hidden_sizes, action)
        + network(observation + action, *config.hidden_sizes, action)
        + network(observation + action, *config.hidden_sizes, 1)
    )
    return config.num_acting_samples * one


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--env", default="Hopper-v5")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    dataset = collect_random(arguments.env, transitions=2_000)
    task, config = dataset.task, BCQConfig()
    learner = config.create(task.observation_size, task.action_size, jax.random.key(0))
    policy, rows, products = Policy(learner, task), np.arange(PAIRS) * 20, Products()
    environment = make(arguments.env, time_limit=False)
    steps = 0
    step = type(environment.unwrapped).step

    def counting(self, action):  # type: ignore[no-untyped-def]
        nonlocal steps
        steps += 1
        return step(self, action)

    ratios = []
    for _ in range(arguments.rounds + 1):  # the first compiles
        type(environment.unwrapped).step = counting  # type: ignore[method-assign]
        steps = 0
        start = time.perf_counter()
        true_values(policy, dataset, arguments.env, rows, 0.99, seed=0)
        whole = time.perf_counter() - start
        type(environment.unwrapped).step = step  # type: ignore[method-assign]

        actions = dataset.actions[np.random.default_rng(0).integers(len(dataset), size=steps)]
        environment.reset(seed=0)
        start = time.perf_counter()
        for action in actions:
            if environment.step(action)[2]:
                environment.reset()
        stepping = time.perf_counter() - start

        needed = steps * multiply_adds_of_acting(task.observation_size, task.action_size, config)
        acting = needed / products.multiply_adds_per_second()
        ratios.append(whole / (stepping + acting))
        print(
            f"{threads()} threads: {steps} steps in {whole:.2f} s; bare stepping {stepping:.2f} s, "
            f"matrix products of acting {acting:.2f} s; ratio {ratios[-1]:.2f}"
        )
    print(f"median ratio, without the first: {np.median(ratios[1:]):.2f}")


if __name__ == "__main__":
    main()
