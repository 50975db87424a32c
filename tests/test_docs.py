"""The documents name only what exists."""

import importlib
import re
from pathlib import Path
from typing import Any

import pytest

import bcq

ROOT = Path(__file__).parent.parent
PAPER_MAP = (ROOT / "docs" / "paper_map.md").read_text()


@pytest.mark.parametrize("reference", sorted(set(re.findall(r"`(test_\w+\.py::\w+)`", PAPER_MAP))))
def test_tests_named_in_the_paper_map_exist(reference: str) -> None:
    file, name = reference.split("::")
    assert f"def {name}(" in (ROOT / "tests" / file).read_text()


@pytest.mark.parametrize(
    "reference", sorted(set(re.findall(r"`([a-z_]+(?:\.\w+)+)`", PAPER_MAP)) - {"bcq"})
)
def test_functions_named_in_the_paper_map_exist(reference: str) -> None:
    parts = reference.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found = importlib.import_module("bcq." + ".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for part in parts[cut:]:
            found = getattr(found, part)
        return
    pytest.fail(f"there is no bcq.{reference}")


def test_every_equation_and_figure_has_a_row() -> None:
    for number in range(1, 34):
        assert re.search(rf"^\| {number} \|", PAPER_MAP, re.MULTILINE), f"Eq. {number}"
    for number in range(1, 13):
        assert re.search(rf"^\| Figure {number} \|", PAPER_MAP, re.MULTILINE), f"Figure {number}"


def test_the_readmes_example_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("runs/demo-pendulum").mkdir(parents=True)
    bcq.save(bcq.collect_random("Pendulum-v1", transitions=300), "runs/demo-pendulum/batch.hdf5")
    example = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert example is not None
    code = (
        example[1]
        .replace("5_000", "100")
        .replace("vae_l2=1e-3", "vae_l2=1e-3, hidden_sizes=(8,), vae_hidden_sizes=(8,)")
    )
    names: dict[str, Any] = {}
    exec(code, names)
    assert names["actions"].shape == (8, 1)
    assert capsys.readouterr().out.startswith("100 ")
