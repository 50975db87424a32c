"""The roles of the columns of a log: given by options, by a mapping file or by common names."""

import json
import tomllib
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import get_args

from bcq.data.actions import ActionKind
from bcq.data.missing import MissingChoice
from bcq.system.errors import InputError
from bcq.system.files import require_regular

Names = dict[str, tuple[str, ...]]  # our name -> names in the file, in which * stands for any text

# Common names of each role. `done` is not included: it does not say which kind of end it marks.
USUAL_NAMES: Names = {
    "episode": ("episode", "episode_id", "trajectory", "trajectory_id"),
    "step": ("step", "timestep", "time", "timestamp"),
    "observations": ("observations", "observation", "obs", "states", "state"),
    "actions": ("actions", "action", "acts", "act"),
    "rewards": ("rewards", "reward", "rews", "rew"),
    "next_observations": ("next_observations", "next_observation", "next_obs", "next_states"),
    "terminated": ("terminated", "terminals", "terminal", "terminations"),
    "truncated": ("truncated", "timeouts", "timeout", "truncations", "time_out"),
    "qpos": ("qpos",),
    "qvel": ("qvel",),
    "permitted": ("permitted", "action_mask"),
    "next_permitted": ("next_permitted", "next_action_mask"),
    "propensities": ("propensities", "propensity", "action_probability", "behaviour_probability"),
}
# How the columns are read, with the choices if there are few.
SETTINGS: Mapping[str, tuple[str, ...]] = {
    "step_format": (),
    "missing": get_args(MissingChoice),
    "action_kind": get_args(ActionKind),
    "lags": (),
}
LARGEST_FILE = 2**20  # bytes of a mapping file


def parse_columns(words: Sequence[str]) -> tuple[Names, dict[str, str | int]]:
    """`observations=x,y actions=torque ...` on the command line, or the name of a mapping file.

    Returns the columns by role, and the settings (`SETTINGS`).
    """
    if len(words) == 1 and "=" not in words[0]:
        return read_mapping(Path(words[0]))
    pairs = [word.split("=", 1) for word in words]
    if any(len(pair) != 2 for pair in pairs):
        raise InputError("columns: give NAME=COLUMN,COLUMN,... for each role, or one mapping file")
    given = [name for name, _ in pairs]
    if twice := next((name for name in given if given.count(name) > 1), None):
        raise InputError(f"columns: {twice} is given twice; separate its columns with commas")
    content = {name: text if name in SETTINGS else text.split(",") for name, text in pairs}
    return check_mapping(content, "columns")


def as_words(names: Mapping[str, Sequence[str]]) -> str:
    """The mapping in the form of the command line: the inverse of `parse_columns`."""
    return " ".join(f"{role}={','.join(columns)}" for role, columns in names.items())


def read_mapping(path: Path) -> tuple[Names, dict[str, str | int]]:
    """Reads a mapping file (JSON or TOML): each name with its column or list of columns."""
    require_regular(path)
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise InputError(f"{path}: is too large for a mapping file")
        text = path.read_text(encoding="utf-8")
        content = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: is neither JSON nor TOML: {error}") from error
    if not isinstance(content, dict):
        raise InputError(f"{path}: must map names to columns")
    return check_mapping(content, str(path))


def check_mapping(content: Mapping[str, object], source: str) -> tuple[Names, dict[str, str | int]]:
    """Checks the form of a mapping; columns and settings."""
    names: Names = {}
    settings: dict[str, str | int] = {}
    for name, value in content.items():
        if name in SETTINGS:
            settings[name] = check_setting(name, value, source)
            continue
        columns = [value] if isinstance(value, str) else value
        if name not in USUAL_NAMES:
            known = ", ".join((*USUAL_NAMES, *SETTINGS))
            raise InputError(f"{source}: {name!r} is not one of {known}")
        if not isinstance(columns, list) or not all(isinstance(c, str) and c for c in columns):
            raise InputError(f"{source}: {name}: must be a column or a list of columns")
        names[name] = tuple(columns)
    return names, settings


def check_setting(name: str, value: object, source: str) -> str | int:
    """Checks the value of a setting; a number may be written as text."""
    if name == "lags":
        short = isinstance(value, str) and value.isdecimal() and len(value) < 10
        number = int(str(value)) if short else value
        if type(number) is not int or number < 0:
            raise InputError(f"{source}: lags: must be a whole number, 0 or more")
        return number
    allowed = SETTINGS[name]
    if not isinstance(value, str) or (allowed and value not in allowed):
        raise InputError(f"{source}: {name}: must be {' or '.join(allowed) or 'a text'}")
    return value


def find_columns(names: Mapping[str, Sequence[str]], usual: Names, present: list[str]) -> Names:
    """The columns of each role: those given, which must exist, or those with common names.

    A column whose name fits two roles has the one with the longer name: `action_mask_0` says what
    is permitted, although it begins like an action.
    """
    found: Names = {}
    for ours, patterns in names.items():
        for pattern in patterns:
            matching = tuple(name for name in present if fnmatchcase(name, pattern))
            if not matching:
                raise InputError(
                    f"{ours}: there is no column {pattern} (there are {', '.join(present[:50])})"
                )
            found[ours] = found.get(ours, ()) + matching
    given = [column for columns in found.values() for column in columns]
    taken = set(given)
    if len(taken) < len(given):
        twice = next(column for column in given if given.count(column) > 1)
        raise InputError(f"columns: {twice} is given twice; a column can have only one role")
    every = [pattern for patterns in usual.values() for pattern in patterns]
    free = [name for name in present if name not in taken]
    closest = {
        name: max((p for p in every if fnmatchcase(name, p)), key=len, default="") for name in free
    }
    for ours, patterns in usual.items():
        if ours not in found:
            own = [name for name in free if closest[name] in patterns]
            sets = (tuple(n for n in own if fnmatchcase(n, pattern)) for pattern in patterns)
            if first := next((columns for columns in sets if columns), None):
                found[ours] = first
    return found
