"""The paper's experiments as data: which jobs, under which names."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import numpy as np
import pytest

from bcq.algorithms import BCQConfig, EnsembleConfig, name_of
from bcq.collection import experts
from bcq.collection.experts import bundled
from bcq.collection.recipes import collect, random_batch
from bcq.experiments import jobs
from bcq.experiments.forms import from_json
from bcq.experiments.jobs import Job, directory_name, fingerprint, with_needs
from bcq.experiments.kinds import Batch, Experts, OnlineAgent, Theory, Training
from bcq.paper import BEYOND, EXPERIMENTS, jobs_of
from bcq.paper.claims import EARLY
from bcq.paper.figure_1_extrapolation import YOUNG
from bcq.paper.presets import PERTURBATIONS, PRESETS, ExperimentName, Plan, Preset, PresetName
from bcq.runs.schedules import BehaviourSchedule, Schedule
from bcq.simulation.batches import load
from bcq.system.errors import InputError

PAPER = PRESETS["paper"]
TASKS = ("final-buffer", "concurrent", "imitation", "imperfect")


def everything(preset: Preset) -> list[Job]:
    return with_needs(jobs_of(preset, (), ()))


def trainings(preset: Preset, *names: ExperimentName) -> list[Training]:
    found = with_needs(jobs_of(preset, names, ()))
    return [job for job in found if isinstance(job, Training)]


def test_every_name_that_the_command_offers_exists() -> None:
    assert set(EXPERIMENTS) == set(get_args(ExperimentName))
    assert set(PRESETS) == set(get_args(PresetName))


@pytest.mark.parametrize("name", PRESETS)
def test_a_job_survives_the_trip_through_its_file(name: PresetName) -> None:
    for job in everything(PRESETS[name]):
        again = from_json(json.loads(json.dumps(job.as_json())))
        assert again == job
        assert fingerprint(again) == fingerprint(job)


@pytest.mark.parametrize("name", PRESETS)
def test_needs_come_first_and_nothing_comes_twice(name: PresetName) -> None:
    found = everything(PRESETS[name])
    names = [directory_name(job) for job in found]
    assert len(set(names)) == len(names)
    for i, job in enumerate(found):
        for need in job.needs:
            assert directory_name(need) in names[:i]


PLAN = Plan("Hopper-v5", "imperfect", rows=100_000, updates=12_000, trials=2)


def a_training(**changes: Any) -> Training:
    return replace(PRESETS["quick"].training(BCQConfig(), PLAN, 0), **changes)


def test_a_fingerprint_stands_for_every_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    job = a_training()
    others = [
        a_training(config=BCQConfig(max_perturbation=0.1)),
        a_training(schedule=replace(job.schedule, seed=1)),
        a_training(schedule=replace(job.schedule, steps=12_100)),
        a_training(batch=replace(job.batch, transitions=99_999)),
        PRESETS["quick"].training(BCQConfig(), replace(PLAN, task="imitation"), 0),
        PRESETS["quick"].training(BCQConfig(), PLAN, 1),
        replace(PAPER, candidates=14).training(BCQConfig(), PLAN, 0),
        replace(PAPER, candidates=15).training(BCQConfig(), PLAN, 0),
        replace(PAPER, candidate_steps=600_000).training(BCQConfig(), PLAN, 0),
        replace(PAPER, experts=4).training(BCQConfig(), PLAN, 0),
    ]
    before = [fingerprint(one) for one in (job, *others)]
    assert len(set(before)) == len(before)
    assert fingerprint(a_training()) == before[0]
    monkeypatch.setattr(jobs, "THREADS", 2)
    assert fingerprint(job) != before[0]


def test_a_fingerprint_stands_for_the_bundled_experts_weights_and_the_kind_of_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = fingerprint(a_training())
    jobs.digest.cache_clear()
    monkeypatch.setattr(jobs, "NUMBERS", 99)
    assert fingerprint(a_training()) != before
    monkeypatch.undo()
    jobs.digest.cache_clear()
    for path in bundled("Hopper-v5"):
        (tmp_path / path.name).write_bytes(path.read_bytes() + b"other")
    monkeypatch.setattr(experts, "BUNDLED", tmp_path)
    assert fingerprint(a_training()) != before
    jobs.digest.cache_clear()


@pytest.mark.parametrize(("trial", "expert"), [(0, 0), (1, 1), (2, 0), (3, 1)])
def test_where_experts_are_fewer_than_trials_they_serve_in_turn(
    trial: int, expert: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = bundled("Hopper-v5")[0]
    for number in range(2):
        for suffix in (".safetensors", ".json"):
            content = path.with_suffix(suffix).read_bytes()
            (tmp_path / f"Hopper-v5-{number}{suffix}").write_bytes(content)
    monkeypatch.setattr(experts, "BUNDLED", tmp_path)
    batch = PRESETS["standard"].batch(PLAN, trial)
    told = batch.bundled_expert()
    assert told is not None
    assert told["name"] == f"Hopper-v5-{expert}"
    card = json.loads((tmp_path / f"{told['name']}.json").read_text())
    assert batch.expert(tmp_path).card == card


def test_another_bundled_expert_changes_only_the_trials_that_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = bundled("Hopper-v5")[0]

    def add_expert(number: int) -> None:
        content = path.read_bytes() + bytes([number])
        (tmp_path / f"Hopper-v5-{number}.safetensors").write_bytes(content)

    def fingerprints() -> list[tuple[str, ...]]:
        """Of the imperfect batch, its learner and the random batch of five trials."""
        jobs.digest.cache_clear()
        quick = PRESETS["quick"]
        return [
            (
                fingerprint(quick.batch(PLAN, trial)),
                fingerprint(quick.training(BCQConfig(), PLAN, trial)),
                fingerprint(quick.batch(replace(PLAN, task="random"), trial)),
            )
            for trial in range(5)
        ]

    monkeypatch.setattr(experts, "BUNDLED", tmp_path)
    add_expert(0)
    one = fingerprints()
    add_expert(1)
    two = fingerprints()  # experts 0 1 0 1 0 instead of 0 0 0 0 0
    add_expert(2)
    three = fingerprints()  # experts 0 1 2 0 1
    jobs.digest.cache_clear()

    def changed(before: list[tuple[str, ...]], after: list[tuple[str, ...]]) -> list[list[bool]]:
        trials = zip(before, after, strict=True)
        return [[a != b for a, b in zip(*trial, strict=True)] for trial in trials]

    stays, changes = [False] * 3, [True, True, False]  # nobody behaves in a random batch
    assert changed(one, two) == [stays, changes, stays, changes, stays]
    assert changed(two, three) == [stays, stays, changes, changes, changes]


def test_names_tell_jobs_apart_that_differ_in_one_setting() -> None:
    names = {job.name for job in trainings(PAPER, "perturbation") if job.schedule.seed == 0}
    assert len(names) == 3 * len(PERTURBATIONS)
    assert "bcq-max_perturbation0.5-imitation-Hopper-v5-seed0" in names
    assert "bcq-imitation-Hopper-v5-seed0" in names


def test_the_papers_scale_is_the_papers() -> None:
    found = everything(PAPER)
    assert len(trainings(PAPER, "results")) == 3 * 4 * 5 * 5
    assert {job.schedule.steps for job in trainings(PAPER)} == {1_000_000}
    assert {job.schedule.evaluate_every for job in trainings(PAPER)} == {5_000}
    batches = {(b.recipe, b.transitions) for b in found if isinstance(b, Batch)}
    assert batches == {
        ("final-buffer", 1_000_000),
        ("concurrent", 1_000_000),
        ("imitation", 1_000_000),
        ("imperfect", 100_000),
        ("random", 5_000),
    }
    agents = [job.schedule for job in found if isinstance(job, OnlineAgent)]
    assert {(a.noise, a.steps) for a in agents} == {(0.5, 1_000_000), (0.1, 1_000_000)}
    chosen = [job for job in found if isinstance(job, Experts)]
    assert [(len(e.needs), e.keep) for e in chosen] == [(15, 5)] * 3


def test_experts_and_concurrent_behaviours_are_the_same_agents() -> None:
    agents = [
        job.schedule
        for job in everything(PAPER)
        if isinstance(job, OnlineAgent) and job.schedule.noise == 0.1
    ]
    assert len(agents) == 15 * 3  # and not 20 * 3


@pytest.mark.parametrize("name", PRESETS)
def test_trial_i_learns_from_behaviour_or_expert_i(name: PresetName) -> None:
    for job in trainings(PRESETS[name]):
        assert job.batch.trial == job.schedule.seed
        source = job.batch.source
        assert not isinstance(source, OnlineAgent) or source.schedule.seed == job.schedule.seed


def test_each_experiment_has_the_algorithms_of_its_figure() -> None:
    def algorithms(name: ExperimentName) -> set[str]:
        return {name_of(job.config) for job in trainings(PAPER, name)}

    assert algorithms("extrapolation") == {"ddpg"}
    assert algorithms("results") == {"bcq", "ddpg", "dqn", "bc", "vae-bc"}
    assert algorithms("values") == {"bcq", "ddpg", "dqn"}
    assert algorithms("perturbation") == {"bcq"}
    assert algorithms("uncertainty") == {"ensemble", "bcq"}
    assert algorithms("random") == {"bcq", "ddpg", "bc"}
    members = {
        job.config.members
        for job in trainings(PAPER, "uncertainty")
        if isinstance(job.config, EnsembleConfig)
    }
    assert members == {4, 10}
    sizes = [job.config for job in trainings(PAPER, "random") if isinstance(job.config, BCQConfig)]
    assert {config.vae_l2 for config in sizes} == {1e-3}
    assert jobs_of(PAPER, ("theory",), ()) == [Theory()]


def test_only_the_concurrent_task_replays_in_order() -> None:
    for job in trainings(PAPER):
        assert job.schedule.concurrent == (job.batch.recipe == "concurrent")


def test_parts_can_be_chosen() -> None:
    found = jobs_of(PAPER, ("results", "random"), ("Walker2d-v5", "Pendulum-v1"))
    assert {job.batch.env for job in found if isinstance(job, Training)} == {
        "Walker2d-v5",
        "Pendulum-v1",
    }


def test_an_environment_that_a_preset_does_not_have_is_refused() -> None:
    with pytest.raises(InputError, match="is not in this preset; it has HalfCheetah-v5, Hopper-v5"):
        jobs_of(PRESETS["standard"], (), ("Ant-v5",))


def test_values_are_measured_only_where_there_are_any() -> None:
    plan = replace(PLAN, true_value_every=200)
    for job in trainings(replace(PAPER, plans={"results": [plan]}), "results"):
        imitates = name_of(job.config) in ("bc", "vae-bc")
        assert job.schedule.true_value_every == (None if imitates else 200)


def test_the_standard_preset_is_worked_off_in_the_order_of_its_worth() -> None:
    found = [
        (job.batch.env, job.batch.recipe, job.schedule.steps)
        for job in jobs_of(PRESETS["standard"], (), ())
        if isinstance(job, Training)
    ]
    order = list(dict.fromkeys(found))
    assert order == [
        ("Hopper-v5", "imperfect", 60_000),
        ("HalfCheetah-v5", "imperfect", 30_000),
        ("Walker2d-v5", "imperfect", 30_000),
        ("Hopper-v5", "imitation", 60_000),
        ("HalfCheetah-v5", "imitation", 30_000),
        ("Walker2d-v5", "imitation", 30_000),
        ("Hopper-v5", "final-buffer", 100_000),
        ("Hopper-v5", "concurrent", 300_000),
        ("Hopper-v5", "final-buffer", 60_000),
        ("Hopper-v5", "concurrent", 60_000),
        ("Hopper-v5", "imitation", 30_000),
        ("Pendulum-v1", "random", 60_000),
        ("Reacher-v5", "random", 20_000),
    ]


def scales(name: PresetName) -> dict[ExperimentName, list[tuple[Any, ...]]]:
    """Environment, task, rows, updates, trials, evaluations and true values of the paper's."""
    return {
        experiment: [
            (
                *(p.env.split("-")[0], p.task, p.rows, p.updates, p.trials),
                *(p.evaluate_every, p.true_value_every),
            )
            for p in plans
        ]
        for experiment, plans in PRESETS[name].plans.items()
        if experiment not in BEYOND
    }


def test_the_smoke_preset_does_everything_once() -> None:
    scale = (400, 100, 1, 100, 100)
    four = [("Hopper", task, *scale) for task in TASKS]
    assert scales("smoke") == {
        "extrapolation": four[:3],
        "results": four,
        "values": four,
        "perturbation": four[2:3],
        "uncertainty": four[2:3],
        "random": [("Pendulum", "random", *scale)],
    }
    smoke = PRESETS["smoke"]
    assert (smoke.perturbations, smoke.members) == ((0.05, 2.0), (2, 3))
    assert (smoke.evaluate_behaviour_every, smoke.evaluate_episodes) == (200, 2)


def test_the_quick_preset_is_what_the_readme_was_measured_with() -> None:
    four = [
        ("Hopper", "final-buffer", 20_000, 5_000, 2, 500, 2_500),
        ("Hopper", "concurrent", 7_500, 7_500, 2, 500, 2_500),
        ("Hopper", "imitation", 100_000, 5_000, 2, 500, 2_500),
        ("Hopper", "imperfect", 100_000, 12_000, 2, 1_000, 6_000),
    ]
    toy = ("random", 5_000, 5_000, 2, 500, 2_500)
    assert scales("quick") == {
        "extrapolation": four[:3],
        "results": four,
        "values": four,
        "perturbation": four[2:3],
        "uncertainty": four[2:3],
        "random": [("Pendulum", *toy), ("Reacher", *toy)],
    }
    quick = PRESETS["quick"]
    assert (quick.perturbations, quick.members) == ((0.0, 0.05, 0.5, 2.0), (4, 10))
    assert (quick.evaluate_behaviour_every, quick.evaluate_episodes) == (1_000, 10)
    assert quick.candidates == 0


def test_the_standard_preset_has_the_trials_that_claims_need() -> None:
    demonstrations = [
        (env, task, 100_000, updates, trials, 2_000, 10_000)
        for task in ("imperfect", "imitation")
        for env, updates, trials in (
            ("Hopper", 60_000, 3),
            ("HalfCheetah", 30_000, 2),
            ("Walker2d", 30_000, 2),
        )
    ]
    results = [
        *demonstrations,
        ("Hopper", "final-buffer", 100_000, 60_000, 2, 2_000, 10_000),
        ("Hopper", "concurrent", 60_000, 60_000, 2, 2_000, 10_000),
    ]
    last = ("Hopper", "imitation", 100_000, 30_000, 2, 2_000, 10_000)
    assert scales("standard") == {
        "extrapolation": [
            ("Hopper", "final-buffer", 100_000, 100_000, 3, 5_000, 25_000),
            ("Hopper", "concurrent", 300_000, 300_000, 3, 5_000, 25_000),
            ("Hopper", "imitation", 100_000, 60_000, 3, 2_000, 10_000),
        ],
        "results": results,
        "values": results,
        "perturbation": [last],
        "uncertainty": [last],
        "random": [
            ("Pendulum", "random", 5_000, 60_000, 2, 2_000, 10_000),
            ("Reacher", "random", 5_000, 20_000, 2, 2_000, 10_000),
        ],
    }
    assert PRESETS["standard"].perturbations == (0.05, 0.25, 1.0)
    assert PRESETS["standard"].evaluate_behaviour_every == 5_000


def test_a_plan_becomes_a_schedule() -> None:
    plan = Plan("Hopper-v5", "final-buffer", 300, 500, 1, evaluate_every=100, true_value_every=200)
    preset = replace(PAPER, evaluate_behaviour_every=700, evaluate_episodes=3)
    job = preset.training(BCQConfig(), plan, 4)
    assert job.schedule == Schedule(
        steps=500,
        seed=4,
        env="Hopper-v5",
        evaluate_every=100,
        evaluate_episodes=3,
        checkpoint_every=100,
        true_value_every=200,
    )
    assert job.batch.source == OnlineAgent(
        BehaviourSchedule(
            env="Hopper-v5",
            steps=300,
            seed=4,
            noise=0.5,
            evaluate_every=700,
            evaluate_episodes=3,
        )
    )
    assert (job.batch.transitions, job.batch.trial) == (300, 4)


def test_a_batch_may_be_the_first_rows_of_a_longer_life() -> None:
    batches = {
        job.batch.transitions: job.batch
        for job in trainings(PRESETS["standard"])
        if (job.batch.recipe, job.batch.trial) == ("concurrent", 0)
    }
    assert batches.keys() == {60_000, 300_000}
    assert batches[60_000].source == batches[300_000].source
    assert isinstance(batches[60_000].source, OnlineAgent)
    assert batches[60_000].source.schedule.steps == 300_000


def test_a_kind_of_job_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match="Nonsense"):
        from_json({"kind": "Nonsense"})


def test_a_fingerprint_is_the_hash_of_everything_in_order() -> None:
    """As in the records of other machines, which are not run again."""
    told = '{"job": {"checks": 2, "kind": "Theory", "seed": 0}, "numbers": 2, "threads": 1}'
    wanted = hashlib.sha256(told.encode()).hexdigest()[:12]
    assert fingerprint(Theory()) == wanted
    assert directory_name(Theory()) == f"theory-{wanted}"


def test_a_job_is_named_by_what_it_does() -> None:
    schedule = BehaviourSchedule(env="Hopper-v5", steps=30, seed=4, noise=0.5)
    agents = tuple(OnlineAgent(replace(schedule, seed=seed)) for seed in range(3))
    kept = Experts(agents, 2)
    batch = Batch("imperfect", "Hopper-v5", 20, 1, kept)
    training = Training(BCQConfig(), Schedule(steps=10, seed=1, env="Hopper-v5"), batch)
    assert OnlineAgent(schedule).name == "behaviour-Hopper-v5-noise0.5-seed4"
    assert kept.name == "experts-Hopper-v5-2-of-3"
    assert batch.name == "batch-imperfect-Hopper-v5-seed1"
    assert training.name == "bcq-imperfect-Hopper-v5-seed1"
    lengths = [job.length for job in (agents[0], kept, batch, training, Theory())]
    assert lengths == [30, 1, 20, 10, 1]


def test_a_batch_tells_the_weights_of_its_expert() -> None:
    path = bundled("Hopper-v5")[0]
    assert Batch("imperfect", "Hopper-v5", 20, 0).as_json() == {
        "kind": "Batch",
        "recipe": "imperfect",
        "env": "Hopper-v5",
        "transitions": 20,
        "trial": 0,
        "source": None,
        "expert": {"name": path.stem, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()},
    }


def test_a_batch_knows_what_its_expert_earns_without_noise(tmp_path: Path) -> None:
    card = json.loads(bundled("Hopper-v5")[0].with_suffix(".json").read_text())
    found = Batch("imperfect", "Hopper-v5", 20, 0).expert_return(tmp_path)
    assert found == card["mean_return_of_100_fresh_episodes"]
    assert Batch("random", "Hopper-v5", 20, 0).expert_return(tmp_path) is None


def test_without_a_bundled_expert_a_batch_says_how_to_get_one() -> None:
    with pytest.raises(InputError, match=r"no expert of Pendulum-v1 is bundled; train one with"):
        Batch("imitation", "Pendulum-v1", 20, 0).as_json()


def test_a_job_leaves_its_settings_and_how_long_it_took(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    readings = iter([10.0, 12.34])
    monkeypatch.setattr(jobs, "time", SimpleNamespace(perf_counter=lambda: next(readings)))
    batch = Batch("random", "Pendulum-v1", 30, 3)
    jobs.perform(batch, tmp_path)
    folder = tmp_path / directory_name(batch)
    assert json.loads((folder / "job.json").read_text()) == batch.as_json()
    assert json.loads((folder / "done.json").read_text())["seconds"] == 2.3


def test_a_batch_is_collected_once_with_the_seed_of_its_trial(tmp_path: Path) -> None:
    batch = Batch("random", "Pendulum-v1", 30, 3)
    folder = tmp_path / directory_name(batch)
    folder.mkdir()
    batch.perform(tmp_path)
    dataset = load(folder / "batch.hdf5")
    wanted = collect(random_batch("Pendulum-v1", transitions=30, seed=3))
    np.testing.assert_array_equal(dataset.actions, wanted.actions)
    summary = json.loads((folder / "batch.json").read_text())
    assert summary["largest_reward"] == pytest.approx(np.abs(wanted.rewards).max())
    before = (folder / "batch.hdf5").stat().st_mtime_ns
    (folder / "batch.json").unlink()
    batch.perform(tmp_path)  # as after an interruption between the two files
    assert (folder / "batch.hdf5").stat().st_mtime_ns == before
    assert json.loads((folder / "batch.json").read_text()) == summary


@pytest.mark.parametrize("name", ["quick", "standard", "paper"])
def test_values_on_imitation_are_measured_soon_enough_to_tell_whether_they_diverge_rapidly(
    name: PresetName,
) -> None:
    (every,) = {
        plan.true_value_every
        for plan in PRESETS[name].plans["extrapolation"]
        if plan.task == "imitation"
    }
    assert YOUNG <= every <= EARLY


def test_the_papers_preset_has_every_experiment_at_the_papers_scale() -> None:
    environments = ("Hopper", "HalfCheetah", "Walker2d")
    million = (1_000_000, 1_000_000, 5, 5_000, 20_000)
    small = (100_000, 1_000_000, 5, 5_000, 20_000)
    first = [(env, task, *million) for task in TASKS[:3] for env in environments]
    four = [*first, *((env, "imperfect", *small) for env in environments)]
    imitation = [(env, "imitation", *million) for env in environments]
    toy = ("random", 5_000, 1_000_000, 5, 5_000, 20_000)
    assert scales("paper") == {
        "extrapolation": first,
        "results": four,
        "values": four,
        "perturbation": imitation,
        "uncertainty": imitation[:1],
        "random": [("Pendulum", *toy), ("Reacher", *toy)],
    }
    assert PAPER.perturbations == (0.0, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0)
    assert PAPER.evaluate_behaviour_every == 5_000


def test_the_theory_comes_before_the_runs() -> None:
    """It takes seconds."""
    first, *others = jobs_of(PRESETS["smoke"], (), ())
    assert first == Theory()
    assert all(isinstance(job, Training) for job in others)
    plan = replace(PLAN, part=1)
    late = replace(PAPER, plans={"extrapolation": [plan], "results": [PLAN]})
    trained = [job for job in jobs_of(late, ("extrapolation", "results"), ()) if job != Theory()]
    kinds = [name_of(job.config) for job in trained if isinstance(job, Training)]
    assert kinds[-2:] == ["ddpg", "ddpg"]
    assert Plan("Hopper-v5", "imitation", 1, 1, 1).part == 0
