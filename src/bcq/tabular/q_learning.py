"""Q-learning and batch-constrained Q-learning on a batch: sampled, and their fixed points."""

import numpy as np

from bcq.system.errors import InputError
from bcq.tabular.batch import TabularBatch, batch_mdp, require_coherent, require_initial_q
from bcq.tabular.mdp import Doubles, FiniteMDP, Indices, greedy, value_iteration


def q_learning(
    batch: TabularBatch, initial_q: Doubles, *, discount: float, updates: int, seed: int = 0
) -> Doubles:
    """Eq. 6 with the greedy policy: backs up every action, also those not in the batch."""
    require_initial_q(batch, initial_q)
    return sampled_updates(batch, initial_q, discount=discount, updates=updates, seed=seed)


def bcql(
    batch: TabularBatch, initial_q: Doubles, *, discount: float, updates: int, seed: int = 0
) -> Doubles:
    """Eq. 10 and 15: backs up only actions that the batch has at s'."""
    require_coherent(batch)
    require_initial_q(batch, initial_q)
    visible = np.where(batch.pairs, initial_q, -np.inf)  # a maximum ignores the others
    q = sampled_updates(batch, visible, discount=discount, updates=updates, seed=seed)
    return np.where(batch.pairs, q, initial_q)


def sampled_updates(
    batch: TabularBatch,
    initial_q: Doubles,
    *,
    discount: float,
    updates: int,
    seed: int,
    omega: float = 0.7,
) -> Doubles:
    """Temporal-difference updates on uniformly drawn tuples, with Python lists, which are fastest.

    The step size of the n-th update of a pair is n^-omega, which satisfies Robbins-Monro for omega
    above 0.5. It converges much faster than 1/n, which forgets its first, wrong targets slowly.
    """
    if not 0 <= discount < 1:
        raise InputError(f"discount: {discount} is not in [0, 1)")
    drawn = np.random.default_rng(seed).integers(len(batch), size=updates)
    table: list[list[float]] = initial_q.tolist()
    visits = [[0] * batch.num_actions for _ in range(batch.num_states)]
    sizes = (np.arange(1.0, updates + 1) ** -omega).tolist()
    ends = batch.terminal.tolist()
    columns = (batch.states, batch.actions, batch.rewards, batch.next_states)
    for state, action, reward, following in zip(
        *(column[drawn].tolist() for column in columns), strict=True
    ):
        size = sizes[visits[state][action]]
        visits[state][action] += 1
        row = table[state]
        target = reward if ends[following] else reward + discount * max(table[following])
        row[action] += size * (target - row[action])
    return np.array(table)


def q_learning_fixed_point(mdp: FiniteMDP, batch: TabularBatch, initial_q: Doubles) -> Doubles:
    """The limit of Q-learning on the batch: the optimum of M_B (Theorem 1)."""
    q = value_iteration(batch_mdp(mdp, batch, initial_q))[: mdp.num_states]
    return np.where(mdp.terminal[:, None], initial_q, q)


def bcql_fixed_point(mdp: FiniteMDP, batch: TabularBatch, initial_q: Doubles) -> Doubles:
    """The limit of BCQL: the optimum of M_B over logged actions (Theorem 4)."""
    require_coherent(batch)
    nothing = np.zeros((1, batch.num_actions), bool)  # at s_init
    allowed = np.concatenate([batch.pairs, nothing])
    q = value_iteration(batch_mdp(mdp, batch, initial_q), allowed)[: mdp.num_states]
    return np.where(batch.pairs, q, initial_q)


def greedy_in_batch(q: Doubles, batch: TabularBatch) -> Indices:
    """BCQL's policy: the best logged action of each state, -1 outside the batch."""
    return greedy(q, batch.pairs)
