"""How updates per second and memory grow with the data, n, the minibatch and the seeds at once.

    python benchmarks/growth.py [--largest 10000000]

At Hopper's sizes. For the data a file of each length is trained on by `bcq train`, from disk to
the last update, as a user would; the rest is timed in one process, in turn.
"""

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import jax
import numpy as np
from contenders import (
    ROWS,
    SIZES,
    Work,
    episode_ends,
    finished,
    our_inputs,
    ours,
    per_second,
    transitions,
)
from results import record
from tqdm import tqdm

from bcq.algorithms import BCQConfig
from bcq.runs.directory import Run
from bcq.training.loop import create_compiled, update_until

ENV = "Hopper-v5"
UPDATES, ROUNDS, SECONDS = 500, 5, 1.0
BCQ = [sys.executable, "-c", "from bcq.cli.application import main; main()"]  # the command `bcq`


def write(path: Path, count: int) -> None:
    """Random transitions in D4RL's layout, a million at a time."""
    with h5py.File(path, "w") as file:
        for start in range(0, count, 1_000_000):
            part = dict(transitions(ENV, min(count - start, 1_000_000)))
            part["terminals"] = part.pop("terminated") > 0
            part["timeouts"] = episode_ends(len(part["rewards"]))
            for name, values in part.items():
                if start == 0:
                    file.create_dataset(name, data=values, maxshape=(None, *values.shape[1:]))
                else:
                    file[name].resize(start + len(values), axis=0)
                    file[name][start:] = values


def train_command(**options: object) -> list[str]:
    """`bcq train bcq` with these options."""
    given = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
    return [*BCQ, "train", "bcq", *given]


def trained_on(count: int) -> dict[str, float]:
    """What `bcq train` needs for a batch of this many rows."""
    with tempfile.TemporaryDirectory() as folder:
        path, out = Path(folder) / "batch.hdf5", Path(folder) / "run"
        write(path, count)
        command = train_command(data=path, out=out, steps=UPDATES, checkpoint_every=UPDATES)
        start = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        whole = time.perf_counter() - start
        timing = [row["seconds"] for row in Run.open(out).read("timing.jsonl")]
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss  # kilobytes, of the largest child
    return {
        "rows": count,
        "updates_per_second": (UPDATES - 100) / sum(timing[1:]),  # the first hundred compile
        "seconds_in_all": whole,
        "peak_gigabytes": peak / 1e6,
    }


def seeds_at_once(count: int) -> Work:
    """Updates of several seeds, vectorised into one program."""
    columns, config = transitions(ENV), BCQConfig()
    _, batch, windows, key = our_inputs(ENV, columns, config)
    keys = jax.random.split(key, count)
    learners = jax.vmap(lambda key: create_compiled(config, *SIZES[ENV], key))(keys)
    together = jax.jit(
        jax.vmap(
            lambda learner, key, stop: update_until(
                learner, batch, None, windows, key, 0, stop, ROWS
            ),
            in_axes=(0, 0, None),
        )
    )
    return lambda stop: finished(together(learners, keys, stop))


def in_turn(works: dict[str, Work]) -> dict[str, list[float]]:
    """Calls per second of each, a number a round."""
    counts = {}
    for name, work in tqdm(works.items(), "compiling", leave=False):
        work(3)
        counts[name] = max(2, int(SECONDS * per_second(work, 3)))
    speeds: dict[str, list[float]] = {name: [] for name in works}
    for _ in tqdm(range(ROUNDS), "rounds", leave=False):
        for name, work in works.items():
            speeds[name].append(per_second(work, counts[name]))
    return speeds


def main() -> None:
    """Measures, prints and records."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--largest", type=int, default=10_000_000)
    arguments = parser.parse_args()
    rows = [10**power for power in range(4, 9) if 10**power <= arguments.largest]
    measured: dict[str, Any] = {"rows": [trained_on(count) for count in tqdm(rows, "batches")]}
    for case in measured["rows"]:
        print(", ".join(f"{name} {value:.4g}" for name, value in case.items()))
    hopper = partial(ours, ENV, transitions(ENV), "bcq")
    works: dict[str, dict[str, Work]] = {
        "n": {str(n): hopper(num_samples=n) for n in (1, 2, 5, 10, 20, 50, 100)},
        "minibatch": {str(size): hopper(batch_size=size) for size in (10, 30, ROWS, 300, 1000)},
        "seeds at once": {"1": hopper(), "2": seeds_at_once(2), "4": seeds_at_once(4)},
    }
    for name, cases in works.items():
        measured[name] = in_turn(cases)
        for case, speeds in measured[name].items():
            print(f"{name} = {case:<6} {np.median(speeds):.4g} calls/s")
    record("growth", measured)


if __name__ == "__main__":
    main()
