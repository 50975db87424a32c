"""`bcq judge`."""

import json
from dataclasses import dataclass, field
from pathlib import Path

from tyro.conf import Positional

from bcq.cli.verbs import ReadingOptions, Verb, say_choices, say_columns
from bcq.data.dataset import Dataset
from bcq.data.opening import open_batch
from bcq.judging.candidates import FitOn, choose
from bcq.judging.report import as_json, as_text
from bcq.runs.directory import Run
from bcq.system.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Judge(Verb):
    """Judge trained policies by logged episodes: better than the behaviour that logged them?"""

    runs: Positional[tuple[Path, ...]]
    """run directories of `bcq train`; with several runs or kept checkpoints, the best is chosen"""
    data: Path
    """the batch that the runs were trained on"""
    reading: ReadingOptions = field(default_factory=ReadingOptions)
    fit_on: FitOn = "held-out"
    """judge by the episodes that the runs kept aside (`bcq train --hold-out`), or by all: then a
    policy is judged by episodes that it learned from, which flatters it"""
    discount: float | None = None
    """weight of a reward one step later; if not given, that of the runs, or 0.99"""
    seed: int = 0
    """seed of the fits and of the policy's own draws"""
    json: bool = False
    """print the result as JSON"""

    def __call__(self) -> None:
        """Prints the verdict and what it rests on."""
        if not self.runs:
            raise InputError("give at least one run directory")
        runs = [Run.open(path) for path in self.runs]
        checked = open_batch(self.data, self.reading.options(runs[0].config.schedule.env))
        say_columns(checked.columns.names)
        dataset = Dataset.from_checked(checked)
        say_choices(dataset.task)
        found = choose(runs, dataset, fit_on=self.fit_on, discount=self.discount, seed=self.seed)
        print(json.dumps(as_json(found)) if self.json else as_text(found))


VERBS = {"judge": Judge}
