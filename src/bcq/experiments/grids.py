"""Combinations of settings of an algorithm, from text such as `max_perturbation=0,0.05`."""

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from itertools import product
from typing import Any

from bcq.algorithms import name_of
from bcq.algorithms.learning import AlgorithmConfig
from bcq.system.errors import InputError


def sizes(text: str) -> tuple[int, ...]:
    """Several whole numbers, as in 256x256: a comma separates values of the grid."""
    return tuple(int(part) for part in text.split("x"))


# How a setting of each type is read, and what it is called.
READERS: dict[Any, tuple[Callable[[str], Any], str]] = {
    float: (float, "a number"),
    int: (int, "a whole number"),
    tuple[int, ...]: (sizes, "whole numbers as in 256x256"),
}


def combinations(config: AlgorithmConfig, grid: Sequence[str]) -> list[AlgorithmConfig]:
    """Every combination of the values in a grid; other settings are those of `config`."""
    values: dict[str, list[Any]] = {}
    for word in grid:
        name, sign, text = word.partition("=")
        if not sign:
            raise InputError(f"grid: {word!r} is not like max_perturbation=0,0.05,0.5")
        name = name.replace("-", "_")
        if name in values:
            raise InputError(f"grid: {name} is given twice; separate its values with commas")
        values[name] = read_values(config, name, text)
    found = []
    for chosen in product(*values.values()):
        try:
            found.append(replace(config, **dict(zip(values, chosen, strict=True))))
        except InputError as error:
            raise error.within("grid") from error
    return found


def read_values(config: AlgorithmConfig, name: str, text: str) -> list[Any]:
    """The values of one setting, of its type."""
    types = {each.name: each.type for each in fields(config)}
    if name not in types:
        raise InputError(
            f"grid: {name!r} is not a setting of {name_of(config)}; its settings are "
            f"{', '.join(types)}"
        )
    read, kind = READERS[types[name]]
    values = []
    for part in text.split(","):
        try:
            value = read(part)
        except ValueError as error:
            raise InputError(f"grid: {name}: {part!r} is not {kind}") from error
        if value != value:  # noqa: PLR0124 - only NaN differs from itself
            raise InputError(f"grid: {name}: {part!r} is not {kind}")
        if value in values:
            raise InputError(f"grid: {name}: {part} is given twice")
        values.append(value)
    return values
