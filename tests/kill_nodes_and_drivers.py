"""Runs `bcq reproduce --preset smoke` on a Ray cluster of two nodes, and kills what it runs on.

    python tests/kill_nodes_and_drivers.py [EXPERIMENT ...] [--nodes 5] [--drivers 3] [--seed 0]
        [--alone FOLDER]

One reproduction is left alone, on the local engine (or was: FOLDER). One runs on the cluster while
nodes are killed without grace and replaced. Another runs while its driver is killed and started
again. Kills are spread over the jobs, not over time, so that a fast or busy machine gets them all.
Records and theory must be the same but for how, when and at which commit they were made, every job
must have been published once, and no update before a checkpoint may have been done again.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from bcq.experiments.storage import workplace
from kill_and_resume_reproduction import COMMAND, finished_jobs, results, start

os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # every address is 127.0.0.1


def start_on(address: str, out: Path, *names: str) -> "subprocess.Popen[bytes]":
    """A reproduction on a cluster, in a process of its own."""
    words = ["reproduce", *names, "--preset", "smoke", "--out", str(out), "--engine", "ray"]
    output = out.with_suffix(".txt").open("ab")
    return subprocess.Popen(
        [sys.executable, "-c", COMMAND, *words, "--address", address], stdout=output, stderr=output
    )


def count_entries(out: Path) -> tuple[int, int]:
    """How often jobs were begun, and published; fails if one was published twice."""
    begun = published = 0
    for directory in (out / "jobs").iterdir():
        entries = [json.loads(path.read_text()) for path in directory.glob("lease-*.json")]
        ends = sum("done" in one for one in entries)
        assert ends <= 1, f"{directory} was published {ends} times"
        begun, published = begun + len(entries) - ends, published + ends
    return begun, published


def timed(directory: Path) -> list[Any]:
    """The updates of a run that its checkpoint has, with the seconds that they took."""
    try:
        last = json.loads((directory / "checkpoint.json").read_text())["step"]
        lines = (directory / "timing.jsonl").read_text().splitlines(keepends=True)
    except (FileNotFoundError, NotADirectoryError):  # no checkpoint yet, moved, or a file
        return []
    rows = [json.loads(line) for line in lines if line.endswith("\n")]
    return [row for row in rows if row["step"] <= last]


@dataclass
class Kept:
    """What runs had saved when something was killed."""

    out: Path
    rows: list[tuple[str, list[Any]]] = field(default_factory=list)

    def note(self) -> None:
        """Looks at the runs that are at work."""
        for directory in self.out.glob("jobs/*"):
            if not (directory / "done.json").exists() and (rows := timed(workplace(directory))):
                self.rows.append((directory.name, rows))

    def check(self) -> None:
        """Fails if a row was written again: two measurements of the time are never equal."""
        for name, rows in self.rows:
            lines = (self.out / "jobs" / name / "timing.jsonl").read_text().splitlines()
            assert [json.loads(line) for line in lines[: len(rows)]] == rows, f"{name} lost work"
        print(f"{len(self.rows)} checkpoints were continued, none lost", flush=True)


def wait_for(process: "subprocess.Popen[bytes]", out: Path, jobs: int, choose: Random) -> None:
    """Waits until that many jobs are done, and some seconds more."""
    while finished_jobs(out) < jobs and process.poll() is None:
        time.sleep(0.1)
    time.sleep(choose.uniform(0, 10))
    assert process.poll() is None, "it ended before it was killed"


def main() -> None:
    """Compares, and fails where they differ."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("experiments", nargs="*")
    parser.add_argument("--nodes", type=int, default=5)
    parser.add_argument("--drivers", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--alone", type=Path)
    arguments = parser.parse_args()
    choose, names = Random(arguments.seed), arguments.experiments
    from bcq.experiments.ray_engine import imported  # noqa: PLC0415 - an extra

    imported()
    from ray.cluster_utils import Cluster  # noqa: PLC0415

    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False}
    )
    with tempfile.TemporaryDirectory() as folder:
        alone, nodes, drivers = (Path(folder) / name for name in ("alone", "nodes", "drivers"))
        if arguments.alone:
            alone = arguments.alone
        else:
            assert start(alone, *names).wait() == 0
        total = finished_jobs(alone)
        print(f"left alone: {total} jobs", flush=True)
        for _ in range(2):
            cluster.add_node(num_cpus=1)
        begun, process, kept = (
            time.monotonic(),
            start_on(cluster.address, nodes, *names),
            Kept(nodes),
        )
        for jobs in sorted(choose.sample(range(total - 2), arguments.nodes)):
            wait_for(process, nodes, jobs, choose)
            victim = choose.choice(sorted(cluster.worker_nodes, key=lambda node: node.node_id))
            kept.note()
            cluster.remove_node(victim, allow_graceful=False)
            cluster.add_node(num_cpus=1)
            done, now = finished_jobs(nodes), time.monotonic() - begun
            print(f"node killed after {now:.1f} s: {done} jobs were done", flush=True)
        assert process.wait() == 0, nodes.with_suffix(".txt").read_text()[-2000:]
        seconds = time.monotonic() - begun
        print(f"{seconds:.0f} s; begun, published: {count_entries(nodes)}", flush=True)
        kept.check()
        assert results(nodes) == results(alone), "the nodes' results differ"
        kept = Kept(drivers)
        for jobs in sorted(choose.sample(range(total - 2), arguments.drivers)):
            process = start_on(cluster.address, drivers, *names)
            wait_for(process, drivers, jobs, choose)
            kept.note()
            process.kill()
            process.wait()
            print(f"driver killed: {finished_jobs(drivers)} jobs were done", flush=True)
        process = start_on(cluster.address, drivers, *names)
        assert process.wait() == 0, drivers.with_suffix(".txt").read_text()[-2000:]
        print(f"begun, published: {count_entries(drivers)}", flush=True)
        kept.check()
        assert results(drivers) == results(alone), "the drivers' results differ"
    cluster.shutdown()  # type: ignore[no-untyped-call]
    print("the same")


if __name__ == "__main__":
    main()
