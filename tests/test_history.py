"""Acting with past steps: where a policy is used, in a simulator, and for true values."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from jax import Array
from numpy.typing import NDArray

import bcq
from bcq.cli.application import main
from bcq.data.bounds import ActionBounds, TaskSpec
from bcq.data.dataset import Dataset
from bcq.data.layout import Layout, ObservationColumn, Past
from bcq.simulation.environments import make
from bcq.simulation.evaluation import evaluate
from bcq.simulation.true_values import state_at, true_values
from bcq.training.policy import Policy

COLUMNS = (ObservationColumn("inside"), ObservationColumn("outside"))
BOUNDS = ActionBounds(np.array([0.0]), np.array([4.0]))
TASK = TaskSpec(8, BOUNDS, layout=Layout(COLUMNS, Past(2, 2, 1, ("heat",))))
# After heat of 4, 3 and 0, which are 1, 0.5 and -1 to the learner.
OBSERVATIONS: list[list[float]] = [
    [1, 10, 1, 10, 0, 1, 10, 0],
    [2, 20, 1, 10, 1, 1, 10, 0],
    [3, 30, 2, 20, 0.5, 1, 10, 1],
    [4, 40, 3, 30, -1, 2, 20, 0.5],
]


def test_a_history_has_the_newest_step_first() -> None:
    history = bcq.History(TASK)
    for row, (reading, heat) in enumerate([((1, 10), 4), ((2, 20), 3), ((3, 30), 0)]):
        observation = history.observe(reading)
        assert observation.tolist() == OBSERVATIONS[row]
        assert observation.dtype == np.float32
        history.acted([heat])
    assert history.observe({"outside": 40, "inside": 4}).tolist() == OBSERVATIONS[3]


def test_a_history_continues_after_an_observation() -> None:
    history = bcq.History(TASK, np.array(OBSERVATIONS[1][2:], np.float32))
    assert history.observe([2, 20]).tolist() == OBSERVATIONS[1]
    history.acted([3])
    assert history.observe([3, 30]).tolist() == OBSERVATIONS[2]


def test_a_history_of_nothing_is_the_reading() -> None:
    history = bcq.History(TaskSpec(2, BOUNDS))
    for reading in ([1, 10], [2, 20]):
        assert history.observe(reading).tolist() == reading
        history.acted([4])


class Echo:
    def act(self, observations: Array, keys: Array) -> Array:
        del keys
        return observations[:, :1]


def test_a_policy_with_past_steps_tells_where_they_come_from() -> None:
    for task, words in (
        (TASK, "(rows, 8), with past steps; see bcq.History"),
        (TaskSpec(8, BOUNDS), "(rows, 8)"),
    ):
        with pytest.raises(bcq.InputError) as refused:
            Policy(Echo(), task).act([[1.0, 10.0]])
        assert str(refused.value).endswith(f"this policy needs {words}")


def test_a_history_refuses_what_does_not_follow() -> None:
    history = bcq.History(TASK)
    with pytest.raises(bcq.InputError, match="there is no reading before this action"):
        history.acted([1])
    with pytest.raises(bcq.InputError, match=r"a reading has shape \(8,\), not \(2,\)"):
        history.observe(OBSERVATIONS[0])
    assert history.observe([1, 10]).dtype == np.float32
    with pytest.raises(bcq.InputError, match="the last reading has no action yet"):
        history.observe([2, 20])
    with pytest.raises(bcq.InputError, match=r"an action has shape \(\), not \(1,\)"):
        history.acted(1)
    history.acted([1])
    with pytest.raises(bcq.InputError, match="there is no reading before this action"):
        history.acted([1])


class Counting(gymnasium.Env[NDArray[Any], NDArray[np.float32]]):
    """Its reading is the number of steps, and the reward is the action."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,))
    action_space = gymnasium.spaces.Box(-2, 2, (1,))

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.count, self.length = 0, 3 + int(self.np_random.integers(3))
        return np.array([0], np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.count += 1
        over = self.count == self.length
        return np.array([self.count], np.float32), float(action[0]), over, False, {}


class Recorded(Policy):
    """Acts as the last action in its observation says, and 1 more; keeps what it sees."""

    def act(self, observations: Any, **options: Any) -> Any:
        seen.append((np.asarray(options["rows"]).tolist(), np.asarray(observations).tolist()))
        return np.asarray(observations)[:, 2:3] + np.float32(1.0)


seen: list[tuple[list[int], list[list[float]]]] = []


@pytest.fixture
def counting() -> Iterator[str]:
    gymnasium.register("Counting-v0", lambda **_: Counting())
    seen.clear()
    yield "Counting-v0"
    del gymnasium.registry["Counting-v0"]


def task_with_past(lags: int) -> TaskSpec:
    bounds = ActionBounds(np.array([-2.0]), np.array([2.0]))
    return TaskSpec(1 + 2 * lags, bounds, layout=Layout((), Past(lags, 1, 1)))


def test_an_evaluation_keeps_the_history_of_each_environment(counting: str) -> None:
    learner: Any = None
    result = evaluate(Recorded(learner, task_with_past(2)), counting, episodes=6, seed=1)
    assert len(set(result.lengths.tolist())) > 1  # environments drop out one after another
    # Actions 1, 1.5, 1.75, ...: each is its half, the number in the history, and 1.
    expected = [
        [0, 0, 0, 0, 0],
        [1, 0, 0.5, 0, 0],
        [2, 1, 0.75, 0, 0.5],
        [3, 2, 0.875, 1, 0.75],
        [4, 3, 0.9375, 2, 0.875],
    ]
    for time, (rows, observations) in enumerate(seen):
        assert rows == [i for i in range(6) if result.lengths[i] > time]
        assert observations == [expected[time]] * len(rows)
    returns = np.cumsum([1, 1.5, 1.75, 1.875, 1.9375])
    np.testing.assert_allclose(result.returns, returns[result.lengths - 1])


def test_an_environment_of_other_readings_is_refused(counting: str) -> None:
    learner: Any = None
    task = replace(task_with_past(1), observation_size=5, layout=Layout((), Past(1, 2, 1)))
    words = "its observations have 1 numbers, those of the data 2"
    with pytest.raises(bcq.InputError, match=words):
        evaluate(Recorded(learner, task), counting, episodes=1)


def test_true_values_continue_the_logged_history() -> None:
    seen.clear()
    dataset = bcq.collect_random("Pendulum-v1", transitions=400, seed=0)
    past = Dataset.from_columns(replace(dataset.columns(), lags=2))

    class Still(Policy):
        def act(self, observations: Any, **options: Any) -> Any:
            seen.append(([], np.asarray(observations).tolist()))
            return np.zeros((len(observations), 1), np.float32)

    learner: Any = None
    rows = np.array([50, 399])
    true_values(Still(learner, past.task), past, "Pendulum-v1", rows, 0.99, 0)
    first = np.array(seen[0][1])
    np.testing.assert_allclose(first[:, :3], past.next_observations[rows, :3], atol=1e-4)
    np.testing.assert_array_equal(first[:, 3:], past.next_observations[rows, 3:])
    np.testing.assert_array_equal(first[:, 6], dataset.actions[rows, 0] / 2)


def test_a_simulator_is_set_to_the_newest_reading() -> None:
    dataset = bcq.collect_random("HalfCheetah-v5", transitions=20, seed=0)
    past = Dataset.from_columns(replace(dataset.columns(), lags=2))
    environment = make("HalfCheetah-v5")
    environment.reset(seed=0)
    found = state_at(replace(past, qpos=None, qvel=None), environment, 7)
    assert dataset.qvel is not None
    np.testing.assert_allclose(found.qvel, dataset.qvel[7], rtol=1e-5, atol=1e-6)
    environment.close()


@pytest.mark.usefixtures("own_compilation_cache")
def test_a_run_with_past_steps_is_trained_and_evaluated_by_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    bcq.save(bcq.collect_random("Pendulum-v1", transitions=400, seed=0), "log.hdf5")
    data, past = ["--data", "log.hdf5"], ["--lags", "2"]
    sizes = ["--steps", "1", "--evaluate-episodes", "1", "--hidden-sizes", "4", "4"]
    main(["train", "bc", *data, *past, "--env", "Pendulum-v1", *sizes, "--out", "run"])
    main(["evaluate", "run", "--episodes", "1", "--json"])
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["lengths"] == [200]
    main(["evaluate", "run", *data, *past, "--meter", "--json"])
    assert json.loads(capsys.readouterr().out)["extrapolation_meter"] > 0
    with pytest.raises(SystemExit, match=r"log.hdf5: is not the batch that run was trained on"):
        main(["evaluate", "run", *data, "--meter"])
