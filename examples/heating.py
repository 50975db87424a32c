"""A heated room, in degrees and kilowatts: local time as text, and cells that a sensor lost."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from random import Random

from plants import Choose, Observation, Plant, Row, main

LOST = 0.02  # share of the readings


def episode(chance: Random, number: int, choose: Choose) -> Iterator[Row]:
    """A day, one row every quarter of an hour."""
    time = datetime(2026, 1, 1) + timedelta(days=number)
    inside, outside = chance.uniform(8, 24), chance.uniform(-10, 10)
    for _ in range(96):
        kilowatts = choose((inside, outside))
        after = inside + 0.3 * kilowatts - 0.05 * (inside - outside)
        yield {
            "day": f"{time:%a %d %b}",
            "time": f"{time:%d.%m.%Y %H:%M}",
            "inside": inside,
            "outside": "" if chance.random() < LOST else outside,
            "kilowatts": kilowatts,
            "comfort": -abs(after - 20) - 0.1 * kilowatts,
        }
        inside, outside = after, outside + chance.gauss(0, 0.2)
        time += timedelta(minutes=15)


def thermostat(chance: Random) -> Choose:
    """Heats by how much it is too cold, badly tuned."""

    def choose(observation: Observation) -> float:
        return min(max(chance.gauss(20 - observation[0], 3), 0), 6)

    return choose


PLANT = Plant("heating", "comfort", episode, thermostat)

if __name__ == "__main__":
    main(PLANT)
