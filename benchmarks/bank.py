"""What the fixed bank of latents of an exported file changes in returns.

    python benchmarks/bank.py RUN ... [--episodes 30]

Each run's policy plays episodes as it learned to act, with fresh latents at every step, and by
exported files, each with a bank of its own. Episode i begins in the same state for all. A
difference has Student's 95% interval over the episodes.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from results import record
from scipy import stats

from bcq.data.columns import Floats
from bcq.export.exporting import export_policy
from bcq.runs.directory import Run
from bcq.serving.policy import ServedPolicy, open_policy
from bcq.simulation.evaluation import evaluate

Returns = NDArray[np.float64]
BANKS = (0, 1, 2)  # seeds; 0 is the default of `bcq export`


class Exported:
    """A file that acts where a policy is expected."""

    def __init__(self, policy: ServedPolicy):
        self.policy, self.task = policy, policy.task

    def act(self, observations: Floats, **_: Any) -> Floats:
        """Always the same action in the same state."""
        return self.policy.act(observations, None).actions


def environment_of(run: Run) -> str:
    """Where the batch of a run comes from."""
    stored = run.config.as_json()["dataset"]
    found = stored.get("environment") or stored.get("provenance", {}).get("environment")
    if not isinstance(found, str):
        raise SystemExit(f"{run.directory}: its batch names no environment")
    return found


def difference(one: Returns, other: Returns) -> tuple[float, float, float]:
    """Mean and interval of the differences, episode by episode."""
    found = one - other
    reach = stats.t.ppf(0.975, len(found) - 1) * found.std(ddof=1) / len(found) ** 0.5
    return float(found.mean()), float(found.mean() - reach), float(found.mean() + reach)


def compared(run: Run, episodes: int, folder: Path) -> dict[str, Any]:
    """Returns of the sampling policy, and of banks beside it."""
    environment = environment_of(run)
    sampling = evaluate(run.policy(), environment, episodes=episodes, seed=0).returns
    banks = {}
    for seed in BANKS:
        path = folder / f"{environment}-{seed}.onnx"
        export_policy(run, path, seed=seed)
        played: Any = Exported(open_policy(path))
        returns = evaluate(played, environment, episodes=episodes, seed=0).returns
        banks[seed] = {"returns": returns.tolist(), "difference": difference(returns, sampling)}
    return {"updates": run.checkpoint_step(), "sampling": sampling.tolist(), "banks": banks}


def main() -> None:
    """Prints means and differences, and keeps the returns."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--episodes", type=int, default=30)
    options = parser.parse_args()
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for path in options.runs:
            run = Run.open(path)
            name = environment_of(run)
            found[name] = one = compared(run, options.episodes, Path(folder))
            mean, std = np.mean(one["sampling"]), np.std(one["sampling"])
            print(f"{name}: {one['updates']:,} updates, sampling {mean:.0f} ± {std:.0f}")
            for seed, bank in one["banks"].items():
                mean, std = np.mean(bank["returns"]), np.std(bank["returns"])
                middle, low, high = bank["difference"]
                words = f"difference {middle:.0f} ({low:.0f} to {high:.0f})"
                print(f"  bank {seed}: {mean:.0f} ± {std:.0f}, {words}", flush=True)
    record("bank", {"episodes": options.episodes, "environments": found})


if __name__ == "__main__":
    main()
