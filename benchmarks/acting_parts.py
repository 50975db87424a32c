"""What a trained policy returns if a part of it is left out when it acts.

    python benchmarks/acting_parts.py RUN ... [--episodes 20]

Nothing is trained again. A run of BCQ acts without its perturbation, without the choice among
samples, or with the latent in the middle; one of VAE-BC with other limits of the latent. Episode i
begins in the same state for all.
"""

import argparse
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
from bank import environment_of
from results import record

from bcq.algorithms import BCQConfig, VAEBCConfig
from bcq.algorithms.learning import Acting
from bcq.runs.directory import Run
from bcq.simulation.evaluation import evaluate
from bcq.training.policy import Policy

MIDDLE = 1e-6  # a limit of the latent; it must be positive
ONE, STILL = {"num_acting_samples": 1}, {"max_perturbation": 0.0}
BCQ_PARTS: Mapping[str, Mapping[str, Any]] = {
    "as trained": {},
    "one sample": ONE,
    "Phi 0.02": {"max_perturbation": 0.02},
    "Phi 0": STILL,
    "Phi 0, one sample": ONE | STILL,
    "Phi 0, latent 0": ONE | STILL | {"latent_clip": MIDDLE},
}
VAE_BC_PARTS: Mapping[str, Mapping[str, Any]] = {
    f"latent within {clip:g}": {"latent_clip": clip} for clip in (MIDDLE, 0.25, 0.5, 1.0, 2.0, 10.0)
}


def acting_with(run: Run, **changes: Any) -> Policy:
    """The run's policy, with the weights that it learned and other settings."""
    policy, config = run.policy(), run.config.algorithm
    sizes = policy.task.observation_size, policy.task.action_size
    other = replace(config, **changes).create(*sizes, jax.random.key(0))
    learner: Acting = jax.tree.unflatten(jax.tree.structure(other), jax.tree.leaves(policy.learner))
    return Policy(learner, policy.task)


def measured(run: Run, episodes: int) -> dict[str, list[float]]:
    """The return of each episode, part by part."""
    environment = environment_of(run)
    match run.config.algorithm:
        case BCQConfig():
            parts = BCQ_PARTS
        case VAEBCConfig():
            parts = VAE_BC_PARTS
        case _:
            raise SystemExit(f"{run.directory}: is a run of neither BCQ nor VAE-BC")
    found = {}
    print(f"{run.directory.name}, {run.checkpoint_step():,} updates, {episodes} episodes")
    for name, changes in parts.items():
        result = evaluate(acting_with(run, **changes), environment, episodes=episodes, seed=0)
        print(f"  {name:<20} {result.mean:8.0f} ± {result.std:.0f}", flush=True)
        found[name] = [round(float(one), 1) for one in result.returns]
    return found


def main() -> None:
    """Measures every run, and keeps all returns."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--episodes", type=int, default=20)
    given = parser.parse_args()
    record(
        "acting parts",
        {path.name: measured(Run.open(path), given.episodes) for path in given.runs},
    )


if __name__ == "__main__":
    main()
