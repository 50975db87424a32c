"""The demonstrations: baselines are trained beside the algorithm that is shown."""

from pathlib import Path

import pytest

from bcq.algorithms import BCConfig, DDPGConfig
from bcq.collection.recipes import random_batch
from bcq.paper.demo import show, trained_beside
from bcq.runs.recording import Schedule, train_run
from bcq.simulation.batches import load
from bcq.system.errors import BCQError

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
    header = next(line for line in printed.splitlines() if line.startswith("return ± std"))
    assert header.split()[-2:] == ["BC", "DDPG"]
    assert "the last 3 together" in printed
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


def test_a_baseline_that_fails_is_told_with_its_last_words(tmp_path: Path) -> None:
    schedule = Schedule(steps=100, env=PENDULUM)
    with (
        pytest.raises(
            BCQError, match=r"training ddpg failed; .*ddpg\.txt ends with: .*no such file"
        ),
        trained_beside(["ddpg"], tmp_path, schedule, tmp_path / "nowhere.hdf5"),
    ):
        pass
