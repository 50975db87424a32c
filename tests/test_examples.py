"""The gallery of logs: its commands are executed, and what they end in is as its page says."""

import re
import runpy
import shlex
import sys
from pathlib import Path

import pytest

import bcq
from bcq.cli.application import main

EXAMPLES = Path(__file__).parent.parent / "examples"
PAGE = (EXAMPLES / "README.md").read_text()
SECTIONS = re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]
FEW = "100"  # updates where only the way is tested, not what is learned


def commands(section: str) -> list[list[str]]:
    (block,) = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)
    return [shlex.split(line) for line in block.splitlines()]


@pytest.fixture
def _gallery(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(EXAMPLES)
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.setattr("bcq.runs.origin.use_compilation_cache", lambda: None)


def execute(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    program, *rest = words
    if program == "bcq":
        main(rest)
    else:
        monkeypatch.setattr(sys, "argv", rest)
        runpy.run_path(rest[0], run_name="__main__")


def test_there_are_three_examples_with_all_their_files() -> None:
    names = [re.findall(r"python examples/(\w+)\.py log", section)[0] for section in SECTIONS]
    assert names == ["heating", "process", "treatment"]
    for name in names:
        assert {f"{name}.py", f"{name}.toml"} <= {path.name for path in EXAMPLES.iterdir()}


@pytest.mark.usefixtures("_gallery")
@pytest.mark.parametrize("section", SECTIONS[:2], ids=["heating", "process"])
def test_commands_about_quantities(
    section: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    log, inspect, train, judge = commands(section)
    execute(log, monkeypatch)
    execute(inspect, monkeypatch)
    assert "doctor         no errors" in capsys.readouterr().out
    train[train.index("--steps") + 1] = FEW
    execute(train, monkeypatch)
    execute(judge, monkeypatch)
    policy, behaviour = re.findall(r"-\d+\.\d", capsys.readouterr().out)[-2:]
    assert f"in the log {float(behaviour):.0f}." in section
    assert float(policy) != float(behaviour)


@pytest.mark.usefixtures("_gallery")
def test_commands_about_choices(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    section = SECTIONS[2]
    for words in commands(section):
        execute(words, monkeypatch)
    out = capsys.readouterr().out
    policy, behaviour = (float(number) for number in re.findall(r"-\d+\.\d", out)[-2:])
    assert f"in the log {behaviour:.0f}." in section
    assert policy > 0.8 * behaviour  # better by a fifth at least
    (script,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    exec(script, {})
    said = capsys.readouterr().out.splitlines()
    assert said == re.findall(r"  # (.+)", script)
    assert bcq.load("treatment.csv", columns=columns()).propensities is not None


def columns() -> dict[str, list[str]]:
    return {"observations": ["pressure"], "actions": ["treatment"], "rewards": ["health"]}
