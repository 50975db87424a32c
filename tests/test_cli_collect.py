"""Collecting, experts and inspecting on the command line, each at a tiny size."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import safetensors.numpy

import bcq
from bcq.algorithms import DDPGConfig
from bcq.cli.application import main
from bcq.cli.verbs import parse_seeds
from bcq.collection import agents, experts
from bcq.collection import recipes as collection
from bcq.collection.experts import find
from bcq.data.columns import Provenance
from bcq.experiments import jobs
from bcq.runs.schedules import BehaviourSchedule
from bcq.system.errors import InputError
from bcq.system.seeds import Role, derive

ENV = "Pendulum-v1"
LEARNING = ("--env", ENV, "--transitions", "250", "--random-steps", "60")
SMALL = DDPGConfig(hidden_sizes=(8, 8))
Refusal = Callable[..., str]


@pytest.fixture(autouse=True, scope="module")
def surroundings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Compiled code goes to a folder of these tests; no expert is bundled; agents are small."""
    names = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs")
    before = {name: getattr(jax.config, name) for name in names}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        patch.setattr(experts, "BUNDLED", tmp_path_factory.mktemp("bundled"))
        assert agents.config_for(ENV) == DDPGConfig()  # and no other settings are given
        patch.setattr(agents, "DDPGConfig", lambda: SMALL)
        yield
    for name, value in before.items():
        jax.config.update(name, value)  # type: ignore[no-untyped-call]


@pytest.fixture(scope="module")
def concurrent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The batch of a learning agent, its run beside it."""
    path = tmp_path_factory.mktemp("concurrent") / "batch.hdf5"
    main(["collect", "concurrent", *LEARNING, "--out", str(path)])
    return path


@pytest.fixture(scope="module")
def agent(concurrent: Path) -> Path:
    return concurrent.with_suffix(".behaviour")


@pytest.fixture
def refusal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Refusal:
    """Runs a command that must fail without a trace on the disk, and gives its one line."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str | Path) -> str:
        before = sorted(tmp_path.rglob("*"))
        with pytest.raises(SystemExit) as caught:
            main([str(argument) for argument in arguments])
        assert isinstance(caught.value.code, str)
        assert caught.value.code.startswith("bcq: ")
        assert "\n" not in caught.value.code
        assert capsys.readouterr().out == ""
        assert sorted(tmp_path.rglob("*")) == before
        return caught.value.code.removeprefix("bcq: ")

    return run


# Collecting


def test_a_concurrent_batch_is_an_agents_life_in_order(concurrent: Path, agent: Path) -> None:
    batch = bcq.load(concurrent)
    assert len(batch) == 250
    assert batch.provenance == Provenance(
        ENV, "concurrent", "DDPG learning, noise 0.1", 0, bcq.__version__
    )
    assert batch.episodes.tolist() == [[0, 200], [200, 250]]
    run = bcq.Run.open(agent)
    assert run.algorithm == SMALL
    assert isinstance(run.config.schedule, BehaviourSchedule)
    assert run.config.schedule.random_steps == 60
    assert run.checkpoint_step() == 200
    assert not list(concurrent.parent.glob("*.partial"))


def test_a_concurrent_batch_is_replayed_into_the_same_agent_by_its_own_stream_alone(
    concurrent: Path, agent: Path, tmp_path: Path
) -> None:
    def arrays(folder: Path) -> dict[str, Any]:
        return safetensors.numpy.load((folder / "step-200.safetensors").read_bytes())

    options = ("--data", str(concurrent), "--hidden-sizes", "8", "8")
    for name, seed in (("same", derive(0, Role.AGENT)), ("other", 0)):
        out = str(tmp_path / name)
        main(["train", "ddpg", "--concurrent", *options, "--seed", str(seed), "--out", out])
    one, same, other = (arrays(folder) for folder in (agent, tmp_path / "same", tmp_path / "other"))
    assert one.keys() == same.keys() == other.keys()
    for name, values in one.items():
        np.testing.assert_allclose(same[name], values, rtol=1e-3, atol=1e-5, err_msg=name)
        if "model" in name and name.endswith("weight"):
            assert np.abs(other[name] - values).max() > 0.01, name


def test_checkpoints_of_an_agent_and_of_a_training_are_kept_by_option(
    concurrent: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def collect(out: Path, recipe: str, schedule: BehaviourSchedule) -> bcq.Dataset:
        seen.append(schedule.keep)
        return bcq.load(concurrent)

    monkeypatch.setattr("bcq.cli.collecting.collect_behaviour_to", collect)
    for options, keep in (((), 1), (("--keep", "3"), 3), (("--keep", "all"), "all")):
        main(["collect", "concurrent", *LEARNING, *options, "--out", str(tmp_path / "x.hdf5")])
        assert seen[-1] == keep
    data = ("--data", str(concurrent), "--hidden-sizes", "8", "8", "--steps", "300")
    every = ("--checkpoint-every", "100", "--keep", "2", "--out", str(tmp_path / "run"))
    main(["train", "ddpg", *data, *every])
    assert sorted(path.name for path in (tmp_path / "run").glob("step-*")) == [
        "step-200.safetensors",
        "step-300.safetensors",
    ]


def test_a_final_buffer_comes_from_much_exploration(
    concurrent: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "batch.hdf5"
    main(["collect", "final-buffer", *LEARNING, "--out", str(path)])
    printed = capsys.readouterr().out
    batch, quiet = bcq.load(path), bcq.load(concurrent)
    assert batch.provenance.recipe == "final-buffer"
    assert batch.provenance.behaviour == "DDPG learning, noise 0.5"
    assert len(batch) == 250
    np.testing.assert_array_equal(batch.actions[:60], quiet.actions[:60])
    assert (batch.actions[60:] != quiet.actions[60:]).mean() > 0.8  # both may be at a bound
    changes = [np.abs(np.diff(data.actions[60:200, 0])).mean() for data in (batch, quiet)]
    assert changes[0] > 2 * changes[1]
    returns = batch.episode_returns
    line = f"{path}: 250 transitions, 1 complete episodes, return {returns[0]:.1f} ± 0.0 (std)\n"
    assert printed == line


@pytest.mark.parametrize("source", ["run", "file"])
def test_demonstrations_are_collected_with_a_policy_of_ones_own(
    source: str, agent: Path, tmp_path: Path
) -> None:
    policy = agent
    if source == "file":
        policy = tmp_path / "expert.safetensors"
        run = bcq.Run.open(agent)
        experts.write_expert(experts.best_checkpoint(run), policy, 0, [])
    options = ("--env", ENV, "--policy", str(policy), "--transitions", "40", "--seed", "5")
    for recipe in ("imitation", "imperfect"):
        main(["collect", recipe, *options, "--out", str(tmp_path / f"{recipe}.hdf5")])
    pure, noisy = (bcq.load(tmp_path / f"{name}.hdf5") for name in ("imitation", "imperfect"))
    assert [len(pure), len(noisy)] == [40, 40]
    name = find(str(policy), ENV).name
    assert pure.provenance.behaviour == f"{name}, random with probability 0, otherwise noise 0"
    assert noisy.provenance.behaviour == (
        f"{name}, random with probability 0.3, otherwise noise 0.3"
    )
    expected = find(str(policy), ENV).policy.act(pure.observations)
    np.testing.assert_allclose(pure.actions, expected, rtol=0, atol=1e-5)
    assert (noisy.actions != find(str(policy), ENV).policy.act(noisy.observations)).mean() > 0.5
    assert not list(tmp_path.glob("*.partial"))


def test_the_noise_of_demonstrations_can_be_set(agent: Path, tmp_path: Path) -> None:
    path = tmp_path / "batch.hdf5"
    options = ("--env", ENV, "--policy", str(agent), "--transitions", "20", "--out", str(path))
    main(["collect", "imperfect", *options, "--noise", "0", "--random-probability", "0"])
    expected = find(str(agent), ENV).policy.act(bcq.load(path).observations)
    np.testing.assert_allclose(bcq.load(path).actions, expected, rtol=0, atol=1e-5)


def test_a_random_batch_is_that_of_the_library(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "deep" / "batch.h5"
    options = ("--env", ENV, "--transitions", "30", "--seed", "2")
    main(["collect", "random", *options, "--out", str(path)])
    assert capsys.readouterr().out == f"{path}: 30 transitions, 0 complete episodes\n"
    batch = bcq.collect_random(ENV, transitions=30, seed=2)
    assert bcq.load(path).fingerprint == batch.fingerprint
    assert [item.name for item in path.parent.iterdir()] == ["batch.h5"]


def test_an_interrupted_collection_goes_on_with_the_same_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "batch.hdf5"
    command = ["collect", "random", "--env", ENV, "--transitions", "30", "--out", str(path)]

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(collection, "save", interrupt)
        with pytest.raises(SystemExit, match="130"):
            main(command)
    assert "run the same command to continue" in capsys.readouterr().err
    assert [item.name for item in tmp_path.iterdir()] == ["batch.hdf5.partial"]
    with pytest.raises(SystemExit, match="unfinished collection with seed = 0, not 1"):
        main([*command, "--seed", "1"])
    main(command)
    batch = bcq.collect_random(ENV, transitions=30)
    assert bcq.load(path).fingerprint == batch.fingerprint
    assert list(tmp_path.iterdir()) == [path]


RECIPES = ("final-buffer", "concurrent", "imitation", "imperfect", "random")


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_file_that_exists_is_not_written_over(
    recipe: str, agent: Path, tmp_path: Path, refusal: Refusal
) -> None:
    (tmp_path / "batch.hdf5").write_text("mine")
    policy = ("--policy", agent) if recipe.startswith("im") else ()
    message = refusal("collect", recipe, "--env", ENV, "--out", "batch.hdf5", *policy)
    assert message == "batch.hdf5: already exists; give another file, or remove it"
    assert (tmp_path / "batch.hdf5").read_text() == "mine"


@pytest.mark.parametrize("recipe", RECIPES)
def test_an_unknown_environment_is_refused(recipe: str, agent: Path, refusal: Refusal) -> None:
    policy = ("--policy", agent) if recipe.startswith("im") else ()
    message = refusal("collect", recipe, "--env", "Nowhere-v0", "--out", "batch.hdf5", *policy)
    assert "Nowhere-v0" in message


@pytest.mark.parametrize(
    ("recipe", "options", "words"),
    [
        ("random", ("--transitions", "0"), "transitions: 0 is not at least 1"),
        ("random", ("--seed", "-1"), "seed: -1 is not between"),
        ("concurrent", ("--transitions", "0"), "steps: 0 is not at least 1"),
        ("concurrent", ("--noise", "-1"), "noise: -1.0 is not 0 or more"),
        ("final-buffer", ("--random-steps", "-1"), "random_steps: -1 is not 0 or more"),
        ("imperfect", ("--noise", "nan"), "noise: nan is not 0 or more"),
        ("imperfect", ("--random-probability", "2"), "random_probability: 2.0 is not between"),
        ("random", ("--out", "batch.csv"), "batch.csv: unknown ending; use one of .hdf5, .h5"),
        ("concurrent", ("--out", "batch.csv"), "batch.csv: unknown ending; use one of"),
    ],
)
def test_impossible_settings_are_refused_by_name(
    recipe: str, options: tuple[str, ...], words: str, agent: Path, refusal: Refusal
) -> None:
    policy = ("--policy", agent) if recipe.startswith("im") else ()
    command = ("collect", recipe, "--env", ENV, "--out", "batch.hdf5", *policy, *options)
    assert refusal(*command).startswith(words)


@pytest.mark.parametrize("recipe", ["imitation", "imperfect"])
def test_a_policy_that_cannot_serve_is_refused(recipe: str, agent: Path, refusal: Refusal) -> None:
    out = ("collect", recipe, "--out", "batch.hdf5")
    assert refusal(*out, "--env", ENV).startswith(
        f"policy 0: 0 experts of {ENV} are bundled; train one with `bcq experts train`"
    )
    assert "nobody.json: cannot be read" in refusal(*out, "--env", ENV, "--policy", "nobody")
    message = refusal(*out, "--env", "Hopper-v5", "--policy", agent)
    assert message == f"policy {agent}: is for {ENV}, not for Hopper-v5"


# Experts


def test_experts_are_trained_kept_listed_and_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ["experts", "train", "--env", ENV, "--steps", "250", "--out", str(tmp_path)]
    command += ["--seeds", "0..1", "--keep", "1"]
    monkeypatch.setattr(experts, "CARD_EPISODES", 3)
    main(command)
    line = capsys.readouterr().out
    monkeypatch.setattr(experts, "BUNDLED", tmp_path / "kept")
    main(["experts", "list"])
    assert capsys.readouterr().out == line
    assert re.fullmatch(
        rf"{ENV} 0: return -\d+ ± \d+ \(std, 3 episodes\); ddpg, seed [01], number 1 of 2, "
        r"at step 200 of 200; mean return of its last ten evaluations -\d+\n",
        line,
    )
    ranking = json.loads((tmp_path / "kept" / f"{ENV}-ranking.json").read_text())
    assert sorted(row["seed"] for row in ranking) == [0, 1]
    assert ranking[0]["score"] >= ranking[1]["score"]
    assert bcq.Run.open(tmp_path / f"{ENV}-seed0").config.schedule.keep == "all"  # to choose from
    path = tmp_path / "batch.hdf5"
    main(["collect", "imitation", "--env", ENV, "--transitions", "5", "--out", str(path)])
    behaviour = bcq.load(path).provenance.behaviour
    assert behaviour is not None
    assert behaviour.startswith(f"expert {ENV}-0 (seed {ranking[0]['seed']}, 200 steps)")


def test_where_no_expert_is_bundled_none_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    main(["experts", "list"])
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--keep", "3"), "keep: 3 is not between 1 and 2, the number of seeds"),
        (("--keep", "0"), "keep: 0 is not between 1 and 2, the number of seeds"),
        (("--seeds", "some"), "seeds: 'some' is not like 0..14 or 0,2,5"),
        (("--seeds", "1,1"), "seeds: '1,1' contains no seed, or the same seed twice"),
        (("--seeds", "-1..1"), "seed: -1 is not between"),
        (("--steps", "0"), "steps: 0 is not at least 1"),
        (("--env", "Nowhere-v0"), "environment Nowhere-v0: "),
    ],
)
def test_impossible_trainings_of_experts_are_refused(
    options: tuple[str, ...], words: str, refusal: Refusal
) -> None:
    command = ("experts", "train", "--env", ENV, "--seeds=0..1", "--keep", "1", "--out", "here")
    joined = (f"{options[0]}={options[1]}",)  # a value may begin with a dash
    assert refusal(*command, *joined).startswith(words)


@pytest.mark.parametrize(
    ("text", "seeds"),
    [
        ("0..2", [0, 1, 2]),
        ("3..3", [3]),
        ("0,2", [0, 2]),
        ("5, 1", [5, 1]),
        ("7", [7]),
        ("0..14", list(range(15))),
    ],
)
def test_seeds_are_a_range_or_a_list(text: str, seeds: list[int]) -> None:
    assert parse_seeds(text) == seeds


@pytest.mark.parametrize(
    "text", ["", "a", "0..", "..2", "..", "1..2..3", "0...2", "2..0", "0,0", "0,,1", "1.5", "0-2"]
)
def test_other_texts_are_no_seeds(text: str) -> None:
    with pytest.raises(InputError, match=f"^seeds: {re.escape(repr(text))} "):
        parse_seeds(text)


def test_the_demo_says_where_it_has_no_expert(refusal: Refusal) -> None:
    jobs.digest.cache_clear()  # another test may have had the experts
    words = "no expert of HalfCheetah-v5 is bundled"
    assert words in refusal("demo", "cheetah", "--out", "here")


# Inspecting


def test_a_batch_is_inspected_as_json(
    concurrent: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "picture.png"
    capsys.readouterr()
    main(["inspect", str(concurrent), "--json", "--picture", str(path)])
    figures = json.loads(capsys.readouterr().out)
    batch = bcq.load(concurrent)
    assert figures["transitions"] == 250
    assert figures["episodes"] == {
        **{"complete": 1, "terminated": 0, "truncated": 1, "unfinished": 1},
    }
    assert figures["returns"]["mean"] == pytest.approx(batch.episode_returns[0])
    assert figures["provenance"]["recipe"] == "concurrent"
    assert figures["fingerprint"] == batch.fingerprint
    assert figures["simulator_states"] is True
    assert sum(figures["actions"]["histogram"][0]) == 250
    assert [f for f in figures["findings"] if f["severity"] != "note"] == []
    assert path.read_bytes().startswith(b"\x89PNG")


def test_a_batch_is_inspected_as_text_with_a_picture_beside_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "batch.hdf5"
    bcq.save(bcq.collect_random(ENV, transitions=30), path)
    main(["inspect", str(path)])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["transitions", "30"]
    assert lines[-1].split() == ["picture", str(tmp_path / "batch.png")]
    assert (tmp_path / "batch.png").read_bytes().startswith(b"\x89PNG")


def test_what_is_no_batch_cannot_be_inspected(tmp_path: Path, refusal: Refusal) -> None:
    assert refusal("inspect", "missing.hdf5") == "missing.hdf5: no such file"
    (tmp_path / "table.csv").write_text("0,1\n")
    assert refusal("inspect", "table.csv").startswith("table.csv: observations: is missing")
