"""`bcq serve` under load, on this machine only: many clients, odd requests, large and slow ones.

    python benchmarks/serving.py [--clients 100] [--seconds 60] [--odd 10000]

The policy is BCQ at the paper's sizes with Hopper's observations, and every decision is logged.
Clients and service share the machine's cores.
"""

import argparse
import asyncio
import http.client
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from results import record

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from service_clients import HOST, Answers, fuzz, load

SIZE = 11  # numbers of Hopper's observation
LARGE = 50_000_000  # bytes


def export(path: Path) -> None:
    """A policy with fresh weights at the paper's sizes."""
    import jax
    import numpy as np

    from bcq.algorithms import BCQConfig
    from bcq.data.bounds import ActionBounds, TaskSpec
    from bcq.export.content import content_of
    from bcq.export.files import encode
    from bcq.training.policy import Policy

    ones = np.ones(3, np.float32)
    task = TaskSpec(SIZE, ActionBounds(-ones, ones))
    policy = Policy(BCQConfig().create(SIZE, 3, jax.random.key(0)), task)
    about = {"algorithm": "bcq", "task": task.as_json(), "exported_by": {"bcq": "benchmark"}}
    path.write_bytes(encode(content_of(policy, about), path.suffix))


@contextmanager
def service(policy: Path, log: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """The service in a process of its own, which ends with the block."""
    command = [sys.executable, "-m", "bcq", "serve", str(policy), "--log", str(log), "--port", "0"]
    started = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert started.stdout is not None
        found = re.search(r":(\d+) serves", started.stdout.readline())
        if found is None:
            raise SystemExit("the service did not start")
        yield started, int(found[1])
    finally:
        started.terminate()
        started.wait(30)


def get(port: int, path: str) -> tuple[int, str]:
    """Status and body."""
    connection = http.client.HTTPConnection(HOST, port, timeout=30)
    connection.request("GET", path)
    answer = connection.getresponse()
    found = answer.status, answer.read().decode()
    connection.close()
    return found


def memory(port: int) -> float:
    """Of the service, in megabytes."""
    found = re.search(r"bcq_resident_memory_bytes ([\d.e+]+)", get(port, "/metrics")[1])
    assert found is not None
    return float(found[1]) / 1e6


async def loaded(port: int, clients: int, seconds: float) -> tuple[Answers, list[float]]:
    """The answers to many clients, and the memory of the service every five seconds."""
    sizes = [await asyncio.to_thread(memory, port)]

    async def watch() -> None:
        while True:
            await asyncio.sleep(5)
            sizes.append(await asyncio.to_thread(memory, port))

    watching = asyncio.create_task(watch())
    answers = await load(port, SIZE, clients, seconds)
    watching.cancel()
    return answers, sizes


def large_and_slow(port: int) -> dict[str, Any]:
    """What clients hear who send much, or nearly nothing."""
    connection = http.client.HTTPConnection(HOST, port, timeout=60)
    connection.request("POST", "/act", b" " * LARGE, {"Content-Type": "application/json"})
    large = connection.getresponse().status
    connection.close()
    slow = [socket.create_connection((HOST, port), timeout=60) for _ in range(50)]
    head = f"POST /act HTTP/1.1\r\nHost: {HOST}\r\nContent-Type: application/json\r\n"
    for number, one in enumerate(slow):  # half of them stop within the headers
        one.sendall((head + ("Content-Length: 100\r\n\r\n{" if number % 2 else "A")).encode())
    start = time.perf_counter()
    meanwhile = get(port, "/health")[0], time.perf_counter() - start
    heard = []
    for one in slow:
        try:
            heard.append(one.recv(1_000)[9:12].decode() or "closed")
        except ConnectionResetError:
            heard.append("closed")
        one.close()
    return {
        "status of a body of 50 MB": large,
        "health meanwhile": meanwhile,
        "slow clients heard": {each: heard.count(each) for each in sorted(set(heard))},
        "seconds until all were let go": time.perf_counter() - start,
    }


def main() -> None:
    """Prints what happened, and keeps it."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--odd", type=int, default=10_000, help="odd requests")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        policy, log = Path(folder) / "policy.onnx", Path(folder) / "decisions.parquet"
        export(policy)
        with service(policy, log) as (process, port):
            alone = asyncio.run(load(port, SIZE, 1, 5))
            answers, sizes = asyncio.run(loaded(port, options.clients, options.seconds))
            odd = asyncio.run(fuzz(port, SIZE, options.odd, at_once=300))
            others = large_and_slow(port)
            healthy, after = get(port, "/health")[0], memory(port)
            assert process.poll() is None
            kept = re.findall(r'status="(5\d\d)"\} (\d+)', get(port, "/metrics")[1])
        rows = sum(pq.read_metadata(part).num_rows for part in log.glob("decisions-*"))
    found = {
        "milliseconds of one client alone": 1e3 * statistics.median(alone.seconds),
        "clients": options.clients,
        "requests": len(answers.seconds),
        "per second": len(answers.seconds) / options.seconds,
        "statuses": dict(answers.statuses),
        "failed": len(answers.failures) + sum(n for s, n in answers.statuses.items() if s != 200),
        "milliseconds": {
            "p50": 1e3 * statistics.median(answers.seconds),
            "p99": 1e3 * answers.percentile(0.99),
            "longest": 1e3 * max(answers.seconds),
        },
        "megabytes": [round(size, 1) for size in sizes],
        "odd requests": {str(status): count for status, count in sorted(odd.statuses.items())},
        **others,
        "health at the end": healthy,
        "megabytes at the end": round(after, 1),
        "errors of the service": kept,
        "rows in the log": rows,
    }
    for name, value in found.items():
        print(f"{name:32}{value}")
    record("serving", found)


if __name__ == "__main__":
    main()
