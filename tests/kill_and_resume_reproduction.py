"""Kills `bcq reproduce --preset smoke` at random instants and compares what it ends with.

    python tests/kill_and_resume_reproduction.py [--kills 5] [--seed 0]

One reproduction is left alone. Another is killed (SIGKILL, no chance to tidy up) and started again
as often as asked, then left to finish. Records and theory must be the same but for how, when and
at which commit they were made.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

COMMAND = "import sys; from bcq.cli.application import main; main(sys.argv[1:])"


def start(out: Path, *words: str) -> "subprocess.Popen[bytes]":
    """A reproduction in a process of its own."""
    arguments = ["reproduce", *words, "--preset", "smoke", "--out", str(out)]
    return subprocess.Popen([sys.executable, "-c", COMMAND, *arguments], stdout=subprocess.DEVNULL)


def finished_jobs(out: Path) -> int:
    """How many jobs have ended well."""
    return len(list(out.glob("jobs/*/done.json")))


def results(out: Path) -> list[Any]:
    """Everything measured."""
    rows = [json.loads(line) for line in (out / "runs.jsonl").read_text().splitlines()]
    for row in rows:
        del row["made"]
    theory = out / "theory.json"
    return [*rows, json.loads(theory.read_text()) if theory.exists() else None]


def main() -> None:
    """Compares, and fails where the two differ."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    choose = random.Random(arguments.seed)
    with tempfile.TemporaryDirectory() as folder:
        alone, killed = Path(folder) / "alone", Path(folder) / "killed"
        begun = time.monotonic()
        assert start(alone).wait() == 0
        whole = time.monotonic() - begun
        print(f"left alone: {whole:.0f} s, {finished_jobs(alone)} jobs", flush=True)
        for kill in range(arguments.kills):
            process = start(killed)
            instant = choose.uniform(0, whole / arguments.kills)
            time.sleep(instant)
            process.kill()
            process.wait()
            time.sleep(2)  # its workers notice within half a second
            done = finished_jobs(killed)
            print(f"kill {kill + 1} after {instant:.1f} s: {done} jobs were done", flush=True)
        assert start(killed).wait() == 0
        assert results(killed) == results(alone), "the two differ"
    print("the same")


if __name__ == "__main__":
    main()
