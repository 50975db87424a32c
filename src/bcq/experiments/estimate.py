"""Estimates what a list of jobs costs, from a short measurement on this machine."""

import time
from collections.abc import Sequence
from pathlib import Path

from bcq.algorithms import DDPGConfig
from bcq.algorithms.learning import AlgorithmConfig
from bcq.collection.recipes import collect_random
from bcq.data.dataset import Dataset
from bcq.experiments.forms import steps_done
from bcq.experiments.jobs import Job, fingerprint, is_finished
from bcq.experiments.judged import Judging
from bcq.experiments.kinds import Batch, OnlineAgent, Training
from bcq.simulation.environments import time_limit_of
from bcq.system import interruption
from bcq.system.progress import over
from bcq.training.loop import train
from bcq.training.policy import Policy

SECONDS = 2.0  # during which updates are timed
START = 8.0  # seconds until a worker does its first update: imports, compiled code, data
CHECKPOINTS = 25_000_000  # bytes of a run directory, BCQ's optimizer included
A_POLICY = 120.0  # seconds to judge one, on an AVX2 core; no short test tells when fits settle
ROW_BYTES = 4 * 8  # of a transition, besides its numbers


class Speeds:
    """Updates and steps per second. Each is measured once, when it is first needed."""

    def __init__(self) -> None:
        self.measured: dict[tuple[str, object], tuple[float, float]] = {}
        self.data: dict[str, Dataset] = {}
        self.stepping: dict[str, float] = {}

    def of(self, env: str, config: AlgorithmConfig) -> tuple[float, float]:
        """Updates per second, and the seconds that it takes to act in ten episodes at once."""
        if (env, config) not in self.measured:
            self.measured[env, config] = self.measure(env, config)
        return self.measured[env, config]

    def measure(self, env: str, config: AlgorithmConfig) -> tuple[float, float]:
        """Times a few hundred updates. The first hundred do not count, because they compile."""
        dataset = self.dataset(env)
        progress = train(config, dataset, steps=1_000_000)
        first = next(progress)
        start = time.perf_counter()
        step, learner, _ = next(progress)
        while time.perf_counter() - start < SECONDS:
            step, learner, _ = next(progress)
        updates = (step - first.step) / (time.perf_counter() - start)
        policy, observations = Policy(learner, dataset.task), dataset.observations[:10]
        policy.act(observations, seed=0)
        start = time.perf_counter()
        for i in range(20):
            policy.act(observations, seed=0, step=i)
        return updates, (time.perf_counter() - start) / 20

    def dataset(self, env: str) -> Dataset:
        """A small batch with the sizes of the environment."""
        if env not in self.data:
            start = time.perf_counter()
            self.data[env] = collect_random(env, transitions=2_000)
            self.stepping[env] = (time.perf_counter() - start) / 2_000
        return self.data[env]

    def seconds_a_step(self, env: str) -> float:
        """The time of one step of the environment, including storing the transition."""
        self.dataset(env)
        return self.stepping[env]


def seconds_of(job: Job, folder: Path, speeds: Speeds) -> float:
    """An upper estimate: every evaluation is assumed to last until the time limit."""
    interruption.check()
    if is_finished(job, folder):
        return 0.0
    left = job.length - steps_done(job, folder)
    match job:
        case Training():
            env, schedule = job.batch.env, job.schedule
            updates, acting = speeds.of(env, job.config)
            limit, step = time_limit_of(env) or 1_000, speeds.seconds_a_step(env)
            evaluations = left / schedule.evaluate_every if schedule.env else 0
            truths = left / schedule.true_value_every if schedule.true_value_every else 0
            evaluation = limit * (acting + schedule.evaluate_episodes * step)
            truth = limit * (10 * acting + 100 * step)
            return START + left / updates + evaluations * evaluation + truths * truth
        case OnlineAgent():
            env = job.schedule.env
            updates, acting = speeds.of(env, DDPGConfig())
            return START + left * (1 / updates + acting + speeds.seconds_a_step(env))
        case Batch() if not isinstance(job.source, OnlineAgent):
            return START + left * (speeds.seconds_a_step(job.env) + 1e-4)
        case Judging():
            return START + left * A_POLICY
        case _:
            return START


def bytes_of(job: Job, speeds: Speeds) -> int:
    """The size of the job's folder on disk."""
    match job:
        case Training():
            schedule = job.schedule
            kept = schedule.steps // schedule.checkpoint_every if schedule.keep == "all" else 1
            return CHECKPOINTS * kept
        case OnlineAgent() | Batch():
            env = job.schedule.env if isinstance(job, OnlineAgent) else job.env
            data = speeds.dataset(env)
            state = 0 if data.qpos is None else 16 * data.qpos.shape[1]
            sizes = data.task
            row = 4 * (2 * sizes.observation_size + sizes.action_size) + state + ROW_BYTES
            return job.length * row + CHECKPOINTS
        case _:
            return 0


def estimate(jobs: Sequence[Job], folder: Path, workers: int) -> tuple[list[float], float, int]:
    """The seconds of each job, of all jobs on this number of workers, and bytes on disk."""
    speeds = Speeds()
    seconds = [seconds_of(job, folder, speeds) for job in over(jobs, "measuring", "job")]
    total = max(sum(seconds) / workers, longest_chain(jobs, seconds))
    return seconds, total, sum(bytes_of(job, speeds) for job in jobs)


def longest_chain(jobs: Sequence[Job], seconds: Sequence[float]) -> float:
    """The minimum with any number of workers: a job starts after the jobs that it needs."""
    ends: dict[str, float] = {}
    for job, own in zip(jobs, seconds, strict=True):
        needs = [ends[fingerprint(need)] for need in job.needs]
        ends[fingerprint(job)] = own + max(needs, default=0.0)
    return max(ends.values(), default=0.0)
