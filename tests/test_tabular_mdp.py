"""Finite MDPs: exact solutions, where policies go, the made-up ones, and what is refused."""

from contextlib import nullcontext
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given

import tabular_oracle as oracle
from bcq.system.errors import InputError
from bcq.tabular import (
    FiniteMDP,
    deterministic_policy,
    evaluate_policy,
    greedy,
    grid_world,
    random_mdp,
    reachable,
    toy_mdp,
    value_iteration,
    visitation,
)
from bcq.tabular.mdp import Doubles
from tabular_cases import EXACT, SEEDS, any_mdp, any_policy, close, small_mdp


def values_of(q: Doubles, policy: Doubles) -> Doubles:
    return (q * policy).sum(axis=1)


# Exact solutions


@EXACT
@given(SEEDS)
def test_evaluation_is_where_plain_sweeps_end(seed: int) -> None:
    random = np.random.default_rng(seed)
    mdp = any_mdp(random)
    policy = any_policy(random, mdp)
    expected = oracle.policy_values(oracle.world(mdp), oracle.by_pair(policy))
    close(evaluate_policy(mdp, policy), oracle.as_table(expected, policy))


@EXACT
@given(SEEDS)
def test_value_iteration_is_where_plain_sweeps_end(seed: int) -> None:
    random = np.random.default_rng(seed)
    mdp = any_mdp(random)
    q = value_iteration(mdp)
    close(q, oracle.as_table(oracle.optimal_values(oracle.world(mdp)), q))


@EXACT
@given(SEEDS)
def test_value_iteration_over_allowed_actions_is_where_plain_sweeps_end(seed: int) -> None:
    random = np.random.default_rng(seed)
    mdp = any_mdp(random)
    allowed = random.random((mdp.num_states, mdp.num_actions)) < 0.6
    pairs = {(int(s), int(a)) for s, a in np.argwhere(allowed)}
    q = value_iteration(mdp, allowed)
    close(q, oracle.as_table(oracle.optimal_values(oracle.world(mdp), {*pairs}), q))


@EXACT
@given(SEEDS)
def test_value_iteration_is_the_best_of_all_maps_at_once_and_greedy_attains_it(seed: int) -> None:
    mdp = any_mdp(np.random.default_rng(seed), max_states=4)
    q, actions = value_iteration(mdp), mdp.num_actions
    maps = product(range(actions), repeat=mdp.num_states)
    tried = [evaluate_policy(mdp, deterministic_policy(np.array(m), actions)) for m in maps]
    close(q, np.max(tried, axis=0))
    close(q, evaluate_policy(mdp, deterministic_policy(greedy(q), actions)))


def test_value_iteration_reaches_its_tolerance_close_to_discount_one() -> None:
    mdp = random_mdp(np.random.default_rng(0), discount=0.99)
    q = value_iteration(mdp)
    close(q, evaluate_policy(mdp, deterministic_policy(greedy(q), 3)))


def test_terminal_states_are_worth_nothing_and_their_rows_are_ignored() -> None:
    mdp = random_mdp(np.random.default_rng(0), num_states=4, num_actions=2)
    transitions, rewards = mdp.transitions.copy(), mdp.rewards.copy()
    transitions[3], rewards[3] = 0.7, 100.0
    changed = replace(mdp, transitions=transitions, rewards=rewards)
    policy = np.full((4, 2), 0.5)
    assert not value_iteration(changed)[3].any()
    for solve in (evaluate_policy, visitation, reachable):
        assert (solve(changed, policy) == solve(mdp, policy)).all()
    assert (value_iteration(changed) == value_iteration(mdp)).all()
    assert changed.is_deterministic


def test_a_backup_asks_for_no_value_of_a_terminal_state_and_gives_it_none() -> None:
    mdp = small_mdp({(0, 0): {0: (0.5, 1.0), 1: (0.5, 3.0)}}, states=2, terminal=(1,))
    close(mdp.backup(np.array([8.0, 100.0])), [[2.0 + 0.5 * 0.5 * 8.0], [0.0]])


def test_nothing_more_is_earned_where_a_policy_is_undefined() -> None:
    mdp = small_mdp({(0, 0): {1: (1.0, 3.0)}, (1, 0): {2: (1.0, 5.0)}}, states=3, terminal=(2,))
    close(evaluate_policy(mdp, deterministic_policy(np.array([0, -1, -1]), 1))[0], 3.0)
    close(evaluate_policy(mdp, deterministic_policy(np.array([0, 0, -1]), 1))[0], 3.0 + 0.5 * 5.0)


def test_the_first_reward_weighs_one() -> None:
    mdp = small_mdp({(0, 0): {0: (1.0, 1.0)}}, states=1, terminal=(), discount=0.75)
    close(evaluate_policy(mdp, np.ones((1, 1))), [[4.0]])


def test_greedy_over_allowed_actions() -> None:
    q = np.array([[1.0, 3.0, 2.0], [1.0, 3.0, 2.0], [0.0, 0.0, 0.0]])
    allowed = np.array([[True, True, True], [True, False, True], [False, False, False]])
    assert greedy(q, allowed).tolist() == [1, 2, -1]
    assert greedy(q).tolist() == [1, 1, 0]


# Where a policy goes


@EXACT
@given(SEEDS)
def test_visitation_is_the_discounted_sum_over_time(seed: int) -> None:
    random = np.random.default_rng(seed)
    mdp = any_mdp(random)
    policy = any_policy(random, mdp)
    expected = oracle.visited(oracle.world(mdp), oracle.by_pair(policy))
    close(visitation(mdp, policy), [expected[s] for s in range(mdp.num_states)])


@EXACT
@given(SEEDS)
def test_reachable_is_found_by_search_and_is_where_visitation_is_positive(seed: int) -> None:
    random = np.random.default_rng(seed)
    mdp = any_mdp(random)
    policy = any_policy(random, mdp)
    found = oracle.reached(oracle.world(mdp), oracle.by_pair(policy))
    assert set(np.flatnonzero(reachable(mdp, policy)).tolist()) == found
    assert ((visitation(mdp, policy) > 0) == reachable(mdp, policy)).all()


@EXACT
@given(SEEDS)
def test_what_is_earned_along_the_visitation_is_the_value_of_the_start(seed: int) -> None:
    random = np.random.default_rng(seed)
    mdp = any_mdp(random)
    policy = any_policy(random, mdp)
    earned = visitation(mdp, policy) @ values_of(mdp.expected_rewards, policy)
    start = mdp.start @ values_of(evaluate_policy(mdp, policy), policy)
    close(earned / (1 - mdp.discount), start)


def test_visitation_sums_to_one_where_no_episode_ends() -> None:
    close(visitation(toy_mdp(), np.full((2, 2), 0.5)).sum(), 1.0)


def test_visitation_by_hand() -> None:
    mdp = small_mdp({(0, 0): {1: (1.0, 0.0)}, (1, 0): {2: (1.0, 0.0)}}, states=3, terminal=(2,))
    close(visitation(mdp, np.ones((3, 1))), [0.5, 0.25, 0.0])


def test_without_a_future_only_the_start_is_reached() -> None:
    always_a1 = deterministic_policy(np.array([1, 1]), 2)
    assert reachable(toy_mdp(0.0), always_a1).tolist() == [True, False]
    assert reachable(toy_mdp(0.1), always_a1).tolist() == [True, True]


# Made-up MDPs


@pytest.mark.parametrize("deterministic", [True, False])
def test_random_mdps_are_of_the_kind_and_sizes_asked_for(deterministic: bool) -> None:
    for seed in range(20):
        mdp = random_mdp(
            np.random.default_rng(seed),
            num_states=7,
            num_actions=4,
            discount=0.8,
            deterministic=deterministic,
            denominator=5,
        )
        assert mdp.transitions.shape == (7, 4, 7)
        assert mdp.discount == 0.8
        assert mdp.is_deterministic == deterministic
        assert mdp.terminal.tolist() == [False] * 6 + [True]
        assert not (mdp.start > 0)[mdp.terminal].any()
        close(mdp.transitions * 5, np.rint(mdp.transitions * 5))


def test_sizes_that_are_not_given_are_small() -> None:
    mdp = random_mdp(np.random.default_rng(0))
    assert (mdp.transitions.shape, mdp.discount) == ((6, 3, 6), 0.9)
    assert mdp.is_deterministic
    close(mdp.start, [1 / 5] * 5 + [0])
    stochastic = random_mdp(np.random.default_rng(0), deterministic=False)
    close(stochastic.transitions * 10, np.rint(stochastic.transitions * 10))
    assert (np.rint(stochastic.transitions * 10) % 2 == 1).any()  # tenths, not fifths
    grid = grid_world()
    assert (grid.transitions.shape, grid.discount) == ((30, 4, 30), 0.95)
    assert grid.transitions[0].argmax(axis=1).tolist() == [1, 6, 0, 0]  # six in a row
    assert toy_mdp().discount == 0.9


def test_a_random_mdp_is_made_by_its_seed() -> None:
    first, again, other = (random_mdp(np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert (first.transitions == again.transitions).all()
    assert (first.rewards == again.rewards).all()
    assert not (first.rewards == other.rewards).all()


def test_grid_world_costs_one_for_each_step_of_the_shortest_way() -> None:
    mdp = grid_world(4, 3, discount=0.9)
    best = value_iteration(mdp).max(axis=1)
    for y, x in product(range(3), range(4)):
        distance = (3 - x) + (2 - y)
        close(best[x + 4 * y], -(1 - 0.9**distance) / (1 - 0.9))


def test_grid_world_moves_right_up_left_down_and_stays_at_the_edge() -> None:
    mdp = grid_world(3, 2)
    to = mdp.transitions.argmax(axis=2)
    assert to[1].tolist() == [2, 4, 0, 1]
    assert to[0].tolist() == [1, 3, 0, 0]
    assert mdp.is_deterministic
    assert mdp.start.argmax() == 0
    assert np.flatnonzero(mdp.terminal).tolist() == [5]


def test_grid_world_walks_around_walls() -> None:
    mdp = grid_world(3, 2, walls=((1, 0), (2, 0)))
    assert mdp.transitions[0].argmax(axis=1).tolist() == [0, 3, 0, 0]
    close(value_iteration(mdp)[0].max(), -(1 + 0.95 + 0.95**2))
    everywhere = np.full((6, 4), 0.25)
    assert np.flatnonzero(reachable(mdp, everywhere)).tolist() == [0, 3, 4]


@pytest.mark.parametrize("gamma", [0.0, 0.5, 0.9, 0.99])
def test_the_mdp_of_figure_6(gamma: float) -> None:
    mdp = toy_mdp(gamma)
    away, back = 1 / (1 - gamma**2), gamma / (1 - gamma**2)
    close(value_iteration(mdp), [[gamma * away, away], [back, gamma * back]])
    assert greedy(value_iteration(mdp))[0] == 1
    assert mdp.is_deterministic
    assert not mdp.terminal.any()


# What is refused


def changed(mdp: FiniteMDP, name: str, index: tuple[int, ...], value: float) -> dict[str, Doubles]:
    values = getattr(mdp, name).copy()
    values[index] = value
    return {name: values}


@pytest.mark.parametrize(
    ("name", "index", "value", "complaint"),
    [
        ("transitions", (0, 1, 1), 0.9, "transitions: is not a distribution at (0, 1)"),
        ("transitions", (1, 0, 1), 0.1, "transitions: is not a distribution at (1, 0)"),
        ("transitions", (0, 0, 0), np.nan, "transitions: is not finite"),
        ("rewards", (0, 0, 0), np.nan, "rewards: is not finite"),
        ("rewards", (0, 0, 0), np.inf, "rewards: is not finite"),
        ("start", (0,), 0.5, "start: is not a distribution"),
        ("start", (0,), np.nan, "start: is not finite"),
    ],
)
def test_numbers_that_make_no_mdp_are_refused(
    name: str, index: tuple[int, ...], value: float, complaint: str
) -> None:
    mdp = toy_mdp()
    with pytest.raises(InputError) as caught:
        replace(mdp, **changed(mdp, name, index, value))  # type: ignore[arg-type]
    assert str(caught.value).startswith(complaint)


def test_probabilities_may_be_off_by_rounding_alone() -> None:
    mdp = toy_mdp()
    for off, refused in ((0.5e-9, False), (-0.5e-9, False), (1.5e-9, True), (-1.5e-9, True)):
        ends = pytest.raises(InputError, match="distribution") if refused else nullcontext()
        with ends:
            replace(mdp, **changed(mdp, "transitions", (0, 1, 1), 1 + off))  # type: ignore[arg-type]
        with ends:
            replace(mdp, start=np.array([1 + off, 0.0]))
        with ends:
            visitation(mdp, np.array([[1.0, 0.0], [0.5, 0.5 + off]]))


def test_negative_probabilities_are_refused_though_they_sum_to_one() -> None:
    mdp = toy_mdp()
    transitions = mdp.transitions.copy()
    transitions[0, 0] = [1.5, -0.5]
    with pytest.raises(InputError, match="transitions: is not a distribution"):
        replace(mdp, transitions=transitions)
    with pytest.raises(InputError, match="start: is not a distribution"):
        replace(mdp, start=np.array([1.5, -0.5]))


@pytest.mark.parametrize("gamma", [1.0, 1.5, -0.1, np.nan])
def test_a_discount_outside_zero_to_one_is_refused(gamma: float) -> None:
    with pytest.raises(InputError, match=r"discount: .* is not in"):
        toy_mdp(gamma)


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("transitions", (2,)),
        ("transitions", (2, 2)),
        ("transitions", (2, 2, 3)),
        ("rewards", (2, 2)),
        ("rewards", (2, 3, 2)),
        ("start", (3,)),
    ],
)
def test_wrong_shapes_are_refused_by_name(name: str, shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match=f"^{name}: "):
        replace(toy_mdp(), **{name: np.full(shape, 0.5)})  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"^terminal: has shape"):
        replace(toy_mdp(), terminal=np.zeros(3, bool))


@pytest.mark.parametrize("solve", [evaluate_policy, visitation, reachable])
@pytest.mark.parametrize(
    ("policy", "complaint"),
    [
        (np.full((3, 2), 0.5), r"has shape \(3, 2\), not \(2, 2\)"),
        (np.array([[0.5, 0.5], [0.5, 0.4]]), "is not a distribution at state 1"),
        (np.array([[1.5, -0.5], [0.5, 0.5]]), "is not a distribution at state 0"),
        (np.array([[1.0, -1.0], [0.5, 0.5]]), "is not a distribution at state 0"),
        (np.array([[0.5, 0.5], [0.5, np.nan]]), "is not a distribution at state 1"),
    ],
)
def test_what_is_no_policy_is_refused(solve: object, policy: Doubles, complaint: str) -> None:
    assert callable(solve)
    with pytest.raises(InputError, match=f"policy: {complaint}"):
        solve(toy_mdp(), policy)
