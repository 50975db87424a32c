"""`bcq inspect` and `bcq convert`."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tyro.conf import Positional

from bcq.cli.verbs import (
    ReadingOptions,
    Verb,
    beside,
    existing,
    say_choices,
    say_columns,
    with_hint,
)
from bcq.data.columns import Finding
from bcq.data.dataset import Dataset
from bcq.data.doctor.examination import examine
from bcq.data.doctor.report import as_json, as_text
from bcq.data.opening import TABLES, locate, open_batch
from bcq.data.saving import convert, require_new, save
from bcq.system import progress
from bcq.system.errors import InputError
from bcq.system.files import make_directory, write_text


@dataclass(frozen=True, kw_only=True)
class Inspect(Verb):
    """Summarise a batch, check it for problems and draw a picture of it."""

    data: Positional[Path]
    """the batch: HDF5 in the layout of D4RL, npz, CSV, Parquet, a Minari folder or minari:NAME"""
    env: str | None = None
    """Gymnasium environment of the batch, if the file does not name it"""
    reading: ReadingOptions = field(default_factory=ReadingOptions)
    suggest: Path | None = None
    """write a first mapping of a table to this new file (.toml), guessed from the names of its
    columns, and stop"""
    fix: Path | None = None
    """write a repaired batch to this new file; only safe repairs are made"""
    picture: Path | None = None
    """file of the picture; if not given, the name of the batch with .png"""
    json: bool = False
    """print the result as JSON"""

    def __call__(self) -> None:
        """Prints the summary and the findings, and draws the picture."""
        if self.suggest is not None:
            suggest_mapping(locate(self.data), self.suggest)
            return
        from bcq.data import inspection  # noqa: PLC0415 - matplotlib takes half a second to import

        if self.fix is not None:
            require_new(self.fix)
        checked = open_batch(self.data, self.reading.options(existing(self.env)))
        picture = self.picture or beside(self.data).with_suffix(".png")
        inspection.require_own(picture)
        examination = examine(checked)
        findings = [with_hint(finding) for finding in examination.findings]
        wrong = sum(finding.severity == "error" for finding in findings)
        if self.fix is not None:
            repaired = Dataset.from_columns(examination.repaired(), checked.bounds)
            save(repaired, self.fix)
        if not wrong:
            self.show(Dataset.from_checked(checked), checked.columns.names, findings, picture)
        else:
            print(json.dumps({"findings": as_json(findings)}) if self.json else as_text(findings))
        if self.fix is not None:
            rows = len(checked.columns.arrays["rewards"])
            progress.say(f"{self.fix}: {len(repaired):,} transitions of {rows:,} rows")
        elif wrong:
            raise InputError(f"{self.data}: cannot be used for training (errors: {wrong})")

    def show(
        self,
        dataset: Dataset,
        names: Mapping[str, Sequence[str]],
        findings: Sequence[Finding],
        path: Path,
    ) -> None:
        """Figures, findings and the picture of a batch without errors."""
        from bcq.data import inspection  # noqa: PLC0415 - matplotlib takes half a second to import

        figures = inspection.summary(dataset, names)
        inspection.picture(dataset, path)
        if self.json:
            print(json.dumps(figures | {"findings": as_json(findings)}))
        else:
            print(inspection.as_text(figures), "", as_text(findings), "", sep="\n")
            print(f"picture        {path}")


def suggest_mapping(table: Path, target: Path) -> None:
    """Writes a first mapping of a table to a new file."""
    from bcq.data.formats.suggestion import suggest  # noqa: PLC0415 - pyarrow takes a quarter of a second to import

    if table.suffix not in TABLES:
        raise InputError(f"{table}: is not a table; only {' and '.join(TABLES)} need a mapping")
    if target.suffix != ".toml" or target.exists():
        raise InputError(f"{target}: must be a new file with the ending .toml")
    mapping = suggest(table)
    make_directory(target.parent)
    write_text(target, mapping)
    print(f"{mapping}\n{target}: edit it, then use it with --columns {target}")


@dataclass(frozen=True, kw_only=True)
class Convert(Verb):
    """Write a batch of any readable format as HDF5 or Minari."""

    source: Positional[Path]
    """the batch: HDF5 in the layout of D4RL, npz, CSV, Parquet, a Minari folder or minari:NAME"""
    target: Positional[Path]
    """the new file (.hdf5) or Minari data set (a folder NAME-v0, or minari:NAME-v0)"""
    env: str | None = None
    """Gymnasium environment of the batch, if the file does not name it"""
    reading: ReadingOptions = field(default_factory=ReadingOptions)

    def __call__(self) -> None:
        """Converts and prints the number of transitions."""
        options = self.reading.options(existing(self.env))
        converted = convert(self.source, self.target, options)
        say_columns(converted.names)
        say_choices(converted.task)
        for finding in converted.findings:
            progress.say(f"{finding.severity}: {self.source}: {with_hint(finding)}")
        count = f"{converted.transitions:,} transitions"
        print(f"{self.target}: {count}; `bcq inspect` summarises them")


VERBS = {"inspect": Inspect, "convert": Convert}
