"""Section 4.1 and supplement A on random MDPs, with counterexamples to the literal text."""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from numpy.random import Generator

import tabular_oracle as oracle
from bcq.tabular import (
    FiniteMDP,
    TabularBatch,
    batch_constrained_policy,
    batch_mdp,
    bcql,
    bcql_fixed_point,
    coherent_part,
    collect,
    complete_batch,
    deterministic_policy,
    evaluate_policy,
    extrapolation,
    extrapolation_error,
    extrapolation_error_by_recursion,
    greedy,
    greedy_in_batch,
    is_batch_constrained,
    is_coherent,
    q_learning,
    q_learning_fixed_point,
    random_mdp,
    reachable,
    theorems,
    total_extrapolation_error,
    value_iteration,
    visitation,
)
from bcq.tabular.extrapolation import (
    error_of_absent_data,
    error_of_model_bias,
    error_of_training_mismatch,
    uniform_counts_batch,
)
from bcq.tabular.mdp import Doubles, Flags, Indices
from bcq.tabular.q_learning import sampled_updates
from bcq.tabular.theorems import STATEMENTS
from tabular_cases import (
    EXACT,
    SEEDS,
    any_batch,
    any_mdp,
    any_policy,
    any_q,
    batch_of_pairs,
    close,
    coherent_batch,
    joined,
    small_mdp,
    steps,
    with_rewards,
)


def no_values(mdp: FiniteMDP) -> Doubles:
    return np.zeros((mdp.num_states, mdp.num_actions))


def total_error(mdp: FiniteMDP, batch: TabularBatch, policy: Doubles, initial_q: Doubles) -> float:
    error = extrapolation_error(mdp, batch, policy, initial_q)
    return total_extrapolation_error(mdp, policy, error)


def total_errors_for_one_step_rewards(
    mdp: FiniteMDP,
    batch: TabularBatch,
    policy: Doubles,
    initial_q: Doubles,
    state: int,
    action: int,
) -> list[float]:
    """The total error under each of the rewards 1[(s, a, s')], s' in S."""
    errors = []
    for following in range(mdp.num_states):
        rewards = np.zeros(mdp.rewards.shape)
        rewards[state, action, following] = 1.0
        errors.append(total_error(*with_rewards(mdp, batch, rewards), policy, initial_q))
    return errors


def taken(mdp: FiniteMDP, policy: Doubles) -> Flags:
    """Pairs with mu(s) > 0 and pi(a|s) > 0."""
    return reachable(mdp, policy)[:, None] & (policy > 0)


def all_maps(mdp: FiniteMDP) -> Iterator[Doubles]:
    for actions in product(range(mdp.num_actions), repeat=mdp.num_states):
        yield deterministic_policy(np.array(actions), mdp.num_actions)


def maps_into(batch: TabularBatch) -> Iterator[Doubles]:
    """Every map from s in B to {a : (s, a) in B}."""
    choices = [np.flatnonzero(row).tolist() or [-1] for row in batch.pairs]
    for actions in product(*choices):
        yield deterministic_policy(np.array(actions), batch.num_actions)


def values(q: Doubles, policy: Doubles) -> Doubles:
    return (q * policy).sum(axis=1)


def learned_policy(mdp: FiniteMDP, batch: TabularBatch) -> Doubles:
    q = bcql_fixed_point(mdp, batch, no_values(mdp))
    return deterministic_policy(greedy_in_batch(q, batch), mdp.num_actions)


# Theorem 1


@EXACT
@given(SEEDS)
def test_theorem_1_q_learning_ends_at_the_optimum_of_the_batch_mdp(seed: int) -> None:
    random = np.random.default_rng(seed)
    mdp = any_mdp(random)
    batch, initial_q = any_batch(random, mdp), any_q(random, mdp)
    batch = replace(batch, rewards=random.normal(size=len(batch)))
    q = q_learning_fixed_point(mdp, batch, initial_q)
    expected = oracle.q_learning_values(
        oracle.world(mdp), oracle.logged(batch), oracle.by_pair(initial_q)
    )
    going_on = ~mdp.terminal
    close(q[going_on], oracle.as_table(expected, q)[going_on])
    close(q[going_on], value_iteration(batch_mdp(mdp, batch, initial_q))[:-1][going_on])
    unseen = ~batch.pairs
    assert (q[unseen] == initial_q[unseen]).all()


def calm(mdp: FiniteMDP) -> FiniteMDP:
    """The rewards of each pair made equal, between 0 and 1: targets that vary little."""
    rewards = np.broadcast_to(1 / (1 + mdp.rewards[:, :, :1] ** 2), mdp.rewards.shape)
    return replace(mdp, rewards=rewards)


def several(random: Generator, mdp: FiniteMDP) -> TabularBatch:
    return joined(*[any_batch(random, mdp) for _ in range(2)])


@pytest.mark.parametrize("seed", range(4))
def test_theorem_1_sampled_q_learning_gets_there(seed: int) -> None:
    random = np.random.default_rng(seed)
    mdp = random_mdp(random, num_states=5, num_actions=2, discount=0.9)
    batch, initial_q = several(random, mdp), any_q(random, mdp)
    sampled = q_learning(batch, initial_q, discount=0.9, updates=400_000, seed=seed)
    close(sampled, q_learning_fixed_point(mdp, batch, initial_q), within=1e-2)


@pytest.mark.parametrize("seed", range(2))
def test_theorem_1_sampled_q_learning_gets_there_in_a_stochastic_mdp(seed: int) -> None:
    random = np.random.default_rng(seed)
    mdp = calm(random_mdp(random, num_states=3, num_actions=2, discount=0.5, deterministic=False))
    batch, initial_q = several(random, mdp), any_q(random, mdp)
    sampled = q_learning(batch, initial_q, discount=0.5, updates=1_000_000, seed=seed)
    close(sampled, q_learning_fixed_point(mdp, batch, initial_q), within=1e-2)


@pytest.mark.parametrize("learn", [q_learning, bcql])
def test_the_nth_update_of_a_pair_has_step_size_n_to_the_minus_seven_tenths(learn: object) -> None:
    mdp = small_mdp({(0, 0): {0: (1.0, 2.0)}}, states=1, terminal=())
    q = 5.0
    for n in range(1, 51):
        alpha = n**-0.7
        q = (1 - alpha) * q + alpha * (2.0 + 0.5 * q)
    assert callable(learn)
    close(learn(steps(mdp, (0, 0, 0)), np.array([[5.0]]), discount=0.5, updates=50), q)


def test_step_sizes_are_counted_pair_by_pair_and_terminals_do_not_bootstrap() -> None:
    moves = {(s, a): {4: (1.0, float(s - a))} for s in range(4) for a in range(3)}
    mdp = small_mdp(moves, states=5, terminal=(4,))
    batch, initial_q = complete_batch(mdp, 1), np.full((5, 3), 100.0)
    for learn in (q_learning, bcql):
        q = learn(batch, initial_q, discount=0.9, updates=1_000)
        close(q[:4], [[s - a for a in range(3)] for s in range(4)])  # the first step is 1
        assert (q[4] == 100.0).all()


def test_sampling_goes_by_its_seed() -> None:
    random = np.random.default_rng(0)
    mdp = random_mdp(random)
    batch = uniform_counts_batch(mdp, 1, random)
    first, again, other = (
        q_learning(batch, no_values(mdp), discount=0.9, updates=100, seed=seed)
        for seed in (1, 1, 2)
    )
    assert (first == again).all()
    assert not (first == other).all()


def test_without_updates_the_initial_values_remain() -> None:
    random = np.random.default_rng(0)
    mdp = random_mdp(random)
    batch, initial_q = coherent_batch(random, mdp), any_q(random, mdp)
    for learn in (q_learning, bcql):
        assert (learn(batch, initial_q, discount=0.9, updates=0) == initial_q).all()


# Remark 1


@EXACT
@given(SEEDS)
def test_remark_1_the_recursion_gives_the_error_at_every_pair(seed: int) -> None:
    random = np.random.default_rng(seed)
    mdp = any_mdp(random)
    policy, batch, initial_q = any_policy(random, mdp), any_batch(random, mdp), any_q(random, mdp)
    by_definition = extrapolation_error(mdp, batch, policy, initial_q)
    close(by_definition, extrapolation_error_by_recursion(mdp, batch, policy, initial_q))


@EXACT
@given(SEEDS)
def test_remark_1_with_noisy_rewards_too(seed: int) -> None:
    random = np.random.default_rng(seed)
    mdp = any_mdp(random)
    policy, batch, initial_q = any_policy(random, mdp), any_batch(random, mdp), any_q(random, mdp)
    batch = replace(batch, rewards=random.normal(size=len(batch)))
    by_definition = extrapolation_error(mdp, batch, policy, initial_q)
    close(by_definition, extrapolation_error_by_recursion(mdp, batch, policy, initial_q))


@EXACT
@given(SEEDS)
def test_the_error_its_recursion_term_by_term_and_its_total_agree_with_loops(seed: int) -> None:
    random = np.random.default_rng(seed)
    mdp = any_mdp(random, max_states=4)
    policy, batch, initial_q = any_policy(random, mdp), any_batch(random, mdp), any_q(random, mdp)
    world, tuples = oracle.world(mdp), oracle.logged(batch)
    pi, q0 = oracle.by_pair(policy), oracle.by_pair(initial_q)
    expected, believed = oracle.extrapolation_error(world, tuples, pi, q0)
    error = extrapolation_error(mdp, batch, policy, initial_q)
    close(error, oracle.as_table(expected, error))
    close(total_extrapolation_error(mdp, policy, error), oracle.total_error(world, pi, expected))
    learned = oracle.batch_world(world, tuples, q0)
    whole, without = oracle.recursion(world, learned, pi, expected, believed)
    unseen = set(whole) - {(s, a) for s, a, _, _ in tuples}
    for pair, right in whole.items():
        close(right, expected[pair])
        close(without[pair] - right, q0[pair] if pair in unseen else 0.0)


def test_remark_1_without_s_init_fails_at_an_unseen_pair() -> None:
    mdp = small_mdp({(0, 0): {1: (1.0, 1.0)}, (0, 1): {1: (1.0, 2.0)}}, states=2, terminal=(1,))
    batch, policy = steps(mdp, (0, 0, 1)), deterministic_policy(np.array([1, 0]), 2)
    initial_q = np.full((2, 2), 7.0)
    close(extrapolation_error(mdp, batch, policy, initial_q)[0], [0.0, 2.0 - 7.0])
    close(extrapolation_error_by_recursion(mdp, batch, policy, initial_q)[0], [0.0, -5.0])
    world, pi = oracle.world(mdp), oracle.by_pair(policy)
    tuples, q0 = oracle.logged(batch), oracle.by_pair(initial_q)
    expected, believed = oracle.extrapolation_error(world, tuples, pi, q0)
    learned = oracle.batch_world(world, tuples, q0)
    _, without = oracle.recursion(world, learned, pi, expected, believed)
    assert without[0, 1] == 2.0


def test_the_total_error_counts_what_the_policy_visits_and_ignores_signs() -> None:
    moves = {(0, 0): {0: (0.5, 0.0), 1: (0.5, 0.0)}, (0, 1): {1: (1.0, 0.0)}}
    mdp = small_mdp(moves, states=3, terminal=(1,))
    error = np.array([[2.0, -6.0], [50.0, 50.0], [100.0, 100.0]])  # 1 ends, 2 is never reached
    policy = np.full((3, 2), 0.5)
    visits = 0.5 / (1 - 0.5 * 0.25)  # (1 - gamma) sum_t (gamma / 4)^t
    close(total_extrapolation_error(mdp, policy, error), visits * (0.5 * 2 + 0.5 * 6))


# Lemma 1


@EXACT
@given(SEEDS)
def test_lemma_1_equal_dynamics_wherever_the_policy_goes_give_no_error(seed: int) -> None:
    random = np.random.default_rng(seed)
    mdp = any_mdp(random)
    policy = any_policy(random, mdp)
    everything, anything = complete_batch(mdp, 10), any_batch(random, mdp)
    relevant = taken(mdp, policy)
    elsewhere = ~relevant[anything.states, anything.actions]
    batch = everything.rows(relevant[everything.states, everything.actions])
    if elsewhere.any():
        batch = joined(batch, anything.rows(elsewhere))
    mdp, batch = with_rewards(mdp, batch, random.normal(size=mdp.rewards.shape))
    error = extrapolation_error(mdp, batch, policy, any_q(random, mdp))
    close(error[relevant], 0.0)
    close(total_extrapolation_error(mdp, policy, error), 0.0)


@EXACT
@given(SEEDS)
def test_lemma_1_other_dynamics_at_a_reachable_pair_show_under_a_one_step_reward(seed: int) -> None:
    # With Q0 = 0 and D, D_B the discounted numbers of visits to (s, a) from (s, a) on, the error at
    # (s, a) under 1[(s, a, s')] is D p_M(s') - D_B p_B(s'). Over s' its absolute values sum to at
    # least |D - D_B| and to at least D |p_M - p_B| - |D - D_B|: to half of |p_M - p_B|.
    random = np.random.default_rng(seed)
    mdp = any_mdp(random)
    policy, batch = any_policy(random, mdp), any_batch(random, mdp)
    learned = batch_mdp(mdp, batch, no_values(mdp)).transitions[:-1, :, :-1]
    distance = np.abs(mdp.transitions - learned).sum(axis=2)
    different = taken(mdp, policy) & (distance > 1e-9)
    for state, action in np.argwhere(different)[:2].tolist():
        weight = visitation(mdp, policy)[state] * policy[state, action]
        least = weight * distance[state, action] / (2 * mdp.num_states)
        errors = total_errors_for_one_step_rewards(
            mdp, batch, policy, no_values(mdp), state, action
        )
        assert max(errors) >= 0.999 * least > 0


def test_lemma_1_one_fixed_reward_may_cancel() -> None:
    mdp = small_mdp(
        {(0, 0): {1: (0.5, 0.0), 2: (0.25, 0.0), 3: (0.25, 0.0)}}, states=4, terminal=(1, 2, 3)
    )
    batch, policy = steps(mdp, (0, 0, 1), (0, 0, 2)), np.ones((4, 1))
    errors = total_errors_for_one_step_rewards(mdp, batch, policy, no_values(mdp), 0, 0)
    close(errors, [0.0, 0.0, 0.5 * 0.25, 0.5 * 0.25])


def test_lemma_1_initial_values_may_cancel_every_one_step_reward() -> None:
    moves = {(0, 0): {0: (0.5, 0.0), 1: (0.5, 0.0)}, (0, 1): {1: (1.0, 0.0)}}
    mdp = small_mdp(moves, states=2, terminal=(1,))
    batch, policy = steps(mdp, (0, 1, 1)), deterministic_policy(np.array([0, 0]), 2)
    visits = 1 / (1 - 0.5 * 0.5)
    initial_q = np.full((2, 2), visits / 2)
    close(total_errors_for_one_step_rewards(mdp, batch, policy, initial_q, 0, 0), 0.0)
    assert total_error(*with_rewards(mdp, batch, np.ones((2, 2, 2))), policy, initial_q) > 0.1


# Theorem 2


@EXACT
@given(SEEDS)
def test_theorem_2_deterministic_and_batch_constrained_means_no_error(seed: int) -> None:
    random = np.random.default_rng(seed)
    mdp = any_mdp(random, deterministic=True)
    policy = any_policy(random, mdp)
    pairs = taken(mdp, policy) | (random.random(policy.shape) < 0.3)
    batch = batch_of_pairs(mdp, pairs)
    assert is_batch_constrained(mdp, policy, batch)
    mdp, batch = with_rewards(mdp, batch, random.normal(size=mdp.rewards.shape))
    close(total_error(mdp, batch, policy, any_q(random, mdp)), 0.0)


@EXACT
@given(SEEDS)
def test_theorem_2_deterministic_and_not_batch_constrained_means_an_error_for_some_reward(
    seed: int,
) -> None:
    # Q_B(s, a) = Q0 at an unseen pair, whatever the rewards; under 1[(s, a, s')] the truth is at
    # least 1 for one s' and 0 for another, so that Q0 is half a unit off for one of them.
    random = np.random.default_rng(seed)
    mdp = any_mdp(random, deterministic=True)
    policy, batch, initial_q = any_policy(random, mdp), any_batch(random, mdp), any_q(random, mdp)
    outside = np.argwhere(taken(mdp, policy) & ~batch.pairs)
    assert is_batch_constrained(mdp, policy, batch) == (len(outside) == 0)
    for state, action in outside[:1].tolist():
        errors = total_errors_for_one_step_rewards(mdp, batch, policy, initial_q, state, action)
        weight = visitation(mdp, policy)[state] * policy[state, action]
        assert max(errors) >= 0.999 * weight / 2 > 0


@EXACT
@given(SEEDS)
def test_theorem_2_a_coherent_batch_with_the_start_has_a_batch_constrained_policy(
    seed: int,
) -> None:
    random = np.random.default_rng(seed)
    mdp = any_mdp(random, deterministic=True)
    batch = coherent_batch(random, mdp)
    policy = batch_constrained_policy(batch)
    assert is_batch_constrained(mdp, policy, batch)
    close(total_error(mdp, batch, policy, any_q(random, mdp)), 0.0)


def test_theorem_2_counterexample_stochastic_batch_constrained_yet_with_an_error() -> None:
    mdp = small_mdp({(0, 0): {1: (0.5, 1.0), 2: (0.5, 0.0)}}, states=3, terminal=(1, 2))
    batch, policy = steps(mdp, (0, 0, 1)), np.ones((3, 1))
    assert is_coherent(batch)
    assert is_batch_constrained(mdp, policy, batch)
    close(extrapolation_error(mdp, batch, policy, no_values(mdp))[0, 0], 0.5 - 1.0)
    close(total_error(mdp, batch, policy, no_values(mdp)), 0.5 * 0.5)


def test_theorem_2_counterexample_stochastic_coherent_yet_no_batch_constrained_policy() -> None:
    moves = {(0, 0): {1: (0.5, 0.0), 2: (0.5, 0.0)}, (0, 1): {1: (0.5, 0.0), 2: (0.5, 0.0)}}
    mdp = small_mdp(moves, states=3, terminal=(2,))
    batch = steps(mdp, (0, 0, 2))
    assert is_coherent(batch)
    assert batch.pairs[0].any()
    assert not any(is_batch_constrained(mdp, policy, batch) for policy in all_maps(mdp))


def test_theorem_2_counterexample_no_policy_without_the_start_or_without_coherence() -> None:
    moves = {(0, 0): {1: (1.0, 0.0)}, (1, 0): {2: (1.0, 0.0)}}
    mdp = small_mdp(moves, states=3, terminal=(2,))
    for batch, coherent in ((steps(mdp, (1, 0, 2)), True), (steps(mdp, (0, 0, 1)), False)):
        assert is_coherent(batch) == coherent
        assert not any(is_batch_constrained(mdp, policy, batch) for policy in all_maps(mdp))


# Theorem 3


@EXACT
@given(SEEDS)
def test_theorem_3_every_pair_of_a_deterministic_mdp_gives_the_optimum(seed: int) -> None:
    random = np.random.default_rng(seed)
    mdp = any_mdp(random, deterministic=True)
    once = batch_of_pairs(mdp, np.ones((mdp.num_states, mdp.num_actions), bool))
    batch = joined(once, any_batch(random, mdp))  # some more often than others
    q = bcql_fixed_point(mdp, batch, any_q(random, mdp))
    expected = oracle.as_table(oracle.optimal_values(oracle.world(mdp)), q)
    close(q[~mdp.terminal], expected[~mdp.terminal])


@EXACT
@given(SEEDS)
def test_theorem_3_counts_in_proportion_to_the_dynamics_give_the_optimum(seed: int) -> None:
    random = np.random.default_rng(seed)
    mdp = any_mdp(random, deterministic=False)
    q = bcql_fixed_point(mdp, complete_batch(mdp, 10), any_q(random, mdp))
    expected = oracle.as_table(oracle.optimal_values(oracle.world(mdp)), q)
    close(q[~mdp.terminal], expected[~mdp.terminal])


def test_theorem_3_sampled_from_plenty_of_fresh_samples() -> None:
    random = np.random.default_rng(0)
    mdp = calm(random_mdp(random, num_states=3, num_actions=2, discount=0.5, deterministic=False))
    batch = uniform_counts_batch(mdp, 250_000, random)
    q = bcql(batch, any_q(random, mdp), discount=0.5, updates=1_000_000)
    close(q[~mdp.terminal], value_iteration(mdp)[~mdp.terminal], within=1e-2)


def test_theorem_3_counterexample_without_coverage() -> None:
    mdp = small_mdp({(0, 0): {1: (1.0, 1.0)}, (0, 1): {1: (1.0, 2.0)}}, states=2, terminal=(1,))
    batch = steps(mdp, (0, 0, 1))
    q = bcql_fixed_point(mdp, batch, no_values(mdp))
    close(q[0, greedy_in_batch(q, batch)[0]], 1.0)
    close(value_iteration(mdp)[0].max(), 2.0)


# Theorem 4


@EXACT
@given(SEEDS)
def test_bcql_ends_where_sweeps_over_the_tuples_end(seed: int) -> None:
    random = np.random.default_rng(seed)
    mdp = any_mdp(random)
    batch, initial_q = coherent_batch(random, mdp), any_q(random, mdp)
    batch = replace(batch, rewards=random.normal(size=len(batch)))
    q = bcql_fixed_point(mdp, batch, initial_q)
    terminal = oracle.world(mdp).terminal
    expected = oracle.bcql_values(oracle.logged(batch), terminal, mdp.discount)
    close(q[batch.pairs], oracle.as_table(expected, q)[batch.pairs])
    assert (q[~batch.pairs] == initial_q[~batch.pairs]).all()


@EXACT
@given(SEEDS)
def test_theorem_4_bcql_finds_the_best_of_all_maps_into_the_batch(seed: int) -> None:
    random = np.random.default_rng(seed)
    mdp = any_mdp(random, deterministic=True, max_states=6)
    batch = coherent_batch(random, mdp)
    q = bcql_fixed_point(mdp, batch, any_q(random, mdp))
    best = np.max([evaluate_policy(mdp, policy) for policy in maps_into(batch)], axis=0)
    close(q[batch.pairs], best[batch.pairs])
    learned = deterministic_policy(greedy_in_batch(q, batch), mdp.num_actions)
    assert is_batch_constrained(mdp, learned, batch)
    close(evaluate_policy(mdp, learned)[batch.pairs], best[batch.pairs])


@EXACT
@given(SEEDS)
def test_theorem_4_bcql_depends_on_no_initial_values_and_q_learning_is_bcql_at_low_ones(
    seed: int,
) -> None:
    random = np.random.default_rng(seed)
    mdp = any_mdp(random)
    batch = coherent_batch(random, mdp)
    high, low = (np.full((mdp.num_states, mdp.num_actions), value) for value in (1e3, -1e3))
    constrained = bcql_fixed_point(mdp, batch, low)[batch.pairs]
    close(bcql_fixed_point(mdp, batch, high)[batch.pairs], constrained)
    close(q_learning_fixed_point(mdp, batch, low)[batch.pairs], constrained)
    assert (q_learning_fixed_point(mdp, batch, high)[batch.pairs] >= constrained - 1e-10).all()


def test_the_greedy_policy_of_bcql_is_undefined_outside_the_batch() -> None:
    mdp = small_mdp(
        {(0, 0): {2: (1.0, 0.0)}, (0, 1): {2: (1.0, 1.0)}, (1, 0): {2: (1.0, 0.0)}},
        states=3,
        terminal=(2,),
    )
    batch = steps(mdp, (0, 0, 2))
    q = bcql_fixed_point(mdp, batch, np.full((3, 2), 50.0))
    assert greedy_in_batch(q, batch).tolist() == [0, -1, -1]


@pytest.mark.parametrize("seed", range(4))
def test_theorem_4_sampled_bcql_gets_there(seed: int) -> None:
    random = np.random.default_rng(seed)
    mdp = random_mdp(random, num_states=5, num_actions=2, discount=0.9)
    batch, initial_q = coherent_batch(random, mdp), any_q(random, mdp)
    sampled = bcql(batch, initial_q, discount=0.9, updates=400_000, seed=seed)
    close(sampled, bcql_fixed_point(mdp, batch, initial_q), within=1e-2)


def test_theorem_4_sampled_bcql_gets_there_in_a_stochastic_mdp() -> None:
    random = np.random.default_rng(0)
    mdp = calm(random_mdp(random, num_states=3, num_actions=2, discount=0.5, deterministic=False))
    batch, initial_q = coherent_part(several(random, mdp)), any_q(random, mdp)
    sampled = bcql(batch, initial_q, discount=0.5, updates=1_000_000)
    close(sampled, bcql_fixed_point(mdp, batch, initial_q), within=1e-2)


def test_theorem_4_counterexample_stochastic() -> None:
    mdp = small_mdp(
        {(0, 0): {1: (0.1, 1.0), 2: (0.9, -1.0)}, (0, 1): {2: (1.0, 0.0)}},
        states=3,
        terminal=(1, 2),
    )
    batch = steps(mdp, (0, 0, 1), (0, 1, 2))  # one lucky outcome
    assert is_coherent(batch)
    learned = learned_policy(mdp, batch)
    best = max(values(evaluate_policy(mdp, policy), policy)[0] for policy in maps_into(batch))
    close(values(evaluate_policy(mdp, learned), learned)[0], -0.8)
    close(best, 0.0)


def test_theorem_4_counterexample_incoherent() -> None:
    mdp = small_mdp(
        {(0, 0): {1: (1.0, 0.0)}, (0, 1): {2: (1.0, 1.0)}, (1, 0): {2: (1.0, -9.0)}},
        states=3,
        terminal=(2,),
    )
    batch = steps(mdp, (0, 0, 1), (0, 1, 2))
    assert not is_coherent(batch)
    q0 = 5.0  # what Eq. 10 is left with at s_1, where the maximum is over nothing
    q = oracle.bcql_values(oracle.logged(batch), {2}, mdp.discount, dead_end=q0)
    assert max(q, key=lambda pair: q[pair]) == (0, 0)
    away, safe = (deterministic_policy(np.array([a, 0, 0]), 2) for a in (0, 1))
    assert not is_batch_constrained(mdp, away, batch)
    assert is_batch_constrained(mdp, safe, batch)
    close(evaluate_policy(mdp, away)[0], [-4.5, 1.0])
    close(learned_policy(mdp, coherent_part(batch))[0], [0.0, 1.0])


def test_definition_4_counterexample_a_policy_that_leaves_the_batch_where_it_never_goes() -> None:
    moves = {
        (0, 0): {3: (1.0, 0.0)},
        (1, 0): {2: (1.0, 0.0)},
        (2, 0): {3: (1.0, 1.0)},
        (2, 1): {3: (1.0, 10.0)},
    }
    mdp = small_mdp(moves, states=4, terminal=(3,))
    batch = steps(mdp, (0, 0, 3), (1, 0, 2), (2, 0, 3))
    assert is_coherent(batch)
    elsewhere = deterministic_policy(np.array([0, 0, 1, 0]), 2)
    assert is_batch_constrained(mdp, elsewhere, batch)
    close(evaluate_policy(mdp, elsewhere)[1, 0], 0.5 * 10)
    close(bcql_fixed_point(mdp, batch, no_values(mdp))[1, 0], 0.5 * 1)
    constrained_there_too = deterministic_policy(np.array([0, 0, 0, 0]), 2)
    close(evaluate_policy(mdp, constrained_there_too)[1, 0], 0.5 * 1)


# Against the behaviour


def trajectories(random: Generator, mdp: FiniteMDP, behaviour: Doubles) -> list[TabularBatch]:
    return [collect(mdp, behaviour, random, episodes=1, time_limit=8) for _ in range(5)]


@EXACT
@given(SEEDS)
def test_bcql_is_worth_at_least_every_logged_terminated_return_to_go(seed: int) -> None:
    random = np.random.default_rng(seed)
    states = int(random.integers(3, 8))
    mdp = random_mdp(random, num_states=states, discount=float(random.choice([0.3, 0.9, 0.95])))
    logged = trajectories(random, mdp, any_policy(random, mdp))
    ended = [batch for batch in logged if mdp.terminal[batch.next_states[-1]]]
    if not ended:
        return
    batch = coherent_part(joined(*logged))
    q = bcql_fixed_point(mdp, batch, any_q(random, mdp))
    best = np.where(batch.pairs, q, -np.inf).max(axis=1)
    for trajectory in ended:
        earned = 0.0
        for state, _, reward, _ in reversed(oracle.logged(trajectory)):
            earned = reward + mdp.discount * earned
            assert best[state] >= earned - 1e-10


@EXACT
@given(SEEDS)
def test_bcql_is_worth_at_least_the_behaviour_whose_pairs_are_all_logged(seed: int) -> None:
    random = np.random.default_rng(seed)
    mdp = any_mdp(random, deterministic=True)
    mdp = replace(mdp, discount=max(mdp.discount, 0.1))  # else b's later pairs need not be logged
    behaviour = any_policy(random, mdp)
    pairs = taken(mdp, behaviour) | (random.random(behaviour.shape) < 0.3)
    batch = coherent_part(batch_of_pairs(mdp, pairs))
    best = np.where(batch.pairs, bcql_fixed_point(mdp, batch, any_q(random, mdp)), -np.inf)
    reached = reachable(mdp, behaviour)
    earned = values(evaluate_policy(mdp, behaviour), behaviour)
    assert (best.max(axis=1)[reached] >= earned[reached] - 1e-10).all()


def test_counterexample_the_behaviour_has_a_better_action_that_was_never_logged() -> None:
    mdp = small_mdp({(0, 0): {1: (1.0, 0.0)}, (0, 1): {1: (1.0, 10.0)}}, states=2, terminal=(1,))
    behaviour, batch = np.full((2, 2), 0.5), steps(mdp, (0, 0, 1))
    assert is_coherent(batch)
    learned = learned_policy(mdp, batch)
    close(values(evaluate_policy(mdp, learned), learned)[0], 0.0)
    close(values(evaluate_policy(mdp, behaviour), behaviour)[0], 5.0)


def test_counterexample_in_a_stochastic_mdp_a_lucky_logged_return_is_not_matched() -> None:
    mdp = small_mdp({(0, 0): {1: (0.5, 1.0), 2: (0.5, 0.0)}}, states=3, terminal=(1, 2))
    lucky, unlucky = steps(mdp, (0, 0, 1)), steps(mdp, (0, 0, 2))
    q = bcql_fixed_point(mdp, joined(lucky, unlucky), no_values(mdp))
    assert lucky.rewards[0] == 1.0 > q[0, 0] == 0.5


# Each statement fails where what it is about is wrong


def as_begun(batch: TabularBatch, initial_q: Doubles, **_: Any) -> Doubles:
    return initial_q


def far_too_high(batch: TabularBatch, initial_q: Doubles, **_: Any) -> Doubles:
    return np.full(initial_q.shape, 1e3)


def one_too_high(batch: TabularBatch, initial_q: Doubles, **settings: Any) -> Doubles:
    return bcql(batch, initial_q, **settings) + 1  # the policy is the right one


def in_equal_steps(batch: TabularBatch, initial_q: Doubles, **settings: Any) -> Doubles:
    return sampled_updates(batch, initial_q, **settings, omega=0.0)


def without_a_future(
    batch: TabularBatch, initial_q: Doubles, *, discount: float, **settings: Any
) -> Doubles:
    return bcql(batch, initial_q, discount=0.0, **settings)


def true_dynamics(mdp: FiniteMDP, batch: TabularBatch, initial_q: Doubles) -> FiniteMDP:
    """M_B with p_M wherever anything was seen."""
    learned = batch_mdp(mdp, batch, initial_q)
    learned.transitions[:-1, :, :-1][batch.pairs] = mdp.transitions[batch.pairs]
    learned.rewards[:-1, :, :-1] = mdp.rewards
    return learned


def optimum_under_true_dynamics(mdp: FiniteMDP, batch: TabularBatch, initial_q: Doubles) -> Doubles:
    q = value_iteration(true_dynamics(mdp, batch, initial_q))[:-1]
    return np.where(mdp.terminal[:, None], initial_q, q)


def no_error(mdp: FiniteMDP, batch: TabularBatch, policy: Doubles, initial_q: Doubles) -> Doubles:
    return no_values(mdp)


def recursion_without_s_init(
    mdp: FiniteMDP, batch: TabularBatch, policy: Doubles, initial_q: Doubles
) -> Doubles:
    error = extrapolation_error_by_recursion(mdp, batch, policy, initial_q)
    return error + np.where(batch.pairs, 0.0, initial_q)


def error_wherever_it_is(mdp: FiniteMDP, policy: Doubles, error: Doubles) -> float:
    return float((policy * np.abs(error)).sum())


def reached_or_not(mdp: FiniteMDP, policy: Doubles) -> Flags:
    return ~mdp.terminal


def constrained_everywhere(mdp: FiniteMDP, policy: Doubles, batch: TabularBatch) -> bool:
    return not ((policy > 0) & ~batch.pairs)[~mdp.terminal].any()


def first_action(batch: TabularBatch) -> Doubles:
    return deterministic_policy(np.zeros(batch.num_states, int), batch.num_actions)


def best_of_all_actions(q: Doubles, batch: TabularBatch) -> Indices:
    return greedy(q)


def worst_in_batch(q: Doubles, batch: TabularBatch) -> Indices:
    return greedy(-q, batch.pairs)


WRONG: list[tuple[str, ModuleType, str, Callable[..., Any]]] = [
    ("Theorem 1", theorems, "q_learning", as_begun),
    ("Theorem 1", theorems, "q_learning", in_equal_steps),
    ("Theorem 1", theorems, "q_learning_fixed_point", optimum_under_true_dynamics),
    ("Remark 1", theorems, "extrapolation_error", no_error),
    ("Remark 1", theorems, "extrapolation_error_by_recursion", recursion_without_s_init),
    ("Remark 1", extrapolation, "batch_mdp", true_dynamics),
    ("Lemma 1", theorems, "extrapolation_error", no_error),
    ("Lemma 1", theorems, "total_extrapolation_error", error_wherever_it_is),
    ("Lemma 1", theorems, "reachable", reached_or_not),
    ("Lemma 1", extrapolation, "batch_mdp", true_dynamics),
    ("Theorem 2", theorems, "extrapolation_error", no_error),
    ("Theorem 2", theorems, "is_batch_constrained", lambda *_: True),
    ("Theorem 2", theorems, "is_batch_constrained", constrained_everywhere),
    ("Theorem 2", theorems, "batch_constrained_policy", first_action),
    ("Theorem 3", theorems, "bcql", as_begun),
    ("Theorem 3", theorems, "bcql", in_equal_steps),
    ("Theorem 3", theorems, "bcql", without_a_future),
    ("Theorem 4", theorems, "bcql", as_begun),
    ("Theorem 4", theorems, "bcql", q_learning),
    ("Theorem 4", theorems, "bcql", one_too_high),
    ("Theorem 4", theorems, "greedy_in_batch", best_of_all_actions),
    ("Theorem 4", theorems, "greedy_in_batch", worst_in_batch),
    ("Section 4.1", theorems, "bcql", far_too_high),
    ("Section 4.1", theorems, "bcql", q_learning),
    ("Section 4.1", theorems, "greedy_in_batch", best_of_all_actions),
    ("Section 4.1", theorems, "greedy_in_batch", worst_in_batch),
]


@pytest.mark.parametrize(("name", "module", "attribute", "wrong"), WRONG)
def test_a_statement_fails_where_what_it_is_about_is_wrong(
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    module: ModuleType,
    attribute: str,
    wrong: Callable[..., Any],
) -> None:
    statement = next(one for one in STATEMENTS if one.name == name)
    monkeypatch.setattr(module, attribute, wrong)
    assert any(not violation <= statement.tolerance for violation in statement.violations(seed=0))


def test_every_statement_is_among_those_that_fail() -> None:
    assert {name for name, _, _, _ in WRONG} == {statement.name for statement in STATEMENTS}


class Trial(NamedTuple):
    """What a statement was tried on."""

    mdp: FiniteMDP
    batch: TabularBatch
    drawn: dict[str, int]  # how many episodes, of at most how many steps
    learnt: dict[str, Any]  # how the learner was called, if there was one


def trials_of(name: str, monkeypatch: pytest.MonkeyPatch, cases: int = 12) -> list[Trial]:
    """What a statement is tried on, without the time that learning takes."""
    trials: list[Trial] = []

    def collecting(mdp: FiniteMDP, *args: Any, **drawn: Any) -> TabularBatch:
        trials.append(Trial(mdp, collect(mdp, *args, **drawn), drawn, {}))
        return trials[-1].batch

    def completing(mdp: FiniteMDP, copies: int) -> TabularBatch:
        trials.append(Trial(mdp, complete_batch(mdp, copies), {}, {}))
        return trials[-1].batch

    def learning(batch: TabularBatch, initial_q: Doubles, **settings: Any) -> Doubles:
        trials[-1] = trials[-1]._replace(batch=batch, learnt={"initial_q": initial_q, **settings})
        return initial_q

    monkeypatch.setattr(theorems, "collect", collecting)
    monkeypatch.setattr(theorems, "complete_batch", completing)
    monkeypatch.setattr(theorems, "bcql", learning)
    monkeypatch.setattr(theorems, "q_learning", learning)
    statement = next(one for one in STATEMENTS if one.name == name)
    list(replace(statement, cases=cases).violations(seed=0))
    assert len(trials) >= cases
    return trials


def test_statements_are_tried_on_as_many_mdps_and_as_exactly_as_their_cost_allows() -> None:
    assert {one.name: (one.cases, one.tolerance) for one in STATEMENTS} == {
        "Theorem 1": (20, 1e-2),
        "Remark 1": (200, 1e-9),
        "Lemma 1": (200, 1e-9),
        "Theorem 2": (200, 1e-9),
        "Theorem 3": (20, 1e-2),
        "Theorem 4": (100, 1e-9),
        "Section 4.1": (200, 1e-9),
    }


@pytest.mark.parametrize(
    ("name", "shape", "discounts", "episodes", "time_limit", "per_tuple"),
    [
        ("Theorem 1", (4, 2, 4), {True: 0.7, False: 0.2}, 3, 10, 20_000),
        ("Remark 1", (6, 3, 6), {True: 0.9, False: 0.9}, 3, 8, None),
        ("Theorem 2", (6, 3, 6), {True: 0.9}, 3, 10, None),
        ("Theorem 4", (5, 3, 5), {True: 0.3}, 3, 10, 3_000),
        ("Section 4.1", (6, 3, 6), {True: 0.5}, 1, 40, 2_000),
    ],
)
def test_what_a_statement_is_tried_on(
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    shape: tuple[int, ...],
    discounts: dict[bool, float],
    episodes: int,
    time_limit: int,
    per_tuple: int | None,
) -> None:
    trials = trials_of(name, monkeypatch)
    assert {trial.mdp.is_deterministic for trial in trials} == set(discounts)
    for mdp, batch, drawn, learnt in trials:
        assert mdp.transitions.shape == shape
        assert mdp.discount == discounts[mdp.is_deterministic]
        assert drawn == {"episodes": episodes, "time_limit": time_limit}
        if learnt:
            assert learnt["updates"] == (per_tuple or 0) * len(batch)
            assert learnt["discount"] == mdp.discount
            assert np.ptp(learnt["initial_q"]) > 0
    assert any(trial.learnt for trial in trials) == (per_tuple is not None)


def test_theorem_3_is_tried_on_ten_tuples_of_each_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    trials = trials_of("Theorem 3", monkeypatch)
    for mdp, batch, _, learnt in trials:
        assert mdp.transitions.shape == (4, 2, 4)
        assert (batch.counts.sum(axis=2)[~mdp.terminal] == 10).all()
        assert learnt["updates"] == 40_000 * (2 * 3)  # pairs
    assert {trial.mdp.discount for trial in trials} == {0.2, 0.7}


@pytest.mark.parametrize("name", ["Theorem 1", "Theorem 3"])
def test_sampling_has_another_seed_for_each_mdp_and_little_noise(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    trials = trials_of(name, monkeypatch)
    seeds = [trial.learnt["seed"] for trial in trials]
    assert len(set(seeds)) == len(seeds)
    assert 2**30 < max(seeds) < 2**31
    for mdp, _, _, learnt in trials:
        if not mdp.is_deterministic:
            assert (np.ptp(mdp.rewards, axis=2) == 0).all()  # they depend only on the pair
            assert np.ptp(mdp.rewards[~mdp.terminal]) > 0
            assert mdp.rewards.min() >= 0
            assert mdp.rewards.max() <= 1
        if name == "Theorem 1":
            assert learnt["initial_q"].min() >= 0
            assert learnt["initial_q"].max() <= 1


def test_about_half_of_the_mdps_to_sample_from_are_stochastic() -> None:
    mdps = [theorems.sampled_mdp(np.random.default_rng([0, case])) for case in range(300)]
    assert 120 < sum(mdp.is_deterministic for mdp in mdps) < 180


def test_section_4_1_is_about_episodes_that_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    for mdp, batch, _, learnt in trials_of("Section 4.1", monkeypatch):
        assert bool(learnt) == bool(mdp.terminal[batch.next_states[-1]])


def test_the_largest_difference_is_absolute_over_all_and_nan_if_one_is() -> None:
    assert theorems.largest(np.array([[1.0, -4.0], [2.0, 3.0]]), 0.5) == 4.0
    assert theorems.largest(-5.0, np.array([1.0])) == 5.0
    assert theorems.largest(0.5, np.array([0.25])) == 0.5
    assert np.isnan(theorems.largest(np.array([1.0, np.nan]), 2.0))


def test_an_error_is_missed_only_if_no_one_step_reward_shows_it() -> None:
    mdp = small_mdp({(0, 0): {1: (0.5, 0.0), 2: (0.5, 0.0)}}, states=3, terminal=(1, 2))
    always, both = np.ones((3, 1)), steps(mdp, (0, 0, 1), (0, 0, 2))
    assert theorems.missed_by_all_rewards(mdp, both, always, 0, 0) == 1.0
    biased = steps(mdp, (0, 0, 1), (0, 0, 1), (0, 0, 2))
    assert theorems.missed_by_all_rewards(mdp, biased, always, 0, 0) == 0.0


def test_the_best_value_is_found_among_the_allowed_maps_alone() -> None:
    moves = {(0, 0): {1: (1.0, 1.0)}, (0, 1): {1: (1.0, 3.0)}, (1, 1): {2: (1.0, 4.0)}}
    mdp = small_mdp(moves, states=3, terminal=(2,))
    some = np.array([[True, False], [False, True], [False, False]])
    close(theorems.best_value(mdp, some), [[3.0, 5.0], [2.0, 4.0], [0.0, 0.0]])
    none = np.zeros((3, 2), bool)  # what no policy reaches is worth nothing
    close(theorems.best_value(mdp, none), [[1.0, 3.0], [0.0, 4.0], [0.0, 0.0]])


# Section 3's causes


def test_absent_data_makes_an_error_that_the_whole_data_of_a_deterministic_mdp_does_not() -> None:
    random = np.random.default_rng(0)
    mdp = random_mdp(random)
    policy, initial_q = any_policy(random, mdp), any_q(random, mdp)
    few, all_pairs = error_of_absent_data(mdp, policy, initial_q, np.array([0.2, 1.0]), random)
    assert few > 0.1
    close(all_pairs, 0.0)


def test_model_bias_falls_with_the_root_of_the_count_and_needs_a_stochastic_mdp() -> None:
    random = np.random.default_rng(0)
    counts = np.array([10, 1000])
    mdp = random_mdp(random, deterministic=False)
    policy = any_policy(random, mdp)
    few, many = error_of_model_bias(mdp, policy, counts, random)
    assert 5 < few / many < 20  # ten times
    mdp = random_mdp(random)
    close(error_of_model_bias(mdp, policy, np.array([1]), random), 0.0)


def test_training_mismatch_needs_a_model_that_cannot_fit_all() -> None:
    random = np.random.default_rng(0)
    mdp = random_mdp(random, deterministic=False)
    policy, behaviour = any_policy(random, mdp), any_policy(random, mdp)
    shares = np.array([0.0, 1.0])
    rough = random.normal(size=(6, 3, 4))
    mismatched, matched = error_of_training_mismatch(mdp, policy, behaviour, rough, shares)
    assert mismatched > matched > 0
    exact = np.eye(18).reshape(6, 3, 18)
    shares = np.array([0.5, 1.0])
    close(error_of_training_mismatch(mdp, policy, behaviour, exact, shares), 0.0)


def test_absent_data_by_hand() -> None:
    moves = {(0, 0): {1: (1.0, 1.0)}, (0, 1): {1: (1.0, 1.0)}}
    mdp = small_mdp(moves, states=2, terminal=(1,))
    either, random = np.full((2, 2), 0.5), np.random.default_rng(0)
    shares = np.array([0.01, 0.5, 1.0])  # one pair, one pair, both
    # A pair that is absent is believed to earn nothing; the start has half of the visits.
    found = error_of_absent_data(mdp, either, no_values(mdp), shares, random)
    close(found, [0.5 * 0.5, 0.5 * 0.5, 0.0])
    found = error_of_absent_data(mdp, either, no_values(mdp) + 0.2, shares, random)
    close(found, [0.5 * 0.5 * 0.8, 0.5 * 0.5 * 0.8, 0.0])


def test_model_bias_by_hand() -> None:
    mdp = small_mdp({(0, 0): {1: (0.5, 0.0), 2: (0.5, 1.0)}}, states=3, terminal=(1, 2))
    found = error_of_model_bias(mdp, np.ones((3, 1)), np.array([1]), np.random.default_rng(0))
    close(found, [0.5 * 0.5])  # one tuple says 0 or 1, the truth is 0.5


def test_training_mismatch_by_hand() -> None:
    moves = {(0, 0): {1: (1.0, 1.0)}, (0, 1): {1: (1.0, 3.0)}}
    mdp = small_mdp(moves, states=2, terminal=(1,))
    policy, behaviour = np.tile([0.75, 0.25], (2, 1)), np.tile([0.25, 0.75], (2, 1))
    constant = np.ones((2, 2, 1))  # the model knows only one number: the mean of the data
    shares = np.array([0.0, 0.5, 1.0])
    found = error_of_training_mismatch(mdp, policy, behaviour, constant, shares)
    means = np.array([0.25 * 1 + 0.75 * 3, 2.0, 0.75 * 1 + 0.25 * 3])
    close(found, 0.75 * np.abs(means - 1) + 0.25 * np.abs(means - 3))


# Speed


def test_a_million_bcql_updates_on_100_states_take_less_than_three_seconds() -> None:
    random = np.random.default_rng(0)
    mdp = random_mdp(random, num_states=100, num_actions=4, deterministic=False)
    batch = uniform_counts_batch(mdp, 5, random)
    before = time.process_time()
    bcql(batch, no_values(mdp), discount=0.9, updates=1_000_000)
    assert time.process_time() - before < 3
