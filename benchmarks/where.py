"""Where the time of an update of BCQ goes, and how much arithmetic the compiler counts.

    python benchmarks/where.py [--updates 200]

The profiler's record of each compiled operation, summed by kind, and the speed of products of an
update's own sizes; on one core and on two, each in a process of its own.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from contenders import ROWS, finished, our_inputs, transitions
from results import record
from sizes import relative_rates

ENV = "Hopper-v5"
KINDS = {  # by the names that the compiler gives its operations
    "matrix products, 1,000 rows": r"(ynn_fusion|dot).*\[1000,",
    "matrix products, 100 rows": r"(ynn_fusion|dot).*\[100,",
    "matrix products, gradients of weights": r"(ynn_fusion|dot)",
    "Adam and the target networks": r"multiply_add_fusion|broadcast_add_fusion|convert_power",
    "ReLU and its gradient, biases": r"\w*(maximum|select)_fusion|wrapped_reduce",
    "copies": r"copy",
}
OTHERS = "random numbers, the minibatch, losses"
NOT_OPERATIONS = r"Thunk|Thread|end:|\$|while"  # the loop holds the operations, which count


def profile(updates: int) -> dict[str, object]:
    """Milliseconds of an update by kind of operation, and the compiler's count of arithmetic."""
    import jax

    from bcq.algorithms import BCQConfig
    from bcq.training.loop import update_until

    inputs = our_inputs(ENV, transitions(ENV), BCQConfig())
    compiled = update_until.lower(*inputs, 0, updates, ROWS).compile()
    shapes = dict(re.findall(r"%([\w.-]+) = (\w+\[[\d,]*\])", compiled.as_text() or ""))
    finished(update_until(*inputs, 0, updates, ROWS))
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            finished(update_until(*inputs, 0, updates, ROWS))
        path = next(Path(folder).rglob("*.xplane.pb"))
        planes = jax.profiler.ProfileData.from_file(str(path)).planes
        milliseconds: Counter[str] = Counter()
        for event in (
            e for plane in planes for line in plane.lines if "XLA" in line.name for e in line.events
        ):
            if not re.match(NOT_OPERATIONS, event.name):
                kind = kind_of(f"{event.name} {shapes.get(event.name, '')}")
                milliseconds[kind] += event.duration_ns / 1e6 / updates
    cost = compiled.cost_analysis() or {}
    return {"milliseconds": dict(milliseconds), "compiler_flops": cost.get("flops", 0.0)}


def kind_of(operation: str) -> str:
    """What an operation is for, by its name and the shape of its result."""
    return next((kind for kind, names in KINDS.items() if re.match(names, operation)), OTHERS)


def main() -> None:
    """Measures, prints and records."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--updates", type=int, default=200)
    parser.add_argument("--cores", help="the inner process: which cores to profile on")
    arguments = parser.parse_args()
    if arguments.cores:
        os.sched_setaffinity(0, [int(core) for core in arguments.cores.split(",")])
        print(json.dumps(profile(arguments.updates) | {"rates": relative_rates()}))
        return
    measured = {}
    for cores in ("0", "0,1"):
        command = [sys.executable, __file__, "--updates", str(arguments.updates), "--cores", cores]
        answer = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        count = str(len(cores.split(",")))
        measured[count] = json.loads(answer.splitlines()[-1])
        times, flops = measured[count]["milliseconds"], measured[count]["compiler_flops"]
        print(f"\n{count} threads, {flops / 2e9:.3f} G multiply-adds by the compiler's count")
        for kind in (*KINDS, OTHERS):
            spent = times.get(kind, 0.0)
            print(f"{kind:<40} {spent:7.2f} ms {spent / sum(times.values()):6.1%}")
    record("where", measured)


if __name__ == "__main__":
    main()
