"""`bcq sweep`: grids, jobs on users' files, what is refused, interruption and resuming."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bcq.algorithms import ALGORITHMS, BCConfig, BCQConfig
from bcq.cli.application import main
from bcq.data.opening import Options
from bcq.data.splits import HoldOut
from bcq.experiments import engines, file_jobs, runner
from bcq.experiments.file_jobs import FileTraining, JudgedTraining, LoggedFile
from bcq.experiments.forms import from_json
from bcq.experiments.grids import READERS, combinations
from bcq.experiments.jobs import Job, directory_name, fingerprint, is_finished
from bcq.experiments.sweeps import Plan
from bcq.runs.schedules import Schedule
from bcq.simulation.batches import load
from bcq.system.errors import InputError
from small_task import NAME, registered
from test_comparison import judgement
from test_runner import InThisProcess

pytestmark = pytest.mark.usefixtures("own_compilation_cache")
TINY = ("--hidden-sizes", "8", "--batch-size", "8", "--steps", "100")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(runner, "POLL", 0.0)
    with registered():
        yield


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> InThisProcess:
    """Does the jobs in this process."""
    found = InThisProcess()
    monkeypatch.setattr(engines, "LocalProcesses", lambda: found)
    return found


def write_log(path: str, *, seed: int = 0, episodes: int = 10, extra: int = 0) -> Path:
    """A log of the small task: random moves of a point on a line."""
    random = np.random.default_rng(seed)
    with Path(path).open("w", newline="") as file:
        log = csv.writer(file)
        names = [f"more_{i}" for i in range(extra)]
        log.writerow(["episode", "step", "observation_0", "action_0", "reward", *names])
        for episode in range(episodes):
            position = random.uniform(-1.5, 1.5)
            for step in range(20):
                action = random.uniform(-1, 1)
                after = np.clip(position + 0.5 * action, -4, 4)
                log.writerow([episode, step, position, action, -abs(after), *[step] * extra])
                position = after
    return Path(path)


def sweep(*words: str) -> None:
    main(["sweep", "bc", *TINY, *words])


# Grids


def test_a_grid_has_every_combination() -> None:
    found = combinations(
        BCQConfig(batch_size=7), ["max-perturbation=0,0.5", "hidden_sizes=8x8,16,4x4x4"]
    )
    assert [(one.max_perturbation, one.hidden_sizes, one.batch_size) for one in found] == [  # type: ignore[attr-defined]
        (phi, sizes, 7) for phi in (0, 0.5) for sizes in ((8, 8), (16,), (4, 4, 4))
    ]
    assert combinations(BCConfig(), []) == [BCConfig()]


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("phi=1", "grid: 'phi' is not a setting of bcq; its settings are discount, "),
        ("max_perturbation", "grid: 'max_perturbation' is not like max_perturbation=0,0.05,0.5"),
        ("max_perturbation=a", "grid: max_perturbation: 'a' is not a number"),
        ("max_perturbation=", "grid: max_perturbation: '' is not a number"),
        ("max_perturbation=nan", "grid: max_perturbation: 'nan' is not a number"),
        ("batch_size=1.5", "grid: batch_size: '1.5' is not a whole number"),
        ("hidden_sizes=8x", "grid: hidden_sizes: '8x' is not whole numbers as in 256x256"),
        ("max_perturbation=1,1.0", "grid: max_perturbation: 1.0 is given twice"),
        ("discount=0.9,2", "grid: discount: 2.0 is not between 0 and 1"),
    ],
)
def test_a_grid_that_cannot_be_is_refused(word: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        combinations(BCQConfig(), [word])
    assert str(caught.value).startswith(message)
    with pytest.raises(InputError, match="grid: discount is given twice"):
        combinations(BCQConfig(), ["discount=0.9", "discount=0.8"])


def test_every_setting_of_every_algorithm_can_be_varied() -> None:
    for kind in ALGORITHMS.values():
        types = {each.type for each in kind.__dataclass_fields__.values()}
        settings = {each.name: each.type for each in kind.__dataclass_fields__.values()}
        assert {t for t in types if "ClassVar" not in str(t)} <= set(READERS), settings


# Jobs


def training(**changes: Any) -> FileTraining:
    data = LoggedFile("log", "abc", "{}")
    known = FileTraining(BCConfig(hidden_sizes=(8,)), Schedule(seed=3), data, "auto", HoldOut(0.2))
    return replace(known, **changes)


def test_a_job_depends_on_everything_that_decides_its_numbers() -> None:
    data = LoggedFile("log", "abc", "{}")
    others = [
        training(config=BCConfig(hidden_sizes=(9,))),
        training(schedule=Schedule(seed=4)),
        training(schedule=Schedule(seed=3, steps=5)),
        training(data=replace(data, content="abd")),
        training(data=replace(data, reading='{"lags": 1}')),
        training(scaling="none"),
        training(hold_out=None),
        training(hold_out=HoldOut(0.2, "time")),
    ]
    assert len({fingerprint(job) for job in [training(), *others]}) == 9
    assert fingerprint(training()) == fingerprint(training())
    judged = JudgedTraining(training(), 0.9)
    assert fingerprint(judged) != fingerprint(JudgedTraining(training(), 0.8))
    jobs: list[Job] = [training(), *others, data, judged]
    for job in jobs:
        again = from_json(json.loads(json.dumps(job.as_json())))
        assert again == job
        assert directory_name(again) == directory_name(job)


def test_what_a_file_is_read_with_is_part_of_it() -> None:
    write_log("log.csv")
    dataset = load("log.csv")
    plain, lagged = (LoggedFile.of("log", dataset, Options(lags=lags)) for lags in (0, 2))
    assert plain.content == lagged.content == dataset.fingerprint
    assert fingerprint(plain) != fingerprint(lagged)
    assert '"environment": null' in plain.reading
    assert "bounds_of" not in plain.reading


def test_names_are_those_of_folders() -> None:
    data = LoggedFile("my log/../é \n" + 200 * "x", "abc", "{}")
    name = directory_name(JudgedTraining(training(data=data), 0.9))
    assert "/" not in name
    assert "\n" not in name
    assert len(name) < 160
    assert name.startswith("judged-bc-my_log_.._é__xxx")
    assert training().name == "bc-log-hidden_sizes=8-seed3"


def test_seeds_come_first_so_that_settings_can_be_compared_at_any_moment() -> None:
    configs = combinations(BCConfig(), ["batch_size=8,16"])
    plan = Plan(configs=configs, schedules=[Schedule(seed=s) for s in (0, 1)])
    jobs = plan.jobs([LoggedFile("a", "1", "{}"), LoggedFile("b", "2", "{}")])
    assert [job.name for job in jobs] == [
        f"bc-{file}-batch_size={size}-seed{seed}"
        for seed in (0, 1)
        for file in "ab"
        for size in (8, 16)
    ]
    assert not plan.is_ranked
    assert len(replace(plan, hold_out=HoldOut(0.2)).jobs([LoggedFile("a", "1", "{}")])) == 8


def test_a_stored_file_that_was_changed_is_refused() -> None:
    dataset, other = (load(write_log(f"{seed}.csv", seed=seed)) for seed in (0, 1))
    file = LoggedFile.of("log", dataset, Options())
    file.store(dataset, Path("jobs"))
    assert is_finished(file, Path("jobs"))
    assert file.read(Path("jobs")).fingerprint == dataset.fingerprint
    path = Path("jobs") / directory_name(file) / "batch.hdf5"
    path.unlink()
    file.store(other, Path("jobs"))
    with pytest.raises(InputError, match=r"batch.hdf5: was changed; remove its folder"):
        file.read(Path("jobs"))


# The verb


def test_a_sweep_trains_every_setting_on_every_file_once_and_compares(
    engine: InThisProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    write_log("a.csv")
    write_log("b.csv", seed=1)
    data = ("--data", "a.csv", "b.csv")
    words = ["--out", "s", "--env", NAME, "--evaluate-episodes", "2", "--seeds", "3"]
    words += ["--grid", "learning_rate=0.001,0.1"]
    sweep(*data, *words, "--dry-run")
    printed = capsys.readouterr().out
    assert "6 jobs, 6 to do, in s/jobs" in printed
    assert len(printed.splitlines()) == 7
    assert not Path("s").exists()
    sweep(*data, *words)
    printed = capsys.readouterr().out
    assert len(engine.started) == 4
    for source in "ab":
        assert f"{source} (190 transitions" in printed
    assert printed.count("| bc learning_rate=0.1 | 1 | ") == 2
    rows = [json.loads(line) for line in Path("s/comparison.jsonl").read_text().splitlines()]
    assert sorted((row["settings"]["learning_rate"], row["seed"]) for row in rows) == [
        *[(0.001, 3)] * 2,
        *[(0.1, 3)] * 2,
    ]
    assert all(len(row["evaluations"]) == 2 for row in rows)
    Path("moved").mkdir()
    Path("a.csv").rename("moved/a.csv")
    sweep("--data", "moved/a.csv", *words)
    assert len(engine.started) == 4  # nothing was repeated
    sweep("--data", "moved/a.csv", *words, "--seeds", "2..3")
    assert len(engine.started) == 6
    capsys.readouterr()
    main(["compare", "s"])
    assert "| bc learning_rate=0.1 | 2 | " in capsys.readouterr().out


def test_a_failed_job_is_a_line_and_the_others_go_on(
    engine: InThisProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    write_log("a.csv")
    engine.failing = ["bc-a-batch_size=8-hidden_sizes=8-seed0"]
    with pytest.raises(SystemExit) as caught:
        sweep("--data", "a.csv", "--out", "s", "--seeds", "0..1", "--env", NAME)
    lines = str(caught.value).splitlines()
    assert lines[0] == (
        "bcq: 1 jobs failed, 0 that need them were skipped; run the same command to try them again"
    )
    assert lines[1].endswith(": bcq: no luck")
    assert "| bc | 1 | " in capsys.readouterr().out  # what there is, is compared


def test_divergence_is_a_result(engine: InThisProcess, capsys: pytest.CaptureFixture[str]) -> None:
    write_log("a.csv")
    sweep("--data", "a.csv", "--out", "s", "--seeds", "0", "--env", NAME, "--learning-rate", "1e38")
    assert len(engine.started) == 1
    row = json.loads(Path("s/comparison.jsonl").read_text())
    assert row["divergence"]["step"] == 100
    assert row["score"] == np.mean(row["evaluations"][0][1])
    assert " | 1 |\n" in capsys.readouterr().out


def test_without_an_environment_policies_are_judged_by_episodes_kept_aside(
    engine: InThisProcess, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[tuple[int, float]] = []

    def judged(policy: Any, aside: Any, discount: float) -> Any:
        assert policy.act(aside.observations).shape == (len(aside), 1)
        asked.append((len(aside.episodes), discount))
        return judgement(float(len(asked)))["judgement"]

    monkeypatch.setattr(file_jobs, "judged", judged)
    write_log("a.csv")
    sweep("--data", "a.csv", "--out", "s", "--seeds", "0..1", "--hold-out", "0.6")
    printed = capsys.readouterr().out
    assert [name[:4] for name in engine.started] == ["bc-a", "bc-a", "judg", "judg"]
    assert asked == [(6, 0.99)] * 2
    assert "a (190 transitions): values judged from logged episodes, discount 0.99" in printed
    assert "| bc | 2 | 1.5 (" in printed
    main(["compare", "s"])
    assert len(asked) == 2  # they are remembered
    # Runs of `bcq train` are judged when they are compared.
    for seed in ("0", "1"):
        words = ["--data", "a.csv", "--hold-out", "0.6", "--seed", seed, "--out", f"run{seed}"]
        main(["train", "bc", *TINY, *words])
    capsys.readouterr()
    main(["compare", "run0", "run1", "--data", "a.csv", "--discount", "0.5"])
    assert asked[2:] == [(6, 0.5)] * 2
    assert "discount 0.5" in capsys.readouterr().out
    assert Path("runs/comparison/comparison.png").exists()
    write_log("b.csv", seed=1)
    with pytest.raises(SystemExit, match="this is not the batch that run0 was trained on"):
        main(["compare", "run0", "run1", "--data", "b.csv"])


def test_runs_that_nothing_ranks_are_trained_with_a_warning(
    engine: InThisProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    write_log("a.csv")
    sweep("--data", "a.csv", "--out", "s", "--seeds", "0")
    assert len(engine.started) == 1
    assert "warning: these runs cannot be ranked; give an environment" in capsys.readouterr().err
    assert not Path("s/comparison.md").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--seeds", "3..2"], "seeds: '3..2' contains no seed"),
        (["--seeds", "-1"], "seed: -1 is not between 0 and"),
        (["--grid", "phi=1"], "grid: 'phi' is not a setting of bc"),
        (["--grid", "batch_size=x"], "grid: batch_size: 'x' is not a whole number"),
        (["--data", "a.csv", "wide.csv"], "wide.csv: is of another task than a.csv: their "
         "observation size differs; sweep them separately"),
        (["--data", "a.csv", "copy.csv"], "copy.csv: has the same content as a.csv"),
        (["--data", "nowhere.csv"], "nowhere.csv: no such file"),
        (["--data"], "give at least one batch with --data"),
        (["--out", "run"], "run: is the folder of a run; a sweep needs a folder of its own"),
        (["--out", "a.csv"], "a.csv: is a file; a sweep needs a folder"),
        (["--env", "Nothing-v0"], "Nothing-v0"),
        (["--env", "Pendulum-v1"], "a.csv: environment Pendulum-v1: its observations have 3 "
         "numbers, those of the data 1"),
        (["--hold-out", "0.2"], "a.csv: hold_out: keeps 2 episodes aside; judging needs 5"),
        (["--hold-out", "2"], "hold_out: 2.0 is not between 0 and 1"),
        (["--hold-out-by", "time"], "hold_out_by: there is no share to keep aside; give one with "
         "--hold-out"),
        (["--action-kind", "discrete"], "a.csv: "),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_in_one_line_before_any_job(
    words: list[str], message: str, engine: InThisProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    write_log("a.csv")
    Path("copy.csv").write_text(Path("a.csv").read_text())
    wide = write_log("wide.csv", extra=1)
    wide.write_text(wide.read_text().replace("more_0", "observation_1", 1))
    Path("run").mkdir()
    Path("run/config.json").write_text("{}")
    with pytest.raises(SystemExit) as caught:
        sweep("--data", "a.csv", "--out", "s", *words)
    assert str(caught.value).startswith("bcq: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert engine.started == []


def contents(folder: Path) -> dict[str, bytes]:
    """What runs wrote, without what says where and when."""
    left_out = ("timing.jsonl", "config.json", "done.json", "output.txt", ".lock")
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name not in left_out and "data-" not in str(path)
        if not path.name.startswith(("lease-", "beat-"))
    }


def wait_for(pattern: str, process: "subprocess.Popen[str]") -> None:
    for _ in range(1_200):
        if list(Path().glob(pattern)) or process.poll() is not None:
            return
        time.sleep(0.05)


@contextmanager
def resting(jobs: Path) -> Iterator[None]:
    """The worker of the training does nothing in the block; signals wait for it."""
    (lease,) = jobs.glob("bc-*/lease-1.json")
    worker = json.loads(lease.read_text())["pid"]
    os.kill(worker, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(worker, signal.SIGCONT)


def test_an_interrupted_sweep_continues_where_it_was(
    engine: InThisProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    """By SIGTERM, with real worker processes; then finished by another engine."""
    write_log("a.csv")
    words = ["sweep", "bc", *TINY, "--data", "a.csv", "--seeds", "0"]
    words += ["--steps", "60000", "--out"]
    process = subprocess.Popen(
        [sys.executable, "-m", "bcq", *words, "s"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        wait_for("s/jobs/bc-*/*/*/metrics.jsonl", process)
        with resting(Path("s/jobs")):  # a fast machine would finish before the signal arrives
            process.send_signal(signal.SIGTERM)
            time.sleep(2)  # the runner looks for signals every half second
        printed, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 143, printed
    assert "jobs are done, running jobs keep what they saved; run the same command" in printed
    checkpoints = Path("s/jobs").glob("bc-*/*/*/checkpoint.json")
    begun = [json.loads(path.read_text())["step"] for path in checkpoints]
    assert 0 < begun[0] < 60_000
    for out in ("s", "whole"):
        main([*words, out])
    capsys.readouterr()
    assert contents(Path("s/jobs")) == contents(Path("whole/jobs"))
    assert len(contents(Path("s/jobs"))) == 4
