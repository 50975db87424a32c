"""Blood pressure and three treatments, one of them not for everyone: choices with masks."""

from collections.abc import Iterator
from random import Random

from plants import Choose, Observation, Plant, Row, main

EFFECT = {"none": 0.0, "low": 6.0, "high": 14.0}
BURDEN = {"none": 0.0, "low": 0.2, "high": 0.6}
TOO_OLD = 70  # years: no high dose


def allowed(observation: Observation) -> list[str]:
    """The treatments that there are for a patient."""
    return ["none", "low", "high"] if observation[1] < TOO_OLD else ["none", "low"]


def chances(pressure: float, age: float) -> dict[str, float]:
    """The doctor's habits: mostly the same by pressure, sometimes anything."""
    names = allowed((pressure, age))
    usual = "none" if pressure < 130 else "low" if pressure < 150 else names[-1]
    return {name: 0.7 * (name == usual) + 0.3 / len(names) for name in names}


def episode(chance: Random, number: int, choose: Choose) -> Iterator[Row]:
    """A patient, one row a day."""
    pressure, age = chance.gauss(125, 15), chance.randint(30, 85)
    for day in range(20):
        treatment = choose((pressure, age))
        after = pressure + chance.gauss(2, 3) - EFFECT[treatment]
        yield {
            "patient": f"P{number:03}",
            "day": day,
            "pressure": pressure,
            "age": age,
            "treatment": treatment,
            "health": -abs(after - 115) / 10 - BURDEN[treatment],
            "propensity": chances(pressure, age).get(treatment, 0.0),
            **{f"permitted_{name}": int(name in allowed((pressure, age))) for name in EFFECT},
        }
        pressure = after


def doctor(chance: Random) -> Choose:
    """Takes a treatment by its chances."""

    def choose(observation: Observation) -> str:
        habits = chances(*observation)
        return chance.choices(list(habits), list(habits.values()))[0]

    return choose


PLANT = Plant("treatment", "health", episode, doctor, episodes=200, permitted=allowed)

if __name__ == "__main__":
    main(PLANT)
