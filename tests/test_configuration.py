"""The configuration of a run: what config.json contains, and what is refused in it."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bcq.algorithms import ALGORITHMS, DDPGConfig
from bcq.runs.configuration import (
    Continuation,
    OwnExperience,
    RunConfiguration,
    read_configuration,
)
from bcq.runs.directory import Run
from bcq.runs.origin import Origin
from bcq.runs.schedules import BehaviourSchedule, Schedule
from bcq.system.errors import InputError
from run_cases import configuration

OFFLINE = configuration(schedule=Schedule(env="Pendulum-v1", keep="all", true_value_every=100))
ONLINE = replace(
    configuration(DDPGConfig(hidden_sizes=(4, 5))),
    schedule=BehaviourSchedule(env="Pendulum-v1", noise=0.5),
    dataset=OwnExperience("Pendulum-v1"),
)
RESUMED = replace(
    OFFLINE, continuations=(Continuation(7, Origin({"bcq": "2"}, None, "gpu", None)),)
)


def written(config: RunConfiguration, folder: Path) -> Path:
    return Run.create(folder, config).directory / "config.json"


@pytest.mark.parametrize(
    "config",
    [OFFLINE, ONLINE, RESUMED, *(configuration(kind()) for kind in ALGORITHMS.values())],
)
def test_a_configuration_comes_back_from_its_file(config: RunConfiguration, tmp_path: Path) -> None:
    path = written(config, tmp_path)
    again = read_configuration(path)
    assert replace(again, task=config.task) == config
    assert again.task.observation_size == config.task.observation_size
    for name in ("low", "high"):
        ours, theirs = getattr(again.task.bounds, name), getattr(config.task.bounds, name)
        np.testing.assert_array_equal(ours, theirs)
    Run(tmp_path, again).write_config()
    assert path.read_text() == json.dumps(config.as_json(), indent=2) + "\n"


def test_the_layout_of_the_file_is_that_of_the_first_version() -> None:
    origin = {"versions": {"bcq": "0.1", "jax": "0.2"}, "commit": "c0ffee"}
    low, high = (np.array(each, np.float32).tolist() for each in ((-2, 0.1), (2, 0.3)))
    task = {"observation_size": 3, "action_low": low, "action_high": high}
    batch = {"fingerprint": "abc", "transitions": 60, "episodes": 3, "mean_return": 1.5}
    provenance = {"environment": "Task-v0", "recipe": "test", "behaviour": None, "seed": 4}
    expected = {
        "format": 1,
        "algorithm": "bcq",
        "settings": {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in asdict(OFFLINE.algorithm).items()
        },
        "schedule": asdict(OFFLINE.schedule),
        "dataset": {**batch, **provenance, "version": None},
        "task": task,
        **{**origin, "device": "cpu", "threads": 2},
    }
    assert json.dumps(OFFLINE.as_json()) == json.dumps(expected)  # the order counts
    later = {"step": 7, "versions": {"bcq": "2"}, "commit": None, "device": "gpu", "threads": None}
    assert json.dumps(RESUMED.as_json()) == json.dumps({**expected, "continuations": [later]})
    online = ONLINE.as_json()
    assert list(online) == list(expected)
    assert json.dumps(online["dataset"]) == '{"recipe": "online", "environment": "Pendulum-v1"}'
    assert online["schedule"] == asdict(ONLINE.schedule)


def test_a_run_of_a_version_without_a_setting_has_its_default(tmp_path: Path) -> None:
    path = written(OFFLINE, tmp_path)
    content = json.loads(path.read_text())
    for name in ("keep", "concurrent", "true_value_every"):
        del content["schedule"][name]
    del content["settings"]["vae_l2"]
    path.write_text(json.dumps(content))
    config = Run.open(tmp_path).config
    assert config.schedule == Schedule(env="Pendulum-v1")
    assert config.algorithm == OFFLINE.algorithm


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        ("schedule", ..., "is damaged (schedule is missing)"),
        ("schedule.steps", "7", "is damaged (schedule.steps is '7')"),
        ("schedule.steps", 0, "is damaged (steps: 0 is not at least 1)"),
        ("schedule.evaluate_every", 150, "is damaged (evaluate_every: 150 is not a positive"),
        ("schedule.speed", 1, "is damaged (Schedule.__init__() got an unexpected keyword"),
        ("dataset.environment", 7, "is damaged (dataset.environment is 7)"),
        ("dataset.transitions", None, "is damaged (dataset.transitions is None)"),
        ("dataset.mean_return", ..., "is damaged (dataset.mean_return is missing)"),
        ("dataset.colour", "red", "is damaged (Provenance.__init__() got an unexpected keyword"),
        ("task.action_low", [9, 9], "is damaged (task: InputError("),
        ("versions.bcq", ..., "is damaged (versions.bcq is missing)"),
        ("threads", "two", "is damaged (threads is 'two')"),
        ("continuations", [{"step": 1}], "is damaged ('versions')"),
        ("continuations", 3, "is damaged ("),
        ("algorithm", "sarsa", "algorithm 'sarsa' with these settings is unknown to this version"),
        ("settings.discount", 2.0, "algorithm 'bcq' with these settings is unknown to this ver"),
        ("format", 2, "does not have the format of this version (1)"),
    ],
)
def test_what_is_wrong_is_named_in_one_line(
    place: str, value: Any, words: str, tmp_path: Path
) -> None:
    path = written(RESUMED, tmp_path)
    content = json.loads(path.read_text())
    *parts, last = place.split(".")
    inner = content
    for part in parts:
        inner = inner[part]
    inner[last] = value
    if value is ...:
        del inner[last]
    path.write_text(json.dumps(content))
    with pytest.raises(InputError) as refused:
        Run.open(tmp_path)
    assert str(refused.value).startswith(f"{path}: {words}")
    assert "\n" not in str(refused.value)


def test_the_environment_is_that_of_the_evaluations_or_of_the_data() -> None:
    assert OFFLINE.environment == "Pendulum-v1"
    assert configuration().environment == "Task-v0"
    assert replace(configuration(), dataset=OwnExperience(None)).environment is None


def test_differences_between_origins_leave_out_the_commit() -> None:
    ours = Origin({"bcq": "1", "jax": "2"}, "a", "cpu", 2)
    theirs = Origin({"bcq": "1", "numpy": "3"}, "b", "gpu", 1)
    assert ours.differences(replace(ours, commit="b")) == []
    assert ours.differences(theirs) == [
        "device = gpu, not cpu",
        "threads = 1, not 2",
        "versions.jax = None, not 2",
        "versions.numpy = 3, not None",
    ]
