"""What verbs share."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from bcq.cli.application import HINTS, NOTHING_SAVED
from bcq.data.actions import ActionKind
from bcq.data.bounds import TaskSpec
from bcq.data.columns import Finding
from bcq.data.formats.mapping import as_words, parse_columns
from bcq.data.formats.minari import PREFIX
from bcq.data.missing import MissingChoice
from bcq.data.opening import Options
from bcq.simulation.environments import make, registered_bounds
from bcq.system import progress
from bcq.system.errors import InputError

CONTINUES = "finished work is kept; run the same command to continue"


@dataclass(frozen=True, kw_only=True)
class Verb:
    """Options of every verb that takes some time."""

    quiet: bool = False
    """print only errors and the result, no progress and no warnings"""
    if_stopped: ClassVar[str] = NOTHING_SAVED


@dataclass(frozen=True, kw_only=True)
class ReadingOptions:
    """Information that may be missing in the file of the batch."""

    columns: tuple[str, ...] = ()
    """columns of a table (or arrays of an npz file) by role, if their names are not common ones:
    observations=x,y actions=torque rewards=r terminated=fell truncated=cut episode=run step=t;
    or one mapping file, JSON or TOML"""
    action_low: tuple[float, ...] | None = None
    """lower bounds of the actions, one per dimension, if the file does not contain them"""
    action_high: tuple[float, ...] | None = None
    """upper bounds of the actions, one per dimension"""
    action_margin: float | None = None
    """take the bounds from the data, plus this share of their range on each side"""

    action_kind: ActionKind | None = None
    """continuous (actions are quantities between bounds) or discrete (actions are choices: their
    numbers 0, 1, ... or their names); if not given, as the mapping file says, else auto: discrete
    if the file or the environment says so, or if the only action has no bounds and takes the
    values 0, 1, ... without a gap, at most 16"""

    step_format: str | None = None
    """format of the times in the column of the step, if they are text but not ISO, such as
    %d.%m.%Y %H:%M"""
    missing: MissingChoice | None = None
    """cells without a value: refuse them, fill them with the last value of their episode, or cut
    out their rows; a reward is never filled; if not given, as the mapping file says, else refuse"""

    lags: int | None = None
    """number of past steps of the same episode, readings and actions, that each observation
    includes where one reading does not make a state; if not given, as the mapping file says,
    else 0"""

    def options(self, environment: str | None = None) -> Options:
        """The options for the reader."""
        names, settings = parse_columns(self.columns) if self.columns else ({}, {})
        given = {
            "action_kind": self.action_kind,
            "step_format": self.step_format,
            "missing": self.missing,
            "lags": self.lags,
        }
        settings |= {name: value for name, value in given.items() if value is not None}
        return Options(
            columns=names,
            environment=environment,
            action_low=self.action_low,
            action_high=self.action_high,
            action_margin=self.action_margin,
            bounds_of=registered_bounds,
            **settings,  # type: ignore[arg-type] # of the right kind: checked where they were read
        )


def with_hint(finding: Finding) -> Finding:
    """The finding with the option that helps added to its remedy."""
    if finding.option is None:
        return finding
    return replace(finding, remedy=f"{finding.remedy}; {HINTS[finding.option]}")


def existing(environment: str | None) -> str | None:
    """Refuses an environment that cannot be made; its name was given by the user."""
    if environment is not None:
        make(environment).close()
    return environment


def say_columns(names: Mapping[str, Sequence[str]]) -> None:
    """Says which columns were used for what; common names are used without being asked for."""
    if names:
        progress.say(f"columns: {as_words(names)}")


def say_choices(task: TaskSpec) -> None:
    """Says that the actions are choices; small whole numbers are taken for them."""
    if task.choices is not None:
        shown = ", ".join(task.choices[:16]) + (", ..." if len(task.choices) > 16 else "")
        progress.say(f"actions: {len(task.choices)} choices ({shown})")


def beside(data: Path) -> Path:
    """A path for files about a batch: next to it, or in the current folder for minari:NAME."""
    return Path(data.name.removeprefix(PREFIX)) if str(data).startswith(PREFIX) else data


def parse_seeds(text: str) -> list[int]:
    """Parses seeds such as 0..14 or 0,2,5."""
    try:
        if ".." in text:
            first, last = text.split("..")
            seeds = list(range(int(first), int(last) + 1))
        else:
            seeds = [int(part) for part in text.split(",")]
    except ValueError as error:
        raise InputError(f"seeds: {text!r} is not like 0..14 or 0,2,5") from error
    if not seeds or len(set(seeds)) < len(seeds):
        raise InputError(f"seeds: {text!r} contains no seed, or the same seed twice")
    return seeds
