"""How often the 95% intervals of `bcq judge` contain the truth, on random finite MDPs.

Each repetition is a new MDP, a new log of uniformly random choices and a new policy. The values
are known exactly. So are those that a log alone implies: the fits should find them. Run:
python benchmarks/coverage.py --repetitions 200
"""

import sys
from pathlib import Path

import numpy as np
import tyro
from numpy.typing import NDArray
from scipy import stats

from bcq.data.dataset import Dataset
from bcq.judging.fitting import FitSettings
from bcq.judging.values import Comparison, compare
from bcq.system import progress

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
import oracle_judging as oracle
from judging_cases import CHOICES, DISCOUNT, STATES, log_of, random_mdp, table_policy

# A table, as in theory: it has no errors in common that intervals would be widened for.
SETTINGS = FitSettings(period=1_000, learning_rate=0.01, hidden_sizes=(), widening=1.0)


def error(found: Comparison, dataset: Dataset, choices: NDArray[np.int64]) -> float:
    """How far the mean of the fits is from the exact values of their logs, in largest values."""
    states, following = (
        each.argmax(axis=1) for each in (dataset.observations, dataset.next_observations)
    )
    rows = [
        (int(s), int(a), float(r), int(n), bool(t))
        for s, a, r, n, t in zip(
            *(states, dataset.actions[:, 0], dataset.rewards, following, dataset.terminated),
            strict=True,
        )
    ]
    exact, largest = [], 0.0
    for counts in found.counts:
        drawn = np.repeat(dataset.episodes, counts, axis=0)
        log = [row for span in drawn for row in rows[slice(*span)]]
        table = oracle.tabular_fqe(log, np.eye(CHOICES)[choices], DISCOUNT, STATES, CHOICES)
        starts = states[dataset.episodes[:, 0]]
        exact.append((counts * table[starts, choices[starts]]).sum() / counts.sum())
        largest = max(largest, float(np.abs(table).max()))
    return float(abs(found.fits.mean() - np.mean(exact)) / largest)


def main(repetitions: int = 200, episodes: int = 60, length: int = 20) -> None:
    """Prints the share of intervals that contain the truth, with its own 95% interval."""
    inside = {"policy": 0, "behaviour": 0, "difference": 0}
    wrong = better = unsettled = 0
    errors = []
    for seed in progress.over(range(repetitions), "repetitions", "repetition"):
        mdp = random_mdp(seed)
        mdp.chances[:] /= (1 + 1e-12) * mdp.chances.sum(axis=2, keepdims=True)  # hardly ever an end
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
        errors.append(error(found, dataset, choices))
    for name, count in inside.items():
        low, high = stats.binomtest(count, repetitions).proportion_ci(method="wilson")
        print(f"{name:<12} {count} of {repetitions} ({low:.1%} to {high:.1%})")
    print(f"above 0: {better}, of which wrong: {wrong}; not settled: {unsettled}")
    median, most = np.quantile(errors, [0.5, 0.95])
    print(
        f"fits are off by {median:.2%} of the largest value in the median, by {most:.2%} in 95% of "
        f"the repetitions, by {max(errors):.2%} at most"
    )


if __name__ == "__main__":
    tyro.cli(main)
