"""What the bundled experts return if their actions are moved by Phi.

    python benchmarks/experts_moved.py --env Hopper-v5 [--size 0.05] [--episodes 20]

BCQ may move an action by Phi. This moves the actions of the experts themselves: at random, and
steadily in one joint. Episode i begins in the same state for all.
"""

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
from results import record

from bcq.collection.experts import bundled, find
from bcq.data.columns import Floats
from bcq.simulation.evaluation import evaluate
from bcq.training.policy import Policy

Move = Callable[[tuple[int, ...]], Floats]  # from the shape of the actions, in half-widths


class Moved:
    """A policy whose actions are moved, within the bounds."""

    def __init__(self, policy: Policy, move: Move):
        self.policy, self.move, self.task = policy, move, policy.task

    def act(self, observations: Floats, **known: Any) -> Floats:
        """The policy's actions and the move."""
        low, high = self.task.bounds.low, self.task.bounds.high
        actions = self.policy.act(observations, **known)
        moved = actions + self.move(actions.shape) * (high - low) / 2
        return np.clip(moved, low, high).astype(np.float32)


def moves(joints: int, size: float) -> dict[str, Move]:
    """No move, the largest one in a random direction at each step, and steady ones of one joint."""
    random = np.random.default_rng(0)

    def steady(joint: int, step: float) -> Move:
        return lambda shape: np.float32(step) * np.eye(joints, dtype=np.float32)[[joint] * shape[0]]

    return {
        "not moved": lambda shape: np.zeros(shape, np.float32),
        f"{size:g} at random": lambda shape: (
            np.float32(size) * np.sign(random.uniform(-1, 1, shape)).astype(np.float32)
        ),
        **{
            f"joint {joint} {step:+g}": steady(joint, step)
            for joint in range(joints)
            for step in (-size, size)
        },
    }


def main() -> None:
    """Prints and keeps the mean returns."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--env", required=True)
    parser.add_argument("--size", type=float, default=0.05)
    parser.add_argument("--episodes", type=int, default=20)
    given = parser.parse_args()
    experts = bundled(given.env)
    if not experts or find("0", given.env).policy.task.choices:
        parser.error(f"{given.env} has no bundled experts whose actions are quantities")
    found: dict[str, dict[str, float]] = {}
    for number in range(len(experts)):
        policy = find(str(number), given.env).policy
        print(f"{given.env}, expert {number}, {given.episodes} episodes")
        found[str(number)] = {}
        for name, move in moves(policy.task.action_size, given.size).items():
            moved: Any = Moved(policy, move)
            result = evaluate(moved, given.env, episodes=given.episodes, seed=0)
            print(f"  {name:<26} {result.mean:8.0f} ± {result.std:.0f}", flush=True)
            found[str(number)][name] = round(float(result.mean), 1)
    record(f"experts moved, {given.env}", found)


if __name__ == "__main__":
    main()
