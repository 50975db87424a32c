"""Fields that are shifted against each other: the most common cause of wrong results."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bcq.data.columns import Finding, Flags, Floats
from bcq.data.doctor.stored_batch import StoredBatch

SAMPLE = 5_000  # rows used for rough estimates
MOST_SIGNALS = 100  # numbers of an action; a regression on more takes long
EXACT = 1e-3  # of the spread of actions: an action explained to this is explained


def misaligned(batch: StoredBatch) -> Iterator[Finding]:
    """Next observations or ends that are shifted against the observations."""
    if len(batch) < 3:
        return
    broken: Flags | None = None
    if batch.next_observations is not None:
        broken = ~batch.same(batch.next_observations[:-1], batch.observations[1:])
        wrong = np.flatnonzero(broken & batch.inside)
        inner_ends = batch.ends[batch.ends < len(batch) - 1]
        if len(wrong) == 0 and (len(inner_ends) == 0 or broken[inner_ends].any()):
            return
        if 2 * len(wrong) > batch.inside.sum() and (offset := successor_offset(batch)) is not None:
            yield shifted("next_observations", offset, wrong)
            return
        if (offset := end_offset(batch, broken.astype(float), certain=True)) is not None:
            yield shifted("terminated", offset, batch.ends)
            return
        if len(wrong):
            yield mismatch(wrong)
            return
    if (offset := end_offset(batch, jumps(batch), certain=False)) is not None:
        yield shifted("terminated", offset, batch.ends)


def mismatch(wrong: NDArray[np.int64]) -> Finding:
    """Next observations that differ from the observation of the next row."""
    return Finding(
        "next-mismatch",
        "next_observations",
        f"{len(wrong)} rows within episodes differ from the observation of the next row",
        "check how the rows were joined; cut the episode where rows are missing or an end is not "
        "marked",
        "a wrong next observation leads to a wrong value; an unmarked end joins two episodes",
        wrong,
        "warning",
        option="fix",
    )


def shifted(field: str, offset: str, rows: NDArray[np.int64]) -> Finding:
    """A field that is shifted by one row, or by one more row with every episode."""
    grows = "episode" in offset
    return Finding(
        "growing-shift" if grows else "shift",
        field,
        f"is shifted by {offset} against the observations",
        "store T+1 observations per episode as T pairs" if grows else "shift it back by one row",
        "observations, actions and ends of one row belong to different steps, so training on them "
        "is meaningless",
        rows,
        "warning",
    )


def successor_offset(batch: StoredBatch) -> str | None:
    """The shift at which next observations match observations, in words, if there is one."""
    assert batch.next_observations is not None
    last = len(batch) - 1
    episode = np.searchsorted(batch.ends, batch.rows)
    for offset, words in (
        (np.full(len(batch), -1), "one row"),
        (np.full(len(batch), 1), "one row"),
        (episode, "one more row with every episode"),
        (-episode, "one more row with every episode"),
    ):
        place = batch.rows + 1 + offset
        rows = batch.rows[(place >= 0) & (place <= last)]
        rows = rows[:: max(1, len(rows) // SAMPLE)]
        if batch.same(batch.next_observations[rows], batch.observations[place[rows]]).mean() > 0.9:
            return words
    return None


def end_offset(batch: StoredBatch, breaks: NDArray[np.float64], *, certain: bool) -> str | None:
    """The shift at which ends match the breaks in the observations, in words, if there is one.

    `breaks` is a score between 0 and 1 for each row except the last: how likely an episode ends
    there. For unrelated rows its mean is about 0.5; the more ends, the closer to 0.5.
    """
    ends = batch.ends[batch.ends < len(batch) - 3]
    if len(ends) < 5:
        return None
    needed = 0.9 if certain else max(0.9, 0.5 + 1.3 / np.sqrt(len(ends)))
    episode = np.arange(len(ends))
    for offset, words in (
        (np.full(len(ends), -1), "one row"),
        (np.full(len(ends), 1), "one row"),
        (episode + 1, "one more row with every episode"),
        (episode, "one more row with every episode"),
        (-episode - 1, "one more row with every episode"),
        (-episode, "one more row with every episode"),
    ):
        places = ends + offset
        places = places[(places >= 0) & (places < len(breaks))]
        if len(places) >= 5 and breaks[places].mean() > max(needed, breaks[ends].mean() + 0.2):
            return words
    return None


def jumps(batch: StoredBatch) -> NDArray[np.float64]:
    """Distance of each observation from the next, as a rank between 0 and 1."""
    size = np.zeros(len(batch) - 1)
    for column in batch.observations.T:  # one at a time, to save memory
        steps = np.diff(column).astype(np.float64)
        size += (steps / max(steps.std(), 1e-12)) ** 2
    ranks = np.empty(len(size))
    ranks[np.argsort(size)] = np.arange(len(size)) / len(size)
    return ranks


def delayed(batch: StoredBatch) -> Iterator[Finding]:
    """Rewards or actions that are stored one row too late or too early."""
    two = np.flatnonzero(batch.inside[:-1] & batch.inside[1:])  # rows followed by two more
    width = batch.bounds.outputs
    needed = 20 * (2 * batch.observations.shape[1] + width)  # rows per feature
    if len(two) < needed or width > MOST_SIGNALS:
        return
    two = two[:: max(1, len(two) // max(SAMPLE, needed))]
    now, after, acted = batch.observations, batch.observations[1:], batch.signals
    known = with_bends(with_squares(now[two], after[two], acted[two]))
    unexplained = [residual(known, batch.rewards[two + late]) for late in (0, 1)]
    if unexplained[1] < 0.5 * unexplained[0] and unexplained[1] < 0.5:
        yield late_by_one("rewards", batch)
    # An action changes the next observation. If the action of another row explains the change much
    # better, the actions are shifted. But the next action of a controller reveals the observation
    # that it reacts to: only the part of an action that is no reaction counts.
    change = after[two + 1] - now[two + 1]
    late, right, early = (
        gain(now[two + 1], without_reaction(now[two + row], acted[two + row]), change)
        for row in (0, 1, 2)
    )
    if max(early, late) > 4 * right + 0.02:
        yield late_by_one("actions", batch)


def late_by_one(field: str, batch: StoredBatch) -> Finding:
    """A field that fits another row better than its own."""
    return Finding(
        "delayed-rewards" if field == "rewards" else "shifted-actions",
        field,
        "fit the previous or the next row much better than their own",
        "shift them by one row within each episode",
        "training would credit the wrong actions",
        batch.rows,
        "warning",
    )


def with_squares(*parts: NDArray[Any]) -> NDArray[np.float64]:
    """Features of a regression: a constant, the numbers, their squares."""
    values = np.concatenate(parts, axis=1).astype(np.float64)
    values = (values - values.mean(axis=0)) / np.maximum(values.std(axis=0), 1e-12)
    return np.concatenate([np.ones((len(values), 1)), values, values**2], axis=1)


def with_bends(features: NDArray[np.float64]) -> NDArray[np.float64]:
    """Adds random nonlinear features, for relations that squares do not fit, such as angles."""
    generator = np.random.default_rng(0)
    count = min(200, len(features) // 20)
    weights = generator.normal(size=(features.shape[1], count)) * 3 / np.sqrt(features.shape[1])
    return np.concatenate([features, np.tanh(features @ weights)], axis=1)


def residual(features: NDArray[np.float64], targets: NDArray[Any]) -> float:
    """Share of the targets' variance that a linear fit leaves unexplained."""
    centred = targets.astype(np.float64).reshape(len(targets), -1)
    centred = centred - centred.mean(axis=0)
    spread = centred.std(axis=0)
    if not (spread > 0).any():
        return 1.0
    centred = centred[:, spread > 0] / spread[spread > 0]
    return float(((centred - fitted(features, centred)) ** 2).mean())


def fitted(features: NDArray[np.float64], targets: NDArray[np.float64]) -> NDArray[np.float64]:
    """What a linear fit makes of the targets."""
    # The normal equations are exact enough here: the features are few and on one scale.
    inverse = np.linalg.pinv(features.T @ features, rcond=1e-9, hermitian=True)
    return features @ (inverse @ (features.T @ targets))


def without_reaction(observations: Floats, actions: Floats) -> NDArray[np.float64]:
    """The part of the actions that the observation of their row does not explain."""
    centred = actions.astype(np.float64) - actions.mean(axis=0, dtype=float)
    rest = centred - fitted(with_bends(with_squares(observations)), centred)
    return np.where(rest.std(axis=0) > EXACT * centred.std(axis=0), rest, 0.0)


def gain(observations: Floats, actions: NDArray[Any], change: Floats) -> float:
    """How much more of a change is explained if the action is known."""
    return residual(with_squares(observations), change) - residual(
        with_squares(observations, actions), change
    )
