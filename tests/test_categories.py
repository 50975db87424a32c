"""Columns of text among the observations of a table: one number for each category."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import bcq
from bcq.cli.application import main
from bcq.data.bounds import TaskSpec
from bcq.data.formats import arrow, tables
from bcq.data.layout import MISSING, PLAIN, Layout, ObservationColumn
from bcq.data.opening import Options
from bcq.data.saving import convert
from bcq.data.scaling import Scaling
from bcq.runs.recording import task_for, train_run
from bcq.runs.schedules import Schedule
from refusals import refusal

LOG: dict[str, Any] = {
    "episode": ["a", "a", "a", "b", "b", "b"],
    "inside": [1.5, 2.5, 3.5, 4.5, 5.5, 6.5],
    "mode": ["off", "auto", "off", "eco", "auto", "off"],
    "power": [0.1, 0.2, 0.3, 0.4, 0.5, 0.6],
    "reward": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
    "terminated": [0, 0, 1, 0, 0, 1],
}
ROLES = {"observations": ["inside", "mode"], "actions": ["power"]}
# inside, mode=auto, mode=eco, mode=off
ROWS = [
    *([1.5, 0, 0, 1], [2.5, 1, 0, 0], [3.5, 0, 0, 1]),
    *([4.5, 0, 1, 0], [5.5, 1, 0, 0], [6.5, 0, 0, 1]),
]
FOLLOWING = [ROWS[i] for i in (1, 2, 2, 4, 5, 5)]
LAYOUT = Layout((ObservationColumn("inside"), ObservationColumn("mode", ("auto", "eco", "off"))))
TINY = bcq.BCConfig(hidden_sizes=(4, 4))


def write(path: Path, log: dict[str, Any] | None = None, **changes: Any) -> Path:
    """The log as CSV or Parquet."""
    table = pa.table({**(log or LOG), **changes})
    if path.suffix == ".parquet":
        pq.write_table(table, path, row_group_size=max(4, len(table) // 4))
    else:
        pyarrow.csv.write_csv(table, path)
    return path


@pytest.fixture(params=["log.csv", "log.parquet"])
def path(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    name: str = request.param
    return tmp_path / name


def test_text_becomes_one_number_for_each_category(path: Path) -> None:
    dataset = bcq.load(write(path), columns=ROLES)
    assert dataset.observations.tolist() == ROWS
    assert dataset.next_observations.tolist() == FOLLOWING
    assert dataset.layout == LAYOUT
    assert dataset.layout.labels == ("inside", "mode=auto", "mode=eco", "mode=off")
    assert dataset.task.layout == LAYOUT


def test_text_may_stand_anywhere_among_the_columns(path: Path) -> None:
    write(path, wind=LOG["mode"][::-1])
    roles = ROLES | {"observations": ["wind", "mode", "inside"]}
    dataset = bcq.load(path, columns=roles)
    assert dataset.observations[1].tolist() == [1, 0, 0, 1, 0, 0, 2.5]
    assert dataset.observations[2].tolist() == [0, 1, 0, 0, 0, 1, 3.5]
    assert dataset.task.unscaled.tolist() == [True] * 6 + [False]


def test_parts_are_as_large_as_their_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "WINDOW_BYTES", 4 * 16)
    with tables.open_log(write(tmp_path / "log.csv"), ROLES) as log:
        assert tables.window_ends(log)[:2] == [0, 2]  # rows of 8 numbers, 3 of them categories


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())]
)
def test_any_type_of_text_in_parquet_is_read(kind: Any, tmp_path: Path) -> None:
    column = pa.array([f" {text} " for text in LOG["mode"]], pa.string())  # spaces do not count
    dataset = bcq.load(write(tmp_path / "log.parquet", mode=column.cast(kind)), columns=ROLES)
    assert dataset.observations.tolist() == ROWS


def test_a_log_in_parts_has_the_categories_of_all_of_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrow, "BATCH_ROWS", 2)
    monkeypatch.setattr(tables, "WINDOW_BYTES", 4 * 8)  # one row a part
    assert convert(write(path), "log.hdf5", Options(columns=ROLES)).transitions == 6
    dataset = bcq.load("log.hdf5")
    assert dataset.observations.tolist() == ROWS
    assert dataset.next_observations.tolist() == FOLLOWING
    assert dataset.layout == LAYOUT
    assert dataset.fingerprint == bcq.load(path, columns=ROLES).fingerprint


def test_rows_out_of_order_keep_their_categories(path: Path) -> None:
    order = [3, 1, 5, 0, 4, 2]
    log = {"step": [0, 1, 2, 0, 1, 2], **LOG}
    shuffled = {name: [values[i] for i in order] for name, values in log.items()}
    shuffled["episode"] = [{"a": 0, "b": 1}[name] for name in shuffled["episode"]]
    assert bcq.load(write(path, shuffled), columns=ROLES).observations.tolist() == ROWS


def test_next_observations_have_the_same_categories(path: Path) -> None:
    write(path, next_inside=LOG["inside"], next_mode=["auto", "off", "boost", *["off"] * 3])
    roles = ROLES | {"next_observations": ["next_inside", "next_mode"]}
    dataset = bcq.load(path, columns=roles)
    assert dataset.layout.labels[1:] == ("mode=auto", "mode=boost", "mode=eco", "mode=off")
    assert dataset.observations[:4, 1:].tolist() == [
        *([0, 0, 0, 1], [1, 0, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0])
    ]
    assert dataset.next_observations[:3, 1:].tolist() == [[1, 0, 0, 0], [0, 0, 0, 1], [0, 1, 0, 0]]
    write(path, next_inside=LOG["inside"], next_mode=["auto", None, *["off"] * 4])
    assert "next_observations, row 1: next_mode=auto is nan" in refusal(path, columns=roles)


def test_next_observations_in_another_order_are_refused(path: Path) -> None:
    write(path, next_inside=LOG["inside"], next_mode=LOG["mode"])
    crossed = ROLES | {"next_observations": ["next_mode", "next_inside"]}
    words = "next_observations: column next_mode contains string and inside double; give the"
    assert words in refusal(path, columns=crossed)
    fewer = ROLES | {"next_observations": ["next_inside"]}
    words = "next_observations: has 1 columns and observations 2; give the same columns"
    assert words in refusal(path, columns=fewer)


def test_a_mistake_among_next_observations_is_told_as_theirs(path: Path) -> None:
    write(path, next_inside=LOG["inside"], next_mode=[*LOG["mode"][:4], "3", "off"])
    roles = ROLES | {"next_observations": ["next_inside", "next_mode"]}
    words = "next_observations, row 4: next_mode is '3', and other cells are words"
    assert refusal(path, columns=roles).startswith(f"{path}: {words}")


# Missing cells


@pytest.mark.parametrize("missing", [None, "", "NA", " "])
def test_a_missing_text_is_a_missing_cell(path: Path, missing: str | None) -> None:
    write(path, mode=["off", missing, "off", "eco", "auto", "off"])
    words = "observations, row 1: mode=auto is nan (one of 3 values that are not finite)"
    assert words in refusal(path, columns=ROLES)
    filled = bcq.load(path, columns=ROLES, missing="fill")
    assert filled.observations.tolist() == [ROWS[0], [2.5, 0, 0, 1], *ROWS[2:]]
    cut = bcq.load(path, columns=ROLES, missing="cut")
    assert cut.observations.tolist() == ROWS[2:]  # row 0 has no next observation


def test_the_same_words_are_missing_in_text_and_in_numbers() -> None:
    assert set(pyarrow.csv.ConvertOptions().null_values) == MISSING


# What is not a category


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        (["1.5"] * 5 + ["word"], "observations, row 5: mode is 'word', not a number; correct the"),
        (["off"] * 5 + ["3"], "observations, row 5: mode is '3', and other cells are words; begin"),
        (["off", "1,5", *["on"] * 4], "row 1: mode is '1,5', neither a number nor a word that"),
        (["2", "-", *["1e-3"] * 4], "observations, row 1: mode is '-', neither a number nor a"),
        (["12 °C"] * 6, "observations, row 0: mode is '12 °C', neither a number nor a word"),
        (["2024-03-01T10:00"] * 6, "row 0: mode is '2024-03-01T10:00', neither a number nor"),
        (["x" * 101] * 6, "column mode has more than 50 different texts, or texts of more than"),
    ],
)
def test_what_may_be_a_mistake_is_refused_with_its_row(
    cells: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrow, "BATCH_ROWS", 2)
    assert words in refusal(write(tmp_path / "log.parquet", mode=cells), columns=ROLES)


def test_quoted_decimal_commas_are_numbers_and_no_categories(tmp_path: Path) -> None:
    path = write(tmp_path / "log.csv", mode=["1", "2.5", "1,5", "2,5", "3", "3"])
    words = "observations, row 2: mode is '1,5', neither a number nor a word that begins with a "
    assert f"{words}letter; where commas separate columns, decimals have a" in refusal(
        path, columns=ROLES
    )
    text = "episode;obs_0;obs_1;action;reward;terminated\n"
    path.write_text(text + "1;1,5;auto;0;1;0\n1;2;off;0;1;1\n")
    assert bcq.load(path).observations.tolist() == [[1.5, 1, 0], [2, 0, 1]]
    path.write_text(text + "1;1,5;auto;0;1;0\n1;2;3,5;0;1;0\n1;2;4,5;0;1;1\n")
    assert "row 0: obs_1 is 'auto', not a number" in refusal(path)


def test_the_first_block_of_a_csv_file_decides_which_observations_are_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "log.csv", mode=["3", "3", "off", "off", "off", "off"])
    assert "row 0: mode is '3', and other cells are words" in refusal(path, columns=ROLES)
    monkeypatch.setattr(arrow, "CSV_BLOCK", 80)
    assert "row 2: mode is 'off', not a number" in refusal(path, columns=ROLES)


def test_numbers_written_as_text_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "log.parquet", mode=["1.5", "+.5", "2e3", "-1", "0", "1."])
    words = "observations: column mode contains text that looks like numbers ('1.5' in row 0)"
    assert words in refusal(path, columns=ROLES)
    write(path, mode=[""] * 6)
    words = "observations: column mode has no value; leave it out"
    assert words in refusal(path, columns=ROLES)


def test_fifty_categories_are_read_and_more_are_refused(path: Path) -> None:
    log = {name: np.resize(values, 100) for name, values in LOG.items()}
    log["mode"] = np.array([f"m{i % 50}" for i in range(100)])
    assert bcq.load(write(path, log), columns=ROLES).observations.shape[1] == 51
    log["mode"][99] = "m50"
    words = "observations: column mode has more than 50 different texts"
    assert words in refusal(write(path, log), columns=ROLES)


def test_a_category_has_at_most_a_hundred_characters(path: Path) -> None:
    write(path, mode=["off", "x" * 100, *["off"] * 4])
    assert bcq.load(path, columns=ROLES).layout.labels[1:] == ("mode=off", f"mode={'x' * 100}")
    write(path, mode=["off", "x" * 101, *["off"] * 4])
    assert "or texts of more than 100 characters" in refusal(path, columns=ROLES)


def test_of_numbers_and_words_the_rarer_is_the_mistake(path: Path) -> None:
    write(path, mode=["off", "off", "7", "off", "off", "8"])
    assert "observations, row 2: mode is '7', and other cells are words" in refusal(
        path, columns=ROLES
    )
    write(path, mode=["1", "2", "3", "off", "4", "on"])
    words = "observations, row 3: mode is 'off', not a number"
    assert refusal(path, columns=ROLES).startswith(f"{path}: {words}")


def test_text_is_refused_elsewhere(tmp_path: Path) -> None:
    path = write(tmp_path / "log.parquet")
    for role, columns in {
        "actions": ["mode", "power"],  # one alone would be choices
        "rewards": ["mode"],
        "terminated": ["mode"],
    }.items():
        roles = {**ROLES, "observations": ["inside"], role: columns}
        assert f"{role}: column mode contains string, not numbers" in refusal(path, columns=roles)


# Stored


@pytest.mark.parametrize("target", ["new.hdf5", "new-v0"])
def test_a_written_batch_knows_its_categories(path: Path, target: str) -> None:
    columns = [f"{role}={','.join(names)}" for role, names in ROLES.items()]
    main(["convert", str(write(path)), target, "--columns", *columns])
    again = bcq.load(target)
    assert again.layout == LAYOUT
    assert again.observations.tolist() == ROWS
    bcq.save(again, "copy.hdf5")
    assert bcq.load("copy.hdf5").layout == LAYOUT


def test_inspect_names_the_numbers(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    columns = [f"{role}={','.join(names)}" for role, names in ROLES.items()]
    main(["inspect", str(write(path)), "--columns", *columns])
    assert "\nnumbers        inside, mode=auto, mode=eco, mode=off\n" in capsys.readouterr().out
    log = {**LOG, "mode": ["off"] * 6}
    main(["inspect", str(write(path, log)), "--columns", *columns])
    assert "observations: constant column mode=off" in capsys.readouterr().out


def test_a_run_knows_how_to_encode_and_says_what_it_does_not_know(tmp_path: Path) -> None:
    dataset = bcq.load(write(tmp_path / "log.csv"), columns=ROLES)
    run = train_run(tmp_path / "run", TINY, Schedule(steps=1), dataset)
    told = json.loads((tmp_path / "run" / "config.json").read_text())["task"]["layout"]
    assert told == {
        "columns": [{"name": "inside"}, {"name": "mode", "categories": ["auto", "eco", "off"]}]
    }
    policy = bcq.Run.open(run.directory).policy()
    one = policy.task.encode({"mode": "eco", "inside": 2, "other": "x"})
    assert one.tolist() == [2, 0, 1, 0]
    assert policy.act([one]).shape == (1, 1)
    several = policy.task.encode({"inside": [2, "3.5"], "mode": np.array(["off", " auto "])})
    assert several.tolist() == [[2, 0, 0, 1], [3.5, 1, 0, 0]]


def test_what_cannot_be_encoded_is_refused_in_one_line() -> None:
    task = TaskSpec(4, bcq.ActionBounds(np.array([0.0]), np.array([1.0])), layout=LAYOUT)
    for values, words in (
        ({"inside": 1, "mode": "boost"}, "mode: 'boost' is not in the data, which has auto, eco,"),
        ({"inside": "warm", "mode": "off"}, "inside: 'warm' is not a number"),
        ({"inside": 1}, "mode: is missing; an observation has inside, mode"),
        ({"inside": [1, 2], "mode": "off"}, "the columns of an observation have different"),
    ):
        with pytest.raises(bcq.InputError, match=words):
            task.encode(values)
    with pytest.raises(bcq.InputError, match="the names of the columns are not known"):
        replace(task, layout=PLAIN).encode({"inside": 1})


def test_numbers_of_any_type_are_encoded_in_single_precision() -> None:
    cells = [2.5, np.float32(0.5), 3, " 4.5 "]
    encoded = LAYOUT.encode({"inside": cells, "mode": ["off"] * 4})
    assert encoded.tolist() == [[inside, 0, 0, 1] for inside in (2.5, 0.5, 3, 4.5)]
    assert encoded.dtype == np.float32
    with pytest.raises(bcq.InputError, match=r"inside: \[1\] is not a number"):
        LAYOUT.encode({"inside": [[1], [1, 2]], "mode": ["off", "off"]})


@pytest.mark.parametrize("missing", [None, "", "NA", np.nan])
def test_a_missing_value_is_encoded_as_nan(missing: Any) -> None:
    assert np.isnan(LAYOUT.encode({"inside": 1, "mode": missing})).tolist() == [0, 1, 1, 1]
    assert np.isnan(LAYOUT.encode({"inside": missing, "mode": "off"})).tolist() == [1, 0, 0, 0]


DAMAGE: list[Any] = [
    None,
    {},
    {"columns": 3},
    {"columns": [3]},
    {"columns": [{"name": 3}]},
    {"columns": [{"name": "x", "categories": "abc"}]},
    {"columns": [{"name": "x", "categories": [1]}]},
]


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_layout_is_refused(damage: Any) -> None:
    task = TaskSpec(4, bcq.ActionBounds(np.array([0.0]), np.array([1.0])), layout=LAYOUT)
    assert TaskSpec.from_json(json.loads(json.dumps(task.as_json()))).layout == LAYOUT
    with pytest.raises(ValueError, match="layout: "):
        TaskSpec.from_json(task.as_json() | {"layout": damage})


@pytest.mark.parametrize(
    "column",
    [
        {"name": 3},
        {"name": 3, "categories": ["a"]},
        {"name": "x", "categories": "abc"},
        {"name": "x", "categories": ["a", 1]},
    ],
)
def test_a_column_is_a_name_and_its_categories(column: Any) -> None:
    whole = {"name": "x", "categories": ["a", "b"]}
    assert Layout.from_json({"columns": [whole]}).labels == ("x=a", "x=b")
    with pytest.raises(ValueError, match=r"layout: column .* is not a name and its categories"):
        Layout.from_json({"columns": [whole, column]})


def test_a_layout_of_other_observations_is_refused(tmp_path: Path) -> None:
    dataset = bcq.load(write(tmp_path / "log.csv"), columns=ROLES)
    other = Layout((ObservationColumn("inside"),))
    bcq.save(replace(dataset, layout=other), tmp_path / "bad.hdf5")
    assert "is damaged (layout: is for 1 numbers, not 4)" in refusal(tmp_path / "bad.hdf5")
    with pytest.raises(ValueError, match="layout: is for 1 numbers, not 4"):
        TaskSpec.from_json(replace(dataset.task, layout=other).as_json())


def test_without_text_nothing_is_stored(tmp_path: Path) -> None:
    path = write(tmp_path / "log.csv")
    dataset = bcq.load(path, columns=ROLES | {"observations": ["inside"]})
    assert dataset.layout == PLAIN
    assert dataset.task.as_json().keys() == {"observation_size", "action_low", "action_high"}


# Scaling


def test_categories_are_not_scaled_however_rare_they_are(tmp_path: Path) -> None:
    log = {name: np.resize(values, 10_000) for name, values in LOG.items()}
    log["mode"] = np.array(["rarely", *["often"] * 9_999])
    dataset = bcq.load(write(tmp_path / "log.parquet", log), columns=ROLES)
    scaling = task_for(dataset, "auto", None).scaling
    assert scaling is not None
    scaled = scaling.observations(dataset.observations)
    assert scaled[:3, 1:].tolist() == [[0, 1], [1, 0], [1, 0]]
    assert scaled[:, 1].sum() == len(dataset) - 1
    np.testing.assert_allclose([scaled[:, 0].mean(), scaled[:, 0].std()], [0, 1], atol=1e-5)


def test_only_marked_columns_are_left_unscaled() -> None:
    rows = np.array([[1.0, 5.0], [3.0, 7.0]], np.float32)
    scaling = Scaling.of(rows, np.ones(2, np.float32), np.array([False, True]))
    assert scaling.centre.tolist() == [2, 0]
    assert scaling.spread.tolist() == [1, 1]
    plain = Scaling.of(rows, np.ones(2, np.float32))
    assert plain.centre.tolist() == [2, 6]
