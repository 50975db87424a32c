"""Summary of a batch: figures and one picture."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bcq.data.dataset import Dataset
from bcq.data.formats.mapping import as_words
from bcq.system.colours import BATCH_COLOUR, COLOURS
from bcq.system.errors import InputError
from bcq.system.files import replacing

QUANTILES = (0, 10, 25, 50, 75, 90, 100)
BINS = 10  # of the action histogram, as DQN's
SIGNATURE = "bcq inspect"  # in the files of pictures
MOST_BARS = 20  # choices in the picture
AT_BOUND = 1e-3  # of the half-width: closer than this counts as at the bound


def summary(dataset: Dataset, names: Mapping[str, Sequence[str]] | None = None) -> dict[str, Any]:
    """Sizes, episodes, returns, actions, ends, provenance, and names of columns by role."""
    starts, stops = dataset.episodes.T
    complete = dataset.is_end[stops - 1]
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
        "actions": choices_of(dataset) if dataset.task.choices else quantities_of(dataset),
        "simulator_states": dataset.qpos is not None,
        **({"propensities": quantiles(p)} if (p := dataset.propensities) is not None else {}),
        "provenance": vars(dataset.provenance),
        "columns": dict(names or {}),
        **({"numbers": list(dataset.layout.labels)} if dataset.layout.labels else {}),
        "fingerprint": dataset.fingerprint,
    }


def quantities_of(dataset: Dataset) -> dict[str, Any]:
    """Figures about continuous actions, one number per dimension."""
    scaled = dataset.bounds.normalise(dataset.actions)
    histogram = [np.histogram(column, BINS, (-1, 1))[0] for column in np.clip(scaled, -1, 1).T]
    return {
        "histogram": [counts.tolist() for counts in histogram],
        "share_at_bounds": (np.abs(scaled) >= 1 - AT_BOUND).mean(axis=0).tolist(),
        "mean": dataset.actions.mean(axis=0, dtype=float).tolist(),
        "std": dataset.actions.std(axis=0, dtype=float).tolist(),
    }


def choices_of(dataset: Dataset) -> dict[str, Any]:
    """Figures about choices: how often each was taken and, with masks, how often permitted."""
    names = dataset.task.choices or ()
    taken = np.bincount(dataset.bounds.normalise(dataset.actions), minlength=len(names))
    permitted = None if dataset.permitted is None else dataset.permitted.sum(axis=0).tolist()
    return {"choices": list(names), "taken": taken.tolist(), "permitted": permitted}


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
        f"actions        {figures['action_size']} choices"
        if "choices" in actions
        else f"actions        {figures['action_size']} numbers, from {figures['action_low']} "
        f"to {figures['action_high']}",
        f"episodes       {episodes['complete']:,} complete: {episodes['terminated']:,} terminated, "
        f"{episodes['truncated']:,} truncated"
        + ("; the last is unfinished" if episodes["unfinished"] else ""),
        f"simulator      {'states are stored' if figures['simulator_states'] else 'no states'}",
        "",
        f"{'':<14} {'mean':>9} {'std':>9} " + " ".join(f"{f'{q}%':>9}" for q in QUANTILES),
    ]
    for name in ("returns", "lengths", "rewards", "propensities"):
        if name not in figures:
            continue
        row = figures[name]
        cells = " ".join(f"{value:9.4g}" for value in row.values()) if row else "none"
        lines.append(f"{name:<14} {cells}")
    describe = choices_as_text if "choices" in actions else quantities_as_text
    lines += ["", *describe(actions, figures["transitions"])]
    lines += ["", *(f"{name:<14} {value}" for name, value in origin.items())]
    if figures["columns"]:
        lines.append(f"{'columns':<14} {as_words(figures['columns'])}")
    if "numbers" in figures:
        lines.append(f"{'numbers':<14} {', '.join(figures['numbers'])}")
    return "\n".join([*lines, f"fingerprint    {figures['fingerprint'][:16]}…"])


def quantities_as_text(actions: dict[str, Any], rows: int) -> list[str]:
    """A line for each dimension of continuous actions."""
    lines = [f"{'action':<8} {'mean':>8} {'std':>8} {'at bounds':>10}   share in {BINS} bins, %"]
    for i, counts in enumerate(actions["histogram"]):
        shares = " ".join(f"{100 * count / rows:3.0f}" for count in counts)
        lines.append(
            f"{i:<8} {actions['mean'][i]:8.3f} {actions['std'][i]:8.3f} "
            f"{actions['share_at_bounds'][i]:10.1%}   {shares}"
        )
    return lines


def choices_as_text(actions: dict[str, Any], rows: int) -> list[str]:
    """A line for each choice."""
    permitted = actions["permitted"]
    lines = [f"{'choice':<20} {'taken':>10} {'share':>7}{' permitted' if permitted else ''}"]
    for i, (name, count) in enumerate(zip(actions["choices"], actions["taken"], strict=True)):
        share = f" {permitted[i] / rows:9.1%}" if permitted else ""
        lines.append(f"{name:<20} {count:>10,} {count / rows:7.1%}{share}")
    return lines


def picture(dataset: Dataset, path: Path) -> None:
    """Returns of the complete episodes, in order and as a histogram; actions by dimension."""
    returns = dataset.episode_returns
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
    (draw_choices if dataset.task.choices else draw_quantities)(dataset, actions)
    with replacing(path) as temporary:
        figure.savefig(temporary, format="png", metadata={"Software": SIGNATURE})


def draw_quantities(dataset: Dataset, axes: Axes) -> None:
    """A histogram of each dimension of the actions."""
    edges = np.linspace(-1, 1, 2 * BINS + 1)
    for i, column in enumerate(dataset.bounds.normalise(dataset.actions).T):
        share = np.histogram(np.clip(column, -1, 1), edges)[0] / len(column)
        axes.stairs(share, edges, label=f"{i}", linewidth=1.5)
    axes.set(xlabel="action (bounds at ±1)", ylabel="share")
    axes.legend(title="dimension", frameon=False, fontsize=7, title_fontsize=7)


def draw_choices(dataset: Dataset, axes: Axes) -> None:
    """How often each choice was taken; the most common ones, if there are many."""
    figures = choices_of(dataset)
    common = np.argsort(figures["taken"])[::-1][:MOST_BARS][::-1]
    labels = [figures["choices"][i] for i in common]
    axes.barh(labels, [figures["taken"][i] / len(dataset) for i in common], color=COLOURS["bcq"])
    axes.set(xlabel="share", ylabel="choice")
    axes.tick_params(axis="y", labelsize=7)


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
