"""The behavioural agent, which learns online: DDPG (supplement F, G), or double DQN for choices.

After each episode it makes one update per time step of the episode. Its run directory also contains
every transition, in order: `rows.bin`.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import cast

import jax.numpy as jnp
import numpy as np

from bcq.algorithms.learning import Transitions
from bcq.collection.agents import IN_WORDS, AgentConfig, AgentLearner, act, alone
from bcq.collection.buffer import (
    RowFile,
    StoredRows,
    as_dataset,
    as_rows,
    empty_on_device,
    row_type,
    write_to_device,
)
from bcq.collection.noise import perturbed, require_noise, uniform
from bcq.data.bounds import ActionBounds, Choices, TaskSpec
from bcq.data.columns import Column, Floats, Provenance
from bcq.data.dataset import Dataset
from bcq.runs.configuration import OwnExperience, RunConfiguration
from bcq.runs.directory import ROWS, Run
from bcq.runs.origin import Origin
from bcq.runs.recorder import Recorder, open_run
from bcq.runs.schedules import BehaviourSchedule
from bcq.simulation.environments import Environment, make, task_of
from bcq.simulation.rollouts import Step, lockstep
from bcq.system import interruption
from bcq.system.errors import InputError
from bcq.system.files import locked, make_directory
from bcq.system.progress import Progress
from bcq.system.seeds import Role, derive, exploration, reset_seed
from bcq.training.loop import ESTIMATE_EVERY, Keys, create_compiled, require_kind, updates


@dataclass
class Agent:
    """A behavioural agent at the end of an episode."""

    learner: AgentLearner
    buffer: Transitions
    steps: int = 0  # time steps, and updates
    episodes: int = 0


def train_behaviour(
    directory: Path, config: AgentConfig, schedule: BehaviourSchedule, *, resume: bool = False
) -> Run:
    """Trains online into a run directory. A resumed run gives the same result."""
    environment = make(schedule.env)
    environment.reset(seed=0)
    task = task_of(environment)
    require_kind(config, task)
    require_noise(schedule.noise, task.bounds)
    make_directory(directory)
    with locked(directory):
        configuration = configuration_of(config, schedule, task)
        run = open_run(directory, configuration, resume=resume)
        with interruption.deferred():
            continue_behaviour(run, config, schedule, environment)
    environment.close()
    return run


def behaviour_dataset(run: Run, recipe: str, *, first: int | None = None) -> Dataset:
    """The first transitions that an agent collected, by default all, in order."""
    schedule = schedule_of(run)
    environment = make(schedule.env)
    environment.reset(seed=0)
    rows = RowFile(run.directory / ROWS, row_type(environment)).read()[:first]
    provenance = Provenance(
        environment=schedule.env,
        recipe=recipe,
        behaviour=f"{IN_WORDS[run.config.algorithm_name]} learning, noise {schedule.noise:g}",
        seed=schedule.seed,
        version=run.config.origin.versions["bcq"],
    )
    return as_dataset(rows, run.task.bounds, provenance, str(run.directory))


def schedule_of(run: Run) -> BehaviourSchedule:
    """The schedule of a behavioural agent; other runs are refused."""
    if not isinstance(run.config.schedule, BehaviourSchedule):
        raise InputError(f"{run.directory}: is not the run of an agent that learned online")
    return run.config.schedule


def configuration_of(
    config: AgentConfig, schedule: BehaviourSchedule, task: TaskSpec
) -> RunConfiguration:
    """Everything that a behavioural agent depends on."""
    return RunConfiguration(
        algorithm=config,
        schedule=schedule,
        dataset=OwnExperience(schedule.env),
        task=task,
        origin=Origin.of_this_process(),
    )


def continue_behaviour(
    run: Run, config: AgentConfig, schedule: BehaviourSchedule, environment: Environment
) -> None:
    """Explores and learns from the newest checkpoint, or from the start, to the schedule's end."""
    log = RowFile(run.directory / ROWS, row_type(environment))
    keys = Keys.of(derive(schedule.seed, Role.AGENT))
    agent = restored(run, config, schedule, log, keys)
    with Progress("exploring", schedule.steps, "step", done=agent.steps) as bar:
        recorder = Recorder(run, schedule, bar)
        if run.checkpoint_step() is None:
            recorder.evaluate(0, agent.learner)
        while agent.steps < schedule.steps:
            start = time.perf_counter()
            rows = as_rows(episode(environment, agent, schedule), log.kind)
            log.append(rows)
            if not (rows["terminated"][-1] or rows["truncated"][-1]):
                break  # the schedule ends within an episode: its rows are kept but not learned from
            acted = time.perf_counter()
            before = agent.steps
            learn(recorder, agent, rows, keys)
            seconds = {"acting": acted - start, "learning": time.perf_counter() - acted}
            run.append("timing.jsonl", [{"step": agent.steps, **seconds}])
            due = agent.steps // schedule.evaluate_every > before // schedule.evaluate_every
            if due:
                recorder.evaluate(agent.steps, agent.learner)
            recorder.checkpoint(agent.steps, agent.learner, due=due)
        log.sync()
        recorder.finish(agent.steps, agent.learner)


def restored(
    run: Run, config: AgentConfig, schedule: BehaviourSchedule, log: RowFile, keys: Keys
) -> Agent:
    """The agent at the newest checkpoint, or a new one."""
    task = run.task
    steps, learner = run.rewind() or (
        0,
        create_compiled(config, task.observation_size, task.action_size, keys.creation),
    )
    log.cut_back(steps)
    rows = log.read()
    return Agent(
        learner=cast(AgentLearner, learner),
        buffer=write_to_device(empty_on_device(task, schedule.steps), rows, 0, task.bounds),
        steps=steps,
        episodes=int((rows["terminated"] | rows["truncated"]).sum()),
    )


def episode(environment: Environment, agent: Agent, schedule: BehaviourSchedule) -> Iterator[Step]:
    """Plays the next episode, until it or the schedule ends."""
    own = derive(schedule.seed, Role.AGENT)
    observation, _ = environment.reset(seed=reset_seed(own, agent.episodes))
    generator = exploration(own, agent.episodes)
    bounds, acting = task_of(environment).bounds, alone(agent.learner)
    random_steps = schedule.random_steps or 0

    def explore(observations: Floats, _: object, time: int) -> Floats:
        random = agent.steps + time < random_steps
        chosen = None if random else np.asarray(act(acting, observations))
        return explored(chosen, schedule.noise, bounds, generator)

    left = schedule.steps - agent.steps
    return islice(lockstep([environment], observation[None], explore), left)


def explored(
    chosen: Column | None, noise: float, bounds: ActionBounds, generator: np.random.Generator
) -> Floats:
    """What an agent does: what it has chosen, with noise; if nothing, a uniformly random action."""
    if isinstance(bounds, Choices):
        if chosen is None:
            return bounds.denormalise(uniform(bounds, generator))
        return bounds.denormalise(perturbed(chosen, noise, bounds, generator))
    shape = (1, bounds.outputs)
    if chosen is None:
        actions = generator.uniform(-1, 1, shape)
    else:
        actions = chosen + generator.normal(0, noise, shape)
    return bounds.denormalise(np.clip(actions, -1, 1).astype(np.float32))


def learn(recorder: Recorder, agent: Agent, rows: StoredRows, keys: Keys) -> None:
    """Makes one update per row of an episode that has ended, on all rows so far."""
    agent.buffer = write_to_device(agent.buffer, rows, agent.steps, recorder.run.task.bounds)
    end = agent.steps + len(rows)
    for step, learner, metrics in updates(
        (agent.steps, agent.learner),
        agent.buffer,
        jnp.array([end]),
        keys,
        until=end,
        every=ESTIMATE_EVERY,
        rows=agent.learner.config.batch_size,
    ):
        agent.learner, agent.steps = cast(AgentLearner, learner), step
        recorder.log(step, learner, metrics, episode=agent.episodes)
    agent.episodes += 1
