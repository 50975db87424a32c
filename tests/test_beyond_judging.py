"""The measure of the judge: its jobs, and the statistics of its verdicts."""

import json
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from matplotlib.lines import AxLine

import bcq.paper
import small_task
from bcq.algorithms import BCConfig, DDPGConfig
from bcq.cli.application import main
from bcq.data.splits import HoldOut
from bcq.experiments import engines, judged, runner
from bcq.experiments.estimate import A_POLICY, START, Speeds, bytes_of, seconds_of
from bcq.experiments.forms import from_json, steps_done
from bcq.experiments.jobs import directory_name, fingerprint, perform
from bcq.experiments.judged import Judging, judged_in
from bcq.experiments.kinds import Batch, Training
from bcq.experiments.records import roles_of
from bcq.judging import values
from bcq.judging.fitting import FitSettings
from bcq.paper import beyond_judging, jobs_of, reproduce
from bcq.paper.beyond_judging import (
    Policy,
    as_chosen,
    as_markdown,
    by_value,
    draw,
    inside,
    rank_correlation,
    regret,
)
from bcq.paper.presets import PRESETS, PresetName
from bcq.runs.configuration import LoggedBatch
from bcq.runs.directory import Run
from bcq.runs.schedules import Schedule
from bcq.simulation.batches import load
from bcq.simulation.true_values import HORIZON
from bcq.system.errors import InputError
from bcq.system.seeds import Role, derive, reset_seed
from test_runner import InThisProcess

Row = dict[str, Any]
DISCOUNT = 0.9
TRAINING = Training(
    DDPGConfig(hidden_sizes=(8,), batch_size=10, discount=DISCOUNT),
    Schedule(steps=300, seed=3, checkpoint_every=100, keep="all"),
    Batch("random", small_task.NAME, 400, 0),
    HoldOut(0.3),
)
JOB = Judging(TRAINING, (100, 300))


@pytest.fixture(autouse=True, scope="module")
def _quick() -> Iterator[None]:
    quick = partial(FitSettings, period=100, fits=3, batch_size=16, hidden_sizes=(8,))
    with small_task.registered(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(values, "FitSettings", quick)
        patch.setattr(judged, "EPISODES", 3)
        patch.setattr(runner, "POLL", 0.0)
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All jobs done."""
    path = tmp_path_factory.mktemp("jobs")
    for job in (TRAINING.batch, TRAINING, JOB):
        perform(job, path)
    return path


def test_the_true_value_is_the_mean_of_new_episodes_without_a_time_limit(folder: Path) -> None:
    policy = Run.open(folder / directory_name(TRAINING)).policy(300)
    seed, found = derive(3, Role.EVALUATION), []
    for episode in range(3):
        env = gymnasium.make(small_task.NAME, max_episode_steps=-1)
        observation, _ = env.reset(seed=reset_seed(seed, episode))
        total = 0.0
        for time in range(HORIZON):
            action = policy.act(observation[None], seed=seed, step=time, rows=np.array([episode]))
            observation, reward, *_ = env.step(action[0])
            total += DISCOUNT**time * float(reward)
        found.append(total)
    truth = judged_in(folder / directory_name(JOB))[1]["truth"]
    assert truth["mean"] == pytest.approx(np.mean(found), rel=1e-5)
    assert truth["standard_error"] == pytest.approx(np.std(found, ddof=1) / 3**0.5, rel=1e-4)


def test_the_behaviour_is_that_of_the_batch(folder: Path) -> None:
    """Uniformly random steps of at most a half: far from the policy, which brings it to zero."""
    row = judged_in(folder / directory_name(JOB))[0]
    assert -20 < row["behaviour"]["mean"] < -3
    assert row["behaviour"]["standard_error"] > 0
    recipe = TRAINING.batch.made_by(folder)
    again = judged.behaviour_value(
        recipe, load_batch(folder).task, discount=DISCOUNT, seed=TRAINING.schedule.seed
    )
    assert row["behaviour"] == again
    other = judged.behaviour_value(recipe, load_batch(folder).task, discount=0.0, seed=3)
    assert other["mean"] > row["behaviour"]["mean"]


def load_batch(folder: Path) -> Any:
    return load(folder / directory_name(TRAINING.batch) / "batch.hdf5")


def test_the_judge_sees_only_what_was_kept_aside(folder: Path) -> None:
    rows = judged_in(folder / directory_name(JOB))
    assert [row["step"] for row in rows] == [100, 300]
    assert [(row["episodes"], row["transitions"]) for row in rows] == 2 * [(6, 120)]
    assert rows[0]["judgement"]["policy"] != rows[1]["judgement"]["policy"]
    batch = Run.open(folder / directory_name(TRAINING)).config.dataset
    assert isinstance(batch, LoggedBatch)
    assert batch.hold_out == HoldOut(0.3)
    with pytest.raises(ValueError, match="kept no episodes aside"):
        judged.held_out(replace(TRAINING, hold_out=None), load_batch(folder))


def test_an_interrupted_job_continues(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = folder / directory_name(JOB)
    before = (directory / judged.JUDGED).read_text()
    rows = json.loads(before)["checkpoints"]
    rows[0]["step"] = -1  # what is there is kept as it is
    (directory / judged.JUDGED).write_text(json.dumps({"checkpoints": rows[:1]}))
    assert steps_done(JOB, folder) == 1
    asked: list[int] = []
    original = Run.policy

    def policy(run: Run, step: int | None = None) -> Any:
        asked.append(step or 0)
        return original(run, step)

    monkeypatch.setattr(Run, "policy", policy)
    JOB.perform(folder)
    found = judged_in(directory)
    (directory / judged.JUDGED).write_text(before)
    assert asked == [300]
    assert [row["step"] for row in found] == [-1, 300]
    assert found[1]["truth"] == json.loads(before)["checkpoints"][1]["truth"]


def test_checkpoints_that_a_diverged_run_does_not_have_are_left_out(folder: Path) -> None:
    other = Judging(TRAINING, (100, 500))
    (folder / directory_name(other)).mkdir()
    other.perform(folder)
    assert [row["step"] for row in judged_in(folder / directory_name(other))] == [100]


def test_a_job_that_has_not_begun_has_done_nothing(tmp_path: Path) -> None:
    assert steps_done(JOB, tmp_path) == 0
    assert JOB.length == 2


@pytest.mark.parametrize("name", PRESETS)
def test_the_jobs_survive_the_trip_through_their_files(name: PresetName) -> None:
    jobs = jobs_of(PRESETS[name], ("judging",), ())
    assert jobs
    for job in jobs:
        again = from_json(json.loads(json.dumps(job.as_json())))
        assert again == job
        assert fingerprint(again) == fingerprint(job)


def test_the_measure_is_as_large_as_it_should_be() -> None:
    jobs = jobs_of(PRESETS["standard"], ("judging",), ())
    batches: dict[Batch, int] = {}
    for job in jobs:
        assert isinstance(job, Judging)
        batches[job.training.batch] = batches.get(job.training.batch, 0) + job.length
        assert job.checkpoints == (300, 1_200, 2_400, 4_800)
    assert min(batches.values()) >= 12
    assert sum(batches.values()) >= 100
    environments = {batch.env.split("-")[0] for batch in batches}
    assert environments >= {"Hopper", "Walker2d", "HalfCheetah", "Pendulum", "CartPole"}
    trials = [job.training.batch.trial for job in jobs if isinstance(job, Judging)]
    assert trials == sorted(trials)


def test_the_other_presets_are_smaller_or_larger() -> None:
    scales = {
        name: [(p.env.split("-")[0], p.rows, p.updates, p.trials) for p in plans]
        for name, preset in PRESETS.items()
        if (plans := preset.plans["judging"])
    }
    assert scales == {
        "smoke": [("CartPole", 6_000, 1_600, 1)],
        "quick": [(env, 20_000, 4_800, 1) for env in ("Pendulum", "CartPole", "Acrobot")],
        "standard": [
            *((env, 100_000, 4_800, 1) for env in ("Hopper", "HalfCheetah", "Walker2d")),
            ("Pendulum", 20_000, 4_800, 2),
            *((env, 20_000, 4_800, 6) for env in ("CartPole", "Acrobot")),
        ],
        "paper": [
            *((env, 100_000, 4_800, 5) for env in ("Hopper", "HalfCheetah", "Walker2d")),
            *((env, 20_000, 4_800, 5) for env in ("Pendulum", "CartPole", "Acrobot")),
        ],
    }


def test_only_who_asks_for_it_gets_it() -> None:
    assert not [job for job in jobs_of(PRESETS["smoke"], (), ()) if isinstance(job, Judging)]
    some = jobs_of(PRESETS["standard"], ("judging",), ("Acrobot-v1",))
    assert {job.training.batch.env for job in some if isinstance(job, Judging)} == {"Acrobot-v1"}
    with pytest.raises(InputError, match=r"it has CartPole-v1$"):
        jobs_of(PRESETS["smoke"], ("judging",), ("Hopper-v5",))


def test_older_fingerprints_stay_as_they_were() -> None:
    assert "hold_out" not in replace(TRAINING, hold_out=None).as_json()
    assert TRAINING.as_json()["hold_out"] == {"share": 0.3, "by": "random"}


def test_another_judge_is_another_job(monkeypatch: pytest.MonkeyPatch) -> None:
    told = {json.dumps(JOB.as_json())}
    monkeypatch.setattr(judged, "EPISODES", 4)
    told.add(json.dumps(JOB.as_json()))
    monkeypatch.setattr(judged, "VERSION", 9)
    told.add(json.dumps(JOB.as_json()))
    monkeypatch.setattr(judged, "FitSettings", partial(FitSettings, batch_size=7))
    told.add(json.dumps(JOB.as_json()))
    assert len(told) == 4


def test_its_trainings_are_not_runs_of_the_paper() -> None:
    assert roles_of(TRAINING) == []
    assert len(roles_of(replace(TRAINING, hold_out=None))) == 1


def test_the_cost_of_judging_is_estimated(folder: Path, tmp_path: Path) -> None:
    assert seconds_of(JOB, tmp_path, Speeds()) == START + 2 * A_POLICY
    assert seconds_of(JOB, folder, Speeds()) == 0
    one = bytes_of(replace(TRAINING, schedule=Schedule(steps=300)), Speeds())
    assert bytes_of(TRAINING, Speeds()) == 3 * one
    unseen = replace(TRAINING, config=BCConfig(hidden_sizes=(8,)))
    evaluated = replace(unseen, schedule=replace(unseen.schedule, env=small_task.NAME))
    speeds = Speeds()
    speeds.measured[small_task.NAME, unseen.config] = (1_000.0, 5.0)
    speeds.stepping[small_task.NAME] = 0.0
    speeds.data[small_task.NAME] = load_batch(folder)
    assert seconds_of(unseen, tmp_path, speeds) == pytest.approx(START + 0.3)
    assert seconds_of(evaluated, tmp_path, speeds) > START + 1


# The statistics


def row(step: int, estimate: float, truth: float, **changes: Any) -> Row:
    judgement: Row = {
        "policy": {"value": estimate, "low": estimate - 1, "high": estimate + 1},
        "difference": {"value": estimate - 5, "low": estimate - 6, "high": estimate - 4},
        "verdict": "better" if estimate > 6 else "cannot tell",
        "objections": [],
    }
    return {
        "fingerprint": "f",
        "env": "Hopper-v5",
        "task": "imperfect",
        "trial": 0,
        "algorithm": "bcq",
        "step": step,
        "behaviour": {"mean": 5.0, "standard_error": 0.1},
        "truth": {"mean": truth, "standard_error": 0.1},
        "judgement": {**judgement, **changes},
    }


ROWS = [row(100, 7.0, 7.5), row(200, 8.0, 4.0), row(300, 3.0, 1.0), row(400, 6.0, 6.0)]


def test_policies_are_ranked_by_their_estimates() -> None:
    policies = [Policy.of(one) for one in ROWS]
    # ranks 3, 4, 1, 2 and 4, 2, 1, 3: 1 - 6 (1 + 4 + 0 + 1) / (4 * 15)
    for order in (by_value, as_chosen):
        assert rank_correlation(policies, order) == pytest.approx(0.4)
        assert rank_correlation(policies[::2], order) == pytest.approx(1)


def test_an_uncertain_estimate_is_not_preferred() -> None:
    uncertain = row(200, 8.0, 4.0)
    uncertain["judgement"]["policy"]["low"] = 0.0
    policies = [Policy.of(one) for one in [ROWS[0], uncertain, *ROWS[2:]]]
    assert regret(policies) == 0
    # ranks 4, 1, 2, 3 and 4, 2, 1, 3: 1 - 6 (0 + 1 + 1 + 0) / (4 * 15)
    assert rank_correlation(policies, as_chosen) == pytest.approx(0.8)
    assert rank_correlation(policies, by_value) == pytest.approx(0.4)


def test_policies_with_objections_come_last() -> None:
    unsound = row(200, 8.0, 0.5, objections=["the policy leaves the data"])
    policies = [Policy.of(one) for one in [ROWS[0], unsound, *ROWS[2:]]]
    assert rank_correlation(policies, as_chosen) == pytest.approx(1)
    # by value ranks 3, 4, 1, 2 and 4, 1, 2, 3: 1 - 6 (1 + 9 + 1 + 1) / (4 * 15)
    assert rank_correlation(policies, by_value) == pytest.approx(-0.2)


def test_regret_is_what_the_choice_loses() -> None:
    assert regret([Policy.of(one) for one in ROWS]) == pytest.approx(3.5 / 6.5)
    unsound = row(200, 8.0, 4.0, objections=["the policy leaves the data"])
    assert regret([Policy.of(one) for one in [ROWS[0], unsound, *ROWS[2:]]]) == 0
    assert regret([Policy.of(ROWS[0])]) == 0  # nothing to lose


def test_an_interval_includes_its_ends() -> None:
    assert inside((1.0, 0.0, 2.0), 0.0)
    assert inside((1.0, 0.0, 2.0), 2.0)
    assert not inside((1.0, 0.0, 2.0), 2.1)
    assert not inside((1.0, 0.0, 2.0), -0.1)


def test_better_is_wrong_if_the_policy_is_not_above_the_behaviour() -> None:
    found = [Policy.of(one).wrongly_better for one in [*ROWS, row(1, 7.0, 5.0)]]
    assert found == [False, True, False, False, True]
    assert not Policy.of(row(1, 3.0, 4.0)).wrongly_better


def test_the_table_tells_every_failure() -> None:
    other = [{**one, "env": "Walker2d-v5"} for one in (ROWS[0], ROWS[2])]
    text = as_markdown([*ROWS, *other])
    assert "| Hopper-v5, imperfect, trial 0 | 4 | 0.40 | 0.40 | 54% | 2 | 2 | 2 | 1 |" in text
    assert "| Walker2d-v5, imperfect, trial 0 | 2 | 1.00 | 1.00 | 0% | 1 | 1 | 1 | 0 |" in text
    assert "| Hopper-v5, imperfect, trials: 1 | 4 | 0.40 | 0.40 | 54% | 2 | 2 | 2 | 1 |" in text
    assert "| all, batches: 2 | 6 | 0.70 | 0.70 | 27% | 3 | 3 | 3 | 1 |" in text
    assert "value in its 95% interval: 3 of 6, 50.0% (18.8% to 81.2%)" in text
    assert '"better" and wrong: 1 of 3, 33.3% (6.1% to 79.2%)' in text
    assert "bcq at 200, difference 3 (2 to 4), in truth -1" in text
    assert "not better" not in as_markdown(ROWS[2:])
    assert '"better" and wrong: 0 of 0' in as_markdown(ROWS[2:])


def test_trials_of_one_environment_have_a_line_together() -> None:
    again = [{**one, "trial": 1} for one in (ROWS[0], ROWS[2])]
    text = as_markdown([*ROWS, *again])
    assert "| Hopper-v5, imperfect, trials: 2 | 6 | 0.70 | 0.70 | 27% | 3 | 3 | 3 | 1 |" in text
    assert "| Hopper-v5, imperfect, trial 1 | 2 | 1.00 | 1.00 | 0% | 1 | 1 | 1 | 0 |" in text


def test_the_picture_has_a_panel_for_each_environment() -> None:
    others = [
        {**one, **change}
        for one in ROWS
        for change in ({"trial": 1}, {"env": "Walker2d-v5"}, {"task": "random"}, {"env": "Ant-v5"})
    ]
    figure = draw([*ROWS, *others])
    titles = [axes.get_title() for axes in figure.axes]
    assert titles == [
        "Hopper-v5, imperfect, trials: 2",
        "Walker2d-v5, imperfect, trials: 1",
        "Hopper-v5, random, trials: 1",
        "Ant-v5, imperfect, trials: 1",
    ]
    points = [sum(len(one[0].get_xdata()) for one in axes.containers) for axes in figure.axes]
    assert points == [8, 4, 4, 4]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        *("better", "no worse", "cannot tell", "do not deploy", "behaviour, true value")
    ]
    for axes in figure.axes:  # where an estimate is the truth
        diagonal: Any = next(one for one in axes.lines if isinstance(one, AxLine))
        x, y = diagonal.get_xy1()
        assert (x - y, diagonal.get_slope()) == (0, 1)


# Records


def reproduced(out: Path) -> list[str]:
    engine = InThisProcess()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engines, "LocalProcesses", lambda: engine)
        patch.setattr(beyond_judging, "jobs", lambda _: [(0, JOB)])
        main(["reproduce", "judging", "--preset", "smoke", "--out", str(out)])
    return engine.started


def test_a_recorded_policy_is_not_judged_again(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "jobs").symlink_to(folder)
    assert reproduced(out) == []
    said = capsys.readouterr().out
    assert "| all, batches: 1 | 2 |" in said
    assert "2 judged policies in" in said
    assert "claim" not in said
    rows = beyond_judging.read_rows(out / "judging.jsonl")
    assert [one["step"] for one in rows] == [100, 300]
    assert {(one["fingerprint"], one["algorithm"], one["env"]) for one in rows} == {
        (fingerprint(JOB), "ddpg", small_task.NAME)
    }
    assert rows[0]["settings"]["batch_size"] == 10
    assert rows[0]["hold_out"] == {"share": 0.3, "by": "random"}
    assert "commit" in rows[0]["made"]
    assert (out / "figures" / "judging.png").stat().st_size > 10_000
    before = (out / "judging.jsonl").read_text()
    (out / "jobs").unlink()  # another machine, with the records only
    other = json.dumps({**rows[0], "fingerprint": "of another setting"}) + "\n"
    (out / "judging.jsonl").write_text(other + before)
    assert reproduced(out) == []
    assert (out / "judging.jsonl").read_text() == before
    assert (out / "other-judging.jsonl").read_text() == other
    assert "| all, batches: 1 | 2 |" in (out / "judging.md").read_text()
    (out / "other-judging.jsonl").unlink()
    assert reproduced(out) == []
    assert not (out / "other-judging.jsonl").exists()


def test_records_alone_are_enough_to_draw_and_count_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "judging.jsonl").write_text("".join(json.dumps(one) + "\n" for one in ROWS))
    main(["reproduce", "--check", "--out", str(tmp_path)])
    assert "4 judged policies" in capsys.readouterr().out
    assert (tmp_path / "judging.md").read_text() == as_markdown(ROWS)
    assert (tmp_path / "figures" / "judging.pdf").exists()


def test_what_is_not_recorded_is_run_with_what_it_needs(tmp_path: Path) -> None:
    left = reproduce.unrecorded_in(tmp_path, [JOB])
    assert left == [TRAINING.batch, TRAINING, JOB]


@pytest.mark.parametrize("text", ["no JSON", "[]", '{"env": "Hopper-v5"}', "3"])
def test_a_damaged_file_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "judging.jsonl").write_text(text + "\n")
    with pytest.raises(InputError, match=r"judging\.jsonl: is not a file of judgements"):
        beyond_judging.read_rows(tmp_path / "judging.jsonl")


def test_every_experiment_beyond_the_paper_is_known() -> None:
    assert set(bcq.paper.BEYOND) < set(bcq.paper.EXPERIMENTS)
