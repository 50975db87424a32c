"""One action of BCQ at a time: by `Policy.act`, by onnxruntime and by the NumPy reader.

    python benchmarks/acting.py [--rounds 2000]

Fresh weights at the paper's sizes, Hopper's observations and actions, n = 10, on one thread. The
three take turns, so that other work of the machine slows each of them.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable

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


def measured(ways: dict[str, Callable[[int], object]], rounds: int) -> dict[str, float]:
    """The median time of one action, in seconds."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for step in range(WARM_UP + rounds):
        for name, act in ways.items():
            start = time.perf_counter()
            act(step)
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(each[WARM_UP:]) for name, each in times.items()}


def main() -> None:
    """Prints medians, and ratios to `Policy.act`."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=2_000, help="actions of each")
    rounds = parser.parse_args().rounds
    on_one_core()
    medians = measured(contenders(), rounds)
    for name, seconds in medians.items():
        share = seconds / medians["Policy.act"]
        print(f"{name:14}{1e3 * seconds:8.3f} ms  {share:5.2f} times Policy.act")


if __name__ == "__main__":
    main()
