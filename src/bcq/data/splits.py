"""Episodes that training does not see, kept aside to judge the policy by."""

from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bcq.data.dataset import Dataset
from bcq.system.errors import InputError

HoldOutBy = Literal["random", "time"]
SEED = 0  # the same for every run: runs on one batch keep the same episodes aside


@dataclass(frozen=True)
class HoldOut:
    """Which share of the episodes is kept aside."""

    share: float
    by: HoldOutBy = "random"  # or the last episodes of the log

    def __post_init__(self) -> None:
        if not 0 < self.share < 1:
            raise InputError(f"hold_out: {self.share} is not between 0 and 1")

    def episodes(self, dataset: Dataset) -> NDArray[np.int64]:
        """The numbers of the episodes that are kept aside, in order."""
        total = len(dataset.episodes)
        count = round(self.share * total)
        if not 0 < count < total:
            raise InputError(
                f"hold_out: {self.share:g} of {total} episodes is {count}; at least one episode "
                "must be kept aside, and one be left to learn from"
            )
        if self.by == "time":
            return np.arange(total - count, total)
        return np.sort(np.random.default_rng(SEED).permutation(total)[:count])

    def divide(self, dataset: Dataset) -> tuple[Dataset, Dataset]:
        """The episodes to learn from, and those kept aside."""
        aside = self.episodes(dataset)
        rest = np.setdiff1d(np.arange(len(dataset.episodes)), aside)
        return of_episodes(dataset, rest), of_episodes(dataset, aside)


def of_episodes(dataset: Dataset, numbers: NDArray[np.int64]) -> Dataset:
    """The batch with only these episodes, given in order."""
    rows = np.concatenate([np.arange(*span) for span in dataset.episodes[numbers]])
    columns: dict[str, Any] = {}
    for each in fields(dataset):
        values = getattr(dataset, each.name)
        if isinstance(values, np.ndarray):
            columns[each.name] = values[rows]
            columns[each.name].flags.writeable = False
    return replace(dataset, **columns)
