"""Gymnasium's environments: made by name, checked, and their simulator's state."""

from typing import Any, NamedTuple

import gymnasium
import numpy as np
from numpy.typing import NDArray

from bcq.dataset import ActionBounds, Floats, TaskSpec
from bcq.errors import InputError

Environment = gymnasium.Env[NDArray[Any], NDArray[np.float32]]

VELOCITY_CLIP = 10.0  # of Hopper's and Walker2d's observations
NO_TIME_LIMIT: dict[str, Any] = {"max_episode_steps": -1}  # Gymnasium's word for none


class SimulatorState(NamedTuple):
    """Positions and velocities, from which a simulator can be set again."""

    qpos: NDArray[np.float64]
    qvel: NDArray[np.float64]


def make(name: str, *, time_limit: bool = True) -> Environment:
    """The environment of that name, if its observations and actions are vectors of numbers."""
    try:
        environment: Environment = gymnasium.make(name, **{} if time_limit else NO_TIME_LIMIT)
    except (gymnasium.error.Error, ImportError) as error:
        raise InputError(f"environment {name}: {error}") from error
    observations, actions = environment.observation_space, environment.action_space
    for kind, space in (("observations", observations), ("actions", actions)):
        if not isinstance(space, gymnasium.spaces.Box) or len(space.shape) != 1:
            raise InputError(
                f"environment {name}: its {kind} are {space}; only vectors of numbers are supported"
            )
    return environment


def make_for(name: str, task: TaskSpec, *, time_limit: bool = True) -> Environment:
    """The environment of that name, if it fits the data's sizes."""
    environment = make(name, time_limit=time_limit)
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


def time_limit_of(name: str) -> int | None:
    """Steps after which an environment cuts an episode, if it does."""
    return gymnasium.spec(name).max_episode_steps


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


def simulator_state(environment: Environment) -> SimulatorState | None:
    """The state that an environment is in, if it can be had."""
    simulator: Any = environment.unwrapped
    if hasattr(simulator, "data"):  # MuJoCo
        return SimulatorState(simulator.data.qpos.copy(), simulator.data.qvel.copy())
    if kind(environment) == "Pendulum":
        angle, velocity = simulator.state
        return SimulatorState(np.array([angle], float), np.array([velocity], float))
    return None


def set_simulator_state(environment: Environment, state: SimulatorState) -> None:
    """Puts an environment that has been reset into a state."""
    simulator: Any = environment.unwrapped
    if hasattr(simulator, "set_state"):  # MuJoCo
        simulator.set_state(state.qpos, state.qvel)
    else:
        simulator.state = np.concatenate([state.qpos, state.qvel])


def kind(environment: Environment) -> str:
    """An environment's name without its version."""
    return "" if environment.spec is None else environment.spec.id.partition("-")[0]


def state_from_observation(environment: Environment, observation: Floats) -> SimulatorState:
    """The simulator's state, where an observation gives it exactly (but for rounding).

    Where an environment stands along its track is not observed, and does not matter.
    """
    values = observation.astype(float)
    match kind(environment):
        case "HalfCheetah" | "Hopper" | "Walker2d" as name:
            joints = {"HalfCheetah": 8, "Hopper": 5, "Walker2d": 8}[name]
            if name != "HalfCheetah" and (np.abs(values[joints:]) >= VELOCITY_CLIP).any():
                raise InputError(f"a velocity is at {name}'s clip of {VELOCITY_CLIP:g}")
            return SimulatorState(np.append(0.0, values[:joints]), values[joints:])
        case "Reacher":
            angles = np.arctan2(values[2:4], values[:2])
            return SimulatorState(
                np.concatenate([angles, values[4:6]]), np.append(values[6:8], [0.0, 0.0])
            )
        case "Pendulum":
            return SimulatorState(np.arctan2(values[1:2], values[:1]), values[2:3])
    raise InputError("its state cannot be rebuilt from observations")
