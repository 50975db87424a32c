"""What clients ask for: JSON of any kind comes in, checked rows go out."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from bcq.data.columns import Flags, Floats
from bcq.data.layout import ObservationColumn
from bcq.serving.policy import ServedPolicy
from bcq.system.errors import InputError

MOST_ROWS = 1_000  # of a request
LONGEST_NAME = 200  # characters of an episode or a decision
LONGEST_MESSAGE = 500
MOST_STEP = 2**53  # whole numbers up to here are exact in every JSON


class RequestError(Exception):
    """A request that cannot be answered: the status, and what the client should know."""

    def __init__(self, message: str, status: int = 400):
        super().__init__(message[:LONGEST_MESSAGE])
        self.status = status


@dataclass(frozen=True)
class Question:
    """The rows of a request to act."""

    observations: Floats  # (rows, numbers)
    permitted: Flags | None  # (rows, choices)
    episodes: Sequence[str | None]
    steps: Sequence[int | None]
    logged: Sequence[bool]
    many: bool  # whether the client sent a list


@dataclass(frozen=True)
class Outcome:
    """What a decision brought."""

    decision: str
    reward: float
    terminated: bool
    truncated: bool


def rows_of(body: bytes) -> tuple[list[Mapping[str, Any]], bool]:
    """One JSON object or a list of them, and whether it was a list."""
    try:
        content = json.loads(body, parse_constant=refuse_constant)
    except RequestError:
        raise
    except (ValueError, RecursionError) as error:
        raise RequestError(f"the body is not JSON: {str(error) or 'too deep'}") from error
    rows = content if isinstance(content, list) else [content]
    if not rows:
        raise RequestError("the list has no rows")
    if len(rows) > MOST_ROWS:
        raise RequestError(f"{len(rows)} rows; a request has at most {MOST_ROWS}", 413)
    for number, row in enumerate(rows):
        if not isinstance(row, dict):
            raise RequestError(f"row {number}: must be an object such as {{...}}")
    return rows, isinstance(content, list)


def refuse_constant(name: str) -> NoReturn:
    """NaN and Infinity, which Python's reader would take."""
    raise RequestError(f"{name} is not JSON; a value that is missing is null")


def question_of(body: bytes, policy: ServedPolicy) -> Question:
    """The rows of a request to act, checked."""
    rows, many = rows_of(body)
    masked = any("permitted" in row for row in rows)
    observations, masks = [], []
    for number, row in enumerate(rows):
        try:
            require_keys(row, ("observation", "permitted", "episode", "step", "logged"))
            observations.append(numbers_of(row.get("observation"), policy))
            if masked:
                masks.append(mask_of(row.get("permitted"), policy))
            check_place(row)
        except (RequestError, InputError) as error:
            place = f"row {number}: " if many else ""
            raise RequestError(f"{place}{error}") from error
    with np.errstate(over="ignore"):  # what becomes infinite is not valid
        numbers = np.array(observations, np.float64).astype(np.float32)
    return Question(
        numbers,
        np.array(masks, bool) if masked else None,
        [None if row.get("episode") is None else str(row["episode"]) for row in rows],
        [row.get("step") for row in rows],
        [row.get("logged", True) for row in rows],
        many,
    )


def require_keys(row: Mapping[str, Any], known: Sequence[str]) -> None:
    """Refuses a key that would have no effect."""
    if unknown := next((key for key in row if key not in known), None):
        raise RequestError(f"{unknown[:50]!r} is not one of {', '.join(known)}")


def numbers_of(observation: Any, policy: ServedPolicy) -> list[float]:
    """The numbers of an observation, which is a list of them or an object with their names."""
    size, columns = policy.task.observation_size, policy.columns
    if isinstance(observation, list):
        if len(observation) != size:
            raise RequestError(f"observation: has {len(observation)} numbers, but it needs {size}")
        numbers = [
            as_number(cell, f"observation, number {i}") for i, cell in enumerate(observation)
        ]
        require_categories(numbers, columns)
        return numbers
    if not isinstance(observation, dict):
        raise RequestError("observation: must be a list of numbers, or an object with their names")
    if not columns:
        raise RequestError("observation: the policy has no names; give a list of numbers")
    names = [column.name for column in columns]
    require_keys(observation, names)
    if missing := next((name for name in names if name not in observation), None):
        raise RequestError(f"observation: {missing!r} is missing; a missing value is null")
    return [n for column in columns for n in numbers_in(column, observation[column.name])]


def numbers_in(column: ObservationColumn, cell: Any) -> Sequence[float]:
    """The numbers of a named value: one, or one for each category."""
    if not column.categories:
        return [as_number(cell, column.name)]
    if not isinstance(cell, str | None):
        raise RequestError(f"{column.name}: must be one of {', '.join(column.categories)}")
    return column.numbers(cell)


def as_number(cell: Any, name: str) -> float:
    """A number; NaN if there is no value."""
    if cell is None:
        return math.nan
    if isinstance(cell, bool) or not isinstance(cell, int | float):
        raise RequestError(f"{name}: must be a number, or null")
    try:
        return float(cell)
    except OverflowError:  # a whole number of hundreds of digits
        return math.inf


def require_categories(numbers: Sequence[float], columns: Sequence[ObservationColumn]) -> None:
    """Refuses categories of which not exactly one is set: no state is like that."""
    first = 0
    for column in columns:
        own = numbers[first : first + len(column.labels)]
        first += len(column.labels)
        known = not any(map(math.isnan, own))
        if column.categories and known and (sum(own) != 1 or set(own) - {0.0, 1.0}):
            raise RequestError(f"observation: exactly one of {', '.join(column.labels)} must be 1")


def mask_of(permitted: Any, policy: ServedPolicy) -> list[bool]:
    """Which choices are permitted; all if a row does not say it."""
    choices = policy.task.choices
    if choices is None:
        raise RequestError("permitted: the actions of this policy are numbers, not choices")
    if permitted is None:
        return [True] * len(choices)
    if not isinstance(permitted, list) or not permitted:
        raise RequestError("permitted: must be a list of choices, at least one")
    if unknown := next((name for name in permitted if name not in choices), None):
        raise RequestError(f"permitted: {str(unknown)[:50]!r} is not one of {', '.join(choices)}")
    return [name in permitted for name in choices]


def check_place(row: Mapping[str, Any]) -> None:
    """Refuses an episode, a step or a wish to be logged of the wrong kind."""
    episode, step, logged = row.get("episode"), row.get("step"), row.get("logged", True)
    if type(episode) is int:
        episode = str(episode) if abs(episode) <= MOST_STEP else ""
    if episode is not None:
        require_name("episode", episode)
    if step is not None and (type(step) is not int or abs(step) > MOST_STEP):
        raise RequestError("step: must be a whole number")
    if not isinstance(logged, bool):
        raise RequestError("logged: must be true or false")


def require_name(field: str, text: Any) -> str:
    """Refuses what is not a short text."""
    printable = isinstance(text, str) and text.isprintable()
    if not printable or not 1 <= len(text) <= LONGEST_NAME:
        raise RequestError(f"{field}: must be a text of 1 to {LONGEST_NAME} characters in one line")
    return str(text)


def outcomes_of(body: bytes) -> list[Outcome]:
    """The outcomes in a request, checked."""
    rows, many = rows_of(body)
    found = []
    for number, row in enumerate(rows):
        try:
            require_keys(row, ("decision", "reward", "terminated", "truncated"))
            flags = [row.get(name, False) for name in ("terminated", "truncated")]
            reward = as_number(row.get("reward"), "reward")
            if not all(isinstance(flag, bool) for flag in flags):
                raise RequestError("terminated, truncated: must be true or false")
            if not abs(reward) <= float(np.finfo(np.float32).max):
                raise RequestError("reward: must be a finite number")
            found.append(Outcome(require_name("decision", row.get("decision")), reward, *flags))
        except RequestError as error:
            place = f"row {number}: " if many else ""
            raise RequestError(f"{place}{error}") from error
    return found
