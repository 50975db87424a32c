"""The paper from one command: run its experiments, draw its figures, judge its claims."""

import json
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from bcq.experiments.estimate import estimate
from bcq.experiments.jobs import Job, fingerprint, with_needs
from bcq.experiments.records import Record, gather, read_records, theory_of, write_records
from bcq.experiments.runner import LocalProcesses, run_jobs
from bcq.experiments.worker import stay_on
from bcq.paper import environment_of, experiments_of, figures, jobs_of, verdicts
from bcq.paper.judging import VERDICTS
from bcq.paper.presets import PRESETS, ExperimentName, PresetName
from bcq.paper.table import table
from bcq.system.errors import BCQError, InputError
from bcq.system.files import Row, read_json, write_text
from bcq.system.progress import duration


def reproduce(
    preset: PresetName,
    names: tuple[ExperimentName, ...],
    environments: tuple[str, ...],
    out: Path,
) -> None:
    """Runs what is not done yet, then writes records, figures, table and claims into `out`."""
    jobs = with_needs(jobs_of(PRESETS[preset], names, environments))
    print(f"{preset}: {PRESETS[preset].says}\n{len(jobs)} jobs, in {out / 'jobs'}")
    outcome = run_jobs(jobs, out / "jobs", LocalProcesses(), screen=sys.stdout)
    write_results(experiments_of(PRESETS[preset]), out)
    show(out)
    if outcome.failed:
        lines = [f"  {out / 'jobs' / name}: {line}" for name, line in outcome.failed.items()]
        raise BCQError(
            f"{len(outcome.failed)} jobs failed, {len(outcome.skipped)} that need them were "
            "skipped; run the same command to try them again\n" + "\n".join(lines)
        )


def write_results(experiments: Mapping[ExperimentName, list[Job]], out: Path) -> None:
    """What was measured so far, in two small files."""
    write_records(gather(experiments, out / "jobs"), out / "runs.jsonl")
    theory = theory_of(experiments["theory"], out / "jobs")
    if theory is not None:
        write_text(out / "theory.json", json.dumps(theory, indent=2) + "\n")


def read_results(out: Path) -> tuple[list[Record], Row | None]:
    """The inverse."""
    path = out / "runs.jsonl"
    if not path.exists():
        raise InputError(
            f"{out}: does not contain results (runs.jsonl is missing); run `bcq reproduce` first, "
            "or give the folder of the results with --out"
        )
    theory = out / "theory.json"
    return read_records(path), read_json(theory) if theory.exists() else None


def show(out: Path) -> None:
    """Figures, table and claims, from the two small files alone."""
    records, theory = read_results(out)
    found = verdicts.judge_all(records, theory)
    write_text(out / "claims.md", verdicts.as_markdown(found))
    write_text(out / "table.md", table(records))
    pictures = figures.draw_all(records, out / "figures")
    print(f"\n{verdicts.as_text(found)}\n")
    counts = Counter(verdict.verdict for verdict in found)
    print(", ".join(f"{kind}: {counts[kind]}" for kind in VERDICTS))
    print(f"{len(records)} runs in {out / 'runs.jsonl'}; {len(pictures)} figures are next to it")


def dry_run(
    preset: PresetName,
    names: tuple[ExperimentName, ...],
    environments: tuple[str, ...],
    out: Path,
) -> None:
    """Lists the jobs, with what they will cost on this machine."""
    jobs = with_needs(jobs_of(PRESETS[preset], names, environments))
    workers = LocalProcesses().cores
    stay_on(workers[0])  # as a worker does
    seconds, total, size = estimate(jobs, out / "jobs", len(workers))
    for job, own in zip(jobs, seconds, strict=True):
        state = duration(own) if own else "done"
        print(f"{job.name:<48} {job.length:>10,}  {state:>10}  {fingerprint(job)}")
    environments_used = sorted({env for job in jobs if (env := environment_of(job))})
    print(
        f"\n{preset}: {PRESETS[preset].says}\n{len(jobs)} jobs in {', '.join(environments_used)}: "
        f"about {duration(total)} on {len(workers)} cores, at most {size / 1e9:.1f} GB in {out}. "
        "The estimate assumes that every evaluation episode lasts to its time limit."
    )
