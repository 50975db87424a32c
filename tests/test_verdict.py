"""The rule of the verdict, what speaks for and against a policy, and choosing among several."""

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import bcq
from bcq.cli.application import main
from bcq.data.bounds import Choices
from bcq.data.columns import Provenance
from bcq.data.dataset import Dataset
from bcq.data.splits import HoldOut
from bcq.judging import candidates as module
from bcq.judging.behaviour import behaviour_of
from bcq.judging.candidates import Candidate, Choice, candidates_of, choose, discount_of
from bcq.judging.fitting import FitSettings
from bcq.judging.meter import Meter
from bcq.judging.report import as_json, as_text
from bcq.judging.support import Support, departure, difference, ratio, spread
from bcq.judging.values import Comparison, Estimate, Log, Proposed
from bcq.judging.verdict import RULE, Judgement
from bcq.system.errors import InputError
from judging_cases import log_of, random_mdp

QUICK = FitSettings(
    fits=3, period=1_000, batch_size=64, learning_rate=0.01, hidden_sizes=(), widening=1.0
)


def judgement(
    low: float = 1.0,
    high: float = 3.0,
    *,
    behaviour: float = 10.0,
    value: float = 12.0,
    fits: Any = (11.0, 12.0, 13.0),
    meter: float = 1.0,
    **changes: Any,
) -> Judgement:
    """One with a difference in this interval."""
    values: dict[str, Any] = {
        "settled": True,
        "at_limit": 0.0,
        "best_episode": 12.0,
        "widening": 1.0,
        "tail": 0.0,
    }
    support: dict[str, Any] = {
        "reaction": 1.0,
        "draws": 0.0,
        "own_value": None,
        "departure": None,
    }
    for name, change in changes.items():
        (values if name in values else support)[name] = change
    return Judgement(
        Comparison(
            policy=Estimate(value, value - 1, value + 1),
            behaviour=Estimate(behaviour, behaviour - 1, behaviour + 1),
            difference=Estimate((low + high) / 2, low, high),
            fits=np.array(fits),
            counts=np.ones((3, 2), np.int64),
            curve=[(1_000, value)],
            fitted=None,  # type: ignore[arg-type] # the rule does not ask it
            **values,
        ),
        Support(meter=Meter(meter, 1.0, 0.25, 0.125), **support),
        "importance sampling: not here",
        {"fitted values": 2.0, "support": 0.5},
    )


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({}, "better"),
        ({"best_episode": 11.99}, "better"),  # a policy may be better than every logged episode
        ({"low": 0.0}, "no worse"),
        ({"low": -0.49}, "no worse"),
        ({"low": -0.5}, "cannot tell"),  # the margin is 5% of 10
        ({"low": -0.49, "behaviour": -10.0}, "no worse"),
        ({"low": -3.0, "high": -0.1}, "do not deploy"),
        ({"low": -3.0, "high": 0.0}, "cannot tell"),
        ({"settled": False}, "do not deploy"),
        ({"at_limit": 0.06}, "do not deploy"),
        ({"at_limit": 0.05}, "better"),
        ({"meter": 3.1}, "do not deploy"),
        ({"meter": 3.0}, "better"),
        ({"reaction": 0.009}, "do not deploy"),
        ({"reaction": 0.01}, "better"),
        ({"departure": 16.0}, "better"),
        ({"departure": 16.1}, "cannot tell"),
        ({"departure": float("nan")}, "cannot tell"),
        ({"departure": 16.1, "low": -0.49}, "cannot tell"),
        ({"departure": 16.1, "low": -3.0, "high": -0.1}, "do not deploy"),
        ({"departure": 16.1, "settled": False}, "do not deploy"),
    ],
)
def test_the_rule(changes: dict[str, Any], verdict: str) -> None:
    found = judgement(**changes)
    assert found.verdict == verdict
    assert found.sound == (verdict != "do not deploy" or "high" in changes)


def test_the_rule_is_told_in_its_order_everywhere() -> None:
    """A small loss may be no worse and surely a loss, a doubtful gain may be above 0."""
    assert judgement(low=-0.4, high=-0.1).verdict == "do not deploy"
    order = ["do not deploy", "cannot tell", "better", "no worse", "cannot tell"]
    assert re.findall(rf"({'|'.join(order)}):", RULE) == order
    docs = (Path(__file__).parents[1] / "docs" / "judging.md").read_text(encoding="utf-8")
    assert re.findall(rf"^\| ({'|'.join(order)}) \|", docs, re.MULTILINE) == order
    assert f"rule: {RULE}" in as_text(choice(judgement()))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"settled": False}, "the fitted values did not settle"),
        ({"at_limit": 0.5}, "fitted values are at the limit of what the rewards allow"),
        ({"meter": 4.0}, "the policy leaves the data (meter 4.00)"),
        ({"reaction": 0.0}, "the policy does not react to its state"),
    ],
)
def test_objections_are_said(changes: dict[str, Any], words: str) -> None:
    assert judgement(**changes).objections == [words]


def test_a_doubt_is_said() -> None:
    far = judgement(departure=25.04)
    told = "the policy often takes choices that the log rarely shows (departure 25)"
    assert far.doubts == [told]
    assert far.sound
    lines = as_text(choice(far)).splitlines()
    assert f"  because {told}" in lines
    shown = "departure of its choices   25 (0: always the usual one; at most 16 for a verdict in "
    assert f"{shown}favour)" in lines
    assert as_json(choice(far))["departure"] == 25.04
    assert as_json(choice(far))["doubts"] == [told]
    quantities = judgement()
    assert quantities.doubts == []
    assert "departure of" not in as_text(choice(quantities))


class Known:
    """A behaviour whose chances are the numbers of the observations."""

    def chances(self, observations: Any, permitted: Any = None) -> Any:
        return observations if permitted is None else np.where(permitted, observations, 0.0)


def chosen(first: Any, after: Any) -> Any:
    return Proposed(np.array(after)[:, None], np.array(first)[:, None])


def of_choices(**changes: Any) -> Dataset:
    """Two episodes of two steps, the second of which terminates."""
    columns: dict[str, Any] = {
        "observations": np.array([[0.5, 0.5], [0.9, 0.1], [0.8, 0.2], [0.7, 0.3]], np.float32),
        "next_observations": np.array(
            [[0.9, 0.1], [0.25, 0.75], [0.7, 0.3], [0.0, 0.0]], np.float32
        ),
    }
    return Dataset(
        **columns,
        actions=np.zeros((4, 1), np.float32),
        rewards=np.arange(4, dtype=np.float32),
        terminated=np.array([False, False, False, True]),
        truncated=np.array([False, True, False, False]),
        bounds=Choices.numbered(2),
        provenance=Provenance(),
        **changes,
    )


def test_the_departure_by_hand() -> None:
    """At both starts and after the three steps that do not terminate, over two steps."""
    proposed = chosen(first=[1, 0], after=[1, 1, 0, 1])
    rarities = [np.log(0.5 / 0.5), 0.0, np.log(0.9 / 0.1), 0.0, 0.0]
    found = departure(proposed, of_choices(), Known(), 0.9)  # type: ignore[arg-type]
    assert found == pytest.approx(2 * np.mean(rarities), rel=1e-6)
    soon = departure(proposed, of_choices(), Known(), 0.25)  # type: ignore[arg-type]
    assert soon == pytest.approx(np.mean(rarities) / 0.75, rel=1e-6)


def test_a_choice_that_is_not_permitted_is_not_the_usual_one() -> None:
    permitted = np.ones((4, 2), bool)
    after = np.array([[False, True], [True, True], [True, True], [False, False]])
    dataset = of_choices(permitted=permitted, next_permitted=after)
    proposed = chosen(first=[1, 0], after=[1, 1, 0, 0])
    assert departure(proposed, dataset, Known(), 0.9) == 0.0  # type: ignore[arg-type]


def test_the_chances_of_a_behaviour_are_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bcq.judging.behaviour.UPDATES", 1_000)
    dataset = log_of(random_mdp(0), 60, seed=1)
    behaviour = behaviour_of(Log(dataset, 0.9), seed=0)
    states = np.eye(4, dtype=np.float32)
    shares = np.array(
        [dataset.actions[dataset.observations[:, one] == 1].mean() for one in range(4)]
    )
    np.testing.assert_allclose(behaviour.chances(states)[:, 1], shares, atol=0.03)
    only = np.array([[True, False]] * 4)
    np.testing.assert_array_equal(behaviour.chances(states, only)[:, 1], 0)
    assert behaviour_of(Log(dataset, 0.9), seed=0) is behaviour  # for another candidate
    monkeypatch.setattr("bcq.judging.behaviour.LEAST_PROBABILITY", 0.6)
    np.testing.assert_allclose(behaviour.chances(states), 0.6)


def test_spread_of_actions_by_hand() -> None:
    actions = np.array([[0.0, 1.0], [2.0, 1.0]])
    assert spread(actions, None) == 0.5  # the mean of 1 and 0
    assert spread(np.array([2, 2, 0, 2]), ("a", "b", "c")) == 0.25
    assert ratio(1.0, 4.0) == 0.25
    assert ratio(0.0, 0.0) == 1.0
    assert ratio(1.0, 0.0) == 0.0
    draws = np.array([[[0.0, 1.0], [0.5, 1.0]], [[0.0, 0.0], [0.0, -1.0]]])
    assert difference(draws) == pytest.approx((0.5 + 0 + 0 + 1) / 4)
    assert difference(draws[:, :1]) == 0.0


# Choosing


def choice(*judgements: Judgement) -> Choice:
    class Named:
        directory = Path("runs/x")

        def checkpoint_step(self) -> int:
            return -1  # later than all of these

        def checkpoints(self) -> list[dict[str, Any]]:
            return [{"step": 100 * n, "sha256": f"weights {n}"} for n in range(9)]

    ranking = [(Candidate(Named(), 100 * n), one) for n, one in enumerate(judgements)]  # type: ignore[arg-type]
    chosen, first = ranking[0]
    return Choice("held-out", 0.99, chosen, first, 7, ranking if len(ranking) > 1 else [])


def test_the_best_is_clear_if_its_fits_are_above_those_of_all_others() -> None:
    one = judgement(value=12.0, fits=(11.0, 12.0, 13.0))
    assert choice(one).clear
    assert choice(one, judgement(value=11.0, fits=(10.0, 11.0, 12.0))).clear  # always 1 less
    assert not choice(one, judgement(value=11.0, fits=(13.0, 10.0, 10.0))).clear
    surely_worse, perhaps_better = judgement(value=11.0, fits=(10.0, 11.0, 12.0)), (5.0, 14.0, 20.0)
    several = choice(one, surely_worse, judgement(value=13.0, fits=perhaps_better))
    assert several.rivals == 1
    assert "  others that cannot be told from the first: 1 of 2" in as_text(several).splitlines()
    suspect = judgement(value=13.0, fits=perhaps_better, at_limit=0.06)
    assert "  the first is the best" in as_text(choice(one, surely_worse, suspect)).splitlines()


def test_the_difference_of_two_policies_is_as_uncertain_as_that_to_the_behaviour() -> None:
    # differences 1.0, 1.2, 0.8: 4.30 standard deviations of 0.2 reach 0.86
    second = judgement(value=11.0, fits=(10.0, 10.8, 12.2))
    assert choice(judgement(), second).clear
    assert not choice(judgement(widening=1.2), second).clear


def test_the_preferred_policy_is_sound_and_surely_good() -> None:
    sure, lucky = judgement(value=12.0), judgement(value=20.0)
    wide = replace(lucky, values=replace(lucky.values, fits=np.array([14.0, 20.0, 26.0])))
    objected = [judgement(value=30.0, **why) for why in ({"meter": 5.0}, {"reaction": 0.0})]
    objected.append(judgement(value=30.0, at_limit=0.06))
    for last in objected:
        ranked = sorted([last, wide, sure], key=lambda one: one.preference, reverse=True)
        assert ranked == [sure, wide, last]


def test_fits_that_did_not_settle_or_are_widened_keep_their_place() -> None:
    behind, unsettled = judgement(value=11.0), judgement(value=12.0, settled=False)
    assert unsettled.preference > behind.preference
    assert judgement(widening=3.0).preference == judgement().preference


def test_the_first_of_the_ranking_is_the_preferred_one(
    tmp_path: Path, log: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    wide = judgement(value=20.0)
    wide = replace(wide, values=replace(wide.values, fits=np.array([14.0, 20.0, 26.0])))
    answers = iter([wide, judgement(value=12.0), judgement(value=1.0)])
    monkeypatch.setattr(module, "judge", lambda *_, **__: next(answers))
    run = trained(tmp_path / "run", log, HoldOut(0.4), steps=200, checkpoint_every=100, keep="all")
    found = choose([run], log)
    assert [candidate.step for candidate, _ in found.ranking] == [200, 100]
    assert found.chosen.step == 200
    assert found.judgement.values.policy.value == 1.0  # by other episodes


def test_a_judgement_is_told_with_its_numbers() -> None:
    text = as_text(choice(judgement(own_value=15.0)))
    assert text.startswith("runs/x at 0: better\n")
    for line in (
        "judged by 7 episodes (held-out), discount 0.99",
        "value of the policy        12 (11 to 13)",
        "value of the behaviour     10 (9 to 11), best episode 12",
        "difference                 2 (1 to 3)",
        "extrapolation meter        1 (1 is like the data)",
        "outside the logged range   25.0% of its actions (12.5% of the logged ones)",
        "value by its own estimate  15",
        "importance sampling: not here",
        "the fits settled after 1,000 updates",
        "time: fitted values 2.0 s, support 0.5 s",
    ):
        assert line in text.splitlines(), line
    assert "of the policy and the difference 3 times as wide" in as_text(
        choice(judgement(widening=3.0))
    )
    assert "  try it under supervision first" in text
    worse = judgement(meter=5.0, value=9.0)
    assert "under supervision" not in as_text(choice(worse))
    several = as_text(choice(judgement(), worse))
    assert "  9 (8 to 10)                      do not deploy  runs/x at 100" in several
    assert "  because the policy leaves the data (meter 5.00)" in as_text(choice(worse))
    assert as_json(choice(judgement()))["best_episode"] == 12.0
    told = as_json(choice(judgement(), worse))
    assert told["verdict"] == "better"
    assert told["chosen"] == {"run": "runs/x", "step": 0, "sha256": "weights 0"}
    assert told["difference"] == {"value": 2.0, "low": 1.0, "high": 3.0}
    assert [one["verdict"] for one in told["candidates"]] == ["better", "do not deploy"]


def test_a_judgement_in_json_has_every_number() -> None:
    assert as_json(choice(judgement())) == {
        "chosen": {"run": "runs/x", "step": 0, "sha256": "weights 0"},
        **{"fit_on": "held-out", "episodes": 7, "discount": 0.99},
        **{"verdict": "better", "objections": [], "doubts": []},
        "preference": (True, judgement().values.sure),
        "policy": {"value": 12.0, "low": 11.0, "high": 13.0},
        "behaviour": {"value": 10.0, "low": 9.0, "high": 11.0},
        "difference": {"value": 2.0, "low": 1.0, "high": 3.0},
        **{"best_episode": 12.0, "settled": True, "updates": 1_000, "tail": 0.0},
        **{"at_limit": 0.0, "widening": 1.0},
        **{"extrapolation_meter": 1.0, "outside": 0.25, "data_outside": 0.125},
        **{"reaction": 1.0, "draws": 0.0, "own_value": None, "departure": None},
        "seconds": {"fitted values": 2.0, "support": 0.5},
        "importance_sampling": {"refused": "importance sampling: not here"},
        **{"clearly_best": True, "over_seeds": [], "candidates": []},
    }


@pytest.fixture(scope="module")
def log() -> Any:
    return log_of(random_mdp(0), 60, seed=0)


def trained(folder: Path, log: Any, hold_out: HoldOut | None, **schedule: Any) -> bcq.Run:
    config = bcq.DiscreteBCConfig(hidden_sizes=(4,), batch_size=8)
    planned = bcq.Schedule(**{"steps": 100, **schedule})
    return bcq.train_run(folder, config, planned, log, hold_out=hold_out)


def test_runs_are_judged_by_the_episodes_that_they_kept_aside(
    tmp_path: Path, log: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bcq.judging.values.FitSettings", lambda: QUICK)
    monkeypatch.setattr("bcq.judging.fitting.LONGEST", 2)
    monkeypatch.setattr("bcq.judging.behaviour.UPDATES", 100)
    bcq.save(log, tmp_path / "log.hdf5")
    trained(tmp_path / "run", log, HoldOut(0.4), steps=200, checkpoint_every=100, keep="all")
    main(["judge", str(tmp_path / "run"), "--data", str(tmp_path / "log.hdf5"), "--quiet"])
    said = capsys.readouterr().out
    assert "candidates, compared by other episodes than those of the verdict:" in said
    assert f"{tmp_path / 'run'} at 100" in said
    assert f"{tmp_path / 'run'} at 200" in said
    assert "judged by 12 episodes (held-out), discount 0.99" in said  # half of 24
    assert "the log has no propensities" in said or "effective sample size" in said


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hold_out": None}, "learned from every episode of the batch"),
        ({"another": True}, "this is not the batch that .* was trained on; read it with"),
        ({"mixed": True}, "did not keep the same episodes aside"),
    ],
)
def test_what_cannot_be_compared_is_refused(
    tmp_path: Path, log: Any, changes: dict[str, Any], message: str
) -> None:
    runs = [trained(tmp_path / "one", log, changes.get("hold_out", HoldOut(0.4)))]
    if "mixed" in changes:
        runs.append(trained(tmp_path / "two", log, HoldOut(0.4, "time")))
    judged = log_of(random_mdp(1), 60, seed=0) if "another" in changes else log
    with pytest.raises(InputError, match=message):
        choose(runs, judged)


def test_episodes_to_choose_by_are_others_than_those_to_judge_by(tmp_path: Path, log: Any) -> None:
    runs = [trained(tmp_path / "run", log, HoldOut(0.4))]
    one = module.episodes_for(runs, log, "held-out", 1)
    assert one.choosing is one.judging
    assert len(one.judging.episodes) == 24
    two = module.episodes_for(runs, log, "held-out", 2)
    assert [len(part.episodes) for part in (two.choosing, two.judging)] == [12, 12]
    starts = dict(zip(("choosing", "judging"), (0, 1), strict=True))
    for name, start in starts.items():
        part = getattr(two, name)
        np.testing.assert_array_equal(
            part.rewards[: part.episodes[0, 1]],
            one.judging.rewards[slice(*one.judging.episodes[start])],
        )
    assert module.episodes_for(runs, log, "all", 1).judging is log


def test_too_few_episodes_for_both_are_refused_before_any_fit(tmp_path: Path, log: Any) -> None:
    run = trained(tmp_path / "run", log, HoldOut(0.15), steps=200, checkpoint_every=100, keep=2)
    message = (
        "choosing among 2 candidates and judging the best need at least 5 episodes each; there "
        "are 9 in all"
    )
    with pytest.raises(InputError, match=message):
        choose([run], log)
    assert len(module.episodes_for([run], log, "held-out", 1).judging.episodes) == 9
    ten = [trained(tmp_path / "ten", log, HoldOut(1 / 6))]
    assert len(module.episodes_for(ten, log, "held-out", 2).judging.episodes) == 5


def test_no_run_is_left_out_or_counted_twice(tmp_path: Path, log: Any) -> None:
    runs = [trained(tmp_path / name, log, None) for name in ("one", "two")]
    again = bcq.Run.open(tmp_path / "two" / ".." / "one")
    with pytest.raises(InputError, match=r"one: is given twice$"):
        candidates_of([*runs, again])
    (tmp_path / "two" / "checkpoint.json").unlink()
    with pytest.raises(InputError, match=r"two: has no checkpoint yet$"):
        candidates_of(runs)


def test_every_kept_checkpoint_is_a_candidate(tmp_path: Path, log: Any) -> None:
    run = trained(tmp_path / "run", log, None, steps=300, checkpoint_every=100, keep=2)
    assert [one.step for one in candidates_of([run])] == [200, 300]
    assert discount_of([run]) == 0.99  # imitation has none


def test_runs_are_judged_by_the_discount_on_which_they_agree() -> None:
    def runs(*discounts: float | None) -> Any:
        return [SimpleNamespace(algorithm=SimpleNamespace(discount=one)) for one in discounts]

    assert discount_of(runs(0.9, None, 0.9)) == 0.9
    with pytest.raises(InputError, match=r"these runs have different discounts: 0\.9, 0\.95"):
        discount_of(runs(0.95, None, 0.9))


def test_runs_that_differ_only_in_their_seed_tell_its_effect(tmp_path: Path, log: Any) -> None:
    known = {"checkpoint_every": 100, "keep": "all"}
    runs = [
        trained(tmp_path / "a", log, None, steps=200, seed=0, **known),
        trained(tmp_path / "b", log, None, steps=200, seed=1, **known),
        trained(tmp_path / "c", log, None, steps=100, seed=2, **known),  # shorter
        trained(tmp_path / "d", log, HoldOut(0.4), steps=200, seed=3, **known),  # from fewer
    ]
    candidates = candidates_of(runs)
    ranking = [(one, judgement(value=10.0 + n)) for n, one in enumerate(candidates)]
    told = Choice("all", 0.99, *ranking[0], 7, ranking)
    assert told.over_seeds == [[11.0, 13.0]]  # of each run its last checkpoint
    line = "  2 runs that differ only in their seed: 11 to 13, standard deviation 1.41"
    assert line in as_text(told).splitlines()
    assert as_json(told)["over_seeds"] == [[11.0, 13.0]]
    assert "differ only in their seed" not in as_text(choice(judgement(), judgement()))


def test_no_run_is_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["judge", str(tmp_path), "--data", "nowhere.hdf5"])
    assert "does not contain a run" in str(stopped.value)
