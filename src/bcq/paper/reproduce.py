"""Reproduces the paper: runs its experiments, draws its figures, judges its claims."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from bcq.experiments.engines import EngineChoice
from bcq.experiments.estimate import estimate
from bcq.experiments.jobs import Job, fingerprint, is_finished, with_needs
from bcq.experiments.judged import Judging
from bcq.experiments.records import (
    Record,
    gather,
    read_records,
    theory_of,
    unrecorded,
    write_records,
)
from bcq.experiments.runner import LocalProcesses, run_jobs
from bcq.experiments.worker import staying_on
from bcq.paper import beyond_judging, environment_of, experiments_of, figures, jobs_of, verdicts
from bcq.paper.presets import PRESETS, ExperimentName, PresetName
from bcq.paper.table import side_by_side, table
from bcq.system.errors import BCQError, InputError, InterruptionError
from bcq.system.files import Row, as_json_lines, read_json, write_json, write_text
from bcq.system.progress import duration

OTHERS = "other-runs.jsonl"
JUDGED, OTHER_JUDGED = "judging.jsonl", "other-judging.jsonl"


def reproduce(
    preset: PresetName,
    names: tuple[ExperimentName, ...],
    environments: tuple[str, ...],
    out: Path,
    engine: EngineChoice | None = None,
) -> None:
    """Runs what is neither done nor recorded yet, then writes records, figures, table and claims.

    A run is recorded if `out` has its record, wherever it was made.
    """
    jobs = with_needs(jobs_of(PRESETS[preset], names, environments))
    left = unrecorded_in(out, jobs)
    print(f"{preset}: {PRESETS[preset].says}\n{len(jobs)} jobs, in {out / 'jobs'}")
    if len(left) < len(jobs):
        print(f"{len(jobs) - len(left)} of them are not repeated: {out} has the records")
    experiments = experiments_of(PRESETS[preset])
    try:
        with (engine or EngineChoice()).opened(out / "jobs") as opened:
            outcome = run_jobs(left, out / "jobs", opened, screen=sys.stdout)
    except InterruptionError:
        write_results(experiments, out)  # so that another machine can continue
        raise
    write_results(experiments, out)
    show(out)
    if outcome.failed:
        lines = [f"  {out / 'jobs' / name}: {line}" for name, line in outcome.failed.items()]
        raise BCQError(
            f"{len(outcome.failed)} jobs failed, {len(outcome.skipped)} that need them were "
            "skipped; run the same command to try them again\n" + "\n".join(lines)
        )


def write_results(experiments: Mapping[ExperimentName, list[Job]], out: Path) -> None:
    """Writes what was measured so far, here or elsewhere, to small files.

    `runs.jsonl` has the runs of the preset: others must not be judged together with them. Records
    of other settings, or from before records had fingerprints, are kept in `other-runs.jsonl`.
    """
    recorded = recorded_in(out)
    records = gather(experiments, out / "jobs", recorded)
    own = {one.key for one in records}
    others = [one for one in recorded if one.key not in own]
    if others:
        write_records(others, out / OTHERS)
        print(f"records that are not judged: {len(others)} of other settings, in {out / OTHERS}")
    else:
        (out / OTHERS).unlink(missing_ok=True)  # all of them belong to this preset again
    write_records(records, out / "runs.jsonl")
    write_judged(experiments.get("judging", ()), out)
    theory = theory_of(experiments["theory"], out / "jobs")
    if theory is not None:
        write_json(out / "theory.json", theory)


def write_judged(jobs: Sequence[Job], out: Path) -> None:
    """Writes the policies that were judged; those of other settings are kept beside."""
    before = judged_in(out)
    rows = beyond_judging.gather(jobs, out / "jobs", before)
    own = {row["fingerprint"] for row in rows}
    others = [row for row in before if row["fingerprint"] not in own]
    for name, some in ((JUDGED, rows), (OTHER_JUDGED, others)):
        if some:
            write_text(out / name, as_json_lines(some))
        else:
            (out / name).unlink(missing_ok=True)


def judged_in(out: Path) -> list[Row]:
    """Every recorded policy."""
    return [row for name in (OTHER_JUDGED, JUDGED) for row in beyond_judging.read_rows(out / name)]


def recorded_in(out: Path) -> list[Record]:
    """Every record in the folder."""
    paths = (out / OTHERS, out / "runs.jsonl")
    return [one for path in paths if path.exists() for one in read_records(path)]


def unrecorded_in(out: Path, jobs: Sequence[Job]) -> list[Job]:
    """The jobs whose results are not recorded in the folder, and the jobs that they need."""
    judged = {row["fingerprint"] for row in judged_in(out)}
    unjudged = [job for job in jobs if isinstance(job, Judging) and fingerprint(job) not in judged]
    return with_needs([*unrecorded(jobs, recorded_in(out), theory_in(out)), *unjudged])


def theory_in(out: Path) -> Row | None:
    """The recorded result of the theory, if there is one."""
    path = out / "theory.json"
    return read_json(path) if path.exists() else None


def read_results(out: Path) -> tuple[list[Record], Row | None]:
    """The runs and the theory that claims are judged by."""
    path = out / "runs.jsonl"
    if not path.exists():
        raise InputError(
            f"{out}: does not contain results (runs.jsonl is missing); run `bcq reproduce` first, "
            "or give the folder of the results with --out"
        )
    return read_records(path), theory_in(out)


def show(out: Path) -> None:
    """Writes figures, table and claims, from what was recorded only."""
    if judged := beyond_judging.read_rows(out / JUDGED):
        show_judged(judged, out)
        if not (recorded_in(out) or theory_in(out)):
            return
    records, theory = read_results(out)
    found = verdicts.judge_all(records, theory)
    write_text(out / "claims.md", verdicts.as_markdown(found))
    write_text(out / "table.md", side_by_side(records) + table(records))
    pictures = figures.draw_all(records, out / "figures")
    print(f"\n{verdicts.as_text(found)}\n\n{verdicts.counted(found)}")
    print(f"{len(records)} runs in {out / 'runs.jsonl'}; {len(pictures)} figures are next to it")


def show_judged(judged: Sequence[Row], out: Path) -> None:
    """Writes how often `bcq judge` was right, and its picture."""
    text = beyond_judging.as_markdown(judged)
    write_text(out / "judging.md", text)
    figures.save_all({"judging": beyond_judging.draw(judged)}, out / "figures")
    print(f"\n{text}\n{len(judged)} judged policies in {out / JUDGED}")


def dry_run(
    preset: PresetName,
    names: tuple[ExperimentName, ...],
    environments: tuple[str, ...],
    out: Path,
) -> None:
    """Lists the jobs, with their estimated cost on this machine."""
    jobs = with_needs(jobs_of(PRESETS[preset], names, environments))
    workers = LocalProcesses().cores
    left = unrecorded_in(out, jobs)
    with staying_on(workers[0]):  # as a worker does
        seconds, total, size = estimate(left, out / "jobs", len(workers))
    to_go = dict(zip(map(fingerprint, left), seconds, strict=True))
    for job in jobs:
        if is_finished(job, out / "jobs"):
            state = "done"
        else:
            state = duration(to_go[fingerprint(job)]) if fingerprint(job) in to_go else "recorded"
        print(f"{job.name:<48} {job.length:>10,}  {state:>10}  {fingerprint(job)}")
    environments_used = sorted({env for job in jobs if (env := environment_of(job))})
    print(
        f"\n{preset}: {PRESETS[preset].says}\n{len(jobs)} jobs in {', '.join(environments_used)}: "
        f"about {duration(total)} on {len(workers)} cores, at most {size / 1e9:.1f} GB in {out}. "
        "The estimate assumes that every evaluation episode lasts to its time limit."
    )
