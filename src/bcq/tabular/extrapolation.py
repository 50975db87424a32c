"""Extrapolation error in finite MDPs (Section 4.1), and its causes (Section 3)."""

import numpy as np
from numpy.random import Generator

from bcq.tabular.batch import TabularBatch, batch_mdp, batch_of
from bcq.tabular.mdp import Doubles, FiniteMDP, Indices, evaluate_policy, visitation


def with_s_init(policy: Doubles) -> Doubles:
    """The policy on the states of M_B. It takes no action in s_init."""
    return np.concatenate([policy, np.zeros((1, policy.shape[1]))])


def batch_values(
    mdp: FiniteMDP, batch: TabularBatch, policy: Doubles, initial_q: Doubles
) -> Doubles:
    """Q^pi_B, the value of the policy in M_B."""
    q = evaluate_policy(batch_mdp(mdp, batch, initial_q), with_s_init(policy))
    return q[: mdp.num_states]


def extrapolation_error(
    mdp: FiniteMDP, batch: TabularBatch, policy: Doubles, initial_q: Doubles
) -> Doubles:
    """Epsilon_MDP(s, a) = Q^pi(s, a) - Q^pi_B(s, a) (Eq. 7, Definition 2)."""
    return evaluate_policy(mdp, policy) - batch_values(mdp, batch, policy, initial_q)


def extrapolation_error_by_recursion(
    mdp: FiniteMDP, batch: TabularBatch, policy: Doubles, initial_q: Doubles
) -> Doubles:
    """The same from its Bellman-like equation (Eq. 8, 16, Remark 1).

    The sum over s' includes s_init, which M never reaches and an unseen pair always reaches in M_B.
    Without it, the equation fails at unseen pairs. A terminal s' has no policy term.
    """
    learned = batch_mdp(mdp, batch, initial_q)
    states, actions = mdp.num_states, mdp.num_actions
    acting = np.where(mdp.terminal[:, None], 0.0, policy)
    values = np.append((acting * batch_values(mdp, batch, policy, initial_q)).sum(axis=1), 0.0)
    true_p = np.zeros((states, actions, states + 1))
    true_p[:, :, :states] = mdp.transitions
    true_r = learned.rewards[:states].copy()
    true_r[:, :, :states] = mdp.rewards
    difference = (
        true_p * (true_r + mdp.discount * values)
        - learned.transitions[:states] * (learned.rewards[:states] + mdp.discount * values)
    ).sum(axis=2)
    difference[mdp.terminal] = 0.0
    # epsilon = difference + gamma sum_s' p_M(s'|s,a) sum_a' pi(a'|s') epsilon(s',a')
    onward = np.einsum("sat,tb->satb", mdp.transitions, acting).reshape(states * actions, -1)
    onward *= ~np.repeat(mdp.terminal, actions)[:, None]
    system = np.eye(states * actions) - mdp.discount * onward
    return np.linalg.solve(system, difference.ravel()).reshape(states, actions)


def total_extrapolation_error(mdp: FiniteMDP, policy: Doubles, error: Doubles) -> float:
    """Sum_s mu_pi(s) sum_a pi(a|s) |epsilon_MDP(s, a)| (Eq. 9, 14, Definition 3)."""
    return float((visitation(mdp, policy)[:, None] * policy * np.abs(error)).sum())


def uniform_counts_batch(mdp: FiniteMDP, count: int, random: Generator) -> TabularBatch:
    """N(s, a) = count: as many tuples of every pair, with successors drawn from p_M."""
    pairs = np.argwhere(np.broadcast_to(~mdp.terminal[:, None], mdp.transitions.shape[:2]))
    states, actions = np.repeat(pairs, count, axis=0).T
    return batch_of(mdp, states, actions, drawn_successors(mdp, states, actions, random))


def drawn_successors(
    mdp: FiniteMDP, states: Indices, actions: Indices, random: Generator
) -> Indices:
    """A successor of each pair, drawn from p_M(.|s, a)."""
    cumulative = mdp.transitions[states, actions].cumsum(axis=1)
    return (random.random((len(states), 1)) * cumulative[:, -1:] >= cumulative).sum(axis=1)


def error_of_absent_data(
    mdp: FiniteMDP, policy: Doubles, initial_q: Doubles, shares: Doubles, random: Generator
) -> Doubles:
    """Absent data: the total error when only a share of the pairs is in the batch."""
    pairs = np.argwhere(np.broadcast_to(~mdp.terminal[:, None], mdp.transitions.shape[:2]))
    order = random.permutation(len(pairs))
    errors = []
    for share in shares:
        kept = pairs[order[: max(1, round(share * len(pairs)))]]
        states, actions = np.repeat(kept, 1_000, axis=0).T
        batch = batch_of(mdp, states, actions, drawn_successors(mdp, states, actions, random))
        error = extrapolation_error(mdp, batch, policy, initial_q)
        errors.append(total_extrapolation_error(mdp, policy, error))
    return np.array(errors)


def error_of_model_bias(
    mdp: FiniteMDP, policy: Doubles, counts: Indices, random: Generator, *, repeats: int = 20
) -> Doubles:
    """Model bias (Eq. 4): the total error as a function of N(s, a), the same for every pair."""
    nothing = np.zeros((mdp.num_states, mdp.num_actions))
    errors = np.zeros((len(counts), repeats))
    for i, count in enumerate(counts):
        for repeat in range(repeats):
            batch = uniform_counts_batch(mdp, int(count), random)
            error = extrapolation_error(mdp, batch, policy, nothing)
            errors[i, repeat] = total_extrapolation_error(mdp, policy, error)
    return errors.mean(axis=1)


def error_of_training_mismatch(
    mdp: FiniteMDP, policy: Doubles, behaviour: Doubles, features: Doubles, shares: Doubles
) -> Doubles:
    """Training mismatch (Eq. 5): complete, unbiased data, but a model that cannot fit all of it.

    The true Q^pi is fitted by least squares on features (states, actions, size), each pair weighted
    by its frequency in the data. A share of the data comes from the policy, the rest from the
    behaviour. The error is that of the policy.
    """
    target = evaluate_policy(mdp, policy)
    own, other = (visitation(mdp, pi)[:, None] * pi for pi in (policy, behaviour))
    matrix, errors = features.reshape(target.size, -1), []
    for share in shares:
        scale = np.sqrt(share * own + (1 - share) * other).ravel()
        weights = np.linalg.lstsq(matrix * scale[:, None], target.ravel() * scale, rcond=None)[0]
        fitted = (matrix @ weights).reshape(target.shape)
        errors.append(float((own * np.abs(fitted - target)).sum() / own.sum()))
    return np.array(errors)
