"""The paper's batches."""

from collections import defaultdict
from importlib.metadata import version

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from bcq.dataset import Columns, Dataset, Provenance
from bcq.environments import make, reset_seed, simulator_state, task_of
from bcq.errors import InputError, require_seed


def collect_random(
    environment: str, *, transitions: int = 5_000, seed: int = 0, progress: bool = False
) -> Dataset:
    """Uniformly random actions (supplement D.3). Episode i depends on (seed, i) alone."""
    if transitions < 1:
        raise InputError(f"transitions: {transitions} is not at least 1")
    require_seed(seed)
    env = make(environment)
    bounds = task_of(env).bounds
    rows: dict[str, list[NDArray[np.generic] | float | bool]] = defaultdict(list)
    episode = -1
    ended = True
    for _ in tqdm(range(transitions), "collecting", unit="step", disable=not progress):
        if ended:
            episode += 1
            start = reset_seed(seed, episode)
            observation, _ = env.reset(seed=start)
            generator = np.random.default_rng(start)
        action = generator.uniform(bounds.low, bounds.high).astype(np.float32)
        state = simulator_state(env)
        following, reward, terminated, truncated, _ = env.step(action)
        rows["observations"].append(observation)
        rows["actions"].append(action)
        rows["rewards"].append(float(reward))
        rows["next_observations"].append(following)
        rows["terminated"].append(terminated)
        rows["truncated"].append(truncated)
        if state is not None:
            rows["qpos"].append(state[0])
            rows["qvel"].append(state[1])
        observation, ended = following, terminated or truncated
    env.close()
    columns = Columns(
        source=f"random batch of {environment}",
        arrays={name: np.array(values) for name, values in rows.items()},
        provenance=Provenance(environment, "random", "uniform", seed, version("bcq")),
    )
    return Dataset.from_columns(columns, bounds)
