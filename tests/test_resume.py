import shutil
from pathlib import Path

import jax
import numpy as np
import pytest

import bcq
from bcq.algorithms.learning import Algorithm
from bcq.training.loop import Progress, create
from kill_and_resume import Instant, Workshop, differing

pytestmark = pytest.mark.usefixtures("compiled_as_for_users")
CONFIG = bcq.BCQConfig(batch_size=8, hidden_sizes=(8,), vae_hidden_sizes=(8,))


def leaves_of(learner: Algorithm) -> list[bytes]:
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(learner)]


@pytest.fixture(scope="module")
def dataset() -> bcq.Dataset:
    return bcq.collect_random("Pendulum-v1", transitions=50)


@pytest.fixture(scope="module")
def uninterrupted(dataset: bcq.Dataset) -> list[Progress]:
    return list(bcq.train(CONFIG, dataset, steps=2_600, seed=5))


@pytest.fixture(scope="module")
def fresh(dataset: bcq.Dataset) -> Algorithm:
    return create(CONFIG, dataset, seed=5)


@pytest.mark.parametrize("stop", [1, 99, 100, 101, 250, 1_300, 2_500, 2_599])
def test_training_stopped_and_continued_is_training_never_stopped(
    dataset: bcq.Dataset, uninterrupted: list[Progress], fresh: Algorithm, stop: int
) -> None:
    *_, progress = bcq.train(CONFIG, dataset, steps=stop, seed=5, start=(0, fresh))
    assert progress.step == stop
    start = (stop, progress.learner)
    continued = list(bcq.train(CONFIG, dataset, steps=2_600, seed=5, start=start))
    expected = uninterrupted[stop // 100 :]
    assert [p.step for p in continued] == [p.step for p in expected]
    for one, other in zip(continued, expected, strict=True):
        assert leaves_of(one.learner) == leaves_of(other.learner)
    for one, other in list(zip(continued, expected, strict=True))[stop % 100 > 0 :]:
        assert one.metrics == other.metrics


def test_a_broken_hundred_splits_its_metrics_exactly(
    dataset: bcq.Dataset, uninterrupted: list[Progress], fresh: Algorithm
) -> None:
    *_, first = bcq.train(CONFIG, dataset, steps=130, seed=5, start=(0, fresh))
    second = next(bcq.train(CONFIG, dataset, steps=2_600, seed=5, start=(130, first.learner)))
    for name, whole in uninterrupted[1].metrics.items():
        parts = 0.3 * first.metrics[name] + 0.7 * second.metrics[name]
        assert parts == pytest.approx(whole, rel=1e-5)


def test_continuing_with_another_seed_is_not_the_same(
    dataset: bcq.Dataset, uninterrupted: list[Progress]
) -> None:
    start = (100, uninterrupted[0].learner)
    other = next(bcq.train(CONFIG, dataset, steps=200, seed=6, start=start))
    assert leaves_of(other.learner) != leaves_of(uninterrupted[1].learner)


def test_value_estimates_come_at_their_steps(uninterrupted: list[Progress]) -> None:
    assert [p.step for p in uninterrupted if "value_estimate" in p.metrics] == [2_500]


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    workshop = Workshop(tmp_path_factory.mktemp("kill_and_resume"))
    workshop.prepare()
    return workshop


def test_a_run_killed_three_times_is_byte_for_byte_a_run_left_alone(workshop: Workshop) -> None:
    start_up = Instant(seconds=2.0)
    checkpoint = Instant(rows=1, writing=True)
    training = Instant(rows=7, seconds=0.05)
    stood, different = workshop.killed("killed", [start_up, checkpoint, training])
    assert len(stood) == 3
    assert different == []
    assert {path.name for path in (workshop.folder / "killed").iterdir()} == {
        ".lock",
        "config.json",
        "metrics.jsonl",
        "episodes.jsonl",
        "timing.jsonl",
        "checkpoint.json",
        "step-1500.safetensors",
    }


@pytest.mark.parametrize("name", ["metrics.jsonl", "step-1500.safetensors", ".left.1.tmp"])
def test_the_comparison_sees_one_byte_more(workshop: Workshop, tmp_path: Path, name: str) -> None:
    copy = shutil.copytree(workshop.reference, tmp_path / "copy")
    assert differing(workshop.reference, copy) == []
    with (copy / name).open("ab") as file:
        file.write(b"0")
    assert differing(workshop.reference, copy) == [name]
