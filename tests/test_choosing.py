"""Policies over choices: numbers, names, masks, fallbacks; and how masks reach the learner."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from bcq.data.bounds import ActionBounds, Choices, TaskSpec
from bcq.data.columns import Columns, Provenance
from bcq.data.dataset import Dataset
from bcq.system.errors import InputError
from bcq.training.loop import on_device, sample
from bcq.training.policy import Policy

NAMES = ("none", "low", "high")


class Greedy(eqx.Module):
    """The choices are worth 0, s and 2s."""

    def act(self, observations: Array, keys: Array, permitted: Array | None = None) -> Array:
        del keys
        values = observations * jnp.arange(3.0)
        allowed = jnp.ones_like(values, bool) if permitted is None else permitted
        return jnp.where(allowed, values, -jnp.inf).argmax(axis=1)


class Still(eqx.Module):
    """Two quantities in the middle of their ranges."""

    def act(self, observations: Array, keys: Array) -> Array:
        del keys
        return jnp.zeros((len(observations), 2))


POLICY = Policy(Greedy(), TaskSpec(1, Choices(NAMES)))


def test_choices_are_numbers_or_names() -> None:
    observations = [[1.0], [-1.0], [2.0]]
    actions = POLICY.act(observations)
    assert actions.dtype == np.float32
    assert actions.tolist() == [[2], [0], [2]]
    assert POLICY.choose(observations) == ["high", "none", "high"]


def test_only_permitted_choices_are_taken() -> None:
    masks = [[1, 1, 0], [0, 0, 1], [0, 1, 0]]
    assert POLICY.choose([[1.0], [-1.0], [2.0]], permitted=masks) == ["low", "high", "low"]
    # The rows that fill up a capacity are not rows of the caller.
    assert POLICY.act([[1.0]], capacity=3, permitted=[[1, 1, 0]]).tolist() == [[1]]


@pytest.mark.parametrize(
    ("masks", "words"),
    [
        ([[1, 1]], r"permitted: has shape \(1, 2\), but there are \(1, 3\)"),
        ([1, 1, 0], r"permitted: has shape \(3,\), but there are \(1, 3\)"),
        ([[0, 0, 0]], "permitted, row 0: no choice is permitted"),
    ],
)
def test_a_mask_that_does_not_fit_is_refused(masks: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        POLICY.act([[1.0]], permitted=masks)


def test_the_row_without_a_choice_is_named() -> None:
    masks = [[1, 0, 0], [0, 1, 1], [0, 0, 0], [1, 1, 1]]
    with pytest.raises(InputError, match=r"^permitted, row 2: no choice is permitted$"):
        POLICY.act([[1.0]] * 4, permitted=masks)


def test_masks_may_come_from_a_table_of_objects() -> None:
    masks = np.array([[True, True, False]], object)
    assert POLICY.choose([[1.0]], permitted=masks) == ["low"]


def test_quantities_have_no_masks_and_no_names() -> None:
    bounds = ActionBounds(np.full(1, -1, np.float32), np.full(1, 1, np.float32))
    policy = Policy(Greedy(), TaskSpec(1, bounds))
    with pytest.raises(InputError, match="there are no choices"):
        policy.act([[1.0]], permitted=[[1]])
    with pytest.raises(InputError, match="are numbers, not choices; use act"):
        policy.choose([[1.0]])


@pytest.mark.parametrize("fallback", ["low", [1], [1.0]])
def test_a_fallback_is_a_name_or_a_number(fallback: Any) -> None:
    assert POLICY.choose([[np.nan], [1.0]], fallback=fallback) == ["low", "high"]


@pytest.mark.parametrize("name", NAMES)
def test_every_choice_can_be_the_fallback(name: str) -> None:
    number = NAMES.index(name)
    assert POLICY.choose([[np.nan]], fallback=name) == [name]
    assert POLICY.act([[np.nan]], fallback=[number]).tolist() == [[number]]


@pytest.mark.parametrize("fallback", [[0.7, -0.1], [-0.7, 0.1]])
def test_the_bounds_themselves_can_be_the_fallback(fallback: list[float]) -> None:
    """In single precision 0.7 is less than 0.7, and 0.1 is more than 0.1."""
    bounds = ActionBounds(np.array([-0.7, -0.1]), np.array([0.7, 0.1]))
    policy = Policy(Still(), TaskSpec(1, bounds))
    found = policy.act([[np.nan], [0.0]], fallback=fallback)
    assert found.tolist() == np.array([fallback, [0, 0]], np.float32).tolist()
    for wrong in ([0.8, 0.0], [0.0, -0.2]):
        with pytest.raises(InputError, match=r"fallback: .* is not an action between"):
            policy.act([[np.nan]], fallback=wrong)


@pytest.mark.parametrize("fallback", ["lower", [3], [-1], [0.5], [1, 1], 1, ["low"]])
def test_another_fallback_is_refused(fallback: Any) -> None:
    with pytest.raises(InputError, match=r"fallback: .* is not an action"):
        POLICY.act([[np.nan]], fallback=fallback)


@pytest.mark.parametrize(("fallback", "told"), [([3], "3.0"), ("lower", "nan"), ([0.5, 1], "nan")])
def test_a_refused_fallback_is_told_with_the_range(fallback: Any, told: str) -> None:
    with pytest.raises(InputError) as refused:
        POLICY.act([[np.nan]], fallback=fallback)
    words = f"fallback: [{told}] is not an action between [0.0] and [2.0]"
    assert str(refused.value) == words


def test_masks_and_numbers_reach_the_learner() -> None:
    """Row i permits at its next state what its own number says."""
    rows = 50
    masks = np.arange(3) == (np.arange(rows) % 3)[:, None]
    columns = Columns(
        "made up",
        {
            "observations": np.arange(rows, dtype=float)[:, None],
            "actions": np.arange(rows) % 3,
            "rewards": np.zeros(rows),
            "next_observations": np.arange(rows, dtype=float)[:, None],
            "terminated": np.zeros(rows, bool),
            "permitted": np.ones((rows, 3), bool),
            "next_permitted": masks,
        },
        Provenance(),
        choices=NAMES,
    )
    batch = on_device(Dataset.from_columns(columns))
    assert batch.actions.dtype == jnp.int32
    assert isinstance(batch.next_permitted, jax.Array)
    drawn = sample(batch, None, rows, 200, jax.random.key(0))
    number = np.asarray(drawn.observations)[:, 0].astype(int) % 3
    np.testing.assert_array_equal(drawn.actions, number)
    assert drawn.next_permitted is not None
    np.testing.assert_array_equal(drawn.next_permitted, np.arange(3) == number[:, None])
