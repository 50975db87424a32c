"""The roles of the columns of a log: given by options, by a mapping file or by common names."""

import json
import tomllib
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

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
}
LARGEST_FILE = 2**20  # bytes of a mapping file


def parse_columns(words: Sequence[str]) -> Names:
    """`observations=x,y actions=torque ...` on the command line, or the name of a mapping file."""
    if len(words) == 1 and "=" not in words[0]:
        return read_mapping(Path(words[0]))
    pairs = [word.split("=", 1) for word in words]
    if any(len(pair) != 2 for pair in pairs):
        raise InputError("columns: give NAME=COLUMN,COLUMN,... for each role, or one mapping file")
    given = [name for name, _ in pairs]
    if twice := next((name for name in given if given.count(name) > 1), None):
        raise InputError(f"columns: {twice} is given twice; separate its columns with commas")
    return check_mapping({name: columns.split(",") for name, columns in pairs}, "columns")


def as_words(names: Mapping[str, Sequence[str]]) -> str:
    """The mapping in the form of the command line: the inverse of `parse_columns`."""
    return " ".join(f"{role}={','.join(columns)}" for role, columns in names.items())


def read_mapping(path: Path) -> Names:
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


def check_mapping(content: Mapping[str, object], source: str) -> Names:
    """Checks the form of a mapping."""
    names: Names = {}
    for name, value in content.items():
        columns = [value] if isinstance(value, str) else value
        if name not in USUAL_NAMES:
            raise InputError(f"{source}: {name!r} is not one of {', '.join(USUAL_NAMES)}")
        if not isinstance(columns, list) or not all(isinstance(c, str) and c for c in columns):
            raise InputError(f"{source}: {name}: must be a column or a list of columns")
        names[name] = tuple(columns)
    return names


def find_columns(names: Mapping[str, Sequence[str]], usual: Names, present: list[str]) -> Names:
    """The columns of each role: those given, which must exist, or those with common names."""
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
    free = [name for name in present if name not in taken]
    for ours, patterns in usual.items():
        if ours not in found:
            sets = (tuple(n for n in free if fnmatchcase(n, pattern)) for pattern in patterns)
            if first := next((columns for columns in sets if columns), None):
                found[ours] = first
    return found
