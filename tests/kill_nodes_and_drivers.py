"""Runs `bcq reproduce --preset smoke` on a Ray cluster of two nodes, and kills what it runs on.

    python tests/kill_nodes_and_drivers.py [EXPERIMENT ...] [--nodes 5] [--drivers 3] [--seed 0]

One reproduction is left alone, on the local engine. One runs on the cluster while nodes are killed
without grace and replaced. Another runs while its driver is killed and started again. Records and
theory must be the same but for how, when and at which commit they were made, and every job must
have been published once.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

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


def main() -> None:
    """Compares, and fails where they differ."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("experiments", nargs="*")
    parser.add_argument("--nodes", type=int, default=5)
    parser.add_argument("--drivers", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    choose, names = random.Random(arguments.seed), arguments.experiments
    from bcq.experiments.ray_engine import imported  # noqa: PLC0415 - an extra

    imported()
    from ray.cluster_utils import Cluster  # noqa: PLC0415

    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False}
    )
    with tempfile.TemporaryDirectory() as folder:
        alone, nodes, drivers = (Path(folder) / name for name in ("alone", "nodes", "drivers"))
        begun = time.monotonic()
        assert start(alone, *names).wait() == 0
        whole = time.monotonic() - begun
        print(f"left alone: {whole:.0f} s, {finished_jobs(alone)} jobs", flush=True)
        for _ in range(2):
            cluster.add_node(num_cpus=1)
        begun, process = time.monotonic(), start_on(cluster.address, nodes, *names)
        for kill in range(arguments.nodes):
            time.sleep(choose.uniform(0, 1.5 * whole / arguments.nodes))
            victim = choose.choice(sorted(cluster.worker_nodes, key=lambda node: node.node_id))
            cluster.remove_node(victim, allow_graceful=False)
            cluster.add_node(num_cpus=1)
            done, now = finished_jobs(nodes), time.monotonic() - begun
            print(f"node {kill + 1} killed after {now:.1f} s: {done} jobs were done", flush=True)
        assert process.wait() == 0, nodes.with_suffix(".txt").read_text()[-2000:]
        seconds = time.monotonic() - begun
        print(f"{seconds:.0f} s; begun, published: {count_entries(nodes)}", flush=True)
        assert results(nodes) == results(alone), "the nodes' results differ"
        for kill in range(arguments.drivers):
            process = start_on(cluster.address, drivers, *names)
            instant = choose.uniform(0, 1.5 * whole / arguments.drivers)
            time.sleep(instant)
            process.kill()
            process.wait()
            done = finished_jobs(drivers)
            print(f"driver {kill + 1} killed after {instant:.1f} s: {done} were done", flush=True)
        process = start_on(cluster.address, drivers, *names)
        assert process.wait() == 0, drivers.with_suffix(".txt").read_text()[-2000:]
        print(f"begun, published: {count_entries(drivers)}", flush=True)
        assert results(drivers) == results(alone), "the drivers' results differ"
    cluster.shutdown()  # type: ignore[no-untyped-call]
    print("the same")


if __name__ == "__main__":
    main()
