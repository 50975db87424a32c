"""Evidence of several machines adds up: what a record tells is not run again."""

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import bcq.paper
import short_task
from bcq.cli.application import main
from bcq.experiments import engines, kinds, runner
from bcq.experiments.jobs import Job, directory_name, fingerprint
from bcq.experiments.kinds import Theory
from bcq.experiments.records import read_records
from bcq.system import interruption
from short_task import AGENT
from test_claims import THEORY
from test_records import AGENTS, DIVERGING, IMITATION, OFFLINE, SHORTER, WHOLE
from test_runner import InThisProcess

Row = dict[str, Any]
RECORDS = 6  # of three learners, and of two agents in three roles
JOBS = 10


def prepared(*, results: Sequence[Job]) -> dict[str, Any]:
    """The experiments of a small paper."""
    jobs: dict[str, Sequence[Job]] = {
        "theory": [Theory()],
        "extrapolation": [OFFLINE],
        "results": results,
    }
    return {
        name: SimpleNamespace(jobs=lambda _, each=each: [(0, job) for job in each])
        for name, each in jobs.items()
    }


SMALL_PAPER = prepared(results=[OFFLINE, SHORTER, DIVERGING])


def check_theory(self: Theory, folder: Path) -> None:
    """Takes no time."""
    (folder / directory_name(self) / "theory.json").write_text(json.dumps(THEORY))


@pytest.fixture(autouse=True, scope="module")
def _surroundings() -> Iterator[None]:
    with short_task.registered(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(kinds, "DDPGConfig", lambda: AGENT)
        patch.setattr(Theory, "perform", check_theory)
        patch.setattr(bcq.paper, "EXPERIMENTS", SMALL_PAPER)
        patch.setattr(runner, "POLL", 0.0)
        yield


def reproduced(out: Path) -> set[str]:
    """Reproduces the small paper; the folders of the jobs that were run."""
    engine = InThisProcess()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engines, "LocalProcesses", lambda: engine)
        main(["reproduce", "--preset", "smoke", "--out", str(out)])
    ran = {path.name for path in (out / "jobs").iterdir() if path.is_dir()}
    assert len(ran) == len(engine.started)
    return ran


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All of it, made on one machine."""
    out = tmp_path_factory.mktemp("original")
    assert len(reproduced(out)) == JOBS
    return out


def rows_of(out: Path) -> list[Row]:
    return [json.loads(line) for line in (out / "runs.jsonl").read_text().splitlines()]


def write_rows(out: Path, rows: Sequence[Row]) -> None:
    (out / "runs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def files_of(out: Path) -> dict[Path, bytes]:
    """What is drawn and judged."""
    return {
        path.relative_to(out): path.read_bytes()
        for path in out.rglob("*")
        if path.is_file() and "jobs" not in path.relative_to(out).parts
    }


@pytest.fixture
def clone(original: Path, tmp_path: Path) -> Path:
    """What is committed of it, on another machine."""
    out = tmp_path / "clone"
    out.mkdir()
    for name in ("runs.jsonl", "theory.json"):
        shutil.copy(original / name, out / name)
    return out


def made_apart(rows: Sequence[Row]) -> list[Row]:
    """Without what tells when and where."""
    return [{name: value for name, value in row.items() if name != "made"} for row in rows]


def test_what_is_recorded_is_not_run_and_gives_the_same_files(
    original: Path, clone: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert reproduced(clone) == set()
    printed = capsys.readouterr().out
    assert f"\n{JOBS} jobs, in {clone / 'jobs'}\n" in printed
    assert f"\n{JOBS} of them are not repeated: {clone} has the records\n" in printed
    assert files_of(clone) == files_of(original)
    assert len(read_records(clone / "runs.jsonl")) == RECORDS


def names(*jobs: Job) -> set[str]:
    return {directory_name(job) for job in jobs}


def is_learner(row: Row) -> bool:
    return bool(row["role"] == "learner")


@pytest.mark.parametrize(
    ("lost", "again"),
    [
        (lambda row: False, []),
        (lambda row: row["role"] == "agent", [AGENTS[0]]),
        (lambda row: row["role"] == "candidate", AGENTS),
        (lambda row: (row["role"], row["seed"]) == ("candidate", 1), [AGENTS[1]]),
        (lambda row: len(row["experiments"]) == 2, [AGENTS[0], WHOLE, OFFLINE]),
        (
            lambda row: row["task"] == "imitation",
            [*AGENTS, *IMITATION.needs, IMITATION, DIVERGING],
        ),
        (
            lambda row: is_learner(row) and row["experiments"] == ["results"],
            [*AGENTS, *IMITATION.needs, IMITATION, DIVERGING, SHORTER.batch, SHORTER],
        ),
    ],
)
def test_only_what_is_missing_is_run_with_what_it_needs(
    original: Path, clone: Path, lost: Callable[[Row], bool], again: Sequence[Job]
) -> None:
    kept = [row for row in rows_of(clone) if not lost(row)]
    write_rows(clone, kept)
    assert reproduced(clone) == names(*again)
    assert made_apart(rows_of(clone)) == made_apart(rows_of(original))
    for name in ("claims.md", "table.md"):
        assert (clone / name).read_text() == (original / name).read_text()
    assert not (clone / "other-runs.jsonl").exists()


def test_a_record_made_now_takes_the_place_of_the_old_one(original: Path, clone: Path) -> None:
    rows = [row for row in rows_of(clone) if row["fingerprint"] != fingerprint(OFFLINE)]
    for row in rows:
        row["made"] = {"elsewhere": True}
    write_rows(clone, rows)
    assert reproduced(clone) == names(AGENTS[0], WHOLE, OFFLINE)
    now = {fingerprint(job) for job in (AGENTS[0], OFFLINE)}
    for row in rows_of(clone):
        assert ("elsewhere" in row["made"]) == (row["fingerprint"] not in now)
    assert made_apart(rows_of(clone)) == made_apart(rows_of(original))


def test_a_job_with_other_settings_is_run_and_the_old_record_is_kept_aside(
    clone: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = made_apart(rows_of(clone))
    changed = replace(SHORTER, schedule=replace(SHORTER.schedule, seed=7))
    other = prepared(results=[OFFLINE, changed, DIVERGING])
    monkeypatch.setattr(bcq.paper, "EXPERIMENTS", other)
    assert reproduced(clone) == names(AGENTS[0], SHORTER.batch, changed)
    own = {one.fingerprint for one in read_records(clone / "runs.jsonl")}
    assert fingerprint(changed) in own
    assert fingerprint(SHORTER) not in own
    (aside,) = read_records(clone / "other-runs.jsonl")
    assert aside.fingerprint == fingerprint(SHORTER)
    printed = capsys.readouterr().out
    assert f"not judged: 1 of other settings, in {clone / 'other-runs.jsonl'}" in printed
    monkeypatch.setattr(bcq.paper, "EXPERIMENTS", SMALL_PAPER)
    shutil.rmtree(clone / "jobs")
    assert reproduced(clone) == set()  # nothing was lost
    assert made_apart(rows_of(clone)) == before
    (aside,) = read_records(clone / "other-runs.jsonl")
    assert aside.fingerprint == fingerprint(changed)
    both = prepared(results=[OFFLINE, SHORTER, changed, DIVERGING])
    monkeypatch.setattr(bcq.paper, "EXPERIMENTS", both)
    assert reproduced(clone) == set()
    assert len(rows_of(clone)) == RECORDS + 1
    assert not (clone / "other-runs.jsonl").exists()


def test_a_run_that_has_become_part_of_another_experiment_is_not_repeated(
    clone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = {**SMALL_PAPER, "values": SMALL_PAPER["results"]}
    monkeypatch.setattr(bcq.paper, "EXPERIMENTS", both)
    assert reproduced(clone) == set()
    assert all("values" in one.experiments for one in read_records(clone / "runs.jsonl"))


@pytest.mark.parametrize("theory", [None, {}, {"fingerprint": "0123456789ab"}])
def test_the_theory_is_checked_again_unless_its_file_has_its_fingerprint(
    original: Path, clone: Path, theory: Row | None
) -> None:
    (clone / "theory.json").unlink()
    if theory is not None:
        (clone / "theory.json").write_text(json.dumps({**THEORY, **theory}))
    assert reproduced(clone) == names(Theory())
    assert files_of(clone) == files_of(original)


def test_records_without_fingerprints_are_judged_but_spare_no_run(
    original: Path, clone: Path
) -> None:
    old = [{**row, "format": 2} for row in rows_of(clone)]
    for row in old:
        del row["fingerprint"]
    write_rows(clone, old)
    main(["reproduce", "--check", "--out", str(clone)])
    for name in ("claims.md", "table.md"):
        assert (clone / name).read_text() == (original / name).read_text()
    assert rows_of(clone) == old
    assert len(reproduced(clone)) == JOBS - 1  # the theory's file has one
    assert made_apart(rows_of(clone)) == made_apart(rows_of(original))
    aside = read_records(clone / "other-runs.jsonl")
    assert [one.fingerprint for one in aside] == [None] * RECORDS


def test_the_lines_of_two_machines_may_be_put_into_one_file(original: Path, clone: Path) -> None:
    rows = rows_of(original)
    elsewhere = [{**row, "made": {"elsewhere": True}} for row in rows]
    write_rows(clone, rows[3:] + elsewhere[:4])
    found = read_records(clone / "runs.jsonl")
    assert [one.made == {"elsewhere": True} for one in found] == [True, False, False, *[True] * 3]
    assert reproduced(clone) == set()
    assert made_apart(rows_of(clone)) == made_apart(rows)


def test_dry_run_tells_what_is_recorded(clone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["reproduce", "--preset", "smoke", "--dry-run", "--out", str(clone)]
    main(command)
    lines = capsys.readouterr().out.splitlines()[:JOBS]
    assert all("  recorded  " in line for line in lines)
    write_rows(clone, [row for row in rows_of(clone) if row["role"] != "agent"])
    main(command)
    lines = capsys.readouterr().out.splitlines()[:JOBS]
    waiting = [line.split()[-1] for line in lines if "recorded" not in line]
    assert waiting == [fingerprint(AGENTS[0])]


def test_dry_run_tells_what_is_done(original: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["reproduce", "--preset", "smoke", "--dry-run", "--out", str(original)])
    lines = capsys.readouterr().out.splitlines()[:JOBS]
    assert [line.split()[-2] for line in lines] == ["done"] * JOBS


def test_a_job_that_failed_is_told_with_its_last_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bcq.paper, "EXPERIMENTS", {"theory": SMALL_PAPER["theory"]})
    engine = InThisProcess(failing=["theory"])
    monkeypatch.setattr(engines, "LocalProcesses", lambda: engine)
    folder = tmp_path / "jobs" / directory_name(Theory())
    words = rf"1 jobs failed, 0 that need them .*\n  {folder}: bcq: no luck$"
    with pytest.raises(SystemExit, match=words):
        main(["reproduce", "--preset", "smoke", "--out", str(tmp_path)])
    assert "are not repeated" not in capsys.readouterr().out  # nothing was recorded before


def test_an_interrupted_reproduction_leaves_the_records_of_what_it_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = InThisProcess(slots=1)
    monkeypatch.setattr(engines, "LocalProcesses", lambda: engine)
    done = tmp_path / "jobs" / directory_name(OFFLINE) / "done.json"
    monkeypatch.setattr(interruption, "requested", done.exists)
    with pytest.raises(SystemExit):
        main(["reproduce", "--preset", "smoke", "--out", str(tmp_path)])
    roles = [(one.role, one.task) for one in read_records(tmp_path / "runs.jsonl")]
    assert sorted(roles) == [
        ("agent", "concurrent"),
        ("candidate", "experts"),
        ("learner", "concurrent"),
    ]


@pytest.mark.parametrize("fault", [["a"], "cut"])
def test_a_damaged_file_of_records_is_refused_before_anything_is_run(
    clone: Path, monkeypatch: pytest.MonkeyPatch, fault: Any
) -> None:
    rows = rows_of(clone)
    write_rows(clone, [{**rows[0], "fingerprint": fault}, *rows[1:]])
    if fault == "cut":
        (clone / "runs.jsonl").write_text((clone / "runs.jsonl").read_text()[:-20])
    engine = InThisProcess()
    monkeypatch.setattr(engines, "LocalProcesses", lambda: engine)
    with pytest.raises(SystemExit, match=r"runs\.jsonl: is not a file of records: "):
        main(["reproduce", "--preset", "smoke", "--out", str(clone)])
    assert engine.started == []
    assert not (clone / "jobs").exists()
