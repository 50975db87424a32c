"""Kernel-based reinforcement learning (supplement C): the counterexample, Eq. 19-20 in loops."""

from collections.abc import Callable
from dataclasses import replace
from math import exp

import numpy as np
import pytest
from hypothesis import given, settings

import tabular_oracle as oracle
from bcq.system.errors import InputError
from bcq.tabular import (
    KernelBasedRL,
    KernelBatch,
    TabularBatch,
    bcql,
    bcql_fixed_point,
    complete_batch,
    deterministic_policy,
    embed,
    evaluate_policy,
    greedy_in_batch,
    toy_mdp,
    value_iteration,
)
from bcq.tabular.kernel import Kernel, gaussian, laplacian, triangular
from tabular_cases import SEEDS, close, small_mdp, steps

BOTH = np.array([[0.0], [1.0]])
KERNELS: list[tuple[Kernel, Callable[[float], float]]] = [
    (gaussian, lambda d: exp(-d * d)),
    (laplacian, lambda d: exp(-d)),
    (triangular, lambda d: max(1 - d, 0.0)),
]


def optimal_steps(gamma: float = 0.9) -> TabularBatch:
    """(s_0, a_1, 1, s_1) and (s_1, a_0, 0, s_0): the optimal policy's own."""
    return steps(toy_mdp(gamma), (0, 1, 1), (1, 0, 0))


def in_loops(
    batch: KernelBatch,
    *,
    num_actions: int,
    discount: float,
    bandwidth: float,
    phi: Callable[[float], float],
    over_all_actions: bool = False,
) -> oracle.KernelRL:
    tuples: list[oracle.KernelLogged] = [
        (tuple(s.tolist()), int(a), float(r), tuple(s2.tolist()), bool(ends))
        for s, a, r, s2, ends in zip(
            batch.states,
            batch.actions,
            batch.rewards,
            batch.next_states,
            batch.terminated,
            strict=True,
        )
    ]
    actions = list(range(num_actions))
    return oracle.KernelRL(tuples, actions, discount, bandwidth, phi, over_all_actions)


# The counterexample


@pytest.mark.parametrize("gamma", [0.0, 0.5, 0.9, 0.99])
@pytest.mark.parametrize("bandwidth", [0.5, 1.0, 10.0])
@pytest.mark.parametrize("kernel", [gaussian, laplacian])
def test_the_counterexample_to_the_digit_at_every_state(
    kernel: Kernel, bandwidth: float, gamma: float
) -> None:
    learner = KernelBasedRL(embed(optimal_steps(gamma)), 2, gamma, bandwidth, kernel)
    everywhere = np.array([[0.0], [1.0], [0.5], [-2.0], [3.25]])
    close(learner.q(everywhere)[:, 0], gamma / (1 - gamma**2))
    close(learner.q(everywhere)[:, 1], 1 / (1 - gamma**2))
    assert (learner.act(everywhere) == 1).all()


def test_the_degenerate_policy_earns_one_reward_and_no_more() -> None:
    mdp = toy_mdp()
    learner = KernelBasedRL(embed(optimal_steps()), 2, 0.9, 1.0)
    degenerate = deterministic_policy(learner.act(BOTH), 2)
    assert degenerate.argmax(axis=1).tolist() == [1, 1]
    close(evaluate_policy(mdp, degenerate)[[0, 1], [1, 1]], [1.0, 0.0])


def test_bcql_on_the_same_two_tuples_does_not_fail() -> None:
    mdp, batch = toy_mdp(), optimal_steps()
    for initial_q in (np.zeros((2, 2)), np.full((2, 2), 100.0)):
        q = bcql_fixed_point(mdp, batch, initial_q)
        close(q[[0, 1], [1, 0]], [1 / (1 - 0.9**2), 0.9 / (1 - 0.9**2)])
        sampled = bcql(batch, initial_q, discount=0.9, updates=200_000)
        close(sampled, q, within=1e-2)
        for values in (q, sampled):
            policy = deterministic_policy(greedy_in_batch(values, batch), 2)
            assert policy.argmax(axis=1).tolist() == [1, 0]
            best = value_iteration(mdp).max(axis=1)
            close((evaluate_policy(mdp, policy) * policy).sum(axis=1), best)


@pytest.mark.parametrize("kernel", [gaussian, laplacian, triangular])
@pytest.mark.parametrize("bandwidth", [0.02, 1e-3, 1e-30, 1e-200, 1e-320])
def test_all_four_tuples_and_a_bandwidth_towards_zero_reach_the_optimum(
    kernel: Kernel, bandwidth: float
) -> None:
    mdp = toy_mdp()
    learner = KernelBasedRL(embed(complete_batch(mdp, 1)), 2, 0.9, bandwidth, kernel)
    close(learner.q(BOTH), value_iteration(mdp))
    assert learner.act(BOTH).tolist() == [1, 0]


def test_all_four_tuples_under_a_wide_kernel_are_degenerate_again() -> None:
    mdp = toy_mdp()
    batch, truth = embed(complete_batch(mdp, 1)), value_iteration(toy_mdp())
    assert KernelBasedRL(batch, 2, 0.9, 10.0).act(BOTH).tolist() == [1, 1]
    widths = (0.7, 0.4, 0.2, 0.1)
    errors = [np.abs(KernelBasedRL(batch, 2, 0.9, w).q(BOTH) - truth).max() for w in widths]
    assert errors == sorted(errors, reverse=True)
    assert errors[0] > 0.1


@pytest.mark.parametrize("gamma", [0.5, 0.9])
def test_a_maximum_over_all_actions_in_learning_would_give_another_value(gamma: float) -> None:
    batch = embed(optimal_steps(gamma))
    for over_all_actions, expected in ((True, 1 / (1 - gamma)), (False, 1 / (1 - gamma**2))):
        literal = in_loops(
            batch,
            num_actions=2,
            discount=gamma,
            bandwidth=1.0,
            phi=lambda d: exp(-d * d),
            over_all_actions=over_all_actions,
        )
        values = literal.values()
        close([literal.q(s, 1, values) for s in ((0.0,), (1.0,))], expected)
    close(KernelBasedRL(batch, 2, gamma, 1.0).q(BOTH)[:, 1], 1 / (1 - gamma**2))


# Against loops


@settings(max_examples=100, deadline=None)
@given(SEEDS)
def test_random_batches_with_vector_states_agree_with_loops(seed: int) -> None:
    random = np.random.default_rng(seed)
    places, actions, tuples = 4, int(random.integers(1, 4)), 14
    positions = random.normal(size=(places, int(random.integers(1, 4))))
    at = np.concatenate([np.arange(places), random.integers(places, size=tuples - places)])
    batch = KernelBatch(
        states=positions[at],
        actions=np.concatenate(
            [np.arange(actions), random.integers(actions, size=tuples - actions)]
        ),
        rewards=random.normal(size=tuples),
        next_states=positions[random.integers(places, size=tuples)],
        terminated=random.random(tuples) < 0.2,
    )
    gamma, bandwidth = float(random.choice([0.0, 0.5, 0.9])), float(random.uniform(0.5, 3))
    kernel, phi = KERNELS[random.integers(2)]
    learner = KernelBasedRL(batch, actions, gamma, bandwidth, kernel)
    expected = in_loops(batch, num_actions=actions, discount=gamma, bandwidth=bandwidth, phi=phi)
    values = expected.values()
    asked = np.concatenate([positions, random.normal(size=(2, positions.shape[1]))])
    q = [[expected.q(tuple(s), a, values) for a in range(actions)] for s in asked.tolist()]
    close(learner.q(asked), q)
    assert (learner.act(asked) == np.argmax(learner.q(asked), axis=1)).all()
    going_on = ~batch.terminated
    following = [values[tuple(s)] for s in batch.next_states[going_on].tolist()]
    close(learner.learn()[going_on], following)
    assert not learner.learn()[batch.terminated].any()


@pytest.mark.parametrize(("kernel", "phi"), KERNELS)
def test_kernels_are_what_they_say(kernel: Kernel, phi: Callable[[float], float]) -> None:
    distances = np.linspace(0, 4, 41)
    close(kernel(distances), [phi(d) for d in distances])


def test_weights_by_hand_sum_to_one_over_the_tuples_of_the_action() -> None:
    batch = KernelBatch(
        states=np.array([[0.0, 0.0], [3.0, 4.0], [3.0, 4.0]]),
        actions=np.array([0, 0, 1]),
        rewards=np.zeros(3),
        next_states=np.zeros((3, 2)),
        terminated=np.ones(3, bool),
    )
    learner = KernelBasedRL(batch, 2, 0.5, 10.0, triangular)
    close(learner.weights(np.array([[0.0, 0.0]]), 0), [[1 / 1.5, 0.5 / 1.5, 0.0]])
    close(learner.weights(np.array([[0.0, 0.0]]), 1), [[0.0, 0.0, 1.0]])


def test_a_terminated_tuple_is_worth_its_reward() -> None:
    mdp = small_mdp({(0, 0): {1: (1.0, 3.0)}}, states=2, terminal=(1,), discount=0.9)
    close(KernelBasedRL(embed(steps(mdp, (0, 0, 1))), 1, 0.9, 1.0).q(BOTH), 3.0)


def test_finite_states_stand_on_a_line_or_where_they_are_put() -> None:
    batch = optimal_steps()
    assert embed(batch).states.tolist() == [[0.0], [1.0]]
    assert embed(batch).next_states.tolist() == [[1.0], [0.0]]
    positions = np.array([[5.0, 1.0], [7.0, 2.0]])
    assert embed(batch, positions).states.tolist() == positions.tolist()
    assert not embed(batch).terminated.any()


# What is refused


def test_no_kernel_mass_is_an_error_that_names_action_and_state() -> None:
    learner = KernelBasedRL(embed(optimal_steps()), 2, 0.9, 0.5, triangular)
    with pytest.raises(InputError, match=r"action 0 has weight at state \[0.0\]; increase"):
        learner.q(BOTH)
    with pytest.raises(InputError, match=r"action 0 has weight at state \[1e\+200\]"):
        KernelBasedRL(embed(optimal_steps()), 2, 0.9, 0.5).q(np.array([[1e200]]))
    with pytest.raises(InputError, match=r"has weight at state \[nan\]"):
        KernelBasedRL(embed(optimal_steps()), 2, 0.9, 0.5).q(np.array([[np.nan]]))


def test_an_action_that_no_tuple_has_is_an_error_when_acting() -> None:
    with pytest.raises(InputError, match="with action 2 has weight"):
        KernelBasedRL(embed(optimal_steps()), 3, 0.9, 1.0).act(BOTH)


def test_a_dead_end_is_an_error_unless_it_is_terminal() -> None:
    batch = embed(steps(toy_mdp(), (0, 0, 0), (0, 1, 1)))
    with pytest.raises(InputError, match=r"tuple 1: no action is logged at s' = \[1.0\]"):
        KernelBasedRL(batch, 2, 0.9, 1.0).learn()
    ended = replace(batch, terminated=np.array([False, True]))
    close(KernelBasedRL(ended, 2, 0.9, 1.0).learn(), [1.0, 0.0])


@pytest.mark.parametrize(
    ("discount", "bandwidth", "complaint"),
    [
        (1.0, 1.0, "discount: "),
        (-0.1, 1.0, "discount: "),
        (np.nan, 1.0, "discount: "),
        (0.9, 0.0, "bandwidth: "),
        (0.9, -1.0, "bandwidth: "),
        (0.9, np.nan, "bandwidth: "),
    ],
)
def test_settings_without_meaning_are_refused(
    discount: float, bandwidth: float, complaint: str
) -> None:
    with pytest.raises(InputError, match=complaint):
        KernelBasedRL(embed(optimal_steps()), 2, discount, bandwidth)


@pytest.mark.parametrize(
    ("name", "values", "complaint"),
    [
        ("rewards", [1.0, np.nan], "rewards: is not finite"),
        ("states", [[0.0], [np.nan]], "states: is not finite"),
        ("next_states", [[np.inf], [0.0]], "next_states: is not finite"),
        ("rewards", [], "the batch is empty"),
        ("rewards", [1.0], r"states: has shape \(2, 1\), not \(1, 1\)"),
        ("next_states", [[0.0, 0.0], [1.0, 1.0]], r"next_states: has shape \(2, 2\), not \(2, 1\)"),
        ("states", [0.0, 1.0], r"states: has shape \(2,\)"),
        ("actions", [0, 1, 0], r"actions: has shape \(3,\), not \(2,\)"),
        ("terminated", [False], r"terminated: has shape \(1,\), not \(2,\)"),
    ],
)
def test_tuples_that_do_not_fit_are_refused(name: str, values: list[float], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        replace(embed(optimal_steps()), **{name: np.array(values)})


@pytest.mark.parametrize("action", [2, -1])
def test_actions_out_of_range_are_refused(action: int) -> None:
    batch = replace(embed(optimal_steps()), actions=np.array([1, action]))
    with pytest.raises(InputError, match=f"actions, tuple 1: {action} is not in"):
        KernelBasedRL(batch, 2, 0.9, 1.0)
