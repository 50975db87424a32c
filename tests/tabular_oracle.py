"""The tabular theory in loops, sets and dictionaries: slow, and written from the paper's text.

Sections 2 and 4.1, supplement A and C; equation numbers are the paper's. Expectations are sums,
fixed points are many plain sweeps, and the batch is a list of tuples (s, a, r, s').
"""

from collections import defaultdict, deque
from collections.abc import Callable
from math import ceil, dist, log
from typing import NamedTuple

import numpy as np

from bcq.tabular import FiniteMDP, TabularBatch
from bcq.tabular.mdp import Doubles

State = int | str
Pair = tuple[State, int]
Logged = tuple[int, int, float, int]  # (s, a, r, s')
Values = dict[Pair, float]  # Q(s, a); terminal states have none
Policy = dict[Pair, float]  # pi(a|s)
Vector = tuple[float, ...]
KernelLogged = tuple[Vector, int, float, Vector, bool]  # (s, a, r, s', whether s' is terminal)

S_INIT = "s_init"


class World(NamedTuple):
    """An MDP: p(s'|s, a) of the successors that are possible, and r(s, a, s')."""

    states: list[State]
    actions: list[int]
    p: dict[Pair, dict[State, float]]
    r: dict[tuple[State, int, State], float]
    gamma: float
    start: dict[State, float]
    terminal: set[State]

    def pairs(self) -> list[Pair]:
        return [(s, a) for s in self.states if s not in self.terminal for a in self.actions]


# Conversions


def world(mdp: FiniteMDP) -> World:
    states: list[State] = list(range(len(mdp.start)))
    actions = list(range(mdp.transitions.shape[1]))
    terminal: set[State] = {s for s in range(len(states)) if mdp.terminal[s]}
    p: dict[Pair, dict[State, float]] = {}
    r: dict[tuple[State, int, State], float] = {}
    for s in range(len(states)):
        for a in actions:
            if s not in terminal:
                row = mdp.transitions[s, a].tolist()
                p[s, a] = {s2: chance for s2, chance in enumerate(row) if chance > 0}
                for s2 in range(len(states)):
                    r[s, a, s2] = float(mdp.rewards[s, a, s2])
    start: dict[State, float] = {s: float(mdp.start[s]) for s in range(len(states))}
    return World(states, actions, p, r, mdp.discount, start, terminal)


def logged(batch: TabularBatch) -> list[Logged]:
    columns = (batch.states, batch.actions, batch.rewards, batch.next_states)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def by_pair(table: Doubles) -> Values:
    return {(s, a): float(table[s, a]) for s in range(len(table)) for a in range(len(table[0]))}


def as_table(values: Values, like: Doubles) -> Doubles:
    """The values as an array; 0 where there are none, as at terminal states."""
    table = np.zeros(like.shape)
    for (s, a), value in values.items():
        table[int(s), a] = value
    return table


# Section 2


def sweeps(gamma: float) -> int:
    """How many until gamma^n is nothing."""
    return 1 if gamma == 0 else ceil(log(1e-14) / log(gamma)) + 1


def policy_values(world: World, policy: Policy) -> Values:
    """Eq. 1, again and again."""

    def onward(q: Values, s: State) -> float:
        if s in world.terminal:
            return 0.0
        return sum(policy[s, a] * q[s, a] for a in world.actions)

    q = dict.fromkeys(world.pairs(), 0.0)
    for _ in range(sweeps(world.gamma)):
        v = {s: onward(q, s) for s in world.states}
        q = {pair: backup(world, pair, v) for pair in q}
    return q


def optimal_values(world: World, allowed: set[Pair] | None = None) -> Values:
    """Q*, or the best that the allowed pairs can do; 0 at a state that has none."""

    def onward(q: Values, s: State) -> float:
        known = [q[s, a] for a in world.actions if (s, a) in q]
        chosen = [q[s, a] for a in world.actions if (s, a) in q and (s, a) in (allowed or ())]
        return max(known if allowed is None else chosen, default=0.0)

    q = dict.fromkeys(world.pairs(), 0.0)
    for _ in range(sweeps(world.gamma)):
        v = {s: onward(q, s) for s in world.states}
        q = {pair: backup(world, pair, v) for pair in q}
    return q


def backup(world: World, pair: Pair, v: dict[State, float]) -> float:
    total = 0.0
    for s2, chance in world.p[pair].items():
        future = 0.0 if s2 in world.terminal else v[s2]
        total += chance * (world.r[(*pair, s2)] + world.gamma * future)
    return total


def visited(world: World, policy: Policy) -> dict[State, float]:
    """mu_pi(s) = (1 - gamma) sum_t gamma^t P(s_t = s), step by step; actions end at terminals."""
    mu = dict.fromkeys(world.states, 0.0)
    here = world.start
    for t in range(sweeps(world.gamma)):
        there = dict.fromkeys(world.states, 0.0)
        for s in world.states:
            if s not in world.terminal:
                mu[s] += (1 - world.gamma) * world.gamma**t * here[s]
                for a in world.actions:
                    for s2, chance in world.p[s, a].items():
                        there[s2] += here[s] * policy[s, a] * chance
        here = there
    return mu


def reached(world: World, policy: Policy) -> set[State]:
    """Where mu_pi(s) > 0: what a breadth-first search finds; without a future, only the start."""
    found = {s for s, chance in world.start.items() if chance > 0 and s not in world.terminal}
    queue = deque(found if world.gamma > 0 else ())
    while queue:
        s = queue.popleft()
        for a in world.actions:
            if policy[s, a] > 0:
                for s2 in world.p[s, a]:
                    if s2 not in found and s2 not in world.terminal:
                        found.add(s2)
                        queue.append(s2)
    return found


# Section 4.1


def dead_ends(tuples: list[Logged], terminal: set[State]) -> list[int]:
    """Definition 1's offenders: s' is not terminal, and no tuple begins there."""
    begun = {s for s, _, _, _ in tuples}
    return [i for i, (_, _, _, s2) in enumerate(tuples) if s2 not in begun | terminal]


def coherent_rows(tuples: list[Logged], terminal: set[State]) -> list[int]:
    """Which tuples remain after removing one offender at a time, until there is none."""
    kept = list(range(len(tuples)))
    while offenders := dead_ends([tuples[i] for i in kept], terminal):
        del kept[offenders[-1]]
    return kept


def is_batch_constrained(world: World, policy: Policy, tuples: list[Logged]) -> bool:
    """Wherever it gets, it has an action, and each of them is in B."""
    in_batch = {(s, a) for s, a, _, _ in tuples}
    for s in reached(world, policy):
        taken = {(s, a) for a in world.actions if policy[s, a] > 0}
        if not taken or not taken <= in_batch:
            return False
    return True


def batch_world(world: World, tuples: list[Logged], q0: Values) -> World:
    """M_B, from dictionaries of counts."""
    counts: dict[Pair, dict[State, int]] = defaultdict(lambda: defaultdict(int))
    rewards: dict[tuple[State, int, State], list[float]] = defaultdict(list)
    for s, a, reward, s2 in tuples:
        counts[s, a][s2] += 1
        rewards[s, a, s2].append(reward)
    p: dict[Pair, dict[State, float]] = {}
    r: dict[tuple[State, int, State], float] = {}
    for pair in world.pairs():
        if pair in counts:
            total = sum(counts[pair].values())
            p[pair] = {s2: count / total for s2, count in counts[pair].items()}
        else:
            p[pair] = {S_INIT: 1.0}
            r[(*pair, S_INIT)] = q0[pair]
    for step, seen in rewards.items():
        r[step] = sum(seen) / len(seen)
    return World(
        [*world.states, S_INIT],
        world.actions,
        p,
        r,
        world.gamma,
        world.start | {S_INIT: 0.0},
        world.terminal | {S_INIT},
    )


def q_learning_values(world: World, tuples: list[Logged], q0: Values) -> Values:
    """Theorem 1: the optimum of M_B."""
    return optimal_values(batch_world(world, tuples, q0))


def bcql_values(
    tuples: list[Logged], terminal: set[State], gamma: float, dead_end: float | None = None
) -> Values:
    """Eq. 10 with every tuple's target averaged; what a dead end is worth, if there is one."""
    q: Values = {(s, a): 0.0 for s, a, _, _ in tuples}
    for _ in range(sweeps(gamma)):
        targets: dict[Pair, list[float]] = defaultdict(list)
        for s, a, reward, s2 in tuples:
            best = 0.0
            if s2 not in terminal:
                choices = [value for (state, _), value in q.items() if state == s2]
                if not choices and dead_end is not None:
                    choices = [dead_end]
                best = max(choices)
            targets[s, a].append(reward + gamma * best)
        q = {pair: sum(found) / len(found) for pair, found in targets.items()}
    return q


def extrapolation_error(
    world: World, tuples: list[Logged], policy: Policy, q0: Values
) -> tuple[Values, Values]:
    """Eq. 7, with Q^pi_B."""
    true = policy_values(world, policy)
    believed = policy_values(batch_world(world, tuples, q0), policy)
    return {pair: true[pair] - believed[pair] for pair in true}, believed


def recursion(
    world: World, learned: World, policy: Policy, error: Values, believed: Values
) -> tuple[Values, Values]:
    """Eq. 8's right side at every pair: with s_init among the s', and without."""

    def expected(values: Values, s: State) -> float:
        return (
            0.0
            if s in learned.terminal
            else sum(policy[s, a] * values[s, a] for a in world.actions)
        )

    whole, without = {}, {}
    for pair in world.pairs():
        terms = {}
        for s2 in learned.states:
            p_m, p_b = world.p[pair].get(s2, 0.0), learned.p[pair].get(s2, 0.0)
            r = world.r.get((*pair, s2), learned.r.get((*pair, s2), 0.0))
            terms[s2] = (p_m - p_b) * (r + world.gamma * expected(believed, s2))
            terms[s2] += p_m * world.gamma * expected(error, s2)
        whole[pair] = sum(terms.values())
        without[pair] = whole[pair] - terms[S_INIT]
    return whole, without


def total_error(world: World, policy: Policy, error: Values) -> float:
    """Eq. 9."""
    mu = visited(world, policy)
    return sum(mu[s] * policy[s, a] * abs(error[s, a]) for s, a in error)


# Supplement C


class KernelRL(NamedTuple):
    """KBRL (Eq. 19-20); V is over the actions logged at s', or over all actions."""

    tuples: list[KernelLogged]
    actions: list[int]
    gamma: float
    tau: float
    phi: Callable[[float], float]
    over_all_actions: bool = False

    def kappa(self, s: Vector, a: int) -> list[float]:
        k = [
            self.phi(dist(s, s_b) / self.tau) if action == a else 0.0
            for s_b, action, _, _, _ in self.tuples
        ]
        return [weight / sum(k) for weight in k]

    def q(self, s: Vector, a: int, v: dict[Vector, float]) -> float:
        return self.average(self.kappa(s, a), v)

    def average(self, kappa: list[float], v: dict[Vector, float]) -> float:
        total = 0.0
        for weight, (_, _, reward, s2, ends) in zip(kappa, self.tuples, strict=True):
            total += weight * (reward + self.gamma * (0.0 if ends else v[s2]))
        return total

    def values(self) -> dict[Vector, float]:
        in_batch = {(s, a) for s, a, _, _, _ in self.tuples}
        following = {s2 for _, _, _, s2, ends in self.tuples if not ends}
        kappas = {
            (s2, a): self.kappa(s2, a)
            for s2 in following
            for a in self.actions
            if self.over_all_actions or (s2, a) in in_batch
        }
        v = dict.fromkeys(following, 0.0)
        for _ in range(sweeps(self.gamma)):
            q = {pair: self.average(kappa, v) for pair, kappa in kappas.items()}
            v = {s2: max(q[s, a] for s, a in q if s == s2) for s2 in following}
        return v
