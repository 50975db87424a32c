"""The arrays of a learner by name, for files, and the learner from such arrays."""

from pathlib import Path
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from bcq.algorithms.learning import Acting
from bcq.system.errors import InputError

Learner = TypeVar("Learner", bound=Acting)


def names_of(learner: Acting) -> list[str]:
    """The path of every array, such as `vae.model.encoder.layers.0.weight`, in the tree's order."""
    paths = (path for path, _ in jax.tree_util.tree_leaves_with_path(learner))
    return [jax.tree_util.keystr(path, simple=True, separator=".") for path in paths]


def named_arrays(learner: Acting) -> dict[str, np.ndarray]:
    """Every array of a learner, by its path."""
    arrays = map(np.asarray, jax.tree.leaves(learner))
    return dict(zip(names_of(learner), arrays, strict=True))


def with_arrays(skeleton: Learner, arrays: dict[str, np.ndarray], source: Path) -> Learner:
    """The inverse of `named_arrays`: a learner like the skeleton, with these arrays."""
    leaves, structure = jax.tree.flatten(skeleton)
    names = names_of(skeleton)
    strangers = sorted(set(names) ^ set(arrays))
    if strangers:
        raise InputError(
            f"{source}: belongs to a different learner (array {strangers[0]} does not match)"
        )
    for name, expected in zip(names, leaves, strict=True):
        found = arrays[name]
        if (found.shape, found.dtype) != (expected.shape, expected.dtype):
            raise InputError(
                f"{source}: belongs to a different learner (array {name} is "
                f"{found.dtype}{found.shape}, not {expected.dtype}{expected.shape})"
            )
    learner: Learner = jax.tree.unflatten(structure, [jnp.asarray(arrays[name]) for name in names])
    return learner
