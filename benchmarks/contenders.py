"""One implementation, made ready to be timed, in a process and a Python environment of its own.

    python benchmarks/contenders.py NAME --env Hopper-v5 --cores 0,1

Each line of standard input is a number of seconds; the answer is a line with how many updates
(or, of matrix products, multiply-adds) it did per second in about that time.
`benchmarks/compare.py` asks several of these in turn.
"""

import argparse
import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

SIZES = {"Hopper-v5": (11, 3), "HalfCheetah-v5": (17, 6)}  # of observations and actions
TRANSITIONS, EPISODE, ROWS = 100_000, 1_000, 100
SQUARE = 2048  # of the square matrices whose product is the yardstick

Columns = Mapping[str, NDArray[Any]]
Work = Callable[[int], object]  # that many updates, all finished on return


def transitions(env: str, count: int = TRANSITIONS) -> Columns:
    """Random numbers in the shape of an environment's transitions; the same for everyone."""
    observation_size, action_size = SIZES[env]
    random = np.random.default_rng(0)
    observations = random.normal(size=(count, observation_size)).astype(np.float32)
    return {
        "observations": observations,
        "actions": random.uniform(-1, 1, (count, action_size)).astype(np.float32),
        "rewards": random.normal(size=count).astype(np.float32),
        "next_observations": np.roll(observations, -1, axis=0),
        "terminated": np.zeros(count, np.float32),
    }


def episode_ends(count: int) -> NDArray[np.bool_]:
    """Where these transitions meet their time limit."""
    return np.arange(count) % EPISODE == EPISODE - 1


def ours(env: str, columns: Columns, algorithm: str, **settings: Any) -> Work:
    """This project, the compiled loop of `bcq train`."""
    from bcq.algorithms import ALGORITHMS
    from bcq.training.loop import update_until

    config = ALGORITHMS[algorithm](**settings)
    inputs = our_inputs(env, columns, config)
    return lambda count: finished(update_until(*inputs, 0, count, config.batch_size))


def our_inputs(env: str, columns: Columns, config: Any) -> tuple[Any, ...]:
    """A fresh learner, the batch as it is, its window and a key, as updates take them."""
    import jax
    import jax.numpy as jnp

    from bcq.algorithms.learning import Minibatch
    from bcq.training.loop import create_compiled

    learner = create_compiled(config, *SIZES[env], jax.random.key(0))
    batch = Minibatch(**{name: jnp.asarray(column) for name, column in columns.items()})
    batch = batch._replace(terminated=batch.terminated > 0)
    return learner, batch, None, jnp.array([len(batch.rewards)]), jax.random.key(1)


def finished(values: object) -> object:
    """Waits until all arrays of it are there."""
    import jax

    return jax.block_until_ready(values)  # type: ignore[no-untyped-call]


def products(env: str, columns: Columns) -> Work:
    """Large matrix products by the library this project computes with."""
    from updates import Products

    return Products().multiply


def torch_products(env: str, columns: Columns) -> Work:
    """The same products by PyTorch."""
    import torch

    square = torch.from_numpy(np.random.default_rng(1).normal(size=(SQUARE, SQUARE))).float()

    def multiply(count: int) -> None:
        for _ in range(count):
            square @ square

    return multiply


def textbook(env: str, columns: Columns, *, compiled: bool = False) -> Work:
    """The PyTorch implementation of `benchmarks/textbook.py`, eager or under torch.compile."""
    import textbook as book
    import torch

    learner = book.TextbookBCQ(*SIZES[env])
    batch = book.Batch(**{name: torch.from_numpy(column) for name, column in columns.items()})
    step = torch.compile(learner.update) if compiled else learner.update

    def update(count: int) -> None:
        for _ in range(count):
            step(book.sample(batch, ROWS), learner.draw(ROWS))

    return update


def d3rlpy(env: str, columns: Columns, algorithm: str, **settings: Any) -> Work:
    """d3rlpy's, with its own defaults for what the settings leave open."""
    import d3rlpy as library

    dataset = d3rlpy_dataset(columns)
    config = getattr(library.algos, f"{algorithm}Config")(batch_size=ROWS, **settings)
    learner = config.create(device="cpu")
    learner.build_with_dataset(dataset)

    def update(count: int) -> None:
        for _ in range(count):
            learner.update(dataset.sample_transition_batch(ROWS))

    return update


def d3rlpy_dataset(columns: Columns) -> Any:
    """The transitions as d3rlpy keeps them."""
    import d3rlpy as library
    import structlog

    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())  # standard output is ours
    return library.dataset.MDPDataset(
        columns["observations"],
        columns["actions"],
        columns["rewards"],
        terminals=columns["terminated"],
        timeouts=episode_ends(len(columns["rewards"])).astype(np.float32),
    )


def d3rlpy_at_paper_sizes(env: str, columns: Columns, algorithm: str, **settings: Any) -> Work:
    """With the paper's networks in place of d3rlpy's."""
    from d3rlpy.models.encoders import VectorEncoderFactory

    critic, vae = VectorEncoderFactory([400, 300]), VectorEncoderFactory([750, 750])
    encoders = {
        "BCQ": {
            "actor_encoder_factory": critic,
            "critic_encoder_factory": critic,
            "imitator_encoder_factory": vae,
        },
        "DDPG": {"actor_encoder_factory": critic, "critic_encoder_factory": critic},
        "BC": {"encoder_factory": critic},
    }
    return d3rlpy(env, columns, algorithm, **encoders[algorithm], **settings)


def tianshou(env: str, columns: Columns) -> Work:
    """tianshou's, at the paper's sizes; its learning target leaves the perturbation out."""
    import gymnasium
    from tianshou.algorithm.imitation.bcq import BCQ, BCQPolicy
    from tianshou.algorithm.optim import AdamOptimizerFactory
    from tianshou.data import ReplayBuffer
    from tianshou.utils.net.common import MLP, Net
    from tianshou.utils.net.continuous import VAE, ContinuousCritic, Perturbation
    from tianshou.utils.torch_utils import policy_within_training_step

    observation_size, action_size = SIZES[env]
    pair, latent = observation_size + action_size, 2 * action_size
    critics = [
        ContinuousCritic(
            preprocess_net=Net(
                state_shape=(observation_size,),
                action_shape=(action_size,),
                hidden_sizes=(400, 300),
                concat=True,
            )
        )
        for _ in range(2)
    ]
    learner = BCQ(
        policy=BCQPolicy(
            actor_perturbation=Perturbation(
                preprocess_net=Net(
                    state_shape=pair, action_shape=action_size, hidden_sizes=(400, 300)
                ),
                max_action=1.0,
            ),
            action_space=gymnasium.spaces.Box(-1.0, 1.0, (action_size,)),
            critic=critics[0],
            vae=VAE(
                encoder=MLP(input_dim=pair, hidden_sizes=(750, 750)),
                decoder=MLP(
                    input_dim=observation_size + latent,
                    output_dim=action_size,
                    hidden_sizes=(750, 750),
                ),
                hidden_dim=750,
                latent_dim=latent,
                max_action=1.0,
            ),
        ),
        actor_perturbation_optim=AdamOptimizerFactory(lr=1e-3),
        critic_optim=AdamOptimizerFactory(lr=1e-3),
        vae_optim=AdamOptimizerFactory(lr=1e-3),
        critic2=critics[1],
    )
    ends = episode_ends(len(columns["rewards"]))
    buffer = ReplayBuffer.from_data(
        obs=columns["observations"],
        act=columns["actions"],
        rew=columns["rewards"],
        terminated=columns["terminated"] > 0,
        truncated=ends,
        done=ends,
        obs_next=columns["next_observations"],
    )

    def update(count: int) -> None:
        with policy_within_training_step(learner.policy):
            for _ in range(count):
                learner.update(buffer=buffer, sample_size=ROWS)

    return update


CONTENDERS: dict[str, Callable[[str, Columns], Work]] = {  # in the order they are asked
    "torch products": torch_products,
    "products": products,
    "bcq": partial(ours, algorithm="bcq"),
    "textbook": textbook,
    "textbook compiled": partial(textbook, compiled=True),
    "d3rlpy": partial(d3rlpy_at_paper_sizes, algorithm="BCQ", n_action_samples=10),
    "d3rlpy n=100": partial(d3rlpy_at_paper_sizes, algorithm="BCQ"),
    "d3rlpy defaults": partial(d3rlpy, algorithm="BCQ"),
    "tianshou": tianshou,
    "ddpg": partial(ours, algorithm="ddpg"),
    "d3rlpy ddpg": partial(d3rlpy_at_paper_sizes, algorithm="DDPG"),
    "bc": partial(ours, algorithm="bc"),
    "d3rlpy bc": partial(d3rlpy_at_paper_sizes, algorithm="BC"),
}
OURS = ("bcq", "ddpg", "bc", "products")  # the rest need PyTorch


def interpreter(name: str) -> str:
    """A Python that is there; for options."""
    if shutil.which(name) is None:
        raise argparse.ArgumentTypeError(f"{name} is no program; make .venv-bench/ready makes one")
    return name


def per_second(work: Work, count: int) -> float:
    """How fast it is at this moment."""
    start = time.perf_counter()
    work(count)
    return count / (time.perf_counter() - start)


def main() -> None:
    """Makes ready, then answers until the input ends."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", choices=CONTENDERS)
    parser.add_argument("--env", choices=SIZES, default="Hopper-v5")
    parser.add_argument("--cores", default="0,1", help="such as 0 or 0,1")
    arguments = parser.parse_args()
    cores = [int(core) for core in arguments.cores.split(",")]
    os.sched_setaffinity(0, cores)  # before any library counts them
    os.environ["OMP_NUM_THREADS"] = str(len(cores))
    work = CONTENDERS[arguments.name](arguments.env, transitions(arguments.env))
    per_second(work, 10)  # compiles
    speed = per_second(work, 10)
    unit = SQUARE**3 if "products" in arguments.name else 1
    print("ready", flush=True)
    for line in sys.stdin:
        speed = per_second(work, max(1, int(float(line) * speed)))
        print(speed * unit, flush=True)


if __name__ == "__main__":
    main()
