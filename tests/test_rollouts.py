from dataclasses import dataclass, field
from itertools import islice
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box
from numpy.typing import NDArray

from bcq.data.columns import Floats
from bcq.simulation.rollouts import Step, lockstep

LENGTHS = (3, 1, 5, 2)


@dataclass
class Scripted(gymnasium.Env[NDArray[np.float64], NDArray[np.float32]]):
    """Observes (number, time), ends when told to, and keeps what was done to it."""

    number: int
    length: int
    truncates: bool = False
    time: int = 0
    resets: int = 0
    actions: list[NDArray[np.float32]] = field(default_factory=list)
    observation_space = Box(-np.inf, np.inf, (2,), np.float64)
    action_space = Box(-1, 1, (2,), np.float32)

    def __post_init__(self) -> None:
        self.data = SimpleNamespace(qpos=np.array([0.0, self.number]), qvel=np.zeros(1))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float64], dict[str, Any]]:
        self.resets += 1
        return np.array([self.number, 0.0]), {}

    def step(
        self, action: NDArray[np.float32]
    ) -> tuple[NDArray[np.float64], float, bool, bool, dict[str, Any]]:
        assert self.time < self.length, "stepped after its end"
        self.actions.append(action.copy())
        self.time += 1
        self.data.qpos[0] = self.time  # in place, as MuJoCo does
        self.data.qvel += 0.5
        ends = self.time == self.length
        reward = 100 * self.number + self.time + 1e-9
        seen = np.array([self.number, float(self.time)])
        return seen, reward, ends and not self.truncates, ends and self.truncates, {}


def scripted() -> list[Scripted]:
    """Four environments, the odd ones with a time limit."""
    return [Scripted(i, length, truncates=i % 2 == 1) for i, length in enumerate(LENGTHS)]


def first_observations(environments: list[Scripted]) -> Floats:
    return np.array([[env.number, 0] for env in environments], np.float32)


def numbered_actions(observations: Floats, rows: NDArray[np.int64], time: int) -> Floats:
    assert len(observations) == len(rows)
    return np.array([[row / 10, time / 10] for row in rows], np.float32)


@pytest.fixture
def environments() -> list[Scripted]:
    return scripted()


@pytest.fixture
def steps(environments: list[Scripted]) -> list[Step]:
    return list(lockstep(environments, first_observations(environments), numbered_actions))


def test_an_environment_that_has_ended_is_neither_stepped_again_nor_reset(
    environments: list[Scripted], steps: list[Step]
) -> None:
    assert [env.time for env in environments] == list(LENGTHS)
    assert [env.resets for env in environments] == [0] * len(LENGTHS)
    assert len(steps) == max(LENGTHS)


def test_rows_are_of_the_episodes_that_run(steps: list[Step]) -> None:
    assert [step.episodes.tolist() for step in steps] == [[0, 1, 2, 3], [0, 2, 3], [0, 2], [2], [2]]
    for step in steps:
        for name, column in step._asdict().items():
            assert len(column) == len(step.episodes), name


def test_every_number_stands_in_the_row_of_its_episode(steps: list[Step]) -> None:
    for time, step in enumerate(steps):
        numbers, times = step.episodes, np.full(len(step.episodes), time)
        np.testing.assert_array_equal(step.observations, np.stack([numbers, times], axis=1))
        np.testing.assert_array_equal(
            step.next_observations, np.stack([numbers, times + 1], axis=1)
        )
        np.testing.assert_array_equal(
            step.actions, np.stack([numbers / 10, times / 10], axis=1).astype(np.float32)
        )
        np.testing.assert_array_equal(step.rewards, 100.0 * numbers + times + 1 + 1e-9)


def test_states_are_those_before_the_step(steps: list[Step]) -> None:
    for time, step in enumerate(steps):
        for episode, state in zip(step.episodes, step.states, strict=True):
            assert state is not None
            assert state.qpos.tolist() == [time, episode]
            assert state.qvel.tolist() == [time / 2]


def test_ends_are_what_the_environment_says(steps: list[Step]) -> None:
    for time, step in enumerate(steps):
        ended = [LENGTHS[i] == time + 1 for i in step.episodes]
        odd = [i % 2 == 1 for i in step.episodes]
        assert step.terminated.tolist() == [
            end and not limit for end, limit in zip(ended, odd, strict=True)
        ]
        assert step.truncated.tolist() == [
            end and limit for end, limit in zip(ended, odd, strict=True)
        ]


def test_each_environment_gets_the_actions_of_its_row(
    environments: list[Scripted], steps: list[Step]
) -> None:
    assert len(steps) == max(LENGTHS)
    for env in environments:
        expected = [[env.number / 10, time / 10] for time in range(env.length)]
        np.testing.assert_array_equal(env.actions, np.array(expected, np.float32))


def test_the_policy_sees_the_rows_that_run_their_numbers_and_the_time(
    environments: list[Scripted],
) -> None:
    seen = []

    def act(observations: Floats, rows: NDArray[np.int64], time: int) -> Floats:
        assert observations.dtype == np.float32
        seen.append((time, rows.tolist(), observations.tolist()))
        return numbered_actions(observations, rows, time)

    list(lockstep(environments, first_observations(environments), act))
    running = [[i for i, length in enumerate(LENGTHS) if length > t] for t in range(max(LENGTHS))]
    assert seen == [(t, rows, [[i, t] for i in rows]) for t, rows in enumerate(running)]


def test_a_slice_of_the_steps_takes_no_further_step(environments: list[Scripted]) -> None:
    steps = lockstep(environments, first_observations(environments), numbered_actions)
    assert len(list(islice(steps, 2))) == 2
    assert [env.time for env in environments] == [2, 1, 2, 2]


def test_the_observations_given_stay_as_they_are(environments: list[Scripted]) -> None:
    given = first_observations(environments)
    list(lockstep(environments, given, numbered_actions))
    np.testing.assert_array_equal(given, first_observations(environments))


def test_an_end_both_of_itself_and_by_the_limit_is_handed_on_as_both() -> None:
    class Both(Scripted):
        def step(self, action: NDArray[np.float32]) -> Any:
            seen, reward, *_ = super().step(action)
            return seen, reward, True, True, {}

    (step,) = lockstep([Both(0, 1)], np.zeros((1, 2), np.float32), numbered_actions)
    assert (step.terminated.tolist(), step.truncated.tolist()) == ([True], [True])


def test_observations_in_double_precision_are_acted_on_in_single_precision(
    environments: list[Scripted],
) -> None:
    fine: Any = first_observations(environments).astype(np.float64) + 1e-12
    seen: list[Any] = []

    def watching(observations: Floats, rows: NDArray[np.int64], time: int) -> Floats:
        seen.append(observations.dtype)
        return numbered_actions(observations, rows, time)

    steps = list(lockstep(environments, fine, watching))
    assert {*seen, *(step.observations.dtype for step in steps)} == {np.dtype(np.float32)}


def test_whole_numbers_become_rewards_ends_and_observations_of_one_type() -> None:
    class Whole(Scripted):
        def step(self, action: NDArray[np.float32]) -> Any:
            seen, _, terminated, truncated, _ = super().step(action)
            return seen.astype(int), 3, int(terminated), int(truncated), {}

    environments = [Whole(0, 2), Whole(1, 1, truncates=True)]
    steps = list(lockstep(environments, first_observations([*environments]), numbered_actions))
    assert [step.episodes.tolist() for step in steps] == [[0, 1], [0]]
    for step in steps:
        assert step.rewards.dtype == np.float64
        assert step.next_observations.dtype == np.float32
        assert step.terminated.dtype == step.truncated.dtype == np.bool_
