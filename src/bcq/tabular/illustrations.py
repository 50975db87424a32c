"""Illustrations of extrapolation error: Figure 6, a grid world, the causes of Section 3."""

from dataclasses import dataclass

import numpy as np

from bcq.tabular.batch import TabularBatch, batch_of, collect
from bcq.tabular.extrapolation import (
    error_of_absent_data,
    error_of_model_bias,
    error_of_training_mismatch,
)
from bcq.tabular.kernel import KernelBasedRL, embed
from bcq.tabular.mdp import (
    Doubles,
    FiniteMDP,
    Flags,
    Indices,
    deterministic_policy,
    evaluate_policy,
    greedy,
    grid_world,
    random_mdp,
    toy_mdp,
    value_iteration,
)
from bcq.tabular.q_learning import (
    bcql,
    bcql_fixed_point,
    greedy_in_batch,
    q_learning_fixed_point,
)

WIDTH, HEIGHT = 7, 5
WALLS = ((2, 1), (2, 2), (2, 3), (4, 0), (4, 1), (4, 3))
COUNTS = np.array([1, 2, 5, 10, 20, 50, 100, 200, 500, 1000])
SHARES = np.linspace(0, 1, 11)
KERNEL_EXACT, BCQL_EXACT = 1e-9, 1e-3  # BCQL is sampled
DISCOUNTS = (0.3, 0.6, 0.9)


@dataclass(frozen=True, eq=False)
class Counterexample:
    """Figure 6: two states, two actions, and the two tuples of the optimal policy as batch."""

    discount: float
    kernel_q: Doubles
    kernel_actions: Indices
    bcql_q: Doubles
    bcql_actions: Indices

    @property
    def true_values(self) -> Doubles:
        """Q(s0, a1) = 1 / (1 - gamma^2) and Q(s1, a0) = gamma / (1 - gamma^2)."""
        return np.array([1.0, self.discount]) / (1 - self.discount**2)

    @property
    def kernel_values_off_by(self) -> float:
        """The distance from the limit of Eq. 21: each action's logged value, in both states."""
        return float(np.abs(self.kernel_q - self.true_values[::-1]).max())

    @property
    def bcql_values_off_by(self) -> float:
        """The distance from the true values of the two logged pairs."""
        return float(np.abs(self.bcql_q[[0, 1], [1, 0]] - self.true_values).max())

    @property
    def kernel_fails(self) -> bool:
        """In s1 it takes a1, which was never seen there, and earns nothing from then on."""
        return self.kernel_actions.tolist() == [1, 1]

    @property
    def bcql_is_optimal(self) -> bool:
        """It alternates between the two states."""
        return self.bcql_actions.tolist() == [1, 0]

    @property
    def stands(self) -> bool:
        """Policies and values agree with supplement C; BCQL is sampled (2e-4 at gamma = 0.9)."""
        return (
            self.kernel_fails
            and self.bcql_is_optimal
            and self.kernel_values_off_by <= KERNEL_EXACT
            and self.bcql_values_off_by <= BCQL_EXACT
        )


def counterexample(discount: float) -> Counterexample:
    """What kernel-based RL and sampled BCQL learn from it."""
    mdp = toy_mdp(discount)
    batch = batch_of(mdp, np.array([0, 1]), np.array([1, 0]), np.array([1, 0]))
    both = np.array([[0.0], [1.0]])
    kernel = KernelBasedRL(embed(batch), 2, discount, bandwidth=1.0)
    initial_q = np.full((2, 2), 10.0)  # above every true value, so that unseen actions look best
    values = bcql(batch, initial_q, discount=discount, updates=200_000)
    return Counterexample(
        discount, kernel.q(both), kernel.act(both), values, greedy_in_batch(values, batch)
    )


@dataclass(frozen=True, eq=False)
class Grid:
    """A grid world, a batch from it, and what was learned from the batch."""

    mdp: FiniteMDP
    batch: TabularBatch
    free: Flags  # states that are not walls
    q: dict[str, Doubles]  # the values of truth, Q-learning and BCQL
    policies: dict[str, Doubles]
    worth: dict[str, Doubles]  # the true value of each policy in each state

    def believed(self, name: str) -> Doubles:
        """V(s) according to the learner."""
        return (self.q[name] * self.policies[name]).sum(axis=1)

    def defined(self, name: str) -> Flags:
        """The states in which the learner has a policy, or does not need one."""
        return self.policies[name].any(axis=1) | self.mdp.terminal


def learn_grid(seed: int) -> Grid:
    """Three episodes of a random policy, and the exact result of learning from them."""
    mdp = grid_world(WIDTH, HEIGHT, walls=WALLS)
    wander = np.tile([0.35, 0.35, 0.15, 0.15], (mdp.num_states, 1))
    batch = collect(mdp, wander, np.random.default_rng(seed), episodes=3, time_limit=10_000)
    nothing = np.zeros((mdp.num_states, 4))  # above every true value: each step costs 1
    q = {
        "truth": value_iteration(mdp),
        "Q-learning": q_learning_fixed_point(mdp, batch, nothing),
        "BCQL": bcql_fixed_point(mdp, batch, nothing),
    }
    policies = {
        "truth": deterministic_policy(greedy(q["truth"]), 4),
        "Q-learning": deterministic_policy(greedy(q["Q-learning"]), 4),
        "BCQL": deterministic_policy(greedy_in_batch(q["BCQL"], batch), 4),
    }
    worth = {
        name: (evaluate_policy(mdp, policy) * policy).sum(axis=1)
        for name, policy in policies.items()
    }
    walls = [x + WIDTH * y for x, y in WALLS]
    return Grid(mdp, batch, ~np.isin(np.arange(mdp.num_states), walls), q, policies, worth)


def measure_causes(seed: int) -> dict[str, tuple[Doubles, Doubles]]:
    """The three causes of Section 3, each separately."""
    random = np.random.default_rng(seed)
    mdp = random_mdp(random, num_states=8, num_actions=3, deterministic=False)
    policy, behaviour = random.dirichlet(np.full(3, 0.3), (2, 8))
    features = random.normal(size=(8, 3, 6))
    nothing = np.zeros((8, 3))
    shares = SHARES[1:]
    return {
        "absent data": (
            shares,
            np.mean(
                [error_of_absent_data(mdp, policy, nothing, shares, random) for _ in range(10)],
                axis=0,
            ),
        ),
        "model bias": (COUNTS, error_of_model_bias(mdp, policy, COUNTS, random)),
        "training mismatch": (
            SHARES,
            error_of_training_mismatch(mdp, policy, behaviour, features, SHARES),
        ),
    }
