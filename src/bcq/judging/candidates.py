"""Runs and their kept checkpoints, judged by episodes that they did not learn from."""

import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np

from bcq.data.dataset import Dataset
from bcq.data.splits import of_episodes
from bcq.judging.behaviour import behaviour_of
from bcq.judging.importance import importance_of
from bcq.judging.support import support_of
from bcq.judging.values import LEAST_EPISODES, compare
from bcq.judging.verdict import Judgement
from bcq.runs.configuration import LoggedBatch
from bcq.runs.directory import Run
from bcq.system import progress
from bcq.system.errors import InputError, require_seed
from bcq.system.seeds import Role, derive
from bcq.training.policy import Policy

FitOn = Literal["held-out", "all"]
DISCOUNT = 0.99  # if no run has one, as in imitation


class Candidate(NamedTuple):
    """A policy to choose: a checkpoint of a run."""

    run: Run
    step: int

    def __str__(self) -> str:
        return f"{self.run.directory} at {self.step:,}"

    def policy(self) -> Policy:
        """The policy at this checkpoint."""
        return self.run.policy(self.step)


@dataclass(frozen=True)
class Episodes:
    """The episodes to choose among candidates by, and to judge the chosen one by."""

    choosing: Dataset
    judging: Dataset


def candidates_of(runs: Sequence[Run]) -> list[Candidate]:
    """Every kept checkpoint of every run."""
    for number, run in enumerate(runs):
        if not run.checkpoints():
            raise InputError(f"{run.directory}: has no checkpoint yet")
        if run.directory.resolve() in {one.directory.resolve() for one in runs[:number]}:
            raise InputError(f"{run.directory}: is given twice")
    return [Candidate(run, one["step"]) for run in runs for one in run.checkpoints()]


def episodes_for(runs: Sequence[Run], dataset: Dataset, fit_on: FitOn, candidates: int) -> Episodes:
    """The episodes that the runs kept aside, or all; halved if there is something to choose.

    The best of several estimates is too high, so the chosen policy is judged by other episodes.
    """
    aside = []
    for run in runs:
        batch = run.config.dataset
        if not isinstance(batch, LoggedBatch):
            raise InputError(f"{run.directory}: learned online, not from a batch")
        if batch.fingerprint != dataset.fingerprint:
            raise InputError(
                f"this is not the batch that {run.directory} was trained on; read it with the "
                "columns, bounds and lags of the training"
            )
        aside.append(batch.hold_out)
    if fit_on == "all":
        judged = dataset
    elif any(one != aside[0] for one in aside):
        raise InputError("these runs did not keep the same episodes aside; judge them separately")
    elif aside[0] is None:
        raise InputError(
            f"{runs[0].directory}: learned from every episode of the batch; keep some aside when "
            "training, or judge it by the episodes that it learned from",
            option="hold_out",
        )
    else:
        judged = aside[0].divide(dataset)[1]
    if candidates == 1:
        return Episodes(judged, judged)
    numbers = np.arange(len(judged.episodes))
    if len(numbers) < 2 * LEAST_EPISODES:
        raise InputError(
            f"choosing among {candidates} candidates and judging the best need at least "
            f"{LEAST_EPISODES} episodes each; there are {len(numbers)} in all"
        )
    return Episodes(*(of_episodes(judged, numbers[start::2]) for start in (0, 1)))


def discount_of(runs: Sequence[Run]) -> float:
    """The discount of the runs' algorithms, which must agree."""
    known = sorted({each for run in runs if (each := run.algorithm.discount) is not None})
    if len(known) > 1:
        raise InputError(
            f"these runs have different discounts: {', '.join(map(str, known))}",
            option="judged_discount",
        )
    return known[0] if known else DISCOUNT


def judge(policy: Policy, dataset: Dataset, *, discount: float, seed: int = 0) -> Judgement:
    """A policy against the behaviour that logged these episodes."""
    require_seed(seed)
    seed = derive(seed, Role.JUDGE)
    clock = [time.perf_counter()]
    values = compare(policy, dataset, discount=discount, seed=seed)
    clock.append(time.perf_counter())
    choices = dataset.task.choices
    behaviour = None if choices is None else behaviour_of(values.fitted.log, seed)
    support = support_of(policy, dataset, values, behaviour, seed=seed)
    clock.append(time.perf_counter())
    sampled = importance_of(policy, dataset, values, behaviour, discount=discount, seed=seed)
    clock.append(time.perf_counter())
    parts = ("fitted values", "support", "importance sampling")
    return Judgement(
        values, support, sampled, dict(zip(parts, np.diff(clock).tolist(), strict=True))
    )


@dataclass(frozen=True)
class Choice:
    """The best of several candidates, and the judgement on it."""

    fit_on: FitOn
    discount: float
    chosen: Candidate
    judgement: Judgement  # of the chosen one
    judged_by: int  # episodes
    ranking: list[tuple[Candidate, Judgement]]  # by other episodes, the best first; or empty

    @property
    def clear(self) -> bool:
        """Whether the best candidate can be told from all others."""
        return not self.rivals

    @property
    def rivals(self) -> int:
        """How many candidates cannot be told from the best; suspect values are no rivals."""
        if not self.ranking:
            return 0
        first, *others = (judgement for _, judgement in self.ranking)
        alike = [one for one in others if one.preference[0] == first.preference[0]]
        return sum(not first.values.above(one.values).low > 0 for one in alike)

    @property
    def over_seeds(self) -> list[list[float]]:
        """The values of runs that differ only in their seed, each at its last checkpoint."""
        groups = defaultdict(list)
        for candidate, judgement in self.ranking:
            if candidate.step == candidate.run.checkpoint_step():
                config = candidate.run.config
                alike = config.algorithm, replace(config.schedule, seed=0), config.dataset
                groups[alike].append(judgement.values.policy.value)
        return [values for values in groups.values() if len(values) > 1]


def choose(
    runs: Sequence[Run],
    dataset: Dataset,
    *,
    fit_on: FitOn = "held-out",
    discount: float | None = None,
    seed: int = 0,
) -> Choice:
    """Judges one candidate; of several it chooses the best first, by other episodes."""
    candidates = candidates_of(runs)
    discount = discount_of(runs) if discount is None else discount
    episodes = episodes_for(runs, dataset, fit_on, len(candidates))
    ranking = []
    if len(candidates) > 1:
        for candidate in candidates:
            progress.say(f"{candidate}: comparing it with the other candidates")
            judgement = judge(candidate.policy(), episodes.choosing, discount=discount, seed=seed)
            ranking.append((candidate, judgement))
        ranking.sort(key=lambda one: one[1].preference, reverse=True)
    chosen = ranking[0][0] if ranking else candidates[0]
    judgement = judge(chosen.policy(), episodes.judging, discount=discount, seed=seed)
    judged_by = len(episodes.judging.episodes)
    return Choice(fit_on, discount, chosen, judgement, judged_by, ranking)
