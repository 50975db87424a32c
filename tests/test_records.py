"""Records: which role a run has, what a diverged one leaves, what is measured at the end."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bcq
import short_task
from bcq.algorithms import DDPGConfig, EnsembleConfig
from bcq.collection.behaviour import BehaviourSchedule
from bcq.data.bounds import ActionBounds
from bcq.data.columns import Columns, Provenance
from bcq.data.dataset import Dataset
from bcq.experiments import jobs, kinds
from bcq.experiments.jobs import Job, directory_name, perform
from bcq.experiments.kinds import Batch, Behaviour, Experts, Training
from bcq.experiments.measures import final_measures
from bcq.experiments.records import Record, gather, read_records, write_records
from bcq.paper.presets import ExperimentName
from bcq.runs.recording import Schedule
from bcq.training.loop import create
from short_task import AGENT, NAME, STEPS

LIFE = BehaviourSchedule(
    env=NAME, steps=STEPS, random_steps=30, evaluate_every=100, evaluate_episodes=2
)
AGENTS = tuple(Behaviour(replace(LIFE, seed=seed)) for seed in range(2))
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


def test_the_batch_of_a_learner_tells_what_its_expert_earns(records: list[Record]) -> None:
    for one in records:
        if one.role != "learner":
            assert one.batch is None
        else:
            assert one.batch is not None
            assert (one.batch["expert_return"] is None) == (one.task == "concurrent")


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

    def measured(spread: Any) -> float | None:
        monkeypatch.setattr("bcq.experiments.measures.spread", spread)
        policy = bcq.Policy(learner, dataset.task)
        return final_measures(policy, dataset, seed=0)["doubt_in_unseen_actions"]

    def distance(_: Any, observations: Any, actions: Any) -> Any:
        return np.abs(actions - scaled[observations[:, 0].astype(int)]).sum(axis=1)

    assert measured(distance) == 1.0
    assert measured(lambda *a: -distance(*a)) == 0.0
    random = np.random.default_rng(1)
    blind = measured(lambda _, observations, __: random.normal(size=len(observations)))
    assert blind == pytest.approx(0.5, abs=0.1)


def test_paper_agents_are_the_papers(folder: Path) -> None:
    del folder
    assert Behaviour(LIFE).as_json()["settings"] == {
        **vars(DDPGConfig()),
        "hidden_sizes": (8, 8),
        "batch_size": 16,
        "actor_learning_rate": 3e-4,
    }
