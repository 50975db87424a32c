"""What every verb prints and writes, recorded: `python tests/recordings.py` records anew.

The commands run one after another in one folder. Their transcripts are in `tests/recordings`, one
file for each chapter. `python tests/recordings.py FOLDER` puts them elsewhere, to be compared byte
for byte with those of another commit on the same machine.
"""

import contextlib
import io
import json
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import safetensors.numpy
from matplotlib.image import imread

from bcq.cli.application import main

KEPT = Path(__file__).with_name("recordings")
RESULTS = Path(__file__).parent.parent / "results" / "quick"
# Depend on the machine, the day or the speed.
UNSTABLE = {"versions", "commit", "device", "threads", "sha256", "made", "seconds", "version"}
UNRECORDED = ("timing.jsonl", ".lock")
PROGRESS = re.compile(r"^\w[\w ]*: [\d,]+ of [\d,]+ \w+.*\n", re.MULTILINE)
HASH = re.compile(r"(?<![.\d])\b[0-9a-f]{12,}\b")  # and not the digits of a fraction
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[-+]?\d+)?")

SMALL = "--steps 100 --evaluate-episodes 2 --checkpoint-every 100"
NETS = "--batch-size 8 --hidden-sizes 8 8"
SIZES = {
    **{"bcq": f"{NETS} --vae-hidden-sizes 8", "ddpg": NETS, "dqn": NETS, "bc": NETS},
    "vae-bc": "--batch-size 8 --vae-hidden-sizes 8",
    "ensemble": "--member-batch-size 8 --hidden-sizes 8 8 --members 2",
}
FORMATS = {
    "random.hdf5": "",
    "unpaired.hdf5": "",
    "log.npz": "",
    "log.csv": "",
    "odd.csv": "--columns odd.toml",
    "shuffled.parquet": "--columns observations=o* actions=u rewards=r episode=run step=t",
    "random-v0": "",
}

CHAPTERS: dict[str, list[str]] = {
    "collect": [
        "collect random --env Pendulum-v1 --transitions 450 --seed 1 --out random.hdf5",
        # Few updates each: after many, processors that round differently disagree. An agent makes
        # one at each step of whole episodes, which are shorter in Reacher.
        "collect final-buffer --env Pendulum-v1 --transitions 300 --random-steps 200 "
        "--out final.hdf5 --keep all",
        "collect concurrent --env Pendulum-v1 --transitions 300 --random-steps 200 "
        "--out concurrent.hdf5",
        "experts train --env Reacher-v5 --seeds 0,1 --keep 1 --steps 50 --out experts",
        "experts list",
        "collect imitation --env Reacher-v5 --policy experts/kept/Reacher-v5-0.safetensors "
        "--transitions 120 --out imitation.hdf5",
        "collect imperfect --env Reacher-v5 --policy experts/kept/Reacher-v5-0.safetensors "
        "--transitions 120 --out imperfect.hdf5",
    ],
    "convert": [
        "convert random.hdf5 random-v0 --env Pendulum-v1",
        *(
            f"convert {file} {file.replace('.', '-')}.hdf5 {words}"
            for file, words in FORMATS.items()
        ),
        "convert log.csv log-v0",
        "convert log.csv margin.hdf5 --action-margin 0.1",
        "convert log.csv bounds.hdf5 --action-low -3 --action-high 3",
        "convert log.csv pendulum.hdf5 --env Pendulum-v1",
        "convert log.csv log.npz",
        "convert random.hdf5 random.hdf5",
    ],
    "inspect": [
        *(f"inspect {file} {words} --picture p.png" for file, words in FORMATS.items()),
        "inspect log.csv --json --picture p.png",
        "inspect log.csv --action-margin 0",
        "inspect faulty.csv",
        "inspect faulty.csv --json",
        "inspect faulty.csv --fix mended.hdf5",
        "inspect mended.hdf5",
        "inspect copies.hdf5 --fix single.hdf5",
        "inspect nowhere.hdf5",
    ],
    "train": [
        *(
            f"train {name} --data random.hdf5 --env Pendulum-v1 {SMALL} {sizes}"
            for name, sizes in SIZES.items()
        ),
        *(
            f"train bc --data {file} {words} --action-margin 0.1 {SMALL} {NETS} --out bc-{i}"
            for i, (file, words) in enumerate(FORMATS.items())
        ),
        f"train ddpg --data random.hdf5 {SMALL} {NETS}",
        f"train ddpg --data random.hdf5 --env Pendulum-v1 {SMALL} --steps 300 {NETS} --resume",
        f"train ddpg --data random.hdf5 --env Pendulum-v1 {SMALL} {NETS} --seed 1 --resume "
        "--out runs/ddpg-random-seed0",
        f"train ddpg --data random.hdf5 --env Pendulum-v1 {SMALL} {NETS} --keep 2 "
        "--true-value-every 100 --out truths",
        f"train bcq --data concurrent.hdf5 --concurrent {SMALL} {SIZES['bcq']} --out concurrent",
        f"train bcq --data faulty.csv {SMALL} {SIZES['bcq']}",
    ],
    "evaluate": [
        *(f"evaluate runs/{name}-random-seed0 --episodes 3" for name in SIZES),
        "evaluate runs/bcq-random-seed0 --episodes 2 --json --seed 4",
        "evaluate runs/bcq-random-seed0 --data random.hdf5 --meter",
        "evaluate runs/ddpg-random-seed0 --data random.hdf5 --values --json",
        "evaluate runs/ddpg-random-seed0 --data log.csv --meter",
        "evaluate bc-3 --episodes 2",
        "evaluate nowhere",
    ],
    "reproduce": ["reproduce --check --out quick"],
}


def prepare(folder: Path) -> None:
    """Logs of every format, with the same transitions, and some with faults."""
    with h5py.File(folder / "random.hdf5") as file:
        arrays = {name: file[name][()] for name in ("observations", "actions", "rewards")}
        ends = file["timeouts"][()]
    arrays["actions"] /= 2  # within [-1, 1]
    with h5py.File(folder / "unpaired.hdf5", "w") as file:
        for name, values in (*arrays.items(), ("terminals", 0 * ends), ("timeouts", ends)):
            file[name] = values
    np.savez(folder / "log.npz", **arrays, terminated=np.zeros(len(ends)), truncated=ends)
    episodes = np.append(0, np.cumsum(ends)[:-1])
    columns = {
        **{f"observation_{i}": column for i, column in enumerate(arrays["observations"].T)},
        "action_0": arrays["actions"][:, 0],
        "reward": arrays["rewards"],
        "episode": episodes,
        "step": np.arange(len(ends)) - 200 * episodes,
    }
    names = ("o1", "o2", "o3", "u", "r", "run", "t")
    odd = dict(zip(names, columns.values(), strict=True))
    write_csv(folder / "log.csv", columns)
    write_csv(folder / "odd.csv", odd)
    mapping = "observations = ['o1', 'o2', 'o3']\nactions = 'u'\nrewards = 'r'\nepisode = 'run'\n"
    (folder / "odd.toml").write_text(mapping)
    shuffled = np.random.default_rng(0).permutation(len(ends))
    table = pa.table({name: values[shuffled] for name, values in odd.items()})
    pq.write_table(table, folder / "shuffled.parquet", row_group_size=100)
    faulty = {name: values.astype(float) for name, values in columns.items()}
    faulty["observation_1"][17] = np.nan
    faulty["observation_2"] += 1000
    write_csv(folder / "faulty.csv", {**faulty, "terminated": np.zeros(len(ends))})
    with h5py.File(folder / "copies.hdf5", "w") as file:
        for name, values in (*arrays.items(), ("terminals", 0 * ends), ("timeouts", ends)):
            file[name] = np.concatenate([values[:400], values[:200]])
    (folder / "quick").mkdir()
    for name in ("runs.jsonl", "theory.json"):
        (folder / "quick" / name).write_bytes((RESULTS / name).read_bytes())


def write_csv(path: Path, columns: dict[str, Any]) -> None:
    lines = [",".join(columns)]
    lines += [",".join(map(repr, map(float, row))) for row in zip(*columns.values(), strict=True)]
    path.write_text("\n".join(lines).replace("nan", "") + "\n")


def stable(value: Any) -> Any:
    """JSON without what is not the same tomorrow."""
    if isinstance(value, dict):
        return {name: stable(item) for name, item in value.items() if name not in UNSTABLE}
    return [stable(item) for item in value] if isinstance(value, list) else value


def told(path: Path) -> Iterator[str]:
    """A file's content in a few lines."""
    if path.suffix == ".jsonl":
        for line in path.read_text().splitlines()[-4:]:
            yield json.dumps(stable(json.loads(line)))
    elif path.suffix == ".json":
        yield json.dumps(stable(json.loads(path.read_text())))
    elif path.suffix == ".png":
        yield f"{imread(path).shape[:2]}"
    elif path.suffix == ".safetensors":
        for name, values in sorted(safetensors.numpy.load_file(path).items()):
            yield array(name, values)
    elif path.suffix == ".hdf5":
        with h5py.File(path) as file:
            yield json.dumps(stable({n: str(v) for n, v in sorted(file.attrs.items())}))
            found: list[str] = []
            file.visititems(
                lambda name, item: (
                    found.append(array(name, item[()])) if isinstance(item, h5py.Dataset) else None
                )
            )
            yield from found
    elif path.suffix == ".md":
        yield from path.read_text().splitlines()


def array(name: str, values: Any) -> str:
    """Sums that notice another value, and another place of one."""
    flat = np.asarray(values, float).reshape(-1)
    places = 1 + np.arange(len(flat)) % 7
    return f"{name} {values.dtype}{values.shape} {flat.sum():.8e} {(flat * places).sum():.8e}"


def perform(command: str) -> str:
    """The transcript of one command in the current folder."""
    before = {path: path.stat().st_mtime_ns for path in Path().rglob("*") if path.is_file()}
    out, err, code = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main(shlex.split(command))
        except SystemExit as exit:
            code = 1 if isinstance(exit.code, str) else int(exit.code or 0)
            err.write(f"{exit.code}\n" if isinstance(exit.code, str) else "")
    lines = [f"$ bcq {command}", *out.getvalue().splitlines(), f"exit {code}"]
    lines += [f"! {line}" for line in PROGRESS.sub("", err.getvalue()).splitlines()]
    for path in sorted(path for path in Path().rglob("*") if path.is_file()):
        changed = before.get(path) != path.stat().st_mtime_ns
        if changed and path.name not in UNRECORDED and "cache" not in path.parts:
            lines += [f"> {path}", *(f"  {line}" for line in told(path))]
    return "\n".join(lines) + "\n"


def record() -> dict[str, str]:
    """Every chapter's transcript."""
    chapters, home = {}, Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            for chapter, commands in CHAPTERS.items():
                if chapter == "convert":
                    prepare(Path(folder))
                chapters[chapter] = "\n".join(perform(command) for command in commands)
        finally:
            os.chdir(home)
    return chapters


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else KEPT
    target.mkdir(exist_ok=True)
    os.environ["NPROC"] = "1"  # threads of JAX, as in the tests
    for chapter, transcript in record().items():
        (target / f"{chapter}.txt").write_text(transcript)
