"""Estimated and true values of a run: read from its logs, or measured for its newest policy."""

from collections import defaultdict

from bcq.data.dataset import Dataset
from bcq.runs.directory import Run
from bcq.simulation.true_values import Values, measure_values, require_measurable
from bcq.system.files import Row, as_json_lines, write_text


def values_by_step(run: Run) -> dict[int, Values]:
    """The measurements of a run, by step."""
    pairs: dict[int, list[Row]] = defaultdict(list)
    for row in run.read("values.jsonl", "row", "estimate", "truth", "limited"):
        pairs[row["step"]].append(row)
    return {step: Values.from_pairs(rows) for step, rows in pairs.items()}


def measure_run(run: Run, dataset: Dataset, environment: str, *, seed: int = 0) -> Values:
    """Measures the newest policy of a run, and stores the raw pairs in its directory."""
    discount = require_measurable(run.algorithm, dataset, environment)
    values = measure_values(
        run.policy(), dataset, environment, discount=discount, seed=seed, progress=True
    )
    path = run.directory / f"values-at-{run.checkpoint_step()}-seed{seed}.jsonl"
    write_text(path, as_json_lines(values.pairs()))
    return values
