"""BCQ must learn a better policy than the one that logged the batch."""

from collections.abc import Iterator

import pytest

import bcq
from small_task import NAME, registered


@pytest.fixture(autouse=True, scope="module")
def task() -> Iterator[None]:
    with registered():
        yield


@pytest.mark.parametrize("seed", range(2))
def test_bcq_beats_the_random_behaviour_it_learned_from(seed: int) -> None:
    dataset = bcq.collect_random(NAME, transitions=2_000, seed=seed)
    config = bcq.BCQConfig(hidden_sizes=(64, 64), vae_hidden_sizes=(64, 64), discount=0.9)
    *_, (_, learner, _) = bcq.train(config, dataset, steps=2_000, seed=seed)
    result = bcq.evaluate(bcq.Policy(learner, dataset.task), NAME, episodes=10, seed=seed)
    behaviour = dataset.episode_returns.mean()
    assert behaviour < -15
    assert result.mean > -5  # going straight to 0 earns -0.4 on average
