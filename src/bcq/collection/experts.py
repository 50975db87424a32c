"""Experts: behavioural agents that are trained and ranked; a few are bundled."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, cast

import jax
import numpy as np
import safetensors.numpy
from safetensors import SafetensorError

from bcq.collection.agents import AgentLearner, alone, config_for, untrained
from bcq.collection.behaviour import schedule_of, train_behaviour
from bcq.data.bounds import TaskSpec
from bcq.runs.arrays import named_arrays, with_arrays
from bcq.runs.directory import Run, returns_by_step
from bcq.runs.schedules import BehaviourSchedule
from bcq.simulation.evaluation import evaluate
from bcq.system.errors import InputError
from bcq.system.files import Row, make_directory, read_json, replacing, require_regular, write_json
from bcq.system.seeds import Role, derive
from bcq.training.policy import Policy

BUNDLED = Path(__file__).parent / "bundled"
LAST = 10  # evaluations at the end of an agent that are averaged
SHORTLIST = 10  # checkpoints of an agent that are compared on new episodes
CHOICE_EPISODES = 50
CARD_EPISODES = 100
LEG = 100_000  # time steps by which the best agents are trained further


@dataclass(frozen=True)
class Expert:
    """A policy, its environment, and its card: what is known about it."""

    name: str
    environment: str
    policy: Policy
    card: Row


def bundled(environment: str) -> list[Path]:
    """The files of the bundled experts, in the order of their numbers."""
    return sorted(BUNDLED.glob(f"{environment}-*.safetensors"))


def find(source: str, environment: str) -> Expert:
    """A bundled expert by its number, or any policy by its file or run directory."""
    if source.isdecimal():
        paths = bundled(environment)
        if int(source) >= len(paths):
            raise InputError(
                f"policy {source}: {len(paths)} experts of {environment} are bundled",
                option="policy",
            )
        return read_expert(paths[int(source)])
    expert = of_run(Path(source), environment) if Path(source).is_dir() else read_expert(source)
    if expert.environment != environment:
        raise InputError(f"policy {source}: is for {expert.environment}, not for {environment}")
    return expert


def of_run(directory: Path, environment: str) -> Expert:
    """The policy of a run, as an expert."""
    run = Run.open(directory)
    policy = run.policy()
    digest = hashlib.sha256(safetensors.numpy.save(named_arrays(policy.learner))).hexdigest()
    name = f"{run.config.algorithm_name} at step {run.checkpoint_step()} ({digest[:12]})"
    return Expert(name, run.config.environment or environment, policy, run.config.as_json())


def read_expert(path: str | Path) -> Expert:
    """An expert from its safetensors file and the card beside it."""
    path = Path(path)
    require_regular(path)
    card = read_json(path.with_suffix(".json"))
    try:
        task = TaskSpec.from_json(card["task"])
        hidden = tuple(card["hidden_sizes"])
        skeleton = jax.eval_shape(lambda: untrained(task, hidden, jax.random.key(0)))
        arrays = safetensors.numpy.load(path.read_bytes())
        learner = with_arrays(skeleton, arrays, path)
        name = f"expert {path.stem} (seed {card['seed']}, {card['steps']:,} steps)"
        return Expert(name, card["environment"], Policy(learner, task), card)
    except (OSError, SafetensorError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from error
    except (KeyError, TypeError, ValueError, ArithmeticError) as error:
        raise InputError(
            f"{path.with_suffix('.json')}: is not the card of an expert: {error}"
        ) from error


def describe(expert: Expert) -> str:
    """One line about an expert, including how it was selected."""
    card = expert.card
    mean, std = (
        card[f"{kind}_return_of_{CARD_EPISODES}_fresh_episodes"] for kind in ("mean", "std")
    )
    final = card["ranking"][card["rank"]]
    return (
        f"{expert.environment} {card['rank']}: return {mean:.0f} ± {std:.0f} (std, "
        f"{CARD_EPISODES} episodes); {card['algorithm']}, seed {card['seed']}, number "
        f"{card['rank'] + 1} of {len(card['ranking'])}, at step {card['steps']:,} of "
        f"{final['trained_steps']:,}; mean return of its last ten "
        f"evaluations {card['mean_return_of_the_last_ten_evaluations']:.0f}"
    )


class Choice(NamedTuple):
    """The best checkpoint of an agent, and its mean return on the episodes used to choose it."""

    run: Run
    step: int
    score: float


def train_experts(
    directory: Path, schedules: Sequence[BehaviourSchedule], *, keep: int, longest: int = 0
) -> list[Path]:
    """Trains one agent per schedule and keeps the best; finished agents are not trained again.

    The best agents are trained further, `LEG` steps at a time and up to `longest` steps, as long
    as their best checkpoint is from the last leg. `ENV-ranking.json` contains the figures of all
    agents, so that readers can judge the selection.
    """

    def trained(schedule: BehaviourSchedule) -> Run:
        name = f"{schedule.env}-seed{schedule.seed}"
        if (directory / name / "config.json").exists():  # it may have been trained further
            steps = Run.open(directory / name).config.schedule.steps
            schedule = replace(schedule, steps=max(steps, schedule.steps))
        return train_behaviour(directory / name, config_for(schedule.env), schedule, resume=True)

    choices = ranked([trained(schedule) for schedule in schedules])
    for i in range(min(keep, len(choices))):
        schedule = schedule_of(choices[i].run)
        while choices[i].step > schedule.steps - LEG and schedule.steps < longest:
            schedule = replace(schedule, steps=min(schedule.steps + LEG, longest))
            choices[i] = best_checkpoint(trained(schedule))
    return write_best(choices, directory / "kept", keep=keep)


def keep_best(runs: Sequence[Run], kept: Path, *, keep: int) -> list[Path]:
    """Writes the best agents, and the ranking of all."""
    return write_best(ranked(runs), kept, keep=keep)


def ranked(runs: Sequence[Run]) -> list[Choice]:
    """The best checkpoint of each agent, the best agent first."""
    return sorted(map(best_checkpoint, runs), key=lambda choice: choice.score, reverse=True)


def best_checkpoint(run: Run) -> Choice:
    """The best checkpoint on new episodes, among those with the best evaluations."""
    evaluations = returns_by_step(run)
    kept = [one["step"] for one in run.checkpoints()]
    favoured = sorted(kept, key=lambda step: np.mean(evaluations[step]), reverse=True)[:SHORTLIST]
    schedule = schedule_of(run)
    seed = derive(schedule.seed, Role.CHOICE)
    scores = {
        step: evaluate(run.policy(step), schedule.env, episodes=CHOICE_EPISODES, seed=seed).mean
        for step in favoured
    }
    step = max(scores, key=lambda step: scores[step])
    return Choice(run, step, scores[step])


def write_best(choices: Sequence[Choice], kept: Path, *, keep: int) -> list[Path]:
    """Writes the best experts with their cards, and the ranking of all agents."""
    choices = sorted(choices, key=lambda choice: choice.score, reverse=True)
    ranking = [
        {
            "seed": run.config.schedule.seed,
            "steps": step,
            "score": score,
            "trained_steps": run.checkpoint_step(),
            "mean_return_of_the_last_ten_evaluations": last_ten(run),
            "kept": i < keep,
        }
        for i, (run, step, score) in enumerate(choices)
    ]
    make_directory(kept)
    environment = schedule_of(choices[0].run).env
    write_json(kept / f"{environment}-ranking.json", ranking)
    return [
        write_expert(choice, kept / f"{environment}-{rank}.safetensors", rank, ranking)
        for rank, choice in enumerate(choices[:keep])
    ]


def last_ten(run: Run) -> float:
    """The mean of the last ten evaluations; nothing is selected in it."""
    evaluations = returns_by_step(run)
    return float(np.mean([np.mean(evaluations[step]) for step in sorted(evaluations)[-LAST:]]))


def write_expert(choice: Choice, path: Path, rank: int, ranking: list[Row]) -> Path:
    """Writes the part of an agent that acts, with a card that states its origin and its returns."""
    run, step, score = choice
    acting = alone(cast(AgentLearner, run.policy(step).learner))
    schedule, stored = schedule_of(run), run.config.as_json()
    test = evaluate(Policy(acting, run.task), schedule.env, episodes=CARD_EPISODES, seed=rank)
    card: dict[str, Any] = {
        "environment": schedule.env,
        "algorithm": stored["algorithm"],
        "seed": schedule.seed,
        "steps": step,
        "rank": rank,
        "ranking": ranking,
        f"mean_return_of_{CHOICE_EPISODES}_episodes_it_was_chosen_by": score,
        "mean_return_of_the_last_ten_evaluations": last_ten(run),
        f"mean_return_of_{CARD_EPISODES}_fresh_episodes": test.mean,
        f"std_return_of_{CARD_EPISODES}_fresh_episodes": test.std,
        "hidden_sizes": stored["settings"]["hidden_sizes"],
        **{
            name: stored[name]
            for name in ("task", "schedule", "settings", "versions", "commit", "threads")
        },
    }
    write_json(path.with_suffix(".json"), card)
    with replacing(path) as temporary:
        temporary.write_bytes(safetensors.numpy.save(named_arrays(acting)))
    return path
