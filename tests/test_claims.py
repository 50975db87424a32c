"""Claims: each is judged by its rule, from made-up records whose answer is known."""

from dataclasses import replace
from typing import Any

import pytest

from bcq.experiments import claims
from bcq.experiments.claims import CLAIMS, FAILS, HOLDS, UNKNOWN, judge_all
from bcq.experiments.records import Record
from bcq.tabular.theorems import STATEMENTS

Changes = dict[str, Any]


def record(task: str, algorithm: str, final: float, **changes: Any) -> Record:
    """A run whose every evaluation but the first gives the same return."""
    made: Changes = {
        "task": task,
        "env": "Hopper-v5",
        "algorithm": algorithm,
        "seed": 0,
        "settings": {"discount": 0.99},
        "schedule": {"steps": 60_000},
        "batch": {"mean_return": 500.0, "largest_reward": 4.0, "expert_return": 1000.0},
        "evaluations": [(step, [final] * 2) for step in (5_000, 10_000, 15_000, 60_000)],
        "estimates": [(2_500, 100.0)],
        "truths": [{"step": 60_000, "estimate": 100.0, "truth": 100.0}],
        "made": {},
    }
    return Record(**made | changes)


def truth(estimate: float) -> list[dict[str, float]]:
    return [{"step": 60_000, "estimate": estimate, "truth": 100.0}]


def as_in_the_paper() -> list[Record]:
    """Two trials of everything, with the returns and values that the paper reports."""
    return [replace(run, seed=seed) for seed in range(2) for run in one_trial()]


def one_trial() -> list[Record]:
    runs = []
    for task in ("final-buffer", "concurrent", "imitation", "imperfect"):
        runs.append(record(task, "ddpg", 100, truths=truth(250)))
        runs.append(record(task, "dqn", 90))
        runs.append(record(task, "vae-bc", 400))
        runs.append(record(task, "bc", 990 if task == "imitation" else 410))
        phi = {"discount": 0.99, "max_perturbation": 0.05}
        runs.append(record(task, "bcq", 980, settings=phi, truths=truth(110)))
    for task in ("final-buffer", "concurrent"):
        runs.append(record(task, "behaviour", 800, batch=None, truths=[]))
    large = {"discount": 0.99, "max_perturbation": 2.0}
    runs.append(record("imitation", "bcq", 50, settings=large, truths=truth(500)))
    for members, estimate in ((4, 150), (10, 120)):
        sizes = {"discount": 0.99, "members": members}
        runs.append(record("imitation", "ensemble", 60, settings=sizes, truths=truth(estimate)))
    for env in ("Pendulum-v1", "Reacher-v5"):
        for name, level, shaking in (("bcq", 700, 1), ("ddpg", 600, 50)):
            lines: Changes = {
                "evaluations": [(i, [level + (-1) ** i * shaking]) for i in range(8)],
                "estimates": [(i * 7_500, level + (-1) ** i * shaking) for i in range(1, 9)],
            }
            runs.append(record("random", name, level, env=env, **lines))
    return runs


THEORY = {
    "statements": [
        {"name": s.name, "says": s.says, "cases": 2, "worst": 0.0, "tolerance": s.tolerance}
        for s in STATEMENTS
    ],
    "kernel_fails": True,
    "bcql_is_optimal": True,
}


def verdict(judge: Any, runs: list[Record], theory: Any = THEORY) -> str:
    """By the function that decides it."""
    return next(v.verdict for v in judge_all(runs, theory) if v.claim.judge is judge)


def changed(runs: list[Record], task: str, algorithm: str, **changes: Any) -> list[Record]:
    """The same, with all trials of one line replaced."""
    return [
        record(task, algorithm, **{"seed": run.seed, "settings": run.settings, **changes})
        if (run.task, run.algorithm, run.env) == (task, algorithm, changes.get("env", run.env))
        and run.settings.get("max_perturbation", 0.05) == 0.05
        else run
        for run in runs
    ]


def test_every_claim_holds_on_the_papers_own_numbers() -> None:
    for found in judge_all(as_in_the_paper(), THEORY):
        assert found.verdict == HOLDS, found


def test_nothing_is_claimed_without_runs() -> None:
    for found in judge_all([], None):
        assert found.verdict == UNKNOWN
        assert found.evidence.startswith("needs ")


def test_one_trial_is_not_enough() -> None:
    runs = [run for run in as_in_the_paper() if run.seed == 0]
    about_runs = [v for v in judge_all(runs, THEORY) if v.claim.where.startswith("Figure")]
    assert {v.verdict for v in about_runs if v.claim.where != "Figure 6"} == {UNKNOWN}


@pytest.mark.parametrize(
    ("judge", "task", "algorithm", "changes"),
    [
        (claims.ddpg_falls_below, "final-buffer", "ddpg", {"final": 801}),
        (claims.ddpg_falls_below, "imitation", "ddpg", {"final": 1001}),
        (claims.bcq_matches_the_batch, "concurrent", "bcq", {"final": 470}),
        (claims.bcq_beats_the_others, "imperfect", "bc", {"final": 981}),
        (claims.bcq_beats_the_others, "imitation", "bc", {"final": 979}),
        (claims.bcq_beats_the_noisy_demonstrator, "imperfect", "bcq", {"final": 749}),
        (claims.bcq_beats_the_noisy_demonstrator, "imperfect", "dqn", {"final": 501}),
        (claims.bcq_beats_the_noisy_demonstrator, "imperfect", "vae-bc", {"final": 700}),
        (claims.bcq_is_quick, "imitation", "bcq", {"final": 499}),
        (claims.bcq_values_are_near, "imperfect", "bcq", {"final": 980, "truths": truth(151)}),
        (claims.bcq_values_are_near, "imperfect", "bcq", {"final": 980, "truths": truth(49)}),
        (claims.larger_perturbation_hurts, "imitation", "bcq", {"final": 49}),
        (
            claims.larger_perturbation_hurts,
            "imitation",
            "bcq",
            {"final": 980, "truths": truth(501)},
        ),
        (claims.both_learn_from_random_data, "random", "ddpg", {"final": 499}),
    ],
)
def test_a_claim_does_not_hold_where_its_rule_is_broken(
    judge: Any, task: str, algorithm: str, changes: Changes
) -> None:
    runs = as_in_the_paper()
    if task == "random":
        changes = changes | {"env": "Reacher-v5"}
    assert verdict(judge, changed(runs, task, algorithm, **changes)) == FAILS


def test_in_the_concurrent_task_one_trial_above_its_agent_is_enough() -> None:
    runs = [
        replace(run, evaluations=[(1, [900.0])])
        if (run.task, run.algorithm, run.seed) == ("concurrent", "ddpg", 1)
        else run
        for run in as_in_the_paper()
    ]
    assert verdict(claims.ddpg_falls_below_every_time, runs) == FAILS
    assert verdict(claims.ddpg_falls_below, runs) == HOLDS  # the mean is still below


def test_experts_are_no_trials_of_the_concurrent_task() -> None:
    experts = [
        record("concurrent", "behaviour", 1, seed=seed, batch=None, estimates=[(2_500, 1e6)])
        for seed in (7, 8)
    ]
    runs = [*experts, *as_in_the_paper()]
    for judge in (claims.ddpg_falls_below, claims.ddpg_falls_below_every_time):
        assert verdict(judge, runs) == HOLDS
    assert verdict(claims.ddpg_values_diverge, runs) == HOLDS


def test_agents_are_compared_with_the_trial_of_their_own_seed() -> None:
    runs = [
        replace(run, evaluations=[(1, [50.0 if run.algorithm == "ddpg" else 60.0])])
        if (run.task, run.seed) == ("concurrent", 1) and run.algorithm in ("ddpg", "behaviour")
        else run
        for run in as_in_the_paper()
    ]
    assert verdict(claims.ddpg_falls_below_every_time, runs) == HOLDS
    assert verdict(claims.ddpg_falls_below_every_time, runs[::-1]) == HOLDS


def test_trials_that_end_at_different_steps_can_be_judged() -> None:
    runs = [
        replace(run, evaluations=run.evaluations[:3])
        if (run.task, run.seed) == ("concurrent", 1)
        else run
        for run in as_in_the_paper()
    ]
    assert verdict(claims.bcq_is_quick, runs) == HOLDS


def test_values_that_do_not_overshoot_do_not_diverge() -> None:
    runs = as_in_the_paper()
    for task in ("final-buffer", "concurrent", "imitation"):
        runs = changed(runs, task, "ddpg", final=100, truths=truth(199))
    assert verdict(claims.ddpg_values_diverge, runs) == FAILS


def test_a_behavioural_agent_whose_values_leave_what_can_be_earned_is_not_stable() -> None:
    runs = changed(
        as_in_the_paper(), "concurrent", "behaviour", final=800, estimates=[(2_500, 401.0)]
    )
    assert verdict(claims.ddpg_values_diverge, runs) == FAILS


def test_ensembles_are_judged_by_value_return_and_size() -> None:
    def with_ensembles(**of: Changes) -> list[Record]:
        return [
            replace(run, **of.get(f"of{run.settings['members']}", {}))
            if run.algorithm == "ensemble"
            else run
            for run in as_in_the_paper()
        ]

    judge = claims.ensembles_do_not_imitate
    assert verdict(judge, with_ensembles()) == HOLDS
    assert verdict(judge, with_ensembles(of10={"truths": truth(201)})) == FAILS  # overshoots
    assert verdict(judge, with_ensembles(of10={"truths": truth(160)})) == FAILS  # not the nearer
    assert verdict(judge, with_ensembles(of4={"evaluations": [(1, [501.0])]})) == FAILS  # imitates


def test_stability_on_random_data_is_that_of_values_late_within_a_trial() -> None:
    def with_bcq(estimates: list[tuple[int, float]], **changes: Any) -> list[Record]:
        return [
            replace(run, estimates=estimates, **changes)
            if (run.algorithm, run.env) == ("bcq", "Pendulum-v1")
            else run
            for run in as_in_the_paper()
        ]

    judge = claims.bcq_values_are_stabler
    early = [(i * 7_500, 1e6 * (-1) ** i if i < 5 else 700.0) for i in range(1, 9)]
    assert verdict(judge, with_bcq(early)) == HOLDS
    late = [(i * 7_500, 700.0 + 60 * (-1) ** i) for i in range(1, 9)]
    assert verdict(judge, with_bcq(late)) == FAILS
    assert verdict(judge, with_bcq(late, schedule={"steps": 59_999})) == UNKNOWN


def test_the_final_return_is_that_of_the_last_three_evaluations() -> None:
    evaluations = [(step, [float(step)] * 2) for step in (1, 2, 3, 10, 20, 60)]
    assert record("imitation", "bcq", 0, evaluations=evaluations).final == 30


def test_a_twentieth_below_the_batch_still_matches_it() -> None:
    judge, runs = claims.bcq_matches_the_batch, as_in_the_paper()
    assert verdict(judge, changed(runs, "imitation", "bcq", final=476)) == HOLDS  # of 500
    assert verdict(judge, changed(runs, "imitation", "bcq", final=474)) == FAILS


def test_returns_on_reacher_decide_the_other_half() -> None:
    runs = [
        replace(run, evaluations=[(60_000, [583.0])])
        if (run.algorithm, run.env) == ("bcq", "Reacher-v5")
        else run
        for run in as_in_the_paper()
    ]
    assert verdict(claims.bcq_is_better_on_reacher, runs) == FAILS


def test_values_are_judged_only_after_sixty_thousand_updates() -> None:
    runs = changed(as_in_the_paper(), "imperfect", "bcq", final=980, schedule={"steps": 59_900})
    found = next(v for v in judge_all(runs, THEORY) if v.claim.judge is claims.bcq_values_are_near)
    assert found.verdict == UNKNOWN
    assert "60,000 updates" in found.evidence


def test_short_runs_that_have_not_arrived_yet_are_no_evidence_of_slowness() -> None:
    runs = changed(as_in_the_paper(), "imitation", "bcq", final=100, evaluations=[(5_000, [100.0])])
    assert verdict(claims.bcq_is_quick, runs) == UNKNOWN


def test_a_statement_of_the_theory_fails_above_its_tolerance() -> None:
    theory = THEORY | {
        "statements": [
            {**one, "worst": 2 * one["tolerance"] if one["name"] == "Theorem 4" else 0.0}
            for one in THEORY["statements"]  # type: ignore[attr-defined]
        ]
    }
    found = {v.claim.where: v.verdict for v in judge_all([], theory)}
    assert found["Theorem 4"] == FAILS
    assert found["Theorem 3"] == HOLDS


@pytest.mark.parametrize("key", ["kernel_fails", "bcql_is_optimal"])
def test_the_counterexample_needs_both_halves(key: str) -> None:
    assert verdict(claims.kernel_counterexample_stands, [], THEORY | {key: False}) == FAILS


def test_every_claim_says_what_it_compares_with_and_by_which_rule() -> None:
    text = claims.as_text(judge_all(as_in_the_paper(), THEORY))
    table = claims.as_markdown(judge_all(as_in_the_paper(), THEORY))
    for claim in CLAIMS:
        assert claim.says in text
        assert claim.rule in text
        assert claim.compares_with in table
    assert table.count("\n") == len(CLAIMS) + 2
