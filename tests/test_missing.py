"""Cells without a value: refused, filled from their own episode, or left out with their rows."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bcq
from bcq.cli.application import main
from bcq.data.columns import Columns, Provenance
from bcq.data.episodes import without_rows
from bcq.data.missing import handle_missing
from bcq.system.errors import InputError

# Two episodes of five rows; the second begins with a gap.
LOG = """episode,obs_0,obs_1,action_0,reward
a,1,10,0.1,1
a,2,,0.2,2
a,3,,,3
a,4,40,0.4,4
a,5,50,0.5,5
b,,60,0.6,6
b,7,70,0.7,7
b,8,nan,0.8,8
b,9,90,0.9,
b,10,100,1.0,10
"""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log.csv"
    path.write_text(LOG)
    return path


def test_they_are_refused_by_default_with_row_and_column(log: Path) -> None:
    with pytest.raises(InputError) as caught:
        bcq.load(log)
    words = "observations, row 1: obs_1 is nan (one of 4 values that are not finite)"
    assert str(caught.value).startswith(
        f"{log}: {words}; remove or repair these rows, or set missing"
    )


def test_they_are_filled_with_the_last_value_of_their_episode(log: Path) -> None:
    dataset = bcq.load(log, missing="fill")
    # Row 5 has no value before it, row 8 no reward: both are left out. Rows 4, 7 and 9 are the last
    # before a cut, so that their next observation is not known.
    assert dataset.rewards.tolist() == [1, 2, 3, 4, 7]
    assert dataset.observations.tolist() == [[1, 10], [2, 10], [3, 10], [4, 40], [7, 70]]
    assert dataset.next_observations.tolist() == [[2, 10], [3, 10], [4, 40], [5, 50], [8, 70]]
    np.testing.assert_allclose(dataset.actions[:, 0], [0.1, 0.2, 0.2, 0.4, 0.7], rtol=1e-6)
    assert dataset.truncated.tolist() == [False, False, False, True, True]


def test_their_rows_are_cut_out(log: Path) -> None:
    dataset = bcq.load(log, missing="cut")
    assert dataset.rewards.tolist() == [4]  # the only row whose next row is whole too
    assert dataset.next_observations.tolist() == [[5, 50]]


def test_nothing_is_filled_across_an_end_of_any_kind(tmp_path: Path) -> None:
    nan = np.nan
    arrays: dict[str, Any] = {
        "observations": [[1.0], [nan], [3.0], [nan], [5.0], [nan]],
        "actions": [[0.1], [0.2], [0.3], [0.4], [0.5], [0.6]],
        "rewards": np.arange(6.0),
        "next_observations": [[2.0]] * 6,
        "terminated": [0, 0, 1, 0, 0, 0],
        "truncated": [1, 0, 0, 0, 0, 0],
    }
    np.savez(tmp_path / "log.npz", **arrays)
    dataset = bcq.load(tmp_path / "log.npz", missing="fill")
    assert dataset.rewards.tolist() == [0, 2, 4, 5]  # rows 1 and 3 begin their episodes
    assert dataset.observations[:, 0].tolist() == [1, 3, 5, 5]
    assert dataset.terminated.tolist() == [False, True, False, False]
    assert dataset.truncated.tolist() == [True, False, False, False]  # the last is unfinished


def four_rows(**changes: Any) -> Columns:
    """In the file, these rows stand the other way round."""
    nan = np.nan
    arrays: dict[str, Any] = {
        "observations": np.array([[1.0], [nan], [3.0], [nan]]),
        "actions": np.array([0.25, nan, 0.5, 0.75]),
        "rewards": np.arange(4.0),
        "terminated": np.zeros(4),
    }
    return Columns("log", arrays | changes, Provenance(), rows=np.array([3, 2, 1, 0]))


def test_what_was_filled_is_told_with_the_rows_of_the_file() -> None:
    before = four_rows()
    after = handle_missing(before, "fill")
    assert after.arrays["observations"].tolist() == [[1], [1], [3], [3]]
    assert after.arrays["actions"].tolist() == [[0.25], [0.25], [0.5], [0.75]]
    assert after.rows is not None
    assert after.rows.tolist() == [3, 2, 1, 0]
    (finding,) = after.findings
    assert finding.problem == "3 cells of 2 rows are missing; 0 rows are left out"
    assert finding.remedy == "check that the values before them are good guesses"
    assert (finding.kind, finding.severity) == ("missing-cells", "warning")
    assert finding.rows is not None
    assert finding.rows.tolist() == [0, 2]
    assert np.isnan(before.arrays["actions"]).tolist() == [False, True, False, False]


def test_what_was_cut_out_is_told_and_ends_the_episode_before_it() -> None:
    after = handle_missing(four_rows(), "cut")
    assert after.arrays["rewards"].tolist() == [0, 2]
    assert after.arrays["truncated"].tolist() == [True, True]
    assert after.rows is not None
    assert after.rows.tolist() == [3, 1]
    (finding,) = after.findings
    assert finding.problem == "3 cells of 2 rows are missing; 2 rows are left out"
    assert finding.remedy == "fill them from the row before, if values change slowly"


@pytest.mark.parametrize("choice", ["refuse", "fill", "cut"])
def test_without_gaps_nothing_is_told(choice: Any) -> None:
    whole = four_rows(observations=np.ones((4, 1)), actions=np.ones(4))
    assert handle_missing(whole, choice) is whole


@pytest.mark.parametrize("choice", ["fill", "cut"])
def test_a_log_that_is_no_batch_is_refused_before_anything_is_filled(
    choice: Any, tmp_path: Path
) -> None:
    arrays: dict[str, Any] = {**four_rows().arrays, "terminated": np.zeros(3)}
    np.savez(tmp_path / "log.npz", **arrays)
    with pytest.raises(InputError, match="terminated: has 3 rows but observations has 4"):
        bcq.load(tmp_path / "log.npz", missing=choice)
    del arrays["terminated"]
    np.savez(tmp_path / "log.npz", **arrays)
    with pytest.raises(InputError, match="terminated: is missing"):
        bcq.load(tmp_path / "log.npz", missing=choice)


def test_rows_are_left_out_of_a_copy() -> None:
    arrays: dict[str, Any] = {
        "rewards": np.arange(4.0),
        "terminated": np.array([0, 0, 1, 0]),
        "truncated": np.zeros(4, bool),
    }
    kept, rows = without_rows(arrays, np.array([False, True, False, False]))
    assert rows.tolist() == [0, 2, 3]
    assert kept["truncated"].tolist() == [True, False, False]
    assert not arrays["truncated"].any()
    same, rows = without_rows(arrays, np.zeros(4, bool))
    assert rows.tolist() == [0, 1, 2, 3]
    assert same.keys() == arrays.keys()
    assert same is not arrays


def test_a_log_without_gaps_is_what_it_is(tmp_path: Path, log: Path) -> None:
    whole = "\n".join(
        line for line in LOG.splitlines() if ",," not in line and "nan" not in line
    ).removesuffix(",")
    log.write_text(whole.replace("b,9,90,0.9,\n", ""))
    assert len({bcq.load(log, missing=way).fingerprint for way in ("refuse", "fill", "cut")}) == 1


def test_infinity_is_not_missing(log: Path) -> None:
    log.write_text(LOG.replace("a,4,40", "a,4,inf"))
    with pytest.raises(InputError, match="row 3: obs_1 is inf"):
        bcq.load(log, missing="fill")


def test_the_count_is_told_by_every_verb(
    log: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(log.parent)
    words = "rows, row 1: 6 cells of 5 rows are missing; 2 rows are left out"
    reading = ["--missing", "fill"]
    main(["train", "bc", "--data", "log.csv", *reading, "--steps", "1", "--hidden-sizes", "4", "4"])
    assert f"bcq: warning: log.csv: {words}" in capsys.readouterr().err
    main(["convert", "log.csv", "log.hdf5", *reading])
    assert f"bcq: warning: log.csv: {words}" in capsys.readouterr().err
    assert bcq.load("log.hdf5").fingerprint == bcq.load("log.csv", missing="fill").fingerprint
    main(["inspect", "log.csv", *reading, "--json"])
    found = {one["kind"]: one for one in json.loads(capsys.readouterr().out)["findings"]}
    assert found["missing-cells"]["rows"] == [1, 2, 5, 7, 8]


def test_two_in_a_hundred_cells_cost_few_rows(tmp_path: Path) -> None:
    """Of twelve sensors; without filling, two rows in five are lost."""
    random = np.random.default_rng(0)
    observations = random.normal(size=(10_000, 12)).astype(np.float32)
    observations[random.random(observations.shape) < 0.02] = np.nan
    arrays: dict[str, Any] = {
        "observations": observations,
        "actions": random.uniform(-1, 1, (10_000, 1)),
        "rewards": random.normal(size=10_000),
        "terminated": np.zeros(10_000),
        "truncated": np.arange(10_000) % 100 == 99,
    }
    np.savez(tmp_path / "log.npz", **arrays)
    kept = {way: bcq.load(tmp_path / "log.npz", missing=way) for way in ("fill", "cut")}
    assert len(kept["fill"]) > 9_800
    assert len(kept["fill"].episodes) <= 110
    assert len(kept["cut"]) < 6_500
