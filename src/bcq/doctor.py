"""What is wrong with a batch, or worth knowing of it, in words and with row numbers.

Errors are what `Dataset` itself refuses (`dataset.errors`); the checks below are advice. They look
at what the file holds, before rows are paired, so that rows are those of the file.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bcq import interruption
from bcq.dataset import (
    ActionBounds,
    Column,
    Columns,
    Dataset,
    Finding,
    Flags,
    Floats,
    as_stored_all,
    bounds_of,
    errors,
)

SEVERITIES = ("error", "warning", "note")
SHOWN_ROWS = 5
DISCOUNT = 0.99  # the paper's
FEW = 1_000  # transitions
FAR = 10.0  # from zero: measured, a column at 17 that varies by 2 leaves BCQ's VAE with one action
SAMPLE = 5_000  # rows that rough figures are taken from
SAME = 1e-3  # of a column's standard deviation: closer is the same number, rounded
LONGEST_LIMIT = 1_000  # steps: of Gymnasium's time limits, none of the usual is longer


@dataclass(frozen=True, eq=False)
class Evidence:
    """A batch as its file has it, for the checks to look at."""

    observations: Floats
    actions: Floats
    rewards: Floats
    next_observations: Floats | None
    terminated: Flags  # as stored: both flags may be set
    truncated: Flags
    bounds: ActionBounds
    discount: float

    def __len__(self) -> int:
        return len(self.rewards)

    @cached_property
    def rows(self) -> NDArray[np.int64]:
        """All of them."""
        return np.arange(len(self))

    @cached_property
    def ends(self) -> NDArray[np.int64]:
        """Rows that end an episode."""
        return np.flatnonzero(self.terminated | self.truncated)

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """First row of each episode, the unfinished one included."""
        after = self.ends + 1
        return np.concatenate([[0], after[after < len(self)]])

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        """Rows of each complete episode."""
        return np.diff(self.ends, prepend=-1)

    @cached_property
    def inside(self) -> Flags:
        """For each row but the last: whether the next one is of the same episode."""
        return ~(self.terminated | self.truncated)[:-1]

    @cached_property
    def spread(self) -> NDArray[np.float64]:
        """Standard deviation of each observation column."""
        return self.observations.std(axis=0, dtype=np.float64)

    def same(self, one: Floats, other: Floats) -> Flags:
        """Row by row, whether two observations are one but for rounding."""
        return (np.abs(one - other) <= (SAME * self.spread).astype(np.float32)).all(axis=1)


Advice = Callable[[Evidence], Iterator[Finding]]


def columns_in_words(columns: Sequence[int] | NDArray[np.int64]) -> str:
    """As column 3, or as columns 1, 2 and 5 more."""
    shown = ", ".join(str(column) for column in columns[:8])
    more = f" and {len(columns) - 8} more" if len(columns) > 8 else ""
    return f"column{'s' if len(columns) > 1 else ''} {shown}{more}"


def constant_columns(batch: Evidence) -> Iterator[Finding]:
    """A column that never changes says nothing, or is the wrong column."""
    for field, values in (("observations", batch.observations), ("actions", batch.actions)):
        constant = np.flatnonzero((values == values[0]).all(axis=0))
        if len(constant) and len(batch) > 1:
            acts = field == "actions"
            yield Finding(
                "constant-column",
                field,
                f"{columns_in_words(constant)} never changes",
                "leave it out, or check that it is the right column",
                "the policy will always take this value" if acts else "a constant teaches nothing",
                batch.rows,
                "warning" if acts else "note",  # simulators do observe constants
            )


def duplicate_columns(batch: Evidence) -> Iterator[Finding]:
    """The same column twice is usually a slip in the mapping."""
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
                f"{columns_in_words(copies)} repeats another column",
                "leave it out, or take the column that was meant",
                "a copy teaches nothing, and the column that was meant is missing",
                batch.rows,
                "warning" if field == "actions" else "note",  # simulators do observe copies
            )


def misaligned(batch: Evidence) -> Iterator[Finding]:
    """Rows that do not belong together: the commonest cause of wrong results."""
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
    """Successors that are not what follows."""
    return Finding(
        "next-mismatch",
        "next_observations",
        f"{len(wrong)} rows lead elsewhere than to the next row's observation, within an episode",
        "check how rows were joined; where rows are missing or an end is not marked, cut the "
        "episode there",
        "a wrong successor teaches a wrong value; an unmarked end hides where episodes stop",
        wrong,
        "warning",
    )


def shifted(field: str, offset: str, rows: NDArray[np.int64]) -> Finding:
    """Rows that are off by a rule."""
    grows = "episode" in offset
    return Finding(
        "growing-shift" if grows else "shift",
        field,
        f"is {offset} off its observations",
        "store T+1 observations an episode as T pairs" if grows else "move it back by that row",
        "observations, actions and ends of one row are of different steps: what is learned is "
        "meaningless",
        rows,
        "warning",
    )


def successor_offset(batch: Evidence) -> str | None:
    """By which rule next observations are found among the observations, if by any but the next."""
    assert batch.next_observations is not None
    last = len(batch) - 1
    episode = np.searchsorted(batch.ends, batch.rows)
    for offset, words in (
        (np.full(len(batch), -1), "one row"),
        (np.full(len(batch), 1), "one row"),
        (episode, "one row more with every episode"),
        (-episode, "one row more with every episode"),
    ):
        place = batch.rows + 1 + offset
        rows = batch.rows[(place >= 0) & (place <= last)]
        rows = rows[:: max(1, len(rows) // SAMPLE)]
        if batch.same(batch.next_observations[rows], batch.observations[place[rows]]).mean() > 0.9:
            return words
    return None


def end_offset(batch: Evidence, breaks: NDArray[np.float64], *, certain: bool) -> str | None:
    """By which rule ends stand beside the breaks in the observations, if not on them.

    `breaks` says of each row but the last how surely the next one begins something else. Chance
    gives them a mean of 0.5 over ends; the more ends, the less it strays.
    """
    ends = batch.ends[batch.ends < len(batch) - 3]
    if len(ends) < 5 or breaks[ends].mean() > 0.75:
        return None
    needed = 0.9 if certain else max(0.9, 0.5 + 1.3 / np.sqrt(len(ends)))
    episode = np.arange(len(ends))
    for offset, words in (
        (np.full(len(ends), -1), "one row"),
        (np.full(len(ends), 1), "one row"),
        (episode + 1, "one row more with every episode"),
        (episode, "one row more with every episode"),
        (-episode - 1, "one row more with every episode"),
        (-episode, "one row more with every episode"),
    ):
        places = ends + offset
        places = places[(places >= 0) & (places < len(breaks))]
        if len(places) >= 5 and breaks[places].mean() > max(needed, breaks[ends].mean() + 0.2):
            return words
    return None


def jumps(batch: Evidence) -> NDArray[np.float64]:
    """How far each observation is from the next, as a rank between 0 and 1."""
    size = np.zeros(len(batch) - 1)
    for column in batch.observations.T:  # one at a time: all would be as large as the batch
        steps = np.diff(column).astype(np.float64)
        size += (steps / max(steps.std(), 1e-12)) ** 2
    ranks = np.empty(len(size))
    ranks[np.argsort(size)] = np.arange(len(size)) / len(size)
    return ranks


def delayed(batch: Evidence) -> Iterator[Finding]:
    """Rewards, or actions, that stand one row later than what they belong to."""
    two = np.flatnonzero(batch.inside[:-1] & batch.inside[1:])  # rows that two more follow
    needed = 20 * (2 * batch.observations.shape[1] + batch.actions.shape[1])  # rows a feature
    if len(two) < needed:
        return
    two = two[:: max(1, len(two) // max(SAMPLE, needed))]
    now, after, acted = batch.observations, batch.observations[1:], batch.actions
    known = with_bends(with_squares(now[two], after[two], acted[two]))
    unexplained = [residual(known, batch.rewards[two + late]) for late in (0, 1)]
    if unexplained[1] < 0.5 * unexplained[0] and unexplained[1] < 0.5:
        yield late_by_one("rewards", batch)
    # What an action does is seen in the observation after it, one row later than it should if late.
    change = after[two + 1] - now[two + 1]
    early, right = (gain(now[two + 1], acted[two + row], change) for row in (2, 1))
    late = gain(now[two + 1], acted[two], change)
    if max(early, late) > 4 * right + 0.02:
        yield late_by_one("actions", batch)


def late_by_one(field: str, batch: Evidence) -> Finding:
    """Says that a field is off by a row."""
    return Finding(
        "delayed-rewards" if field == "rewards" else "shifted-actions",
        field,
        "fit the row before, or after, far better than their own",
        "move them by one row within each episode",
        "what is learned credits the wrong actions",
        batch.rows,
        "warning",
    )


def with_squares(*parts: Floats) -> NDArray[np.float64]:
    """Features of a regression: a constant, the numbers, their squares."""
    values = np.concatenate(parts, axis=1).astype(np.float64)
    values = (values - values.mean(axis=0)) / np.maximum(values.std(axis=0), 1e-12)
    return np.concatenate([np.ones((len(values), 1)), values, values**2], axis=1)


def with_bends(features: NDArray[np.float64]) -> NDArray[np.float64]:
    """The same features and random bends of them, for what squares cannot follow: an angle, say."""
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
    # By the normal equations: the features are few, on one scale, and rough figures will do.
    inverse = np.linalg.pinv(features.T @ features, rcond=1e-9, hermitian=True)
    weights = inverse @ (features.T @ centred)
    return float(((centred - features @ weights) ** 2).mean())


def gain(observations: Floats, actions: Floats, change: Floats) -> float:
    """How much more of a change is explained once the action is known."""
    return residual(with_squares(observations), change) - residual(
        with_squares(observations, actions), change
    )


def both_flags(batch: Evidence) -> Iterator[Finding]:
    """An end of both kinds: usual at the very time limit, a slip elsewhere."""
    both = np.flatnonzero(batch.terminated & batch.truncated)
    if len(both) == 0:
        return
    at_limit = batch.lengths[np.searchsorted(batch.ends, both)] == batch.lengths.max()
    yield Finding(
        "both-flags",
        "truncated",
        f"{len(both)} rows are both terminated and truncated; they count as terminated",
        "nothing to do"
        if at_limit.all()
        else "set the time-out only where a limit cut the episode",
        "a terminal has no future value, a time-out has",
        both,
        "note" if at_limit.all() else "warning",
    )


def disguised_limit(batch: Evidence) -> Iterator[Finding]:
    """Terminals that all come at one length are a time limit."""
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
            f"{longest} steps, and none is longer",
            "store these ends as time-outs, unless the task really ends then",
            "a time limit taken for a terminal says that the future there is worth nothing",
            batch.ends[at_longest],
            "warning",
        )


def no_end(batch: Evidence) -> Iterator[Finding]:
    """A batch without ends is one episode."""
    if len(batch.ends) == 0:
        yield Finding(
            "no-end",
            "terminated",
            "no row ends an episode",
            "mark terminals and time-outs, if there were any",
            "without ends, rows of different episodes may be taken for neighbours",
            batch.rows,
            "warning" if len(batch) > LONGEST_LIMIT else "note",
        )
    elif batch.ends[-1] != len(batch) - 1:
        yield Finding(
            "unfinished-tail",
            "terminated",
            "the last episode is unfinished",
            "nothing to do",
            "its return is not counted; its rows are learned from",
            batch.rows[batch.ends[-1] + 1 :],
            "note",
        )


def short_episodes(batch: Evidence) -> Iterator[Finding]:
    """Episodes of one step are rare; flags that mean the opposite make nothing else."""
    single = batch.ends[batch.lengths == 1]
    inverted = len(batch) >= 10 and len(batch.ends) > 0.5 * len(batch)
    if inverted:
        yield Finding(
            "flags-inverted",
            "terminated",
            f"{len(batch.ends)} of {len(batch)} rows end an episode",
            "check that 1 marks an end; some logs store a mask of what goes on",
            "an end has no future value: every row would be worth its reward alone",
            batch.ends,
            "warning",
        )
    elif len(single):
        yield Finding(
            "one-step-episode",
            "terminated",
            f"{len(single)} episodes have one step",
            "nothing to do, if they are real",
            "logs that mark an end twice look like this too",
            single,
            "note",
        )


def flat_rewards(batch: Evidence) -> Iterator[Finding]:
    """Rewards that are all one number can only teach when to end."""
    if len(batch) > 1 and (batch.rewards == batch.rewards[0]).all():
        yield Finding(
            "constant-rewards",
            "rewards",
            f"are {batch.rewards[0]:g} in every row",
            "check that it is the right column",
            "nothing tells a good action from a bad one, but for terminals",
            batch.rows,
            "note" if batch.terminated.any() else "warning",
        )


def far_from_bounds(batch: Evidence) -> Iterator[Finding]:
    """Actions that use a small part of their range are on another scale, or the bounds are."""
    reach = np.abs(batch.bounds.normalise(batch.actions)).max(axis=0)
    moving = np.ptp(batch.actions, axis=0) > 0
    small = np.flatnonzero(moving & (reach < 0.5))
    if len(small):
        yield Finding(
            "far-from-bounds",
            "actions",
            f"{columns_in_words(small)} reaches {reach[small].min():.2g} of the way to its bounds "
            "at the most",
            "check the bounds; give the true ones with --action-low and --action-high",
            "the perturbation and the critics work on a scale where the bounds are -1 and 1",
            batch.rows,
            "warning" if reach[small].min() < 0.1 else "note",
        )


def discrete_actions(batch: Evidence) -> Iterator[Finding]:
    """Few values: these algorithms choose among all between the bounds."""
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
            f"{columns_in_words(few)} takes only {len(np.unique(sample[:, few[0]]))} values",
            "these algorithms are for continuous actions; check that it is the right column",
            "the policy will choose values in between, which nobody ever tried",
            batch.rows,
            "warning",
        )


def unequal_scales(batch: Evidence) -> Iterator[Finding]:
    """Columns so unequal that a network sees only the largest."""
    spread = batch.spread
    moving = np.flatnonzero(spread > 0)
    if len(moving) and spread[moving].max() > 1e6 * spread[moving].min():
        large, small = (int(moving[f(spread[moving])]) for f in (np.argmax, np.argmin))
        yield Finding(
            "unequal-scales",
            "observations",
            f"column {large} varies by {spread[large]:.2g}, column {small} by {spread[small]:.2g}",
            "bring the columns to like units before they are logged and before the policy acts",
            "networks take observations as they are: the small column might as well not be there",
            batch.rows,
            "warning",
        )


def far_from_zero(batch: Evidence) -> Iterator[Finding]:
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
            f"{columns_in_words(coarse)} varies by less than float32 can tell apart at its size",
            "store the difference from a fixed value: seconds since the start, not since 1970",
            "observations are kept as float32, which has seven digits",
            batch.rows,
            "warning",
        )
    if len(far):
        yield Finding(
            "far-from-zero",
            "observations",
            f"{columns_in_words(far)} stays far from zero: {mean[far[0]]:.3g}, give or take "
            f"{spread[far[0]]:.2g}",
            "store the difference from a usual value: degrees above 20, not degrees",
            "networks take observations as they are: what never changes drowns what does, and can "
            "keep them from learning at all",
            batch.rows,
            "warning",
        )


def outliers(batch: Evidence) -> Iterator[Finding]:
    """Single values far beyond all others, with nothing in between: heavy tails are no fault."""
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
                yield Finding(
                    "outlier",
                    field,
                    f"column {i} is {column[rows[0]]:.4g} there, but between {low:.4g} and "
                    f"{high:.4g} in 98% of rows",
                    "check these rows: units, sensor faults, placeholders for a missing value",
                    "a squared error follows the largest numbers",
                    rows,
                    "warning",
                )


def duplicated_episodes(batch: Evidence) -> Iterator[Finding]:
    """An episode that is there twice counts twice."""
    stops = np.append(batch.starts[1:], len(batch))
    table = np.concatenate([batch.observations, batch.actions, batch.rewards[:, None]], axis=1)
    seen: dict[bytes, int] = {}
    copies = []
    for start, stop in zip(batch.starts.tolist(), stops.tolist(), strict=True):
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
            "a log read twice counts twice, and hides how little data there is",
            np.concatenate(copies),
            "warning",
        )


def small_set(batch: Evidence) -> Iterator[Finding]:
    """What the algorithm would like more of."""
    if len(batch) < FEW:
        yield Finding(
            "few-transitions",
            "rows",
            f"{len(batch)} transitions are few",
            "log more, or expect little",
            "the paper's smallest batch has 5,000; a few hundred are soon learned by heart",
            batch.rows,
            "note",
        )
    horizon = 1 / (1 - batch.discount) if batch.discount < 1 else np.inf
    if len(batch.lengths) and batch.lengths.max() < horizon:
        yield Finding(
            "long-horizon",
            "episodes",
            f"the longest has {batch.lengths.max()} steps; discount {batch.discount:g} looks "
            f"{horizon:.0f} steps ahead",
            "lower --discount, if episodes that long are all that matters",
            "values then rest on bootstrapping beyond anything that was logged",
            batch.ends[batch.lengths == batch.lengths.max()],
            "note",
        )


ADVICE: tuple[Advice, ...] = (
    misaligned,
    delayed,
    disguised_limit,
    both_flags,
    no_end,
    short_episodes,
    duplicated_episodes,
    outliers,
    unequal_scales,
    far_from_zero,
    constant_columns,
    duplicate_columns,
    flat_rewards,
    far_from_bounds,
    discrete_actions,
    small_set,
)


def examine(
    columns: Columns, bounds: ActionBounds | None = None, *, discount: float = DISCOUNT
) -> list[Finding]:
    """Everything found, the worst first. Advice is on the rows that are without error."""
    found = errors(columns, bounds)
    if all(finding.rows is not None for finding in found):
        arrays = as_stored_all(columns.arrays)
        bad = np.zeros(len(arrays["rewards"]), bool)
        for finding in errors(replace(columns, rows=None), bounds):
            bad[finding.rows] = True
        arrays, kept = without(arrays, bad)
        evidence = evidence_of(columns, arrays, bounds, discount)
        advice: list[Finding] = []
        with np.errstate(over="ignore", invalid="ignore"):  # differences of the largest numbers
            for check in ADVICE if len(kept) else ():
                interruption.check()
                advice += check(evidence)
        found += [columns.in_file(replace(f, rows=kept[f.rows])) for f in advice]
    return sorted((*found, *columns.findings), key=lambda f: SEVERITIES.index(f.severity))


def evidence_of(
    columns: Columns, arrays: Mapping[str, Column], bounds: ActionBounds | None, discount: float
) -> Evidence:
    """The arrays as the checks want them."""
    terminated = arrays["terminated"].astype(bool)
    return Evidence(
        observations=arrays["observations"],
        actions=arrays["actions"],
        rewards=arrays["rewards"],
        next_observations=arrays.get("next_observations"),
        terminated=terminated,
        truncated=arrays.get("truncated", np.zeros(len(terminated))).astype(bool),
        bounds=bounds or bounds_of(columns, arrays["actions"].shape[1]),
        discount=discount,
    )


def examine_dataset(dataset: Dataset, *, discount: float = DISCOUNT) -> list[Finding]:
    """The same for a batch in memory."""
    return examine(dataset.columns(), discount=discount)


def without(
    arrays: Mapping[str, Column], bad: Flags
) -> tuple[dict[str, Column], NDArray[np.int64]]:
    """The other rows, and which they are; the episode is cut before each that is left out."""
    if not bad.any():
        return dict(arrays), np.arange(len(bad))
    before = np.append(bad[1:], False)
    truncated = arrays.get("truncated", np.zeros(len(bad), bool)).copy()
    truncated[before & (arrays["terminated"] == 0)] = True
    kept = np.flatnonzero(~bad)
    return {n: values[kept] for n, values in {**arrays, "truncated": truncated}.items()}, kept


# What can be mended without inventing, moving or rescaling anything.
MENDED = {
    "not-finite": "left out",
    "duplicated-episode": "left out",
    "next-mismatch": "episodes cut there",
}


def repair(columns: Columns, bounds: ActionBounds | None = None) -> Columns:
    """Mends what can be mended safely: what is left is as true as it was."""
    arrays = as_stored_all(columns.arrays)
    found: dict[str, list[NDArray[np.int64]]] = {kind: [] for kind in MENDED}
    for finding in examine(replace(columns, rows=None, findings=()), bounds):
        if finding.kind in MENDED and finding.rows is not None:
            found[finding.kind].append(finding.rows)
    bad = np.zeros(len(arrays["rewards"]), bool)
    for rows in (*found["not-finite"], *found["duplicated-episode"]):
        bad[rows] = True
    truncated = arrays.get("truncated", np.zeros(len(bad), bool)).copy()
    for rows in found["next-mismatch"]:
        truncated[rows] = True
    arrays, kept = without({**arrays, "truncated": truncated}, bad)
    return replace(
        columns, arrays=arrays, rows=kept if columns.rows is None else columns.rows[kept]
    )


def as_json(findings: Sequence[Finding]) -> list[dict[str, Any]]:
    """The findings for programs."""
    return [
        {
            "kind": finding.kind,
            "severity": finding.severity,
            "field": finding.field,
            "problem": finding.problem,
            "rows": [] if finding.rows is None else finding.rows[:SHOWN_ROWS].tolist(),
            "count": 0 if finding.rows is None else len(finding.rows),
            "why": finding.why,
            "remedy": finding.remedy,
            "mended_by_fix": finding.kind in MENDED,
        }
        for finding in findings
    ]


def as_text(findings: Sequence[Finding]) -> str:
    """The findings for people."""
    counts = [(s, sum(f.severity == s for f in findings)) for s in SEVERITIES]
    words = [f"{n or 'no'} {severity}{'' if n == 1 else 's'}" for severity, n in counts]
    lines = [f"doctor         {', '.join(words)}"]
    for finding in findings:
        rows = "" if finding.rows is None else f" [{rows_in_words(finding.rows)}]"
        mended = "; --fix does it" if finding.kind in MENDED else ""
        lines += [
            f"{finding.severity:<14} {finding.field}: {finding.problem}{rows}",
            f"{'':<14} {finding.why}",
            f"{'':<14} -> {finding.remedy}{mended}",
        ]
    return "\n".join(lines)


def rows_in_words(rows: NDArray[np.int64]) -> str:
    """As row 3, or as rows 3, 17, ... (12 in all)."""
    shown = ", ".join(map(str, rows[:SHOWN_ROWS].tolist()))
    if len(rows) <= SHOWN_ROWS:
        return f"row{'s' if len(rows) > 1 else ''} {shown}"
    return f"rows {shown}, ... ({len(rows)} in all)"
