"""How often the intervals of `bcq compare` hold, on simulated seeds: the tables of docs/sweeps.md.

`python benchmarks/intervals.py`, about a minute. Each number is a share of 4,000 simulations.
"""

import numpy as np
from numpy.typing import NDArray

from bcq.experiments.statistics import LEVEL, Centre, best_of, interquartile_mean

SIMULATIONS, RESAMPLES, MANY = 4_000, 500, 2_000_000
KINDS = ("normal", "skewed (lognormal)", "one in five fails")

Numbers = NDArray[np.float64]


def draw(kind: str, size: int | tuple[int, ...], random: np.random.Generator) -> Numbers:
    """Returns of independent seeds."""
    if kind == KINDS[1]:
        return random.lognormal(size=size)
    failed = 10 * (random.random(size) < 0.2) if kind == KINDS[2] else 0
    return random.normal(size=size) - failed


def bootstrapped(values: Numbers, random: np.random.Generator) -> tuple[float, float]:
    """The percentile interval of the interquartile mean."""
    drawn = np.sort(values[random.integers(len(values), size=(RESAMPLES, len(values)))], axis=1)
    cut = len(values) // 4
    low, high = np.percentile(
        drawn[:, cut : len(values) - cut].mean(axis=1), [50 * (1 - LEVEL), 50 * (1 + LEVEL)]
    )
    return float(low), float(high)


def main() -> None:
    """Prints both tables in Markdown."""
    random = np.random.default_rng(0)
    truths = {kind: interquartile_mean(draw(kind, MANY, random)) for kind in KINDS}
    print("| seeds are | seeds | Student's, trimmed | bootstrap |\n|---|---|---|---|")
    for kind, truth in truths.items():
        for seeds in (3, 4, 5, 10, 20):
            held = np.zeros(2)
            for values in draw(kind, (SIMULATIONS, seeds), random):
                ends = Centre.of(values).interval(), bootstrapped(values, random)
                held += [low <= truth <= high for low, high in ends]
            ours, other = held / SIMULATIONS
            print(f"| {kind} | {seeds} | {ours:.1%} | {other:.1%} |")
    print("\n| seeds are | settings | seeds | widened | not widened | a best is named |")
    print("|---|---|---|---|---|---|")
    for kind, truth in truths.items():
        for settings, seeds in ((2, 5), (6, 3), (6, 5), (6, 10)):
            counts = np.zeros(3)
            for each in draw(kind, (SIMULATIONS, settings, seeds), random):
                centres = [Centre.of(values) for values in each]
                best = best_of(centres)
                ends = best.interval, centres[best.index].interval()
                counts += [*(low <= truth <= high for low, high in ends), best.is_clear]
            widened, plain, named = counts / SIMULATIONS
            print(f"| {kind} | {settings} | {seeds} | {widened:.1%} | {plain:.1%} | {named:.1%} |")
    print("\n| one of four is better by | 3 seeds | 5 seeds | 10 seeds |\n|---|---|---|---|")
    for lead in (2.0, 4.0):
        shares = [named(lead, seeds, random) for seeds in (3, 5, 10)]
        print(f"| {lead:g} standard deviations | {' | '.join(f'{one:.0%}' for one in shares)} |")


def named(lead: float, seeds: int, random: np.random.Generator) -> float:
    """How often the best of four settings is named."""
    draws = random.normal(size=(SIMULATIONS, 4, seeds))
    draws[:, 0] += lead
    best = [best_of([Centre.of(values) for values in each]) for each in draws]
    return float(np.mean([one.is_clear and one.index == 0 for one in best]))


if __name__ == "__main__":
    main()
