"""Tabular batches: what is in them, coherence, batch-constrained policies, the batch MDP."""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given

import tabular_oracle as oracle
from bcq.system.errors import InputError
from bcq.tabular import (
    TabularBatch,
    batch_constrained_policy,
    batch_mdp,
    batch_of,
    bcql,
    bcql_fixed_point,
    coherent_part,
    collect,
    complete_batch,
    deterministic_policy,
    grid_world,
    is_batch_constrained,
    is_coherent,
    offending_tuples,
    q_learning,
    q_learning_fixed_point,
    random_mdp,
    reachable,
    toy_mdp,
    value_iteration,
)
from bcq.tabular.extrapolation import uniform_counts_batch
from bcq.tabular.mdp import Doubles
from tabular_cases import (
    EXACT,
    SEEDS,
    any_batch,
    any_mdp,
    any_policy,
    any_q,
    close,
    coherent_batch,
    joined,
    small_mdp,
    steps,
)

# A line of states 0 to 5 whose last is terminal; a_0 goes on, a_1 stays.
LINE = small_mdp(
    {(s, 0): {s + 1: (1.0, 1.0)} for s in range(5)} | {(0, 1): {0: (1.0, 0.0)}},
    states=6,
    terminal=(5,),
)


# What is in a batch


@EXACT
@given(SEEDS)
def test_counts_and_pairs_are_those_of_the_tuples(seed: int) -> None:
    random = np.random.default_rng(seed)
    mdp = any_mdp(random)
    batch = any_batch(random, mdp)
    steps_taken = [(s, a, s2) for s, a, _, s2 in oracle.logged(batch)]
    shape = mdp.transitions.shape
    for step in np.ndindex(shape):
        assert batch.counts[step] == sum(taken == step for taken in steps_taken)
    for pair in np.ndindex(shape[:2]):
        assert batch.pairs[pair] == any(taken[:2] == pair for taken in steps_taken)
    assert len(batch) == batch.counts.sum()


@EXACT
@given(SEEDS)
def test_collected_steps_follow_the_mdp_the_policy_and_one_another(seed: int) -> None:
    random = np.random.default_rng(seed)
    mdp = any_mdp(random)
    mdp = replace(mdp, start=np.eye(mdp.num_states)[np.argmin(mdp.terminal)])
    policy = any_policy(random, mdp)
    batch = collect(mdp, policy, random, episodes=1, time_limit=6)
    tuples = oracle.logged(batch)
    assert mdp.start[tuples[0][0]] > 0
    for s, a, r, s2 in tuples:
        assert policy[s, a] > 0
        assert mdp.transitions[s, a, s2] > 0
        assert r == mdp.rewards[s, a, s2]
    for before, after in pairwise(tuples):
        assert before[3] == after[0]
    assert mdp.terminal[tuples[-1][3]] or len(tuples) == 6


def test_every_episode_is_collected_to_its_end_or_to_the_time_limit() -> None:
    onward = deterministic_policy(np.zeros(6, np.int64), 2)
    random = np.random.default_rng(0)
    whole = collect(LINE, onward, random, episodes=2, time_limit=100)
    assert whole.states.tolist() == [0, 1, 2, 3, 4] * 2
    cut = collect(LINE, onward, random, episodes=2, time_limit=3)
    assert cut.states.tolist() == [0, 1, 2] * 2


def test_collected_actions_and_successors_are_as_frequent_as_they_should_be() -> None:
    moves = {(0, 0): {1: (0.25, 0.0), 2: (0.75, 0.0)}, (0, 1): {2: (1.0, 0.0)}}
    mdp = small_mdp(moves, states=3, terminal=(1, 2))
    policy = np.array([[0.4, 0.6], [0.5, 0.5], [0.5, 0.5]])
    batch = collect(mdp, policy, np.random.default_rng(0), episodes=5_000, time_limit=1)
    close(batch.counts[0] / 5_000, [[0.0, 0.1, 0.3], [0.0, 0.0, 0.6]], within=0.03)


def test_collecting_where_the_policy_is_undefined_is_refused() -> None:
    policy = deterministic_policy(np.array([0, 0, -1, 0, 0, 0]), 2)
    with pytest.raises(InputError, match="undefined at state 2"):
        collect(LINE, policy, np.random.default_rng(0), episodes=1, time_limit=10)
    collect(LINE, policy, np.random.default_rng(0), episodes=1, time_limit=2)


@EXACT
@given(SEEDS)
def test_a_complete_batch_has_every_pair_in_exact_proportion(seed: int) -> None:
    mdp = any_mdp(np.random.default_rng(seed))
    batch = complete_batch(mdp, 10)
    going_on = ~mdp.terminal
    close(batch.counts[going_on], 10 * mdp.transitions[going_on])
    assert not batch.counts[mdp.terminal].any()


def test_a_complete_batch_does_not_stumble_over_rounding() -> None:
    assert 0.29 * 100 < 29
    mdp = small_mdp({(0, 0): {1: (0.29, 0.0), 2: (0.71, 0.0)}}, states=3, terminal=(1, 2))
    assert complete_batch(mdp, 100).counts[0, 0].tolist() == [0, 29, 71]


def test_collecting_with_what_is_no_policy_is_refused() -> None:
    with pytest.raises(InputError, match="policy: is not a distribution at state 0"):
        collect(LINE, np.full((6, 2), 0.6), np.random.default_rng(0), episodes=1, time_limit=1)


def test_a_complete_batch_that_cannot_match_the_probabilities_is_refused() -> None:
    mdp = small_mdp({(0, 0): {0: (0.5, 0.0), 1: (0.5, 0.0)}}, states=2, terminal=(1,))
    assert len(complete_batch(mdp, 4)) == 4
    for copies in (1, 3):
        with pytest.raises(InputError, match=f"copies: {copies} tuples"):
            complete_batch(mdp, copies)


def test_drawn_batches_have_each_pair_equally_often_and_only_possible_successors() -> None:
    random = np.random.default_rng(0)
    mdp = random_mdp(random, deterministic=False)
    counts = uniform_counts_batch(mdp, 4_000, random).counts
    assert (counts.sum(axis=2)[:-1] == 4_000).all()
    assert not counts[-1].any()
    assert not counts[mdp.transitions == 0].any()
    close(counts[:-1] / 4_000, mdp.transitions[:-1], within=0.04)


# Coherence (Definition 1)


@EXACT
@given(SEEDS)
def test_offending_tuples_are_those_after_which_nothing_is_logged(seed: int) -> None:
    random = np.random.default_rng(seed)
    mdp = any_mdp(random)
    batch = any_batch(random, mdp)
    expected = oracle.dead_ends(oracle.logged(batch), oracle.world(mdp).terminal)
    assert offending_tuples(batch).tolist() == expected
    assert is_coherent(batch) == (not expected)


@EXACT
@given(SEEDS)
def test_the_coherent_part_is_what_remains_after_removing_one_dead_end_at_a_time(seed: int) -> None:
    random = np.random.default_rng(seed)
    mdp = any_mdp(random)
    batch = any_batch(random, mdp)
    tuples = oracle.logged(batch)
    kept = [tuples[i] for i in oracle.coherent_rows(tuples, oracle.world(mdp).terminal)]
    if kept:
        part = coherent_part(batch)
        assert oracle.logged(part) == kept
        assert is_coherent(part)
    else:
        with pytest.raises(InputError, match="no coherent part"):
            coherent_part(batch)


def test_s_in_b_means_that_a_tuple_begins_there_else_every_batch_would_be_coherent() -> None:
    batch = steps(LINE, (0, 0, 1))
    contained = {0, 1}  # by some tuple, as s or as s': the paper's shorthand
    assert set(batch.next_states.tolist()) <= contained
    assert not is_coherent(batch)


@pytest.mark.parametrize(
    ("count", "named"),
    [
        (1, "(0, 0, 1);"),
        (3, "(0, 0, 1), (0, 0, 1), (0, 0, 1);"),
        (4, "(0, 0, 1), (0, 0, 1), (0, 0, 1) and 1 more;"),
        (6, "(0, 0, 1), (0, 0, 1), (0, 0, 1) and 3 more;"),
    ],
)
def test_the_first_three_dead_ends_are_named(count: int, named: str) -> None:
    batch = steps(LINE, *[(0, 0, 1)] * count)
    with pytest.raises(InputError) as caught:
        bcql_fixed_point(LINE, batch, np.zeros((6, 2)))
    assert f"no tuple starts at the s' of (s, a, s') {named}" in str(caught.value)


def test_a_trajectory_cut_by_a_time_limit_is_not_coherent() -> None:
    onward = deterministic_policy(np.zeros(6, np.int64), 2)
    cut = collect(LINE, onward, np.random.default_rng(0), episodes=1, time_limit=3)
    assert offending_tuples(cut).tolist() == [2]
    whole = collect(LINE, onward, np.random.default_rng(0), episodes=1, time_limit=5)
    assert is_coherent(whole)


def test_a_trajectory_cut_where_it_has_been_before_is_coherent() -> None:
    stay = deterministic_policy(np.ones(6, np.int64), 2)
    assert is_coherent(collect(LINE, stay, np.random.default_rng(0), episodes=1, time_limit=1))


def test_another_episode_can_make_a_cut_one_coherent() -> None:
    cut = steps(LINE, (0, 0, 1), (1, 0, 2))
    rest = steps(LINE, (2, 0, 3), (3, 0, 4), (4, 0, 5))
    assert not is_coherent(cut)
    assert is_coherent(joined(cut, rest))


def test_removing_a_dead_end_makes_dead_ends_of_what_led_to_it() -> None:
    batch = steps(LINE, (0, 1, 0), (0, 0, 1), (1, 0, 2), (2, 0, 3), (3, 0, 4))
    assert offending_tuples(batch).tolist() == [4]
    assert oracle.logged(coherent_part(batch)) == [(0, 1, 0.0, 0)]


def test_a_dead_end_leaves_other_ways_on_from_the_same_state() -> None:
    moves = {(0, 0): {1: (1.0, 0.0)}, (0, 1): {2: (1.0, 0.0)}}
    mdp = small_mdp(moves, states=3, terminal=(2,))
    part = coherent_part(steps(mdp, (0, 0, 1), (0, 1, 2)))
    assert part.pairs.tolist() == [[False, True], [False, False], [False, False]]


@pytest.mark.parametrize(("length", "named"), [(1, "(0, 0, 1);"), (5, "and 2 more;")])
def test_bcql_refuses_dead_ends_names_them_and_tells_the_way_out(length: int, named: str) -> None:
    batch = steps(LINE, *[(0, 0, 1)] * length)
    nothing = np.zeros((6, 2))
    learners: tuple[Callable[[], object], ...] = (
        lambda: bcql(batch, nothing, discount=0.5, updates=1),
        lambda: bcql_fixed_point(LINE, batch, nothing),
        lambda: batch_constrained_policy(batch),
    )
    for learn in learners:
        with pytest.raises(InputError, match="coherent_part") as caught:
            learn()
        assert "(0, 0, 1)" in str(caught.value)
        assert named in str(caught.value)


# Batch-constrained policies


@EXACT
@given(SEEDS)
def test_batch_constrained_is_judged_where_the_policy_can_get_to(seed: int) -> None:
    random = np.random.default_rng(seed)
    mdp = any_mdp(random)
    policy, batch = any_policy(random, mdp), any_batch(random, mdp)
    if random.random() < 0.7:  # else it is almost never constrained
        batch = joined(batch, *[any_batch(random, mdp) for _ in range(4)])
    policy[random.random(mdp.num_states) < 0.1] = 0.0
    expected = oracle.is_batch_constrained(
        oracle.world(mdp), oracle.by_pair(policy), oracle.logged(batch)
    )
    assert is_batch_constrained(mdp, policy, batch) == expected


@EXACT
@given(SEEDS)
def test_the_policy_from_a_coherent_batch_takes_one_logged_action_wherever_one_is(
    seed: int,
) -> None:
    random = np.random.default_rng(seed)
    batch = coherent_batch(random, any_mdp(random))
    policy = batch_constrained_policy(batch)
    assert (policy.sum(axis=1) == batch.pairs.any(axis=1)).all()
    assert not (policy > 0)[~batch.pairs].any()


def test_a_policy_may_leave_the_batch_where_it_never_goes() -> None:
    batch = steps(LINE, (0, 1, 0))
    stays_then_anything = deterministic_policy(np.array([1, 1, 1, 1, 1, 1]), 2)
    assert is_batch_constrained(LINE, stays_then_anything, batch)
    from_further_on = replace(LINE, start=np.eye(6)[1])
    assert not is_batch_constrained(from_further_on, stays_then_anything, batch)


def test_a_policy_that_may_take_an_unlogged_action_is_not_batch_constrained() -> None:
    batch = steps(LINE, (0, 1, 0))
    mostly_stays = np.array([[0.01, 0.99]] * 6)
    assert not is_batch_constrained(LINE, mostly_stays, batch)


def test_a_policy_that_is_undefined_where_it_gets_to_is_not_batch_constrained() -> None:
    batch = steps(LINE, (0, 0, 1))
    stops = deterministic_policy(np.array([0, -1, -1, -1, -1, -1]), 2)
    assert not is_batch_constrained(LINE, stops, batch)


def test_terminal_states_need_no_action() -> None:
    batch = steps(LINE, *[(s, 0, s + 1) for s in range(5)])
    assert is_batch_constrained(LINE, batch_constrained_policy(batch), batch)
    assert not reachable(LINE, batch_constrained_policy(batch))[5]


# The batch MDP


@EXACT
@given(SEEDS)
def test_the_batch_mdp_is_that_of_the_counts(seed: int) -> None:
    random = np.random.default_rng(seed)
    mdp = any_mdp(random)
    batch, initial_q = any_batch(random, mdp), any_q(random, mdp)
    batch = replace(batch, rewards=random.normal(size=len(batch)))  # several for one (s, a, s')
    learned = batch_mdp(mdp, batch, initial_q)
    expected = oracle.batch_world(
        oracle.world(mdp), oracle.logged(batch), oracle.by_pair(initial_q)
    )
    index = {state: i for i, state in enumerate(expected.states)}
    for (s, a), row in expected.p.items():
        assert np.count_nonzero(learned.transitions[index[s], a]) == len(row)
        for s2, chance in row.items():
            close(learned.transitions[index[s], a, index[s2]], chance)
            close(learned.rewards[index[s], a, index[s2]], expected.r[s, a, s2])
    assert set(np.flatnonzero(learned.terminal).tolist()) == {index[s] for s in expected.terminal}
    assert learned.discount == mdp.discount
    close(learned.start, [*mdp.start, 0.0])


def test_an_unseen_pair_earns_its_initial_value_once_and_ends() -> None:
    batch = steps(LINE, (0, 0, 1))
    initial_q = np.arange(12.0).reshape(6, 2)
    learned = batch_mdp(LINE, batch, initial_q)
    q = value_iteration(learned)
    close(q[0], [1.0 + 0.5 * 3.0, 1.0])
    close(q[1:5], initial_q[1:5])
    close(q[5:], 0.0)
    assert np.flatnonzero(learned.terminal).tolist() == [5, 6]


def test_several_rewards_for_one_step_are_averaged() -> None:
    batch = replace(steps(LINE, *[(4, 0, 5)] * 3), rewards=np.array([1.0, 2.0, 6.0]))
    close(batch_mdp(LINE, batch, np.zeros((6, 2))).rewards[4, 0, 5], 3.0)


# What is refused


def two_tuples(**changes: object) -> TabularBatch:
    columns: dict[str, object] = {
        "states": np.array([0, 1]),
        "actions": np.array([1, 0]),
        "rewards": np.array([1.0, 0.0]),
        "next_states": np.array([1, 0]),
        "num_actions": 2,
        "terminal": np.zeros(2, bool),
    }
    return TabularBatch(**(columns | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "values", "complaint"),
    [
        ("states", [0, 2], "states, tuple 1: 2 is not in 0..1"),
        ("states", [-1, 1], "states, tuple 0: -1 is not in 0..1"),
        ("actions", [2, 0], "actions, tuple 0: 2 is not in 0..1"),
        ("actions", [1, -1], "actions, tuple 1: -1 is not in 0..1"),
        ("next_states", [1, 2], "next_states, tuple 1: 2 is not in 0..1"),
        ("next_states", [-2, 0], "next_states, tuple 0: -2 is not in 0..1"),
        ("rewards", [0.0, np.nan], "rewards, tuple 1: nan is not finite"),
        ("rewards", [np.inf, 0.0], "rewards, tuple 0: inf is not finite"),
        ("terminal", [False, True], "states, tuple 1: 1 is terminal"),
        ("states", [0.0, 1.0], "states: contains float64, not integers"),
        ("actions", [True, False], "actions: contains bool, not integers"),
        ("next_states", [1.0, 0.0], "next_states: contains float64, not integers"),
        ("states", [0], "rewards: has shape (2,), not (1,)"),
        ("actions", [0], "actions: has shape (1,), not (2,)"),
        ("next_states", [[1], [0]], "next_states: has shape (2, 1), not (2,)"),
        ("rewards", [0.0, 0.0, 0.0], "rewards: has shape (3,), not (2,)"),
    ],
)
def test_tuples_that_fit_no_mdp_are_refused(name: str, values: list[float], complaint: str) -> None:
    with pytest.raises(InputError) as caught:
        two_tuples(**{name: np.array(values)})
    assert str(caught.value).startswith(complaint)


def test_tuples_of_an_mdp_are_checked_before_its_rewards_are_looked_up() -> None:
    with pytest.raises(InputError, match="states, tuple 1: 7 is not in"):
        steps(toy_mdp(), (0, 1, 1), (7, 0, 0))
    with pytest.raises(InputError, match="next_states, tuple 0: -1 is not in"):
        steps(toy_mdp(), (0, 1, -1))
    with pytest.raises(InputError, match="terminal; a tuple cannot start there"):
        steps(LINE, (5, 0, 5))


def test_an_empty_batch_is_refused() -> None:
    none = np.zeros(0, np.int64)
    with pytest.raises(InputError, match="the batch is empty"):
        batch_of(toy_mdp(), none, none, none)
    with pytest.raises(InputError, match="the batch is empty"):
        two_tuples().rows(np.zeros(2, bool))
    with pytest.raises(InputError, match="the batch is empty"):
        collect(LINE, np.full((6, 2), 0.5), np.random.default_rng(0), episodes=0, time_limit=1)


@pytest.mark.parametrize(
    ("initial_q", "complaint"),
    [
        (np.zeros((2, 3)), r"has shape \(2, 3\), not \(2, 2\)"),
        (np.zeros((1, 2)), r"has shape \(1, 2\), not \(2, 2\)"),
        (np.array([[0.0, 0.0], [0.0, np.nan]]), "is not finite"),
    ],
)
def test_initial_values_that_do_not_fit_are_refused(initial_q: Doubles, complaint: str) -> None:
    learners: tuple[Callable[[], object], ...] = (
        lambda: q_learning(two_tuples(), initial_q, discount=0.5, updates=1),
        lambda: bcql(two_tuples(), initial_q, discount=0.5, updates=1),
        lambda: q_learning_fixed_point(toy_mdp(), two_tuples(), initial_q),
        lambda: bcql_fixed_point(toy_mdp(), two_tuples(), initial_q),
    )
    for learn in learners:
        with pytest.raises(InputError, match=f"initial_q: {complaint}"):
            learn()


@pytest.mark.parametrize("gamma", [1.0, -0.1, np.nan])
def test_learning_refuses_a_discount_outside_zero_to_one(gamma: float) -> None:
    for learn in (q_learning, bcql):
        with pytest.raises(InputError, match="discount: "):
            learn(two_tuples(), np.zeros((2, 2)), discount=gamma, updates=1)


def test_a_grid_batch_from_a_wandering_policy_is_coherent_when_every_episode_ends() -> None:
    mdp = grid_world(4, 3)
    wander = np.full((12, 4), 0.25)
    random = np.random.default_rng(0)
    assert is_coherent(collect(mdp, wander, random, episodes=3, time_limit=10_000))
