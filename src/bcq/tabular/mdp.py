"""Finite Markov decision processes, solved exactly (Section 2)."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from bcq.system.errors import InputError

Doubles = NDArray[np.float64]
Flags = NDArray[np.bool_]
Indices = NDArray[np.int64]


def require_finite(name: str, values: NDArray[Any], shape: tuple[int, ...]) -> None:
    """Refuses an array with a wrong shape, or with numbers that are not finite."""
    if values.shape != shape:
        raise InputError(f"{name}: has shape {values.shape}, not {shape}")
    if not np.isfinite(values).all():
        raise InputError(f"{name}: is not finite everywhere")


@dataclass(frozen=True, eq=False)
class FiniteMDP:
    """(S, A, p_M, r, gamma), with the start distribution and the terminal states.

    A terminal state has the value 0; its rows are ignored.
    """

    transitions: Doubles  # p(s'|s, a): (states, actions, states)
    rewards: Doubles  # r(s, a, s'): (states, actions, states)
    discount: float
    start: Doubles  # (states,)
    terminal: Flags  # (states,)

    def __post_init__(self) -> None:
        if self.transitions.ndim != 3:
            raise InputError("transitions: must have three axes, (states, actions, states)")
        states, actions = self.transitions.shape[:2]
        shapes = {
            "transitions": (states, actions, states),
            "rewards": (states, actions, states),
            "start": (states,),
            "terminal": (states,),
        }
        for name, shape in shapes.items():
            require_finite(name, getattr(self, name), shape)
        if not 0 <= self.discount < 1:
            raise InputError(f"discount: {self.discount} is not in [0, 1)")
        rows = np.where(self.terminal[:, None], 1.0, self.transitions.sum(axis=2))
        for name, sums in (("transitions", rows), ("start", self.start.sum(keepdims=True))):
            wrong = np.argwhere(np.abs(sums - 1) > 1e-9)
            if len(wrong) or (getattr(self, name) < 0).any():
                where = f" at {tuple(wrong[0].tolist())}" if len(wrong) else ""
                raise InputError(f"{name}: is not a distribution{where}; each must sum to 1")

    @property
    def num_states(self) -> int:
        """|S|, the number of states."""
        return self.transitions.shape[0]

    @property
    def num_actions(self) -> int:
        """|A|, the number of actions."""
        return self.transitions.shape[1]

    @property
    def is_deterministic(self) -> bool:
        """Whether every action leads to one state."""
        return bool(np.isin(self.transitions[~self.terminal], (0.0, 1.0)).all())

    @property
    def expected_rewards(self) -> Doubles:
        """E[r | s, a], (states, actions); 0 at terminal states."""
        rewards = (self.transitions * self.rewards).sum(axis=2)
        return np.where(self.terminal[:, None], 0.0, rewards)

    def backup(self, values: Doubles) -> Doubles:
        """E[r + gamma V(s')] of each pair (Eq. 1), (states, actions)."""
        future = self.transitions @ np.where(self.terminal, 0.0, values)
        return self.expected_rewards + self.discount * np.where(self.terminal[:, None], 0.0, future)


def deterministic_policy(actions: Indices, num_actions: int) -> Doubles:
    """Pi(a|s) with one action per state; -1 (undefined) gives a row of zeros."""
    return (actions[:, None] == np.arange(num_actions)).astype(float)


def require_policy(mdp: FiniteMDP, policy: Doubles) -> None:
    """Refuses an array that is not a policy pi(a|s); a row of zeros is an undefined action."""
    shape = (mdp.num_states, mdp.num_actions)
    if policy.shape != shape:
        raise InputError(f"policy: has shape {policy.shape}, not {shape}")
    sums = policy.sum(axis=1)
    right = (policy >= 0).all(axis=1) & ((np.abs(sums - 1) <= 1e-9) | (sums == 0))
    if not right.all():
        raise InputError(f"policy: is not a distribution at state {int(np.argmin(right))}")


def evaluate_policy(mdp: FiniteMDP, policy: Doubles) -> Doubles:
    """Q^pi, the fixed point of the Bellman operator (Eq. 1), by a linear solve.

    Where the policy is undefined, there are no further rewards.
    """
    require_policy(mdp, policy)
    weights = np.where(mdp.terminal[:, None], 0.0, policy)
    chain = np.einsum("sa,sat->st", weights, mdp.transitions) * ~mdp.terminal
    earned = (weights * mdp.expected_rewards).sum(axis=1)
    values = np.linalg.solve(np.eye(mdp.num_states) - mdp.discount * chain, earned)
    return mdp.backup(values)


def value_iteration(
    mdp: FiniteMDP, allowed: Flags | None = None, tolerance: float = 1e-12
) -> Doubles:
    """Q*, or the best that the allowed actions (states, actions) can do, to the tolerance.

    A state without any allowed action is worth 0: no policy is defined there.
    """
    allowed = np.ones((mdp.num_states, mdp.num_actions), bool) if allowed is None else allowed
    values = np.zeros(mdp.num_states)
    while True:
        q = mdp.backup(values)
        best = np.where(allowed, q, -np.inf).max(axis=1)
        best = np.where(np.isfinite(best), best, 0.0)
        rounding = np.spacing(np.abs(best).max())  # smaller changes are rounding errors
        change = np.abs(best - values).max() * mdp.discount
        if change <= max(tolerance * (1 - mdp.discount), rounding):
            return mdp.backup(best)
        values = best


def greedy(q: Doubles, allowed: Flags | None = None) -> Indices:
    """The best allowed action of each state, -1 if there is none."""
    allowed = np.ones(q.shape, bool) if allowed is None else allowed
    return np.where(allowed.any(axis=1), np.where(allowed, q, -np.inf).argmax(axis=1), -1)


def visitation(mdp: FiniteMDP, policy: Doubles) -> Doubles:
    """mu_pi(s): (1 - gamma) sum_t gamma^t P(s_t = s), over states in which an action is taken."""
    require_policy(mdp, policy)
    weights = np.where(mdp.terminal[:, None], 0.0, policy)
    chain = np.einsum("sa,sat->st", weights, mdp.transitions)
    visits = np.linalg.solve(np.eye(mdp.num_states) - mdp.discount * chain.T, mdp.start)
    return np.where(mdp.terminal, 0.0, (1 - mdp.discount) * visits)


def reachable(mdp: FiniteMDP, policy: Doubles) -> Flags:
    """Where mu_pi(s) > 0, computed without rounding."""
    require_policy(mdp, policy)
    weights = np.where(mdp.terminal[:, None], 0.0, policy)
    leads = np.einsum("sa,sat->st", weights > 0, mdp.transitions > 0) & (mdp.discount > 0)
    reached = mdp.start > 0
    while True:
        further = reached | leads[reached].any(axis=0)
        if (further == reached).all():
            return reached & ~mdp.terminal
        reached = further


def random_mdp(
    random: Generator,
    *,
    num_states: int = 6,
    num_actions: int = 3,
    discount: float = 0.9,
    deterministic: bool = True,
    denominator: int = 10,
) -> FiniteMDP:
    """A random MDP. Its last state is terminal; an episode starts in any other state.

    A stochastic one has probabilities that are multiples of 1/denominator, so that a finite batch
    can match them exactly.
    """
    shape = (num_states, num_actions)
    draws = random.integers(num_states, size=(*shape, 1 if deterministic else denominator))
    transitions = np.stack([(draws == s).mean(axis=2) for s in range(num_states)], axis=2)
    return FiniteMDP(
        transitions=transitions,
        rewards=random.normal(size=(*shape, num_states)),
        discount=discount,
        start=np.append(np.full(num_states - 1, 1 / (num_states - 1)), 0.0),
        terminal=np.arange(num_states) == num_states - 1,
    )


def grid_world(
    width: int = 6,
    height: int = 5,
    *,
    walls: tuple[tuple[int, int], ...] = (),
    discount: float = 0.95,
) -> FiniteMDP:
    """Right, up, left, down on a grid from the lower left to the upper right; each step costs 1.

    State x + width * y. A move into a wall or off the grid stays where it is.
    """
    states = width * height
    transitions = np.zeros((states, 4, states))
    for y in range(height):
        for x in range(width):
            for action, (dx, dy) in enumerate(((1, 0), (0, 1), (-1, 0), (0, -1))):
                to = (x + dx, y + dy)
                inside = 0 <= to[0] < width and 0 <= to[1] < height and to not in walls
                there = to if inside else (x, y)
                transitions[x + width * y, action, there[0] + width * there[1]] = 1
    return FiniteMDP(
        transitions=transitions,
        rewards=np.full((states, 4, states), -1.0),
        discount=discount,
        start=np.eye(states)[0],
        terminal=np.arange(states) == states - 1,
    )


def toy_mdp(discount: float = 0.9) -> FiniteMDP:
    """The two-state MDP of Figure 6: action i leads to state i; leaving s_0 by a_1 earns 1."""
    transitions = np.zeros((2, 2, 2))
    transitions[:, 0, 0] = transitions[:, 1, 1] = 1
    rewards = np.zeros((2, 2, 2))
    rewards[0, 1, 1] = 1
    return FiniteMDP(transitions, rewards, discount, np.array([1.0, 0.0]), np.zeros(2, bool))
