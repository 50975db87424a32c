"""Beyond the paper: how far can `bcq judge` be trusted? Its verdicts beside the simulator's.

On each batch several algorithms learn without the episodes that they are judged by. Checkpoints of
different lengths make good and bad policies. The truth is the mean discounted return of new
episodes.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from scipy import stats

from bcq.algorithms import (
    BCConfig,
    BCQConfig,
    DDPGConfig,
    DiscreteBCConfig,
    DiscreteBCQConfig,
    DiscreteDQNConfig,
    DQNConfig,
    VAEBCConfig,
    name_of,
)
from bcq.algorithms.learning import AlgorithmConfig
from bcq.data.splits import HoldOut
from bcq.experiments.jobs import Job, directory_name, fingerprint, is_finished
from bcq.experiments.judged import Judging, judged_in
from bcq.experiments.kinds import Training
from bcq.paper.claims import Claim
from bcq.paper.drawing import panels
from bcq.paper.presets import CHOICES, Plan, Preset
from bcq.runs.schedules import Schedule
from bcq.system.errors import InputError
from bcq.system.files import Row, read_json

ALGORITHMS: tuple[AlgorithmConfig, ...] = (
    BCQConfig(),
    VAEBCConfig(),
    BCConfig(),
    DDPGConfig(),
    DQNConfig(),
)
OF_CHOICES: tuple[AlgorithmConfig, ...] = (
    DiscreteBCQConfig(),
    DiscreteBCConfig(),
    DiscreteDQNConfig(),
)
HOLD_OUT = HoldOut(0.5)  # HalfCheetah's batch has only 100 episodes
PARTS = (1, 4, 8, 16)  # sixteenths of the updates after which a checkpoint is judged
CLAIMS: tuple[Claim, ...] = ()  # the paper says nothing about this
COLOURS = {
    "better": "#009e73",
    "no worse": "#0072b2",
    "cannot tell": "#777777",
    "do not deploy": "#d55e00",
}


def jobs(preset: Preset) -> list[tuple[int, Job]]:
    """Every algorithm on every batch; all batches of the first trial come first."""
    return [
        (trial, judging(preset, config, plan, trial))
        for plan in preset.plans.get("judging", ())
        for config in (OF_CHOICES if plan.env in CHOICES else ALGORITHMS)
        for trial in range(plan.trials)
    ]


def judging(preset: Preset, config: AlgorithmConfig, plan: Plan, trial: int) -> Judging:
    """A training that keeps its checkpoints, and the judgement on some of them."""
    every = plan.updates // PARTS[-1]
    schedule = Schedule(steps=plan.updates, seed=trial, checkpoint_every=every, keep="all")
    training = Training(config, schedule, preset.batch(plan, trial), HOLD_OUT)
    return Judging(training, tuple(every * part for part in PARTS))


def gather(jobs: Iterable[Job], folder: Path, recorded: Sequence[Row]) -> list[Row]:
    """One row per policy: from the folders of finished jobs, or recorded before."""
    found = []
    for job in jobs:
        if isinstance(job, Judging):
            told = fingerprint(job)
            if is_finished(job, folder):
                found += rows_of(job, folder)
            else:
                found += [row for row in recorded if row["fingerprint"] == told]
    return found


def rows_of(job: Judging, folder: Path) -> list[Row]:
    """What a finished job found, with its settings and its origin."""
    training, directory = job.training, folder / directory_name(job)
    settings = training.as_json()
    known = {
        "fingerprint": fingerprint(job),
        "env": training.batch.env,
        "task": training.batch.recipe,
        "trial": training.batch.trial,
        "algorithm": name_of(training.config),
        **{name: settings[name] for name in ("settings", "schedule", "hold_out")},
        "made": read_json(directory / "done.json"),
    }
    return [{**known, **row} for row in judged_in(directory)]


def read_rows(path: Path) -> list[Row]:
    """The recorded rows, or none."""
    if not path.exists():
        return []
    try:
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        for row in rows:
            Policy.of(row)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: is not a file of judgements: {error!r}") from error
    return rows


@dataclass(frozen=True)
class Policy:
    """The numbers about one policy that its judge is judged by."""

    batch: str
    name: str
    estimate: tuple[float, float, float]  # value, low, high
    difference: tuple[float, float, float]  # to the behaviour
    truth: float
    behaviour: float  # true value
    verdict: str
    preference: tuple[bool, float]  # the order of `bcq judge`

    @classmethod
    def of(cls, row: Row) -> "Policy":
        """From a recorded row."""
        judged = row["judgement"]
        estimate, difference = (
            tuple(judged[name][part] for part in ("value", "low", "high"))
            for name in ("policy", "difference")
        )
        return cls(
            batch=f"{row['env']}, {row['task']}, trial {row['trial']}",
            name=f"{row['algorithm']} at {row['step']:,}",
            estimate=estimate,
            difference=difference,
            truth=row["truth"]["mean"],
            behaviour=row["behaviour"]["mean"],
            verdict=judged["verdict"],
            preference=tuple(judged.get("preference", old_preference(judged))),
        )

    @property
    def gain(self) -> float:
        """How much better than the behaviour it is in truth."""
        return self.truth - self.behaviour

    @property
    def wrongly_better(self) -> bool:
        """Whether it was called better and is not."""
        return self.verdict == "better" and self.gain <= 0


def old_preference(judged: Row) -> tuple[bool, float]:
    """The order of versions 1 and 2 of the judge, which did not record it."""
    return not judged["objections"], judged["policy"]["low"]


def inside(interval: tuple[float, float, float], truth: float) -> bool:
    """Whether the truth is in the interval."""
    return interval[1] <= truth <= interval[2]


def by_value(policy: Policy) -> Any:
    """The order of the estimates alone."""
    return policy.estimate[0]


def as_chosen(policy: Policy) -> Any:
    """The order of `bcq judge`: suspect values last, by the lower ends of the fits."""
    return policy.preference


def rank_correlation(policies: Sequence[Policy], order: Callable[[Policy], Any]) -> float:
    """Spearman's, of an order and of the true values."""
    places = {one: place for place, one in enumerate(sorted(policies, key=order))}
    truths = [one.truth for one in policies]
    return float(stats.spearmanr([places[one] for one in policies], truths).statistic)


def regret(policies: Sequence[Policy]) -> float:
    """What the choice of `bcq judge` loses, as a share of the way from the worst to the best."""
    chosen = max(policies, key=as_chosen)
    best, worst = (end(one.truth for one in policies) for end in (max, min))
    return (best - chosen.truth) / (best - worst) if best > worst else 0.0


def by_batch(rows: Sequence[Row]) -> dict[str, list[Policy]]:
    """The policies of each batch."""
    found = defaultdict(list)
    for policy in map(Policy.of, rows):
        found[policy.batch].append(policy)
    return dict(found)


def by_environment(
    batches: Mapping[str, Sequence[Policy]],
) -> dict[str, list[Sequence[Policy]]]:
    """The batches of all trials in one environment together."""
    found = defaultdict(list)
    for name, policies in batches.items():
        found[name.rpartition(", ")[0]].append(policies)
    return {f"{name}, trials: {len(some)}": some for name, some in found.items()}


COLUMNS = (
    "policies",
    "rank correlation",
    "by value alone",
    "regret at 1",
    "value in its interval",
    "difference in its interval",
    '"better"',
    "of these wrong",
)


def as_markdown(rows: Sequence[Row]) -> str:
    """Tables by environment and by batch, the totals, and every verdict that was wrong."""
    batches = by_batch(rows)
    every = [one for policies in batches.values() for one in policies]
    better = [one for one in every if one.verdict == "better"]
    wrong = [one for one in every if one.wrongly_better]
    values = sum(inside(one.estimate, one.truth) for one in every)
    differences = sum(inside(one.difference, one.gain) for one in every)
    lines = [
        *heading("environment"),
        *(line(name, some) for name, some in by_environment(batches).items()),
        line(f"all, batches: {len(batches)}", list(batches.values())),
        "",
        f"- value in its 95% interval: {share(values, len(every))}",
        f"- difference in its 95% interval: {share(differences, len(every))}",
        f'- "better" and wrong: {share(len(wrong), len(better))}',
        "",
        "Rank correlation and regret are means over batches, in the order of `bcq judge` (suspect "
        "values last, by lower ends). Ranges in brackets are 95% intervals (Wilson's). They treat "
        "the policies of a batch as independent, which they are not: they share episodes.",
    ]
    if wrong:
        lines += ["", 'Called "better" and not better:', ""]
        lines += [
            f"- {one.batch}: {one.name}, difference {one.difference[0]:.4g} "
            f"({one.difference[1]:.4g} to {one.difference[2]:.4g}), in truth {one.gain:.4g}"
            for one in wrong
        ]
    lines += ["", *heading("batch"), *(line(name, [some]) for name, some in batches.items())]
    return "\n".join(lines) + "\n"


def heading(of: str) -> list[str]:
    """The first lines of a table."""
    return ["| " + " | ".join([of, *COLUMNS]) + " |", "|---" * (1 + len(COLUMNS)) + "|"]


def line(name: str, batches: Sequence[Sequence[Policy]]) -> str:
    """Counts over some batches, and means over them."""
    every = [one for policies in batches for one in policies]
    orders = [
        np.mean([rank_correlation(policies, order) for policies in batches])
        for order in (as_chosen, by_value)
    ]
    cells = (
        name,
        len(every),
        *(f"{order:.2f}" for order in orders),
        f"{np.mean([regret(policies) for policies in batches]):.0%}",
        sum(inside(one.estimate, one.truth) for one in every),
        sum(inside(one.difference, one.gain) for one in every),
        sum(one.verdict == "better" for one in every),
        sum(one.wrongly_better for one in every),
    )
    return "| " + " | ".join(map(str, cells)) + " |"


def share(count: int, total: int) -> str:
    """A share, with its interval."""
    if not total:
        return "0 of 0"
    low, high = stats.binomtest(count, total).proportion_ci(method="wilson")
    return f"{count} of {total}, {count / total:.1%} ({low:.1%} to {high:.1%})"


def draw(rows: Sequence[Row]) -> Figure:
    """Estimated against true values, one panel per environment."""
    environments = by_environment(by_batch(rows))
    columns = min(3, len(environments))
    figure, grid = panels(-(-len(environments) // columns), columns)
    every = [axes for row in grid for axes in row]
    for axes, (name, batches) in zip(every, environments.items(), strict=False):
        for verdict, colour in COLOURS.items():
            some = [one for batch in batches for one in batch if one.verdict == verdict]
            if some:
                estimates = np.array([one.estimate for one in some]).T
                axes.errorbar(
                    [one.truth for one in some],
                    estimates[0],
                    yerr=[estimates[0] - estimates[1], estimates[2] - estimates[0]],
                    fmt="o",
                    ms=3,
                    lw=0.8,
                    color=colour,
                )
        truth = batches[0][0].truth
        axes.axline((truth, truth), slope=1, color="black", lw=0.6)
        for batch in batches:
            axes.axvline(batch[0].behaviour, color="black", lw=0.6, ls=":")
        axes.set_title(name, fontsize=7)
        axes.set_xlabel("true value", fontsize=7)
        axes.set_ylabel("estimated value", fontsize=7)
    for axes in every[len(environments) :]:
        axes.remove()
    handles = [Line2D([], [], marker="o", ms=3, lw=0, color=c, label=v) for v, c in COLOURS.items()]
    handles.append(Line2D([], [], ls=":", color="black", lw=0.6, label="behaviour, true value"))
    figure.legend(
        handles=handles,
        loc="outside lower center",
        ncols=2 * columns - 1,
        frameon=False,
        fontsize=7,
    )
    figure.suptitle("judged by logged episodes, and in the simulator", fontsize=9)
    return figure
