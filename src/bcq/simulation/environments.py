"""Gymnasium environments: created by name, checked, and the state of their simulators."""

import math
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from numpy.typing import NDArray

from bcq.data.bounds import ActionBounds, Choices, TaskSpec
from bcq.data.columns import NUMBERS, Floats
from bcq.system.errors import InputError

Environment = gymnasium.Env[NDArray[Any], NDArray[np.float32]]

VELOCITY_CLIP = 10.0  # of Hopper's and Walker2d's observations
NO_TIME_LIMIT: dict[str, Any] = {"max_episode_steps": -1}  # how Gymnasium spells no limit


# Places of positions and velocities in the state of Gymnasium's classic simulators.
CLASSIC: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "Pendulum": ((0,), (1,)),
    "CartPole": ((0, 2), (1, 3)),
    "Acrobot": ((0, 1), (2, 3)),
}


class SimulatorState(NamedTuple):
    """Positions and velocities: enough to set a simulator to this state."""

    qpos: NDArray[np.float64]
    qvel: NDArray[np.float64]


def in_words(error: Exception) -> str:
    """An exception of foreign code in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split()):.200}"


class Checked(
    gymnasium.Wrapper[NDArray[Any], NDArray[np.float32], NDArray[Any], NDArray[np.float32]]
):
    """An environment whose failures become an InputError with its name."""

    def __init__(self, environment: Environment, name: str):
        super().__init__(environment)
        self.name = name

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[Any], dict[str, Any]]:
        """The first observation."""
        try:
            observation, info = self.env.reset(seed=seed, options=options)
        except Exception as error:
            raise InputError(f"environment {self.name}: reset failed: {in_words(error)}") from error
        self.require_numbers(observation, "reset")
        return observation, info

    def step(
        self, action: NDArray[np.float32]
    ) -> tuple[NDArray[Any], Any, bool, bool, dict[str, Any]]:
        """The next observation, the reward, and whether the episode ended."""
        space: Any = self.action_space
        chosen: Any = space.start + int(action[0]) if is_discrete(space) else action
        try:
            observation, reward, terminated, truncated, info = self.env.step(chosen)
            finite = math.isfinite(reward)
        except Exception as error:
            raise InputError(f"environment {self.name}: step failed: {in_words(error)}") from error
        if not finite:
            raise InputError(f"environment {self.name}: step returned a reward of {reward}")
        self.require_numbers(observation, "step")
        return observation, reward, terminated, truncated, info

    def require_numbers(self, observation: object, place: str) -> None:
        """Refuses an observation that is not a finite vector of the declared shape."""
        values = np.asarray(observation)
        expected = self.observation_space.shape
        if values.dtype.kind not in NUMBERS or values.shape != expected:
            raise InputError(
                f"environment {self.name}: {place} returned an observation of {values.dtype} and "
                f"shape {values.shape}, not {expected}"
            )
        if not np.isfinite(values).all():
            raise InputError(f"environment {self.name}: {place} returned a non-finite observation")


def make(name: str, *, time_limit: bool = True) -> Environment:
    """The environment of that name, if it has vectors of numbers, or choices as actions."""
    try:
        made: Environment = gymnasium.make(name, **{} if time_limit else NO_TIME_LIMIT)
        environment = Checked(made, name)
    except (gymnasium.error.Error, ImportError) as error:
        raise InputError(f"environment {name}: {error}") from error
    except Exception as error:  # foreign code may raise anything
        raise InputError(f"environment {name}: cannot be created: {in_words(error)}") from error
    observations, actions = environment.observation_space, environment.action_space
    for kind, space in (("observations", observations), ("actions", actions)):
        if kind == "actions" and is_discrete(space):
            continue
        if not isinstance(space, gymnasium.spaces.Box) or len(space.shape) != 1:
            raise InputError(
                f"environment {name}: its {kind} are {space}; only vectors of numbers are supported"
            )
    return environment


def is_discrete(space: gymnasium.Space[Any]) -> bool:
    """Whether the actions of an environment are choices."""
    return isinstance(space, gymnasium.spaces.Discrete)


def make_for(name: str, task: TaskSpec, *, time_limit: bool = True) -> Environment:
    """The environment of that name, if its sizes are those of the data."""
    environment = make(name, time_limit=time_limit)
    actual = task_of(environment)
    if (task.choices is None) != (actual.choices is None):
        kinds = [
            "quantities" if spec.choices is None else f"{len(spec.choices)} choices"
            for spec in (actual, task)
        ]
        raise InputError(
            f"environment {name}: its actions are {kinds[0]}, those of the data {kinds[1]}; give "
            "the environment of the data"
        )
    for kind, ours, theirs in (
        ("observations", task.reading_size, actual.observation_size),
        ("actions", task.action_size, actual.action_size),
    ):
        if ours != theirs:
            raise InputError(
                f"environment {name}: its {kind} have {theirs} numbers, those of the data {ours}; "
                "give the environment of the data"
            )
    return environment


def time_limit_of(name: str) -> int | None:
    """The time limit of an environment in steps, if it has one."""
    return gymnasium.spec(name).max_episode_steps


def task_of(environment: Environment) -> TaskSpec:
    """Sizes and action bounds of an environment."""
    actions: Any = environment.action_space
    assert environment.observation_space.shape is not None
    bounds = (
        Choices([str(actions.start + number) for number in range(actions.n)])
        if is_discrete(actions)
        else ActionBounds(actions.low, actions.high)
    )
    return TaskSpec(environment.observation_space.shape[0], bounds)


def registered_bounds(name: str | None) -> ActionBounds | None:
    """Action bounds of an environment that is already known to Gymnasium.

    The name may come from a file, and Gymnasium imports the module in `module:name`. Therefore a
    name that is not registered gives None, as does one whose dependencies are missing.
    """
    if name not in gymnasium.registry:
        return None
    try:
        environment = make(name)
    except InputError:
        return None
    bounds = task_of(environment).bounds
    environment.close()
    return bounds


def require_registered(name: str) -> None:
    """Refuses a name from a file if Gymnasium would have to import a module for it."""
    if name not in gymnasium.registry:
        raise InputError(f"environment {name}: is named in a file but not registered", option="env")


def simulator_state(environment: Environment) -> SimulatorState | None:
    """The current state of the simulator, if it can be read."""
    simulator: Any = environment.unwrapped
    if hasattr(simulator, "data"):  # MuJoCo
        return SimulatorState(simulator.data.qpos.copy(), simulator.data.qvel.copy())
    if places := CLASSIC.get(kind(environment)):
        state = np.array(simulator.state, float)
        return SimulatorState(*(state[list(part)] for part in places))
    return None


def set_simulator_state(environment: Environment, state: SimulatorState) -> None:
    """Sets the simulator of an environment to a state, after a reset."""
    simulator: Any = environment.unwrapped
    if hasattr(simulator, "set_state"):  # MuJoCo
        simulator.set_state(state.qpos, state.qvel)
    else:
        places = np.concatenate(CLASSIC[kind(environment)])
        simulator.state = np.concatenate([state.qpos, state.qvel])[np.argsort(places)]


def kind(environment: Environment) -> str:
    """The name of an environment without its version."""
    return "" if environment.spec is None else environment.spec.id.partition("-")[0]


def state_from_observation(environment: Environment, observation: Floats) -> SimulatorState:
    """The state of the simulator, if an observation determines it (up to rounding).

    The position along the track is not observed, and does not matter.
    """
    values = observation.astype(float)
    match kind(environment):
        case "HalfCheetah" | "Hopper" | "Walker2d" as name:
            joints = {"HalfCheetah": 8, "Hopper": 5, "Walker2d": 8}[name]
            if name != "HalfCheetah" and (np.abs(values[joints:]) >= VELOCITY_CLIP).any():
                raise InputError(f"a velocity is clipped by {name} at {VELOCITY_CLIP:g}")
            return SimulatorState(np.append(0.0, values[:joints]), values[joints:])
        case "Reacher":
            angles = np.arctan2(values[2:4], values[:2])
            return SimulatorState(
                np.concatenate([angles, values[4:6]]), np.append(values[6:8], [0.0, 0.0])
            )
        case "Pendulum":
            return SimulatorState(np.arctan2(values[1:2], values[:1]), values[2:3])
        case "CartPole":
            return SimulatorState(values[::2], values[1::2])
        case "Acrobot":
            return SimulatorState(np.arctan2(values[1:4:2], values[:4:2]), values[4:])
    raise InputError("the state cannot be computed from observations")
