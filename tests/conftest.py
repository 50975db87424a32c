"""What several test files share."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import jax
import numpy as np
import pytest
from hypothesis import settings

BatchFile = Callable[..., Path]
ROWS = 40

settings.register_profile("bcq", deadline=None)  # a busy machine is no failure
settings.load_profile("bcq")

QUICK = "jax_disable_most_optimizations"
os.environ[QUICK.upper()] = "1"  # a process that a test starts gives the same bits as the test

os.environ["NPROC"] = "1"  # threads of JAX: the same bits with any number of cores


def compile_quickly(quickly: bool) -> None:
    """Without optimisations, compiling takes half the time; small programs run as fast."""
    jax.config.update(QUICK, quickly)  # type: ignore[no-untyped-call]
    jax.clear_caches()  # type: ignore[no-untyped-call] # does not ask how a program was compiled


compile_quickly(True)


# Begun last, one of these would keep one core busy when all other files are done.
LONGEST = ("test_recordings.py", "test_reproduction.py", "test_interruption.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.name not in LONGEST)


@pytest.fixture(autouse=True)
def _all_cores() -> Iterator[None]:
    """A test that left this process on one core would change the bits of the tests after it."""
    if not hasattr(os, "sched_getaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    yield
    assert os.sched_getaffinity(0) == before


@pytest.fixture
def batch_file(tmp_path: Path) -> BatchFile:
    """Writes a batch as D4RL does, by h5py alone, with some of its items changed.

    Keywords are D4RL's names; None leaves an item out. Attributes go in `attributes`.
    """

    def write(
        name: str = "batch.hdf5", *, attributes: dict[str, Any] | None = None, **changes: Any
    ) -> Path:
        generator = np.random.default_rng(0)
        observations = generator.normal(size=(ROWS + 1, 3)).astype(np.float32)
        following = observations[1:].copy()
        following[9::10] += 1  # what follows an end begins elsewhere
        items: dict[str, Any] = {
            "observations": observations[:-1],
            "actions": generator.uniform(-1, 1, (ROWS, 1)).astype(np.float32),
            "rewards": generator.normal(size=ROWS).astype(np.float32),
            "next_observations": following,
            "terminals": np.arange(ROWS) % 20 == 19,
            "timeouts": np.arange(ROWS) % 20 == 9,
        }
        path = tmp_path / name
        with h5py.File(path, "w") as file:
            for key, values in (items | changes).items():
                if values is not None:
                    file[key] = values
            file.attrs.update(attributes or {})
        return path

    return write


@pytest.fixture(scope="module")
def own_compilation_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Code that the command line compiles goes to a folder of these tests."""
    names = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs")
    before = {name: getattr(jax.config, name) for name in names}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield
    for name, value in before.items():
        jax.config.update(name, value)  # type: ignore[no-untyped-call]


@pytest.fixture(scope="module")
def compiled_as_for_users() -> Iterator[None]:
    """With every optimisation, for tests of equal bytes: optimised code could round differently."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(QUICK.upper())
        compile_quickly(False)
        yield
    compile_quickly(True)
