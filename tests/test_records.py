"""Records: which role a run has, what a diverged one leaves, what is measured at the end."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bcq
import short_task
from bcq.algorithms import DDPGConfig, EnsembleConfig
from bcq.data.bounds import ActionBounds
from bcq.data.columns import Columns, Provenance
from bcq.data.dataset import Dataset
from bcq.experiments import jobs, kinds
from bcq.experiments.jobs import Job, directory_name, perform
from bcq.experiments.kinds import Batch, Experts, OnlineAgent, Theory, Training
from bcq.experiments.measures import final_measures
from bcq.experiments.records import (
    Record,
    aligned,
    gather,
    read_records,
    roles_of,
    rounded,
    theory_of,
    write_records,
)
from bcq.paper.presets import ExperimentName
from bcq.runs.schedules import BehaviourSchedule, Schedule
from bcq.training.loop import create
from short_task import AGENT, NAME, STEPS
from test_claims import record as made_up

LIFE = BehaviourSchedule(
    env=NAME, steps=STEPS, random_steps=30, evaluate_every=100, evaluate_episodes=2
)
AGENTS = tuple(OnlineAgent(replace(LIFE, seed=seed)) for seed in range(2))
WHOLE = Batch("concurrent", NAME, STEPS, 0, AGENTS[0])
BEGINNING = Batch("concurrent", NAME, 120, 0, AGENTS[0])
IMITATION = Batch("imitation", NAME, 100, 1, Experts(AGENTS, keep=2))
SCHEDULE = Schedule(
    steps=100, env=NAME, evaluate_every=100, evaluate_episodes=2, true_value_every=100
)
OFFLINE = Training(AGENT, replace(SCHEDULE, concurrent=True), WHOLE)
SHORTER = Training(AGENT, replace(SCHEDULE, concurrent=True), BEGINNING)
DIVERGING = Training(
    replace(AGENT, critic_learning_rate=1e30), replace(SCHEDULE, seed=1), IMITATION
)
EXPERIMENTS: dict[ExperimentName, list[Job]] = {
    "extrapolation": [OFFLINE],
    "results": [OFFLINE, SHORTER, DIVERGING],
}


@pytest.fixture(autouse=True, scope="module")
def _surroundings() -> Iterator[None]:
    with short_task.registered(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(kinds, "DDPGConfig", lambda: AGENT)
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("jobs")
    for job in jobs.with_needs([one for each in EXPERIMENTS.values() for one in each]):
        perform(job, folder)
    return folder


@pytest.fixture(scope="module")
def records(folder: Path) -> list[Record]:
    return gather(EXPERIMENTS, folder)


def test_an_agent_has_the_role_that_those_give_it_who_need_it(records: list[Record]) -> None:
    found = [(one.role, one.task, one.seed, one.experiments) for one in records]
    assert sorted(found) == [
        ("agent", "concurrent", 0, ["extrapolation", "results"]),
        ("candidate", "experts", 0, ["results"]),
        ("candidate", "experts", 1, ["results"]),
        ("learner", "concurrent", 0, ["extrapolation", "results"]),
        ("learner", "concurrent", 0, ["results"]),
        ("learner", "imitation", 1, ["results"]),
    ]


@pytest.mark.parametrize("recipe", ["final-buffer", "concurrent"])
def test_the_task_of_an_agent_is_that_of_its_batch_whatever_its_noise(recipe: str) -> None:
    for noise in (0.1, 0.5):
        agent = OnlineAgent(replace(LIFE, noise=noise))
        assert roles_of(Batch(recipe, NAME, STEPS, 0, agent)) == [(agent, recipe, "agent")]


def test_candidates_and_agents_are_not_labelled_as_learners(records: list[Record]) -> None:
    assert {one.label for one in records if one.role != "learner"} == {"behaviour"}
    assert {one.label for one in records if one.role == "learner"} == {"ddpg"}
    assert {one.algorithm for one in records} == {"ddpg"}


def test_a_batch_may_be_the_first_rows_of_a_life(folder: Path) -> None:
    whole, beginning = (
        bcq.load(folder / directory_name(batch) / "batch.hdf5") for batch in (WHOLE, BEGINNING)
    )
    assert (len(whole), len(beginning)) == (STEPS, 120)
    for name in ("observations", "actions", "rewards", "next_observations", "terminated"):
        np.testing.assert_array_equal(getattr(beginning, name), getattr(whole, name)[:120])


def test_a_run_that_diverges_is_a_finished_job_with_a_record(
    records: list[Record], folder: Path
) -> None:
    (one,) = (one for one in records if one.task == "imitation")
    assert one.divergence is not None
    assert one.divergence["step"] == 100
    assert one.truths == []
    assert one.measures == {}
    assert [step for step, _ in one.evaluations] == [0]
    assert one.batch is not None
    assert jobs.is_finished(DIVERGING, folder)
    assert all(other.divergence is None for other in records if other is not one)


def test_records_survive_their_file(records: list[Record], tmp_path: Path) -> None:
    write_records(records, tmp_path / "runs.jsonl")
    again = read_records(tmp_path / "runs.jsonl")
    assert sorted(map(str, again)) == sorted(map(str, records))


def test_the_order_of_runs_does_not_change_their_file(tmp_path: Path) -> None:
    runs = [made_up("imitation", "bcq", 1, schedule={"steps": steps}) for steps in (3, 1, 2)]
    for name, order in (("one", runs), ("two", runs[::-1])):
        write_records(order, tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    rows = rows_in(tmp_path / "one")
    assert [row["schedule"]["steps"] for row in rows] == [1, 2, 3]
    assert [row["format"] for row in rows] == [3, 3, 3]


def test_records_of_another_version_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    write_records([made_up("imitation", "bcq", 1)], path)
    path.write_text(path.read_text().replace('"format": 3', '"format": 4'))
    with pytest.raises(bcq.InputError, match=r"does not have the format of this version \(3\)"):
        read_records(path)


def test_every_number_of_a_record_has_six_digits(records: list[Record]) -> None:
    numbers = [
        *(value for one in records for _, episodes in one.evaluations for value in episodes),
        *(value for one in records for _, value in one.estimates),
        *(value for one in records for row in one.truths for value in row.values()),
    ]
    assert len(numbers) > 20
    for number in numbers:
        assert float(f"{number:.6g}") == number


def test_a_theory_that_is_not_checked_yet_has_no_result(tmp_path: Path) -> None:
    assert theory_of([Theory()], tmp_path) is None
    folder = tmp_path / directory_name(Theory())
    folder.mkdir()
    (folder / "done.json").write_text("{}")
    (folder / "theory.json").write_text('{"statements": []}')
    wanted = {"fingerprint": jobs.fingerprint(Theory()), "statements": []}
    assert theory_of([OFFLINE, Theory()], tmp_path) == wanted


def test_the_batch_of_a_learner_tells_what_its_expert_earns(records: list[Record]) -> None:
    for one in records:
        if one.role != "learner":
            assert one.batch is None
        else:
            assert one.batch is not None
            assert (one.batch["expert_return"] is None) == (one.task == "concurrent")


def rows_in(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_record_is_what_the_runs_files_say(records: list[Record], folder: Path) -> None:
    directory = folder / directory_name(OFFLINE)
    (one,) = (one for one in records if one.role == "learner" and len(one.experiments) == 2)
    assert (one.env, one.algorithm, one.seed, one.task) == (NAME, "ddpg", 0, "concurrent")
    config = json.loads((directory / "config.json").read_text())
    assert (one.settings, one.schedule) == (config["settings"], config["schedule"])
    episodes = rows_in(directory / "episodes.jsonl")
    for step, returns in one.evaluations:
        assert returns == pytest.approx([r["return"] for r in episodes if r["step"] == step], 1e-5)
    assert sum(len(returns) for _, returns in one.evaluations) == len(episodes)
    pairs = rows_in(directory / "values.jsonl")
    for truth in one.truths:
        here = [row for row in pairs if row["step"] == truth["step"]]
        truths = [row["truth"] for row in here]
        assert truth["pairs"] == len(here) > 1
        assert truth["estimate"] == pytest.approx(np.mean([r["estimate"] for r in here]), 1e-5)
        assert truth["truth"] == pytest.approx(np.mean(truths), rel=1e-5)
        assert truth["truth_std"] == pytest.approx(np.std(truths), rel=1e-4, abs=1e-6)
        limited = np.mean([row["limited"] for row in here])
        assert truth["truth_to_time_limit"] == pytest.approx(limited, rel=1e-5)
    assert {truth["step"] for truth in one.truths} == {row["step"] for row in pairs}
    assert one.measures == json.loads((directory / "measures.json").read_text())
    assert one.batch == json.loads((folder / directory_name(WHOLE) / "batch.json").read_text())
    assert {name: one.made[name] for name in ("commit", "threads", "versions")} == {
        name: config[name] for name in ("commit", "threads", "versions")
    }


def test_the_seconds_of_a_run_are_all_that_it_noted(folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "jobs"
    shutil.copytree(folder, copy)
    timing = copy / directory_name(OFFLINE) / "timing.jsonl"
    timing.write_text('{"step": 1, "seconds": 1.5}\n{"step": 2, "acting": 6.25, "learning": 8.0}\n')
    found = {each.role: each.made["seconds"] for each in gather({"extrapolation": [OFFLINE]}, copy)}
    assert found["learner"] == 15.8
    (copy / directory_name(OFFLINE) / "done.json").unlink()
    assert [one.role for one in gather({"extrapolation": [OFFLINE]}, copy)] == ["agent"]


def test_the_estimates_of_a_run_are_those_that_it_noted(folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "jobs"
    shutil.copytree(folder, copy)
    rows = [{"step": 100, "critic_loss": 3.0}, {"step": 2_500, "value_estimate": 7.6543219}]
    metrics = copy / directory_name(OFFLINE) / "metrics.jsonl"
    metrics.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = {each.role: each.estimates for each in gather({"extrapolation": [OFFLINE]}, copy)}
    assert found["learner"] == [(2_500, 7.65432)]


def test_the_summary_of_a_batch_is_that_of_its_rows(folder: Path) -> None:
    for batch in (WHOLE, BEGINNING, IMITATION):
        directory = folder / directory_name(batch)
        summary = json.loads((directory / "batch.json").read_text())
        dataset = bcq.load(directory / "batch.hdf5")
        ends = np.flatnonzero(dataset.terminated | dataset.truncated) + 1
        earned = [float(part.sum()) for part in np.split(dataset.rewards, ends)[: len(ends)]]
        assert summary["transitions"] == batch.transitions == len(dataset)
        assert summary["complete_episodes"] == len(earned) > 0
        assert summary["mean_return"] == pytest.approx(np.mean(earned), rel=1e-5)
        assert summary["largest_reward"] == pytest.approx(np.abs(dataset.rewards).max())


def test_trials_are_compared_at_the_steps_of_the_first() -> None:
    steps, values = aligned([[(0, 1.0), (10, 3.0)], [(0, 0.0), (5, 10.0), (20, 40.0)]])
    assert steps.tolist() == [0, 10]
    assert values.tolist() == [[1, 3], [0, 20]]


def test_numbers_of_a_record_have_six_digits() -> None:
    assert rounded(np.float32(1234567.0)) == 1234570
    assert rounded(0.00012345678) == 0.000123457


# The last policy and critics


class Logged(eqx.Module):
    """Acts as logged in a batch whose observations are numbered, off by a constant."""

    actions: jax.Array
    off: float

    def act(self, observations: jax.Array, keys: jax.Array) -> jax.Array:
        return self.actions[observations[:, 0].astype(int)] + self.off


def numbered(rows: int = 400) -> Dataset:
    random = np.random.default_rng(0)
    observations = np.zeros((rows, 2), np.float32)
    observations[:, 0] = np.arange(rows)
    arrays = {
        "observations": observations,
        "actions": random.uniform(-1.5, 1.5, (rows, 3)).astype(np.float32),
        "rewards": np.ones(rows, np.float32),
        "next_observations": observations,
        "terminated": np.arange(rows) == rows - 1,
    }
    bounds = ActionBounds(np.full(3, -2.0), np.full(3, 2.0))
    return Dataset.from_columns(Columns("test", arrays, Provenance()), bounds)


@pytest.mark.parametrize("off", [0.0, 0.1])
def test_the_distance_from_the_logged_actions_is_in_half_widths(off: float) -> None:
    dataset = numbered()
    scaled = jnp.asarray(dataset.bounds.normalise(dataset.actions))
    measures = final_measures(bcq.Policy(Logged(scaled, off), dataset.task), dataset, seed=0)
    assert measures["action_distance"] == pytest.approx(off, abs=1e-6)
    assert measures["doubt_in_unseen_actions"] is None


def test_an_ensemble_that_doubts_what_it_has_not_seen_is_told_from_one_that_knows_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dataset = numbered()
    learner = create(EnsembleConfig(members=2, hidden_sizes=(4, 4)), dataset, seed=0)
    scaled = jnp.asarray(dataset.bounds.normalise(dataset.actions))

    unseen: list[np.ndarray] = []

    def measured(spread: Any) -> float | None:
        monkeypatch.setattr("bcq.experiments.measures.spread", spread)
        policy = bcq.Policy(learner, dataset.task)
        return final_measures(policy, dataset, seed=0)["doubt_in_unseen_actions"]

    def distance(_: Any, observations: Any, actions: Any) -> Any:
        unseen.append(actions)
        return np.abs(actions - scaled[observations[:, 0].astype(int)]).sum(axis=1)

    assert measured(distance) == 1.0
    others = unseen[0]  # anywhere within the bounds, which are -1 and 1 to a learner
    assert others.dtype == np.float32
    assert -1 <= others.min() < -0.9
    assert 0.9 < others.max() <= 1
    assert measured(lambda _, observations, __: np.zeros(len(observations))) == 0.0
    assert measured(lambda *a: -distance(*a)) == 0.0
    random = np.random.default_rng(1)
    blind = measured(lambda _, observations, __: random.normal(size=len(observations)))
    assert blind == pytest.approx(0.5, abs=0.1)


def test_a_thousand_states_of_the_batch_are_looked_at_and_none_twice() -> None:
    dataset = numbered(1_500)
    looked_at: list[float] = []
    seeds: list[int] = []

    def act(observations: Any, *, seed: int) -> Any:
        looked_at.extend(observations[:, 0].tolist())
        seeds.append(seed)
        return dataset.actions[observations[:, 0].astype(int)]

    policy: Any = SimpleNamespace(act=act, learner=None)
    for seed in (0, 1):
        assert final_measures(policy, dataset, seed=seed)["action_distance"] == 0
    assert len(looked_at) == 2_000
    for rows in (looked_at[:1_000], looked_at[1_000:]):
        assert len(set(rows)) == 1_000
        assert max(rows) > 1_400
    assert looked_at[:1_000] != looked_at[1_000:]
    assert seeds[0] != seeds[1]


def test_paper_agents_are_the_papers(folder: Path) -> None:
    del folder
    assert OnlineAgent(LIFE).as_json()["settings"] == {
        **vars(DDPGConfig()),
        "hidden_sizes": (8, 8),
        "batch_size": 16,
        "actor_learning_rate": 3e-4,
    }


def test_a_folder_is_no_file_of_records(tmp_path: Path) -> None:
    with pytest.raises(bcq.InputError, match=f"{tmp_path}: is a folder; give a file"):
        read_records(tmp_path)
