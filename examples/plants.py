"""Writes the log of a plant, and plays a learned policy in it."""

import csv
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import bcq

Observation = Sequence[float]
Choose = Callable[[Observation], Any]  # an action for an observation
Row = dict[str, Any]  # of the log: columns by name


class Plant(NamedTuple):
    """Something that is controlled, and who controlled it while the log was written."""

    name: str
    reward: str  # its column
    episode: Callable[[random.Random, int, Choose], Iterator[Row]]  # of a number
    behaviour: Callable[[random.Random], Choose]
    episodes: int = 40  # in the log
    permitted: Callable[[Observation], Sequence[str]] | None = None  # choices, if not always all

    def play(self, number: int, choose: Choose | None = None) -> list[Row]:
        """One episode; what happens by chance depends on its number alone."""
        chance = random.Random(number)
        return list(self.episode(chance, number, choose or self.behaviour(random.Random(-number))))

    def write(self, path: str) -> None:
        """Writes the log."""
        rows = [row for number in range(1, self.episodes + 1) for row in self.play(number)]
        with Path(path).open("w", newline="", encoding="utf-8") as file:
            table = csv.DictWriter(file, rows[0])
            table.writeheader()
            table.writerows(rows)

    def judge(self, run: str, episodes: int = 20) -> dict[str, float]:
        """Mean return of a policy and of the behaviour, in episodes that are not in the log."""
        policy = bcq.Run.open(run).policy()

        def choose(observation: Observation) -> Any:
            names = policy.task.choices
            if names is None:
                return float(policy.act([observation])[0, 0])
            there = self.permitted(observation) if self.permitted else names
            return policy.choose([observation], permitted=[[n in there for n in names]])[0]

        numbers = range(1_001, 1_001 + episodes)
        return {
            who: sum(row[self.reward] for n in numbers for row in self.play(n, how)) / episodes
            for who, how in (("policy", choose), ("behaviour", None))
        }


def main(plant: Plant) -> None:
    """`log` writes NAME.csv; `judge RUN` prints returns."""
    match sys.argv[1:]:
        case ["log"]:
            plant.write(f"{plant.name}.csv")
        case ["judge", run]:
            for who, value in plant.judge(run).items():
                print(f"{who:<10} {value:8.1f}")
        case _:
            sys.exit(f"usage: {plant.name}.py log | judge RUN")
