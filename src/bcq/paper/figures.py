"""Draws the figures of the paper from records."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from bcq.experiments.records import Record
from bcq.paper.drawing import Draw
from bcq.paper.figure_1_extrapolation import figure_1
from bcq.paper.figure_2_results import figure_2
from bcq.paper.figure_3_values import figure_3
from bcq.paper.figure_7_perturbation import figure_7
from bcq.paper.figure_8_uncertainty import figure_8
from bcq.paper.figure_9_random_behaviour import figure_9
from bcq.system.files import make_directory, replacing


def draw_all(records: Sequence[Record], folder: Path) -> list[Path]:
    """Every figure for which there are records, as PNG and PDF."""
    drawn: dict[str, Figure | None] = {name: draw(records) for name, draw in SIDE_BY_SIDE.items()}
    for env in sorted({one.env for one in records}):
        here = [one for one in records if one.env == env]
        drawn |= {f"{name}-{env}": draw(here) for name, draw in ONE_BY_ONE.items()}
    return save_all(drawn, folder)


def save_all(drawn: Mapping[str, Figure | None], folder: Path) -> list[Path]:
    """The figures that there are, in both formats."""
    make_directory(folder)
    return [
        save(figure, folder / f"{name}.{ending}")
        for name, figure in drawn.items()
        if figure is not None
        for ending in FORMATS
    ]


FORMATS = ("png", "pdf")


def save(figure: Figure, path: Path) -> Path:
    """Writes it without a date: the same records give the same bytes."""
    metadata = {"CreationDate": None} if path.suffix == ".pdf" else {}
    with replacing(path) as temporary:
        figure.savefig(temporary, format=path.suffix[1:], metadata=metadata)
    return path


SIDE_BY_SIDE: dict[str, Draw] = {"results": figure_2, "values": figure_3}
ONE_BY_ONE: dict[str, Draw] = {
    "extrapolation": figure_1,
    "perturbation": figure_7,
    "uncertainty": figure_8,
    "random": figure_9,
}
