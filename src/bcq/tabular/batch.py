"""Tabular batches: their content, their coherence, and the MDP that they define."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.random import Generator

from bcq.system.errors import InputError
from bcq.tabular.mdp import (
    Doubles,
    FiniteMDP,
    Flags,
    Indices,
    deterministic_policy,
    reachable,
    require_finite,
    require_policy,
)


@dataclass(frozen=True, eq=False)
class TabularBatch:
    """Tuples (s, a, r, s') logged in an MDP; arrays of the same length."""

    states: Indices
    actions: Indices
    rewards: Doubles
    next_states: Indices
    num_actions: int
    terminal: Flags  # (states,): which states end an episode

    def __post_init__(self) -> None:
        if len(self.states) == 0:
            raise InputError("the batch is empty; it needs at least one tuple")
        if self.rewards.shape != (len(self.states),):
            raise InputError(f"rewards: has shape {self.rewards.shape}, not ({len(self.states)},)")
        limits = (
            ("states", self.num_states),
            ("actions", self.num_actions),
            ("next_states", self.num_states),
        )
        for name, limit in limits:
            values = getattr(self, name)
            if values.dtype.kind not in "iu":
                raise InputError(f"{name}: contains {values.dtype}, not integers")
            if values.shape != self.rewards.shape:
                raise InputError(f"{name}: has shape {values.shape}, not {self.rewards.shape}")
            wrong = np.flatnonzero((values < 0) | (values >= limit))
            if len(wrong):
                raise InputError(
                    f"{name}, tuple {wrong[0]}: {values[wrong[0]]} is not in 0..{limit - 1}"
                )
        if not np.isfinite(self.rewards).all():
            row = int(np.argmin(np.isfinite(self.rewards)))
            raise InputError(f"rewards, tuple {row}: {self.rewards[row]} is not finite")
        if self.terminal[self.states].any():
            row = int(np.argmax(self.terminal[self.states]))
            raise InputError(
                f"states, tuple {row}: {self.states[row]} is terminal; a tuple cannot start there"
            )

    def __len__(self) -> int:
        return len(self.rewards)

    @property
    def num_states(self) -> int:
        """|S|, the number of states."""
        return len(self.terminal)

    @property
    def counts(self) -> Indices:
        """N(s, a, s'), the number of tuples."""
        counts = np.zeros((self.num_states, self.num_actions, self.num_states), np.int64)
        np.add.at(counts, (self.states, self.actions, self.next_states), 1)
        return counts

    @property
    def pairs(self) -> Flags:
        """Which (s, a) are in B, (states, actions)."""
        pairs = np.zeros((self.num_states, self.num_actions), bool)
        pairs[self.states, self.actions] = True
        return pairs

    def rows(self, chosen: Flags) -> "TabularBatch":
        """The batch of only these tuples."""
        names = ("states", "actions", "rewards", "next_states")
        return replace(self, **{name: getattr(self, name)[chosen] for name in names})


def batch_of(
    mdp: FiniteMDP, states: Indices, actions: Indices, next_states: Indices
) -> TabularBatch:
    """Tuples of an MDP, with its rewards."""
    batch = TabularBatch(
        states=states,
        actions=actions,
        rewards=np.zeros(len(states)),
        next_states=next_states,
        num_actions=mdp.num_actions,
        terminal=mdp.terminal,
    )
    return replace(batch, rewards=mdp.rewards[states, actions, next_states])


def collect(
    mdp: FiniteMDP, policy: Doubles, random: Generator, *, episodes: int, time_limit: int
) -> TabularBatch:
    """Trajectories of a policy, each ended by a terminal state or by the time limit."""
    require_policy(mdp, policy)
    tuples = []
    for _ in range(episodes):
        state = int(random.choice(mdp.num_states, p=mdp.start))
        for _ in range(time_limit):
            if mdp.terminal[state]:
                break
            if not policy[state].any():
                raise InputError(
                    f"policy: is undefined at state {state}, which it reaches; define it there"
                )
            action = int(random.choice(mdp.num_actions, p=policy[state]))
            following = int(random.choice(mdp.num_states, p=mdp.transitions[state, action]))
            tuples.append((state, action, following))
            state = following
    return batch_of(mdp, *np.array(tuples, np.int64).reshape(-1, 3).T)


def complete_batch(mdp: FiniteMDP, copies: int) -> TabularBatch:
    """`copies` tuples of every pair, with successors in exact proportion to p_M."""
    exact = mdp.transitions * copies * ~mdp.terminal[:, None, None]
    counts = np.rint(exact).astype(np.int64)
    if np.abs(counts - exact).max() > 1e-9:
        raise InputError(f"copies: {copies} tuples per pair cannot match its probabilities")
    return batch_of(mdp, *np.repeat(np.argwhere(counts), counts[counts > 0], axis=0).T)


def offending_tuples(batch: TabularBatch) -> Indices:
    """Tuples whose s' is neither terminal nor in B: those that make it incoherent (Definition 1).

    "s in B" means that some (s, a, .) is in B. Read literally, a tuple contains its own s' and
    every batch would be coherent.
    """
    known = batch.pairs.any(axis=1) | batch.terminal
    return np.flatnonzero(~known[batch.next_states])


def is_coherent(batch: TabularBatch) -> bool:
    """Definition 1."""
    return len(offending_tuples(batch)) == 0


def coherent_part(batch: TabularBatch) -> TabularBatch:
    """The batch without its dead ends, removed repeatedly until there are none."""
    while len(offending := offending_tuples(batch)):
        kept = np.ones(len(batch), bool)
        kept[offending] = False
        if not kept.any():
            raise InputError("the batch has no coherent part: every tuple leads to a dead end")
        batch = batch.rows(kept)
    return batch


def require_coherent(batch: TabularBatch) -> None:
    """Refuses a batch with dead ends, and names them."""
    offending = offending_tuples(batch)
    if len(offending):
        first = ", ".join(
            f"({batch.states[i]}, {batch.actions[i]}, {batch.next_states[i]})"
            for i in offending[:3]
        )
        more = f" and {len(offending) - 3} more" if len(offending) > 3 else ""
        raise InputError(
            f"the batch is not coherent: no tuple starts at the s' of (s, a, s') {first}{more}; "
            "remove these dead ends with coherent_part"
        )


def batch_constrained_policy(batch: TabularBatch) -> Doubles:
    """A policy that takes a logged action in each state of the batch (Theorem 2)."""
    require_coherent(batch)
    pairs = batch.pairs
    actions = np.where(pairs.any(axis=1), pairs.argmax(axis=1), -1)
    return deterministic_policy(actions, batch.num_actions)


def is_batch_constrained(mdp: FiniteMDP, policy: Doubles, batch: TabularBatch) -> bool:
    """Whether every action that it can take in a reachable state is in B (Section 4.1)."""
    taken = reachable(mdp, policy)[:, None] & (policy > 0)
    undefined = reachable(mdp, policy) & ~(policy > 0).any(axis=1)
    return not (taken & ~batch.pairs).any() and not undefined.any()


def require_initial_q(batch: TabularBatch, initial_q: Doubles) -> None:
    """Refuses initial values with a wrong shape, or that are not finite."""
    require_finite("initial_q", initial_q, (batch.num_states, batch.num_actions))


def batch_mdp(mdp: FiniteMDP, batch: TabularBatch, initial_q: Doubles) -> FiniteMDP:
    """M_B: the MDP that Q-learning on the batch solves (Theorem 1).

    It has one more state, s_init, the last and terminal. A pair that was never seen leads there and
    earns its initial value. Several rewards seen for one (s, a, s') are averaged.
    """
    require_initial_q(batch, initial_q)
    states, init = mdp.num_states, mdp.num_states
    counts = batch.counts
    earned = np.zeros(counts.shape)
    np.add.at(earned, (batch.states, batch.actions, batch.next_states), batch.rewards)
    seen = counts.sum(axis=2)
    transitions = np.zeros((states + 1, mdp.num_actions, states + 1))
    rewards = np.zeros_like(transitions)
    transitions[:states, :, :states] = counts / np.maximum(seen, 1)[:, :, None]
    rewards[:states, :, :states] = earned / np.maximum(counts, 1)
    transitions[:states, :, init] = seen == 0
    rewards[:states, :, init] = np.where(seen == 0, initial_q, 0.0)
    transitions[init, :, init] = 1
    return FiniteMDP(
        transitions,
        rewards,
        mdp.discount,
        np.append(mdp.start, 0.0),
        np.append(mdp.terminal, True),
    )
