"""Episodes: their ends, their lengths, and copies."""

from collections.abc import Iterator
from hashlib import blake2b

import numpy as np

from bcq.data.columns import Finding
from bcq.data.doctor.stored_batch import StoredBatch

FEW = 1_000  # transitions


LONGEST_LIMIT = 1_000  # steps: the common time limits of Gymnasium are not longer


def both_flags(batch: StoredBatch) -> Iterator[Finding]:
    """Rows with both flags: normal exactly at the time limit, a mistake elsewhere."""
    both = np.flatnonzero(batch.terminated & batch.truncated)
    if len(both) == 0:
        return
    at_limit = batch.lengths[np.searchsorted(batch.ends, both)] == batch.lengths.max()
    yield Finding(
        "both-flags",
        "truncated",
        f"{len(both)} rows are both terminated and truncated; they count as terminated",
        "no action needed"
        if at_limit.all()
        else "mark a time-out only where a limit cut the episode",
        "a terminal has no future value; a time-out has one",
        both,
        "note" if at_limit.all() else "warning",
    )


def disguised_limit(batch: StoredBatch) -> Iterator[Finding]:
    """Terminals that all occur after the same number of steps are probably a time limit."""
    if batch.truncated.any() or len(batch.lengths) < 5:
        return
    longest = batch.lengths.max()
    at_longest = batch.lengths == longest
    if (at_longest.all() and longest > 1) or (
        longest >= 20 and at_longest.sum() >= max(5, 0.2 * len(at_longest))
    ):
        yield Finding(
            "disguised-time-limit",
            "terminated",
            f"{at_longest.sum()} of {len(batch.lengths)} episodes terminate after exactly "
            f"{longest} steps, and no episode is longer",
            "store these ends as time-outs, unless the task itself ends there",
            "a time limit stored as a terminal gives the future after it a value of zero",
            batch.ends[at_longest],
            "warning",
        )


def no_end(batch: StoredBatch) -> Iterator[Finding]:
    """No end at all, or an unfinished last episode."""
    if len(batch.ends) == 0:
        yield Finding(
            "no-end",
            "terminated",
            "no row is marked as the end of an episode",
            "mark terminals and time-outs, if there were any",
            "without ends, rows of different episodes can look like consecutive steps",
            batch.rows,
            "warning" if len(batch) > LONGEST_LIMIT else "note",
        )
    elif batch.ends[-1] != len(batch) - 1:
        yield Finding(
            "unfinished-tail",
            "terminated",
            "the last episode is unfinished",
            "no action needed",
            "its return is not counted; its rows are used for training",
            batch.rows[batch.ends[-1] + 1 :],
            "note",
        )


def short_episodes(batch: StoredBatch) -> Iterator[Finding]:
    """Episodes of one step are rare; inverted flags produce many of them."""
    single = batch.ends[batch.lengths == 1]
    inverted = len(batch) >= 10 and len(batch.ends) > 0.5 * len(batch)
    if inverted:
        yield Finding(
            "flags-inverted",
            "terminated",
            f"{len(batch.ends)} of {len(batch)} rows end an episode",
            "check that 1 marks an end; in some logs, 1 means that the episode continues",
            "an end has no future value, so the value of every row would be only its reward",
            batch.ends,
            "warning",
        )
    elif len(single):
        yield Finding(
            "one-step-episode",
            "terminated",
            f"{len(single)} episodes have one step",
            "no action needed if they are real",
            "a log that marks each end twice also looks like this",
            single,
            "note",
        )


def duplicated_episodes(batch: StoredBatch) -> Iterator[Finding]:
    """Exact copies of an episode count twice."""
    table = np.concatenate([batch.observations, batch.actions, batch.rewards[:, None]], axis=1)
    seen: dict[bytes, int] = {}
    copies = []
    for start, stop in batch.episodes.tolist():
        if stop - start > 1:
            first = seen.setdefault(blake2b(table[start:stop].data).digest(), start)
            if first != start:
                copies.append(np.arange(start, stop))
    if copies:
        yield Finding(
            "duplicated-episode",
            "episodes",
            f"{len(copies)} episodes are exact copies of earlier ones",
            "remove the copies",
            "copied data counts twice and hides how little data there is",
            np.concatenate(copies),
            "warning",
            option="fix",
        )


def small_set(batch: StoredBatch) -> Iterator[Finding]:
    """Few transitions, or episodes that are short for the discount."""
    if len(batch) < FEW:
        yield Finding(
            "few-transitions",
            "rows",
            f"the batch has only {len(batch)} transitions",
            "log more data, or expect a weak policy",
            "the smallest batch of the paper has 5,000; networks soon overfit to a few hundred",
            batch.rows,
            "note",
        )
    if batch.discount is None:
        return
    horizon = 1 / (1 - batch.discount) if batch.discount < 1 else np.inf
    if len(batch.lengths) and batch.lengths.max() < horizon:
        yield Finding(
            "long-horizon",
            "episodes",
            f"the longest has {batch.lengths.max()} steps; discount {batch.discount:g} looks "
            f"{horizon:.0f} steps ahead",
            "lower the discount if only episodes of this length matter",
            "values then depend on bootstrapping beyond the logged data",
            batch.ends[batch.lengths == batch.lengths.max()],
            "note",
            option="discount",
        )
