"""Random MDPs, policies and batches of many kinds, for the tabular tests."""

from dataclasses import replace

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from numpy.random import Generator
from numpy.typing import ArrayLike

from bcq.tabular import FiniteMDP, TabularBatch, batch_of, random_mdp
from bcq.tabular.mdp import Doubles, Flags, Indices

SEEDS = st.integers(0, 2**32 - 1)
EXACT = settings(max_examples=200, deadline=None)
DISCOUNTS = (0.0, 0.3, 0.7, 0.9)


def close(actual: ArrayLike, expected: ArrayLike, within: float = 1e-10) -> None:
    difference = np.abs(np.asarray(actual, float) - np.asarray(expected, float))
    assert difference.max(initial=0.0) <= within  # and not NaN


def any_mdp(
    random: Generator, *, deterministic: bool | None = None, max_states: int = 5
) -> FiniteMDP:
    """Two to max_states states, of which some, or none, are terminal; one or two may start."""
    states = int(random.integers(2, max_states + 1))
    if deterministic is None:
        deterministic = bool(random.integers(2))
    mdp = random_mdp(
        random,
        num_states=states,
        num_actions=int(random.integers(1, 4)),
        discount=float(random.choice(DISCOUNTS)),
        deterministic=deterministic,
    )
    terminal = random.random(states) < 0.3
    terminal[random.integers(states)] = False
    transitions = np.where(terminal[:, None, None], 0.0, mdp.transitions)
    first, second = random.choice(np.flatnonzero(~terminal)), random.integers(states)
    start = 0.25 * np.eye(states)[first] + 0.75 * np.eye(states)[random.choice([first, second])]
    return replace(mdp, transitions=transitions, terminal=terminal, start=start)


def any_policy(random: Generator, mdp: FiniteMDP) -> Doubles:
    """Some actions of each state, equally likely."""
    shape = (mdp.num_states, mdp.num_actions)
    chosen = random.random(shape) < 0.5
    chosen[np.arange(mdp.num_states), random.integers(mdp.num_actions, size=mdp.num_states)] = True
    return chosen / chosen.sum(axis=1, keepdims=True)


def any_q(random: Generator, mdp: FiniteMDP) -> Doubles:
    return 3 * random.normal(size=(mdp.num_states, mdp.num_actions))


def any_batch(random: Generator, mdp: FiniteMDP) -> TabularBatch:
    """Tuples from anywhere, coherent or not."""
    size = int(random.integers(1, 20))
    states = random.choice(np.flatnonzero(~mdp.terminal), size)
    actions = random.integers(mdp.num_actions, size=size)
    return batch_of(mdp, states, actions, successors(random, mdp, states, actions))


def successors(random: Generator, mdp: FiniteMDP, states: Indices, actions: Indices) -> Indices:
    rows = mdp.transitions[states, actions]
    return np.array([random.choice(mdp.num_states, p=row) for row in rows], np.int64)


def coherent_batch(random: Generator, mdp: FiniteMDP) -> TabularBatch:
    """Walks from every start state, and from others, each to its end or to where it was before."""
    free = np.flatnonzero(~mdp.terminal)
    others = random.choice(free, int(random.integers(0, 4))).tolist()
    tuples = []
    for first in [*np.flatnonzero(mdp.start > 0).tolist(), *others]:
        state, seen = first, set[int]()
        while not mdp.terminal[state] and state not in seen:
            seen.add(state)
            action = int(random.integers(mdp.num_actions))
            following = int(random.choice(mdp.num_states, p=mdp.transitions[state, action]))
            tuples.append((state, action, following))
            state = following
    return batch_of(mdp, *np.array(tuples).T)


def batch_of_pairs(mdp: FiniteMDP, pairs: Flags) -> TabularBatch:
    """One tuple of each pair of a deterministic MDP."""
    states, actions = np.nonzero(pairs & ~mdp.terminal[:, None])
    return batch_of(mdp, states, actions, mdp.transitions[states, actions].argmax(axis=1))


def joined(*batches: TabularBatch) -> TabularBatch:
    """All tuples of batches of one MDP."""
    return replace(
        batches[0],
        states=np.concatenate([batch.states for batch in batches]),
        actions=np.concatenate([batch.actions for batch in batches]),
        rewards=np.concatenate([batch.rewards for batch in batches]),
        next_states=np.concatenate([batch.next_states for batch in batches]),
    )


def with_rewards(
    mdp: FiniteMDP, batch: TabularBatch, rewards: Doubles
) -> tuple[FiniteMDP, TabularBatch]:
    """The same dynamics and the same steps, under other rewards."""
    changed = replace(mdp, rewards=rewards)
    return changed, batch_of(changed, batch.states, batch.actions, batch.next_states)


def small_mdp(
    moves: dict[tuple[int, int], dict[int, tuple[float, float]]],
    *,
    states: int,
    terminal: tuple[int, ...],
    start: int = 0,
    discount: float = 0.5,
) -> FiniteMDP:
    """An MDP by hand: (s, a) -> {s': (probability, reward)}; other pairs stay, for nothing."""
    actions = 1 + max(action for _, action in moves)
    transitions = np.repeat(np.eye(states)[:, None], actions, axis=1)
    rewards = np.zeros((states, actions, states))
    for (state, action), outcomes in moves.items():
        transitions[state, action] = 0
        for following, (chance, reward) in outcomes.items():
            transitions[state, action, following] = chance
            rewards[state, action, following] = reward
    return FiniteMDP(
        transitions,
        rewards,
        discount,
        np.eye(states)[start],
        np.isin(np.arange(states), terminal),
    )


def steps(mdp: FiniteMDP, *tuples: tuple[int, int, int]) -> TabularBatch:
    """A batch by hand, of (s, a, s')."""
    return batch_of(mdp, *np.array(tuples).T)
