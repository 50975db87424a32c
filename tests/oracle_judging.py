"""Slow reference estimators for judging a policy from logged episodes.

Plain loops over float64 numbers, written from the published definitions only. The fast code is
compared with this file; nothing here is meant to be quick.

Sources, named again where they are used:

- Le, Voloshin, Yue 2019, Batch Policy Learning under Constraints: fitted Q evaluation.
- Fu et al. 2021, Benchmarks for Deep Off-Policy Evaluation (DOPE): clipping of the targets.
- Precup, Sutton, Singh 2000, Eligibility Traces for Off-Policy Policy Evaluation.
- Thomas 2015, Safe Reinforcement Learning (thesis): weights normalised at every time step.
- Jiang, Li 2016, Doubly Robust Off-policy Value Evaluation for Reinforcement Learning.
- Thomas, Brunskill 2016, Data-Efficient Off-Policy Policy Evaluation: DR as a sum, and WDR.
- Kish 1965, Survey Sampling: effective sample size.

Words: a "ratio" is pi(a_t|s_t) / b(a_t|s_t) of one step; a "weight" w_t is the product of the
ratios of the steps 0..t; "discount" is gamma; time steps count from 0; the first reward has the
factor gamma**0 = 1.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
Transition = tuple[int, int, float, int, bool]


@dataclass(frozen=True)
class Episode:
    """One logged episode of T >= 1 steps.

    `states` has shape (T,) with integers, or (T, k) with observations. `next_state` is the state
    after the last row. `terminated` is true if the process itself ended there; it is false if a
    time limit or the end of the log cut the episode.
    """

    states: Ints | Floats
    actions: Ints
    rewards: Floats
    terminated: bool
    next_state: int | Floats


def _check_discount(discount: float) -> None:
    """Reject a discount outside [0, 1)."""
    if not 0.0 <= discount < 1.0:
        raise ValueError("discount must be in [0, 1)")


# 1. Targets of fitted Q evaluation ------------------------------------------------------------


def fqe_target(
    rewards: Floats,
    terminated: Flags,
    next_values: Floats,
    discount: float,
    lowest: float,
    highest: float,
) -> Floats:
    """Return the regression target of every row, clipped to [lowest, highest].

    Le, Voloshin, Yue 2019: y = r + gamma * E_{a'~pi}[Q(s', a')], here with the mean over draws,
    `next_values[row, draw]` = Q(s'_row, a'_draw), a'_draw ~ pi(.|s'_row). At a terminal the second
    term is absent: its entries are not read, so they may be NaN. A row cut by a time limit has
    terminated = False and bootstraps like any other row. Every target is clipped, also the
    terminal ones, after the sum (as the DOPE code does). NaN in a value that is read stays NaN.
    """
    if lowest > highest:
        raise ValueError("lowest exceeds highest")
    rows = len(rewards)
    if len(terminated) != rows or next_values.ndim != 2 or next_values.shape[0] != rows:
        raise ValueError("rewards, terminated and next_values must have the same rows")
    draws = next_values.shape[1]
    if draws < 1:
        raise ValueError("at least one draw is needed")
    result = np.zeros(rows, dtype=np.float64)
    for row in range(rows):
        value = float(rewards[row])
        if not terminated[row]:
            total = 0.0
            for draw in range(draws):
                total += float(next_values[row, draw])
            value += discount * (total / draws)
        value = max(value, lowest)
        value = min(value, highest)
        result[row] = value
    return result


# 2. Range of the values -----------------------------------------------------------------------


def value_bounds(
    rewards: Floats, discount: float, certain_step: bool = True
) -> tuple[float, float]:
    """Return (lowest, highest), the tightest range that holds for every Q(s, a).

    Let m and M be the least and largest reward, N >= 1 the number of steps from (s, a) on.
    Q(s, a) is the mean of r_0 + gamma r_1 + ... + gamma^(N-1) r_(N-1). The first reward is
    always paid, because an action is taken in s; the episode may end at any later time.

    - m >= 0: each further step can only add, so the least value is m (end after one step).
    - m < 0: the least value is m / (1 - gamma) (never end).
    - M > 0: the largest value is M / (1 - gamma). M <= 0: it is M (end after one step).

    So lowest = min(m, m / (1 - gamma)) and highest = max(M, M / (1 - gamma)). Both ends are
    reached by some process, so no tighter range is true, and neither end cuts off a possible
    Q(s, a). That episodes are known to have k > 1 steps does not help: s may be the last state.
    The range is closed under the backup: with next values inside it, or 0, a target
    r + gamma * v is inside too, so clipping acts only on values that a fit has extrapolated.

    `certain_step=False` gives the wider min(0, m) / (1 - gamma) and max(0, M) / (1 - gamma).
    It differs only if m > 0 or M < 0; it also holds for V(terminal) = 0, which the tight range
    then leaves out. (The DOPE code clips to m / (1 - gamma) and M / (1 - gamma). That is right
    only if episodes never end: with m > 0 it cuts off the value m of a last step.)

    All of this takes m and M of the batch for the range of the true rewards.
    """
    _check_discount(discount)
    if len(rewards) == 0:
        raise ValueError("no rewards")
    least = float(rewards[0])
    largest = float(rewards[0])
    for item in rewards:
        reward = float(item)
        if not math.isfinite(reward):
            raise ValueError("rewards must be finite")
        least = min(least, reward)
        largest = max(largest, reward)
    if certain_step:
        return min(least, least / (1.0 - discount)), max(largest, largest / (1.0 - discount))
    return min(0.0, least) / (1.0 - discount), max(0.0, largest) / (1.0 - discount)


# 3. Exact fixed point of fitted Q evaluation with a table -------------------------------------


def transitions_of(episodes: Sequence[Episode]) -> list[Transition]:
    """Return the rows (s, a, r, s', terminated) of episodes with integer states.

    Only the last row of an episode can be terminal. The last row of a cut episode is an ordinary
    row that leads to `next_state`.
    """
    rows: list[Transition] = []
    for episode in episodes:
        steps = len(episode.rewards)
        for t in range(steps):
            last = t == steps - 1
            after = episode.next_state if last else episode.states[t + 1]
            rows.append(
                (
                    int(episode.states[t]),
                    int(episode.actions[t]),
                    float(episode.rewards[t]),
                    int(after),
                    last and episode.terminated,
                )
            )
    return rows


def tabular_fqe(  # noqa: PLR0912 - one line of the definition each
    transitions: Sequence[Transition],
    policy: Floats,
    discount: float,
    states: int,
    choices: int,
    initial: float = 0.0,
) -> Floats:
    """Return the table Q (states, choices) that fitted Q evaluation converges to on the batch.

    Le, Voloshin, Yue 2019, with a table as the function class: least squares gives each pair in
    the batch the average of its targets, so the fixed point satisfies, for each such pair,

        Q(s, a) = mean over its rows of [ r + gamma * sum_a' policy[s', a'] Q(s', a') ],

    the second term absent at a terminal (its s' is not read). A pair without a row is never
    updated and keeps the value `initial`. This is a linear system in the pairs of the batch;
    its matrix is I - gamma * P with row sums of P <= 1, so it has one solution for gamma < 1.
    A repeated row counts as often as it appears. The targets are not clipped. `policy[s, a]` is
    the probability of a in s; each row sums to 1.
    """
    _check_discount(discount)
    if policy.shape != (states, choices):
        raise ValueError("policy must have shape (states, choices)")
    for s in range(states):
        if abs(sum(float(p) for p in policy[s]) - 1.0) > 1e-9 or float(min(policy[s])) < 0.0:
            raise ValueError("each row of policy must be a distribution")

    def check(name: str, value: int, size: int) -> None:
        if not 0 <= value < size:
            raise ValueError(f"{name} out of range")

    index: dict[tuple[int, int], int] = {}
    counts: list[int] = []
    for s, a, _, s_next, terminated in transitions:
        check("state", s, states)
        check("choice", a, choices)
        if not terminated:
            check("next state", s_next, states)
        if (s, a) not in index:
            index[(s, a)] = len(counts)
            counts.append(0)
        counts[index[(s, a)]] += 1

    table = np.full((states, choices), initial, dtype=np.float64)
    size = len(counts)
    if size == 0:
        return table
    matrix = np.zeros((size, size), dtype=np.float64)
    right = np.zeros(size, dtype=np.float64)
    for i in range(size):
        matrix[i, i] = 1.0
    for s, a, r, s_next, terminated in transitions:
        i = index[(s, a)]
        right[i] += r / counts[i]
        if terminated:
            continue
        for a_next in range(choices):
            share = discount * float(policy[s_next, a_next]) / counts[i]
            if (s_next, a_next) in index:
                matrix[i, index[(s_next, a_next)]] -= share
            else:
                right[i] += share * initial
    solution = np.linalg.solve(matrix, right)
    for (s, a), i in index.items():
        table[s, a] = solution[i]
    return table


# 4. Return ------------------------------------------------------------------------------------


def discounted_return(rewards: Floats, discount: float) -> float:
    """Return sum_t gamma**t r_t, the first reward undiscounted (Sutton and Barto 2018, 3.3)."""
    total = 0.0
    for t in range(len(rewards)):
        total += discount**t * float(rewards[t])
    return total


# 5. Per-decision importance sampling ----------------------------------------------------------


def cumulative_weights(ratios: Floats) -> Floats:
    """Return w_t = product over k <= t of the ratios of single steps (Precup et al. 2000)."""
    weights = np.zeros(len(ratios), dtype=np.float64)
    weight = 1.0
    for t in range(len(ratios)):
        ratio = float(ratios[t])
        if not math.isfinite(ratio) or ratio < 0.0:
            raise ValueError("ratios must be finite and not negative")
        weight *= ratio
        weights[t] = weight
    return weights


def _weights_of(episodes: Sequence[Episode], ratios: Sequence[Floats]) -> list[Floats]:
    """Check the lengths and return the weights of each episode."""
    if len(episodes) == 0:
        raise ValueError("no episodes")
    if len(ratios) != len(episodes):
        raise ValueError("one array of ratios per episode is needed")
    weights: list[Floats] = []
    for episode, own in zip(episodes, ratios, strict=True):
        if len(episode.rewards) < 1:
            raise ValueError("an episode has at least one step")
        if len(own) != len(episode.rewards):
            raise ValueError("one ratio per step is needed")
        weights.append(cumulative_weights(own))
    return weights


def _weight_at(weights: Floats, t: int) -> float:
    """Return w_t; 1 for t = -1; the last weight once the episode has ended."""
    if t < 0:
        return 1.0
    return float(weights[min(t, len(weights) - 1)])


def weight_sums(weights: Sequence[Floats]) -> Floats:
    """Return sum_i w_t^i for each t up to the longest episode; ended episodes keep their last."""
    longest = max(len(own) for own in weights)
    sums = np.zeros(longest, dtype=np.float64)
    for t in range(longest):
        for own in weights:
            sums[t] += _weight_at(own, t)
    return sums


def ordinary_per_decision(
    episodes: Sequence[Episode], ratios: Sequence[Floats], discount: float
) -> float:
    """Return the mean over episodes of sum_t gamma**t w_t r_t.

    Precup, Sutton, Singh 2000, per-decision importance sampling. `ratios[i][t]` is the ratio of
    the single step t of episode i. Unbiased for the return up to the end of the episodes; what
    lies after a cut is not estimated.
    """
    weights = _weights_of(episodes, ratios)
    total = 0.0
    for episode, own in zip(episodes, weights, strict=True):
        for t in range(len(own)):
            total += discount**t * float(own[t]) * float(episode.rewards[t])
    return total / len(episodes)


def weighted_per_decision(
    episodes: Sequence[Episode], ratios: Sequence[Floats], discount: float
) -> float:
    """Return sum_t gamma**t (sum_i w_t^i r_t^i) / (sum_i w_t^i); 0/0 counts as 0.

    Thomas 2015, "consistent weighted per-decision importance sampling": the weights are
    normalised separately at every time step. (The weighted estimator of Precup, Sutton, Singh
    2000 divides once, by the sum over episodes AND steps; it is another number.)

    An ended episode counts as sitting in an absorbing state with reward 0 and one possible
    action, whose ratio is 1: it keeps its last weight in the denominator. Why this is
    consistent: then w_t is a martingale with mean 1 over ALL episodes of the behaviour, so
    (sum_i w_t^i) / n tends to 1 and (sum_i w_t^i r_t^i) / n to E_pi[r_t], r_t = 0 after the end.
    If ended episodes were left out, the denominator would tend to P_pi(alive at t) and the step
    to E_pi[r_t | alive at t], a different number. With the weight reset to 1 after the end, it
    would tend to P_pi(alive) + P_b(ended), also not 1. The same rule holds for cut episodes, so
    what is estimated is the return up to the cut.

    The products are taken as they stand, not in logarithms: if all weights of a step underflow
    to 0, the step counts as 0. Code that works with logarithms differs there, and only there.
    """
    weights = _weights_of(episodes, ratios)
    sums = weight_sums(weights)
    total = 0.0
    for t in range(len(sums)):
        top = 0.0
        for episode, own in zip(episodes, weights, strict=True):
            if t < len(own):
                top += float(own[t]) * float(episode.rewards[t])
        if sums[t] > 0.0:
            total += discount**t * top / float(sums[t])
    return total


# 6. Doubly robust -----------------------------------------------------------------------------


def _check_values(
    episodes: Sequence[Episode],
    q_values: Sequence[Floats],
    v_values: Sequence[Floats],
    final_values: Floats | None,
) -> Floats:
    """Check the shapes and return the final values, zeros if none are given."""
    if len(q_values) != len(episodes) or len(v_values) != len(episodes):
        raise ValueError("q_values and v_values need one array per episode")
    for episode, q_own, v_own in zip(episodes, q_values, v_values, strict=True):
        if len(q_own) != len(episode.rewards) or len(v_own) != len(episode.rewards):
            raise ValueError("q_values and v_values need one number per step")
    if final_values is None:
        return np.zeros(len(episodes), dtype=np.float64)
    if final_values.shape != (len(episodes),):
        raise ValueError("final_values needs one number per episode")
    for i in range(len(episodes)):
        if episodes[i].terminated and float(final_values[i]) != 0.0:
            raise ValueError("the final value of a terminated episode must be 0")
    return final_values


def doubly_robust_each(
    episodes: Sequence[Episode],
    ratios: Sequence[Floats],
    q_values: Sequence[Floats],
    v_values: Sequence[Floats],
    discount: float,
    final_values: Floats | None = None,
) -> Floats:
    """Return, per episode, sum_t gamma**t [w_t r_t - w_t Q(s_t, a_t) + w_{t-1} V(s_t)].

    Thomas and Brunskill 2016, the sum form of Jiang and Li 2016; w_{-1} = 1. `q_values[i][t]` is
    Q(s_t, a_t) of the logged action and `v_values[i][t]` is V(s_t) = E_{a~pi} Q(s_t, a).
    The sum stops at the end of the episode. For an episode cut after T steps, `final_values[i]`
    = V(s_T) adds gamma**T w_{T-1} V(s_T); this equals the recursion of Jiang and Li,
    DR_t = V_t + ratio_t (r_t + gamma DR_{t+1} - Q_t), started at DR_T = V(s_T).
    """
    weights = _weights_of(episodes, ratios)
    finals = _check_values(episodes, q_values, v_values, final_values)
    result = np.zeros(len(episodes), dtype=np.float64)
    for i in range(len(episodes)):
        own = weights[i]
        steps = len(own)
        for t in range(steps):
            gap = float(episodes[i].rewards[t]) - float(q_values[i][t])
            now, before = _weight_at(own, t), _weight_at(own, t - 1)
            result[i] += discount**t * (now * gap + before * float(v_values[i][t]))
        result[i] += discount**steps * _weight_at(own, steps - 1) * float(finals[i])
    return result


def doubly_robust(
    episodes: Sequence[Episode],
    ratios: Sequence[Floats],
    q_values: Sequence[Floats],
    v_values: Sequence[Floats],
    discount: float,
    final_values: Floats | None = None,
) -> float:
    """Return the mean over episodes of `doubly_robust_each`."""
    each = doubly_robust_each(episodes, ratios, q_values, v_values, discount, final_values)
    total = 0.0
    for value in each:
        total += float(value)
    return total / len(each)


def weighted_doubly_robust(
    episodes: Sequence[Episode],
    ratios: Sequence[Floats],
    q_values: Sequence[Floats],
    v_values: Sequence[Floats],
    discount: float,
    final_values: Floats | None = None,
) -> float:
    """Return sum_i sum_t gamma**t [u_t^i (r_t^i - Q_t^i) + u_{t-1}^i V_t^i].

    Thomas and Brunskill 2016, WDR: u_t^i = w_t^i / sum_j w_t^j in place of w_t^i / n, and
    u_{-1}^i = 1/n. An ended episode keeps its last weight in the denominator (see
    `weighted_per_decision`); in its absorbing state r = Q = V = 0, so it adds no term. If all
    weights of a step are 0, u_t = 0. The final value of an episode cut after T steps adds
    gamma**T u_{T-1}^i V(s_T), with the denominator of step T-1.
    """
    weights = _weights_of(episodes, ratios)
    finals = _check_values(episodes, q_values, v_values, final_values)
    sums = weight_sums(weights)

    def share(i: int, t: int) -> float:
        if t < 0:
            return 1.0 / len(episodes)
        if sums[t] == 0.0:
            return 0.0
        return _weight_at(weights[i], t) / float(sums[t])

    total = 0.0
    for i in range(len(episodes)):
        steps = len(weights[i])
        for t in range(steps):
            gap = float(episodes[i].rewards[t]) - float(q_values[i][t])
            value = share(i, t) * gap + share(i, t - 1) * float(v_values[i][t])
            total += discount**t * value
        total += discount**steps * share(i, steps - 1) * float(finals[i])
    return total


# 7. Effective sample size ---------------------------------------------------------------------


def effective_sample_size(weights: Floats) -> float:
    """Return (sum w)**2 / sum w**2 (Kish 1965); 0 if all weights are 0 or there are none."""
    total = 0.0
    squares = 0.0
    largest = 0.0
    for item in weights:
        if not math.isfinite(float(item)) or float(item) < 0.0:
            raise ValueError("weights must be finite and not negative")
        largest = max(largest, float(item))
    if largest == 0.0:
        return 0.0
    for item in weights:
        scaled = float(item) / largest  # the size does not depend on the scale; no underflow
        total += scaled
        squares += scaled * scaled
    return total * total / squares


# 8. Interval from bootstrap fits --------------------------------------------------------------


def student_within(t: float, degrees: int) -> float:
    """Return P(|T| <= t) for Student's T with whole degrees of freedom.

    Abramowitz and Stegun 1964, formulas 26.7.3 (odd) and 26.7.4 (even).
    """
    angle = math.atan2(t, math.sqrt(degrees))
    sine, cosine = math.sin(angle), math.cos(angle)
    if degrees % 2 == 1:
        series, term = 0.0, cosine
        for k in range(1, degrees - 1, 2):  # powers 1, 3, ..., degrees - 2 of the cosine
            series += term
            term *= cosine * cosine * (k + 1) / (k + 2)
        return 2.0 / math.pi * (angle + sine * series)
    series, term = 0.0, 1.0
    for k in range(0, degrees - 1, 2):  # powers 0, 2, ..., degrees - 2 of the cosine
        series += term
        term *= cosine * cosine * (k + 1) / (k + 2)
    return sine * series


def student_quantile(level: float, degrees: int) -> float:
    """Return the t with P(|T| <= t) = level, that is the (1 + level) / 2 quantile; bisection."""
    if not 0.0 < level < 1.0 or degrees < 1:
        raise ValueError("level must be in (0, 1) and degrees at least 1")
    low, high = 0.0, 1.0
    while student_within(high, degrees) < level:
        high *= 2.0
    for _ in range(200):
        middle = 0.5 * (low + high)
        if student_within(middle, degrees) < level:
            low = middle
        else:
            high = middle
    return 0.5 * (low + high)


def student_interval(fits: Floats, point: float, level: float = 0.95) -> tuple[float, float]:
    """Return point -+ q * sd, two-sided.

    sd is the standard deviation (ddof=1) of the bootstrap fits around their own mean, not around
    `point`. q is the (1 + level) / 2 quantile of Student's t with len(fits) - 1 degrees. sd is
    not divided by sqrt(len(fits)): the spread of bootstrap fits already is the standard error of
    the point (Efron, Tibshirani 1993, standard interval with t in place of normal quantile).
    """
    count = len(fits)
    if count < 2:
        raise ValueError("at least two fits are needed")
    mean = 0.0
    for item in fits:
        mean += float(item) / count
    squares = 0.0
    for item in fits:
        squares += (float(item) - mean) ** 2
    half = student_quantile(level, count - 1) * math.sqrt(squares / (count - 1))
    return point - half, point + half


# Self-check -----------------------------------------------------------------------------------

# A deterministic MDP, discount 1/2, two states, two choices:
#   state 0: choice 0 -> reward 1, to state 1     choice 1 -> reward 2, terminal
#   state 1: choice 0 -> reward 4, terminal       choice 1 -> reward 0, to state 0
# Policy pi: (1/2, 1/2) in state 0, (3/4, 1/4) in state 1.
# Behaviour b: (1/4, 3/4) in state 0, (1/2, 1/2) in state 1.
# By hand: V0 = 1/2 (1 + V1/2) + 1/2 * 2 = 3/2 + V1/4,  V1 = 3/4 * 4 + 1/4 * V0/2 = 3 + V0/8,
# so V0 = 9/4 + V0/32 = 72/31, V1 = 102/31; Q00 = 1 + 51/31 = 82/31, Q01 = 2, Q10 = 4,
# Q11 = 36/31. Ratios pi/b: state 0: 2, 2/3; state 1: 3/2, 1/2.
_STEP: dict[tuple[int, int], tuple[float, int, bool]] = {
    (0, 0): (1.0, 1, False),
    (0, 1): (2.0, -1, True),
    (1, 0): (4.0, -1, True),
    (1, 1): (0.0, 0, False),
}
_POLICY: Floats = np.array([[0.5, 0.5], [0.75, 0.25]], dtype=np.float64)
_RATIO: Floats = np.array([[2.0, 2.0 / 3.0], [1.5, 0.5]], dtype=np.float64)
_EXACT_Q: Floats = np.array([[82.0 / 31.0, 2.0], [4.0, 36.0 / 31.0]], dtype=np.float64)
_EXACT_V: Floats = np.array([72.0 / 31.0, 102.0 / 31.0], dtype=np.float64)


def _play(choices: Sequence[int]) -> Episode:
    """Play the choices from state 0; the episode is cut if the last row is not terminal."""
    state, ended = 0, False
    states: list[int] = []
    rewards: list[float] = []
    for choice in choices:
        assert not ended
        reward, after, ended = _STEP[(state, choice)]
        states.append(state)
        rewards.append(reward)
        state = after
    return Episode(
        states=np.array(states, dtype=np.int64),
        actions=np.array(choices, dtype=np.int64),
        rewards=np.array(rewards, dtype=np.float64),
        terminated=ended,
        next_state=state,
    )


def _look_up(table: Floats, episode: Episode) -> Floats:
    """Return table[s_t, a_t], or table[s_t] for a table of states."""
    result = np.zeros(len(episode.rewards), dtype=np.float64)
    for t in range(len(result)):
        s, a = int(episode.states[t]), int(episode.actions[t])
        result[t] = table[s, a] if table.ndim == 2 else table[s]
    return result


def _finals(values: Floats, episodes: Sequence[Episode]) -> Floats:
    """Return V(s_T) of the cut episodes, 0 of the terminated ones."""
    result = np.zeros(len(episodes), dtype=np.float64)
    for i, episode in enumerate(episodes):
        if not episode.terminated:
            assert isinstance(episode.next_state, int)
            result[i] = values[episode.next_state]
    return result


def _near(left: float, right: float) -> None:
    """Fail unless the two numbers agree to 1e-12."""
    if not abs(left - right) <= 1e-12 * max(1.0, abs(left), abs(right)):
        raise AssertionError(f"{left!r} is not {right!r}")


def _refused(call: str, names: dict[str, object]) -> None:
    """Fail unless the expression raises ValueError."""
    try:
        eval(call, globals(), names)
    except ValueError:
        return
    raise AssertionError(f"accepted: {call}")


def _check_targets() -> None:
    nan = math.nan
    # rows: ordinary 1 + (2 + 4)/2 / 2 = 2.5; terminal 3 (NaN not read); cut by a time limit, so
    # bootstrapped, -1 + (-2 - 2)/2 / 2 = -2; clipped from 101 to 8; terminal clipped from -9 to -4
    target = fqe_target(
        np.array([1.0, 3.0, -1.0, 1.0, -9.0]),
        np.array([False, True, False, False, True]),
        np.array([[2.0, 4.0], [nan, nan], [-2.0, -2.0], [200.0, 200.0], [0.0, 0.0]]),
        0.5,
        -4.0,
        8.0,
    )
    for got, want in zip(target, [2.5, 3.0, -2.0, 8.0, -4.0], strict=True):
        _near(float(got), want)
    assert value_bounds(np.array([-1.0, 3.0]), 0.5) == (-2.0, 6.0)
    assert value_bounds(np.array([1.0, 3.0]), 0.5) == (1.0, 6.0)
    assert value_bounds(np.array([-3.0, -1.0]), 0.5) == (-6.0, -1.0)
    assert value_bounds(np.array([0.0, 0.0]), 0.5) == (0.0, 0.0)
    assert value_bounds(np.array([1.0, 3.0]), 0.5, certain_step=False) == (0.0, 6.0)
    assert value_bounds(np.array([-3.0, -1.0]), 0.5, certain_step=False) == (-6.0, 0.0)
    assert value_bounds(np.array([-1.0, 3.0]), 0.5, certain_step=False) == (-2.0, 6.0)
    _refused("value_bounds(np.array([1.0]), 1.0)", {})
    _near(discounted_return(np.array([1.0, 0.0, 4.0]), 0.5), 2.0)


def _check_table() -> None:
    everything: list[Transition] = [
        (s, a, r, after, ended) for (s, a), (r, after, ended) in _STEP.items()
    ]
    table = tabular_fqe(everything, _POLICY, 0.5, 2, 2)
    for s in range(2):
        for a in range(2):
            _near(float(table[s, a]), float(_EXACT_Q[s, a]))
    # without the pair (1, 1), which keeps c: V1 = 3 + c/4, Q00 = 1 + V1/2 = 5/2 + c/8
    for c, want in [(0.0, 2.5), (8.0, 3.5)]:
        table = tabular_fqe(everything[:3], _POLICY, 0.5, 2, 2, initial=c)
        _near(float(table[0, 0]), want)
        _near(float(table[1, 1]), c)
    # three rows of the pair (0, 0): reward 1 to state 1 twice, reward 7 and terminal once.
    # Q00 = (1 + V1/2) * 2/3 + 7/3, V0 = Q00/2 + 1, V1 = 3 + V0/8; with q = Q00:
    # V1 = 25/8 + q/16; q = 3 + 25/24 + q/48, so q = (97/24) * (48/47) = 194/47
    mixed: list[Transition] = [*everything, everything[0], (0, 0, 7.0, 1, True)]
    table = tabular_fqe(mixed, _POLICY, 0.5, 2, 2)
    _near(float(table[0, 0]), 194.0 / 47.0)
    # the same by another way: repeat the averages of the targets until nothing changes
    slow = np.zeros((2, 2), dtype=np.float64)
    for _ in range(200):
        sums, counts = np.zeros((2, 2)), np.zeros((2, 2))
        for s, a, r, after, ended in mixed:
            values = np.zeros((1, 1))
            if not ended:
                values[0, 0] = float(sum(_POLICY[after, k] * slow[after, k] for k in range(2)))
            row = fqe_target(np.array([r]), np.array([ended]), values, 0.5, -99.0, 99.0)
            sums[s, a] += row[0]
            counts[s, a] += 1.0
        slow = sums / counts
    for s in range(2):
        for a in range(2):
            _near(float(table[s, a]), float(slow[s, a]))
    # through episodes: these three cover all four pairs, the last one is cut after (1, 1)
    rows = transitions_of([_play([0, 0]), _play([1]), _play([0, 1])])
    assert rows[-1] == (1, 1, 0.0, 0, False)
    table = tabular_fqe(rows, _POLICY, 0.5, 2, 2)
    _near(float(table[1, 1]), 36.0 / 31.0)


def _check_small() -> None:
    # A: weights 2, 3, rewards 1, 4, terminal. B: weight 2/3, reward 2, terminal.
    # C: weights 2, 1, rewards 1, 0, cut in state 0.
    episodes = [_play([0, 0]), _play([1]), _play([0, 1])]
    ratios = [_look_up(_RATIO, episode) for episode in episodes]
    ones = [np.ones(len(episode.rewards), dtype=np.float64) for episode in episodes]
    zeros = [np.zeros(len(episode.rewards), dtype=np.float64) for episode in episodes]
    # ratios of 1: the plain mean return, (3 + 2 + 1) / 3 = 2, also for the weighted ones
    mean = sum(discounted_return(episode.rewards, 0.5) for episode in episodes) / 3.0
    _near(mean, 2.0)
    _near(ordinary_per_decision(episodes, ones, 0.5), mean)
    _near(weighted_per_decision(episodes, ones, 0.5), mean)
    # (2 + 12/2) + 4/3 + 2 = 34/3, a third of it
    _near(ordinary_per_decision(episodes, ratios, 0.5), 34.0 / 9.0)
    # t=0: (2 + 4/3 + 2) / (2 + 2/3 + 2) = 8/7; t=1: 12 / (3 + 2/3 + 1) = 18/7, halved
    _near(weighted_per_decision(episodes, ratios, 0.5), 17.0 / 7.0)
    # Q = V = 0
    _near(doubly_robust(episodes, ratios, zeros, zeros, 0.5), 34.0 / 9.0)
    _near(weighted_doubly_robust(episodes, ratios, zeros, zeros, 0.5), 17.0 / 7.0)
    # Q = V = 1. A: (2-2+1) + (12-3+2)/2 = 13/2; B: 4/3-2/3+1 = 5/3; C: (2-2+1) + (0-1+2)/2 = 3/2
    each = doubly_robust_each(episodes, ratios, ones, ones, 0.5)
    for got, want in zip(each, [6.5, 5.0 / 3.0, 1.5], strict=True):
        _near(float(got), want)
    _near(doubly_robust(episodes, ratios, ones, ones, 0.5), 29.0 / 9.0)
    # weighted: t=0: 8/7 - 1 + 1; t=1: [(12-3-1) + (2+2)] / (14/3) / 2 = 9/7
    _near(weighted_doubly_robust(episodes, ratios, ones, ones, 0.5), 17.0 / 7.0)
    # final value 1 of C: 1/4 * 1 * 1 = 1/4; weighted: 1/4 * 1 / (14/3) = 3/56
    final = np.array([0.0, 0.0, 1.0])
    _near(doubly_robust(episodes, ratios, ones, ones, 0.5, final), 119.0 / 36.0)
    _near(weighted_doubly_robust(episodes, ratios, ones, ones, 0.5, final), 139.0 / 56.0)
    # the recursion of Jiang and Li gives the same
    generator = np.random.default_rng(5)
    q_values = [generator.normal(size=len(one)) for one in ones]
    v_values = [generator.normal(size=len(one)) for one in ones]
    final[2] = 0.7
    each = doubly_robust_each(episodes, ratios, q_values, v_values, 0.5, final)
    for i, episode in enumerate(episodes):
        value = float(final[i])
        for t in reversed(range(len(episode.rewards))):
            inside = float(episode.rewards[t]) + 0.5 * value - float(q_values[i][t])
            value = float(v_values[i][t]) + float(ratios[i][t]) * inside
        _near(float(each[i]), value)
    # exact Q and V, deterministic MDP: every episode gives V0 = 72/31, so the variance is zero
    q_values = [_look_up(_EXACT_Q, episode) for episode in episodes]
    v_values = [_look_up(_EXACT_V, episode) for episode in episodes]
    finals = _finals(_EXACT_V, episodes)
    for value in doubly_robust_each(episodes, ratios, q_values, v_values, 0.5, finals):
        _near(float(value), 72.0 / 31.0)
    got = weighted_doubly_robust(episodes, ratios, q_values, v_values, 0.5, finals)
    _near(got, 72.0 / 31.0)
    # all weights 0 from the second step on: the step counts as 0
    dead = [np.array([1.0, 0.0]), np.array([0.0]), np.array([1.0, 0.0])]
    _near(weighted_per_decision(episodes, dead, 0.5), 1.0)
    got = weighted_doubly_robust(episodes, dead, q_values, v_values, 0.5, finals)
    _near(got, 72.0 / 31.0)
    wrong = np.array([1.0, 0.0, 0.0])
    names: dict[str, object] = {"e": episodes, "r": ratios, "q": q_values, "f": wrong}
    _refused("doubly_robust(e, r, q, q, 0.5, f)", names)
    _refused("weighted_per_decision(e, r[:2], 0.5)", names)
    _refused("ordinary_per_decision([], [], 0.5)", names)


def _check_exhaustive() -> None:
    # All episodes of b cut after 3 steps, as often as their probability times 32 says:
    # (1) 24, (0,0) 4, (0,1,1) 3, (0,1,0) 1. Averages over this batch are exact expectations.
    # Return of pi cut after 3 steps: 1-step V0 = 3/2; 2-step V1 = 3 + 1/8 * 3/2 = 51/16;
    # 3-step V0 = 3/2 + 1/4 * 51/16 = 147/64.
    episodes: list[Episode] = []
    for choices, count in [([1], 24), ([0, 0], 4), ([0, 1, 1], 3), ([0, 1, 0], 1)]:
        episodes += [_play(choices)] * count
    ratios = [_look_up(_RATIO, episode) for episode in episodes]
    # ended episodes that keep their last weight: the mean weight is 1 at every step
    for total in weight_sums([cumulative_weights(own) for own in ratios]):
        _near(float(total), 32.0)
    _near(ordinary_per_decision(episodes, ratios, 0.5), 147.0 / 64.0)
    _near(weighted_per_decision(episodes, ratios, 0.5), 147.0 / 64.0)
    # any Q with V = E_pi Q is unbiased, and exact final values complete the return to V0
    table = np.array([[3.0, -1.0], [0.5, 10.0]], dtype=np.float64)
    average = np.array([float(sum(_POLICY[s, a] * table[s, a] for a in range(2))) for s in (0, 1)])
    q_values = [_look_up(table, episode) for episode in episodes]
    v_values = [_look_up(average, episode) for episode in episodes]
    finals = _finals(_EXACT_V, episodes)
    _near(doubly_robust(episodes, ratios, q_values, v_values, 0.5), 147.0 / 64.0)
    _near(weighted_doubly_robust(episodes, ratios, q_values, v_values, 0.5), 147.0 / 64.0)
    _near(doubly_robust(episodes, ratios, q_values, v_values, 0.5, finals), 72.0 / 31.0)
    _near(weighted_doubly_robust(episodes, ratios, q_values, v_values, 0.5, finals), 72.0 / 31.0)


def _check_spread() -> None:
    _near(effective_sample_size(np.ones(4)), 4.0)
    _near(effective_sample_size(np.array([5.0, 0.0, 0.0])), 1.0)
    _near(effective_sample_size(np.array([2.0, 2.0 / 3.0, 2.0])), 49.0 / 19.0)
    _near(effective_sample_size(np.array([1e-300, 1e-300])), 2.0)
    assert effective_sample_size(np.zeros(3)) == 0.0
    # quantiles in closed form: tan(pi/2 * level) for 1 degree, level * sqrt(2 / (1 - level**2))
    # for 2; printed tables for the others
    _near(student_quantile(0.95, 1), math.tan(0.475 * math.pi))
    _near(student_quantile(0.95, 2), 0.95 * math.sqrt(2.0 / (1.0 - 0.95**2)))
    for degrees, want in [(3, 3.182), (4, 2.776), (9, 2.262), (10, 2.228), (29, 2.045)]:
        assert round(student_quantile(0.95, degrees), 3) == want
    # fits 1, 2, 3: sd 1, two degrees; the centre is the point, not the mean of the fits
    low, high = student_interval(np.array([1.0, 2.0, 3.0]), 7.0)
    _near(high - 7.0, student_quantile(0.95, 2))
    _near(7.0 - low, student_quantile(0.95, 2))


if __name__ == "__main__":
    _check_targets()
    _check_table()
    _check_small()
    _check_exhaustive()
    _check_spread()
    print("oracle: all checks hold")
