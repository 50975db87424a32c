"""`bcq judge` and `bcq report`."""

import json
from dataclasses import dataclass, field
from pathlib import Path

from tyro.conf import Positional

from bcq.cli.verbs import ReadingOptions, Verb, say_choices, say_columns, with_hint
from bcq.data.checks import Checked
from bcq.data.dataset import Dataset
from bcq.data.doctor.examination import examine
from bcq.data.opening import open_batch
from bcq.judging.candidates import FitOn, choose
from bcq.judging.card import make_card, require_place, write_card
from bcq.judging.report import as_json, as_text
from bcq.runs.directory import Run
from bcq.system.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Judging(Verb):
    """Options of every verb that judges."""

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

    def read(self, run: Run) -> tuple[Checked, Dataset]:
        """The batch of a run; says what its columns are."""
        checked = open_batch(self.data, self.reading.options(run.config.schedule.env))
        say_columns(checked.columns.names)
        dataset = Dataset.from_checked(checked)
        say_choices(dataset.task)
        return checked, dataset


@dataclass(frozen=True, kw_only=True)
class Judge(Judging):
    """Judge trained policies by logged episodes: better than the behaviour that logged them?"""

    runs: Positional[tuple[Path, ...]]
    """run directories of `bcq train`; with several runs or kept checkpoints, the best is chosen"""
    json: bool = False
    """print the result as JSON"""

    def __call__(self) -> None:
        """Prints the verdict and what it rests on."""
        if not self.runs:
            raise InputError("give at least one run directory")
        runs = [Run.open(path) for path in self.runs]
        _, dataset = self.read(runs[0])
        found = choose(runs, dataset, fit_on=self.fit_on, discount=self.discount, seed=self.seed)
        print(json.dumps(as_json(found)) if self.json else as_text(found))


@dataclass(frozen=True, kw_only=True)
class Report(Judging):
    """Judge a trained policy and write its report card: one page, for those who decide."""

    run: Positional[Path]
    """run directory of `bcq train`; of several kept checkpoints, the best is chosen"""
    out: Path
    """the page (.html); an older report card is replaced, any other file is refused"""

    def __call__(self) -> None:
        """Writes the page and prints the verdict."""
        require_place(self.out)
        run = Run.open(self.run)
        checked, dataset = self.read(run)
        examination = examine(checked, discount=run.algorithm.discount)
        card = make_card(
            run,
            dataset,
            source=self.data.name or str(self.data),
            names=checked.columns.labels,
            findings=[with_hint(finding) for finding in examination.findings],
            fit_on=self.fit_on,
            discount=self.discount,
            seed=self.seed,
        )
        write_card(card, self.out)
        print(f"{self.out}: {card.judgement.verdict}")


VERBS = {"judge": Judge, "report": Report}
