"""What is wrong with a batch, or worth knowing of it, in words and with row numbers.

Errors are what `Dataset` itself refuses (`dataset.errors`); the checks below are advice. They look
at what the file holds, before rows are paired, so that rows are those of the file.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from bcq.data.bounds import ActionBounds
from bcq.data.checks import bounds_of, errors
from bcq.data.columns import Column, Columns, Finding, as_stored_all
from bcq.data.dataset import Dataset
from bcq.data.doctor.alignment import delayed, misaligned
from bcq.data.doctor.ends import (
    both_flags,
    disguised_limit,
    duplicated_episodes,
    no_end,
    short_episodes,
    small_set,
)
from bcq.data.doctor.evidence import Advice, Evidence
from bcq.data.doctor.numbers import (
    constant_columns,
    discrete_actions,
    duplicate_columns,
    far_from_bounds,
    far_from_zero,
    flat_rewards,
    outliers,
    unequal_scales,
)
from bcq.data.doctor.report import MENDED, SEVERITIES
from bcq.data.episodes import without
from bcq.system import interruption

DISCOUNT = 0.99  # the paper's


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
    columns: Columns, bounds: ActionBounds | None = None, *, discount: float | None = DISCOUNT
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
    columns: Columns,
    arrays: Mapping[str, Column],
    bounds: ActionBounds | None,
    discount: float | None,
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


def examine_dataset(dataset: Dataset, *, discount: float | None = DISCOUNT) -> list[Finding]:
    """The same for a batch in memory."""
    return examine(dataset.columns(), discount=discount)


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
