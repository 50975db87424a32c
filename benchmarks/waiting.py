"""The rest of a user's wait: importing, compiling, loading, evaluating, and a policy at last.

    python benchmarks/waiting.py --peers .venv-bench/bin/python [--repeats 3]

Needs the folder's disk space for a gigabyte. What is compared is asked in turn, each time in a
fresh process; files are in the page cache.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from agreement import weights_of
from contenders import episode_ends, interpreter, transitions
from growth import BCQ, train_command
from results import record
from tqdm import tqdm
from waits import ENV, EVALUATE_EVERY, LONGEST

from bcq.data.columns import Columns, Provenance
from bcq.data.dataset import Dataset
from bcq.data.formats import hdf5, minari
from bcq.runs.directory import Run

HERE = Path(__file__).parent


def seconds(command: list[str | Path]) -> float:
    """That a command takes, from nothing."""
    start = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True, stdin=subprocess.DEVNULL)
    return time.perf_counter() - start


def ask(python: str, what: str, path: Path) -> Any:
    """The answer of `waits.py`."""
    command: list[str | Path] = [python, HERE / "waits.py", what, path]
    answer = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(answer.stdout.splitlines()[-1])


def warm_up(python: str, name: str) -> float:
    """From starting Python to ten updates done and the next ten timed."""
    return seconds([python, HERE / "contenders.py", name])


def million() -> Dataset:
    """Transitions in the shape of Hopper's."""
    arrays = dict(transitions(ENV, 1_000_000))
    arrays["terminated"] = arrays["terminated"] > 0
    arrays["truncated"] = episode_ends(len(arrays["rewards"]))
    return Dataset.from_columns(Columns("random numbers", arrays, Provenance(environment=ENV)))


def beat_the_batch(batch: Path, folder: Path) -> tuple[float, int, float]:
    """Seconds, updates and return from `bcq train` to the first evaluation above the batch."""
    start = time.perf_counter()
    every = {"evaluate_every": EVALUATE_EVERY, "checkpoint_every": EVALUATE_EVERY}
    command = train_command(data=batch, out=folder, env=ENV, steps=LONGEST, **every)
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    seen = 0
    while process.poll() is None:
        time.sleep(0.1)
        if not (folder / "checkpoint.json").exists():
            continue
        run = Run.open(folder)
        step = run.checkpoint_step() or 0
        if step > seen:
            seen = step
            returns = [row["return"] for row in run.read("episodes.jsonl") if row["step"] == step]
            if np.mean(returns) > run.config.as_json()["dataset"]["mean_return"]:
                process.terminate()
                process.wait()
                return time.perf_counter() - start, step, float(np.mean(returns))
    raise SystemExit(f"{folder}: never beat the batch")


def main() -> None:
    """Measures, prints and records."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--peers", type=interpreter, required=True, help="a Python that has PyTorch and the peers"
    )
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    peers, ours = arguments.peers, sys.executable
    measured: dict[str, Any] = {}

    def repeat(**measures: Callable[[], Any]) -> None:
        """Each in turn, several times."""
        for name in measures:
            measured[name] = []
        for _ in tqdm(range(arguments.repeats), ", ".join(measures), leave=False):
            for name, measure in measures.items():
                measured[name].append(measure())
        for name in measures:
            print(f"{name:<28} {[np.round(value, 3).tolist() for value in measured[name]]}")

    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        repeat(
            import_bcq=lambda: seconds([ours, "-c", "import bcq"]),
            help_bcq=lambda: seconds([*BCQ, "--help"]),
            import_torch=lambda: seconds([peers, "-c", "import torch"]),
            import_d3rlpy=lambda: seconds([peers, "-c", "import d3rlpy"]),
        )
        repeat(
            warm_up_bcq=lambda: warm_up(ours, "bcq"),
            warm_up_textbook=lambda: warm_up(peers, "textbook"),
            warm_up_textbook_compiled=lambda: warm_up(peers, "textbook compiled"),
        )

        dataset = million()
        hdf5.write(dataset, folder / "ours.hdf5")
        minari.write(dataset, folder / "minari" / "million-v0", "million-v0")
        ask(peers, "write_d3rlpy", folder / "d3rlpy.h5")
        repeat(
            load_ours=lambda: ask(ours, "load_ours", folder / "ours.hdf5"),
            load_ours_from_minari=lambda: ask(ours, "load_ours", folder / "minari" / "million-v0"),
            load_minari=lambda: ask(ours, "load_minari", folder / "minari" / "million-v0"),
            load_d3rlpy=lambda: ask(peers, "load_d3rlpy", folder / "d3rlpy.h5"),
        )

        batch, run = folder / "batch.hdf5", folder / "run"
        collect = [*BCQ, "collect", "imperfect", "--env", ENV, "--out", str(batch)]
        measured["collect_100k"] = [seconds([*collect])]
        measured["beat_the_batch"] = [beat_the_batch(batch, run)]
        start = time.perf_counter()
        answer = ask(peers, "train_textbook", batch)
        measured["beat_the_batch_textbook"] = [(time.perf_counter() - start, *answer)]
        for name in ("collect_100k", "beat_the_batch", "beat_the_batch_textbook"):
            print(f"{name:<28} {measured[name]}")

        np.savez(folder / "weights.npz", **weights_of(Run.open(run).policy().learner))  # type: ignore[arg-type]
        repeat(
            evaluate_ours=lambda: ask(ours, "evaluate_ours", run),
            evaluate_textbook=lambda: ask(peers, "evaluate_textbook", folder / "weights.npz"),
            bare_stepping=lambda: ask(ours, "bare_stepping", batch),
        )
    record("waiting", measured)


if __name__ == "__main__":
    main()
