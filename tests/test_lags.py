"""Past steps as part of observations, where one reading does not make a state."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bcq
from bcq.cli.application import main
from bcq.data.bounds import ActionBounds, TaskSpec
from bcq.data.columns import Columns, Provenance
from bcq.data.dataset import Dataset
from bcq.data.doctor.examination import examine
from bcq.data.formats.mapping import parse_columns
from bcq.data.layout import PLAIN, Layout, ObservationColumn, Past
from bcq.data.opening import Options, open_batch
from bcq.data.saving import convert
from bcq.runs.recording import task_for, train_run
from bcq.runs.schedules import Schedule
from bcq.training.policy import Policy

# Three episodes: one terminates, one is cut, one is unfinished. Heat is between 0 and 4.
LOG = """episode,inside,outside,heat,reward,terminated
a,1,10,4,0,0
a,2,20,3,0,0
a,3,30,0,0,1
b,4,40,1,0,0
b,5,50,2,0,0
b,6,60,4,0,0
c,7,70,0,0,0
c,8,80,1,0,0
"""
ROLES = {"observations": ["inside", "outside"], "actions": ["heat"]}
BOUNDS: dict[str, Any] = {"action_low": [0.0], "action_high": [4.0]}
# Two past steps; heat of 0, 1, 2, 3, 4 is -1, -0.5, 0, 0.5, 1 to the learner.
OBSERVATIONS: list[list[float]] = [
    [1, 10, 1, 10, 0, 1, 10, 0],
    [2, 20, 1, 10, 1, 1, 10, 0],
    [3, 30, 2, 20, 0.5, 1, 10, 1],
    [4, 40, 4, 40, 0, 4, 40, 0],
    [5, 50, 4, 40, -0.5, 4, 40, 0],
    [7, 70, 7, 70, 0, 7, 70, 0],
]
FOLLOWING: list[list[float]] = [
    OBSERVATIONS[1],
    OBSERVATIONS[2],
    [3, 30, 3, 30, -1, 2, 20, 0.5],  # a terminal has no next reading; its own stands there
    OBSERVATIONS[4],
    [6, 60, 5, 50, 0, 4, 40, -0.5],
    [8, 80, 7, 70, -1, 7, 70, 0],
]
LABELS = (
    *("inside", "outside", "inside@-1", "outside@-1", "heat@-1"),
    *("inside@-2", "outside@-2", "heat@-2"),
)
LAYOUT = Layout(
    (ObservationColumn("inside"), ObservationColumn("outside")), Past(2, 2, 1, ("heat",))
)
TINY = bcq.BCConfig(hidden_sizes=(4, 4))
READING = ["--columns", "observations=inside,outside", "actions=heat"]
HEAT = ["--action-low", "0", "--action-high", "4"]


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "log.csv"
    path.write_text(LOG)
    return path


def load(path: Path, lags: int = 2, **options: Any) -> Dataset:
    return bcq.load(path, columns=ROLES, lags=lags, **BOUNDS, **options)


def test_observations_have_the_past_of_their_own_episode(log: Path) -> None:
    dataset = load(log)
    assert dataset.observations.tolist() == OBSERVATIONS
    assert dataset.next_observations.tolist() == FOLLOWING
    assert dataset.layout == LAYOUT
    assert dataset.layout.labels == LABELS
    assert dataset.observations.dtype == dataset.next_observations.dtype == np.float32
    assert (dataset.task.observation_size, dataset.task.reading_size) == (8, 2)
    assert dataset.actions[:, 0].tolist() == [4, 3, 0, 1, 2, 0]


def test_one_lag_is_the_beginning_of_two(log: Path) -> None:
    dataset = load(log, 1)
    assert dataset.observations.tolist() == [row[:5] for row in OBSERVATIONS]
    assert dataset.next_observations.tolist() == [row[:5] for row in FOLLOWING]
    assert dataset.layout.labels == LABELS[:5]


def test_without_lags_nothing_changes(log: Path) -> None:
    plain = bcq.load(log, columns=ROLES, **BOUNDS)
    assert load(log, 0).fingerprint == plain.fingerprint
    assert plain.layout == load(log, 0).layout == PLAIN
    assert plain.task.as_json().keys() == {"observation_size", "action_low", "action_high"}


def test_next_readings_of_the_log_are_used(tmp_path: Path) -> None:
    arrays: dict[str, Any] = {
        "observations": [[1.0], [2.0], [3.0]],
        "actions": [[0.5], [-0.5], [1.0]],
        "rewards": np.zeros(3),
        "next_observations": [[20.0], [30.0], [40.0]],
        "terminated": [0, 0, 0],
        "truncated": [0, 1, 0],
    }
    np.savez(tmp_path / "log.npz", **arrays)
    dataset = bcq.load(tmp_path / "log.npz", lags=1)
    assert dataset.observations.tolist() == [[1, 1, 0], [2, 1, 0.5], [3, 3, 0]]
    assert dataset.next_observations.tolist() == [[20, 1, 0.5], [30, 2, -0.5], [40, 3, 1]]
    assert dataset.layout.labels == ("observations", "observations@-1", "actions@-1")


def test_arrays_of_several_numbers_have_no_names(tmp_path: Path) -> None:
    arrays: dict[str, Any] = {
        "observations": [[1.0, 2.0], [3.0, 4.0]],
        **{"actions": [[0.5], [1.0]], "rewards": np.zeros(2), "terminated": [0, 1]},
    }
    np.savez(tmp_path / "log.npz", **arrays)
    dataset = bcq.load(tmp_path / "log.npz", lags=1)
    assert dataset.observations.tolist() == [[1, 2, 1, 2, 0], [3, 4, 1, 2, 0.5]]
    assert dataset.layout == Layout((), Past(1, 2, 1, ("actions",)))
    assert dataset.layout.labels == ()


def test_a_file_without_names_has_a_past_without_names(tmp_path: Path, log: Path) -> None:
    bcq.save(bcq.load(log, columns=ROLES, **BOUNDS), tmp_path / "log.hdf5")
    dataset = bcq.load(tmp_path / "log.hdf5", lags=2)
    assert dataset.observations.tolist() == OBSERVATIONS
    assert dataset.layout == Layout((), Past(2, 2, 1))


def test_the_past_begins_anew_where_rows_are_cut_out(log: Path) -> None:
    log.write_text(LOG.replace("a,2,20", "a,2,"))
    dataset = load(log, 1, missing="cut")
    assert dataset.observations[0].tolist() == [3, 30, 3, 30, 0]


def test_text_is_part_of_the_past(log: Path) -> None:
    text = "episode,inside,mode,heat,reward,terminated\n1,5,off,4,0,0\n1,6,on,0,0,0\n1,7,on,0,0,1\n"
    log.write_text(text)
    dataset = bcq.load(
        log, columns={"observations": ["inside", "mode"], "actions": ["heat"]}, lags=1, **BOUNDS
    )
    assert dataset.observations.tolist() == [
        *([5, 1, 0, 5, 1, 0, 0], [6, 0, 1, 5, 1, 0, 1], [7, 0, 1, 6, 0, 1, -1])
    ]
    assert dataset.layout.labels[3:] == ("inside@-1", "mode=off@-1", "mode=on@-1", "heat@-1")
    unscaled = [False, True, True, False, True, True, True]
    assert dataset.task.unscaled.tolist() == unscaled
    history = bcq.History(dataset.task)
    first = history.observe({"inside": 5, "mode": "on"})
    assert first.tolist() == [5, 0, 1, 5, 0, 1, 0]


def test_past_actions_are_not_scaled_again(log: Path) -> None:
    dataset = load(log)
    scaling = task_for(dataset, "standard", None).scaling
    assert scaling is not None
    scaled = scaling.observations(dataset.observations)
    np.testing.assert_array_equal(scaled[:, [4, 7]], dataset.observations[:, [4, 7]])
    kept = [0, 1, 2, 3, 5, 6]
    np.testing.assert_allclose(scaled[:, kept].mean(axis=0), 0, atol=1e-6)


@pytest.mark.parametrize("lags", [-1, 1.5, "2", True, 1001])
def test_a_number_of_lags_is_whole_and_not_negative(log: Path, lags: Any) -> None:
    with pytest.raises(
        bcq.InputError, match=f"^lags: {lags} is not a whole number from 0 to 1000$"
    ):
        bcq.load(log, columns=ROLES, lags=lags)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("lags = 2", 2),
        ('lags = "3"', 3),
        ("lags = 0", 0),
        ('lags = "123456789"', 123_456_789),
        *(
            (f"lags = {bad}", None)
            for bad in (
                "-1",
                "1.5",
                "true",
                '"x"',
                '"-1"',
                "[1]",
                '"1234567890"',
                f'"{"9" * 5_000}"',
            )
        ),
    ],
)
def test_a_mapping_file_can_say_it(tmp_path: Path, text: str, found: int | None) -> None:
    path = tmp_path / "map.toml"
    path.write_text(text)
    if found is not None:
        assert parse_columns([str(path)]) == ({}, {"lags": found})
        return
    with pytest.raises(bcq.InputError, match=r"map.toml: lags: must be a whole number, 0 or more"):
        parse_columns([str(path)])


# Stored


@pytest.mark.parametrize("target", ["new.hdf5", "new-v0"])
def test_a_converted_batch_knows_its_past(log: Path, target: str) -> None:
    main(["convert", "log.csv", target, *READING, *HEAT, "--lags", "2"])
    again = bcq.load(target)
    assert again.layout == LAYOUT
    assert again.observations.tolist() == OBSERVATIONS
    assert again.next_observations.tolist() == FOLLOWING
    assert again.fingerprint == load(log).fingerprint
    words = "its observations include past steps already (lags: 2); leave lags out"
    assert words in failure(Path(target), lags=1)
    words = "its observations include past actions, scaled by its own action bounds; give other"
    assert words in failure(Path(target), **BOUNDS)
    assert words in failure(Path(target), action_margin=0.1)


def test_readings_are_scaled_and_past_actions_are_not() -> None:
    assert PLAIN.unscaled(3).tolist() == [False, False, False]
    assert PLAIN.unscaled(3).dtype == bool
    assert Layout((), Past(2, 1, 1)).unscaled(5).tolist() == [False, False, True, False, True]


def test_a_thousand_lags_are_the_most() -> None:
    assert Options(lags=1_000).lags == 1_000


def failure(path: Path, **options: Any) -> str:
    with pytest.raises(bcq.InputError) as caught:
        bcq.load(path, **options)
    return str(caught.value)


def test_a_mapping_file_and_the_command_line_agree(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("map.toml").write_text(
        'observations = ["inside", "outside"]\nactions = "heat"\nlags = 1\n'
    )
    reading = ["--columns", "map.toml", *HEAT]
    main(["inspect", "log.csv", *reading])
    assert f"\nnumbers        {', '.join(LABELS[:5])}\n" in capsys.readouterr().out
    main(["inspect", "log.csv", *reading, "--lags", "2", "--json"])
    assert json.loads(capsys.readouterr().out)["numbers"] == list(LABELS)
    main(["convert", "log.csv", "two.hdf5", *READING, "lags=2", *HEAT])
    assert bcq.load("two.hdf5").observations.tolist() == OBSERVATIONS
    main(["convert", "log.csv", "one.hdf5", *reading])
    assert bcq.load("one.hdf5").observations.tolist() == [row[:5] for row in OBSERVATIONS]


def test_a_fixed_batch_has_the_past_of_what_is_left(log: Path) -> None:
    log.write_text(LOG.replace("b,4,40", "b,4,inf"))
    main(["inspect", "log.csv", *READING, *HEAT, "--lags", "1", "--fix", "new.hdf5"])
    assert bcq.load("new.hdf5").observations[3].tolist() == [5, 50, 5, 50, 0]


def test_the_doctor_looks_at_readings(log: Path) -> None:
    random = np.random.default_rng(0)
    rows = 3_000
    observations = np.cumsum(random.normal(size=(rows, 2)), axis=0)
    arrays = {
        "observations": np.c_[observations, np.ones(rows)],
        "actions": random.uniform(-1, 1, (rows, 1)),
        "rewards": random.normal(size=rows),
        "terminated": np.arange(rows) % 100 == 99,
    }
    columns = Columns("log", arrays, Provenance())
    bcq.save(Dataset.from_columns(columns), "plain.hdf5")
    bcq.save(Dataset.from_columns(replace(columns, lags=2)), "past.hdf5")
    found = [
        [str(finding) for finding in examine(open_batch(name, Options())).findings]
        for name in ("plain.hdf5", "past.hdf5")
    ]
    assert found[0] == found[1]
    assert any("constant column 2" in text for text in found[0])


def test_a_run_keeps_it(log: Path) -> None:
    convert(log, "log.hdf5", Options(columns=ROLES, lags=2, **BOUNDS))
    run = train_run(Path("run"), TINY, Schedule(steps=1), bcq.load("log.hdf5"))
    told = json.loads(Path("run/config.json").read_text())["task"]["layout"]
    assert told == {
        "columns": [{"name": "inside"}, {"name": "outside"}],
        "past": {"lags": 2, "reading_size": 2, "action_size": 1, "actions": ["heat"]},
    }
    policy = bcq.Run.open(run.directory).policy()
    assert policy.task.layout == LAYOUT
    with pytest.raises(bcq.InputError, match=r"needs \(rows, 8\), with past steps; see bcq.Hist"):
        policy.act([[1.0, 10.0]])


@pytest.mark.parametrize(
    "damage",
    [
        3,
        [],
        {},
        {"lags": 2, "reading_size": 2, "action_size": 1},
        {"lags": 0, "reading_size": 2, "action_size": 1, "actions": []},
        {"lags": 3, "reading_size": 2, "action_size": 0, "actions": []},
        {"lags": 2, "reading_size": 2.0, "action_size": 1, "actions": []},
        {"lags": 2, "reading_size": 2, "action_size": 1, "actions": [3]},
        {"lags": 2, "reading_size": 2, "action_size": 1, "actions": [], "more": 1},
        {"lags": 1, "reading_size": 2, "action_size": 1, "actions": []},
        {"lags": 1, "reading_size": 3, "action_size": 2, "actions": []},
    ],
)
def test_a_damaged_past_is_refused(damage: Any) -> None:
    task = TaskSpec(8, ActionBounds(np.array([0.0]), np.array([4.0])), layout=LAYOUT)
    told = json.loads(json.dumps(task.as_json()))
    assert TaskSpec.from_json(told).layout == LAYOUT
    told["layout"]["past"] = damage
    with pytest.raises(ValueError, match="layout: "):
        TaskSpec.from_json(told)


@pytest.mark.parametrize(
    "change",
    [
        {"lags": 0},
        {"reading_size": -1},
        {"action_size": 0},
        {"reading_size": 2.0},
        {"lags": True},
        {"actions": ["heat", 3]},
    ],
)
def test_a_past_is_three_sizes_and_names(change: dict[str, Any]) -> None:
    smallest = {"lags": 1, "reading_size": 1, "action_size": 1, "actions": []}
    assert Past.from_json(smallest) == Past(1, 1, 1)
    with pytest.raises(ValueError, match="layout: its past steps are not three sizes and names"):
        Past.from_json(smallest | change)


# Learning


def test_learning_with_the_past_beats_learning_without_it(log: Path) -> None:
    """The logged action is the last change of the reading: one reading does not show it."""
    random = np.random.default_rng(0)
    rows = 2_000
    readings = np.cumsum(random.choice([-0.5, 0.5], rows))
    lines = ["inside,heat,reward,terminated"]
    for t in range(1, rows):
        lines.append(f"{readings[t]},{readings[t] - readings[t - 1]},0,{int(t == rows - 1)}")
    log.write_text("\n".join(lines))
    errors = []
    for lags in (0, 1):
        dataset = bcq.load(
            log, columns={"observations": ["inside"], "actions": ["heat"]}, lags=lags
        )
        *_, last = bcq.train(bcq.BCConfig(hidden_sizes=(16, 16)), dataset, steps=400)
        actions = Policy(last.learner, dataset.task).act(dataset.observations[1:])
        errors.append(float(np.abs(actions - dataset.actions[1:]).mean()))
    assert errors[0] > 0.4
    assert errors[1] < 0.2
