"""A disk that is full: one line, nothing half-written, and no crash.

The kernel's limit on a file's size stands in for it: a write beyond it fails in the same way. Each
command runs in a process of its own, since what must not happen is that the process dies.
"""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import bcq

ROWS = 3_000
# Commands one after another, so that Python starts once; limits are lifted in between.
SCRIPT = """
import resource, sys
from bcq.cli.application import main
_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
for limit in map(int, sys.argv[1].split(",")):
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        main(sys.argv[2:])
    except SystemExit as error:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        print(error.code)
    else:
        print("written")
"""


@pytest.fixture
def batch(tmp_path: Path) -> Path:
    """Noise, which hardly compresses: its file is a good 100 KB."""
    path = tmp_path / "batch.hdf5"
    bcq.save(bcq.collect_random("Pendulum-v1", transitions=ROWS), path)
    assert path.stat().st_size > 100_000
    return path


def said(limits: str, *arguments: str, cwd: Path) -> list[str]:
    """The one line of each attempt; whatever goes wrong otherwise ends on stderr."""
    command = [sys.executable, "-c", SCRIPT, limits, *arguments]
    answer = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert (answer.returncode, answer.stderr) == (0, "")
    return answer.stdout.splitlines()


@pytest.mark.parametrize(
    ("arguments", "target"),
    [
        (("convert", "batch.hdf5", "new.hdf5"), "new.hdf5"),
        (("convert", "batch.hdf5", "new-v0"), "new-v0"),
        (("inspect", "batch.hdf5", "--fix", "new.hdf5"), "new.hdf5"),
    ],
)
def test_a_batch_is_written_whole_or_not_at_all(
    arguments: tuple[str, ...], target: str, batch: Path
) -> None:
    before = {path.name for path in batch.parent.iterdir()}
    limits = "0,100,1000,3000,20000,90000"
    lines = said(limits, *arguments, cwd=batch.parent)
    assert lines == [f"bcq: cannot write {target}: File too large"] * 6
    assert {path.name for path in batch.parent.iterdir()} == before


def test_a_table_is_converted_whole_or_not_at_all(tmp_path: Path) -> None:
    table = tmp_path / "log.csv"
    numbers = np.random.default_rng(0).uniform(-1, 1, (ROWS, 4))
    header = "obs_0,obs_1,action,reward"
    np.savetxt(table, numbers, delimiter=",", header=header, comments="")
    lines = said("0,1000,60000", "convert", "log.csv", "new.hdf5", cwd=tmp_path)
    assert all(
        line.startswith("bcq: log.csv: no space for a temporary copy of it (") for line in lines
    )
    assert all("TMPDIR" in line for line in lines)
    assert "File too large" in lines[1]
    assert len(lines) == 3
    assert [path.name for path in tmp_path.iterdir()] == ["log.csv"]


def test_what_fits_is_the_batch(batch: Path) -> None:
    assert said("200000", "convert", "batch.hdf5", "new.hdf5", cwd=batch.parent)[-1] == "written"
    new = bcq.load(batch.with_name("new.hdf5"))
    assert new.fingerprint == bcq.load(batch).fingerprint
