"""Episodes in lock-step: one row per environment, and one call for the actions of all."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bcq.data.bounds import TaskSpec
from bcq.data.columns import Flags, Floats
from bcq.data.history import History
from bcq.simulation.environments import Environment, SimulatorState, simulator_state

RowNumbers = NDArray[np.int64]
# (observations, which environments they are of, time step) -> actions
Act = Callable[[Floats, RowNumbers, int], Floats]


def remembering(task: TaskSpec, act: Act, past: Floats | None = None) -> Act:
    """`act` for a task whose observations include past steps, of each environment its own.

    `past` are the past numbers of the observations that the environments start from; without it,
    their episodes begin.
    """
    if task.layout.past is None:
        return act
    histories: dict[int, History] = {}

    def act_on_history(readings: Floats, rows: RowNumbers, time: int) -> Floats:
        for i in rows.tolist():
            if i not in histories:
                histories[i] = History(task, None if past is None else past[i])
        of = [histories[i] for i in rows.tolist()]
        observations = [history.observe(one) for history, one in zip(of, readings, strict=True)]
        actions = act(np.stack(observations), rows, time)
        for history, action in zip(of, actions, strict=True):
            history.acted(action)
        return actions

    return act_on_history


class Step(NamedTuple):
    """One time step of the episodes that are still running, one row per episode."""

    episodes: RowNumbers  # the environment of each row
    observations: Floats
    states: list[SimulatorState | None]  # before the step
    actions: Floats
    rewards: NDArray[np.float64]
    next_observations: Floats
    terminated: Flags
    truncated: Flags


def lockstep(environments: Sequence[Environment], observations: Floats, act: Act) -> Iterator[Step]:
    """Steps environments together, from their current states, until each episode has ended.

    An environment whose episode has ended is not stepped, not reset, and gets no actions.
    """
    observations = np.array(observations, np.float32)
    running, time = np.arange(len(environments)), 0
    while len(running):
        actions = act(observations[running], running, time)
        states = [simulator_state(environments[i]) for i in running.tolist()]
        results = [
            environments[i].step(action)
            for i, action in zip(running.tolist(), actions, strict=True)
        ]
        following, rewards, terminated, truncated, _ = zip(*results, strict=True)
        step = Step(
            episodes=running,
            observations=observations[running],
            states=states,
            actions=actions,
            rewards=np.array(rewards, float),
            next_observations=np.array(following, np.float32),
            terminated=np.array(terminated, bool),
            truncated=np.array(truncated, bool),
        )
        observations[running] = step.next_observations
        yield step
        running = running[~(step.terminated | step.truncated)]
        time += 1
