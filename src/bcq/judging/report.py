"""A judgement as text and as JSON."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bcq.judging.candidates import Choice
from bcq.judging.support import LARGEST_DEPARTURE
from bcq.judging.values import TAIL, Comparison, Estimate
from bcq.judging.verdict import RULE, Judgement

FLATTERED = "warning: the policy learned from some of these episodes, which flatters it"

CAUTION = (
    "  try it under supervision first: on simulated tasks, fitted values of some policies were far "
    "too high (docs/judging.md)"
)


def as_text(choice: Choice) -> str:
    """The verdict first, then what it rests on."""
    judgement, lines = choice.judgement, []
    if choice.ranking:
        lines = ["candidates, compared by other episodes than those of the verdict:"]
        lines += [
            f"  {words(one.values.policy):32} {one.verdict:14} {candidate}"
            for candidate, one in choice.ranking
        ]
        lines += [f"  {comparison(choice)}", *map(of_seeds, choice.over_seeds), ""]
    values, support = judgement.values, judgement.support
    lines += [
        f"{choice.chosen}: {judgement.verdict}",
        *(f"  because {reason}" for reason in judgement.objections + judgement.doubts),
        *([CAUTION] if judgement.verdict == "better" else []),
        "",
        f"judged by {choice.judged_by} episodes ({choice.fit_on}), discount {choice.discount:g}",
        f"95% intervals in brackets; of the policy and the difference {values.widening:g} times as "
        "wide as the fits say",
        *([FLATTERED] if choice.fit_on == "all" else []),
        f"value of the policy        {words(values.policy)}",
        f"value of the behaviour     {words(values.behaviour)}, best episode "
        f"{values.best_episode:.5g}",
        f"difference                 {words(values.difference)}",
        f"extrapolation meter        {support.meter.ratio:.3g} (1 is like the data)",
        f"outside the logged range   {support.meter.outside:.1%} of its actions "
        f"({support.meter.data_outside:.1%} of the logged ones)",
        f"spread of its actions      {support.reaction:.3g} times that of the logged ones",
    ]
    if support.departure is not None:
        lines.append(
            f"departure of its choices   {support.departure:.3g} (0: always the usual one; at most "
            f"{LARGEST_DEPARTURE:g} for a verdict in favour)"
        )
    if support.draws:
        lines.append(f"two draws in one state     differ by {support.draws:.3g} times that spread")
    if support.own_value is not None:
        lines.append(f"value by its own estimate  {support.own_value:.5g}")
    if isinstance(judgement.sampled, str):
        lines.append(judgement.sampled)
    else:
        sampled = judgement.sampled
        lines += [
            f"by importance sampling     {words(sampled.weighted)}",
            f"doubly robust              {words(sampled.doubly_robust)}",
            f"effective episodes         {sampled.effective:.1f}",
            *until_cut(values),
        ]
        if not sampled.logged:
            lines.append(
                "warning: the log has no propensities; importance sampling uses a fitted model of "
                "the behaviour, whose errors multiply over the steps of an episode"
            )
    state = "settled" if values.settled else "had not settled"
    costs = ", ".join(f"{part} {seconds:.1f} s" for part, seconds in judgement.seconds.items())
    lines += [f"the fits {state} after {values.curve[-1][0]:,} updates", f"time: {costs}"]
    lines += ["", f"rule: {RULE}"]
    return "\n".join(lines)


def until_cut(values: Comparison) -> list[str]:
    """What weighted rewards leave out where episodes were cut before their end."""
    if not values.tail > TAIL:
        return []
    return [
        "importance sampling per decision leaves out what follows after the cut ends of episodes "
        f"({values.tail:.0%} of the weight of the rewards); the doubly robust estimate does not"
    ]


def comparison(choice: Choice) -> str:
    """Whether the first of the ranking is the best."""
    if choice.clear:
        return "the first is the best"
    return (
        f"others that cannot be told from the first: {choice.rivals} of {len(choice.ranking) - 1}"
    )


def of_seeds(values: Sequence[float]) -> str:
    """How much training with another seed changes the value."""
    return (
        f"  {len(values)} runs that differ only in their seed: {min(values):.5g} to "
        f"{max(values):.5g}, standard deviation {np.std(values, ddof=1):.3g}"
    )


def words(estimate: Estimate) -> str:
    """A number with its interval."""
    return f"{estimate.value:.5g} ({estimate.low:.5g} to {estimate.high:.5g})"


def as_json(choice: Choice) -> dict[str, Any]:
    """Every number of a judgement."""
    run, step = choice.chosen
    weights = next(one["sha256"] for one in run.checkpoints() if one["step"] == step)
    return {
        "chosen": {"run": str(run.directory), "step": step, "sha256": weights},
        "fit_on": choice.fit_on,
        "episodes": choice.judged_by,
        "discount": choice.discount,
        **numbers(choice.judgement),
        "clearly_best": choice.clear,
        "over_seeds": choice.over_seeds,
        "candidates": [
            {"run": str(candidate.run.directory), "step": candidate.step, **numbers(one)}
            for candidate, one in choice.ranking
        ],
    }


def numbers(judgement: Judgement) -> dict[str, Any]:
    """The numbers behind a verdict."""
    values, support = judgement.values, judgement.support
    return {
        "verdict": judgement.verdict,
        "objections": judgement.objections,
        "doubts": judgement.doubts,
        "preference": judgement.preference,
        **{name: getattr(values, name)._asdict() for name in ("policy", "behaviour", "difference")},
        "best_episode": values.best_episode,
        "settled": values.settled,
        "updates": values.curve[-1][0],
        "at_limit": values.at_limit,
        "tail": values.tail,
        "widening": values.widening,
        "extrapolation_meter": support.meter.ratio,
        "outside": support.meter.outside,
        "data_outside": support.meter.data_outside,
        "reaction": support.reaction,
        "draws": support.draws,
        "departure": support.departure,
        "own_value": support.own_value,
        "seconds": judgement.seconds,
        "importance_sampling": importance(judgement),
    }


def importance(judgement: Judgement) -> dict[str, Any]:
    """The numbers of importance sampling, or why there are none."""
    sampled = judgement.sampled
    if isinstance(sampled, str):
        return {"refused": sampled}
    return {
        "weighted": sampled.weighted._asdict(),
        "doubly_robust": sampled.doubly_robust._asdict(),
        "effective_episodes": sampled.effective,
        "logged_propensities": sampled.logged,
    }
