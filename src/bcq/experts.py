"""Experts: trained by the behavioural agent's own command, ranked, and a few bundled."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
import safetensors.numpy
from jax import Array
from safetensors import SafetensorError

from bcq.algorithms import DDPG, DDPGConfig
from bcq.behaviour import BehaviourSchedule, train_behaviour
from bcq.dataset import TaskSpec
from bcq.errors import InputError
from bcq.evaluation import evaluate
from bcq.files import make_directory, replacing, require_regular, write_text
from bcq.networks import Actor
from bcq.policy import Policy
from bcq.runs import Row, Run, named_arrays, read_json, returns_by_step, with_arrays

BUNDLED = Path(__file__).parent / "bundled"
LAST = 10  # evaluations that an agent is ranked by
CARD_EPISODES = 100


class ActorAlone(eqx.Module):
    """What is left of DDPG when it no longer learns."""

    actor: Actor

    def act(self, observations: Array, keys: Array) -> Array:
        """The actor's action, without noise."""
        del keys  # nothing is drawn
        return self.actor(observations)


@dataclass(frozen=True)
class Expert:
    """A policy, where it belongs, and what is known of it."""

    name: str
    environment: str
    policy: Policy
    card: Row


def bundled(environment: str) -> list[Path]:
    """Experts that ship with the package, the best first."""
    return sorted(BUNDLED.glob(f"{environment}-*.safetensors"))


def find(source: str, environment: str) -> Expert:
    """A bundled expert by its number, or any policy by its file or run directory."""
    if source.isdecimal():
        paths = bundled(environment)
        if int(source) >= len(paths):
            raise InputError(
                f"policy {source}: {len(paths)} experts of {environment} are bundled; "
                "train one with `bcq experts train`, and name its folder with --policy"
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
    known = run.config["schedule"].get("env") or run.config["dataset"].get("environment")
    digest = hashlib.sha256(safetensors.numpy.save(named_arrays(policy.learner))).hexdigest()
    name = f"{run.config['algorithm']} at step {run.checkpoint_step()} ({digest[:12]})"
    return Expert(name, known or environment, policy, run.config)


def read_expert(path: str | Path) -> Expert:
    """An expert from its safetensors file and the card beside it."""
    path = Path(path)
    require_regular(path)
    card = read_json(path.with_suffix(".json"))
    try:
        task = TaskSpec.from_json(card["task"])
        sizes = (task.observation_size, task.action_size, tuple(card["hidden_sizes"]))
        skeleton = jax.eval_shape(lambda: ActorAlone(Actor(*sizes, jax.random.key(0))))
        arrays = safetensors.numpy.load(path.read_bytes())
        learner = with_arrays(skeleton, arrays, path)
        name = f"expert {path.stem} (seed {card['seed']}, {card['steps']:,} steps)"
        return Expert(name, card["environment"], Policy(learner, task), card)
    except (OSError, SafetensorError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from error
    except (KeyError, TypeError, ValueError, ArithmeticError) as error:
        raise InputError(f"{path.with_suffix('.json')}: is no expert's card: {error}") from error


def describe(expert: Expert) -> str:
    """A line on an expert, selection disclosed."""
    card = expert.card
    mean, std = (
        card[f"{kind}_return_of_{CARD_EPISODES}_fresh_episodes"] for kind in ("mean", "std")
    )
    return (
        f"{expert.environment} {card['rank']}: return {mean:.0f} ± {std:.0f} (std, "
        f"{CARD_EPISODES} episodes); {card['algorithm']}, {card['steps']:,} steps, seed "
        f"{card['seed']}, number {card['rank'] + 1} of {len(card['ranking'])} by the last ten "
        f"evaluations ({card['mean_return_of_the_last_ten_evaluations']:.0f})"
    )


def train_experts(
    directory: Path, schedules: Sequence[BehaviourSchedule], *, keep: int
) -> list[Path]:
    """Trains an agent for each schedule, keeps the best, records all; finished ones stay.

    Ranked by the mean of the last ten evaluations. Every agent's figures are in
    `ENV-ranking.json`, so that the selection can be judged.
    """
    runs = [
        train_behaviour(
            directory / f"{schedule.env}-seed{schedule.seed}", DDPGConfig(), schedule, resume=True
        )
        for schedule in schedules
    ]
    return keep_best(runs, directory / "kept", keep=keep)


def keep_best(runs: Sequence[Run], kept: Path, *, keep: int) -> list[Path]:
    """Writes the best agents by the mean of their last ten evaluations, and how all fared."""
    ranked = sorted(runs, key=score, reverse=True)
    ranking = [
        {
            "seed": run.config["schedule"]["seed"],
            "steps": run.checkpoint_step(),
            "score": score(run),
            "kept": i < keep,
        }
        for i, run in enumerate(ranked)
    ]
    make_directory(kept)
    environment = runs[0].config["schedule"]["env"]
    write_text(kept / f"{environment}-ranking.json", json.dumps(ranking, indent=2) + "\n")
    return [
        write_expert(run, kept / f"{environment}-{rank}.safetensors", rank, ranking)
        for rank, run in enumerate(ranked[:keep])
    ]


def score(run: Run) -> float:
    """The mean of the last ten evaluations."""
    evaluations = returns_by_step(run)
    return float(np.mean([np.mean(evaluations[step]) for step in sorted(evaluations)[-LAST:]]))


def write_expert(run: Run, path: Path, rank: int, ranking: list[Row]) -> Path:
    """The actor of a run, with a card that says where it comes from and what it earns."""
    policy = run.policy()
    assert isinstance(policy.learner, DDPG)
    alone = ActorAlone(policy.learner.actor.model)
    schedule = run.config["schedule"]
    test = evaluate(Policy(alone, run.task), schedule["env"], episodes=CARD_EPISODES, seed=rank)
    card: dict[str, Any] = {
        "environment": schedule["env"],
        "algorithm": run.config["algorithm"],
        "seed": schedule["seed"],
        "steps": run.checkpoint_step(),
        "rank": rank,
        "ranking": ranking,
        "mean_return_of_the_last_ten_evaluations": score(run),
        f"mean_return_of_{CARD_EPISODES}_fresh_episodes": test.mean,
        f"std_return_of_{CARD_EPISODES}_fresh_episodes": test.std,
        "hidden_sizes": run.config["settings"]["hidden_sizes"],
        "task": run.config["task"],
        "schedule": schedule,
        "settings": run.config["settings"],
        "versions": run.config["versions"],
        "commit": run.config["commit"],
        "threads": run.config["threads"],
    }
    write_text(path.with_suffix(".json"), json.dumps(card, indent=2) + "\n")
    with replacing(path) as temporary:
        temporary.write_bytes(safetensors.numpy.save(named_arrays(alone)))
    return path
