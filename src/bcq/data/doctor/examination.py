"""Finds problems of a batch and reports them with row numbers.

`Dataset` itself refuses errors (`data/checks.py`); the checks below are advice. They look at the
content of the file before rows are paired, so that row numbers are those of the file.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bcq.data.bounds import ActionBounds
from bcq.data.checks import Checked, check
from bcq.data.columns import Column, Columns, Finding
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
from bcq.data.doctor.numbers import (
    constant_columns,
    discrete_actions,
    duplicate_columns,
    far_from_bounds,
    far_from_zero,
    flat_rewards,
    outliers,
    unequal_scales,
    unused_choices,
)
from bcq.data.doctor.report import SEVERITIES
from bcq.data.doctor.stored_batch import AdvisoryCheck, StoredBatch
from bcq.data.episodes import cut, stored_truncated, without_rows
from bcq.data.layout import Layout
from bcq.system import interruption, progress

DISCOUNT = 0.99  # the paper's


ADVISORY_CHECKS: tuple[AdvisoryCheck, ...] = (
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
    unused_choices,
    small_set,
)


@dataclass(frozen=True, eq=False)
class Examination:
    """All findings in columns; their rows are those of the columns."""

    checked: Checked
    found: tuple[Finding, ...]

    @property
    def findings(self) -> list[Finding]:
        """All findings with rows of the file, including those of the reader; errors come first."""
        columns = self.checked.columns
        found = (*map(columns.in_file, self.found), *columns.findings)
        return sorted(found, key=lambda finding: SEVERITIES.index(finding.severity))

    def repaired(self) -> Columns:
        """Leaves out rows and cuts episodes, for findings whose option is `fix`.

        Nothing is invented, moved or rescaled.
        """
        if self.checked.bounds is None:  # a field is missing or has a wrong shape
            self.checked.require_sound()
        columns = self.checked.columns
        bad, broken = np.zeros((2, len(columns.arrays["rewards"])), bool)
        for finding in self.found:
            if finding.option == "fix":
                (broken if finding.kind == "next-mismatch" else bad)[finding.rows] = True
        arrays, kept = without_rows(cut(columns.arrays, broken), bad)
        return replace(
            columns, arrays=arrays, rows=kept if columns.rows is None else columns.rows[kept]
        )


def examine(checked: Checked, *, discount: float | None = DISCOUNT) -> Examination:
    """Finds errors, and gives advice on the rows without errors."""
    if checked.bounds is None or any(finding.rows is None for finding in checked.errors):
        return Examination(checked, checked.errors)
    arrays = checked.columns.arrays
    bad = np.zeros(len(arrays["rewards"]), bool)
    for finding in checked.errors:
        bad[finding.rows] = True
    arrays, kept = without_rows(arrays, bad)
    columns = checked.columns
    batch = stored_batch(newest(arrays, columns.layout), columns.labels, checked.bounds, discount)
    advice: list[Finding] = []
    with np.errstate(over="ignore", invalid="ignore"):  # differences of very large numbers
        checks = ADVISORY_CHECKS if len(kept) else ()
        for look in progress.over(checks, "checking the batch", "check", delay=1):
            interruption.check()
            advice += (replace(finding, rows=kept[finding.rows]) for finding in look(batch))
    return Examination(checked, (*checked.errors, *advice))


def newest(arrays: Mapping[str, Column], layout: Layout) -> dict[str, Column]:
    """The arrays with observations of one reading: past steps would look like shifted rows."""
    size = None if layout.past is None else layout.past.reading_size
    matrices = [name for name in ("observations", "next_observations") if name in arrays]
    return {**arrays, **{name: arrays[name][:, :size] for name in matrices}}


def stored_batch(
    arrays: Mapping[str, Column],
    names: Mapping[str, Sequence[str]],
    bounds: ActionBounds,
    discount: float | None,
) -> StoredBatch:
    """The arrays in the form that the checks need."""
    return StoredBatch(
        observations=arrays["observations"],
        actions=arrays["actions"],
        rewards=arrays["rewards"],
        next_observations=arrays.get("next_observations"),
        terminated=arrays["terminated"].astype(bool),
        truncated=stored_truncated(arrays).astype(bool),
        bounds=bounds,
        discount=discount,
        names=names,
    )


def examine_dataset(dataset: Dataset, *, discount: float | None = DISCOUNT) -> list[Finding]:
    """Checks a batch in memory; errors come first."""
    return examine(check(dataset.columns()), discount=discount).findings
