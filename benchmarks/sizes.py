"""How fast matrix products of an update's own sizes are, against the large square one.

What they allow together bounds an update, whatever is done about the rest. `benchmarks/where.py`
asks on one core and on two.
"""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from contenders import ROWS, per_second
from jax import Array
from updates import MULTIPLY_ADDS, Products

ROUNDS = 25
FORMS: dict[str, Callable[[Array, Array], Array]] = {
    "forwards": lambda inputs, weights: inputs @ weights,
    "gradient of inputs": lambda outputs, weights: outputs @ weights.T,
    "gradient of weights": lambda inputs, outputs: inputs.T @ outputs,
}
CANDIDATES = 10 * ROWS
# Form, rows, inputs, outputs of a layer, and how often in an update of BCQ at Hopper's sizes:
# all that have ten million multiply-adds or more. In the order of Algorithm 1: the VAE's step, the
# target, the critics' step, the perturbation model's.
LARGE = (
    ("forwards", ROWS, 750, 750, 2 + 1),  # encoder, decoder; the policy's candidates
    ("gradient of inputs", ROWS, 750, 750, 2),
    ("gradient of weights", ROWS, 750, 750, 2),
    ("forwards", CANDIDATES, 17, 750, 1),
    ("forwards", CANDIDATES, 750, 750, 1),
    ("forwards", CANDIDATES, 400, 300, 1 + 2),  # perturbation model, critics
    ("forwards", ROWS, 400, 300, 2 + 2),  # critics; perturbation model and the first critic
    ("gradient of inputs", ROWS, 400, 300, 2 + 2),
    ("gradient of weights", ROWS, 400, 300, 2 + 1),
)


def relative_rates() -> list[float]:
    """Multiply-adds per second of each, as a share of the yardstick's beside it: medians."""
    yardstick, cases = Products(), []
    for form, rows, inputs, outputs, _ in LARGE:
        shapes = {
            "forwards": ((rows, inputs), (inputs, outputs)),
            "gradient of inputs": ((rows, outputs), (inputs, outputs)),
            "gradient of weights": ((rows, inputs), (rows, outputs)),
        }
        operands = [jnp.asarray(random_matrix(shape)) for shape in shapes[form]]
        cases.append(partial(jax.jit(FORMS[form]), *operands))
        cases[-1]().block_until_ready()
    shares: list[list[float]] = [[] for _ in LARGE]
    for _ in range(ROUNDS):
        for case, found, (_, *sizes, _) in zip(cases, shares, LARGE, strict=True):
            limit = yardstick.multiply_adds_per_second(1)
            found.append(rate(case, int(np.prod(sizes))) / limit)
    return [float(np.median(found)) for found in shares]


def random_matrix(shape: tuple[int, ...]) -> "np.ndarray[tuple[int, ...], np.dtype[np.float32]]":
    """Of normal numbers."""
    return np.random.default_rng(2).normal(size=shape).astype(np.float32)


def rate(case: Callable[[], Array], multiply_adds: int) -> float:
    """Multiply-adds per second over a few milliseconds."""

    def work(count: int) -> None:
        for _ in range(count):
            product = case()
        product.block_until_ready()

    return per_second(work, max(1, 300_000_000 // multiply_adds)) * multiply_adds


def allowed(rates: list[float]) -> float:
    """The share of the limit these leave to an update in which all else is free.

    What is not among them is taken to run at the limit.
    """
    large = [count * rows * i * o for _, rows, i, o, count in LARGE]
    rest = MULTIPLY_ADDS["bcq"] - sum(large)
    return MULTIPLY_ADDS["bcq"] / (rest + sum(a / b for a, b in zip(large, rates, strict=True)))
