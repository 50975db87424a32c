"""What a reproduction will cost, by speeds that are given here instead of measured."""

import json
import signal
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

import bcq
from bcq.algorithms import BCConfig, BCQConfig, DDPGConfig
from bcq.algorithms.learning import AlgorithmConfig
from bcq.data.columns import Columns, Provenance
from bcq.data.dataset import Dataset
from bcq.experiments import estimate as module
from bcq.experiments.estimate import Speeds, bytes_of, estimate, longest_chain, seconds_of
from bcq.experiments.jobs import Job, directory_name
from bcq.experiments.kinds import Batch, Experts, OnlineAgent, Theory, Training
from bcq.runs.schedules import BehaviourSchedule, Schedule
from bcq.system import interruption
from bcq.system.errors import InterruptionError

START = 8.0  # seconds until a worker has begun
KEPT = 25_000_000  # bytes of a run directory
LIMIT = 200  # steps of an episode of Pendulum


class Given(Speeds):
    """100 updates a second (DDPG 50), a hundredth of a second to act, a thousandth to step."""

    def measure(self, env: str, config: AlgorithmConfig) -> tuple[float, float]:
        return (50.0 if isinstance(config, DDPGConfig) else 100.0), 0.01

    def seconds_a_step(self, env: str) -> float:
        return 0.001


def training(config: AlgorithmConfig, **changes: Any) -> Training:
    batch = Batch("random", "Pendulum-v1", 5_000, 0)
    plan: dict[str, Any] = {"steps": 2_000, "seed": 0, "env": "Pendulum-v1", "evaluate_every": 500}
    return Training(config, Schedule(**plan | {"evaluate_episodes": 5} | changes), batch)


AGENT = OnlineAgent(BehaviourSchedule(env="Pendulum-v1", steps=2_000, seed=0, noise=0.1))


def test_a_training_takes_its_updates_its_evaluations_and_its_truths(tmp_path: Path) -> None:
    evaluation = LIMIT * (0.01 + 5 * 0.001)
    expected = START + 2_000 / 100 + 4 * evaluation
    assert seconds_of(training(BCConfig()), tmp_path, Given()) == pytest.approx(expected)
    truth = LIMIT * (10 * 0.01 + 100 * 0.001)
    measured = training(BCQConfig(), true_value_every=1_000)
    expected += 2 * truth
    assert seconds_of(measured, tmp_path, Given()) == pytest.approx(expected)


def test_agents_and_batches_take_their_steps(tmp_path: Path) -> None:
    expected = START + 2_000 * (1 / 50 + 0.01 + 0.001)
    assert seconds_of(AGENT, tmp_path, Given()) == pytest.approx(expected)
    collected = Batch("random", "Pendulum-v1", 5_000, 0)
    assert seconds_of(collected, tmp_path, Given()) == pytest.approx(START + 5_000 * 0.0011)
    cut = Batch("concurrent", "Pendulum-v1", 2_000, 0, AGENT)
    for job in (cut, Experts((AGENT,), 1), Theory()):
        assert seconds_of(job, tmp_path, Given()) == START


def test_what_is_done_takes_no_time(tmp_path: Path) -> None:
    job = training(BCConfig())
    directory = tmp_path / directory_name(job)
    directory.mkdir()
    (directory / "metrics.jsonl").write_text(json.dumps({"step": 1_000}) + "\n")
    expected = START + 1_000 / 100 + 2 * LIMIT * (0.01 + 5 * 0.001)
    assert seconds_of(job, tmp_path, Given()) == pytest.approx(expected)
    (directory / "done.json").write_text("{}")
    assert seconds_of(job, tmp_path, Given()) == 0


def test_batches_are_as_large_as_their_numbers() -> None:
    """Pendulum: twice 3 observations, an action, a reward and two flags; qpos and qvel of 8."""
    speeds = Speeds()
    row = 4 * (2 * 3 + 1) + 16 + 32
    assert bytes_of(Batch("random", "Pendulum-v1", 5_000, 0), speeds) == 5_000 * row + KEPT
    assert bytes_of(AGENT, speeds) == 2_000 * row + KEPT
    assert bytes_of(training(BCConfig()), speeds) == KEPT
    assert bytes_of(Theory(), speeds) == 0
    assert bytes_of(Experts((AGENT,), 1), speeds) == 0


def test_without_states_of_a_simulator_a_row_is_smaller() -> None:
    speeds = Speeds()
    arrays = {
        name: values
        for name, values in bcq.collect_random("Pendulum-v1", transitions=9)
        .columns()
        .arrays.items()
        if name not in ("qpos", "qvel")
    }
    columns = Columns("log", arrays, Provenance())
    bounds = bcq.ActionBounds(np.array([-2.0]), np.array([2.0]))
    speeds.data["Pendulum-v1"] = Dataset.from_columns(columns, bounds)
    row = 4 * (2 * 3 + 1) + 32
    assert bytes_of(Batch("random", "Pendulum-v1", 100, 0), speeds) == 100 * row + KEPT


def test_workers_share_the_jobs_but_a_chain_cannot_be_shared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "Speeds", Given)
    jobs: list[Job] = [training(BCConfig()), training(BCConfig(), seed=1)]
    own = START + 20 + 4 * LIMIT * 0.015
    for workers, total in ((1, 2 * own), (2, own), (9, own)):
        # what they need is not among the jobs of this list
        monkeypatch.setattr(Training, "needs", ())
        seconds, together, size = estimate(jobs, tmp_path, workers)
        assert seconds == pytest.approx([own, own])
        assert together == pytest.approx(total)
        assert size == 2 * KEPT


def test_the_longest_chain_is_that_of_needs() -> None:
    batch = Batch("concurrent", "Pendulum-v1", 2_000, 0, AGENT)
    other = Batch("random", "Pendulum-v1", 10, 0)
    learner = Training(BCConfig(), training(BCConfig()).schedule, batch)
    assert longest_chain([AGENT, other, batch, learner], [5.0, 11.0, 2.0, 3.0]) == 11
    assert longest_chain([AGENT, other, batch, learner], [5.0, 9.0, 2.0, 3.0]) == 10
    assert longest_chain([], []) == 0
    agents = tuple(OnlineAgent(replace(AGENT.schedule, seed=seed)) for seed in range(3))
    experts = Experts(agents, 1)
    assert longest_chain([*agents, experts], [5.0, 9.0, 2.0, 1.0]) == 10  # after the slowest


def test_speeds_are_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a clock that only training (0.1 s a hundred updates) and acting (0.01 s) move."""
    clock = [0.0]
    taken: list[int] = []

    def updates(*_: Any, **__: Any) -> Any:
        for step in range(100, 10_000, 100):
            clock[0] += 0.1
            taken.append(step)
            yield SimpleNamespace(step=step) if step == 100 else (step, "learner", {})

    class Acting:
        def __init__(self, *_: Any) -> None:
            self.compiled = False

        def act(self, observations: Any, **_: Any) -> None:
            assert len(observations) == 10
            clock[0] += 0.01 if self.compiled else 5.0
            self.compiled = True

    monkeypatch.setattr(module, "train", updates)
    monkeypatch.setattr(module, "Policy", Acting)
    monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: clock[0]))
    speeds = Speeds()
    for _ in range(2):
        found = speeds.of("Pendulum-v1", cast(AlgorithmConfig, BCConfig()))
        assert found == pytest.approx((1_000, 0.01))
    assert 2_000 <= len(taken) * 100 <= 2_300  # two seconds, once
    assert len(speeds.dataset("Pendulum-v1")) == 2_000
    assert speeds.dataset("Pendulum-v1") is speeds.dataset("Pendulum-v1")


def test_steps_are_timed_by_collecting(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]

    def collect(env: str, *, transitions: int) -> Any:
        assert env == "Pendulum-v1"
        clock[0] += 3.0
        return [None] * transitions

    monkeypatch.setattr(module, "collect_random", collect)
    monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: clock[0]))
    speeds = Speeds()
    assert speeds.seconds_a_step("Pendulum-v1") == speeds.seconds_a_step("Pendulum-v1") == 0.0015
    assert clock == [3.0]


def test_without_a_time_limit_an_episode_is_taken_to_last_a_thousand_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "time_limit_of", lambda env: None)
    expected = START + 2_000 / 100 + 4 * 1_000 * (0.01 + 5 * 0.001)
    assert seconds_of(training(BCConfig()), tmp_path, Given()) == pytest.approx(expected)


def test_an_estimate_can_be_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interruption, "arrived", [signal.SIGINT])
    with pytest.raises(InterruptionError):
        seconds_of(training(BCConfig()), tmp_path, Given())


def test_measuring_tells_how_many_jobs_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = []

    def over(jobs: Any, *words: str) -> Any:
        shown.append((len(jobs), *words))
        return jobs

    monkeypatch.setattr(module, "over", over)
    seconds, _, _ = estimate([Theory()], tmp_path, 1)
    assert seconds == [START]
    assert shown == [(1, "measuring", "job")]
