"""Gymnasium's environments: made by name, checked, and their simulator's state."""

from typing import Any, NamedTuple

import gymnasium
import numpy as np
from numpy.typing import NDArray

from bcq.dataset import ActionBounds, TaskSpec
from bcq.errors import InputError

Environment = gymnasium.Env[NDArray[Any], NDArray[np.float32]]


class SimulatorState(NamedTuple):
    """Positions and velocities, from which a simulator can be set again."""

    qpos: NDArray[np.float64]
    qvel: NDArray[np.float64]


def make(name: str) -> Environment:
    """The environment of that name, if its observations and actions are vectors of numbers."""
    try:
        environment: Environment = gymnasium.make(name)
    except (gymnasium.error.Error, ImportError) as error:
        raise InputError(f"environment {name}: {error}") from error
    observations, actions = environment.observation_space, environment.action_space
    for kind, space in (("observations", observations), ("actions", actions)):
        if not isinstance(space, gymnasium.spaces.Box) or len(space.shape) != 1:
            raise InputError(
                f"environment {name}: its {kind} are {space}; only vectors of numbers are supported"
            )
    return environment


def make_for(name: str, task: TaskSpec) -> Environment:
    """The environment of that name, if it fits the data's sizes."""
    environment = make(name)
    actual = task_of(environment)
    for kind, ours, theirs in (
        ("observations", task.observation_size, actual.observation_size),
        ("actions", task.action_size, actual.action_size),
    ):
        if ours != theirs:
            raise InputError(
                f"environment {name}: its {kind} have {theirs} numbers but the data's have {ours}; "
                "give the environment that the data came from"
            )
    return environment


def task_of(environment: Environment) -> TaskSpec:
    """Sizes and action bounds of an environment."""
    actions = environment.action_space
    assert isinstance(actions, gymnasium.spaces.Box)
    assert environment.observation_space.shape is not None
    return TaskSpec(environment.observation_space.shape[0], ActionBounds(actions.low, actions.high))


def registered_bounds(name: str | None) -> ActionBounds | None:
    """Action bounds of an environment that is already known to Gymnasium.

    The name may come from a file, and Gymnasium imports the module in `module:name`; so a name
    that is not in its registry is not made. Nor is one whose own dependencies are missing.
    """
    if name not in gymnasium.registry:
        return None
    try:
        return task_of(make(name)).bounds
    except InputError:
        return None


def require_registered(name: str) -> None:
    """Refuses a name out of a file that Gymnasium would have to import a module for."""
    if name not in gymnasium.registry:
        raise InputError(
            f"environment {name}: is named by a file and is not known here; give it with --env"
        )


def reset_seed(seed: int, episode: int) -> int:
    """The seed an episode starts from, below 2**31 as seeds are throughout."""
    return int(np.random.SeedSequence((seed, episode)).generate_state(1)[0] >> 1)


def simulator_state(environment: Environment) -> SimulatorState | None:
    """The state that an environment is in, if it can be had."""
    simulator: Any = environment.unwrapped
    if hasattr(simulator, "data"):  # MuJoCo
        return SimulatorState(simulator.data.qpos.copy(), simulator.data.qvel.copy())
    if environment.spec is not None and environment.spec.id.startswith("Pendulum"):
        angle, velocity = simulator.state
        return SimulatorState(np.array([angle], float), np.array([velocity], float))
    return None
