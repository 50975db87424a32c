"""The paper's claims, each with the rule that decides it and the evidence measured.

A verdict is "holds", "does not hold", or "not enough evidence", the last only where a stated number
of trials or updates is missing. `final` is the mean return of a run's last three evaluations.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bcq.experiments.records import Record, aligned, returns
from bcq.runs import Row
from bcq.tabular.theorems import STATEMENTS

TRIALS = 2  # a claim about runs needs at least so many
CONVERGED = 60_000  # updates after which a value has risen to 95% of its fixed point
EARLY = 20_000  # updates, 2% of the paper's million
MATCHES = 0.95  # of the batch's average return
STRONGLY = 1.5  # times the batch's average return
OVERSHOOT = 2.0  # times the truth

HOLDS, FAILS, UNKNOWN = "holds", "does not hold", "not enough evidence"


class NotEnoughError(Exception):
    """What is missing to judge a claim."""


@dataclass(frozen=True)
class Evidence:
    """Everything measured."""

    records: Sequence[Record]
    theory: Row | None

    def trials(
        self, task: str, label: str, *, phi: float = 0.05, env: str | None = None, updates: int = 0
    ) -> list[Record]:
        """The runs of one line of a figure, in Hopper unless said otherwise."""
        found = [
            one
            for one in self.records
            if (one.task, one.label, one.env) == (task, label, env or "Hopper-v5")
            and one.settings.get("max_perturbation", phi) == phi
            and one.updates >= updates
        ]
        if len(found) < TRIALS:
            long = f" of {updates:,} updates" if updates else ""
            raise NotEnoughError(
                f"{TRIALS} runs of {label} on {task}{long}; there are {len(found)}"
            )
        return found

    def final(self, task: str, label: str, *, phi: float = 0.05, env: str | None = None) -> float:
        """The mean over trials."""
        return float(np.mean([one.final for one in self.trials(task, label, phi=phi, env=env)]))

    def batch(self, task: str, *, env: str | None = None) -> float:
        """The average return of the batches' complete episodes, noise included."""
        trials = self.trials(task, "ddpg", env=env)
        return float(np.mean([one.batch["mean_return"] for one in trials if one.batch]))

    def behaviour(self, task: str) -> list[float]:
        """What made each trial's batch earns without noise: the agent at its end, or the expert."""
        if task == "imitation":
            return [one.batch["expert_return"] for one in self.trials(task, "ddpg") if one.batch]
        return [agent.final for agent, _ in self.with_agents(task)]

    def with_agents(self, task: str) -> list[tuple[Record, Record]]:
        """Each trial's behavioural agent, and offline DDPG on what it saw.

        Experts are agents of the same kind, so there may be more agents than trials.
        """
        agents = {one.seed: one for one in self.trials(task, "behaviour")}
        offline = [one for one in self.trials(task, "ddpg") if one.seed in agents]
        if len(offline) < TRIALS:
            raise NotEnoughError(f"{TRIALS} trials of {task} with agent and offline ddpg")
        return [(agents[one.seed], one) for one in sorted(offline, key=lambda one: one.seed)]


Judgement = tuple[bool, str]  # whether it holds, and the figures


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper, and how it is judged."""

    where: str
    says: str
    compares_with: str
    rule: str
    judge: Callable[[Evidence], Judgement]


@dataclass(frozen=True)
class Verdict:
    """What came of a claim."""

    claim: Claim
    verdict: str
    evidence: str


def judge_all(records: Sequence[Record], theory: Row | None) -> list[Verdict]:
    """Every claim, with its evidence."""
    evidence = Evidence(records, theory)
    verdicts = []
    for claim in CLAIMS:
        try:
            holds, figures = claim.judge(evidence)
            verdicts.append(Verdict(claim, HOLDS if holds else FAILS, figures))
        except NotEnoughError as missing:
            verdicts.append(Verdict(claim, UNKNOWN, f"needs {missing}"))
    return verdicts


def pairs(figures: Mapping[str, float]) -> str:
    """Figures in a row."""
    return ", ".join(f"{name} {value:.4g}" for name, value in figures.items())


def ddpg_falls_below(evidence: Evidence) -> Judgement:
    """Figure 1, in the mean."""
    parts, holds = [], True
    for task in ("final-buffer", "concurrent", "imitation"):
        offline, behaviour = evidence.final(task, "ddpg"), np.mean(evidence.behaviour(task))
        holds &= bool(offline < behaviour)
        parts.append(f"{task}: {offline:.0f} against {behaviour:.0f}")
    return holds, "; ".join(parts)


def ddpg_falls_below_every_time(evidence: Evidence) -> Judgement:
    """Figure 1b, trial by trial."""
    trials = evidence.with_agents("concurrent")
    figures = [f"{offline.final:.0f} against {agent.final:.0f}" for agent, offline in trials]
    return all(offline.final < agent.final for agent, offline in trials), "; ".join(figures)


def ddpg_values_diverge(evidence: Evidence) -> Judgement:
    """Figure 1, values."""
    ratios, beyond = {}, {}
    for task in ("final-buffer", "concurrent", "imitation"):
        ratios[task] = min(overshoot(one) for one in evidence.trials(task, "ddpg"))
    for task in ("final-buffer", "concurrent"):
        trials = evidence.with_agents(task)
        beyond[task] = max(largest_estimate(one) / ceiling(offline) for one, offline in trials)
    holds = max(ratios.values()) > OVERSHOOT and max(beyond.values()) <= 1
    return holds, (
        f"offline estimate over truth, the lowest trial: {pairs(ratios)}; the behavioural agent's "
        f"largest estimate as a share of what any policy could earn: {pairs(beyond)}"
    )


def overshoot(one: Record) -> float:
    """The last estimate at the measured pairs, in units of their truth."""
    last = one.truths[-1]
    return float(last["estimate"] / abs(last["truth"]))


def largest_estimate(one: Record) -> float:
    """Over the whole run; 0 if it was too short for one."""
    return max((value for _, value in one.estimates), default=0.0)


def ceiling(one: Record) -> float:
    """The largest reward of the batch, for ever."""
    assert one.batch is not None
    return float(one.batch["largest_reward"] / (1 - one.settings["discount"]))


TASKS = ("final-buffer", "concurrent", "imitation", "imperfect")
OTHERS = ("ddpg", "dqn", "bc", "vae-bc")


def bcq_matches_the_batch(evidence: Evidence) -> Judgement:
    """Figure 2, against the horizontal line."""
    figures = {task: (evidence.final(task, "bcq"), evidence.batch(task)) for task in TASKS}
    holds = all(mine >= MATCHES * batch for mine, batch in figures.values())
    words = [f"{task}: {mine:.0f} against {batch:.0f}" for task, (mine, batch) in figures.items()]
    return holds, "; ".join(words)


def bcq_beats_the_others(evidence: Evidence) -> Judgement:
    """Figure 2, against the other lines."""
    parts, holds = [], True
    for task in TASKS:
        finals = {label: evidence.final(task, label) for label in ("bcq", *OTHERS)}
        best = max(finals, key=lambda label: finals[label])
        holds &= best == ("bc" if task == "imitation" else "bcq")
        parts.append(f"{task}: {pairs(finals)}")
    return holds, "; ".join(parts)


def bcq_beats_the_noisy_demonstrator(evidence: Evidence) -> Judgement:
    """Figure 2d."""
    finals = {label: evidence.final("imperfect", label) for label in ("bcq", *OTHERS)}
    batch = evidence.batch("imperfect")
    holds = (
        finals["bcq"] >= STRONGLY * batch
        and max(finals["ddpg"], finals["dqn"]) < batch
        and max(finals["bc"], finals["vae-bc"]) < finals["bcq"] / STRONGLY
    )
    return holds, f"{pairs(finals)}; the batch {batch:.0f}"


def bcq_is_quick(evidence: Evidence) -> Judgement:
    """Figure 2, the left edge."""
    first = {}
    for task in TASKS:
        trials = evidence.trials(task, "bcq")
        line = evidence.batch(task)
        steps, means = aligned(map(returns, trials))
        reached = steps[means.mean(axis=0) >= line]
        if len(reached) == 0 and steps[-1] < EARLY:
            raise NotEnoughError(f"{EARLY:,} updates of bcq on {task}; there are {steps[-1]:,.0f}")
        first[task] = reached[0] if len(reached) else np.inf
    holds = all(step <= EARLY for step in first.values())
    return holds, f"first evaluation at or above the batch's average, in updates: {pairs(first)}"


def bcq_values_are_near(evidence: Evidence) -> Judgement:
    """Figure 3, where values have had time to rise."""
    trials = evidence.trials("imperfect", "bcq", updates=CONVERGED)
    ratios = {f"trial {one.seed}": overshoot(one) for one in trials}
    others = [
        f"{label} {np.mean([overshoot(one) for one in evidence.trials('imperfect', label)]):.3g}"
        for label in ("ddpg", "dqn")
    ]
    holds = all(0.5 <= ratio <= 1.5 for ratio in ratios.values())
    return holds, f"estimate over truth: {pairs(ratios)} (others, mean: {', '.join(others)})"


def perturbations(evidence: Evidence) -> list[float]:
    """Every Phi that was tried."""
    sizes = {
        one.settings["max_perturbation"]
        for one in evidence.records
        if (one.task, one.algorithm, one.env) == ("imitation", "bcq", "Hopper-v5")
    }
    if not sizes or min(sizes) > 0.1 or max(sizes) < 1:
        raise NotEnoughError("bcq on imitation with a Phi of at most 0.1 and one of at least 1")
    return sorted(sizes)


def larger_perturbation_hurts(evidence: Evidence) -> Judgement:
    """Figure 7."""
    finals, ratios = {}, {}
    for phi in perturbations(evidence):
        trials = evidence.trials("imitation", "bcq", phi=phi)
        finals[phi] = float(np.mean([one.final for one in trials]))
        ratios[phi] = float(np.mean([overshoot(one) for one in trials]))
    small, large = [p for p in finals if p <= 0.1], [p for p in finals if p >= 1]
    holds = float(np.mean([finals[p] for p in large])) < float(
        np.mean([finals[p] for p in small])
    ) and float(np.mean([ratios[p] for p in large])) > float(np.mean([ratios[p] for p in small]))
    names = {phi: f"Phi {phi:g}" for phi in finals}
    return holds, (
        f"final return: {pairs({names[p]: v for p, v in finals.items()})}; "
        f"estimate over truth: {pairs({names[p]: v for p, v in ratios.items()})}"
    )


def ensembles_do_not_imitate(evidence: Evidence) -> Judgement:
    """Figure 8."""
    sizes = sorted({o.settings["members"] for o in evidence.records if o.algorithm == "ensemble"})
    if len(sizes) < 2:
        raise NotEnoughError("ensembles of two sizes on imitation")
    expert = float(np.mean(evidence.behaviour("imitation")))
    finals, errors, ratios = {}, {}, {}
    for members in (sizes[0], sizes[-1]):
        trials = evidence.trials("imitation", f"ensemble of {members}")
        name = f"of {members}"
        finals[name] = float(np.mean([one.final for one in trials]))
        ratios[name] = float(np.mean([overshoot(one) for one in trials]))
        errors[name] = float(
            np.mean([abs(o.truths[-1]["estimate"] - o.truths[-1]["truth"]) for o in trials])
        )
    smaller, larger = errors
    holds = (
        max(ratios.values()) <= OVERSHOOT
        and max(finals.values()) < expert / 2
        and errors[larger] < errors[smaller]
    )
    return holds, (
        f"final return: {pairs(finals)}, the expert {expert:.0f}; estimate over truth: "
        f"{pairs(ratios)}; distance of the estimate from the truth: {pairs(errors)}"
    )


def both_learn_from_random_data(evidence: Evidence) -> Judgement:
    """Figure 9."""
    parts, holds = [], True
    for env in ("Pendulum-v1", "Reacher-v5"):
        finals = {label: evidence.final("random", label, env=env) for label in ("bcq", "ddpg")}
        batch = evidence.batch("random", env=env)
        holds &= min(finals.values()) > batch
        parts.append(f"{env}: {pairs(finals)}, the batch {batch:.4g}")
    return holds, "; ".join(parts)


def bcq_values_are_stabler(evidence: Evidence) -> Judgement:
    """Figure 9, values on Pendulum, where a slow target has let them rise."""
    spread = {
        label: float(
            np.mean(
                [
                    np.std([value for step, value in one.estimates if step > one.updates / 2])
                    for one in evidence.trials(
                        "random", label, env="Pendulum-v1", updates=CONVERGED
                    )
                ]
            )
        )
        for label in ("bcq", "ddpg")
    }
    return spread["bcq"] < spread["ddpg"], f"std between estimates: {pairs(spread)}"


def bcq_is_better_on_reacher(evidence: Evidence) -> Judgement:
    """Figure 9, returns."""
    finals = {label: evidence.final("random", label, env="Reacher-v5") for label in ("bcq", "ddpg")}
    return finals["bcq"] > finals["ddpg"], pairs(finals)


def statement_holds(name: str) -> Callable[[Evidence], Judgement]:
    """A statement of Section 4.1."""

    def judge(evidence: Evidence) -> Judgement:
        if evidence.theory is None:
            raise NotEnoughError("the theory's job")
        one = next(one for one in evidence.theory["statements"] if one["name"] == name)
        return one["worst"] <= one["tolerance"], (
            f"off by at most {one['worst']:.0e} in {one['cases']} random MDPs"
        )

    return judge


def kernel_counterexample_stands(evidence: Evidence) -> Judgement:
    """Supplement C."""
    if evidence.theory is None:
        raise NotEnoughError("the theory's job")
    fails, optimal = evidence.theory["kernel_fails"], evidence.theory["bcql_is_optimal"]
    return fails and optimal, (
        f"kernel-based RL {'fails' if fails else 'succeeds'}; BCQL is "
        f"{'optimal' if optimal else 'not optimal'}"
    )


AGENT = "the behavioural agent's or expert's evaluations without noise"
BATCH = "the average return of the batch's complete episodes, noise included"
CLAIMS = (
    Claim(
        "Figure 1",
        "Offline DDPG falls below its behavioural agent in each of three batches.",
        AGENT,
        "mean over trials of final below that of the behaviour, in each of the three",
        ddpg_falls_below,
    ),
    Claim(
        "Figure 1b",
        "In the concurrent task it does so in every single trial.",
        AGENT,
        "final below that of the same trial's agent, in every trial",
        ddpg_falls_below_every_time,
    ),
    Claim(
        "Figure 1",
        "Offline DDPG's values are unstable or diverge; the behavioural agent's are stable.",
        "the true value of offline DDPG at the same pairs; what any policy could earn",
        f"in at least one batch every trial's last estimate is more than {OVERSHOOT:g} times the "
        "truth; the behavioural agent's estimate never exceeds largest reward / (1 - gamma)",
        ddpg_values_diverge,
    ),
    Claim(
        "Figure 2",
        "BCQ matches or beats the batch in all four tasks.",
        BATCH,
        f"mean over trials of final at least {MATCHES:.0%} of the batch's average, in each",
        bcq_matches_the_batch,
    ),
    Claim(
        "Figure 2",
        "BCQ beats all others, but on imitation, where BC is best.",
        "DDPG, DQN, BC and VAE-BC",
        "mean over trials of final is the highest of the five; on imitation BC's is",
        bcq_beats_the_others,
    ),
    Claim(
        "Figure 2d",
        "BCQ strongly beats the noisy demonstrator, where deep RL and imitation do poorly.",
        BATCH,
        f"BCQ's final at least {STRONGLY:g} times the batch's average; DDPG's and DQN's below the "
        f"average; BCQ's at least {STRONGLY:g} times BC's and VAE-BC's",
        bcq_beats_the_noisy_demonstrator,
    ),
    Claim(
        "Figure 2",
        "BCQ reaches high performance in few iterations.",
        BATCH,
        f"in each task an evaluation reaches the batch's average by {EARLY:,} updates",
        bcq_is_quick,
    ),
    Claim(
        "Figure 3",
        "BCQ's values stay near the truth.",
        "the true value of BCQ at the same pairs",
        f"at {CONVERGED:,} updates or more, every trial's estimate is 0.5 to 1.5 times the truth",
        bcq_values_are_near,
    ),
    Claim(
        "Figure 7",
        "A larger Phi hurts on imitation and destabilises the values.",
        "BCQ with a small Phi",
        "with Phi of 1 or more, final is lower and estimate over truth higher, on average, than "
        "with 0.1 or less",
        larger_perturbation_hurts,
    ),
    Claim(
        "Figure 8",
        "Ensembles stabilise the value but do not imitate; the larger one estimates better.",
        AGENT,
        f"estimates at most {OVERSHOOT:g} times the truth, finals below half the expert's return, "
        "and the larger ensemble's estimate is the nearer one to its truth",
        ensembles_do_not_imitate,
    ),
    Claim(
        "Figure 9",
        "BCQ and DDPG both learn from random data.",
        BATCH,
        "mean over trials of final above the batch's average, on Pendulum and on Reacher",
        both_learn_from_random_data,
    ),
    Claim(
        "Figure 9",
        "BCQ's value function is stabler on Pendulum.",
        "DDPG",
        f"at {CONVERGED:,} updates or more, over the second half of training, BCQ's estimates vary "
        "less (standard deviation within a trial)",
        bcq_values_are_stabler,
    ),
    Claim(
        "Figure 9",
        "BCQ outperforms DDPG on Reacher.",
        "DDPG",
        "mean over trials of final is higher",
        bcq_is_better_on_reacher,
    ),
    *(
        Claim(
            statement.name,
            f"{statement.says[0].upper()}{statement.says[1:]}.",
            "exact solutions of random MDPs",
            f"no violation above {statement.tolerance:g}",
            statement_holds(statement.name),
        )
        for statement in STATEMENTS
    ),
    Claim(
        "Figure 6",
        "Kernel-based RL fails on optimal behaviour; BCQL does not.",
        "the optimal policy",
        "kernel-based RL stays in s1 for nothing; BCQL is optimal",
        kernel_counterexample_stands,
    ),
)


def as_markdown(verdicts: Sequence[Verdict]) -> str:
    """The table of claims."""
    rows = [
        "| where | claim | compared with | verdict | evidence | rule |",
        "|---|---|---|---|---|---|",
    ]
    rows += [
        f"| {v.claim.where} | {v.claim.says} | {v.claim.compares_with} | **{v.verdict}** "
        f"| {v.evidence} | {v.claim.rule} |"
        for v in verdicts
    ]
    return "\n".join(rows) + "\n"


def as_text(verdicts: Sequence[Verdict]) -> str:
    """The same for a terminal."""
    return "\n\n".join(
        f"{v.claim.where}: {v.claim.says}\n  {v.verdict.upper()}: {v.evidence}\n"
        f"  compared with {v.claim.compares_with}\n  rule: {v.claim.rule}"
        for v in verdicts
    )
