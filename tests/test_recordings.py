"""Every verb prints and writes what it did when it was recorded (`recordings.py`)."""

import math
from itertools import zip_longest

import pytest

from recordings import CHAPTERS, HASH, KEPT, NUMBER, record

pytestmark = pytest.mark.usefixtures("own_compilation_cache")


@pytest.fixture(scope="module")
def recorded() -> dict[str, str]:
    return record()


def alike(one: str, other: str) -> bool:
    """The same words, the same whole numbers, and fractions that differ by rounding at most."""
    one, other = HASH.sub("#", one), HASH.sub("#", other)
    if NUMBER.sub("0", one) != NUMBER.sub("0", other):
        return False
    pairs = zip(NUMBER.findall(one), NUMBER.findall(other), strict=True)
    return all(
        a == b or ("." in a + b and math.isclose(float(a), float(b), rel_tol=1e-2, abs_tol=1e-4))
        for a, b in pairs
    )


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_a_verb_says_and_writes_what_it_did(chapter: str, recorded: dict[str, str]) -> None:
    kept = (KEPT / f"{chapter}.txt").read_text().splitlines()
    lines = zip_longest(kept, recorded[chapter].splitlines(), fillvalue="")
    assert [pair for pair in lines if not alike(*pair)] == []


def test_only_hashes_and_rounding_may_differ() -> None:
    assert alike(
        "weights 89834e17ff9a90dc at 15.1767578125", "weights 0123456789abcdef at 15.17672"
    )
    assert not alike("loss 0.1797812271118164", "loss 0.5797812271118164")
    assert not alike("update 100", "update 101")
    assert not alike("saved", "kept")
