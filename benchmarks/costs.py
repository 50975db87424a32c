"""Time of a preset on many cores, from the speeds that recorded runs had.

    python benchmarks/costs.py [--preset paper] [--cores 2 64 1000]

A record has the seconds of its updates (and of acting, for an agent), on one core, without
evaluations. The speed of an algorithm is the median over all records of one environment, Hopper-v5
where the environment has no record. Batches and evaluations count as nothing.
"""

import argparse
import heapq
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from bcq.algorithms import name_of
from bcq.experiments.estimate import longest_chain
from bcq.experiments.jobs import Job, fingerprint, with_needs
from bcq.experiments.kinds import OnlineAgent, Training
from bcq.experiments.records import read_records
from bcq.paper import jobs_of
from bcq.paper.presets import PRESETS

RECORDS = ("results/quick/runs.jsonl", "results/standard/runs.jsonl")
Speeds = dict[tuple[str, str], float]


def recorded_speeds() -> Speeds:
    """Seconds an update, by algorithm and environment."""
    found = defaultdict(list)
    for path in RECORDS:
        for one in read_records(Path(path)):
            found[one.label, one.env].append(one.made["seconds"] / one.updates)
    return {key: median(values) for key, values in found.items()}


def seconds_of(job: Job, speeds: Speeds) -> float:
    """The time of a job, without evaluations."""
    if isinstance(job, OnlineAgent):
        return job.length * speeds["behaviour", "Hopper-v5"]
    if isinstance(job, Training):
        label, members = name_of(job.config), getattr(job.config, "members", None)
        label = f"{label} of {members}" if members else label
        return job.length * speeds.get((label, job.batch.env), speeds[label, "Hopper-v5"])
    return 0.0


def finished_after(jobs: Sequence[Job], seconds: Sequence[float], cores: int) -> float:
    """The time until all are done if every free core takes the first job that is ready."""
    ends: dict[str, float] = {}
    free = [0.0] * cores
    for job, own in zip(jobs, seconds, strict=True):
        ready = max((ends[fingerprint(need)] for need in job.needs), default=0.0)
        begun = max(ready, heapq.heappop(free)) if own else ready
        ends[fingerprint(job)] = begun + own
        if own:
            heapq.heappush(free, begun + own)
    return max(ends.values())


def main() -> None:
    """Prints hours."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--preset", default="paper")
    parser.add_argument("--cores", type=int, nargs="+", default=[2, 64, 1_000])
    arguments = parser.parse_args()
    jobs = with_needs(jobs_of(PRESETS[arguments.preset], (), ()))
    speeds = recorded_speeds()
    seconds = [seconds_of(job, speeds) for job in jobs]
    chain = longest_chain(jobs, seconds)
    print(f"{len(jobs)} jobs, {sum(seconds) / 3600:,.0f} core-hours")
    print(f"longest chain: {chain / 3600:.1f} h")
    for cores in arguments.cores:
        hours = finished_after(jobs, seconds, cores) / 3600
        print(f"{cores:>6} cores: {hours:,.1f} h, {sum(seconds) / 36 / cores / hours:.0f}% busy")
    last = max(range(len(jobs)), key=lambda i: seconds[i])
    print(f"longest job: {jobs[last].name}, {seconds[last] / 3600:.1f} h")


if __name__ == "__main__":
    main()
