"""The pieces that every algorithm shares."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from jax import Array

from bcq.algorithms.learning import (
    Metrics,
    Minibatch,
    Trainable,
    adam,
    bellman_target,
    check_settings,
    soft_minimum,
    track,
)
from bcq.system.errors import InputError

values = arrays(np.float32, (2, 5), elements=st.floats(-100, 100, width=32))


@given(values, st.floats(0, 1))
def test_soft_minimum_lies_between_minimum_and_maximum(pair: np.ndarray, weight: float) -> None:
    result = np.asarray(soft_minimum(jnp.asarray(pair), weight))
    assert (result >= pair.min(axis=0) - 1e-4).all()
    assert (result <= pair.max(axis=0) + 1e-4).all()


@given(values)
def test_soft_minimum_is_the_minimum_at_weight_one(pair: np.ndarray) -> None:
    assert (soft_minimum(jnp.asarray(pair), 1.0) == pair.min(axis=0)).all()


def test_soft_minimum_by_hand() -> None:
    assert soft_minimum(jnp.array([[4.0], [8.0]]), 0.75)[0] == 5.0


def test_track_at_rates_zero_and_one() -> None:
    slow, fast = {"w": jnp.arange(3.0)}, {"w": jnp.full(3, 7.0)}
    assert (track(slow, fast, 0.0)["w"] == slow["w"]).all()
    assert (track(slow, fast, 1.0)["w"] == fast["w"]).all()
    np.testing.assert_allclose(track(slow, fast, 0.25)["w"], [1.75, 2.5, 3.25])


def test_terminals_do_not_bootstrap_and_time_limits_do() -> None:
    batch = Minibatch(
        observations=jnp.zeros((3, 1)),
        actions=jnp.zeros((3, 1)),
        rewards=jnp.array([1.0, 2.0, 3.0]),
        next_observations=jnp.zeros((3, 1)),
        terminated=jnp.array([False, True, True]),  # the first is cut by a time limit, or goes on
    )
    target = bellman_target(batch, jnp.array([10.0, 10.0, jnp.nan]), 0.9)
    np.testing.assert_allclose(target, [10.0, 2.0, 3.0])


def test_l2_enters_the_gradient_before_adam_and_reaches_biases() -> None:
    model = {"weight": jnp.array([2.0]), "bias": jnp.array([-3.0])}
    trainable = Trainable(model, adam(0.1, l2=1e-2))
    stepped, _ = trainable.descend(lambda model: (0.0 * model["weight"].sum(), {}))
    # Adam's first step is the learning rate times the gradient's sign, however small the L2.
    np.testing.assert_allclose(stepped.model["weight"], [1.9], rtol=1e-4)
    np.testing.assert_allclose(stepped.model["bias"], [-2.9], rtol=1e-4)


@pytest.mark.parametrize("l2", [0.0, 0.5])
def test_steps_are_those_of_adam_with_the_usual_constants(l2: float) -> None:
    """Gradients as small as epsilon, whose every constant then shows (Kingma and Ba)."""
    rate, weight, first, second = 0.01, 1e-8, 0.0, 0.0
    trainable = Trainable(jnp.float32(weight), adam(rate, l2))
    for step, slope in enumerate([1e-8, 3e-8, -2e-8, 5e-8], 1):

        def loss(x: Array, slope: float = slope) -> tuple[Array, Metrics]:
            return slope * x, {}

        trainable, _ = trainable.descend(loss)
        gradient = slope + l2 * weight
        first = 0.9 * first + 0.1 * gradient
        second = 0.999 * second + 0.001 * gradient**2
        mean, square = first / (1 - 0.9**step), second / (1 - 0.999**step)
        weight -= rate * mean / (square**0.5 + 1e-8)
        assert float(trainable.model) == pytest.approx(weight, rel=1e-4)


def test_descend_reports_metrics_before_the_step() -> None:
    trainable = Trainable(jnp.array(3.0), adam(0.1))
    stepped, metrics = trainable.descend(lambda x: (x**2, {"loss": x**2}))
    assert metrics["loss"] == 9.0
    assert stepped.model == pytest.approx(2.9, rel=1e-5)


def test_one_setting_gives_one_optimizer_so_that_compiled_code_is_found_again() -> None:
    assert adam(1e-3) is adam(1e-3)
    first, second = (Trainable(jnp.zeros(1), adam(1e-3)) for _ in range(2))
    assert str(jax.tree.structure(first)) == str(jax.tree.structure(second))


@dataclass
class Some:
    """A setting of each kind, all at the edge of what is allowed."""

    count: int = 1
    sizes: tuple[int, ...] = (2**31 - 1, 1)
    rate: float = 1e-9
    weight: float = 0.0
    share: float = 1.0
    other_share: float = 0.0


def check(settings: Some) -> None:
    check_settings(
        settings,
        at_least_one=("count", "sizes"),
        positive=("rate",),
        not_negative=("weight",),
        fractions=("share", "other_share"),
        not_empty=("sizes",),
    )


def test_settings_at_the_edge_of_their_range_are_taken() -> None:
    check(Some())


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"count": 0}, "count: 0 is not at least 1"),
        ({"count": 2**31}, "count: 2147483648 is not below 2147483648"),
        ({"sizes": (8, 0)}, r"sizes: \(8, 0\) is not at least 1"),
        ({"sizes": (0, 8)}, r"sizes: \(0, 8\) is not at least 1"),
        ({"sizes": (8, 2**31)}, r"sizes: \(8, 2147483648\) is not below 2147483648"),
        ({"sizes": ()}, "sizes: is empty"),
        ({"rate": 0.0}, "rate: 0.0 is not above 0"),
        ({"rate": -1.0}, "rate: -1.0 is not above 0"),
        ({"rate": np.inf}, "rate: inf is not finite"),
        ({"rate": np.nan}, "rate: nan is not above 0"),
        ({"weight": -1e-9}, "weight: -1e-09 is not 0 or more"),
        ({"weight": np.inf}, "weight: inf is not finite"),
        ({"weight": np.nan}, "weight: nan is not 0 or more"),
        ({"share": 1.01}, "share: 1.01 is not between 0 and 1"),
        ({"other_share": -0.01}, "other_share: -0.01 is not between 0 and 1"),
        ({"share": np.nan}, "share: nan is not between 0 and 1"),
    ],
)
def test_settings_beyond_their_range_are_refused_by_name(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=f"^{words}"):
        check(Some(**wrong))


def test_a_range_that_is_not_asked_for_is_not_required() -> None:
    check_settings(Some(count=0, sizes=(), rate=-1.0, weight=-1.0, share=2.0))
