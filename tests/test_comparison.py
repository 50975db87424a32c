"""Runs side by side, from run directories of made-up numbers."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from matplotlib.image import imread

from bcq.algorithms import BCConfig, BCQConfig
from bcq.algorithms.learning import AlgorithmConfig
from bcq.cli.application import main
from bcq.data.splits import HoldOut
from bcq.experiments.comparison import compare, find_runs, measure
from bcq.experiments.comparison_report import as_text, write_comparison
from bcq.experiments.statistics import Centre
from bcq.runs.configuration import LoggedBatch, OwnExperience, RunConfiguration
from bcq.runs.directory import Run
from bcq.runs.schedules import BehaviourSchedule, Schedule
from bcq.system.errors import InputError
from run_cases import configuration

STEPS = 400


def settings(
    algorithm: AlgorithmConfig | None = None,
    *,
    seed: int = 0,
    env: str | None = "Task-v0",
    hold_out: HoldOut | None = None,
    **schedule: Any,
) -> RunConfiguration:
    known = configuration(
        algorithm, schedule=Schedule(**{"steps": STEPS, "seed": seed, "env": env, **schedule})
    )
    assert isinstance(known.dataset, LoggedBatch)
    return replace(known, dataset=replace(known.dataset, hold_out=hold_out))


def made(path: Path, config: RunConfiguration, *returns: float, at: int = STEPS) -> Run:
    """A run with these mean returns at 0, 100, ..., and a checkpoint."""
    run = Run.create(path, config)
    rows = [
        {"step": 100 * i, "episode": e, "return": value + offset, "length": 5}
        for i, value in enumerate(returns)
        for e, offset in enumerate((-1.0, 1.0))
    ]
    run.append("episodes.jsonl", rows)
    pointer = {"step": at, "file": f"step-{at}.safetensors", "sha256": "0" * 64}
    (path / "checkpoint.json").write_text(json.dumps(pointer))
    return run


def group(folder: Path, name: str, config: AlgorithmConfig, *finals: float, **more: Any) -> None:
    for seed, final in enumerate(finals):
        made(folder / f"{name}-{seed}", settings(config, seed=seed, **more), -99, *[final] * 4)


def judgement(value: float, reach: float = 1.0, *objections: str) -> dict[str, Any]:
    policy = {"value": value, "low": value - reach, "high": value + reach}
    return {"discount": 0.9, "judgement": {"policy": policy, "objections": list(objections)}}


def test_runs_that_differ_only_in_their_seed_are_one_setting(tmp_path: Path) -> None:
    group(tmp_path, "a", BCQConfig(), 1, 2, 3)
    group(tmp_path, "b", BCQConfig(max_perturbation=0.5), 11, 12, 13)
    group(tmp_path, "c", BCConfig(), 5)
    group(tmp_path, "d", BCConfig(), 6, evaluate_every=200)
    (section,) = compare(measure(find_runs([tmp_path])))
    assert [(one.label, one.scores) for one in section.ranked] == [
        ("bcq max_perturbation=0.5 evaluate_every=5000", [11, 12, 13]),
        ("bc evaluate_every=200", [6]),
        ("bc evaluate_every=5000", [5]),
        ("bcq max_perturbation=0.05 evaluate_every=5000", [1, 2, 3]),
    ]
    assert section.ranked[0].centre == Centre.of([11, 12, 13])


def test_a_score_is_the_mean_of_the_last_three_evaluations_of_a_trained_policy(
    tmp_path: Path,
) -> None:
    made(tmp_path / "long", settings(), -99, 1, 2, 3, 7)
    made(tmp_path / "short", settings(seed=1), -99, 1, 3)
    diverged = made(tmp_path / "diverged", settings(seed=2), -99, 5, at=100)
    diverged.note_divergence(150, "critic")
    at_once = made(tmp_path / "at_once", settings(seed=3), -99, at=100)
    at_once.note_divergence(50, "critic")
    (section,) = compare(measure(find_runs([tmp_path])))
    (setting,) = section.settings
    assert setting.scores == [4, 2, 5, -99]
    assert setting.diverged == 2
    assert "| bcq | 4 | 3 (" in as_text(section)
    assert as_text(section).count("| 2 |\n") == 1
    assert "There is one setting" in as_text(section)


def test_unfinished_runs_do_not_count_but_are_counted(tmp_path: Path) -> None:
    group(tmp_path, "a", BCQConfig(), 1, 2)
    made(tmp_path / "half", settings(seed=7), -99, 50, at=100)
    (section,) = compare(measure(find_runs([tmp_path])))
    assert section.ranked[0].scores == [1, 2]
    assert "not finished or not judged, so they do not count: 1 of the runs" in as_text(section)
    with pytest.raises(InputError, match="half: is not finished"):
        compare(measure(find_runs([tmp_path / "half"])))


def test_batches_and_environments_have_sections_of_their_own(tmp_path: Path) -> None:
    group(tmp_path, "a", BCQConfig(), 1, 2)
    group(tmp_path, "b", BCQConfig(), 1, 2, env="Other-v0")
    other = settings()
    assert isinstance(other.dataset, LoggedBatch)
    batch = replace(other.dataset, fingerprint="def0123456789")
    made(tmp_path / "c", replace(other, dataset=batch), -99, 1)
    sections = compare(measure(find_runs([tmp_path])))
    assert [(one.env, one.source) for one in sections] == [
        ("Task-v0", "batch abc"),
        ("Other-v0", "batch abc"),
        ("Task-v0", "batch def01234"),
    ]


def test_the_best_is_named_with_an_interval_for_the_choice_or_not_at_all(tmp_path: Path) -> None:
    near, far = (10.1, 10.2, 10.3), (1.0, 1.1, 1.2)
    group(tmp_path, "a", BCQConfig(), *near)
    group(tmp_path, "b", BCQConfig(max_perturbation=0.5), *far)
    group(tmp_path, "c", BCQConfig(max_perturbation=0.0), *far)
    (section,) = compare(measure(find_runs([tmp_path])))
    low, high = Centre.of(near).interval(1 - 0.05 / 3)
    assert f"Best: bcq max_perturbation=0.05, 10.2 (95% interval {low:.4g} to {high:.4g}, " in (
        as_text(section)
    )
    assert "chosen among 3" in as_text(section)
    group(tmp_path, "d", BCQConfig(max_perturbation=0.1), 10.0, 10.1, 10.2)
    (section,) = compare(measure(find_runs([tmp_path])))
    assert (
        "The best cannot be told: bcq max_perturbation=0.05 has the highest number, but cannot be "
        "told apart from bcq max_perturbation=0.1." in as_text(section)
    )


def test_one_seed_each_tells_nothing(tmp_path: Path) -> None:
    group(tmp_path, "a", BCQConfig(), 1)
    group(tmp_path, "b", BCConfig(), 1000)
    (section,) = compare(measure(find_runs([tmp_path])))
    assert "| bc | 1 | 1000 (no interval) |" in as_text(section)
    assert "The best cannot be told" in as_text(section)


def judged_runs(folder: Path) -> None:
    for name, config in (("a", BCQConfig()), ("b", BCConfig())):
        for seed in range(3):
            known = settings(config, seed=seed, env=None, hold_out=HoldOut(0.5))
            made(folder / f"{name}-{seed}", known)


def test_without_an_environment_the_judge_ranks(tmp_path: Path) -> None:
    judged_runs(tmp_path)
    values = {"bcq": 10.0, "bc": 20.0}

    def judge_run(run: Run) -> dict[str, Any]:
        return judgement(values[run.config.algorithm_name] + run.config.schedule.seed, 1.96)

    (section,) = compare(measure(find_runs([tmp_path]), judge_run))
    assert [(one.label, one.scores) for one in section.ranked] == [
        ("bc", [20, 21, 22]),
        ("bcq", [10, 11, 12]),
    ]
    centre = section.ranked[0].centre
    assert centre.error == pytest.approx(math.hypot(1 / math.sqrt(3), 1), rel=1e-3)
    assert "discount 0.9" in as_text(section)
    assert "Best: bc, 21" in as_text(section)


def test_a_setting_that_the_judge_objects_to_is_never_the_best(tmp_path: Path) -> None:
    judged_runs(tmp_path)

    def judge_run(run: Run) -> dict[str, Any]:
        high = run.config.algorithm_name == "bc"
        return judgement(100.0, 1, "it leaves the data") if high else judgement(1.0)

    (section,) = compare(measure(find_runs([tmp_path]), judge_run))
    assert [one.label for one in section.ranked] == ["bcq", "bc"]
    assert "No setting is named: bcq is the only one that the judge does not" in as_text(section)
    assert "| bc | 3 | 100 (99 to 101) | 100 to 100 | 0 | 3 |" in as_text(section)
    (section,) = compare(
        measure(find_runs([tmp_path]), lambda _: judgement(1.0, 1, "it leaves the data"))
    )
    assert "No setting is named: the judge objects to a policy of each" in as_text(section)


def test_only_settings_without_objections_are_compared(tmp_path: Path) -> None:
    judged_runs(tmp_path)
    for seed in range(3):
        config = settings(BCConfig(batch_size=7), seed=seed, env=None, hold_out=HoldOut(0.5))
        made(tmp_path / f"c-{seed}", config)

    def judge_run(run: Run) -> dict[str, Any]:
        if run.algorithm.batch_size == 7:
            return judgement(100.0, 1, "it leaves the data")
        return judgement(50.0 if run.config.algorithm_name == "bc" else 1.0)

    (section,) = compare(measure(find_runs([tmp_path]), judge_run))
    assert section.best is not None
    assert section.best.is_clear
    assert "Best: bc batch_size=100, 50 (" in as_text(section)
    assert "chosen among 2;" in as_text(section)


def test_values_with_different_discounts_are_not_compared(tmp_path: Path) -> None:
    judged_runs(tmp_path)
    runs = measure(find_runs([tmp_path]), lambda _: judgement(1.0))
    mixed = [replace(runs[0], judged={**judgement(1.0), "discount": 0.5}), *runs[1:]]
    with pytest.raises(InputError, match=r"different discounts \(0.5, 0.9\)"):
        compare(mixed)


def test_everything_is_written(tmp_path: Path) -> None:
    group(tmp_path / "runs", "a", BCQConfig(), 1, 2, 3)
    group(tmp_path / "runs", "b", BCQConfig(max_perturbation=0.5), 4)
    made(tmp_path / "runs" / "half", settings(seed=7), -99, at=0)
    text = write_comparison(compare(measure(find_runs([tmp_path / "runs"]))), tmp_path)
    assert (tmp_path / "comparison.md").read_text() == text
    rows = [json.loads(line) for line in (tmp_path / "comparison.jsonl").read_text().splitlines()]
    assert [(row["setting"], row["seed"], row["score"]) for row in rows] == [
        ("bcq max_perturbation=0.05", 0, 1),
        ("bcq max_perturbation=0.05", 1, 2),
        ("bcq max_perturbation=0.05", 2, 3),
        ("bcq max_perturbation=0.05", 7, None),
        ("bcq max_perturbation=0.5", 0, 4),
    ]
    assert rows[0]["evaluations"][1] == [100, [0, 2]]
    assert rows[3]["finished"] is False
    height, width = imread(tmp_path / "comparison.png").shape[:2]
    assert width == 1500
    assert height > 300


@pytest.mark.parametrize(
    ("paths", "words"),
    [
        (["empty"], "empty: contains no run of a batch; give run directories, or a folder of them"),
        (["nowhere"], "nowhere: no such folder"),
        (["online"], "online: learned online, not from a batch"),
        (["a-0", "copy"], "have the same settings and seed: they are one run"),
        (["plain"], "plain: cannot be ranked: it has no evaluations and kept no episodes aside; "
         "train with --env ID, or with --hold-out 0.2 if there is no environment"),
        (["aside"], "aside: has no evaluations and was not judged yet; give the batch with --data"),
        ([], "give the folder of a sweep, or run directories"),
    ],
)  # fmt: skip
def test_what_cannot_be_compared_is_said_in_one_line(
    paths: list[str], words: str, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    group(tmp_path, "a", BCQConfig(), 1)
    made(tmp_path / "copy", settings(), -99, 1)
    made(tmp_path / "plain", settings(env=None))
    made(tmp_path / "aside", settings(env=None, hold_out=HoldOut(0.5)))
    online = replace(
        settings(), schedule=BehaviourSchedule(env="Task-v0"), dataset=OwnExperience("Task-v0")
    )
    made(tmp_path / "online", online)
    with pytest.raises(SystemExit) as caught:
        main(["compare", *(str(tmp_path / path) for path in paths), "--out", str(tmp_path / "o")])
    assert str(caught.value).startswith("bcq: ")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "o").exists()


def test_folders_and_runs_can_be_given_together_and_twice(tmp_path: Path) -> None:
    group(tmp_path / "jobs", "a", BCQConfig(), 1, 2)
    made(tmp_path / "alone", settings(BCConfig()), -99, 1)
    online = replace(
        settings(), schedule=BehaviourSchedule(env="Task-v0"), dataset=OwnExperience("Task-v0")
    )
    made(tmp_path / "jobs" / "agent", online)  # not of a batch: passed over in a folder
    found = find_runs([tmp_path, tmp_path / "alone", tmp_path / "jobs" / "a-0"])
    assert sorted(run.directory.name for run in found) == ["a-0", "a-1", "alone"]
