"""Loads batches; action bounds may come from their Gymnasium environment."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from bcq.data.actions import ActionKind
from bcq.data.dataset import Dataset
from bcq.data.missing import MissingChoice
from bcq.data.opening import Options, open_batch
from bcq.simulation.environments import registered_bounds


def load(
    path: str | Path,
    *,
    columns: Mapping[str, Sequence[str]] | None = None,
    environment: str | None = None,
    action_low: Sequence[float] | None = None,
    action_high: Sequence[float] | None = None,
    action_margin: float | None = None,
    action_kind: ActionKind = "auto",
    step_format: str | None = None,
    missing: MissingChoice = "refuse",
    lags: int = 0,
) -> Dataset:
    """Reads a batch and checks it: HDF5, npz, CSV, Parquet, or a Minari data set.

    `columns` says which columns of a table, or arrays of an npz file, are what, where their names
    are not usual. Action bounds: those given, or those of the data widened on each side by
    `action_margin` of their range, else the file's, else the environment's (the one given or the
    one the file names), else [-1, 1] if every action fits.

    Actions are choices if the file or the environment says so, or if they are names. With
    `action_kind` "auto" they also are if there are no bounds and the only action number takes the
    values 0, 1, ... without a gap, at most 16. "discrete" and "continuous" decide it.

    `step_format` is the format of the times in the column of the step, if they are text but not
    ISO. `missing` says what is done with cells without a value: refuse them, fill them with the
    last value of their episode, or cut out their rows. A reward is never filled. `lags` is the
    number of past steps, readings and actions, that an observation includes (`bcq.History`).
    """
    options = Options(
        columns=columns or {},
        environment=environment,
        action_low=action_low,
        action_high=action_high,
        action_margin=action_margin,
        action_kind=action_kind,
        step_format=step_format,
        missing=missing,
        lags=lags,
        bounds_of=registered_bounds,
    )
    return Dataset.from_checked(open_batch(path, options))
