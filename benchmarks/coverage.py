"""How often the 95% intervals of `bcq judge` contain the truth, on random finite MDPs.

Each repetition is a new MDP, a new log of uniformly random choices and a new policy. The values
are known exactly. Run: python benchmarks/coverage.py --repetitions 200
"""

import sys
from pathlib import Path

import numpy as np
import tyro
from scipy import stats

from bcq.judging.fitting import FitSettings
from bcq.judging.values import compare
from bcq.system import progress

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from judging_cases import CHOICES, DISCOUNT, STATES, log_of, random_mdp, table_policy

SETTINGS = FitSettings(period=1_000, learning_rate=0.01, hidden_sizes=())  # a table, as in theory


def main(repetitions: int = 200, episodes: int = 60, length: int = 20) -> None:
    """Prints the share of intervals that contain the truth, with its own 95% interval."""
    inside = {"policy": 0, "behaviour": 0, "difference": 0}
    wrong = better = unsettled = 0
    for seed in progress.over(range(repetitions), "repetitions", "repetition"):
        mdp = random_mdp(seed)
        mdp.chances[:] /= mdp.chances.sum(axis=2, keepdims=True)  # no end: shapes stay the same
        dataset = log_of(mdp, episodes, seed=seed, length=length)
        choices = np.random.default_rng(seed).integers(CHOICES, size=STATES)
        with progress.silenced(True):
            found = compare(
                table_policy(choices, dataset),
                dataset,
                discount=DISCOUNT,
                seed=seed,
                settings=SETTINGS,
            )
        policy = mdp.values(np.eye(CHOICES)[choices]).mean()  # every state is as often the first
        behaviour = mdp.values(np.full((STATES, CHOICES), 1 / CHOICES)).mean()
        truths = {"policy": policy, "behaviour": behaviour, "difference": policy - behaviour}
        for name, truth in truths.items():
            estimate = getattr(found, name)
            inside[name] += estimate.low < truth < estimate.high
        better += found.difference.low > 0
        wrong += found.difference.low > 0 >= truths["difference"]
        unsettled += not found.settled
    for name, count in inside.items():
        low, high = stats.binomtest(count, repetitions).proportion_ci(method="wilson")
        print(f"{name:<12} {count} of {repetitions} ({low:.1%} to {high:.1%})")
    print(f"above 0: {better}, of which wrong: {wrong}; not settled: {unsettled}")


if __name__ == "__main__":
    tyro.cli(main)
