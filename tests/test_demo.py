"""The demonstrations: baselines are trained beside the algorithm that is shown."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bcq.algorithms import ALGORITHMS, BCConfig, BCQConfig, DDPGConfig
from bcq.collection.recipes import collect, random_batch
from bcq.paper import demo
from bcq.paper.demo import print_table, show, trained_beside
from bcq.runs.directory import Run
from bcq.runs.recording import train_run
from bcq.runs.schedules import Schedule
from bcq.simulation.batches import load
from bcq.system.errors import BCQError
from run_cases import configuration

PENDULUM = "Pendulum-v1"


def test_what_is_trained_beside_is_what_training_alone_gives(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = random_batch(PENDULUM, transitions=300, seed=3)
    show(
        tmp_path / "demo",
        recipe,
        {"bc": BCConfig(), "ddpg": DDPGConfig()},
        steps=200,
        evaluate_every=100,
    )
    printed = capsys.readouterr().out
    header = next(
        line for line in printed.splitlines() if line.startswith("return per episode ± std")
    )
    assert header.split()[-2:] == ["BC", "DDPG"]
    assert "last 3 evaluations" in printed
    schedule = Schedule(steps=200, seed=3, env=PENDULUM, evaluate_every=100, checkpoint_every=1_000)
    alone = tmp_path / "alone"
    train_run(alone, DDPGConfig(), schedule, load(tmp_path / "demo" / "batch.hdf5"))
    for log in ("metrics.jsonl", "episodes.jsonl"):
        assert (alone / log).read_bytes() == (tmp_path / "demo" / "ddpg" / log).read_bytes()
    show(  # a second call trains nothing and says the same
        tmp_path / "demo",
        recipe,
        {"bc": BCConfig(), "ddpg": DDPGConfig()},
        steps=200,
        evaluate_every=100,
    )
    assert capsys.readouterr().out == printed


def test_the_pendulum_learns_from_random_actions_with_a_tamed_vae(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[tuple[Any, ...]] = []
    monkeypatch.setattr(demo, "show", lambda *given, **options: shown.append((*given, options)))
    demo.pendulum(tmp_path, steps=700, seed=5)
    ((directory, recipe, configs, options),) = shown
    assert directory == tmp_path
    assert (recipe.environment, recipe.seed, recipe.transitions) == (PENDULUM, 5, 5_000)
    assert configs == {"bcq": BCQConfig(vae_l2=1e-3)}
    assert options == {"steps": 700, "evaluate_every": 1_000}


def test_the_cheetah_learns_from_imperfect_demonstrations_beside_two_baselines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[tuple[Any, ...]] = []
    asked: list[tuple[str, str]] = []

    def find(policy: str, environment: str) -> str:
        asked.append((policy, environment))
        return "the expert"

    monkeypatch.setattr(demo, "show", lambda *given, **options: shown.append((*given, options)))
    monkeypatch.setattr(demo, "find", find)
    monkeypatch.setattr(demo, "imperfect", lambda expert, *, seed: (expert, seed))
    demo.cheetah(tmp_path, steps=700, seed=5)
    configs = {"bcq": BCQConfig(), "ddpg": DDPGConfig(), "bc": BCConfig()}
    options = {"steps": 700, "evaluate_every": 2_000}
    assert shown == [(tmp_path, ("the expert", 5), configs, options)]
    assert list(shown[0][2]) == ["bcq", "ddpg", "bc"]
    assert asked == [("0", "HalfCheetah-v5")]


def test_the_table_has_each_evaluation_the_last_three_and_the_batch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = []
    for name, level in (("bcq", 10.0), ("ddpg", -10.0)):
        run = Run.create(tmp_path / name, configuration(ALGORITHMS[name]()))
        rows = [
            {"step": 1_000 * i, "return": level * i + spread}
            for i in range(5)
            for spread in (-1.0, 1.0)
        ]
        run.append("episodes.jsonl", rows)
        runs.append(run)
    batch = collect(random_batch(PENDULUM, transitions=400, seed=3))
    print_table(batch, runs)
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if line]
    assert lines[0][-2:] == ["BCQ", "DDPG"]
    assert [line[:2] for line in lines[1:6]] == [
        [f"{i:,}", "updates"] for i in range(0, 5000, 1000)
    ]
    assert lines[2][2:] == ["10", "±", "1", "-10", "±", "1"]
    spread = f"{np.sqrt(200 / 3 + 1):.0f}"  # of 20, 30 and 40, each give or take 1
    assert lines[6] == ["last", "3", "evaluations", "30", "±", spread, "-30", "±", spread]
    returns = batch.rewards.reshape(2, 200).sum(axis=1, dtype=float)
    assert lines[7] == ["the", "batch", f"{returns.mean():.0f}", "±", f"{returns.std():.0f}"]


def test_a_baseline_that_fails_is_told_with_its_last_words(tmp_path: Path) -> None:
    schedule = Schedule(steps=100, env=PENDULUM)
    with (
        pytest.raises(
            BCQError, match=r"training ddpg failed; the last line of .*ddpg\.txt is: .*no such file"
        ),
        trained_beside(["ddpg"], tmp_path, schedule, tmp_path / "nowhere.hdf5"),
    ):
        pass
