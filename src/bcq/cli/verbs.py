"""What verbs share."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from bcq.cli.application import NOTHING_SAVED
from bcq.data.formats.mapping import parse_columns
from bcq.data.formats.minari import PREFIX
from bcq.data.opening import Options
from bcq.simulation.environments import registered_bounds

GOES_ON = "what was finished is kept; the same command goes on from there"


@dataclass(frozen=True, kw_only=True)
class Verb:
    """What every verb that takes a while has."""

    quiet: bool = False
    """say nothing but errors and the result: no progress, no warnings"""
    if_stopped: ClassVar[str] = NOTHING_SAVED


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What a file of logs may not say of itself."""

    columns: tuple[str, ...] = ()
    """which columns of a table (or arrays of an npz file) are what, where their names are not
    usual: observations=x,y actions=torque rewards=r terminated=fell truncated=cut episode=run
    step=t; or one mapping file, JSON or TOML"""
    action_low: tuple[float, ...] | None = None
    """lower bounds of the actions, one a dimension, where the file does not know them"""
    action_high: tuple[float, ...] | None = None
    """upper bounds of the actions"""
    action_margin: float | None = None
    """take the bounds from the data, widened on each side by this share of their range"""

    def options(self, environment: str | None = None) -> Options:
        """The same for the reader."""
        return Options(
            columns=parse_columns(self.columns) if self.columns else {},
            environment=environment,
            action_low=self.action_low,
            action_high=self.action_high,
            action_margin=self.action_margin,
            bounds_of=registered_bounds,
        )


def beside(data: Path) -> Path:
    """A path for what is made of a batch: beside it, or here if Minari keeps it."""
    return Path(data.name.removeprefix(PREFIX)) if str(data).startswith(PREFIX) else data
