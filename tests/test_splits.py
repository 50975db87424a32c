"""Episodes that are kept aside: which, and that training does not see them."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import bcq
from bcq.data.splits import HoldOut, of_episodes
from bcq.system.errors import InputError
from judging_cases import log_of, random_mdp

SMALL = bcq.DiscreteBCConfig(hidden_sizes=(4,), batch_size=8)


def test_parts_are_whole_episodes_and_together_the_batch() -> None:
    dataset = log_of(random_mdp(0), 10, seed=0, propensities=True)
    rest, aside = HoldOut(0.3).divide(dataset)
    assert len(aside.episodes) == 3
    assert len(rest.episodes) == 7
    numbers = HoldOut(0.3).episodes(dataset)
    assert numbers.tolist() == sorted(set(numbers.tolist()))
    for part, kept in ((aside, numbers), (rest, np.setdiff1d(np.arange(10), numbers))):
        for own, number in zip(part.episodes, kept, strict=True):
            for name in ("observations", "actions", "rewards", "next_observations", "terminated"):
                expected = getattr(dataset, name)[slice(*dataset.episodes[number])]
                np.testing.assert_array_equal(getattr(part, name)[slice(*own)], expected)
        assert part.propensities is not None
        assert len(part.propensities) == len(part)
        assert not part.rewards.flags.writeable
        assert part.qpos is None
        assert part.bounds is dataset.bounds


def test_the_same_episodes_are_kept_aside_whenever_it_is_asked() -> None:
    dataset = log_of(random_mdp(0), 40, seed=0)
    numbers = HoldOut(0.2).episodes(dataset)
    np.testing.assert_array_equal(HoldOut(0.2).episodes(dataset), numbers)
    assert len(numbers) == 8
    assert numbers.tolist() not in (list(range(8)), list(range(32, 40)))  # drawn at random


def test_the_latest_episodes_can_be_kept_aside() -> None:
    dataset = log_of(random_mdp(0), 9, seed=0)
    assert HoldOut(0.2, "time").episodes(dataset).tolist() == [7, 8]


def test_an_unfinished_episode_stays_unfinished() -> None:
    dataset = log_of(random_mdp(0), 4, seed=0)
    unfinished = replace(
        dataset, **{name: getattr(dataset, name).copy() for name in ("terminated", "truncated")}
    )
    unfinished.terminated[-1] = unfinished.truncated[-1] = False
    part = of_episodes(unfinished, np.array([1, 3]))
    assert len(part.episodes) == 2
    assert len(part.episode_returns) == 1


@pytest.mark.parametrize(
    ("share", "message"),
    [
        (0.0, "hold_out: 0.0 is not between 0 and 1"),
        (1.0, "hold_out: 1.0 is not between 0 and 1"),
        (float("nan"), "hold_out: nan is not between 0 and 1"),
        (0.1, "hold_out: 0.1 of 4 episodes is 0; at least one episode must be kept aside"),
        (0.9, "hold_out: 0.9 of 4 episodes is 4; .*one be left to learn from"),
    ],
)
def test_a_share_that_leaves_nothing_is_refused(share: float, message: str) -> None:
    with pytest.raises(InputError, match=message):
        HoldOut(share).divide(log_of(random_mdp(0), 4, seed=0))


def test_a_run_learns_from_the_rest_alone_and_remembers_it(tmp_path: Path) -> None:
    dataset = log_of(random_mdp(0), 10, seed=0)
    rest, _ = HoldOut(0.3).divide(dataset)
    schedule = bcq.Schedule(steps=100)
    run = bcq.train_run(tmp_path / "a", SMALL, schedule, dataset, hold_out=HoldOut(0.3))
    alone = bcq.train_run(tmp_path / "b", SMALL, schedule, rest)
    assert (tmp_path / "a" / "metrics.jsonl").read_text() == (
        tmp_path / "b" / "metrics.jsonl"
    ).read_text()
    assert run.task.scaling is not None
    assert alone.task.scaling is not None
    np.testing.assert_array_equal(run.task.scaling.centre, alone.task.scaling.centre)
    told = json.loads((tmp_path / "a" / "config.json").read_text())["dataset"]
    assert told["hold_out"] == {"share": 0.3, "by": "random"}
    assert told["fingerprint"] == dataset.fingerprint
    assert told["episodes"] == 10
    assert "hold_out" not in json.loads((tmp_path / "b" / "config.json").read_text())["dataset"]
    opened = bcq.Run.open(tmp_path / "a").config.dataset
    assert getattr(opened, "hold_out", None) == HoldOut(0.3)
    assert getattr(bcq.Run.open(tmp_path / "b").config.dataset, "hold_out", 1) is None
    with pytest.raises(InputError, match=r"was started with dataset\.hold_out"):
        bcq.train_run(tmp_path / "a", SMALL, schedule, dataset, resume=True)
