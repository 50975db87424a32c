"""The documents name only what exists."""

import importlib
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from tyro.conf import FlagCreatePairsOff, OmitArgPrefixes

import bcq
from bcq.cli.application import application, main
from bcq.experiments.records import read_records
from bcq.judging.fitting import FitSettings
from bcq.paper.table import side_by_side
from bcq.paper.verdicts import as_markdown, judge_all
from bcq.system.files import read_json

ROOT = Path(__file__).parent.parent
PAPER_MAP = (ROOT / "docs" / "paper_map.md").read_text()
README = (ROOT / "README.md").read_text()
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]
TEXT = "\n".join(path.read_text() for path in DOCUMENTS)
BLOCKS = "".join(re.findall(r"```sh\n(.*?)```", TEXT, re.DOTALL))

# Words of the documents that stand for something
PLACEHOLDERS = {
    **{"ALGORITHM": "bcq", "RECIPE": "random", "EXPERIMENT": "values", "RUN": "run"},
    **{"FILE": "log.csv", "IN": "log.csv", "OUT": "new.hdf5", "ID": "Pendulum-v1", "N": "100"},
}
NEEDED = {  # what a sentence about a verb may leave out
    "train": ("bcq", "--data", "log.csv"),
    "collect": ("random", "--env", "Pendulum-v1", "--out", "new.hdf5"),
    **{"inspect": ("log.csv",), "convert": ("log.csv", "new.hdf5"), "evaluate": ("run",)},
    "judge": ("run", "--data", "log.csv"),
    "sweep": ("bcq", "--data", "log.csv", "--out", "folder"),
    "compare": ("run",),
    "report": ("run", "--data", "log.csv", "--out", "card.html"),
    "serve": ("policy.onnx",),
}


def quoted(program: str) -> list[str]:
    """The commands of a program in all documents, in sentences and in blocks, without comments."""
    found = re.findall(rf"`{program}\s+([^`]+)`", re.sub(r"```.*?```", "", TEXT, flags=re.DOTALL))
    found += re.findall(rf"^{program} (.+)$", BLOCKS, re.MULTILINE)
    return sorted({" ".join(shlex.split(command, comments=True)) for command in found})


def as_typed(command: str) -> list[str]:
    """A command with something in every place."""
    words = [PLACEHOLDERS.get(word, word) for word in re.sub(r"[][]| \.\.\.", "", command).split()]
    verb, *rest = words
    complete = rest and not rest[0].startswith("--")
    return words if complete else [verb, *NEEDED.get(verb, ()), *rest]


@pytest.mark.parametrize("preset", ["quick", "standard"])
def test_committed_verdicts_are_those_of_the_committed_records(preset: str) -> None:
    folder = ROOT / "results" / preset
    theory = folder / "theory.json"
    records = read_records(folder / "runs.jsonl")
    found = judge_all(records, read_json(theory) if theory.exists() else None)
    assert (folder / "claims.md").read_text() == as_markdown(found)
    assert (folder / "table.md").read_text().startswith(side_by_side(records))


@pytest.mark.parametrize("document", ["README.md", "docs/reproduction.md"])
def test_returns_and_counts_of_verdicts_are_those_of_the_records(document: str) -> None:
    text = (ROOT / document).read_text()
    returns = (ROOT / "results/standard/table.md").read_text().splitlines()
    copied = re.findall(r"^\| (?:Hopper|HalfCheetah|Walker2d)-v5, .*$", text, re.MULTILINE)
    assert copied
    assert copied == [row for row in returns if row in copied]  # each once, in the same order
    counts = (ROOT / "results/standard/claims.md").read_text().splitlines()[0]
    assert counts in text


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


@pytest.mark.parametrize("command", [c for c in quoted("bcq") if c != "--help"])
def test_the_command_line_understands_every_command(command: str) -> None:
    words = as_typed(command)
    application(words).cli(prog="bcq", args=words, config=(OmitArgPrefixes, FlagCreatePairsOff))


def test_every_option_in_a_sentence_is_one_of_a_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for command in quoted("bcq"):
        with pytest.raises(SystemExit):
            main([*as_typed(command), "--help"])
    known = set(re.findall(r"--[a-z][a-z0-9-]*", capsys.readouterr().out))
    named = set(re.findall(r"`(--[a-z][a-z0-9-]*)[^`]*`", TEXT))
    assert {"--columns", "--resume", "--dry-run"} <= named
    assert named - known == set()


def test_every_target_of_make_exists() -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert {command.split()[0] for command in quoted("make")} <= set(targets)


@pytest.mark.parametrize("command", [c for c in quoted("python") if c.startswith("benchmarks/")])
def test_every_script_exists_and_has_its_options(command: str) -> None:
    script, *words = command.split()
    source = (ROOT / script).read_text()
    options = [word for word in words if word.startswith("--")]
    assert [option for option in options if f'"{option}"' not in source] == []


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`bcq\.([a-z_]+)`", TEXT))))
def test_every_name_of_the_library_exists(name: str) -> None:
    assert hasattr(bcq, name) or importlib.import_module(f"bcq.{name}")


@pytest.mark.usefixtures("own_compilation_cache")
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


@pytest.mark.usefixtures("own_compilation_cache")
def test_the_readmes_way_from_a_csv_file_to_a_policy_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    section = README.split("## Your own logs in five minutes\n")[1].split("\n## ")[0]
    blocks = re.findall(r"```(\w*)\n(.*?)```", section, re.DOTALL)
    assert [language for language, _ in blocks] == ["python", "toml", "sh", "python", "sh"]
    make_log, mapping, commands, act, judge = (block for _, block in blocks)
    exec(make_log, {})
    Path("heating.toml").write_text(mapping)
    inspect, train = (shlex.split(line)[1:] for line in commands.splitlines())
    main(inspect)
    printed = capsys.readouterr().out
    assert "no errors, no warnings" in printed
    on_the_line = re.search(r"`--columns (.*?) \.\.\.`", section)
    assert on_the_line is not None
    names = "observations=inside,outside actions=kilowatts rewards=comfort terminated=frozen"
    place = inspect.index("heating.toml")
    main([*inspect[:place], *on_the_line[1].split(), *names.split(), *inspect[place + 1 :]])
    assert capsys.readouterr().out == printed
    train[train.index("--steps") + 1] = "100"
    main([*train, "--hidden-sizes", "8", "--vae-hidden-sizes", "8"])
    said = capsys.readouterr().err
    assert "warning" not in said
    assert "scaling: observations are standardised" in said
    found: dict[str, Any] = {}
    exec(act, found)
    kilowatts = found["policy"].act([[12.0, -5.0], [23.0, -5.0]])
    assert kilowatts.shape == (2, 1)
    assert (kilowatts >= 0).all()
    assert (kilowatts <= 6).all()
    quick = FitSettings(fits=2, period=1_000, batch_size=8, hidden_sizes=(8,))
    monkeypatch.setattr("bcq.judging.values.FitSettings", lambda: quick)
    monkeypatch.setattr("bcq.judging.fitting.LONGEST", 2)
    main(shlex.split(judge)[1:])
    assert "extrapolation meter" in capsys.readouterr().out
