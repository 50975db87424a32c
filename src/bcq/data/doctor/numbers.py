"""Columns that are constant, copied, badly scaled or out of place."""

from collections.abc import Iterator
from hashlib import blake2b

import numpy as np

from bcq.data.bounds import Choices
from bcq.data.columns import Finding
from bcq.data.doctor.alignment import SAMPLE
from bcq.data.doctor.stored_batch import StoredBatch

FAR = 10.0  # from zero; measured: with a column at 17 ± 2, BCQ's VAE produced only one action


def constant_columns(batch: StoredBatch) -> Iterator[Finding]:
    """A constant column contains no information, or is the wrong column."""
    for field, values in (("observations", batch.observations), ("actions", batch.actions)):
        constant = np.flatnonzero((values == values[0]).all(axis=0))
        if len(constant) and len(batch) > 1:
            acts = field == "actions"
            yield Finding(
                "constant-column",
                field,
                f"constant {batch.in_words(field, constant)}",
                "remove it, or check that it is the right column",
                "the policy will always choose this value" if acts else "a constant adds nothing",
                batch.rows,
                "warning" if acts else "note",  # simulators have constants
            )


def duplicate_columns(batch: StoredBatch) -> Iterator[Finding]:
    """The same column twice is usually a mistake in the mapping."""
    for field, values in (("observations", batch.observations), ("actions", batch.actions)):
        seen: dict[bytes, int] = {}
        copies = []
        for i, column in enumerate(values.T):
            first = seen.setdefault(blake2b(np.ascontiguousarray(column).data).digest(), i)
            if first != i and np.ptp(column) > 0:
                copies.append(i)
        if copies:
            yield Finding(
                "duplicate-column",
                field,
                f"copies of other columns: {batch.in_words(field, copies)}",
                "remove it, or use the intended column instead",
                "a copy adds nothing, and the intended column is missing",
                batch.rows,
                "warning" if field == "actions" else "note",  # simulators have copies
            )


def flat_rewards(batch: StoredBatch) -> Iterator[Finding]:
    """If all rewards are equal, only ends distinguish actions."""
    if len(batch) > 1 and (batch.rewards == batch.rewards[0]).all():
        yield Finding(
            "constant-rewards",
            "rewards",
            f"are {batch.rewards[0]:g} in every row",
            "check that it is the right column",
            "only terminals distinguish a good action from a bad one",
            batch.rows,
            "note" if batch.terminated.any() else "warning",
        )


def far_from_bounds(batch: StoredBatch) -> Iterator[Finding]:
    """If actions use a small part of their range, they or the bounds may have a wrong scale."""
    if isinstance(batch.bounds, Choices):
        return
    reach = np.abs(batch.bounds.normalise(batch.actions)).max(axis=0)
    moving = np.ptp(batch.actions, axis=0) > 0
    small = np.flatnonzero(moving & (reach < 0.5))
    if len(small):
        yield Finding(
            "far-from-bounds",
            "actions",
            f"small range in {batch.in_words('actions', small)}: at most "
            f"{reach[small].min():.2g} of the way to the bounds",
            "check the bounds; give the true bounds as action_low and action_high",
            "the perturbation and the critics use a scale on which the bounds are -1 and 1",
            batch.rows,
            "warning" if reach[small].min() < 0.1 else "note",
            option="action_low",
        )


def discrete_actions(batch: StoredBatch) -> Iterator[Finding]:
    """Actions with few values: the algorithms choose any value between the bounds."""
    if isinstance(batch.bounds, Choices):
        return
    sample = batch.actions[:: max(1, len(batch) // SAMPLE)]
    few = [
        i
        for i, column in enumerate(sample.T)
        if np.ptp(column) > 0
        and len(column) >= 100
        and (len(np.unique(column)) <= 16 or (column % 1 == 0).all())
    ]
    if few:
        yield Finding(
            "discrete-actions",
            "actions",
            f"only {len(np.unique(sample[:, few[0]]))} values in {batch.in_words('actions', few)}",
            "if the only action is a choice, number the choices 0, 1, ... and set action_kind to "
            "discrete",
            "the policy will choose values in between, which were never tried",
            batch.rows,
            "warning",
            option="action_kind",
        )


def unused_choices(batch: StoredBatch) -> Iterator[Finding]:
    """Choices that the log never takes."""
    if isinstance(batch.bounds, Choices):
        taken = np.bincount(batch.actions[:, 0].astype(int), minlength=batch.bounds.outputs)
        unused = [name for name, count in zip(batch.bounds.names, taken, strict=True) if not count]
        if unused:
            more = f" and {len(unused) - 8} more" if len(unused) > 8 else ""
            yield Finding(
                "unused-choices",
                "actions",
                f"never taken: {', '.join(unused[:8])}{more}",
                "no action needed if the log is like that",
                "nothing can be learned about them; BCQ does not take them, DQN may",
                batch.rows,
                "note",
            )


def unequal_scales(batch: StoredBatch) -> Iterator[Finding]:
    """Columns with so different scales that a network sees only the largest."""
    spread = batch.spread
    moving = np.flatnonzero(spread > 0)
    if len(moving) and spread[moving].max() > 1e6 * spread[moving].min():
        large, small = (int(moving[f(spread[moving])]) for f in (np.argmax, np.argmin))
        yield Finding(
            "unequal-scales",
            "observations",
            f"{batch.in_words('observations', [large])} varies by {spread[large]:.2g}, "
            f"{batch.in_words('observations', [small])} by {spread[small]:.2g}",
            "train with scaling, which is the default for your own logs",
            "without scaling, the networks barely see the small column",
            batch.rows,
            "note",
            option="scaling",
        )


def far_from_zero(batch: StoredBatch) -> Iterator[Finding]:
    """Columns that vary little around a large value."""
    spread = batch.spread
    mean = np.abs(batch.observations.mean(axis=0, dtype=np.float64))
    coarse = np.flatnonzero((spread > 0) & (mean > 1e5 * spread))
    far = np.flatnonzero((spread > 0) & (mean > np.maximum(FAR, 5 * spread)))
    far = np.setdiff1d(far, coarse)
    if len(coarse):
        yield Finding(
            "lost-precision",
            "observations",
            "changes are too small for the precision of float32 in "
            f"{batch.in_words('observations', coarse)}",
            "store the difference from a fixed value: seconds since the start, not since 1970",
            "observations are stored as float32, which has seven digits",
            batch.rows,
            "warning",
        )
    if len(far):
        yield Finding(
            "far-from-zero",
            "observations",
            f"values far from zero in {batch.in_words('observations', far)}: {mean[far[0]]:.3g} ± "
            f"{spread[far[0]]:.2g}",
            "train with scaling, which is the default for your own logs",
            "without scaling, the large constant part hides the changes, and can prevent learning",
            batch.rows,
            "note",
            option="scaling",
        )


def outliers(batch: StoredBatch) -> Iterator[Finding]:
    """Single values far beyond all others, with a gap in between; heavy tails are not reported."""
    if len(batch) < 100:
        return
    for field, values in (("observations", batch.observations), ("rewards", batch.rewards)):
        for i, numbers in enumerate(values.reshape(len(batch), -1).T):
            column = numbers.astype(np.float64)
            low, middle, high = np.percentile(column, (1, 50, 99))
            distance = np.abs(column - middle)
            top = np.sort(np.partition(distance, -len(batch) // 100 - 1)[-len(batch) // 100 - 1 :])
            leaps = top[1:] / np.maximum(top[:-1], high - low) if high > low else np.zeros(1)
            if leaps.max() > 10:
                rows = np.flatnonzero(distance >= top[1:][np.argmax(leaps)])
                where = f"{batch.in_words(field, [i])} " if values.ndim == 2 else ""
                yield Finding(
                    "outlier",
                    field,
                    f"{where}is {column[rows[0]]:.4g} there, but between {low:.4g} and "
                    f"{high:.4g} in 98% of rows",
                    "check these rows: units, sensor faults, placeholders for a missing value",
                    "the largest numbers dominate a squared error",
                    rows,
                    "warning",
                )
