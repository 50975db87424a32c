"""Updates per second against what a user would pick instead, and against the machine's limit.

    python benchmarks/compare.py --peers .venv-bench/bin/python [--rounds 21] [--env Hopper-v5 ...]

Every contender is a process of its own; in a round each is asked once, so that a machine whose
speed wanders treats all alike. Ratios are taken within rounds. Cores: one, two, and "1+1", two
runs at once on one core each, their speeds added. What was measured whole is recorded; a part of it
is printed alone.
"""

import argparse
import subprocess
import sys
from pathlib import Path

from contenders import CONTENDERS, OURS, SIZES, interpreter
from results import record, spread
from tqdm import tqdm

CORES = {"1": ("0",), "2": ("0,1",), "1+1": ("0", "1")}
SECONDS = 0.5  # of work in a round: short, so that neighbours meet the machine at one speed


class Contender:
    """One implementation's processes."""

    def __init__(self, name: str, python: str, env: str, cores: str):
        self.name = name
        script = Path(__file__).with_name("contenders.py")
        self.processes = [
            subprocess.Popen(
                [python, script, name, "--env", env, "--cores", core],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
            for core in CORES[cores]
        ]
        for process in self.processes:  # one contender compiles at a time
            if self.answer(process) != "ready":
                raise SystemExit(f"{name} did not start: python {script} {name}")

    def per_second(self) -> float:
        """All its processes at once, for a while."""
        for process in self.processes:
            assert process.stdin is not None
            process.stdin.write(f"{SECONDS}\n")
            process.stdin.flush()
        return sum(float(self.answer(process)) for process in self.processes)

    @staticmethod
    def answer(process: "subprocess.Popen[str]") -> str:
        """The next line that it prints."""
        assert process.stdout is not None
        return process.stdout.readline().strip()

    def close(self) -> None:
        """The end of the input ends them."""
        for process in self.processes:
            process.communicate()


def measure(
    names: list[str], peers: str, env: str, cores: str, rounds: int
) -> dict[str, list[float]]:
    """Speeds of each contender, a number a round."""
    contenders = [
        Contender(name, sys.executable if name in OURS else peers, env, cores)
        for name in tqdm(names, f"{env}, cores {cores}: starting", leave=False)
    ]
    speeds: dict[str, list[float]] = {name: [] for name in names}
    for _ in tqdm(range(rounds), f"{env}, cores {cores}", leave=False):
        for contender in contenders:
            speeds[contender.name].append(contender.per_second())
    for contender in contenders:
        contender.close()
    return speeds


def show(env: str, cores: str, speeds: dict[str, list[float]]) -> None:
    """One line a contender."""
    print(f"\n{env}, cores {cores}: medians (quartiles)")
    for name, values in speeds.items():
        ours = speeds.get(name.removeprefix("d3rlpy ") if name.endswith(("ddpg", "bc")) else "bcq")
        ratio = "" if ours is None else spread(a / b for a, b in zip(ours, values, strict=True))
        print(f"{name:<20} {spread(values, '{:.4g}'):>34}   ours / it {ratio}")


def main() -> None:
    """Measures, prints and records."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--peers", type=interpreter, required=True, help="a Python that has PyTorch and the peers"
    )
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--env", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--cores", nargs="+", choices=CORES, default=list(CORES))
    parser.add_argument("--names", nargs="+", choices=CONTENDERS, default=list(CONTENDERS))
    arguments = parser.parse_args()
    whole = all(
        getattr(arguments, name) == parser.get_default(name) for name in ("env", "cores", "names")
    )
    measured = []
    for env in arguments.env:
        for cores in arguments.cores:
            speeds = measure(arguments.names, arguments.peers, env, cores, arguments.rounds)
            show(env, cores, speeds)
            measured.append({"env": env, "cores": cores, "speeds": speeds})
            if whole:
                record("updates", measured)


if __name__ == "__main__":
    main()
