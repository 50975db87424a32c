"""How long a run trains, how often it is evaluated, and which checkpoints it keeps."""

from dataclasses import dataclass
from typing import Literal

from bcq.algorithms.learning import check_settings
from bcq.system.errors import InputError, require_seed
from bcq.training.loop import CHUNK

Keep = int | Literal["all"]


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Length of a run, evaluations and checkpoints; the defaults are those of the paper."""

    steps: int = 1_000_000
    """number of updates"""
    seed: int = 0
    """seed of all random numbers: initial weights, minibatches, noise, evaluation"""
    env: str | None = None
    """Gymnasium environment for evaluation; training itself needs none"""
    evaluate_every: int = 5_000
    """number of updates between two evaluations (a multiple of 100)"""
    evaluate_episodes: int = 10
    """number of episodes per evaluation"""
    checkpoint_every: int = 5_000
    """number of updates between two checkpoints (a multiple of 100)"""
    keep: Keep = 1
    """number of checkpoints to keep (the newest)"""
    true_value_every: int | None = None
    """updates between two measurements of true values (a multiple of 100; needs an environment)"""
    concurrent: bool = False
    """replay the batch as a growing buffer (the concurrent task of the paper):
    after each episode, one update per row of it, on all rows so far;
    the run ends with the last complete episode"""

    def __post_init__(self) -> None:
        check_settings(
            self,
            at_least_one=("steps", "evaluate_every", "evaluate_episodes", "checkpoint_every"),
        )
        require_seed(self.seed)
        require_keep(self.keep)
        for name in ("evaluate_every", "checkpoint_every", "true_value_every"):
            if (every := getattr(self, name)) is not None and (every < 1 or every % CHUNK):
                raise InputError(f"{name}: {every} is not a positive multiple of {CHUNK}")
        if self.true_value_every is not None and self.env is None:
            raise InputError("true_value_every: needs an environment", option="env")


@dataclass(frozen=True, kw_only=True)
class BehaviourSchedule:
    """Exploration and length of a behavioural agent; the defaults are those of the paper."""

    env: str
    """Gymnasium environment to learn in"""
    steps: int = 1_000_000
    """number of time steps to explore"""
    seed: int = 0
    """seed of all random numbers: weights, episodes, exploration, minibatches, evaluation"""
    noise: float = 0.1
    """standard deviation of the exploration noise, in half-widths of the action range;
    if the actions are choices, the probability of a random choice"""
    random_steps: int | None = None
    """number of uniformly random actions at the start; if not given, 1,000 (HalfCheetah: 10,000)"""
    evaluate_every: int = 5_000
    """number of time steps between two evaluations; each is made at the next end of an episode"""
    evaluate_episodes: int = 10
    """number of episodes per evaluation"""
    keep: Keep = 1
    """number of checkpoints to keep (the newest); each evaluation makes one"""

    def __post_init__(self) -> None:
        if self.random_steps is None:
            warm_up = 10_000 if self.env.startswith("HalfCheetah") else 1_000
            object.__setattr__(self, "random_steps", warm_up)
        check_settings(
            self,
            at_least_one=("steps", "evaluate_every", "evaluate_episodes"),
            not_negative=("noise", "random_steps"),
        )
        require_keep(self.keep)
        require_seed(self.seed)


def require_keep(keep: Keep) -> None:
    """Refuses to keep no checkpoint at all."""
    if keep != "all" and keep < 1:
        raise InputError(f"keep: {keep} is not at least 1")
