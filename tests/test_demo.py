"""The demonstrations: a batch and runs that are jobs, all trained at the same time."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bcq.algorithms import ALGORITHMS, BCConfig, BCQConfig, DDPGConfig
from bcq.collection.recipes import collect, random_batch
from bcq.experiments.jobs import directory_name
from bcq.experiments.kinds import Batch, Training
from bcq.paper import demo
from bcq.paper.demo import finish, print_table, show
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
    batch = Batch("random", PENDULUM, 300, 3)
    schedule = Schedule(steps=200, seed=3, env=PENDULUM, evaluate_every=100, checkpoint_every=1_000)
    show(tmp_path / "demo", batch, [BCConfig(), DDPGConfig()], schedule)
    printed = capsys.readouterr().out
    header = next(
        line for line in printed.splitlines() if line.startswith("return per episode ± std")
    )
    assert header.split()[-2:] == ["BC", "DDPG"]
    assert "last 3 evaluations" in printed
    assert printed.startswith("Batch: 300 steps on Pendulum-v1, 2 episodes.\nBehaviour: ")
    picture = tmp_path / "demo" / "learning_curves.png"
    assert f"learning curves  {picture}\n" in printed
    assert picture.read_bytes().startswith(b"\x89PNG")
    alone, beside = tmp_path / "alone", Training(DDPGConfig(), schedule, batch)
    path = tmp_path / "demo" / directory_name(batch) / "batch.hdf5"
    train_run(alone, DDPGConfig(), schedule, load(path))
    for log in ("metrics.jsonl", "episodes.jsonl"):
        found = tmp_path / "demo" / directory_name(beside) / log
        assert (alone / log).read_bytes() == found.read_bytes()
    assert f"batch            {path}\n" in printed
    assert f"ddpg             {found.parent}\n" in printed
    # A second call trains nothing and says the same.
    show(tmp_path / "demo", batch, [BCConfig(), DDPGConfig()], schedule)
    assert capsys.readouterr().out == printed


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What is asked to be shown, instead of showing it."""
    found: list[tuple[Any, ...]] = []
    monkeypatch.setattr(demo, "show", lambda *given: found.append(given))
    return found


def test_the_pendulum_learns_from_random_actions_with_a_tamed_vae(
    tmp_path: Path, shown: list[tuple[Any, ...]]
) -> None:
    demo.pendulum(tmp_path, steps=700, seed=5)
    schedule = Schedule(
        steps=700, seed=5, env=PENDULUM, evaluate_every=1_000, checkpoint_every=1_000
    )
    batch = Batch("random", PENDULUM, 5_000, 5)
    assert shown == [(tmp_path, batch, [BCQConfig(vae_l2=1e-3)], schedule)]


def test_the_cheetah_learns_from_imperfect_demonstrations_beside_two_baselines(
    tmp_path: Path, shown: list[tuple[Any, ...]]
) -> None:
    demo.cheetah(tmp_path, steps=700, seed=5)
    cheetah = "HalfCheetah-v5"
    schedule = Schedule(
        steps=700, seed=5, env=cheetah, evaluate_every=2_000, checkpoint_every=1_000
    )
    configs = [BCQConfig(), DDPGConfig(), BCConfig()]  # the first has the cores first
    assert shown == [(tmp_path, Batch("imperfect", cheetah, 100_000, 5), configs, schedule)]


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


def test_a_run_that_diverged_has_no_returns_any_more(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = []
    for name, steps in (("bcq", (0,)), ("ddpg", (0, 100, 200, 300))):
        run = Run.create(tmp_path / name, configuration(ALGORITHMS[name]()))
        run.append("episodes.jsonl", [{"step": step, "return": 7.0} for step in steps])
        runs.append(run)
    print_table(collect(random_batch(PENDULUM, transitions=200, seed=3)), runs)
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if line]
    assert lines[1] == ["0", "updates", "7", "±", "0", "7", "±", "0"]
    for line in lines[2:6]:
        assert line[-4:] == ["diverged", "7", "±", "0"]


def test_a_job_that_fails_is_told_with_its_last_words(tmp_path: Path) -> None:
    batch = Batch("random", "Nowhere-v0", 50, 0)
    log = tmp_path / directory_name(batch) / "output.txt"
    with pytest.raises(BCQError, match=f"failed; the last line of {log} is: bcq: .*Nowhere"):
        finish([batch], tmp_path)
