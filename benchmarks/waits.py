"""One thing a user waits for, timed in a process and a Python environment of its own.

    python benchmarks/waits.py WHAT PATH

Prints one line of JSON. `benchmarks/waiting.py` asks for each several times, in turn.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from contenders import ROWS, SIZES, d3rlpy_dataset, finished, transitions

ENV, EPISODES = "Hopper-v5", 10
EVALUATE_EVERY, LONGEST = 1_000, 30_000  # updates


def timed(work: Callable[[], object]) -> float:
    """Seconds."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def load_ours(path: Path) -> object:
    """Our HDF5 file, checked, to arrays where the updates run."""
    from bcq.simulation.batches import load
    from bcq.training.loop import on_device

    return timed(lambda: finished(on_device(load(path))))


def load_d3rlpy(path: Path) -> object:
    """d3rlpy's own file to its replay buffer, as its documentation does."""
    import d3rlpy

    def load() -> object:
        with path.open("rb") as file:
            return d3rlpy.dataset.ReplayBuffer.load(file, d3rlpy.dataset.InfiniteBuffer())

    return timed(load)


def write_d3rlpy(path: Path) -> object:
    """The file for the above; not timed."""
    with path.open("w+b") as file:
        d3rlpy_dataset(transitions(ENV, 1_000_000)).dump(file)
    return None


def load_minari(path: Path) -> object:
    """A Minari data set by the minari library, to one array a column."""
    import os

    os.environ["MINARI_DATASETS_PATH"] = str(path.parent)
    import minari

    def load() -> object:
        episodes = list(minari.load_dataset(path.name).iterate_episodes())
        return {
            "observations": np.concatenate([e.observations[:-1] for e in episodes]),
            "next_observations": np.concatenate([e.observations[1:] for e in episodes]),
            **{
                name: np.concatenate([getattr(e, name) for e in episodes])
                for name in ("actions", "rewards", "terminations")
            },
        }

    return timed(load)


def evaluate_ours(path: Path) -> object:
    """Ten episodes of a run's policy: seconds and steps, compiled before."""
    from bcq.runs.directory import Run
    from bcq.simulation.evaluation import evaluate

    policy = Run.open(path).policy()
    evaluate(policy, ENV, episodes=EPISODES, seed=0)
    start = time.perf_counter()
    evaluation = evaluate(policy, ENV, episodes=EPISODES, seed=1)
    return time.perf_counter() - start, int(evaluation.lengths.sum())


def evaluate_textbook(path: Path) -> object:
    """Ten episodes of the same weights in the textbook: seconds and steps."""
    import textbook
    from agreement import fill

    learner = textbook.TextbookBCQ(*SIZES[ENV])
    with np.load(path, allow_pickle=False) as file:
        fill(learner, {name: file[name] for name in file.files})
    ten_episodes(learner, seed=0)
    start = time.perf_counter()
    lengths, _ = ten_episodes(learner, seed=1)
    return time.perf_counter() - start, sum(lengths)


def ten_episodes(learner: object, seed: int) -> tuple[list[int], list[float]]:
    """Lengths and returns of the textbook's policy, one step of one episode at a time."""
    import gymnasium
    import torch

    environment = gymnasium.make(ENV)
    lengths, returns = [], []
    for episode in range(EPISODES):
        observation, _ = environment.reset(seed=seed + episode)
        length, total, ended = 0, 0.0, False
        while not ended:
            state = torch.from_numpy(observation.astype(np.float32))
            action = learner.act(state).numpy()  # type: ignore[attr-defined]
            observation, reward, terminated, truncated, _ = environment.step(action)
            length, total, ended = length + 1, total + float(reward), terminated or truncated
        lengths.append(length)
        returns.append(total)
    return lengths, returns


def bare_stepping(path: Path) -> object:
    """Seconds a step takes with nothing else, over a batch's actions."""
    import behaviour

    from bcq.simulation.batches import load

    dataset = load(path)
    return behaviour.bare_stepping(dataset, ENV) / len(dataset)


def train_textbook(path: Path) -> object:
    """Updates and last return until an evaluation of the textbook beats the batch's average."""
    import h5py
    import textbook
    import torch

    with h5py.File(path, "r") as file:
        names = "observations", "actions", "rewards", "next_observations", "terminals"
        columns = [file[name][:].astype(np.float32) for name in names]
        ends = np.flatnonzero(file["terminals"][:] | file["timeouts"][:])
    starts = np.concatenate([[0], ends[:-1] + 1])
    earned = np.mean([columns[2][i : j + 1].sum() for i, j in zip(starts, ends, strict=True)])
    torch.manual_seed(0)
    learner = textbook.TextbookBCQ(*SIZES[ENV])
    batch = textbook.Batch(*(torch.from_numpy(column) for column in columns))
    for step in range(1, LONGEST + 1):
        learner.update(textbook.sample(batch, ROWS), learner.draw(ROWS))
        if step % EVALUATE_EVERY == 0:
            _, returns = ten_episodes(learner, seed=step)
            if np.mean(returns) > earned:
                break
    return step, float(np.mean(returns)), float(earned)


WAITS: dict[str, Callable[[Path], object]] = {
    function.__name__: function
    for function in (
        *(load_ours, load_d3rlpy, write_d3rlpy, load_minari),
        *(evaluate_ours, evaluate_textbook, bare_stepping, train_textbook),
    )
}


def main() -> None:
    """Times one thing once."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=WAITS)
    parser.add_argument("path", type=Path)
    arguments = parser.parse_args()
    print(json.dumps(WAITS[arguments.what](arguments.path)))


if __name__ == "__main__":
    main()
