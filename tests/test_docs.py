"""The documents name only what exists."""

import importlib
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from bcq.cli.application import main

ROOT = Path(__file__).parent.parent
PAPER_MAP = (ROOT / "docs" / "paper_map.md").read_text()
README = (ROOT / "README.md").read_text()


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


@pytest.mark.usefixtures("compiled_quickly", "own_compilation_cache")
def test_the_readmes_example_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    example = re.search(r"## In Python\n.*?```python\n(.*?)```", README, re.DOTALL)
    assert example is not None
    shorter = {"transitions=5_000": "transitions=500", "steps=5_000": "steps=200", "1_000": "100"}
    code = example[1]
    for printed, run in shorter.items():
        assert code.count(printed) == 1
        code = code.replace(printed, run)
    names: dict[str, Any] = {}
    exec(code, names)
    assert names["actions"].shape == (8, 1)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["return", "100", "200", "return"]


@pytest.mark.usefixtures("compiled_quickly", "own_compilation_cache")
def test_the_readmes_way_from_a_csv_file_to_a_policy_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    section = README.split("## Your own logs in five minutes\n")[1].split("\n## ")[0]
    blocks = re.findall(r"```(\w*)\n(.*?)```", section, re.DOTALL)
    assert [language for language, _ in blocks] == ["python", "toml", "sh", "python"]
    (_, make_log), (_, mapping), (_, commands), (_, act) = blocks
    exec(make_log, {})
    Path("heating.toml").write_text(mapping)
    inspect, train = (shlex.split(line)[1:] for line in commands.splitlines())
    main(inspect)
    assert "no errors, no warnings" in capsys.readouterr().out
    train[train.index("--steps") + 1] = "100"
    main([*train, "--hidden-sizes", "8", "--vae-hidden-sizes", "8"])
    assert "warning" not in capsys.readouterr().err
    names: dict[str, Any] = {}
    exec(act, names)
    kilowatts = names["policy"].act([[-8.0, -5.0], [3.0, -5.0]])
    assert kilowatts.shape == (2, 1)
    assert (kilowatts >= 0).all()
    assert (kilowatts <= 6).all()
