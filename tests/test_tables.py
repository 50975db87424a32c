"""CSV and Parquet logs: exact, put in order, cut where rows are missing, in bounded memory."""

import csv
import json
import sys
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bcq
from bcq.data.bounds import ActionBounds
from bcq.data.columns import Columns, Provenance
from bcq.data.dataset import Dataset
from bcq.data.formats import arrow, tables
from bcq.data.formats.mapping import USUAL_NAMES, find_columns, parse_columns
from bcq.data.opening import Options, read
from bcq.data.saving import convert
from bcq.simulation.environments import registered_bounds
from bcq.system import interruption, progress
from bcq.system.errors import InputError, InterruptionError
from refusals import refusal

LENGTHS = (5, 1, 8, 1, 12, 3)  # rows of each episode
TERMINAL = (0, 1, 4)  # of themselves; the others were cut, and the last is unfinished
ROWS = sum(LENGTHS)
Table = dict[str, Any]


def table() -> Table:
    """A log under usual names, one row a step."""
    generator = np.random.default_rng(0)
    episodes = np.repeat(np.arange(len(LENGTHS)), LENGTHS)
    last = np.append(episodes[1:] != episodes[:-1], True)
    return {
        "episode": episodes,
        "step": np.concatenate([np.arange(n) for n in LENGTHS]),
        "obs_0": generator.normal(size=ROWS),
        "obs_1": generator.normal(size=ROWS).astype(np.float32),
        "action_0": generator.uniform(-1, 1, ROWS),
        "action_1": generator.uniform(-1, 1, ROWS),
        "reward": generator.normal(size=ROWS),
        "terminated": last & np.isin(episodes, TERMINAL),
    }


def expected(log: Table) -> Dataset:
    """The batch of it, by way of plain arrays."""
    last = np.append(log["episode"][1:] != log["episode"][:-1], False)
    arrays = {
        "observations": np.stack([log["obs_0"], log["obs_1"]], axis=1),
        "actions": np.stack([log["action_0"], log["action_1"]], axis=1),
        "rewards": log["reward"],
        "terminated": log["terminated"],
        "truncated": last & ~log["terminated"],
    }
    return Dataset.from_columns(Columns("arrays", arrays, Provenance()))


def write(path: Path, log: Table, **options: Any) -> Path:
    """The table as CSV by hand, or as Parquet."""
    if path.suffix == ".parquet":
        pq.write_table(pa.table(log), path, **options)
        return path
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(log)
        writer.writerows(
            zip(*(np.asarray(values).tolist() for values in log.values()), strict=True)
        )
    return path


@pytest.fixture(params=["log.csv", "log.parquet"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    name: str = request.param
    return tmp_path / name


def assert_same(one: Dataset, other: Dataset) -> None:
    for name in ("observations", "actions", "rewards", "next_observations"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
    assert one.episodes.tolist() == other.episodes.tolist()
    assert one.fingerprint == other.fingerprint


@pytest.mark.parametrize(("last", "whole"), [(4, False), (5, True), (6, True)])
def test_the_last_episode_is_whole_if_it_is_as_long_as_most(
    path: Path, last: int, whole: bool
) -> None:
    lengths = (5, 9, 2, last)
    log = {name: np.zeros(sum(lengths)) for name in ("obs_0", "action_0", "reward", "terminated")}
    log["episode"] = np.repeat(np.arange(4), lengths)
    assert read(write(path, log), Options()).arrays["truncated"].sum() == 3 + whole


# Exact


def test_a_table_comes_in_exactly(path: Path) -> None:
    dataset = bcq.load(write(path, table()))
    assert_same(dataset, expected(table()))
    assert len(dataset) == ROWS - 3  # two cut ends and the tail's have no successor
    assert dataset.terminated.sum() == 3


def test_an_episode_is_cut_where_it_does_not_terminate(path: Path) -> None:
    log = table()
    last = np.append(log["episode"][1:] != log["episode"][:-1], False)
    arrays = read(write(path, log), Options()).arrays
    np.testing.assert_array_equal(arrays["truncated"], last & ~log["terminated"])
    np.testing.assert_array_equal(arrays["terminated"], log["terminated"])


def test_next_observations_of_the_table_are_taken(path: Path) -> None:
    log = table() | {f"next_obs_{i}": np.arange(ROWS) + i for i in range(2)}
    dataset = bcq.load(write(path, log))
    assert len(dataset) == ROWS
    np.testing.assert_array_equal(dataset.next_observations[:, 1], np.arange(ROWS) + 1)


def test_fewer_numbers_in_next_observations_are_refused(path: Path) -> None:
    message = refusal(write(path, table() | {"next_obs_0": np.zeros(ROWS)}))
    assert "next_observations: has rows of shape (1,); they must match the (2,) of obs" in message


@pytest.mark.parametrize("kind", [bool, np.int8, np.float64])
def test_flags_of_any_kind_are_read(kind: Any, path: Path) -> None:
    log = table()
    log["timeout"] = (np.arange(ROWS) == 3).astype(kind)
    log["terminated"] = log["terminated"].astype(kind)
    dataset = bcq.load(write(path, log))
    assert dataset.terminated.sum() == 3
    assert dataset.truncated[2]  # row 3 has no successor that counts: the row before it ends there


@pytest.mark.parametrize("names", [[f"run {i}" for i in range(6)], [9, 8, 2.5, 1, 0, -3]])
def test_episodes_may_have_any_name(names: Sequence[Any], path: Path) -> None:
    log = table()
    log["episode"] = [names[i] for i in log["episode"]]
    assert_same(bcq.load(write(path, log)), expected(table()))


def test_times_may_be_times(tmp_path: Path) -> None:
    log = table()
    log["step"] = pa.array(log["step"] * 60, pa.timestamp("s"))
    assert_same(bcq.load(write(tmp_path / "log.parquet", log)), expected(table()))


# Rows of one episode, shuffled: their times order them.
TIMES = {
    None: ["2024-03-09 23:50", "2024-03-10 00:00", "2024-03-10T00:10", "2024-03-10 01:10:00"],
    "%d.%m.%Y %H:%M": [
        "31.01.2024 23:50",
        "01.02.2024 00:00",
        "1.2.2024 00:10",
        "01.02.2024 01:10",
    ],
    "%m/%d/%y %I:%M %p": [
        *("01/31/24 11:50 PM", "02/01/24 12:00 AM", "02/01/24 12:10 AM", "02/01/24 01:10 AM"),
    ],
}


@pytest.mark.parametrize("form", TIMES)
def test_times_written_as_text_order_the_rows_and_show_gaps(form: str | None, path: Path) -> None:
    order = [2, 0, 3, 1]
    log: Table = {
        "timestamp": np.array(TIMES[form])[order],
        **{name: np.array(order, float) for name in ("obs_0", "reward")},
        **{name: np.zeros(4) for name in ("episode", "action_0", "terminated")},
    }
    columns = read(write(path, log), Options(step_format=form))
    assert columns.arrays["rewards"].tolist() == [0, 1, 2, 3]
    assert columns.arrays["truncated"].tolist() == [0, 0, 1, 0]  # an hour is missing
    assert {finding.kind for finding in columns.findings} == {"out-of-order", "gap"}


def test_a_stated_format_decides_how_a_csv_file_is_read(tmp_path: Path) -> None:
    log = {name: np.zeros(4) for name in ("obs_0", "action_0", "terminated")}
    log |= {"step": np.array(["20240131", "20240201", "20240202", "20240301"])}
    path = write(tmp_path / "log.csv", log | {"reward": np.arange(4.0)})
    columns = read(path, Options(step_format="%Y%m%d"))  # not 70 whole numbers later
    assert columns.arrays["truncated"].tolist() == [0, 0, 1, 0]


@pytest.mark.parametrize(
    ("name", "step", "words"),
    [
        ("log.parquet", np.arange(4), "step_format: column step contains int64, not text"),
        ("log.csv", None, "step_format: no column has the role step"),
        ("log.npz", None, "has no column of steps; step_format is for tables"),
    ],
)
def test_a_format_that_would_have_no_effect_is_refused(
    name: str, step: Any, words: str, tmp_path: Path
) -> None:
    log: dict[str, Any] = {
        name: np.zeros(4) for name in ("obs_0", "action_0", "reward", "terminated")
    }
    path = tmp_path / name
    if name == "log.npz":
        np.savez(path, **log)
    else:
        write(path, log if step is None else log | {"step": step})
    with pytest.raises(InputError, match=words):
        read(path, Options(step_format="%H"))


@pytest.mark.parametrize(
    ("form", "expected"),
    [(None, "an ISO time"), ("%d/%m/%Y", "a time like %d/%m/%Y")],
)
def test_a_time_that_cannot_be_read_is_refused_with_its_row(
    form: str | None, expected: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrow, "BATCH_ROWS", 2)
    good = "2024-03-10" if form is None else "10/03/2024"
    log = {name: np.zeros(5) for name in ("obs_0", "action_0", "reward", "terminated")}
    log["step"] = np.array([good, good, good, "13/13/2024", "14/13/2024"])
    with pytest.raises(InputError) as caught:
        read(write(path, log), Options(step_format=form))
    words = f"step, row 3: '13/13/2024' is neither a number nor {expected}"
    assert str(caught.value).startswith(f"{path}: {words}; state the format as step_format")
    assert caught.value.option == "step_format"


KEYS = {
    "float": lambda n: pa.array(n / 4, pa.float32()),
    "decimal": lambda n: pa.array([Decimal(int(i)) / 4 for i in n], pa.decimal128(6, 2)),
    "date": lambda n: pa.array(n, pa.int32()).cast(pa.date32()),
    "time": lambda n: pa.array(n, pa.int32()).cast(pa.time32("s")),
    "timestamp": lambda n: pa.array(n, pa.int64()).cast(pa.timestamp("us")),
    "unsigned": lambda n: pa.array(n, pa.uint8()),
}


@pytest.mark.parametrize("kind", KEYS)
def test_episodes_and_steps_of_any_kind_are_put_in_order(kind: str, tmp_path: Path) -> None:
    order = np.random.default_rng(3).permutation(ROWS)
    log = {name: values[order] for name, values in table().items()}
    log |= {name: KEYS[kind](log[name]) for name in ("episode", "step")}
    assert_same(bcq.load(write(tmp_path / "log.parquet", log)), expected(table()))


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())]
)
def test_episodes_by_name_are_in_the_order_in_which_they_begin(
    kind: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrow, "BATCH_ROWS", 4)
    order = np.argsort(table()["step"], kind="stable")
    log = {name: values[order] for name, values in table().items()}
    log["episode"] = pa.array([f"run {9 - i}" for i in log["episode"]], pa.string()).cast(kind)
    assert_same(bcq.load(write(tmp_path / "log.parquet", log)), expected(table()))


def test_numbers_of_any_kind_are_read(tmp_path: Path) -> None:
    log = table()
    log["obs_0"] = np.arange(ROWS) % 2
    log["obs_1"] = np.arange(ROWS) + 2.0**54
    log["reward"] = np.arange(ROWS) / 4
    plain = bcq.load(write(tmp_path / "plain.parquet", log))
    log["obs_0"] = log["obs_0"] == 1
    log["obs_1"] = np.arange(ROWS) + 2**54  # more digits than any float has
    log["reward"] = pa.array([Decimal(i) / 4 for i in range(ROWS)], pa.decimal128(6, 2))
    assert_same(bcq.load(write(tmp_path / "log.parquet", log)), plain)


def test_without_episodes_a_step_that_falls_back_begins_one(path: Path) -> None:
    log = table()
    del log["episode"]
    assert_same(bcq.load(write(path, log)), expected(table()))


def test_states_of_a_simulator_keep_every_bit(path: Path) -> None:
    log = table() | {"qpos_0": np.random.default_rng(1).normal(size=ROWS)}
    dataset = bcq.load(write(path, log))
    assert dataset.qpos is not None
    assert set(dataset.qpos[:, 0]) <= set(log["qpos_0"].tolist())


# Order and gaps


def test_rows_out_of_order_are_sorted_and_told(path: Path) -> None:
    order = np.random.default_rng(3).permutation(ROWS)
    log = {name: values[order] for name, values in table().items()}
    columns = read(write(path, log), Options())
    assert_same(Dataset.from_columns(columns), expected(table()))
    assert [(f.kind, f.severity) for f in columns.findings] == [("out-of-order", "note")]
    assert columns.findings[0].rows is not None
    assert columns.findings[0].rows.tolist() == [i for i in range(ROWS) if order[i] != i]
    assert columns.findings[0].field == "rows"


def test_interleaved_episodes_are_put_together(path: Path) -> None:
    order = np.argsort(table()["step"], kind="stable")
    log = {name: values[order] for name, values in table().items()}
    assert_same(bcq.load(write(path, log)), expected(table()))


def test_faults_are_named_by_their_row_in_the_file(path: Path) -> None:
    log = table()
    log["reward"][20] = np.nan
    order = np.arange(ROWS)[::-1]
    message = refusal(write(path, {name: values[order] for name, values in log.items()}))
    assert f"rewards, row {ROWS - 21}: is nan" in message
    assert "rewards, row 20: is nan" in refusal(write(path, log))


def test_a_missing_value_is_a_fault_with_its_row(path: Path) -> None:
    log = table()
    log["obs_1"] = [None if row == 7 else float(v) for row, v in enumerate(log["obs_1"])]
    assert "observations, row 7: obs_1 is nan" in refusal(write(path, log))
    log = table()
    log["terminated"] = [None if row == 7 else bool(v) for row, v in enumerate(log["terminated"])]
    assert "terminated, row 7: is nan" in refusal(write(path, log))
    log = table()
    log["step"] = [None if row == 7 else int(v) for row, v in enumerate(log["step"])]
    assert "step, row 7: is missing" in refusal(write(path, log))


def test_a_missing_key_is_named_by_its_row_in_any_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrow, "BATCH_ROWS", 3)
    log = table()
    log["step"] = [None if row in (7, 8, 20) else int(v) for row, v in enumerate(log["step"])]
    message = refusal(write(tmp_path / "log.parquet", log))
    assert "step, row 7: is missing" in message


def test_gaps_and_repeated_steps_are_those_of_the_rows_of_the_file(path: Path) -> None:
    log = {name: np.delete(values, [8, 20], axis=0)[::-1] for name, values in table().items()}
    gaps = [f for f in read(write(path, log), Options()).findings if f.kind == "gap"]
    assert gaps[0].rows is not None
    assert gaps[0].rows.tolist() == [ROWS - 3 - 18, ROWS - 3 - 7]
    log = table()
    log["step"][10] = log["step"][9]
    backwards = {name: values[::-1] for name, values in log.items()}
    assert f"step, row {ROWS - 10}: another row of this episode has this step" in refusal(
        write(path, backwards)
    )


def test_a_gap_is_more_than_half_a_usual_step_too_long(path: Path) -> None:
    log = table()
    log["step"] = log["step"] * 10
    log["step"][8:14] += 4  # late, but nothing can be missing
    assert read(write(path, log), Options()).findings == ()
    log["step"][10:14] += 6
    log["step"][25:27] += 10_000  # one long pause does not hide a short one
    gaps = read(write(path, log), Options()).findings
    assert [f.rows.tolist() for f in gaps if f.rows is not None] == [[9, 24]]


def test_episodes_of_one_step_have_no_gaps(path: Path) -> None:
    log = table() | {f"next_obs_{i}": np.arange(ROWS) + i for i in range(2)}
    log |= {"episode": np.arange(ROWS), "step": np.arange(ROWS)[::-1]}
    columns = read(write(path, log), Options())
    assert columns.findings == ()
    assert Dataset.from_columns(columns).episodes.tolist() == [[i, i + 1] for i in range(ROWS)]


def test_a_gap_cuts_the_episode_and_is_told(path: Path) -> None:
    log = {name: np.delete(values, [8, 20], axis=0) for name, values in table().items()}
    columns = read(write(path, log), Options())
    gap = columns.findings[0]
    assert (gap.kind, gap.severity, gap.field) == ("gap", "warning", "step")
    assert gap.rows is not None
    assert gap.rows.tolist() == [7, 18]
    dataset = Dataset.from_columns(columns)
    assert len(dataset) == ROWS - 2 - 5
    assert not (dataset.observations[:, 0] == np.float32(table()["obs_0"][7])).any()


def test_one_step_twice_is_refused(path: Path) -> None:
    log = table()
    log["step"][10] = log["step"][9]
    assert "step, row 10: another row of this episode has this step" in refusal(write(path, log))


def test_without_terminals_ends_are_cuts_and_that_is_told(path: Path) -> None:
    log = table()
    del log["terminated"]
    columns = read(write(path, log), Options())
    assert [f.kind for f in columns.findings] == ["no-terminal-column"]
    assert not Dataset.from_columns(columns).terminated.any()


def rows(episode: Sequence[Any], step: Sequence[Any]) -> Table:
    """Rows with these keys; the reward is the number of the row."""
    count = len(episode)
    named = {name: np.zeros(count) for name in ("obs_0", "action_0", "terminated")}
    return named | {"episode": episode, "step": step, "reward": np.arange(count) * 1.0}


def test_rows_swapped_within_one_episode_are_put_in_order(path: Path) -> None:
    columns = read(write(path, rows([7] * 5, [0, 2, 1, 3, 4])), Options())
    assert columns.arrays["rewards"].tolist() == [0, 2, 1, 3, 4]
    assert [f.rows.tolist() for f in columns.findings if f.rows is not None] == [[1, 2]]


def test_episodes_that_are_together_stay_in_the_order_of_the_file(path: Path) -> None:
    columns = read(write(path, rows([5, 3, 3, 3, 4, 4], [0, 0, 1, 2, 0, 1])), Options())
    assert columns.arrays["rewards"].tolist() == [0, 1, 2, 3, 4, 5]
    assert columns.arrays["truncated"].tolist() == [1, 0, 0, 1, 0, 1]
    assert columns.findings == ()


def test_the_last_row_of_an_episode_may_be_out_of_order(path: Path) -> None:
    log = rows([0, 0, 0, 1, 1, 1], [0, 2, 1, 0, 1, 2])
    assert read(write(path, log), Options()).arrays["rewards"].tolist() == [0, 2, 1, 3, 4, 5]
    log = rows([0, 0, 0, 1, 1, 1], [0, 1, 2, 1, 0, 2])
    assert read(write(path, log), Options()).arrays["rewards"].tolist() == [0, 1, 2, 4, 3, 5]


def test_episodes_may_be_true_and_false(tmp_path: Path) -> None:
    log = rows([True, False, True, False], [False, False, True, True])
    columns = read(write(tmp_path / "log.parquet", log), Options())
    assert columns.arrays["rewards"].tolist() == [1, 3, 0, 2]


def test_the_first_repeated_step_of_the_file_is_named(path: Path) -> None:
    message = refusal(write(path, rows([2, 2, 1, 1], [0, 0, 0, 0])))
    assert "step, row 1: another row of this episode has this step (one of 2 such rows)" in message


def test_a_step_that_is_half_too_long_is_no_gap(path: Path) -> None:
    log = rows([0] * 6, [0, 10, 20, 35, 45, 61])
    assert read(write(path, log), Options()).arrays["truncated"].tolist() == [0, 0, 0, 0, 1, 0]


def test_dates_however_far_apart_show_a_gap(tmp_path: Path) -> None:
    days = pa.array([-(2**30), 1 - 2**30, 2 - 2**30, 2**30 + 2], pa.int32()).cast(pa.date32())
    columns = read(write(tmp_path / "log.parquet", rows([0] * 4, days)), Options())
    assert columns.arrays["truncated"].tolist() == [0, 0, 1, 0]


def test_a_column_that_begins_like_an_action_but_says_more_is_no_action(path: Path) -> None:
    log = {
        **rows([0, 0, 0], [0, 1, 2]),
        **{"action": [0, 1, 0], "action_probability": [0.5, 0.25, 0.5]},
        **{"action_mask_0": [1, 1, 1], "action_mask_1": [1, 1, 0]},
    }
    del log["action_0"]
    columns = read(write(path, log), Options(action_kind="discrete"))
    assert columns.names["actions"] == ("action",)
    assert columns.names["permitted"] == ("action_mask_0", "action_mask_1")
    assert columns.names["propensities"] == ("action_probability",)
    assert columns.arrays["actions"][:, 0].tolist() == [0, 1, 0]


def test_episodes_of_one_row_have_no_gaps(path: Path) -> None:
    columns = read(write(path, rows([0, 1, 2], [5, 5, 90])), Options())
    assert columns.findings == ()
    columns = read(write(path, rows([0, 1, 1, 1, 1], [5, 5, 6, 7, 9])), Options())
    assert columns.arrays["truncated"].tolist() == [1, 0, 0, 1, 1]


def test_without_episodes_a_step_that_does_not_increase_begins_one(path: Path) -> None:
    log = rows([0] * 6, [3, 4, 4, 5, 1, 2])
    del log["episode"]
    columns = read(write(path, log), Options())
    assert columns.arrays["truncated"].tolist() == [0, 1, 0, 1, 0, 0]  # the log may go on
    assert columns.findings == ()


def test_the_second_of_two_episodes_is_whole_if_it_is_as_long(path: Path) -> None:
    columns = read(write(path, rows([0, 0, 1, 1], [0, 1, 0, 1])), Options())
    assert columns.arrays["truncated"].tolist() == [0, 1, 0, 1]


def test_times_need_no_format(tmp_path: Path) -> None:
    times = pa.array([0, 60, 120], pa.timestamp("us"))
    path = write(tmp_path / "log.parquet", rows([0, 0, 0], times))
    with pytest.raises(InputError, match=r"step_format: column step contains timestamp\[us\], not"):
        read(path, Options(step_format="%H"))


def test_that_no_column_marks_terminals_is_a_warning_about_the_columns(path: Path) -> None:
    log = table()
    del log["terminated"]
    (finding,) = read(write(path, log), Options()).findings
    assert (finding.field, finding.severity, finding.option) == ("terminated", "warning", "columns")


# Mappings

STRANGE = {
    **{"run": "episode", "t": "step", "x": "obs_0", "y": "obs_1", "u": "action_0"},
    **{"v": "action_1", "gain": "reward", "fell": "terminated"},
}
MAPPING = {
    "episode": "run",
    "step": "t",
    "observations": ["x", "y"],
    "actions": ["u", "v"],
    "rewards": "gain",
    "terminated": "fell",
}


def test_columns_are_mapped_by_words_by_json_and_by_toml(path: Path) -> None:
    write(path, {name: table()[usual] for name, usual in STRANGE.items()} | {"note": np.ones(ROWS)})
    assert "observations: is missing" in refusal(path)
    as_json, as_toml = path.with_name("map.json"), path.with_name("map.toml")
    as_json.write_text(json.dumps(MAPPING))
    as_toml.write_text("\n".join(f"{name} = {json.dumps(v)}" for name, v in MAPPING.items()))
    words = ["observations=x,y", "actions=u,v", "episode=run", "rewards=gain", "terminated=fell"]
    for given in (words, [str(as_json)], [str(as_toml)]):
        assert_same(bcq.load(path, columns=parse_columns(given)[0]), expected(table()))


def test_patterns_take_columns_in_the_order_of_the_file(path: Path) -> None:
    write(path, table())
    dataset = bcq.load(path, columns={"observations": ["obs_1", "obs_[0]"]})
    np.testing.assert_array_equal(dataset.observations[:, ::-1], expected(table()).observations)


# Under which names columns are found without being asked for.
KNOWN = {
    "episode": "episode episode_id trajectory trajectory_id",
    "step": "step timestep time timestamp",
    "observations": "observations observation obs states state",
    "actions": "actions action acts act",
    "rewards": "rewards reward rews rew",
    "next_observations": "next_observations next_observation next_obs next_states",
    "terminated": "terminated terminals terminal terminations",
    "truncated": "truncated timeouts timeout truncations time_out",
    "qpos": "qpos",
    "qvel": "qvel",
}
MATRICES = ("observations", "actions", "next_observations", "qpos", "qvel")


@pytest.mark.parametrize("name", KNOWN)
def test_usual_names_are_known(name: str) -> None:
    others = {other: [words.split()[0]] for other, words in KNOWN.items() if other != name}
    present = [words[0] for words in others.values()]
    for usual in KNOWN[name].split():
        assert find_columns({}, USUAL_NAMES, [*present, usual])[name] == (usual,)
        found = find_columns({}, arrow.TABLE_NAMES, [*present, usual])
        assert found == {other: tuple(names) for other, names in others.items()} | {name: (usual,)}
        if name in MATRICES:
            numbered = (f"{usual}_0", f"{usual}_1")
            found = find_columns({}, arrow.TABLE_NAMES, [usual, *numbered])
            assert found[name] == numbered


def test_usual_names_of_masks_and_propensities_are_known() -> None:
    for name, words in {
        "permitted": "permitted action_mask",
        "next_permitted": "next_permitted next_action_mask",
        "propensities": "propensities propensity action_probability behaviour_probability",
    }.items():
        for usual in words.split():
            assert find_columns({}, USUAL_NAMES, [usual]) == {name: (usual,)}


def test_the_first_usual_name_that_is_there_is_taken() -> None:
    found = find_columns({}, USUAL_NAMES, ["rew", "t", "reward", "step"])
    assert found == {"rewards": ("reward",), "step": ("step",)}
    assert find_columns({"step": ["t"]}, USUAL_NAMES, ["t", "step"]) == {"step": ("t",)}


def test_a_mapping_file_has_a_largest_size(tmp_path: Path) -> None:
    path = tmp_path / "map.json"
    path.write_text('{"rewards": "gain"}'.ljust(2**20))
    assert parse_columns([str(path)]) == ({"rewards": ("gain",)}, {})
    path.write_text('{"rewards": "gain"}'.ljust(2**20 + 1))
    with pytest.raises(InputError, match="is too large for a mapping file"):
        parse_columns([str(path)])


def test_a_column_may_have_an_equals_sign_in_its_name() -> None:
    assert parse_columns(["rewards=a=b"]) == ({"rewards": ("a=b",)}, {})


def test_a_mapping_says_how_columns_are_read(tmp_path: Path) -> None:
    settings = {"step_format": "%H, %M", "missing": "fill", "action_kind": "discrete"}
    lines = [f'{name} = "{value}"' for name, value in ({"step": "when"} | settings).items()]
    (tmp_path / "map.toml").write_text("\n".join(lines))
    expected = {"step": ("when",)}, settings
    assert parse_columns([str(tmp_path / "map.toml")]) == expected
    pairs = ["step=when", "step_format=%H, %M", "missing=fill", "action_kind=discrete"]
    assert parse_columns(pairs) == expected
    for words, message in (
        ("missing=guess", "missing: must be refuse or fill or cut"),
        ("action_kind=both", "action_kind: must be auto or continuous or discrete"),
        (
            "steps=when",
            "'steps' is not one of episode, step, .*, step_format, missing, action_kind, lags$",
        ),
    ):
        with pytest.raises(InputError, match=message):
            parse_columns([words])
    (tmp_path / "map.json").write_text('{"step_format": 7}')
    with pytest.raises(InputError, match="step_format: must be a text"):
        parse_columns([str(tmp_path / "map.json")])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["observations"], "map|cannot be read"),
        (["observations=x", "actions"], "NAME=COLUMN"),
        (["actions", "observations=x"], "NAME=COLUMN"),
        (["height=x"], "^columns: 'height' is not one of episode, step"),
        (["observations="], "must be a column or a list of columns"),
        (["observations=x,"], "must be a column or a list of columns"),
        (["rewards=x", "actions=y", "actions=z"], "^columns: actions is given twice; separate its"),
        (["/dev/null"], "^/dev/null: is a pipe, a socket or a device"),
    ],
)
def test_impossible_mappings_are_refused(words: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_columns(words)


@pytest.mark.parametrize(
    "text", ["{", "[1]", '{"rewards": 3}', '{"rewards": [["a"]]}', "[" * 99999]
)
def test_impossible_mapping_files_are_refused(text: str, tmp_path: Path) -> None:
    for name in ("map.json", "map.toml"):
        (tmp_path / name).write_text(text)
        with pytest.raises(InputError, match="map"):
            parse_columns([str(tmp_path / name)])


def test_columns_that_are_not_there_are_named(path: Path) -> None:
    write(path, table())
    message = refusal(path, columns={"rewards": ["gain"]})
    assert "rewards: there is no column gain (there are episode, step, obs_0" in message
    message = refusal(path, columns={"observations": ["obs_*", "obs_0"]})
    assert "columns: obs_0 is given twice" in message
    message = refusal(path, columns={"observations": ["obs_0", "obs_1", "obs_1"]})
    assert "columns: obs_1 is given twice" in message
    assert "rewards: give one column" in refusal(path, columns={"rewards": ["reward", "step"]})


def test_a_column_is_one_thing(path: Path) -> None:
    write(path, table())
    twice = refusal(path, columns={"rewards": ["reward"], "observations": ["obs_0", "reward"]})
    assert "columns: reward is given twice; a column can have only one role" in twice
    given = refusal(path, columns={"observations": ["obs_*", "action_*"]})
    assert "actions: is missing" in given  # what was given as one thing is not found as another
    dataset = bcq.load(path, columns={"observations": ["obs_0", "step"]})
    assert dataset.observations[:, 1].tolist()[:6] == [0, 1, 2, 3, 4, 0]


# Larger than memory


@pytest.mark.parametrize("shuffled", [False, True])
@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize("window", [1, 3, 7, 1000])
def test_parts_make_the_same_batch(
    shuffled: bool, paired: bool, window: int, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = table()
    if paired:
        log |= {f"next_obs_{i}": np.arange(ROWS) * 1.0 for i in range(2)}
    if shuffled:
        order = np.random.default_rng(3).permutation(ROWS)
        log = {name: values[order] for name, values in log.items()}
    options = {"row_group_size": 4} if path.suffix == ".parquet" else {}
    write(path, log, **options)
    monkeypatch.setattr(tables, "WINDOW_BYTES", 4 * len(log) * window)
    rows, *_ = convert(path, path.with_name("log.hdf5"), Options())
    again = bcq.load(path.with_name("log.hdf5"))
    assert_same(again, bcq.load(path))
    assert len(again) == rows


def awkward(seed: int) -> Table:
    """Episodes of any length with rows missing, ends in the middle, time-outs anywhere."""
    random = np.random.default_rng(seed)
    lengths = random.integers(1, 12, 8)
    steps = np.concatenate([np.arange(n) for n in lengths])
    rows = len(steps)
    log = {
        "episode": np.repeat(np.arange(8), lengths),
        "step": steps,
        "obs_0": np.arange(rows) * 1.0,
        "action_0": random.uniform(-1, 1, rows),
        "reward": np.arange(rows) + 0.5,
        "terminated": random.random(rows) < 0.15,
        "timeout": random.random(rows) < 0.1,
    }
    kept = random.random(rows) > 0.1
    return {name: values[kept] for name, values in log.items()}


def transitions(log: Table) -> list[tuple[float, float, float, bool, bool]]:
    """Observation, reward, next observation, terminated, truncated: row by row, by hand."""
    rows, found = len(log["step"]), []
    *others, last = (list(log["episode"]).count(name) for name in dict.fromkeys(log["episode"]))
    whole = last >= sorted(others)[len(others) // 2]  # of seven

    def goes_on(row: int) -> bool:
        return (
            row + 1 < rows
            and log["episode"][row + 1] == log["episode"][row]
            and log["step"][row + 1] == log["step"][row] + 1
            and not log["timeout"][row]
        )

    for row in range(rows):
        seen, earned = log["obs_0"][row], log["reward"][row]
        if log["terminated"][row]:
            found.append((seen, earned, seen, True, False))
        elif goes_on(row):
            known = row + 2 < rows or whole or log["timeout"][row + 1]
            cut = known and not goes_on(row + 1) and not log["terminated"][row + 1]
            found.append((seen, earned, log["obs_0"][row + 1], False, bool(cut)))
    return found


@pytest.mark.parametrize("window", [1, 2, 5])
def test_parts_of_awkward_logs_hold_the_transitions_found_by_hand(
    window: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrow, "BATCH_ROWS", 3)
    for seed in range(7):
        log = awkward(seed)
        order = np.random.default_rng(seed).permutation(len(log["step"]))
        moved = {name: values[order] for name, values in log.items()} if seed % 2 else log
        path = write(tmp_path / f"{seed}.parquet", moved, row_group_size=4)
        monkeypatch.setattr(tables, "WINDOW_BYTES", 4 * len(log) * window)
        convert(path, tmp_path / f"{seed}.hdf5", Options())
        for dataset in (bcq.load(tmp_path / f"{seed}.hdf5"), bcq.load(path)):
            columns = (
                dataset.observations[:, 0],
                dataset.rewards,
                dataset.next_observations[:, 0],
                dataset.terminated,
                dataset.truncated,
            )
            rows = zip(*(column.tolist() for column in columns), strict=True)
            assert list(rows) == transitions(log), seed


@pytest.mark.parametrize(
    ("group", "window", "ends"),
    [
        (4, 5, [0, 8, 16, 24, 30]),
        (30, 5, [0, 5, 10, 15, 20, 30]),
        (5, 5, [0, 5, 10, 15, 20, 25, 30]),
        (4, 7, [0, 8, 16, 24, 30]),
        (6, 3, [0, 6, 12, 18, 24, 30]),
        (7, 3, [0, 3, 7, 10, 14, 17, 21, 24, 28, 30]),
        (30, 0, [*range(29), 30]),
    ],
)
def test_parts_end_with_row_groups_where_they_can(
    group: int, window: int, ends: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "log.parquet", table(), row_group_size=group)
    monkeypatch.setattr(tables, "WINDOW_BYTES", 4 * 8 * window)
    with tables.open_log(path, {}) as log:
        assert tables.window_ends(log) == ends


@pytest.mark.parametrize(
    ("window", "groups"),
    [
        ((10, 18), [2, 2, 2, 3, 3]),
        ((10, 15), [2, 2, 2]),
        ((10, 14), [2, 2]),
        ((14, 16), [2, 2, 2, 3]),
        ((25, 30), [5, 5, 5]),
    ],
)
def test_a_part_reads_the_row_groups_that_hold_it_and_no_more(
    window: tuple[int, int], groups: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "log.parquet", table(), row_group_size=5)
    monkeypatch.setattr(arrow, "BATCH_ROWS", 2)
    batches, found = arrow.record_batches, []

    def recorded(file: Any, names: Any, wanted: Any, groups: Any = None) -> Any:
        for batch in batches(file, names, wanted, groups):
            found.append(groups[0])
            yield batch

    with tables.open_log(path, {}) as log:
        monkeypatch.setattr(tables, "record_batches", recorded)
        arrays = log.window(*window)
    assert arrays["rewards"].tolist() == np.float32(table()["reward"][slice(*window)]).tolist()
    assert found == groups


def test_a_part_holds_64_megabytes_of_numbers() -> None:
    count = 2**26
    group = SimpleNamespace(num_rows=count)
    file = SimpleNamespace(metadata=SimpleNamespace(row_group=lambda i: group), num_row_groups=1)
    cuts = np.broadcast_to(np.False_, count)
    log = tables.Log("log", file, {"rewards": ("reward",)}, None, cuts, ())
    assert tables.window_ends(log) == [0, 2**24, 2**25, 2**26]  # of four bytes


def test_a_large_table_is_read_in_batches_of_65536_rows(tmp_path: Path) -> None:
    path = write(tmp_path / "log.parquet", {"reward": np.zeros(140_000, np.int8)})
    with pq.ParquetFile(path) as file:
        batches = arrow.record_batches(file, {"rewards": ("reward",)}, ["rewards"])
        assert [len(batch) for batch in batches] == [65_536, 65_536, 8_928]


def test_a_part_of_a_column_is_in_memory_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 300_000
    noise = np.random.default_rng(0).integers(0, 2**62, count)  # 2.4 MB, which do not compress
    plain = {name: np.zeros(count, np.int8) for name in ("action_0", "reward", "terminated")}
    path = write(tmp_path / "log.parquet", plain | {"obs_0": noise}, use_dictionary=False)
    monkeypatch.setattr(arrow, "BATCH_ROWS", 10_000)
    with tables.open_log(path, {}) as log:
        before, most = pa.total_allocated_bytes(), 0
        for _ in arrow.record_batches(log.file, log.names, ["observations"]):
            most = max(most, pa.total_allocated_bytes() - before)
    assert most < 1.5 * 2**20


class Bar:
    """A bar that remembers what it was asked to show."""

    def __init__(self, **asked: Any) -> None:
        self.asked, self.done = asked, 0
        BARS.append(self)

    def update(self, count: int) -> None:
        self.done += count

    def close(self) -> None:
        assert self.done == self.asked["total"]


BARS: list[Bar] = []


def test_bars_show_how_far_reading_and_converting_are_if_they_take_more_than_a_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "log.csv", table())
    BARS.clear()
    monkeypatch.setattr(progress, "tqdm", Bar)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(arrow, "CSV_BLOCK", 400)
    monkeypatch.setattr(arrow, "BATCH_ROWS", 4)
    monkeypatch.setattr(tables, "WINDOW_BYTES", 4 * 8 * 10)
    bcq.load(path)
    convert(path, tmp_path / "log.hdf5", Options())
    size = path.stat().st_size
    shown = [tuple(bar.asked[key] for key in ("desc", "total", "unit", "delay")) for bar in BARS]
    assert shown == [
        ("reading log.csv", size, "byte", 1),
        ("loading log.csv", ROWS, "row", 1),
        ("reading log.csv", size, "byte", 1),
        ("converting log.csv", 3, "part", 1),
    ]


def test_reading_can_be_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    csv_file = write(tmp_path / "log.csv", table())
    parquet = write(tmp_path / "log.parquet", table())
    monkeypatch.setattr(interruption, "arrived", [2])
    with pytest.raises(InterruptionError):
        arrow.as_parquet(csv_file, tmp_path / "copy.parquet", {})
    with pytest.raises(InterruptionError):
        read(parquet, Options())


def test_a_csv_file_is_copied_block_by_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "log.csv", table() | {"note": np.arange(ROWS)})
    monkeypatch.setattr(arrow, "CSV_BLOCK", 1_000)
    arrow.as_parquet(path, tmp_path / "copy.parquet", {})
    with pq.ParquetFile(tmp_path / "copy.parquet") as file:
        assert file.num_row_groups > 1
        assert file.schema_arrow.names == list(table())  # what has no role is not copied


def test_parts_cannot_be_changed(path: Path) -> None:
    with tables.open_log(write(path, table()), {}) as log:
        (part,) = tables.parts(log, None)
    with pytest.raises(ValueError, match="read-only"):
        part.rewards[0] = 1


def test_a_csv_file_is_read_by_what_all_of_it_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first block has whole numbers where the last has not, and notes that look like some."""
    monkeypatch.setattr(arrow, "CSV_BLOCK", 200)
    log = table()
    log["reward"] = np.where(np.arange(ROWS) < 25, 1, 0.5)
    log["obs_0"] = np.where(np.arange(ROWS) < 25, 3, 0.25)
    log["note"] = [1] * 25 + ["text"] * (ROWS - 25)
    texts = [[str(v) for v in np.asarray(values).tolist()] for values in log.values()]
    texts = [[text.removesuffix(".0") for text in values] for values in texts]
    path = tmp_path / "log.csv"
    path.write_text("\n".join(",".join(row) for row in [log, *zip(*texts, strict=True)]))
    assert_same(bcq.load(path), expected(log))


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    log = table()
    for name, words in (
        ("obs_0", "obs_0: several columns"),
        ("reward", "give one column"),
    ):
        arrays = [pa.array(values) for values in (*log.values(), log[name])]
        pq.write_table(pa.Table.from_arrays(arrays, [*log, name]), tmp_path / "log.parquet")
        assert words in refusal(tmp_path / "log.parquet")


def test_a_table_is_converted_with_the_environment_it_is_told(path: Path) -> None:
    log = table() | {"action_0": np.linspace(-2, 2, ROWS)}
    del log["action_1"]
    write(path, log)
    rows, found, *_ = convert(
        path,
        path.with_name("log.hdf5"),
        Options(environment="Pendulum-v1", bounds_of=registered_bounds),
    )
    dataset = bcq.load(path.with_name("log.hdf5"))
    assert dataset.provenance.environment == "Pendulum-v1"
    assert dataset.bounds.high.tolist() == [2]
    assert (rows, found) == (len(dataset), ())
    loaded = bcq.load(path, environment="Pendulum-v1")
    assert loaded.bounds.high.tolist() == [2]


def test_faults_in_a_part_stop_the_conversion_and_leave_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = table()
    log["reward"][20] = np.inf
    backwards = {name: values[::-1] for name, values in log.items()}
    monkeypatch.setattr(tables, "WINDOW_BYTES", 4 * len(log) * 5)
    for written, row in ((log, 20), (backwards, ROWS - 21)):
        write(path, written)
        with pytest.raises(InputError, match=f"rewards, row {row}: is inf"):
            convert(path, path.with_name("log.hdf5"), Options())
        assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("rows", [0, 1])
def test_a_table_without_transitions_is_refused(rows: int, path: Path) -> None:
    write(path, {name: values[:rows] for name, values in table().items()})
    refusal(path)
    with pytest.raises(InputError, match=r"has no rows|no transition has|contains null"):
        convert(path, path.with_name("log.hdf5"), Options())
    assert list(path.parent.iterdir()) == [path]


def test_bounds_of_a_table_are_those_of_all_its_parts(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = table()
    log["action_0"] = np.roll(np.linspace(-10, 30, ROWS), 5)  # neither end is in the last part
    log["action_1"] = np.full(ROWS, 7.0)
    write(path, log)
    monkeypatch.setattr(tables, "WINDOW_BYTES", 4 * len(log) * 5)
    monkeypatch.setattr(arrow, "BATCH_ROWS", 4)
    assert "action_margin" in refusal(path)
    convert(path, path.with_name("log.hdf5"), Options(action_margin=0.1))
    bounds = bcq.load(path.with_name("log.hdf5")).bounds
    np.testing.assert_allclose(bounds.low, [-14, 7])
    np.testing.assert_allclose(bounds.high, [34, 7])
    whole = bcq.load(path, action_margin=0.1).bounds
    np.testing.assert_array_equal(whole.low, bounds.low)
    given = ActionBounds(np.array([-10, 0]), np.array([30, 7]))
    options = Options(action_low=given.low.tolist(), action_high=given.high.tolist())
    convert(path, path.with_name("given.hdf5"), options)
    np.testing.assert_array_equal(bcq.load(path.with_name("given.hdf5")).bounds.low, given.low)


# Not to be trusted


@pytest.mark.parametrize(
    "values",
    [
        pa.array([[1.0, 2.0]] * ROWS),
        pa.array([{"a": 1.0}] * ROWS),
        pa.array(["1.5"] * ROWS),
        pa.array([b"\x80\x04N."] * ROWS),
        pa.array([None] * ROWS),
    ],
)
def test_columns_that_are_no_numbers_are_refused(values: Any, tmp_path: Path) -> None:
    path = write(tmp_path / "log.parquet", table() | {"reward": values})
    assert "rewards: column reward contains" in refusal(path)
    nested = table() | {"obs": values}
    del nested["obs_0"], nested["obs_1"]
    assert "observations: column obs contains" in refusal(write(path, nested))


@pytest.mark.parametrize(
    "values",
    [
        pa.array([["a"]] * ROWS),
        pa.array([b"a"] * ROWS),
        pa.array([b"a"] * ROWS).dictionary_encode(),
    ],
)
def test_nothing_but_numbers_texts_and_times_has_a_role(values: Any, tmp_path: Path) -> None:
    log = table()
    for name in ("obs_1", "action_1"):
        del log[name]
    usual = {"episode": "episode", "step": "step", "obs_0": "observations", "action_0": "actions"}
    for column, role in usual.items():
        message = refusal(write(tmp_path / "log.parquet", log | {column: values}))
        assert f"{role}: column {column} contains {values.type!s:.4}" in message


def test_times_are_no_numbers(tmp_path: Path) -> None:
    times = pa.array([0] * ROWS, pa.timestamp("us"))
    for column, role in {
        "obs_0": "observations",
        "action_0": "actions",
        "reward": "rewards",
    }.items():
        message = refusal(write(tmp_path / "log.parquet", table() | {column: times}))
        assert f"{role}: column {column} contains timestamp[us], not numbers" in message


def test_a_missing_role_is_told_with_all_columns(path: Path) -> None:
    log = table() | {"gain": np.zeros(ROWS), "note": ["text"] * ROWS}
    for name in ("reward", "obs_1", "action_1", "terminated"):
        del log[name]
    words = "rewards: is missing; name its column in columns (there are"
    assert f"{words} episode, step, obs_0, action_0, gain, note)" in refusal(write(path, log))


def test_numbers_too_large_for_a_batch_are_infinite(path: Path) -> None:
    log = table()
    log["reward"][7] = 1e300
    assert "rewards, row 7: is inf" in refusal(write(path, log))


def test_only_a_table_without_rows_has_no_rows(tmp_path: Path) -> None:
    path = write(tmp_path / "log.parquet", {name: values[:0] for name, values in table().items()})
    assert refusal(path) == f"{path}: has no rows"
    write(path, {name: values[:1] for name, values in table().items()})
    assert "has no rows" not in refusal(path)


@pytest.mark.parametrize("column", ["obs_0", "reward"])
def test_a_damaged_page_stops_a_conversion(column: str, tmp_path: Path) -> None:
    path = write(tmp_path / "log.parquet", table(), use_dictionary=False, compression="none")
    with pq.ParquetFile(path) as file:
        group = file.metadata.row_group(0)
        chunk = group.column(file.schema_arrow.names.index(column))
    whole = bytearray(path.read_bytes())
    whole[chunk.data_page_offset : chunk.data_page_offset + 20] = bytes(20)
    path.write_bytes(whole)
    assert "cannot be read as Parquet" in refusal(path)
    with pytest.raises(InputError, match=r"log\.parquet: cannot be read as Parquet"):
        convert(path, tmp_path / "log.hdf5", Options())
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("content", [b"", b"PAR1", b"PAR1" + bytes(100) + b"PAR1", b"\x80\x04N."])
def test_damaged_parquet_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "log.parquet"
    path.write_bytes(content)
    assert "cannot be read as Parquet" in refusal(path)


def test_a_damaged_page_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "log.parquet", table())
    whole = bytearray(path.read_bytes())
    whole[20:400] = bytes(380)
    path.write_bytes(whole)
    refusal(path)


def test_a_footer_that_claims_more_than_any_file_holds_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "log.parquet", table())
    monkeypatch.setattr(tables, "ROWS_PER_BYTE", ROWS / path.stat().st_size / 2)
    assert "its header is damaged" in refusal(path)


def test_a_table_has_at_most_10000_rows_a_byte() -> None:
    def opened(count: int) -> tables.Log:
        file = SimpleNamespace(metadata=SimpleNamespace(num_rows=count))
        return tables.put_in_order("log", file, {}, 2, None)

    assert len(opened(20_000)) == 20_000
    with pytest.raises(InputError, match="claims 20,001 rows in 2 bytes; its header is damaged"):
        opened(20_001)


def test_long_words_of_the_reader_are_cut() -> None:
    with (
        pytest.raises(InputError, match=r"^log\.csv: cannot be read as CSV: (ab ){99}abc$"),
        arrow.explain_read_errors(Path("log.csv")),
    ):
        raise ValueError("ab\n" * 99 + "abcd" * 99)


def test_fifty_names_of_columns_are_told(path: Path) -> None:
    write(path, {f"c{i}": np.zeros(2) for i in range(60)})
    there = ", ".join(f"c{i}" for i in range(50))
    words = f"observations: is missing; name its column in columns (there are {there})"
    assert refusal(path) == f"{path}: {words}"
    with pytest.raises(InputError) as caught:
        bcq.load(path)
    assert caught.value.option == "columns"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n",
        b"a,b\n1\n",
        b"\x00\x01\x02",
        b"\x80\x04N.",
        b"obs_0,action_0,reward,terminated\n1,x,3,0\n",
        b"obs_0,action_0,reward,terminated\n" + b"1,1,1,0\n" * 9 + b"1,1,what,0\n",
        b"obs_0,action_0,reward,terminated,terminated\n1,1,1,0,0\n",
        b"obs_0,action_0,reward,terminated\n1,1,1,0,0,0\n",
        b"9" * 40_000_000,
    ],
)
def test_damaged_csv_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_bytes(content)
    refusal(path)
