"""Kernel-based reinforcement learning, and how it extrapolates (supplement C)."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bcq.system.errors import InputError
from bcq.tabular.batch import TabularBatch
from bcq.tabular.mdp import Doubles, Flags, Indices, require_finite

Kernel = Callable[[Doubles], Doubles]


def gaussian(distances: Doubles) -> Doubles:
    """exp(-d^2)."""
    return np.exp(-(distances**2))


def laplacian(distances: Doubles) -> Doubles:
    """exp(-d)."""
    return np.exp(-distances)


def triangular(distances: Doubles) -> Doubles:
    """1 - d, and 0 beyond 1."""
    return np.maximum(1 - distances, 0.0)


@dataclass(frozen=True, eq=False)
class KernelBatch:
    """Tuples with vector states."""

    states: Doubles  # (tuples, size)
    actions: Indices
    rewards: Doubles
    next_states: Doubles
    terminated: Flags

    def __post_init__(self) -> None:
        tuples = len(self.rewards)
        if tuples == 0:
            raise InputError("the batch is empty; it needs at least one tuple")
        size = self.states.shape[-1]
        shapes = {
            "states": (tuples, size),
            "actions": (tuples,),
            "rewards": (tuples,),
            "next_states": (tuples, size),
            "terminated": (tuples,),
        }
        for name, shape in shapes.items():
            require_finite(name, getattr(self, name), shape)


def embed(batch: TabularBatch, positions: Doubles | None = None) -> KernelBatch:
    """Finite states as vectors: state i at position i on a line, unless positions are given."""
    if positions is None:
        positions = np.arange(batch.num_states, dtype=float)[:, None]
    return KernelBatch(
        states=positions[batch.states],
        actions=batch.actions,
        rewards=batch.rewards,
        next_states=positions[batch.next_states],
        terminated=batch.terminal[batch.next_states],
    )


@dataclass(frozen=True, eq=False)
class KernelBasedRL:
    """Q(s, a) as an average over the logged transitions of action a near s (Eq. 19-20)."""

    batch: KernelBatch
    num_actions: int
    discount: float
    bandwidth: float  # tau
    kernel: Kernel = gaussian

    def __post_init__(self) -> None:
        if not 0 <= self.discount < 1:
            raise InputError(f"discount: {self.discount} is not in [0, 1)")
        if not self.bandwidth > 0:
            raise InputError(f"bandwidth: {self.bandwidth} is not above 0")
        actions, last = self.batch.actions, self.num_actions - 1
        wrong = np.flatnonzero((actions < 0) | (actions > last))
        if len(wrong):
            raise InputError(f"actions, tuple {wrong[0]}: {actions[wrong[0]]} is not in 0..{last}")

    def weights(self, states: Doubles, action: int) -> Doubles:
        """Kappa^a_tau(s, s_B) of each state and tuple (Eq. 20); a tuple of another action has 0."""
        with np.errstate(over="ignore"):  # with a tiny bandwidth, others are infinitely far away
            distances = np.linalg.norm(states[:, None] - self.batch.states[None], axis=2)
            similarity = self.kernel(distances / self.bandwidth) * (self.batch.actions == action)
        mass = similarity.sum(axis=1, keepdims=True)
        if not (mass > 0).all():
            row = int(np.argmin(mass[:, 0] > 0))
            raise InputError(
                f"no transition with action {action} has weight at state {states[row].tolist()}; "
                "increase the bandwidth"
            )
        return similarity / mass

    def learn(self, tolerance: float = 1e-13) -> Doubles:
        """V(s') of each tuple: the best value at s' of the actions that the batch has there."""
        batch = self.batch
        same = (batch.next_states[:, None] == batch.states[None]).all(axis=2)
        logged = np.stack(
            [(same & (batch.actions == a)).any(axis=1) for a in range(self.num_actions)], axis=1
        )
        dead_ends = ~batch.terminated & ~logged.any(axis=1)
        if dead_ends.any():
            row = int(np.argmax(dead_ends))
            raise InputError(
                f"tuple {row}: no action is logged at s' = {batch.next_states[row].tolist()}"
            )
        averages = np.zeros((self.num_actions, len(batch.rewards), len(batch.rewards)))
        for action in range(self.num_actions):
            asked = logged[:, action]
            if asked.any():
                averages[action, asked] = self.weights(batch.next_states[asked], action)
        values = np.zeros(len(batch.rewards))
        while True:
            q = averages @ (batch.rewards + self.discount * values)  # (actions, tuples)
            best = np.where(logged.T, q, -np.inf).max(axis=0)
            best = np.where(batch.terminated, 0.0, best)
            rounding = np.spacing(np.abs(best).max())  # smaller changes are rounding errors
            if np.abs(best - values).max() <= max(tolerance * (1 - self.discount), rounding):
                return best
            values = best

    def q(self, states: Doubles) -> Doubles:
        """Q(s, a) for all actions, also those not logged at s: extrapolation. (states, actions)."""
        returns = self.batch.rewards + self.discount * self.learn()
        return np.stack(
            [self.weights(states, a) @ returns for a in range(self.num_actions)], axis=1
        )

    def act(self, states: Doubles) -> Indices:
        """argmax_a Q(s, a) over all actions."""
        return self.q(states).argmax(axis=1)
