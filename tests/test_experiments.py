"""The paper's experiments as data: which jobs, under which names."""

import json
from dataclasses import replace
from typing import Any, get_args

import pytest

from bcq.algorithms import BCQConfig, EnsembleConfig, name_of
from bcq.errors import InputError
from bcq.experiments import EXPERIMENTS, jobs, jobs_of
from bcq.experiments.jobs import (
    Batch,
    Behaviour,
    Experts,
    Job,
    Theory,
    Training,
    directory_name,
    fingerprint,
    from_json,
    with_needs,
)
from bcq.experiments.presets import (
    PERTURBATIONS,
    PRESETS,
    ExperimentName,
    Length,
    Preset,
    PresetName,
)

PAPER = PRESETS["paper"]


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


def a_training(**changes: Any) -> Training:
    job = PRESETS["quick"].training(BCQConfig(), "imperfect", "Hopper-v5", 0)
    return replace(job, **changes)


def test_a_fingerprint_stands_for_every_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    job = a_training()
    others = [
        a_training(config=BCQConfig(max_perturbation=0.1)),
        a_training(schedule=replace(job.schedule, seed=1)),
        a_training(schedule=replace(job.schedule, steps=12_100)),
        a_training(batch=replace(job.batch, transitions=99_999)),
        PRESETS["quick"].training(BCQConfig(), "imitation", "Hopper-v5", 0),
        replace(PAPER, agents=14).training(BCQConfig(), "imperfect", "Hopper-v5", 0),
        replace(PAPER, agents=15).training(BCQConfig(), "imperfect", "Hopper-v5", 0),
    ]
    before = [fingerprint(one) for one in (job, *others)]
    assert len(set(before)) == len(before)
    assert fingerprint(a_training()) == before[0]
    monkeypatch.setattr(jobs, "THREADS", 2)
    assert fingerprint(job) != before[0]


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
    agents = [job.schedule for job in found if isinstance(job, Behaviour)]
    assert {(a.noise, a.steps) for a in agents} == {(0.5, 1_000_000), (0.1, 1_000_000)}
    experts = [job for job in found if isinstance(job, Experts)]
    assert [(len(e.needs), e.keep) for e in experts] == [(15, 5)] * 3


def test_experts_and_concurrent_behaviours_are_the_same_agents() -> None:
    agents = [
        job.schedule
        for job in everything(PAPER)
        if isinstance(job, Behaviour) and job.schedule.noise == 0.1
    ]
    assert len(agents) == 15 * 3  # and not 20 * 3


@pytest.mark.parametrize("name", PRESETS)
def test_trial_i_learns_from_behaviour_or_expert_i(name: PresetName) -> None:
    for job in trainings(PRESETS[name]):
        assert job.batch.trial == job.schedule.seed
        source = job.batch.source
        assert not isinstance(source, Behaviour) or source.schedule.seed == job.schedule.seed


def test_each_experiment_has_the_algorithms_of_its_figure() -> None:
    def algorithms(name: ExperimentName) -> set[str]:
        return {name_of(job.config) for job in trainings(PAPER, name)}

    assert algorithms("extrapolation") == {"ddpg"}
    assert algorithms("results") == {"bcq", "ddpg", "dqn", "bc", "vae-bc"}
    assert algorithms("values") == {"bcq", "ddpg", "dqn"}
    assert algorithms("perturbation") == {"bcq"}
    assert algorithms("uncertainty") == {"ensemble", "bcq"}
    assert algorithms("random") == {"bcq", "ddpg"}
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


@pytest.mark.parametrize(
    ("names", "environments", "message"),
    [
        (("results",), (), "this preset has values"),
        ((), ("Ant-v5",), "this preset has Hopper-v5"),
    ],
)
def test_what_a_preset_does_not_have_is_refused(
    names: tuple[ExperimentName, ...], environments: tuple[str, ...], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        jobs_of(PRESETS["converged"], names, environments)


def test_values_are_measured_only_where_there_are_any() -> None:
    preset = replace(PAPER, lengths=dict.fromkeys(PAPER.lengths, Length(1_000, 500, 200)))
    for job in trainings(preset, "results"):
        imitates = name_of(job.config) in ("bc", "vae-bc")
        assert job.schedule.true_value_every == (None if imitates else 200)


def test_a_kind_of_job_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match="Nonsense"):
        from_json({"kind": "Nonsense"})
