"""A stirred tank: twelve sensors in SI units, from 1e-4 to 1e5, and a valve in percent."""

from collections.abc import Iterator
from math import exp
from random import Random

from plants import Choose, Observation, Plant, Row, main

WANTED = 0.5  # share of the input that reacts


def sensors(chance: Random, heat: float, share: float, coolant: float) -> Row:
    """What is measured: three states, each several times, and what does not matter."""
    kelvin = 300 + 50 * heat
    return {
        "reactor_K": kelvin + chance.gauss(0, 0.5),
        "jacket_K": kelvin - 12 + chance.gauss(0, 0.5),
        "outlet_K": kelvin - 3 + chance.gauss(0, 1),
        "coolant_K": 280 + 10 * coolant + chance.gauss(0, 0.2),
        "pressure_Pa": 101_325 + 8_000 * heat + chance.gauss(0, 50),
        "feed_Pa": 250_000 + chance.gauss(0, 500),
        "product_mol_per_l": 2e-4 * share + chance.gauss(0, 2e-6),
        "input_mol_per_l": 2e-4 * (1 - share) + chance.gauss(0, 2e-6),
        "level_m": 1.7 + chance.gauss(0, 0.01),
        "flow_m3_per_s": 3e-3 + chance.gauss(0, 1e-5),
        "stirrer_rpm": 240 + chance.gauss(0, 1),
        "door_open": float(chance.random() < 0.001),
    }


def episode(chance: Random, number: int, choose: Choose) -> Iterator[Row]:
    """A shift of 80 rows. The reaction heats itself; the valve lets coolant in."""
    heat, share, coolant = chance.uniform(0.2, 0.8), chance.uniform(0.3, 0.7), chance.gauss(0, 0.3)
    for step in range(80):
        seen = sensors(chance, heat, share, coolant)
        valve = choose(list(seen.values()))
        rate = exp(1.5 * (heat - 0.5)) * (1 - share)
        heat += 0.1 * (rate - 0.25) - 0.002 * (valve - 50) * (1 - 0.3 * coolant)
        share += 0.2 * (rate - share)
        heat = min(max(heat, -0.5), 1.5)
        profit = 10 - 100 * (share - WANTED) ** 2 - 40 * (heat - 0.5) ** 2
        yield {"shift": number, "step": step, **seen, "valve": valve, "profit": profit}
        coolant = 0.95 * coolant + chance.gauss(0, 0.05)


def operator(chance: Random) -> Choose:
    """Opens the valve when it gets warm, late and by feel."""

    def choose(observation: Observation) -> float:
        warm = (observation[0] - 325) / 50
        return min(max(50 + 30 * warm + chance.gauss(0, 15), 0), 100)

    return choose


PLANT = Plant("process", "profit", episode, operator, episodes=60)

if __name__ == "__main__":
    main(PLANT)
