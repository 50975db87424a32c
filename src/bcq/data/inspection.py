"""Summary of a batch: figures and one picture."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from bcq.data.dataset import Dataset
from bcq.data.formats.mapping import as_words
from bcq.system.colours import BATCH_COLOUR, COLOURS
from bcq.system.errors import InputError
from bcq.system.files import replacing

QUANTILES = (0, 10, 25, 50, 75, 90, 100)
BINS = 10  # of the action histogram, as DQN's
SIGNATURE = "bcq inspect"  # in the files of pictures
AT_BOUND = 1e-3  # of the half-width: closer than this counts as at the bound


def summary(dataset: Dataset, names: Mapping[str, Sequence[str]] | None = None) -> dict[str, Any]:
    """Sizes, episodes, returns, actions, ends, provenance, and names of columns by role."""
    starts, stops = dataset.episodes.T
    complete = dataset.is_end[stops - 1]
    scaled = dataset.bounds.normalise(dataset.actions)
    histogram = [np.histogram(column, BINS, (-1, 1))[0] for column in np.clip(scaled, -1, 1).T]
    lengths = (stops - starts)[complete]
    return {
        "transitions": len(dataset),
        "observation_size": dataset.task.observation_size,
        "action_size": dataset.task.action_size,
        "action_low": dataset.bounds.low.tolist(),
        "action_high": dataset.bounds.high.tolist(),
        "episodes": {
            "complete": int(complete.sum()),
            "terminated": int(dataset.terminated.sum()),
            "truncated": int(dataset.truncated.sum()),
            "unfinished": int((~complete).sum()),
        },
        "returns": quantiles(dataset.episode_returns),
        "lengths": quantiles(lengths),
        "rewards": quantiles(dataset.rewards),
        "actions": {
            "histogram": [counts.tolist() for counts in histogram],
            "share_at_bounds": (np.abs(scaled) >= 1 - AT_BOUND).mean(axis=0).tolist(),
            "mean": dataset.actions.mean(axis=0, dtype=float).tolist(),
            "std": dataset.actions.std(axis=0, dtype=float).tolist(),
        },
        "simulator_states": dataset.qpos is not None,
        "provenance": vars(dataset.provenance),
        "columns": dict(names or {}),
        **({"numbers": list(dataset.layout.labels)} if dataset.layout.labels else {}),
        "fingerprint": dataset.fingerprint,
    }


def quantiles(values: np.ndarray) -> dict[str, float] | None:
    """Mean, standard deviation and quantiles; None without values."""
    if len(values) == 0:
        return None
    levels = np.percentile(values, QUANTILES)
    return {
        "mean": float(values.mean(dtype=float)),
        "std": float(values.std(dtype=float)),
        **{f"{q}%": float(level) for q, level in zip(QUANTILES, levels, strict=True)},
    }


def as_text(figures: dict[str, Any]) -> str:
    """The figures as text."""
    episodes, actions = figures["episodes"], figures["actions"]
    origin = {name: value for name, value in figures["provenance"].items() if value is not None}
    lines = [
        f"transitions    {figures['transitions']:,}",
        f"observations   {figures['observation_size']} numbers",
        f"actions        {figures['action_size']} numbers, from {figures['action_low']} "
        f"to {figures['action_high']}",
        f"episodes       {episodes['complete']:,} complete: {episodes['terminated']:,} terminated, "
        f"{episodes['truncated']:,} truncated"
        + ("; the last is unfinished" if episodes["unfinished"] else ""),
        f"simulator      {'states are stored' if figures['simulator_states'] else 'no states'}",
        "",
        f"{'':<14} {'mean':>9} {'std':>9} " + " ".join(f"{f'{q}%':>9}" for q in QUANTILES),
    ]
    for name in ("returns", "lengths", "rewards"):
        row = figures[name]
        cells = " ".join(f"{value:9.4g}" for value in row.values()) if row else "none"
        lines.append(f"{name:<14} {cells}")
    lines += [
        "",
        f"{'action':<8} {'mean':>8} {'std':>8} {'at bounds':>10}   share in {BINS} bins, %",
    ]
    for i, counts in enumerate(actions["histogram"]):
        shares = " ".join(f"{100 * count / figures['transitions']:3.0f}" for count in counts)
        lines.append(
            f"{i:<8} {actions['mean'][i]:8.3f} {actions['std'][i]:8.3f} "
            f"{actions['share_at_bounds'][i]:10.1%}   {shares}"
        )
    lines += ["", *(f"{name:<14} {value}" for name, value in origin.items())]
    if figures["columns"]:
        lines.append(f"{'columns':<14} {as_words(figures['columns'])}")
    if "numbers" in figures:
        lines.append(f"{'numbers':<14} {', '.join(figures['numbers'])}")
    return "\n".join([*lines, f"fingerprint    {figures['fingerprint'][:16]}…"])


def picture(dataset: Dataset, path: Path) -> None:
    """Returns of the complete episodes, in order and as a histogram; actions by dimension."""
    returns, scaled = dataset.episode_returns, dataset.bounds.normalise(dataset.actions)
    figure = Figure(figsize=(9, 3), layout="constrained", dpi=150)
    order, spread, actions = figure.subplots(1, 3)
    if len(returns):
        order.plot(np.arange(len(returns)), returns, ".", markersize=3, color=COLOURS["bcq"])
        distinct = np.ptp(returns) > 1e-6 * np.abs(returns).max()
        spread.hist(returns, bins=30 if distinct else 1, color=COLOURS["bcq"])
        spread.axvline(returns.mean(), color=BATCH_COLOUR, linestyle="--", linewidth=1)
        spread.set_title(f"mean {returns.mean():.0f}", fontsize=9, loc="right")
    order.set(xlabel="episode", ylabel="return")
    spread.set(xlabel="return", ylabel="episodes")
    edges = np.linspace(-1, 1, 2 * BINS + 1)
    for i, column in enumerate(scaled.T):
        share = np.histogram(np.clip(column, -1, 1), edges)[0] / len(column)
        actions.stairs(share, edges, label=f"{i}", linewidth=1.5)
    actions.set(xlabel="action (bounds at ±1)", ylabel="share")
    actions.legend(title="dimension", frameon=False, fontsize=7, title_fontsize=7)
    with replacing(path) as temporary:
        figure.savefig(temporary, format="png", metadata={"Software": SIGNATURE})


def require_own(picture: Path) -> None:
    """Refuses to replace a file that `picture` did not draw."""
    try:
        with picture.open("rb") as file:
            beginning = file.read(1_000)
    except OSError:  # there is none; whether one can be written is seen when it is
        return
    if SIGNATURE.encode() not in beginning:
        raise InputError(
            f"{picture}: already exists and is not a picture of this kind; name another file",
            option="picture",
        )
