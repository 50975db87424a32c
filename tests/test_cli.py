"""The command line as a user meets it: one line for each mistake, and nothing half-written."""

import ast
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import h5py
import jax
import numpy as np
import pytest
from tyro.conf import FlagCreatePairsOff, OmitArgPrefixes

import bcq
from bcq.algorithms import ALGORITHMS
from bcq.cli import application as cli
from bcq.cli.application import main
from bcq.cli.training import as_text
from bcq.cli.verbs import beside, say_choices
from bcq.collection.experts import Expert
from bcq.data.bounds import ActionBounds, Choices, TaskSpec
from bcq.experiments.engines import EngineChoice
from bcq.paper import reproduce
from bcq.runs.schedules import Schedule
from bcq.system.errors import InterruptionError
from bcq.training.policy import Policy
from conftest import ROWS, BatchFile

TINY = (
    *("--hidden-sizes", "8", "8", "--vae-hidden-sizes", "8", "8"),
    *("--steps", "100", "--discount", "1"),
)
Refusal = Callable[..., str]


@pytest.fixture(autouse=True, scope="module")
def surroundings(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[None]:
    """Compiled code goes to a folder of these tests; help has one width."""
    names = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs")
    before = {name: getattr(jax.config, name) for name in names}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("COLUMNS", "80")
        yield
    for name, value in before.items():
        jax.config.update(name, value)  # type: ignore[no-untyped-call]


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A batch and the run that learned from it, without an environment."""
    folder = tmp_path_factory.mktemp("finished")
    batch, run = folder / "pendulum.hdf5", folder / "run"
    bcq.save(bcq.collect_random("Pendulum-v1", transitions=300), batch)
    main(["train", "bcq", "--data", str(batch), "--out", str(run), *TINY])
    return batch, run


def tree(folder: Path) -> dict[Path, bytes | None]:
    """Everything under a folder, with the files' content."""
    return {
        path: path.read_bytes() if path.is_file() else None for path in sorted(folder.rglob("*"))
    }


@pytest.fixture
def refusal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Refusal:
    """Runs a command that must fail without a trace on the disk, and gives its one line."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str | Path) -> str:
        before = tree(tmp_path)
        with pytest.raises(SystemExit) as caught:
            main([str(argument) for argument in arguments])
        # What `sys.exit` is given, the interpreter prints on stderr and exits with 1.
        assert isinstance(caught.value.code, str)
        assert caught.value.code.startswith("bcq: ")
        assert "\n" not in caught.value.code
        printed = capsys.readouterr()
        assert (printed.out, printed.err) == ("", "")
        assert tree(tmp_path) == before
        return caught.value.code

    return run


@pytest.fixture
def refused_option(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Refusal:
    """The same for options that cannot be parsed; their message comes in a box."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str | Path) -> str:
        before = tree(tmp_path)
        with pytest.raises(SystemExit) as caught:
            main([str(argument) for argument in arguments])
        assert caught.value.code == 2
        printed = capsys.readouterr()
        assert printed.out == ""
        assert "Traceback" not in printed.err
        assert tree(tmp_path) == before
        return " ".join(re.sub(r"[^\x20-\x7e]", " ", printed.err).split())

    return run


# Data


def with_nan(values: np.ndarray) -> np.ndarray:
    values[17] = np.nan
    return values


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"actions": None}, ["actions: is missing", "the file has observations"]),
        ({"observations": None, "obs": np.zeros((ROWS, 3))}, ["observations: is missing"]),
        ({"terminals": None, "dones": np.zeros(ROWS)}, ["terminated: is missing"]),
        ({"rewards": with_nan(np.zeros(ROWS))}, ["rewards, row 17: is nan"]),
        ({"observations": with_nan(np.zeros((ROWS, 3)))}, ["observations, row 17: is nan"]),
        (
            {"actions": np.linspace(-2, 2, ROWS)[:, None]},
            [
                "actions, row 0: [-2.0] is not between [-1.0] and [1.0]",
                "--action-low and --action-high",
            ],
        ),
        ({"rewards": np.zeros(39)}, ["rewards: has 39 rows but observations has 40"]),
        ({"rewards": ["1.5"] * ROWS}, ["rewards: contains objects, not numbers"]),
        ({"terminals": np.full(ROWS, 2)}, ["terminated, row 0: is 2"]),
    ],
)
def test_bad_data_is_named_with_its_file_and_place(
    changes: dict[str, Any], words: list[str], batch_file: BatchFile, refusal: Refusal
) -> None:
    path = batch_file(**changes)
    for out in (("--out", "run"), ()):
        message = refusal("train", "bcq", "--data", path, *TINY, *out)
        assert message.startswith(f"bcq: {path}: ")
        for part in words:
            assert part in message


def test_what_is_no_data_file_is_named(tmp_path: Path, refusal: Refusal) -> None:
    (tmp_path / "folder.hdf5").mkdir()
    (tmp_path / "empty.hdf5").touch()
    (tmp_path / "table.csv").write_text("0,1\n")
    (tmp_path / "table.pkl").touch()
    for name, words in (
        ("missing.hdf5", "no such file"),
        ("folder.hdf5", "is a folder"),
        ("empty.hdf5", "cannot be read as HDF5"),
        (
            "table.csv",
            "observations: is missing; name its column in columns (there are 0, 1); use --",
        ),
        ("table.pkl", "unknown file type"),
    ):
        message = refusal("train", "bcq", "--data", name, *TINY)
        assert message.startswith(f"bcq: {name}: {words}")


def test_actions_beyond_the_bounds_given_are_refused(
    batch_file: BatchFile, refusal: Refusal
) -> None:
    actions = np.zeros((ROWS, 1))
    actions[17] = 2.5
    data = ("train", "bcq", "--data", batch_file(actions=actions), *TINY)
    message = refusal(*data, "--action-low", "-2", "--action-high", "2")
    assert "actions, row 17: [2.5] is not between [-2.0] and [2.0]" in message
    assert "must be given together" in refusal(*data, "--action-low", "-2")
    assert "is above high" in refusal(*data, "--action-low", "3", "--action-high", "-3")
    assert "finite" in refusal(*data, "--action-low", "-1e39", "--action-high", "3")
    message = refusal(*data, "--action-low", "-3", "-3", "--action-high", "3", "3")
    assert "1 dimensions but the bounds have 2" in message


# Environments


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ("Nowhere-v0", "Nowhere"),
        ("nowhere:Pendulum-v1", "No module named 'nowhere'"),
        ("Pendulum-v9", "v9"),
        ("two words", "Malformed"),
        ("FrozenLake-v1", "its observations are Discrete(16)"),
        ("MountainCarContinuous-v0", "its observations have 2 numbers, those of the data 3"),
    ],
)
def test_an_environment_that_cannot_serve_is_refused(
    environment: str, words: str, batch_file: BatchFile, refusal: Refusal
) -> None:
    message = refusal("train", "bcq", "--data", batch_file(), *TINY, "--env", environment)
    assert message.startswith(f"bcq: environment {environment}: ")
    assert words in message


# Places


@pytest.mark.parametrize("out", ["file.txt", "file.txt/run", "file.txt/deep/run"])
def test_an_output_that_cannot_be_written_is_named(
    out: str, tmp_path: Path, batch_file: BatchFile, refusal: Refusal
) -> None:
    (tmp_path / "file.txt").write_text("mine")
    message = refusal("train", "bcq", "--data", batch_file(), "--out", out, *TINY)
    assert message.startswith(f"bcq: cannot create folder {out}: ")
    assert "cannot create folder" in refusal("demo", "pendulum", "--out", out, "--steps", "100")


def test_a_folder_without_a_run_cannot_be_evaluated(tmp_path: Path, refusal: Refusal) -> None:
    (tmp_path / "folder").mkdir()
    for name in ("folder", "missing"):
        assert refusal("evaluate", name).startswith(f"bcq: {name}: does not contain a run")


# Options


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--steps", "0"), "steps: 0 is not at least 1"),
        (("--steps", "-5"), "steps: -5 is not at least 1"),
        (("--seed", "-1"), "seed: -1 is not between 0 and 2147483647"),
        (("--seed", "2147483648"), "seed: 2147483648 is not between 0 and 2147483647"),
        (("--checkpoint-every", "150"), "checkpoint_every: 150 is not a positive multiple of 100"),
        (("--evaluate-episodes", "0"), "evaluate_episodes: 0 is not at least 1"),
        (("--batch-size", "0"), "batch_size: 0 is not at least 1"),
        (("--learning-rate", "nan"), "learning_rate: nan is not above 0"),
        (("--discount", "1.5"), "discount: 1.5 is not between 0 and 1"),
        (("--hidden-sizes", "0"), "hidden_sizes: (0,) is not at least 1"),
    ],
)
def test_impossible_settings_are_refused_by_name(
    options: tuple[str, ...], words: str, batch_file: BatchFile, refusal: Refusal
) -> None:
    assert refusal("train", "bcq", "--data", batch_file(), *TINY, *options) == f"bcq: {words}"


@pytest.mark.parametrize(
    ("options", "words"),
    [(("--steps", "many"), "--steps"), (("--no-such-option", "1"), "--no-such-option")],
)
def test_impossible_options_are_refused_by_name(
    options: tuple[str, ...], words: str, batch_file: BatchFile, refused_option: Refusal
) -> None:
    assert words in refused_option("train", "bcq", "--data", batch_file(), *TINY, *options)


def test_an_incomplete_command_says_what_is_missing(refused_option: Refusal) -> None:
    verbs = f"{{{', '.join(cli.VERBS)}}}"
    assert verbs in refused_option()
    assert f"{{{', '.join(ALGORITHMS)}}}" in refused_option("train")
    recipes = "{final-buffer, concurrent, imitation, imperfect, random}"
    assert recipes in refused_option("collect")
    assert "{train, list}" in refused_option("experts")
    assert "{cheetah, pendulum}" in refused_option("demo")
    assert "--data" in refused_option("train", "bcq")
    assert "RUN" in refused_option("evaluate").upper()
    assert "fly" in refused_option("fly")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--steps", "0"), "steps: 0 is not at least 1"),
        (("--seed", "-1"), "seed: -1 is not between 0 and 2147483647"),
    ],
)
def test_the_demo_checks_its_options_before_it_writes(
    options: tuple[str, ...], words: str, refusal: Refusal
) -> None:
    assert refusal("demo", "pendulum", "--steps", "100", *options) == f"bcq: {words}"


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--version"])
    assert capsys.readouterr().out == f"bcq {bcq.__version__}\n"


def test_the_version_is_no_option_of_a_verb(refused_option: Refusal) -> None:
    arguments = ("train", "bcq", "--data", "missing.hdf5", "--version")
    assert "--version" in refused_option(*arguments)


def test_the_module_is_the_command() -> None:
    command = [sys.executable, "-m", "bcq", "--version"]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    assert (answer.stdout, answer.stderr) == (f"bcq {bcq.__version__}\n", "")


@pytest.mark.parametrize("arguments", [("--version",), ("train", "bcq", "--help")])
def test_a_reader_that_leaves_early_is_no_error(arguments: tuple[str, ...]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as pipe:
        command = [sys.executable, "-m", "bcq", *arguments]
        answer = subprocess.run(command, stdout=pipe, stderr=subprocess.PIPE, check=False)
    assert answer.stderr == b""
    assert answer.returncode == 128 + signal.SIGPIPE  # as of any command that a closed pipe ends


@pytest.mark.parametrize(
    ("verbs", "words"),
    [
        (
            (),
            [
                "train",
                "evaluate",
                "judge",
                "export",
                "collect",
                "experts",
                "inspect",
                "convert",
                "theory",
                "reproduce",
                "demo",
            ],
        ),
        (("train",), list(ALGORITHMS)),
        (("collect",), ["final-buffer", "concurrent", "imitation", "imperfect", "random"]),
        (("collect", "concurrent"), ["--env", "--out", "--transitions", "--noise", "--seed"]),
        (("collect", "imitation"), ["--env", "--out", "--policy", "--transitions", "--seed"]),
        (("collect", "imperfect"), ["--policy", "--noise", "--random-probability", "--seed"]),
        (("experts",), ["train", "list"]),
        (("experts", "train"), ["--env", "--seeds", "--keep", "--steps", "--out"]),
        (
            ("inspect",),
            ["--picture", "--json", "--fix", "--suggest", "--columns", "--action-margin", "--env"],
        ),
        (("convert",), ["--columns", "--action-low", "--action-high", "--action-margin", "--env"]),
        (("demo",), ["cheetah", "pendulum"]),
        (("theory",), ["--out", "--seed"]),
        (("reproduce",), ["--preset", "--env", "--out", "--dry-run", "--check"]),
        (("demo", "pendulum"), ["--out", "--steps", "--seed"]),
        (("evaluate",), ["--env", "--episodes", "--seed", "--json", "--quiet"]),
        (("judge",), ["--data", "--fit-on", "--discount", "--seed", "--json", "--columns"]),
        (
            ("export",),
            ["--describe", "--data", "--columns", "--mode", "--fallback", "--seed", "--force"],
        ),
        (("train", "bcq"), ["--data", "--out", "--resume", "--action-low", "--columns"]),
        (("train", "discrete-bcq"), ["--hold-out", "--hold-out-by", "--scaling", "--keep"]),
    ],
)
def test_help_names_every_verb_and_option(
    verbs: tuple[str, ...], words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main([*verbs, "--help"])
    assert caught.value.code == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    for word in words:
        assert re.search(rf"(?<!\S){re.escape(word)}\b", re.sub("[{},]", " ", printed.out)), word


@pytest.mark.parametrize("name", ALGORITHMS)
def test_help_explains_every_setting_of_an_algorithm_with_its_default(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["train", name, "--help"])
    text = " ".join(re.sub(r"[^\x20-\x7e]", " ", capsys.readouterr().out).split())
    for setting in (*fields(ALGORITHMS[name]), *fields(Schedule)):
        option = f" --{setting.name.replace('_', '-')} "
        assert text.count(option) == 1, option
        default = setting.default
        shown = " ".join(map(str, default)) if isinstance(default, tuple) else str(default)
        about = text.split(option)[1].split(" --")[0]
        assert f"(default: {shown})" in about, option
        assert len(about.split("(default:")[0].split()) > 3, option


# Runs


def test_a_run_is_trained_and_evaluated(
    finished_run: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    _, run = finished_run
    capsys.readouterr()
    main(["evaluate", str(run), "--episodes", "2", "--seed", "4", "--json"])
    printed = capsys.readouterr()
    assert printed.err == ""
    result = json.loads(printed.out)
    assert (result["env"], result["seed"]) == ("Pendulum-v1", 4)
    assert result["lengths"] == [200, 200]
    assert result["mean_return"] == pytest.approx(np.mean(result["returns"]))
    assert result["std_return"] == pytest.approx(np.std(result["returns"]))
    assert -2000 < min(result["returns"]) <= max(result["returns"]) < 0

    main(["evaluate", str(run), "--episodes", "2", "--seed", "4"])
    line = capsys.readouterr().out
    assert line.count("\n") == 1
    assert f"Pendulum-v1, 2 episodes at update 100: return {result['mean_return']:.1f}" in line


def test_a_run_without_discounting_reaches_its_end(finished_run: tuple[Path, Path]) -> None:
    run = bcq.Run.open(finished_run[1])
    assert run.algorithm.discount == 1
    assert run.checkpoint_step() == 100


def test_a_run_leaves_no_temporary_files(finished_run: tuple[Path, Path]) -> None:
    _, run = finished_run
    assert {path.name for path in run.iterdir()} == {
        *("config.json", "checkpoint.json", "step-100.safetensors", ".lock"),
        *("metrics.jsonl", "timing.jsonl"),
    }


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--episodes", "0"), "episodes: 0 is not at least 1"),
        (("--seed", "-1"), "seed: -1 is not between 0 and 2147483647"),
        (("--env", "Nowhere-v0"), "environment Nowhere-v0: "),
        (("--env", "MountainCarContinuous-v0"), "observations have 2 numbers"),
    ],
)
def test_impossible_evaluations_are_refused(
    options: tuple[str, ...], words: str, finished_run: tuple[Path, Path], refusal: Refusal
) -> None:
    assert words in refusal("evaluate", finished_run[1], *options)


def test_a_second_run_into_the_same_folder_is_refused(
    finished_run: tuple[Path, Path], refusal: Refusal
) -> None:
    batch, run = finished_run
    before = tree(run)
    message = refusal("train", "bcq", "--data", batch, "--out", run, *TINY)
    assert message.startswith(f"bcq: {run} already contains a run")
    assert "--resume" in message
    assert tree(run) == before


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--discount", "0.9"), "settings.discount = 1.0, not 0.9"),
        (("--seed", "1"), "schedule.seed = 0, not 1"),
        (("--env", "Pendulum-v1"), "schedule.env = None, not Pendulum-v1"),
        (("--hidden-sizes", "9", "8"), "settings.hidden_sizes = [8, 8], not [9, 8]"),
        (("--action-low", "-3", "--action-high", "3"), "dataset.fingerprint"),
        (("--steps", "50"), "is already at update 100, more than 50"),
    ],
)
def test_resuming_with_other_settings_is_refused(
    options: tuple[str, ...], words: str, finished_run: tuple[Path, Path], refusal: Refusal
) -> None:
    batch, run = finished_run
    before = tree(run)
    message = refusal("train", "bcq", "--data", batch, "--out", run, "--resume", *TINY, *options)
    assert message.startswith(f"bcq: {run}: ")
    assert words in message
    assert tree(run) == before


def test_resuming_with_other_data_is_refused(
    finished_run: tuple[Path, Path], tmp_path: Path, refusal: Refusal
) -> None:
    batch, run = finished_run
    other = tmp_path / "pendulum.hdf5"
    other.write_bytes(batch.read_bytes())
    with h5py.File(other, "a") as file:
        file["rewards"][17] += 1
    message = refusal("train", "bcq", "--data", other, "--out", run, "--resume", *TINY)
    assert "dataset.fingerprint" in message


@pytest.mark.parametrize("place", ["schedule.env", "dataset.environment"])
def test_an_environment_named_by_a_run_imports_no_module(
    place: str,
    finished_run: tuple[Path, Path],
    tmp_path: Path,
    refusal: Refusal,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = json.loads((finished_run[1] / "config.json").read_text())
    part, name = place.split(".")
    config[part][name] = "intruder:Pendulum-v1"
    (tmp_path / "config.json").write_text(json.dumps(config))
    for item in ("checkpoint.json", "step-100.safetensors"):
        (tmp_path / item).write_bytes((finished_run[1] / item).read_bytes())
    (tmp_path / "intruder.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    message = refusal("evaluate", tmp_path)
    assert "environment intruder:Pendulum-v1: " in message
    assert "--env" in message
    assert "intruder" not in sys.modules


def test_the_installed_command_prints_one_line_and_fails(tmp_path: Path) -> None:
    command = Path(sys.executable).with_name("bcq")
    arguments = ["train", "bcq", "--data", "missing.hdf5"]
    answer = subprocess.run(
        [command, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert answer.returncode == 1
    assert answer.stderr == "bcq: missing.hdf5: no such file\n"
    assert answer.stdout == ""
    assert list(tmp_path.iterdir()) == []


# What is not given


def parsed(*arguments: str) -> Any:
    """The command that these arguments make, not yet obeyed."""
    return cli.application(arguments).cli(
        prog="bcq", args=arguments, config=(OmitArgPrefixes, FlagCreatePairsOff)
    )


OUT = ("--env", "Hopper-v5", "--out", "a.hdf5")
FIXED = {"seed": 0, "quiet": False}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (
            ("collect", "final-buffer", *OUT),
            FIXED | {"transitions": 1_000_000, "noise": 0.5, "recipe": "final-buffer", "keep": 1},
        ),
        (
            ("collect", "concurrent", *OUT),
            FIXED | {"transitions": 1_000_000, "noise": 0.1, "recipe": "concurrent"},
        ),
        (("collect", "imitation", *OUT), FIXED | {"transitions": 1_000_000, "policy": "0"}),
        (
            ("collect", "imperfect", *OUT),
            FIXED
            | {"transitions": 100_000, "policy": "0", "noise": 0.3, "random_probability": 0.3},
        ),
        (("collect", "random", *OUT), FIXED | {"transitions": 5_000}),
        (
            ("experts", "train", "--env", "Hopper-v5"),
            {"seeds": "0..14", "keep": 5, "steps": 1_000_000, "longest": 0, "quiet": False}
            | {"out": Path("runs/experts")},
        ),
        (
            ("evaluate", "run"),
            FIXED
            | {"run": Path("run"), "env": None, "episodes": 10, "data": None}
            | {"values": False, "meter": False, "json": False},
        ),
        (
            ("inspect", "a.csv"),
            {"data": Path("a.csv"), "env": None, "fix": None, "picture": None, "json": False},
        ),
        (("demo", "pendulum"), FIXED | {"out": Path("runs/demo-pendulum"), "steps": 8_000}),
        (("demo", "cheetah"), FIXED | {"out": Path("runs/demo-cheetah"), "steps": 15_000}),
        (("theory",), FIXED | {"out": Path("runs/theory")}),
        (
            ("reproduce",),
            {"experiments": (), "preset": "quick", "env": (), "out": None, "quiet": False}
            | {"dry_run": False, "check": False},
        ),
        (
            ("train", "bc", "--data", "a.csv"),
            {"data": Path("a.csv"), "out": None, "resume": False, "quiet": False},
        ),
    ],
)
def test_what_is_not_given_is_as_the_paper_or_usual(
    arguments: tuple[str, ...], expected: dict[str, Any]
) -> None:
    command = parsed(*arguments)
    assert {name: getattr(command, name) for name in expected} == expected


def test_what_is_known_of_a_log_reaches_its_reader() -> None:
    given = ("--columns", "rewards=r", "--action-low", "-1", "--action-high", "2")
    reading = parsed("inspect", "a.csv", *given).reading
    options = reading.options("Pendulum-v1")
    assert (options.columns, options.environment) == ({"rewards": ("r",)}, "Pendulum-v1")
    actions = (options.action_low, options.action_high, options.action_margin)
    assert actions == ((-1.0,), (2.0,), None)
    options = parsed("inspect", "a.csv", "--action-margin", "0.5").reading.options()
    assert (options.columns, options.environment, options.action_margin) == ({}, None, 0.5)


def test_how_a_log_is_read_reaches_its_reader_if_it_is_given() -> None:
    usual = parsed("inspect", "a.csv").reading.options()
    how = (usual.action_kind, usual.step_format, usual.missing, usual.lags)
    assert how == ("auto", None, "refuse", 0)
    given = ("--action-kind", "discrete", "--step-format", "%d", "--missing", "fill", "--lags", "2")
    options = parsed("inspect", "a.csv", *given).reading.options()
    how = (options.action_kind, options.step_format, options.missing, options.lags)
    assert how == ("discrete", "%d", "fill", 2)
    bounds = options.bounds_of("Pendulum-v1")
    assert bounds is not None
    assert (bounds.low.tolist(), bounds.high.tolist()) == ([-2], [2])


@pytest.mark.parametrize(
    ("count", "end"), [(2, "0, 1)"), (16, "14, 15)"), (17, "14, 15, ...)"), (40, "14, 15, ...)")]
)
def test_at_most_sixteen_choices_are_listed(
    count: int, end: str, capsys: pytest.CaptureFixture[str]
) -> None:
    say_choices(TaskSpec(3, Choices([str(i) for i in range(count)])))
    said = capsys.readouterr().err
    assert said.startswith(f"bcq: actions: {count} choices (0, 1")
    assert said.endswith(f"{end}\n")


class Asked(Exception):  # noqa: N818 - no error: the work would begin here
    """With what a function was called."""


def asked_of(monkeypatch: pytest.MonkeyPatch, function: str, *arguments: str) -> Any:
    """What a command calls a function with, which then does nothing."""

    def ask(*given: Any, **named: Any) -> None:
        raise Asked(given, named)

    monkeypatch.setattr(function, ask)
    with pytest.raises(Asked) as caught:
        parsed(*arguments)()
    return caught.value.args


@pytest.mark.parametrize("recipe", ["final-buffer", "concurrent"])
def test_what_is_said_of_an_agent_reaches_it(recipe: str, monkeypatch: pytest.MonkeyPatch) -> None:
    options = ("--transitions", "500", "--seed", "3", "--noise", "0.25", "--random-steps", "7")
    given, named = asked_of(
        monkeypatch,
        "bcq.cli.collecting.collect_behaviour_to",
        *("collect", recipe, *OUT, *options, "--keep", "all"),
    )
    path, name, schedule = given
    assert (path, name, named) == (Path("a.hdf5"), recipe, {})
    assert (schedule.env, schedule.steps, schedule.seed) == ("Hopper-v5", 500, 3)
    assert (schedule.noise, schedule.random_steps, schedule.keep) == (0.25, 7, "all")


def test_what_is_said_of_a_recipe_reaches_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def recipe_of(name: str, *options: str) -> Any:
        arguments = ("collect", name, *OUT, "--transitions", "500", "--seed", "3", *options)
        given, _ = asked_of(monkeypatch, "bcq.cli.collecting.collect_to", *arguments)
        path, recipe = given
        assert path == Path("a.hdf5")
        assert (recipe.name, recipe.environment) == (name, "Hopper-v5")
        assert (recipe.transitions, recipe.seed) == (500, 3)
        return recipe

    def found(source: str, environment: str) -> Any:
        task = TaskSpec(11, ActionBounds(-np.ones(3, np.float32), np.ones(3, np.float32)))
        return Expert(f"number {source}", environment, Policy(cast(Any, None), task), {})

    monkeypatch.setattr("bcq.cli.collecting.find", found)
    assert recipe_of("random").behaviour.description == "uniform"
    behaviour = recipe_of("imitation", "--policy", "4").behaviour
    assert (behaviour.expert.name, behaviour.noise) == ("number 4", 0)
    options = ("--policy", "2", "--noise", "0.5", "--random-probability", "0.25")
    behaviour = recipe_of("imperfect", *options).behaviour
    assert behaviour.expert.name == "number 2"
    assert (behaviour.noise, behaviour.random_probability) == (0.5, 0.25)


@pytest.mark.parametrize("name", ["cheetah", "pendulum"])
def test_what_is_said_of_a_demo_reaches_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    options = ("--out", "here", "--steps", "300", "--seed", "4")
    given, named = asked_of(monkeypatch, f"bcq.paper.demo.{name}", "demo", name, *options)
    assert (given, named) == ((Path("here"),), {"steps": 300, "seed": 4})


@pytest.mark.parametrize("verb", cli.VERBS)
def test_help_says_what_each_verb_is_for(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ([verb, "--help"], ["--help"]):
        with pytest.raises(SystemExit):
            main(arguments)
        said = " ".join(re.sub(r"[^\x20-\x7e]", " ", capsys.readouterr().out).split())
        assert cli.VERBS[verb][1].rstrip(".") in said, arguments


@pytest.mark.parametrize(
    ("options", "function", "out"),
    [
        ((), "reproduce", "runs/reproduce-smoke"),
        (("--dry-run",), "dry_run", "runs/reproduce-smoke"),
        (("--check",), "show", "runs/reproduce-smoke"),
        (("--check", "--out", "here"), "show", "here"),
    ],
)
def test_reproduce_runs_or_lists_or_judges(
    options: tuple[str, ...], function: str, out: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[tuple[Any, ...]] = []
    for name in ("reproduce", "dry_run", "show"):
        monkeypatch.setattr(reproduce, name, lambda *given, name=name: called.append((name, given)))
    parsed("reproduce", "theory", "--preset", "smoke", "--env", "Hopper-v5", *options)()
    plan = () if function == "show" else ("smoke", ("theory",), ("Hopper-v5",))
    engine = (EngineChoice(),) if function == "reproduce" else ()
    assert called == [(function, (*plan, Path(out), *engine))]


# What goes wrong inside


def obeyed(failure: BaseException, monkeypatch: pytest.MonkeyPatch) -> Any:
    """How the command ends whose verb fails so."""

    def fail() -> None:
        raise failure

    monkeypatch.setattr(cli, "application", lambda _: SimpleNamespace(cli=lambda **_: fail))
    with pytest.raises(SystemExit) as caught:
        main(["verb"])
    return caught.value.code


@pytest.mark.parametrize(
    ("failure", "words"),
    [
        (bcq.InputError("a\nb: is no file"), "bcq: a\\nb: is no file"),
        (bcq.InputError("x: is there", option="env"), "bcq: x: is there; give it with --env"),
        (bcq.BCQError("two\nlines"), "bcq: two\nlines"),
        (OSError(28, "No space left", "there"), "bcq: there: No space left"),
        (OSError(28, "No space left"), "bcq: a file: No space left"),
        (OSError("for no reason"), "bcq: a file: for no reason"),
        (OSError(36, "Too long", "x" * 999), f"bcq: {'x' * 200}: Too long"),
        (
            MemoryError("of 9\nGiB"),
            "bcq: out of memory: reduce the amount of work (of 9)",
        ),
        (MemoryError(), "bcq: out of memory: reduce the amount of work (MemoryError)"),
        (
            jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: much"),
            "bcq: out of memory: reduce the amount of work (RESOURCE_EXHAUSTED: much)",
        ),
    ],
)
def test_a_failure_is_told_in_words(
    failure: BaseException, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert obeyed(failure, monkeypatch) == words


def test_every_option_that_an_error_names_has_a_hint() -> None:
    sources = Path(bcq.__file__).parent.rglob("*.py")
    named = {
        keyword.value.value
        for path in sources
        for call in ast.walk(ast.parse(path.read_text()))
        if isinstance(call, ast.Call)
        and getattr(call.func, "id", None) in ("InputError", "Finding")
        for keyword in call.keywords
        if keyword.arg == "option" and isinstance(keyword.value, ast.Constant)
    }
    assert named == cli.HINTS.keys()


def test_a_failure_of_the_compiler_is_not_taken_for_a_lack_of_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(jax.errors.JaxRuntimeError):
        obeyed(jax.errors.JaxRuntimeError("INTERNAL: error"), monkeypatch)


def test_an_interruption_without_a_signal_ends_as_ctrl_c_does(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert obeyed(KeyboardInterrupt(), monkeypatch) == 130
    nothing = "bcq: stopped; nothing was saved; run the same command to start again\n"
    assert capsys.readouterr().err == nothing
    assert obeyed(InterruptionError("half is saved"), monkeypatch) == 130
    assert capsys.readouterr().err == (
        "bcq: stopped; half is saved; run the same command to continue\n"
    )


def test_what_is_too_large_is_what_was_given() -> None:
    data = ("train", "bcq", "--data", "a.csv")
    assert cli.what_to_reduce(parsed(*data)) == "reduce the size of the batch or of the networks"
    named = cli.what_to_reduce(parsed(*data, "--batch-size", "999", "--hidden-sizes", "7", "8"))
    assert named.startswith("reduce --")
    assert "--batch-size 999" in named
    assert "--hidden-sizes (7, 8)" in named
    assert "--vae" not in named


def test_figures_are_said_one_a_line() -> None:
    figures = {"step": 12345, "mean_error": 0.123456, "interval": [1.0, 2.34567], "name": "x"}
    lines = [" ".join(line.split()) for line in as_text(figures).splitlines()]
    assert lines == ["step 12345", "mean error 0.1235", "interval 1 to 2.346", "name x"]


def test_what_is_made_of_a_batch_lies_beside_it_or_here() -> None:
    assert beside(Path("there/log.csv")) == Path("there/log.csv")
    assert beside(Path("minari:space/log-v0")) == Path("log-v0")
    assert beside(Path("minari:log-v0")) == Path("log-v0")
