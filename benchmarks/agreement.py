"""Does the textbook implementation compute what this project computes?

    python benchmarks/agreement.py write FILE.npz     # this project's environment
    python benchmarks/agreement.py check FILE.npz     # the peers' environment

The first half writes weights, minibatches, noise, and the losses of three updates; the second
repeats them in PyTorch, from the same weights, and fails unless the losses agree.
"""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from contenders import ROWS, SIZES, transitions
from numpy.typing import NDArray

UPDATES = 3
RELATIVE, ABSOLUTE = 1e-4, 1e-5  # float32, and Adam makes whole steps of tiny gradients
COLUMNS = ("observations", "actions", "rewards", "next_observations", "terminated")
LOSSES = ("vae_loss", "critic_loss", "policy_loss")


def write(path: Path, env: str) -> None:
    """Three updates by this project, with everything needed to repeat them."""
    import jax
    import jax.numpy as jnp

    from bcq.algorithms import BCQConfig
    from bcq.algorithms.learning import Minibatch
    from bcq.training.loop import create_compiled

    learner = create_compiled(BCQConfig(), *SIZES[env], jax.random.key(0))
    arrays = weights_of(learner)
    columns = transitions(env, UPDATES * ROWS)
    columns = {**columns, "terminated": (columns["rewards"] > 1).astype(np.float32)}
    shape = (ROWS, BCQConfig().num_samples + 2, 2 * SIZES[env][1])
    update = jax.jit(lambda learner, batch, key: learner.update(batch, key))
    for i in range(UPDATES):
        rows = {name: columns[name][i * ROWS : (i + 1) * ROWS] for name in COLUMNS}
        batch = Minibatch(**{name: jnp.asarray(row) for name, row in rows.items()})
        learner, metrics = update(learner, batch, key := jax.random.key(i))
        arrays |= {f"{i}/{name}": row for name, row in rows.items()}
        arrays[f"{i}/noise"] = np.asarray(jax.random.normal(key, shape))
        arrays[f"{i}/losses"] = np.array([metrics[name] for name in LOSSES])
    np.savez(path, **arrays)  # type: ignore[arg-type]


def weights_of(learner: Any) -> dict[str, NDArray[np.float32]]:
    """The weights of this project's BCQ, numbered and laid out as PyTorch keeps them."""
    networks = [learner.vae.model.encoder, learner.vae.model.decoder]
    networks += [*learner.critics.model.members, learner.perturbation.model.network]
    layers = [layer for network in networks for layer in network.layers]
    arrays = [array for layer in layers for array in (layer.weight.T, layer.bias)]
    return {f"weights/{i:02}": np.asarray(array) for i, array in enumerate(arrays)}


def fill(learner: Any, arrays: Mapping[str, Any]) -> None:
    """Gives the textbook these weights."""
    import torch

    networks = learner.encoder, learner.decoder, learner.critics, learner.perturbation
    parameters = [parameter for network in networks for parameter in network.parameters()]
    with torch.no_grad():
        for i, parameter in enumerate(parameters):
            parameter.copy_(torch.as_tensor(arrays[f"weights/{i:02}"]))
    learner.target_critics.load_state_dict(learner.critics.state_dict())
    learner.target_perturbation.load_state_dict(learner.perturbation.state_dict())


def check(path: Path, env: str) -> None:
    """The same three updates by the textbook."""
    import torch
    from textbook import Batch, Noise, TextbookBCQ

    learner = TextbookBCQ(*SIZES[env])
    with np.load(path, allow_pickle=False) as file:
        arrays = {name: torch.from_numpy(file[name]) for name in file.files}
    fill(learner, arrays)
    for i in range(UPDATES):
        noise = arrays[f"{i}/noise"]
        losses = learner.update(
            Batch(*(arrays[f"{i}/{name}"] for name in COLUMNS)),
            Noise(vae=noise[:, 0], policy=noise[:, 1], target=noise[:, 2:].flatten(0, 1)),
        )
        for name, loss, expected in zip(LOSSES, losses, arrays[f"{i}/losses"], strict=True):
            line = f"update {i}, {name:<12} {float(loss): .6f} {float(expected): .6f}"
            if not np.isclose(float(loss), float(expected), rtol=RELATIVE, atol=ABSOLUTE):
                raise SystemExit(f"{line}: differs")
            print(line)


def main() -> None:
    """One half or the other."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("half", choices=("write", "check"))
    parser.add_argument("path", type=Path)
    parser.add_argument("--env", choices=SIZES, default="Hopper-v5")
    arguments = parser.parse_args()
    {"write": write, "check": check}[arguments.half](arguments.path, arguments.env)


if __name__ == "__main__":
    main()
