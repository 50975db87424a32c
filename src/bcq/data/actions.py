"""What the logged actions show about their kind: quantities with bounds, or choices."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from bcq.data.bounds import Choices
from bcq.data.columns import Column

ActionKind = Literal["auto", "continuous", "discrete"]
MOST_RECOGNISED = 16  # choices; a quantity in whole numbers may well have more values
BLOCK = 65_536  # rows to look at before the next ones are read


def numbers_of_names(texts: Column) -> tuple[Column, tuple[str, ...]]:
    """The number of each action among all names, sorted, and the names."""
    names, numbers = np.unique(texts, return_inverse=True)
    return numbers.reshape(len(texts), -1), Choices([str(name) for name in names]).names


@dataclass(frozen=True)
class SeenActions:
    """The logged actions, block by block, and the number of choices in their masks."""

    blocks: Callable[[], Iterable[Column]]  # each (rows, action_size)
    masks: int = 0  # columns of the masks; 0 without masks

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, Column]) -> "SeenActions":
        """The actions of columns in memory, whatever their form."""
        actions, masks = arrays.get("actions"), arrays.get("permitted")

        def blocks() -> Iterator[Column]:
            if actions is not None and actions.ndim in (1, 2) and actions.dtype.kind in "biuf":
                for start in range(0, len(actions), BLOCK):
                    rows = actions[start : start + BLOCK]
                    yield rows.reshape(len(rows), -1)

        return cls(blocks, 0 if masks is None else masks.shape[-1])

    def range(self) -> tuple[Column, Column] | None:
        """Smallest and largest finite number in each dimension; None without actions."""
        low: Column | None = None
        high: Column | None = None
        for block in self.blocks():
            finite = np.where(np.isfinite(block), block, np.nan)
            least, most = np.fmin.reduce(finite), np.fmax.reduce(finite)
            low = least if low is None else np.fmin(low, least)
            high = most if high is None else np.fmax(high, most)
        return None if low is None or high is None else (low, high)

    def choices(self) -> Choices:
        """Choices without names, up to the largest number seen; the checks find other numbers."""
        found = self.range()
        last = 0.0 if found is None or np.isnan(found[1]).any() else float(found[1].max())
        return Choices.numbered(max(int(last) + 1, self.masks, 1))

    def are_choices(self) -> bool:
        """Whether the only action number takes the values 0, 1, ... without a gap, or has masks."""
        if self.masks:
            return True
        values: set[float] = set()
        for block in self.blocks():
            if block.shape[1] != 1:
                return False
            values |= {float(value) for value in np.unique(block) if np.isfinite(value)}
            if len(values) > MOST_RECOGNISED:
                return False
        return len(values) > 1 and values == set(map(float, range(len(values))))
