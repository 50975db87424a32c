"""`bcq export`."""

from dataclasses import dataclass, field
from pathlib import Path

from tyro.conf import Positional

from bcq.cli.verbs import ReadingOptions, Verb, say_choices, say_columns
from bcq.data.dataset import Dataset
from bcq.data.opening import open_batch
from bcq.export.content import Mode
from bcq.export.exporting import as_text, export_policy, files_of
from bcq.export.files import describe, require_place
from bcq.runs.directory import Run
from bcq.system.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Export(Verb):
    """Write a trained policy as one file that runs without this software."""

    run: Positional[Path | None] = None
    """run directory of `bcq train`"""
    out: Positional[Path | None] = None
    """the file: .onnx for ONNX runtimes, or .safetensors for NumPy, with a reader beside it"""
    describe: Path | None = None
    """print the card of an exported file instead"""
    data: Path | None = None
    """the batch that the run was trained on: the file is checked on its states and tells whether
    an observation is within their range"""
    reading: ReadingOptions = field(default_factory=ReadingOptions)
    mode: Mode = "deterministic"
    """a policy that draws latents: from a fixed bank in the file, or noise as a second input"""
    fallback: tuple[str, ...] | None = None
    """action for an observation that is not finite: its numbers, or the name of a choice; if not
    given, the middle of the range, or the number of no choice; the output `valid` is then false"""
    verdict: Path | None = None
    """what `bcq judge --json` said about this checkpoint, in a file; it goes on the card"""
    seed: int = 0
    """seed of the bank of latents and of the states of the check"""
    force: bool = False
    """overwrite an existing file"""

    def __call__(self) -> None:
        """Writes the file, or prints a card."""
        if self.describe is not None:
            if self.run is not None:
                raise InputError("describe: takes one exported file and no run")
            print(as_text(describe(self.describe)))
            return
        if self.run is None or self.out is None:
            raise InputError("give a run directory and the file to write")
        require_place(self.out, force=self.force)
        run = Run.open(self.run)
        dataset, labels = None, {}
        if self.data is not None:
            checked = open_batch(self.data, self.reading.options(run.config.schedule.env))
            say_columns(checked.columns.names)
            dataset, labels = Dataset.from_checked(checked), checked.columns.labels
            say_choices(dataset.task)
        parity = export_policy(
            run,
            self.out,
            dataset=dataset,
            labels=labels,
            mode=self.mode,
            fallback=self.fallback,
            verdict=self.verdict,
            seed=self.seed,
            force=self.force,
        )
        print(f"{files_of(self.out)}: {parity}")


VERBS = {"export": Export}
