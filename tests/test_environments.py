"""Environments by name: what they pass on, and what they are refused for."""

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.spaces import Box, Discrete, MultiBinary

from bcq.cli.verbs import existing
from bcq.collection.agents import config_for
from bcq.data.bounds import Choices, TaskSpec
from bcq.simulation.environments import (
    make,
    make_for,
    registered_bounds,
    require_registered,
    simulator_state,
    task_of,
)
from bcq.system.errors import InputError

NAME = "Odd-v0"


class Odd(gymnasium.Env[Any, Any]):
    """Does as it is told by its options."""

    observation_space = Box(-9, 9, (3,), np.float32)
    action_space: gymnasium.Space[Any] = Box(np.array([-1, 2]), np.array([3, 5]), dtype=np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        observation = np.append(self.np_random.uniform(-1, 1, 2), 0).astype(np.float32)
        return (options or {}).get("observation", observation), {"given": options}

    def step(self, action: Any) -> Any:
        return np.zeros(3, np.float32), float(action[0]), False, False, {}


@pytest.fixture(autouse=True)
def _known(monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch)


def register(monkeypatch: pytest.MonkeyPatch, **changes: Any) -> None:
    kind = type("Kind", (Odd,), changes)
    spec = EnvSpec(NAME, lambda **_: kind(), disable_env_checker=True)
    monkeypatch.setitem(gymnasium.registry, NAME, spec)


def test_seed_options_and_actions_are_passed_on() -> None:
    env, options = make(NAME), {"a": 1}
    first, info = env.reset(seed=5, options=options)
    assert info == {"given": options}
    assert first.tolist() == env.reset(seed=5)[0].tolist() != env.reset(seed=6)[0].tolist()
    assert env.step(np.array([2.5, 3], np.float32))[1] == 2.5


@pytest.mark.parametrize(
    ("observation", "words"),
    [
        (np.array(["a", "b", "c"]), "an observation of <U1"),
        (np.array([1, None, 2], object), "an observation of object"),
        (np.zeros((1, 3)), r"shape \(1, 3\), not \(3,\)"),
        (np.array([0, np.nan, 0]), "a non-finite observation"),
        (np.array([0, np.inf, 0]), "a non-finite observation"),
    ],
)
def test_an_observation_of_another_kind_is_refused(observation: Any, words: str) -> None:
    with pytest.raises(InputError, match=f"environment {NAME}: reset returned .*{words}"):
        make(NAME).reset(options={"observation": observation})


@pytest.mark.parametrize(
    ("spaces", "words"),
    [
        ({"observation_space": Box(0, 1, (2, 2))}, "its observations are Box.*only vectors"),
        ({"observation_space": Discrete(3)}, "its observations are Discrete.*only vectors"),
        ({"action_space": Box(0, 1, ())}, "its actions are Box.*only vectors"),
        ({"action_space": MultiBinary(3)}, "its actions are MultiBinary.*only vectors"),
    ],
)
def test_other_things_than_vectors_are_refused(
    spaces: dict[str, gymnasium.Space[Any]], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(monkeypatch, **spaces)
    with pytest.raises(InputError, match=f"environment {NAME}: {words}"):
        make(NAME)
    assert registered_bounds(NAME) is None


def test_sizes_and_bounds_are_those_of_the_spaces() -> None:
    task = task_of(make(NAME))
    assert (task.observation_size, task.action_size) == (3, 2)
    for bounds in (task.bounds, registered_bounds(NAME)):
        assert bounds is not None
        assert [bounds.low.tolist(), bounds.high.tolist()] == [[-1, 2], [3, 5]]


def test_choices_are_passed_on_as_the_environment_numbers_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    register(
        monkeypatch,
        action_space=Discrete(3, start=4),
        step=lambda self, action: (np.zeros(3, np.float32), float(action), False, False, {}),
    )
    environment = make(NAME)
    assert task_of(environment).choices == ("4", "5", "6")
    assert isinstance(registered_bounds(NAME), Choices)
    environment.reset(seed=0)
    assert [environment.step(np.array([i], np.float32))[1] for i in range(3)] == [4, 5, 6]


def test_an_environment_with_the_other_kind_of_actions_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    quantities, choices = task_of(make(NAME)), TaskSpec(3, Choices(["a", "b"]))
    with pytest.raises(InputError, match="its actions are quantities, those of the data 2 choices"):
        make_for(NAME, choices)
    register(monkeypatch, action_space=Discrete(3))
    with pytest.raises(InputError, match="its actions are 3 choices, those of the data quantities"):
        make_for(NAME, quantities)
    with pytest.raises(InputError, match="its actions have 3 numbers, those of the data 2"):
        make_for(NAME, choices)


def test_names_out_of_files_must_be_known_already() -> None:
    require_registered(NAME)
    for name in ("Nowhere-v0", "some_module:Odd-v0"):
        assert registered_bounds(name) is None
        with pytest.raises(InputError, match=f"environment {name}: is named in a file"):
            require_registered(name)


def test_an_environment_without_a_name_or_a_simulator_has_no_state() -> None:
    assert simulator_state(Odd()) is None
    assert simulator_state(make(NAME)) is None


def test_an_environment_that_was_only_asked_about_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    closed: list[Any] = []
    register(monkeypatch, close=lambda self: closed.append(self))  # noqa: PLW0108 - a method
    asking: tuple[Callable[[str], object], ...] = (registered_bounds, existing, config_for)
    for times, ask in enumerate(asking, start=1):
        assert ask(NAME) is not None
        assert len(closed) == times


def test_an_observation_may_be_a_list_of_numbers() -> None:
    observation: Any = [0.5, 1.0, 0.0]
    assert make(NAME).reset(options={"observation": observation})[0] is observation
