"""One action of BCQ at a time: by `Policy.act`, by an exported file, by PyTorch.

    python benchmarks/acting.py [--rounds 2000] [--peers PYTHON]

Fresh weights at the paper's sizes, Hopper's observations and actions, n = 10, on one thread. All
take turns, so that other work of the machine slows each of them. The textbook PyTorch runs in a
process of its own, on the same core, and measures itself; it gets and gives NumPy arrays, as
`select_action` of published code does.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

WARM_UP = 50  # rounds
OBSERVATION_SIZE, ACTION_SIZE = 11, 3  # Hopper's


def on_one_core() -> None:
    """Restricts this process to one core; before JAX starts, which asks for their number."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    os.environ["OPENBLAS_NUM_THREADS"] = "1"


def contenders() -> dict[str, Callable[[int], object]]:
    """Ways to take the action of the same row; their argument is the number of the step."""
    import jax
    import numpy as np
    import onnxruntime
    import safetensors.numpy

    from bcq.algorithms import BCQConfig
    from bcq.data.bounds import ActionBounds, TaskSpec
    from bcq.export import read_policy
    from bcq.export.content import content_of
    from bcq.export.files import encode
    from bcq.training.policy import Policy

    ones = np.ones(ACTION_SIZE, np.float32)
    task = TaskSpec(OBSERVATION_SIZE, ActionBounds(-ones, ones))
    learner = BCQConfig().create(OBSERVATION_SIZE, ACTION_SIZE, jax.random.key(0))
    policy = Policy(learner, task)
    content = content_of(policy, {"task": task.as_json(), "exported_by": {"bcq": "benchmark"}})
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    encoded = encode(content, ".onnx")
    session = onnxruntime.InferenceSession(encoded, options, providers=["CPUExecutionProvider"])
    arrays = safetensors.numpy.load(encode(content, ".safetensors"))
    reader = read_policy.Policy(arrays, content.card)
    row = np.random.default_rng(0).normal(size=(1, OBSERVATION_SIZE)).astype(np.float32)
    return {
        "Policy.act": lambda step: policy.act(row, step=step),
        "onnxruntime": lambda _: session.run(["action"], {"observation": row}),
        "NumPy reader": lambda _: reader.act(row),
    }


def timed(act: Callable[[int], object]) -> Callable[[int], float]:
    """How long an action takes, in seconds."""

    def measure(step: int) -> float:
        start = time.perf_counter()
        act(step)
        return time.perf_counter() - start

    return measure


@contextmanager
def textbook(peers: Path) -> Iterator[Callable[[int], float]]:
    """The textbook's actions, in a Python that has PyTorch."""
    command = [str(peers), __file__, "--as-textbook"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as process:
        stdin, stdout = process.stdin, process.stdout
        assert stdin is not None
        assert stdout is not None

        def measure(step: int) -> float:
            stdin.write(f"{step}\n")
            return float(stdout.readline())

        yield measure
        stdin.close()


def answer_as_textbook() -> None:
    """Takes an action for each line that comes, and prints how long it took."""
    import numpy as np
    import torch
    from textbook import TextbookBCQ

    torch.set_num_threads(1)
    learner = TextbookBCQ(OBSERVATION_SIZE, ACTION_SIZE)
    row = np.random.default_rng(0).normal(size=(1, OBSERVATION_SIZE)).astype(np.float32)
    act = timed(lambda _: learner.act(torch.from_numpy(row)).numpy())
    for line in sys.stdin:
        print(act(int(line)), flush=True)


def measured(ways: dict[str, Callable[[int], float]], rounds: int) -> dict[str, float]:
    """The median time of one action, in seconds."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for step in range(WARM_UP + rounds):
        for name, measure in ways.items():
            times[name].append(measure(step))
    return {name: statistics.median(each[WARM_UP:]) for name, each in times.items()}


def main() -> None:
    """Prints medians and ratios to `Policy.act`, and keeps the medians."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=2_000, help="actions of each")
    parser.add_argument("--peers", type=Path, help="a Python that has PyTorch")
    parser.add_argument("--as-textbook", action="store_true", help="used by this script itself")
    options = parser.parse_args()
    on_one_core()
    if options.as_textbook:
        answer_as_textbook()
        return
    from results import record

    ways = {name: timed(act) for name, act in contenders().items()}
    if options.peers is None:
        medians = measured(ways, options.rounds)
    else:
        with textbook(options.peers) as measure:
            medians = measured({**ways, "textbook PyTorch": measure}, options.rounds)
    for name, seconds in medians.items():
        share = seconds / medians["Policy.act"]
        print(f"{name:18}{1e3 * seconds:8.3f} ms  {share:5.2f} times Policy.act")
    record("acting", {"rounds": options.rounds, "median seconds": medians})


if __name__ == "__main__":
    main()
