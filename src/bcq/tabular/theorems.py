"""The statements of Section 4.1, each checked on random MDPs: by how much it is violated."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from numpy.random import Generator

from bcq.system.errors import InputError
from bcq.tabular.batch import (
    TabularBatch,
    batch_constrained_policy,
    batch_of,
    coherent_part,
    collect,
    complete_batch,
    is_batch_constrained,
)
from bcq.tabular.extrapolation import (
    extrapolation_error,
    extrapolation_error_by_recursion,
    total_extrapolation_error,
)
from bcq.tabular.mdp import (
    Doubles,
    FiniteMDP,
    Flags,
    deterministic_policy,
    evaluate_policy,
    random_mdp,
    reachable,
)
from bcq.tabular.q_learning import bcql, greedy_in_batch, q_learning, q_learning_fixed_point


@dataclass(frozen=True)
class Statement:
    """A statement of the paper, and a function that measures its violation on a random MDP."""

    name: str
    says: str
    violation: Callable[[Generator], float]
    cases: int = 200
    tolerance: float = 1e-9

    def violations(self, seed: int) -> Iterator[float]:
        """The violation in each case."""
        for case in range(self.cases):
            yield self.violation(np.random.default_rng([seed, case]))


def largest(*differences: Doubles | float) -> float:
    """The largest absolute value; NaN if there is one (`max` can ignore it)."""
    return float(np.max([np.abs(one).max() for one in differences]))


def random_policy(random: Generator, mdp: FiniteMDP) -> Doubles:
    """Any distribution over actions in each state."""
    return random.dirichlet(np.ones(mdp.num_actions), mdp.num_states)


def coherent_batch(random: Generator, mdp: FiniteMDP) -> TabularBatch:
    """The coherent part of a few trajectories of some policy."""
    while True:
        behaviour = random_policy(random, mdp)
        batch = collect(mdp, behaviour, random, episodes=3, time_limit=10)
        try:
            return coherent_part(batch)
        except InputError:  # every tuple led to a dead end
            continue


def started_anywhere(random: Generator, mdp: FiniteMDP, among: Flags | None = None) -> FiniteMDP:
    """The same MDP with one start state, so that a policy does not reach every state."""
    states = np.flatnonzero(~mdp.terminal if among is None else among)
    return replace(mdp, start=np.eye(mdp.num_states)[random.choice(states)])


def random_q(random: Generator, mdp: FiniteMDP) -> Doubles:
    """Arbitrary initial values."""
    return random.normal(size=(mdp.num_states, mdp.num_actions))


def error_with(mdp: FiniteMDP, batch: TabularBatch, policy: Doubles, rewards: Doubles) -> float:
    """The total extrapolation error under other rewards, with Q0 = 0."""
    changed = replace(mdp, rewards=rewards)
    relabelled = batch_of(changed, batch.states, batch.actions, batch.next_states)
    nothing = np.zeros((mdp.num_states, mdp.num_actions))
    error = extrapolation_error(changed, relabelled, policy, nothing)
    return total_extrapolation_error(changed, policy, error)


def remark_1(random: Generator) -> float:
    """Eq. 8 gives the error of Eq. 7 at every pair, compared with values learned from B."""
    mdp = random_mdp(random, deterministic=bool(random.integers(2)))
    policy, initial_q = random_policy(random, mdp), random_q(random, mdp)
    batch = collect(mdp, random_policy(random, mdp), random, episodes=3, time_limit=8)
    by_definition = extrapolation_error(mdp, batch, policy, initial_q)
    by_recursion = extrapolation_error_by_recursion(mdp, batch, policy, initial_q)
    learned = evaluate_policy(mdp, policy) - by_definition  # Q^pi_B
    moved = moved_by_the_batch(mdp, batch, policy, learned)
    unseen = np.where(batch.pairs, 0.0, learned - initial_q)[~mdp.terminal]
    return largest(by_definition - by_recursion, moved, unseen)


def moved_by_the_batch(mdp: FiniteMDP, batch: TabularBatch, policy: Doubles, q: Doubles) -> Doubles:
    """The sum of the updates of Eq. 6 over all tuples: 0 at the limit of a policy's value."""
    values = np.where(mdp.terminal, 0.0, (policy * q).sum(axis=1))
    targets = batch.rewards + mdp.discount * values[batch.next_states]
    moved = np.zeros(q.shape)
    pairs = (batch.states, batch.actions)
    np.add.at(moved, pairs, targets - q[pairs])
    return moved


def sampled_mdp(random: Generator) -> FiniteMDP:
    """Deterministic, or stochastic such that sampled updates end within 1e-2 of their limit.

    In a deterministic MDP the updates have no noise. In a stochastic MDP the last value of a pair
    has a standard deviation of about sqrt(alpha / (2 - 2 gamma)) times that of its targets. If
    rewards depend only on the pair, the latter is at most gamma (max V - min V) / 2: with rewards
    and Q0 in [0, 1] and gamma = 0.2 this is 0.125, and after 40,000 updates alpha is 6e-4. The
    product is at most 0.0025, a quarter of the tolerance.
    """
    if random.integers(2):
        return random_mdp(random, num_states=4, num_actions=2, discount=0.7)
    mdp = random_mdp(random, num_states=4, num_actions=2, discount=0.2, deterministic=False)
    return replace(mdp, rewards=np.broadcast_to(random.random((4, 2, 1)), mdp.rewards.shape))


def theorem_1(random: Generator) -> float:
    """Sampled Q-learning on a batch converges to the optimum of M_B; usually p_B is not p_M."""
    mdp = sampled_mdp(random)
    batch = collect(mdp, random_policy(random, mdp), random, episodes=3, time_limit=10)
    initial_q = random.random((mdp.num_states, mdp.num_actions))
    # Only pairs with two or more tuples have noise; they are drawn at least 40,000 times.
    updates, seed = 20_000 * len(batch), int(random.integers(2**31))
    sampled = q_learning(batch, initial_q, discount=mdp.discount, updates=updates, seed=seed)
    return largest(sampled - q_learning_fixed_point(mdp, batch, initial_q))


def lemma_1(random: Generator) -> float:
    """No error if p_B = p_M at all pairs that the policy reaches; some error otherwise."""
    mdp = started_anywhere(random, random_mdp(random, deterministic=False, denominator=2))
    policy = deterministic_policy(random.integers(mdp.num_actions, size=mdp.num_states), 3)
    relevant = reachable(mdp, policy)[:, None] & (policy > 0)
    batch = complete_batch(mdp, 2)
    needed = batch.rows(relevant[batch.states, batch.actions])
    exact = error_with(mdp, needed, policy, random.normal(size=mdp.rewards.shape))
    state, action = random.permutation(np.argwhere(relevant))[0].tolist()
    of_pair = (needed.states == state) & (needed.actions == action)
    following = random.choice(np.flatnonzero(mdp.transitions[state, action] != 1))
    biased = batch_of(
        mdp,
        np.append(needed.states, state),
        np.append(needed.actions, action),
        np.append(needed.next_states, following),
    )
    wrong = [biased] if of_pair.all() else [biased, needed.rows(~of_pair)]
    return largest(exact, *(missed_by_all_rewards(mdp, b, policy, state, action) for b in wrong))


def missed_by_all_rewards(
    mdp: FiniteMDP, batch: TabularBatch, policy: Doubles, state: int, action: int
) -> float:
    """1 if no reward 1[(s, a, s')] shows an error, else 0. One reward alone can cancel out."""
    for following in range(mdp.num_states):
        rewards = np.zeros(mdp.rewards.shape)
        rewards[state, action, following] = 1
        if error_with(mdp, batch, policy, rewards) > 1e-9:
            return 0.0
    return 1.0


def theorem_2(random: Generator) -> float:
    """In a deterministic MDP: no error for all rewards if and only if batch-constrained."""
    mdp = random_mdp(random)
    batch = coherent_batch(random, mdp)
    mdp = started_anywhere(random, mdp, np.any(batch.pairs, axis=1))
    constrained = batch_constrained_policy(batch)
    if not is_batch_constrained(mdp, constrained, batch):
        return 1.0  # one must exist
    exact = error_with(mdp, batch, constrained, random.normal(size=mdp.rewards.shape))
    swerves = random.random(mdp.num_states) < 0.4
    anything = random.integers(mdp.num_actions, size=mdp.num_states)
    policy = deterministic_policy(np.where(swerves, anything, constrained.argmax(axis=1)), 3)
    error = error_with(mdp, batch, policy, random.normal(size=mdp.rewards.shape))
    if is_batch_constrained(mdp, policy, batch):
        return largest(exact, error)
    return largest(exact, float(not error > 1e-9))  # random rewards cancel with probability 0


def best_value(mdp: FiniteMDP, allowed: Flags) -> Doubles:
    """The true value of the best map from states to allowed actions, found by trying all maps."""
    choices = [np.flatnonzero(row) if row.any() else [-1] for row in allowed]
    maps = (deterministic_policy(np.array(one), mdp.num_actions) for one in product(*choices))
    return np.max([evaluate_policy(mdp, policy) for policy in maps], axis=0)


def theorem_3(random: Generator) -> float:
    """If the batch has every pair in the right proportions, sampled BCQL converges to Q*."""
    mdp = sampled_mdp(random)
    batch = complete_batch(mdp, 10)
    initial_q, seed = random_q(random, mdp), int(random.integers(2**31))
    updates = 4_000 * len(batch)  # 40,000 per pair
    q = bcql(batch, initial_q, discount=mdp.discount, updates=updates, seed=seed)
    going_on = np.broadcast_to(~mdp.terminal[:, None], q.shape)
    return largest((q - best_value(mdp, going_on))[going_on])


def theorem_4(random: Generator) -> float:
    """In a deterministic MDP, sampled BCQL finds the best map from states to logged actions."""
    mdp = random_mdp(random, num_states=5, discount=0.3)
    batch = coherent_batch(random, mdp)
    # Without noise the distance shrinks by exp(-(1 - gamma) n^0.3 / 0.3), 6e-12 at n = 3,000.
    updates = 3_000 * len(batch)
    q = bcql(batch, random_q(random, mdp), discount=mdp.discount, updates=updates)
    learned = deterministic_policy(greedy_in_batch(q, batch), mdp.num_actions)
    best = best_value(mdp, batch.pairs)
    return largest(np.stack([q - best, evaluate_policy(mdp, learned) - best])[:, batch.pairs])


def against_the_behaviour(random: Generator) -> float:
    """The policy of sampled BCQL earns at least as much as the logged trajectory."""
    while True:
        mdp = random_mdp(random, discount=0.5)
        trajectory = collect(mdp, random_policy(random, mdp), random, episodes=1, time_limit=40)
        if mdp.terminal[trajectory.next_states[-1]]:
            break
    updates = 2_000 * len(trajectory)
    q = bcql(trajectory, random_q(random, mdp), discount=mdp.discount, updates=updates)
    learned = deterministic_policy(greedy_in_batch(q, trajectory), mdp.num_actions)
    worth = (evaluate_policy(mdp, learned) * learned).sum(axis=1)
    earned, missing = 0.0, []
    for state, reward in zip(trajectory.states[::-1], trajectory.rewards[::-1], strict=True):
        earned = reward + mdp.discount * earned
        missing.append(earned - worth[state])
    return largest(np.maximum(missing, 0.0))


STATEMENTS = (
    Statement("Theorem 1", "Q-learning on a batch solves M_B", theorem_1, 20, 1e-2),
    Statement("Remark 1", "the error satisfies Eq. 8, s_init included", remark_1),
    Statement("Lemma 1", "no error iff p_B = p_M wherever the policy goes", lemma_1),
    Statement("Theorem 2", "deterministic: no error iff batch-constrained", theorem_2),
    Statement("Theorem 3", "BCQL on complete data finds Q*", theorem_3, 20, 1e-2),
    Statement("Theorem 4", "deterministic: BCQL is best of all logged choices", theorem_4, 100),
    Statement("Section 4.1", "BCQL is never worse than a logged trajectory", against_the_behaviour),
)
