"""Each statement of Section 4.1, checked on a random MDP: how far it is from holding exactly."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from numpy.random import Generator

from bcq.errors import InputError
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
    FiniteMDP,
    Flags,
    Floats,
    deterministic_policy,
    evaluate_policy,
    random_mdp,
    reachable,
    value_iteration,
)
from bcq.tabular.q_learning import (
    bcql_fixed_point,
    greedy_in_batch,
    q_learning,
    q_learning_fixed_point,
)


@dataclass(frozen=True)
class Statement:
    """A statement of the paper, and the largest violation of it on a random MDP."""

    name: str
    says: str
    violation: Callable[[Generator], float]
    cases: int = 200
    tolerance: float = 1e-9

    def violations(self, seed: int) -> Iterator[float]:
        """How far it is from holding, case by case."""
        for case in range(self.cases):
            yield self.violation(np.random.default_rng([seed, case]))


def random_policy(random: Generator, mdp: FiniteMDP) -> Floats:
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
    """The same MDP from one state, so that what a policy reaches is not everything."""
    states = np.flatnonzero(~mdp.terminal if among is None else among)
    return replace(mdp, start=np.eye(mdp.num_states)[random.choice(states)])


def random_q(random: Generator, mdp: FiniteMDP) -> Floats:
    """Initial values of no particular meaning."""
    return random.normal(size=(mdp.num_states, mdp.num_actions))


def error_with(mdp: FiniteMDP, batch: TabularBatch, policy: Floats, rewards: Floats) -> float:
    """The total extrapolation error under other rewards, with Q0 = 0."""
    changed = replace(mdp, rewards=rewards)
    relabelled = batch_of(changed, batch.states, batch.actions, batch.next_states)
    nothing = np.zeros((mdp.num_states, mdp.num_actions))
    error = extrapolation_error(changed, relabelled, policy, nothing)
    return total_extrapolation_error(changed, policy, error)


def remark_1(random: Generator) -> float:
    """Eq. 8 gives the error of Eq. 7, at every pair."""
    mdp = random_mdp(random, deterministic=bool(random.integers(2)))
    policy, initial_q = random_policy(random, mdp), random_q(random, mdp)
    batch = collect(mdp, random_policy(random, mdp), random, episodes=3, time_limit=8)
    by_definition = extrapolation_error(mdp, batch, policy, initial_q)
    by_recursion = extrapolation_error_by_recursion(mdp, batch, policy, initial_q)
    return float(np.abs(by_definition - by_recursion).max())


def theorem_1(random: Generator) -> float:
    """Sampled Q-learning on a batch goes to the optimum of M_B."""
    mdp = random_mdp(random, num_states=4, num_actions=2, discount=0.7)
    batch = collect(mdp, random_policy(random, mdp), random, episodes=3, time_limit=10)
    initial_q = random_q(random, mdp)
    sampled = q_learning(batch, initial_q, discount=mdp.discount, updates=100_000)
    return float(np.abs(sampled - q_learning_fixed_point(mdp, batch, initial_q)).max())


def lemma_1(random: Generator) -> float:
    """No error where p_B = p_M at all that the policy reaches; some error where it is not."""
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
    return max(exact, *(missed_by_all_rewards(mdp, b, policy, state, action) for b in wrong))


def missed_by_all_rewards(
    mdp: FiniteMDP, batch: TabularBatch, policy: Floats, state: int, action: int
) -> float:
    """1 if none of the rewards 1[(s, a, s')] shows an error, else 0; a single one may cancel."""
    for following in range(mdp.num_states):
        rewards = np.zeros(mdp.rewards.shape)
        rewards[state, action, following] = 1
        if error_with(mdp, batch, policy, rewards) > 1e-9:
            return 0.0
    return 1.0


def theorem_2(random: Generator) -> float:
    """In a deterministic MDP: no error for all rewards exactly if batch-constrained."""
    mdp = random_mdp(random)
    batch = coherent_batch(random, mdp)
    mdp = started_anywhere(random, mdp, np.any(batch.pairs, axis=1))
    constrained = batch_constrained_policy(batch)
    if not is_batch_constrained(mdp, constrained, batch):
        return 1.0  # one must exist
    exact = error_with(mdp, batch, constrained, random.normal(size=mdp.rewards.shape))
    policy = deterministic_policy(random.integers(mdp.num_actions, size=mdp.num_states), 3)
    outside = reachable(mdp, policy)[:, None] & (policy > 0) & ~batch.pairs
    if not outside.any():
        return max(exact, error_with(mdp, batch, policy, random.normal(size=mdp.rewards.shape)))
    state, action = np.argwhere(outside)[0]
    return max(exact, missed_by_all_rewards(mdp, batch, policy, int(state), int(action)))


def theorem_3(random: Generator) -> float:
    """With every pair in the batch, in the right proportions, BCQL goes to Q*."""
    mdp = random_mdp(random, deterministic=bool(random.integers(2)))
    q = bcql_fixed_point(mdp, complete_batch(mdp, 10), random_q(random, mdp))
    return float(np.abs(q - value_iteration(mdp))[~mdp.terminal].max())


def theorem_4(random: Generator) -> float:
    """In a deterministic MDP BCQL finds the best map from states to logged actions."""
    mdp = random_mdp(random, num_states=5)
    batch = coherent_batch(random, mdp)
    pairs = batch.pairs
    q = bcql_fixed_point(mdp, batch, random_q(random, mdp))
    learned = deterministic_policy(greedy_in_batch(q, batch), mdp.num_actions)
    choices = [np.flatnonzero(row) if row.any() else [-1] for row in pairs]
    best = np.max(
        [
            evaluate_policy(mdp, deterministic_policy(np.array(actions), mdp.num_actions))
            for actions in product(*choices)
        ],
        axis=0,
    )
    own = evaluate_policy(mdp, learned)
    return float(np.abs(np.stack([q - best, own - best]))[:, pairs].max())


def against_the_behaviour(random: Generator) -> float:
    """BCQL is worth at least what any logged trajectory earned from there to its end."""
    while True:
        mdp = random_mdp(random)
        trajectory = collect(mdp, random_policy(random, mdp), random, episodes=1, time_limit=40)
        if mdp.terminal[trajectory.next_states[-1]]:
            break
    q = bcql_fixed_point(mdp, trajectory, random_q(random, mdp))
    values = np.where(trajectory.pairs, q, -np.inf).max(axis=1)
    earned = worst = 0.0
    for state, reward in zip(trajectory.states[::-1], trajectory.rewards[::-1], strict=True):
        earned = reward + mdp.discount * earned
        worst = max(worst, earned - values[state])
    return float(worst)


STATEMENTS = (
    Statement("Theorem 1", "Q-learning on a batch solves M_B", theorem_1, 20, 1e-2),
    Statement("Remark 1", "the error satisfies Eq. 8, s_init included", remark_1),
    Statement("Lemma 1", "no error iff p_B = p_M wherever the policy goes", lemma_1),
    Statement("Theorem 2", "deterministic: no error iff batch-constrained", theorem_2),
    Statement("Theorem 3", "BCQL on complete data finds Q*", theorem_3),
    Statement("Theorem 4", "deterministic: BCQL is best of all logged choices", theorem_4),
    Statement("Section 4.1", "BCQL is never worse than a logged trajectory", against_the_behaviour),
)
