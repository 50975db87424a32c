"""Each fault is put into a sound batch and found with its rows; sound batches have none."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import bcq
from bcq.collection.experts import find
from bcq.collection.recipes import Recipe, collect, imitation, imperfect
from bcq.data.bounds import ActionBounds
from bcq.data.checks import check
from bcq.data.columns import Columns, Finding, Provenance
from bcq.data.dataset import Dataset
from bcq.data.doctor import examination
from bcq.data.doctor.examination import ADVISORY_CHECKS, examine_dataset
from bcq.data.doctor.numbers import discrete_actions, outliers
from bcq.data.doctor.report import as_json, as_text
from bcq.system.errors import InputError

Arrays = dict[str, NDArray[Any]]
LENGTHS = (40, 60, 25, 80, 50, 35, 70, 45, 55, 30, 65, 45)  # 600 rows
ENDS = np.cumsum(LENGTHS) - 1
ROWS = int(ENDS[-1]) + 1


def examine(
    columns: Columns, bounds: ActionBounds | None = None, *, discount: float | None = 0.99
) -> list[Finding]:
    return examination.examine(check(columns, bounds), discount=discount).findings


def repair(columns: Columns, bounds: ActionBounds | None = None) -> Columns:
    return examination.examine(check(columns, bounds)).repaired()


def sound() -> Arrays:
    """Twelve episodes of a noisy linear system, some terminated and some cut."""
    generator = np.random.default_rng(0)
    arrays: dict[str, list[Any]] = {
        name: [] for name in ("observations", "actions", "rewards", "next_observations")
    }
    for length in LENGTHS:
        state = generator.normal(size=3) * 3
        for _ in range(length):
            action = generator.uniform(-1, 1, 2)
            following = 0.9 * state + [action[0], action[1], action.sum()]
            following = following + 0.1 * generator.normal(size=3)
            for name, values in zip(
                arrays, (state, action, -((following**2).sum()), following), strict=True
            ):
                arrays[name].append(values)
            state = following
    flags = {
        "terminated": np.isin(np.arange(ROWS), ENDS[::2]),
        "truncated": np.isin(np.arange(ROWS), ENDS[1::2]),
    }
    return {name: np.array(values, np.float32) for name, values in arrays.items()} | flags


def columns(arrays: Arrays) -> Columns:
    return Columns("log", arrays, Provenance())


def findings(arrays: Arrays, **options: Any) -> dict[str, Finding]:
    """What is found beyond the notes that the sound batch gives too, by kind."""
    return {f.kind: f for f in examine(columns(arrays), **options)}


def worse_than_a_note(found: list[Finding]) -> list[str]:
    return [f"{f.severity} {f.kind}: {f}" for f in found if f.severity != "note"]


# Sound data


def test_a_sound_batch_gives_notes_only() -> None:
    found = examine(columns(sound()))
    assert worse_than_a_note(found) == []
    assert {f.kind for f in found} == {"few-transitions", "long-horizon"}


def test_without_next_observations_it_is_as_sound() -> None:
    arrays = sound()
    del arrays["next_observations"]
    assert worse_than_a_note(examine(columns(arrays))) == []


@pytest.mark.parametrize("environment", ["Pendulum-v1", "Reacher-v5", "Hopper-v5", "Walker2d-v5"])
@pytest.mark.parametrize("paired", [True, False])
def test_random_batches_of_the_papers_tasks_are_clean(environment: str, paired: bool) -> None:
    dataset = bcq.collect_random(environment, transitions=2_000, seed=1)
    batch = dataset.columns()
    if not paired:
        arrays = {n: v for n, v in batch.arrays.items() if n != "next_observations"}
        batch = replace(batch, arrays=arrays)
    assert worse_than_a_note(examine(batch)) == []


@pytest.mark.parametrize("environment", ["Pendulum-v1", "Hopper-v5"])
@pytest.mark.parametrize("field", ["rewards", "actions"])
def test_a_row_too_late_is_noticed_in_simulated_batches(environment: str, field: str) -> None:
    batch = bcq.collect_random(environment, transitions=2_000, seed=1).columns()
    late = {**batch.arrays, field: np.roll(batch.arrays[field], 1, axis=0)}
    found = worse_than_a_note(examine(replace(batch, arrays=late)))
    assert [line.split()[1] for line in found] == [
        "delayed-rewards:" if field == "rewards" else "shifted-actions:"
    ]


CART = ActionBounds(np.array([-9.0], np.float32), np.array([9.0], np.float32))


def controlled(gain: float, noise: float, disturbance: float, seed: int) -> Arrays:
    """A cart that a controller brings to rest: its next action tells where the cart has gone."""
    random = np.random.default_rng(seed)
    carts = random.normal(size=(30, 2)) * [3, 1]
    observations, actions = np.empty((30, 100, 2)), np.empty((30, 100, 1))
    for step in range(100):
        acted = -gain * (carts[:, 0] + carts[:, 1]) + noise * random.normal(size=30)
        observations[:, step], actions[:, step, 0] = carts, acted
        place, speed = carts.T
        pushed = disturbance * random.normal(size=(30, 2))
        carts = np.stack([place + 0.1 * speed, 0.98 * speed + 0.1 * acted], axis=1) + pushed
    return {
        "observations": observations.reshape(-1, 2).astype(np.float32),
        "actions": actions.reshape(-1, 1).astype(np.float32),
        "rewards": -(observations[..., 0] ** 2).reshape(-1).astype(np.float32),
        "terminated": np.zeros(3_000, bool),
        "truncated": np.arange(3_000) % 100 == 99,
    }


@pytest.mark.parametrize("noise", [0.0, 0.05, 0.3])
@pytest.mark.parametrize("disturbance", [0.02, 0.3])
@pytest.mark.parametrize("seed", [0, 1])
def test_the_actions_of_a_feedback_controller_are_where_they_belong(
    noise: float, disturbance: float, seed: int
) -> None:
    arrays = controlled(0.4, noise, disturbance, seed)
    assert "shifted-actions" not in findings(arrays, bounds=CART)


@pytest.mark.parametrize("shift", [-1, 1])
def test_the_shifted_actions_of_a_feedback_controller_are_noticed(shift: int) -> None:
    arrays = controlled(0.4, 0.3, 0.02, 0)
    arrays["actions"] = np.roll(arrays["actions"], shift, axis=0)
    assert "shifted-actions" in findings(arrays, bounds=CART)


@pytest.mark.parametrize("rows", [1, 2, 3, 7])
def test_tiny_batches_are_examined(rows: int) -> None:
    arrays = {name: values[:rows] for name, values in sound().items()}
    assert worse_than_a_note(examine(columns(arrays))) == []
    for end in ("terminated", "truncated"):
        arrays |= {end: np.arange(rows) == rows - 1}
        assert worse_than_a_note(examine(columns(arrays))) == []


# Errors: those that a `Dataset` refuses, all in one report


def test_errors_are_those_of_the_dataset_and_all_are_told() -> None:
    arrays = sound()
    arrays["rewards"][[17, 30]] = np.nan
    arrays["observations"][5, 1] = np.inf
    arrays["actions"][100] = 7
    arrays["terminated"] = arrays["terminated"].astype(float)
    arrays["terminated"][200] = 2
    found = [f for f in examine(columns(arrays)) if f.severity == "error"]
    rows = {(f.kind, f.field): f.rows.tolist() for f in found if f.rows is not None}
    assert rows == {
        ("not-finite", "rewards"): [17, 30],
        ("not-finite", "observations"): [5],
        ("not-a-flag", "terminated"): [200],
        ("out-of-bounds", "actions"): [100],
    }
    with pytest.raises(InputError) as caught:
        Dataset.from_columns(columns(arrays))
    assert str(found[0]) in str(caught.value)


@pytest.mark.parametrize(
    ("change", "kind", "field"),
    [
        ({"rewards": np.zeros(ROWS - 1)}, "different-lengths", "rewards"),
        ({"rewards": np.full(ROWS, "a")}, "not-numbers", "rewards"),
        ({"observations": np.full((ROWS, 3), None)}, "not-numbers", "observations"),
        ({"actions": np.zeros((ROWS, 1, 1))}, "wrong-shape", "actions"),
    ],
)
def test_what_is_no_batch_at_all_is_told(change: Arrays, kind: str, field: str) -> None:
    found = examine(columns(sound() | change))
    assert [(f.severity, f.kind, f.field) for f in found] == [("error", kind, field)]
    missing = sound()
    del missing["terminated"]
    assert [f.kind for f in examine(columns(missing))] == ["missing-field"]


def test_advice_is_given_beside_errors_with_the_rows_of_the_file() -> None:
    arrays = sound()
    arrays["rewards"][3] = np.nan
    arrays["rewards"][400] = 1e6
    found = findings(arrays)
    assert found["outlier"].rows is not None
    assert found["outlier"].rows.tolist() == [400]
    assert "next-mismatch" not in found


# Advice: each fault, and the rows it must name


def test_the_dtype_that_float32_cannot_hold_is_told() -> None:
    arrays = sound()
    clock = 1.7e9 + np.arange(ROWS) * 0.5
    arrays["observations"] = np.column_stack([arrays["observations"], clock])
    arrays["next_observations"] = np.column_stack([arrays["next_observations"], clock + 0.5])
    assert "column 3" in findings(arrays)["lost-precision"].problem


@pytest.mark.parametrize(("offset", "told"), [(50.0, True), (9.0, False), (-50.0, True)])
def test_a_column_that_stays_far_from_zero_is_told(offset: float, told: bool) -> None:
    arrays = sound()
    for name in ("observations", "next_observations"):
        arrays[name][:, 2] = arrays[name][:, 2] + offset
    found = findings(arrays)
    assert ("far-from-zero" in found) == told
    if told:
        assert "values far from zero in column 2: " in found["far-from-zero"].problem
        assert found["far-from-zero"].rows is not None
        assert len(found["far-from-zero"].rows) == ROWS


def constant_observation(arrays: Arrays) -> list[int]:
    arrays["observations"][:, 1] = arrays["next_observations"][:, 1] = 4
    return list(range(ROWS))


def constant_action(arrays: Arrays) -> list[int]:
    arrays["actions"][:, 1] = 0.25
    return list(range(ROWS))


def duplicate_action(arrays: Arrays) -> list[int]:
    arrays["actions"][:, 1] = arrays["actions"][:, 0]
    return list(range(ROWS))


def duplicate_observation(arrays: Arrays) -> list[int]:
    for name in ("observations", "next_observations"):
        arrays[name][:, 2] = arrays[name][:, 0]
    return list(range(ROWS))


def lost_rows(arrays: Arrays) -> list[int]:
    for name in list(arrays):
        arrays[name] = np.delete(arrays[name], [10, 11, 200], axis=0)
    return [9, 197]


def successors_not_moved(arrays: Arrays) -> list[int]:
    arrays["next_observations"] = arrays["observations"].copy()
    return [row for row in range(ROWS) if row not in ENDS]


def observations_late(arrays: Arrays) -> list[int]:
    arrays["observations"] = np.roll(arrays["observations"], 1, axis=0)
    return [row for row in range(ROWS) if row not in ENDS]


def ends_late(arrays: Arrays) -> list[int]:
    for name in ("terminated", "truncated"):
        arrays[name] = np.roll(arrays[name], 1)
        arrays[name][0] = False
    return (ENDS[:-1] + 1).tolist()


def ends_early(arrays: Arrays) -> list[int]:
    for name in ("terminated", "truncated"):
        arrays[name] = np.roll(arrays[name], -1)
    return (ENDS - 1).tolist()


def one_more_with_every_episode(arrays: Arrays) -> list[int]:
    """T+1 observations an episode, cut to the length of the rest: another library's import."""
    following = arrays.pop("next_observations")
    pieces = np.split(arrays["observations"], ENDS[:-1] + 1)
    longer = [
        np.concatenate([p, following[end : end + 1]]) for p, end in zip(pieces, ENDS, strict=True)
    ]
    arrays["observations"] = np.concatenate(longer)[:ROWS]
    return ENDS.tolist()


def paired_then_one_more_with_every_episode(arrays: Arrays) -> list[int]:
    ends = one_more_with_every_episode(arrays)
    observations = arrays["observations"]
    arrays["next_observations"] = np.concatenate([observations[1:], observations[-1:]])
    return ends


def both_flags_anywhere(arrays: Arrays) -> list[int]:
    arrays["truncated"] = arrays["terminated"] | arrays["truncated"]
    return ENDS[::2].tolist()


def a_limit_in_disguise(arrays: Arrays) -> list[int]:
    ends = np.arange(49, ROWS, 50)
    arrays["terminated"] = np.isin(np.arange(ROWS), ends)
    arrays["truncated"][:] = False
    arrays["next_observations"][ends] += 1  # what follows an end is a new episode
    del arrays["next_observations"]
    return ends.tolist()


def a_limit_beside_failures(arrays: Arrays) -> list[int]:
    ends = np.array([79, 159, 239, 299, 379, 419, 499, 539, 599])
    arrays["terminated"] = np.isin(np.arange(ROWS), ends)
    arrays["truncated"][:] = False
    del arrays["next_observations"]
    return [79, 159, 239, 379, 499]


def no_ends(arrays: Arrays) -> list[int]:
    for name in list(arrays):
        arrays[name] = np.concatenate([arrays[name]] * 2)
    for name in ("terminated", "truncated"):
        arrays[name][:] = False
    arrays["observations"][ROWS:] += 1
    arrays["next_observations"][ROWS:] += 1
    return list(range(2 * ROWS))


def inverted_flags(arrays: Arrays) -> list[int]:
    arrays["terminated"] = ~(arrays["terminated"] | arrays["truncated"])
    arrays["truncated"][:] = False
    return np.flatnonzero(arrays["terminated"]).tolist()


def rewards_late(arrays: Arrays) -> list[int]:
    arrays["rewards"] = np.roll(arrays["rewards"], 1)
    return list(range(ROWS))


def actions_late(arrays: Arrays) -> list[int]:
    arrays["actions"] = np.roll(arrays["actions"], 1, axis=0)
    return list(range(ROWS))


def actions_early(arrays: Arrays) -> list[int]:
    arrays["actions"] = np.roll(arrays["actions"], -1, axis=0)
    return list(range(ROWS))


def actions_on_another_scale(arrays: Arrays) -> list[int]:
    arrays["actions"] *= 0.05
    return list(range(ROWS))


def rounded_actions(arrays: Arrays) -> list[int]:
    arrays["actions"][:, 0] = np.round(2 * arrays["actions"][:, 0]) / 2
    return list(range(ROWS))


def scales_apart(arrays: Arrays) -> list[int]:
    for name in ("observations", "next_observations"):
        arrays[name][:, 1] *= 1e7
    return list(range(ROWS))


def placeholders(arrays: Arrays) -> list[int]:
    for row in (50, 120, 301):
        arrays["observations"][row, 2] = -9999
        arrays["next_observations"][row - 1, 2] = -9999
    return [50, 120, 301]


def absurd_reward(arrays: Arrays) -> list[int]:
    arrays["rewards"][77] = -1e9
    return [77]


def an_episode_twice(arrays: Arrays) -> list[int]:
    for name in list(arrays):
        arrays[name] = np.concatenate([arrays[name], arrays[name][40:100]])
    return list(range(ROWS, ROWS + 60))


def no_rewards(arrays: Arrays) -> list[int]:
    arrays["rewards"][:] = 0
    arrays["truncated"] |= arrays["terminated"]
    arrays["terminated"][:] = False
    return list(range(ROWS))


@pytest.mark.parametrize(
    ("inject", "kind", "field"),
    [
        (constant_action, "constant-column", "actions"),
        (duplicate_action, "duplicate-column", "actions"),
        (lost_rows, "next-mismatch", "next_observations"),
        (successors_not_moved, "shift", "next_observations"),
        (observations_late, "shift", "next_observations"),
        (ends_late, "shift", "terminated"),
        (ends_early, "shift", "terminated"),
        (one_more_with_every_episode, "growing-shift", "terminated"),
        (paired_then_one_more_with_every_episode, "growing-shift", "terminated"),
        (both_flags_anywhere, "both-flags", "truncated"),
        (a_limit_in_disguise, "disguised-time-limit", "terminated"),
        (a_limit_beside_failures, "disguised-time-limit", "terminated"),
        (no_ends, "no-end", "terminated"),
        (inverted_flags, "flags-inverted", "terminated"),
        (rewards_late, "delayed-rewards", "rewards"),
        (actions_late, "shifted-actions", "actions"),
        (actions_early, "shifted-actions", "actions"),
        (actions_on_another_scale, "far-from-bounds", "actions"),
        (rounded_actions, "discrete-actions", "actions"),
        (scales_apart, "unequal-scales", "observations"),
        (placeholders, "outlier", "observations"),
        (absurd_reward, "outlier", "rewards"),
        (an_episode_twice, "duplicated-episode", "episodes"),
        (no_rewards, "constant-rewards", "rewards"),
    ],
)
def test_a_fault_is_found_with_its_rows(
    inject: Callable[[Arrays], list[int]], kind: str, field: str
) -> None:
    arrays = sound()
    rows = inject(arrays)
    found = findings(arrays)
    assert kind in found, worse_than_a_note(list(found.values()))
    finding = found[kind]
    severity = "note" if kind == "unequal-scales" else "warning"  # scaling takes care of it
    assert (finding.severity, finding.field) == (severity, field)
    assert finding.rows is not None
    assert finding.rows.tolist() == rows
    assert finding.why
    assert finding.remedy


def limit_reached_with_both_flags(arrays: Arrays) -> list[int]:
    end = int(ENDS[np.argmax(LENGTHS)])
    arrays["terminated"][end] = arrays["truncated"][end] = True
    return [end]


def unfinished(arrays: Arrays) -> list[int]:
    arrays["terminated"][-1] = arrays["truncated"][-1] = False
    return list(range(ENDS[-2] + 1, ROWS))


def short(arrays: Arrays) -> list[int]:
    arrays["truncated"][[40, 101]] = True
    return [40]


def in_one_piece(arrays: Arrays) -> list[int]:
    for name in list(arrays):
        arrays[name] = arrays[name][40:90]
    return list(range(50))


@pytest.mark.parametrize(
    ("inject", "kind", "field"),
    [
        (limit_reached_with_both_flags, "both-flags", "truncated"),
        (constant_observation, "constant-column", "observations"),
        (duplicate_observation, "duplicate-column", "observations"),
        (unfinished, "unfinished-tail", "terminated"),
        (short, "one-step-episode", "terminated"),
        (in_one_piece, "no-end", "terminated"),
        (lambda arrays: list(range(len(arrays["rewards"]))), "few-transitions", "rows"),
        (lambda _: [int(ENDS[np.argmax(LENGTHS)])], "long-horizon", "episodes"),
    ],
)
def test_what_clean_data_shows_is_a_note(
    inject: Callable[[Arrays], list[int]], kind: str, field: str
) -> None:
    arrays = sound()
    rows = inject(arrays)
    found = examine(columns(arrays))
    assert worse_than_a_note(found) == []
    finding = next(f for f in found if f.kind == kind)
    assert finding.field == field
    assert finding.rows is not None
    assert finding.rows.tolist() == rows


# Where a fault begins: just below nothing is said


def noise(rows: int, **changes: Any) -> Arrays:
    """Rows without any order or end, with some columns changed."""
    generator = np.random.default_rng(0)
    return {
        "observations": generator.normal(size=(rows, 3)),
        "actions": generator.uniform(-1, 1, (rows, 2)),
        "rewards": generator.normal(size=rows),
        "terminated": np.zeros(rows, bool),
    } | changes


def with_ends(*lengths: int, rows: int = 0) -> Arrays:
    """Noise in episodes of these lengths, all of them terminated, and perhaps more rows."""
    rows = max(rows, sum(lengths))
    return noise(rows, terminated=np.isin(np.arange(rows), np.cumsum(lengths) - 1))


def severity(arrays: Arrays, kind: str, **options: Any) -> str | None:
    found = findings(arrays, **options)
    return found[kind].severity if kind in found else None


def rows_of(arrays: Arrays, kind: str, **options: Any) -> list[int]:
    rows = findings(arrays, **options)[kind].rows
    assert rows is not None
    return rows.tolist()


def in_column(width: int, column: int, values: NDArray[Any]) -> NDArray[Any]:
    """Noise with one column of its own."""
    table = np.random.default_rng(1).uniform(-1, 1, (len(values), width))
    table[:, column] = values
    return table


def test_a_thousand_transitions_are_not_few() -> None:
    assert severity(noise(999), "few-transitions") == "note"
    assert severity(noise(1000), "few-transitions") is None


def test_an_end_is_missed_where_no_usual_time_limit_is_as_long() -> None:
    assert severity(noise(1000), "no-end") == "note"
    assert severity(noise(1001), "no-end") == "warning"


def test_an_episode_as_long_as_the_horizon_is_long_enough() -> None:
    assert rows_of(with_ends(3, 2, 3, rows=30), "long-horizon", discount=0.75) == [2, 7]
    assert severity(with_ends(3, 4, 3), "long-horizon", discount=0.75) is None
    assert severity(with_ends(3, 4, 3), "long-horizon", discount=1) == "note"
    assert severity(noise(30), "long-horizon", discount=1) is None


def test_flags_are_inverted_where_most_of_ten_rows_end_an_episode() -> None:
    assert rows_of(with_ends(2, *[1] * 4, 3, rows=10), "flags-inverted") == [1, 2, 3, 4, 5, 8]
    half = with_ends(*[1] * 4, 3, rows=10)
    assert "flags-inverted" not in findings(half)
    assert rows_of(half, "one-step-episode") == [0, 1, 2, 3]
    few = with_ends(*[1] * 9)
    assert "flags-inverted" not in findings(few)
    assert rows_of(few, "one-step-episode") == list(range(9))


@pytest.mark.parametrize(
    ("lengths", "told"),
    [
        ([2] * 5, True),
        ([2] * 4, False),
        ([1] * 5, False),
        ([20] * 5 + [7] * 20, True),
        ([20] * 5 + [7] * 21, False),  # of more than 25
        ([19] * 5 + [7] * 20, False),
        ([20] * 4 + [7] * 2, False),
        ([20] * 6 + [7] * 24, True),
    ],
)
def test_a_limit_is_suspected_where_many_end_at_the_longest(lengths: list[int], told: bool) -> None:
    arrays = with_ends(*lengths)
    assert severity(arrays, "disguised-time-limit") == ("warning" if told else None)
    if told:
        ends = np.cumsum(lengths) - 1
        longest = [end for end, n in zip(ends, lengths, strict=True) if n == max(lengths)]
        assert rows_of(arrays, "disguised-time-limit") == longest
    arrays["truncated"] = np.arange(sum(lengths)) == 1  # whoever logged it knows of limits
    assert "disguised-time-limit" not in findings(arrays)


def test_both_flags_are_a_slip_where_one_of_them_is_before_the_limit() -> None:
    arrays = with_ends(3, 5, 2, 5)
    both = arrays | {"truncated": np.isin(np.arange(15), [7, 14])}
    assert severity(both, "both-flags") == "note"
    assert findings(both)["both-flags"].remedy == "no action needed"
    assert rows_of(both, "both-flags") == [7, 14]
    slip = arrays | {"truncated": np.isin(np.arange(15), [7, 9])}
    assert severity(slip, "both-flags") == "warning"
    assert findings(slip)["both-flags"].remedy.startswith("mark a time-out only where")


def test_two_rows_are_enough_to_be_constant() -> None:
    same = noise(2, actions=np.full((2, 2), 0.5), rewards=np.full(2, 3.0))
    assert severity(same, "constant-column") == "warning"
    assert severity(same, "constant-rewards") == "warning"
    assert severity(same | {"terminated": np.array([0, 1])}, "constant-rewards") == "note"
    one = {name: values[:1] for name, values in same.items()}
    assert not {"constant-column", "constant-rewards"} & findings(one).keys()


def test_constant_columns_are_no_copies_and_copies_may_hardly_vary() -> None:
    arrays = noise(30)
    arrays["actions"][:] = 0.5
    assert "duplicate-column" not in findings(arrays)
    arrays["actions"][:] = np.linspace(0.5, 0.6, 30)[:, None]
    assert findings(arrays)["duplicate-column"].problem == "copies of other columns: column 1"


def test_many_columns_are_named_in_short() -> None:
    arrays = noise(30)
    for count, words in (
        (1, "constant column 0"),
        (2, "constant columns 0, 1"),
        (8, "constant columns 0, 1, 2, 3, 4, 5, 6, 7"),
        (9, "constant columns 0, 1, 2, 3, 4, 5, 6, 7 and 1 more"),
        (10, "constant columns 0, 1, 2, 3, 4, 5, 6, 7 and 2 more"),
    ):
        arrays["observations"] = np.full((30, count), 2.0)
        assert findings(arrays)["constant-column"].problem == words


@pytest.mark.parametrize(
    ("reach", "expected"),
    [
        ([0.5, 0.9], None),
        ([0.9, 0.4375], "note"),
        ([0.4375, 0.05], "warning"),
        ([0.4375, 0.3], "note"),
        ([0.0, 0.9], None),  # a constant is told of elsewhere
        ([0.9, 0.15], "note"),
    ],
)
def test_actions_that_use_less_than_half_of_their_range_are_told(
    reach: list[float], expected: str | None
) -> None:
    actions = np.linspace(-1, 1, 41)[:, None] * reach
    assert severity(noise(41, actions=actions), "far-from-bounds") == expected
    one_sided = np.abs(actions) * -1
    assert severity(noise(41, actions=one_sided), "far-from-bounds") == expected


def test_actions_on_a_tenth_of_their_range_are_noted() -> None:
    actions = np.linspace(-1, 1, 41)[:, None] * [1, 1]
    arrays = noise(41, actions=actions)
    assert severity(arrays, "far-from-bounds", bounds=bounds(10)) == "note"
    assert severity(arrays, "far-from-bounds", bounds=bounds(10.5)) == "warning"


def bounds(width: float) -> ActionBounds:
    return ActionBounds(np.full(2, -width), np.full(2, width))


@pytest.mark.parametrize(
    ("values", "told"),
    [
        (np.arange(160) % 16 / 16, True),
        (np.arange(170) % 17 / 17, False),
        (np.arange(99) % 16 / 16, False),
        (np.arange(100) % 16 / 16, True),
        (np.arange(170) % 17, True),
        (np.arange(170) % 17 + 0.5 * (np.arange(170) == 3), False),
        (np.zeros(160), False),
    ],
)
def test_actions_of_few_values_or_whole_numbers_are_told(values: NDArray[Any], told: bool) -> None:
    arrays = noise(len(values), actions=in_column(2, 1, values))
    found = findings(arrays, bounds=bounds(20))
    assert ("discrete-actions" in found) == told
    if told:
        count = len(set(values.tolist()))
        problem = f"only {count} values in column 1"
        assert found["discrete-actions"].problem == problem


@pytest.mark.parametrize(("ratio", "told"), [(1.5e6, True), (0.7e6, False), (1e6, False)])
def test_scales_a_million_apart_are_told(ratio: float, told: bool) -> None:
    waves = np.resize([-1.0, 1.0], 40)
    small = findings(noise(40, observations=waves[:, None] * [0.25, 0.25 * ratio]))
    assert ("unequal-scales" in small) == told
    scales = np.array([0.0, 3.0, 3.0 * ratio, 30.0])
    found = findings(noise(40, observations=waves[:, None] * scales))
    assert ("unequal-scales" in found) == told
    if told:
        words = "column 2 varies by 4.5e+06, column 1 by 3"
        assert found["unequal-scales"].problem == words


@pytest.mark.parametrize(
    ("mean", "spread", "kind"),
    [
        (12, 0.5, "far-from-zero"),
        (-12, 0.5, "far-from-zero"),
        (12, 2.2, "far-from-zero"),
        (12, 2.6, None),
        (9, 0.5, None),
        (50, 0, None),
        (10, 0.5, None),
        (12.5, 2.5, None),
        (0.7e5, 1, "far-from-zero"),
        (1e5, 1, "far-from-zero"),
        (1.5e5, 1, "lost-precision"),
        (0.75e5, 0.5, "lost-precision"),
    ],
)
def test_a_column_is_far_from_zero_at_ten_and_at_five_spreads(
    mean: float, spread: float, kind: str | None
) -> None:
    values = mean + np.resize([-spread, spread], 40)
    arrays = noise(40, observations=in_column(3, 1, values))
    found = findings(arrays)
    kinds = {"far-from-zero", "lost-precision"} & found.keys()
    assert kinds == ({kind} if kind else set())
    if kind:
        assert found[kind].problem.partition(":")[0].endswith(" in column 1")
        assert (found[kind].severity, found[kind].field) == (
            "warning" if kind == "lost-precision" else "note",
            "observations",
        )
        assert rows_of(arrays, kind) == list(range(40))


@pytest.mark.parametrize("field", ["observations", "rewards"])
@pytest.mark.parametrize(
    ("value", "told"), [(115.0, True), (108.0, False), (85.0, True), (92.0, False)]
)
def test_a_value_ten_times_as_far_out_as_all_others_is_told(
    field: str, value: float, told: bool
) -> None:
    values = np.resize([99.5, 100.5], 100)
    values[70] = value
    matrix = {"observations": in_column(3, 2, values)}
    arrays = noise(100, **({"rewards": values} if field == "rewards" else matrix))
    found = findings(arrays)
    assert ("outlier" in found) == told
    if told:
        assert found["outlier"].field == field
        assert rows_of(arrays, "outlier") == [70]
        words = f"{'' if field == 'rewards' else 'column 2 '}is {value:g} there"
        assert found["outlier"].problem.startswith(words)
    fewer = {name: values[1:] for name, values in arrays.items()}
    assert "outlier" not in findings(fewer)


@pytest.mark.parametrize(("value", "told"), [(110.5, False), (110.75, True)])
def test_an_outlier_is_more_than_ten_times_as_far_out(value: float, told: bool) -> None:
    rewards = np.resize([99.5, 100.5], 200)
    rewards[70] = value  # now 100.5 is in the middle
    found = findings(noise(200, rewards=rewards))
    assert ("outlier" in found) == told
    if told:
        assert found["outlier"].problem == (
            "is 110.8 there, but between 99.5 and 100.5 in 98% of rows"
        )


def test_one_in_a_hundred_values_may_be_outliers() -> None:
    rewards = np.resize([0.0, 1.0], 600)
    rewards[:6] = [3e6, 1e6, 2e6, 1e6, 4e6, 2e6]
    assert rows_of(noise(600, rewards=rewards), "outlier") == [0, 1, 2, 3, 4, 5]
    rewards[:12] = 1e6  # no fault, but what the rewards are like
    assert "outlier" not in findings(noise(600, rewards=rewards))


@pytest.mark.parametrize(("low", "high", "told"), [(5, 5, True), (5, 6, False)])
def test_outliers_on_both_sides_are_counted_together(low: int, high: int, told: bool) -> None:
    rewards = np.resize([0.0, 1.0], 1_000)
    rows = np.sort(np.random.default_rng(6).choice(1_000, low + high, replace=False))
    far = np.random.default_rng(7).permutation(1e6 + 1e4 * np.arange(low + high))
    rewards[rows] = np.where(np.arange(low + high) < low, -far, far)
    arrays = noise(1_000, rewards=rewards)
    assert ("outlier" in findings(arrays)) == told
    if told:
        assert rows_of(arrays, "outlier") == rows.tolist()


def test_an_outlier_is_told_with_what_is_usual() -> None:
    rewards = np.arange(201.0)
    rewards[200] = 1e5
    words = "is 1e+05 there, but between 2 and 198 in 98% of rows"
    assert findings(noise(201, rewards=rewards))["outlier"].problem == words


def test_heavy_tails_in_any_order_are_no_outliers() -> None:
    tails = np.random.default_rng(0).standard_cauchy(100_000)
    arrays = noise(100_000, rewards=tails)
    batch = examination.stored_batch(
        arrays, {}, ActionBounds(np.array([-1, -1]), np.array([1, 1])), None
    )
    assert list(outliers(batch)) == []


def test_a_copy_has_two_rows_at_least_and_may_be_unfinished() -> None:
    arrays = with_ends(1, 1, 2, 1, 2, 4, rows=13)
    for name in ("observations", "actions", "rewards"):
        arrays[name][[1, 4]] = arrays[name][0]
        arrays[name][5:7] = arrays[name][2:4]
        arrays[name][11:13] = arrays[name][2:4]
    assert rows_of(arrays, "duplicated-episode") == [5, 6, 11, 12]
    problem = findings(arrays)["duplicated-episode"].problem
    assert problem == "2 episodes are exact copies of earlier ones"


def test_few_values_are_looked_for_in_five_thousand_rows() -> None:
    values = np.random.default_rng(5).uniform(-1, 1, 10_000)
    values[::2] = np.resize([-1, 0, 1], 5_000)
    for rows, told in ((10_000, 1), (9_999, 0)):
        arrays = noise(rows, actions=in_column(2, 0, values[:rows]))
        limits = ActionBounds(np.array([-1, -1]), np.array([1, 1]))
        assert (
            len(list(discrete_actions(examination.stored_batch(arrays, {}, limits, None)))) == told
        )


def test_advice_names_the_setting_that_helps() -> None:
    arrays = noise(200, terminated=np.arange(200) == 150)
    arrays["actions"] = np.resize([-0.25, 0.25, 0.125], (200, 2))
    arrays["observations"][:, 1] *= 1e8
    arrays["observations"][:, 2] += 50
    found = findings(arrays)
    options = {kind: finding.option for kind, finding in found.items() if finding.option}
    assert options == {
        "far-from-bounds": "action_low",
        "discrete-actions": "action_kind",
        "unequal-scales": "scaling",
        "far-from-zero": "scaling",
    }
    assert findings(with_ends(5, 5))["long-horizon"].option == "discount"


def test_a_constant_column_matters_more_among_actions() -> None:
    arrays = noise(30)
    arrays["observations"][:, 0] = 3
    assert findings(arrays)["constant-column"].why == "a constant adds nothing"
    arrays = noise(30)
    arrays["actions"][:, 0] = 0.5
    assert findings(arrays)["constant-column"].why == "the policy will always choose this value"


def test_numbers_near_the_end_of_float32_are_examined() -> None:
    arrays = noise(400, observations=np.tile([[-3e38], [3e38]], (200, 3)))
    arrays["terminated"][9::10] = True
    assert "duplicate-column" in findings(arrays)
    arrays["next_observations"] = arrays["observations"]
    assert "shift" in findings(arrays)


def test_rows_beyond_the_sample_are_examined_as_few_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bcq.data.doctor.alignment.SAMPLE", 100)
    arrays = noise(400, actions=in_column(2, 0, np.arange(400) % 17 / 17))
    assert "discrete-actions" not in findings(arrays)
    arrays["actions"][:, 0] = np.arange(400) % 3 / 3
    assert "discrete-actions" in findings(arrays)
    for inject in (rewards_late, actions_late, successors_not_moved):
        arrays = sound()
        inject(arrays)
        kinds = {"delayed-rewards", "shifted-actions", "shift"} & findings(arrays).keys()
        assert len(kinds) == 1


# Rows that do not belong together


def jumping(places: NDArray[np.int64], rows: int) -> NDArray[np.float32]:
    """Observations that move slowly and begin elsewhere after each of these rows."""
    generator = np.random.default_rng(2)
    begins = np.isin(np.arange(rows), places + 1)
    leaps = np.where(begins[:, None], 50 * generator.choice([-1, 1], (rows, 3)), 0)
    return (generator.normal(size=(rows, 3)) + np.cumsum(leaps, axis=0)).astype(np.float32)


COUNT = np.arange(11)


@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize(
    ("offset", "kind"),
    [
        (0 * COUNT, None),
        (0 * COUNT + 1, "shift"),
        (0 * COUNT - 1, "shift"),
        (COUNT, "growing-shift"),
        (COUNT + 1, "growing-shift"),
        (-COUNT, "growing-shift"),
        (-COUNT - 1, "growing-shift"),
    ],
)
def test_ends_beside_their_observations_are_found_by_their_rule(
    offset: NDArray[np.int64], kind: str | None, paired: bool
) -> None:
    ends = np.cumsum(LENGTHS[:11]) - 1
    arrays = with_ends(*LENGTHS)
    arrays["observations"] = jumping(ends + offset, ROWS)
    if paired:
        following = np.concatenate([arrays["observations"][1:], np.zeros((1, 3))])
        following[ends + offset] += 5  # what was seen last, before the next begins
        arrays["next_observations"] = following
    found = findings(arrays)
    assert {"shift", "growing-shift", "next-mismatch"} & found.keys() == ({kind} if kind else set())
    if kind:
        assert (found[kind].field, found[kind].severity) == ("terminated", "warning")
        assert rows_of(arrays, kind) == ENDS.tolist()


@pytest.mark.parametrize(
    ("count", "paired", "told"),
    [(5, True, True), (4, True, False), (6, False, False), (9, False, True)],
)
def test_a_shift_needs_ends_enough_to_show_it(count: int, paired: bool, told: bool) -> None:
    ends = np.arange(1, count + 1) * 30 - 1
    arrays = with_ends(*[30] * count, rows=30 * count + 29)
    arrays["observations"] = jumping(ends + 1, 30 * count + 29)
    if paired:
        following = np.concatenate([arrays["observations"][1:], np.zeros((1, 3))])
        following[ends + 1] += 5
        arrays["next_observations"] = following
    assert ("shift" in findings(arrays)) == told


@pytest.mark.parametrize("sign", [-1, 1])
def test_successors_that_drift_with_every_episode_are_found(sign: int) -> None:
    """The file has T+1 observations an episode in one column, and T in the other."""
    arrays = with_ends(*LENGTHS)
    episode = np.repeat(np.arange(12), LENGTHS)
    places = np.arange(ROWS) + 1 + sign * episode
    inside = (places >= 0) & (places < ROWS)
    arrays["next_observations"] = np.random.default_rng(3).normal(size=(ROWS, 3))
    arrays["next_observations"][inside] = arrays["observations"][places[inside]]
    found = findings(arrays)
    assert "next-mismatch" not in found
    assert found["growing-shift"].field == "next_observations"
    assert rows_of(arrays, "growing-shift") == [
        row for row in range(LENGTHS[0], ROWS) if row not in ENDS
    ]


def test_successors_that_fit_are_believed_rather_than_leaps() -> None:
    ends = np.cumsum(LENGTHS[:11]) - 1
    arrays = with_ends(*LENGTHS)
    arrays["observations"] = jumping(ends + 1, ROWS)  # as if ends came a row too early
    assert "shift" in findings(arrays)
    arrays["next_observations"] = np.concatenate([arrays["observations"][1:], np.zeros((1, 3))])
    arrays["next_observations"][ends] += 5
    assert not {"shift", "next-mismatch"} & findings(arrays).keys()
    arrays["next_observations"][ends[1:]] -= 5  # one end that is a break is enough
    assert not {"shift", "next-mismatch"} & findings(arrays).keys()


@pytest.mark.parametrize(("rows", "kind"), [(41, "next-mismatch"), (42, "shift")])
def test_successors_are_shifted_where_most_rows_differ(rows: int, kind: str) -> None:
    # Next observations that are a row too early; the observation changes in every second row.
    places = (np.arange(rows) + 1) // 2
    changed = np.flatnonzero(np.diff(places))
    arrays = noise(rows, observations=100.0 * places[:, None])
    arrays["next_observations"] = arrays["observations"]
    found = findings(arrays)
    assert {"next-mismatch", "shift"} & found.keys() == {kind}
    assert rows_of(arrays, kind) == changed.tolist()


def test_a_break_at_the_last_end_but_one_row_is_believed() -> None:
    ends = np.cumsum(LENGTHS[:11]) - 1
    rows = int(ends[-1]) + 2
    arrays = with_ends(*LENGTHS[:11], rows=rows)
    arrays["observations"] = jumping(ends[:-1] + 1, rows)  # as if ends came a row too early
    arrays["next_observations"] = np.concatenate([arrays["observations"][1:], np.zeros((1, 3))])
    assert "shift" in findings(arrays)
    arrays["next_observations"][ends[-1]] += 5
    assert "shift" not in findings(arrays)


def test_a_shift_tells_how_to_undo_it() -> None:
    arrays = sound()
    ends_late(arrays)
    assert findings(arrays)["shift"].remedy == "shift it back by one row"
    arrays = sound()
    one_more_with_every_episode(arrays)
    remedy = "store T+1 observations per episode as T pairs"
    assert findings(arrays)["growing-shift"].remedy == remedy


def test_a_successor_is_the_next_observation_but_for_rounding() -> None:
    arrays = sound()
    spread = arrays["observations"].std(axis=0)
    arrays["next_observations"] += 0.8e-3 * spread
    assert "next-mismatch" not in findings(arrays)
    arrays = sound()
    arrays["next_observations"][30] += 1.5e-3 * spread * [0, 0, 1]
    assert rows_of(arrays, "next-mismatch") == [30]


def test_three_rows_are_enough_for_a_mismatch() -> None:
    arrays = noise(3)
    arrays["next_observations"] = np.concatenate([arrays["observations"][1:], np.zeros((1, 3))])
    assert "next-mismatch" not in findings(arrays)
    arrays["next_observations"][1] += 1
    assert rows_of(arrays, "next-mismatch") == [1]


def one_episode(rows: int) -> Arrays:
    """Rewards that an action alone decides."""
    arrays = noise(rows)
    return arrays | {"rewards": arrays["actions"][:, 0] * 3}


def test_a_delay_is_told_from_twenty_rows_a_feature() -> None:
    for rows, told in ((161, False), (162, True)):  # the last two rows have no two after them
        arrays = one_episode(rows)
        assert "delayed-rewards" not in findings(arrays)
        arrays["rewards"] = np.roll(arrays["rewards"], 1)
        assert ("delayed-rewards" in findings(arrays)) == told


@pytest.mark.parametrize(("share", "told"), [(0.35, True), (0.75, False)])
def test_a_delay_is_told_where_it_explains_half_of_the_rewards(share: float, told: bool) -> None:
    arrays = one_episode(1000)
    rewards = np.roll(arrays["rewards"], 1)
    noisy = np.random.default_rng(4).normal(size=1000) * rewards.std()
    arrays["rewards"] = np.sqrt(1 - share) * rewards + np.sqrt(share) * noisy
    assert ("delayed-rewards" in findings(arrays)) == told


@pytest.mark.parametrize("seed", range(4))
def test_rewards_that_fit_two_rows_alike_are_not_late(seed: int) -> None:
    generator = np.random.default_rng(seed)
    arrays = noise(400)
    arrays["observations"] = np.cumsum(generator.normal(size=(400, 3)), axis=0)
    arrays["rewards"] = arrays["observations"][:, 0] + generator.normal(size=400)
    assert "delayed-rewards" not in findings(arrays)


def test_episodes_of_two_rows_say_nothing_of_delays() -> None:
    arrays = one_episode(800)
    arrays["terminated"][1::2] = True
    arrays["rewards"] = np.roll(arrays["rewards"], 1)
    assert "delayed-rewards" not in findings(arrays)


def test_late_actions_are_noticed_where_observations_are_bent() -> None:
    arrays = noise(500)
    states = [np.array([0.1, 0.5, -0.3])]
    for action in arrays["actions"][:-1]:
        states.append(np.clip(1 - 1.5 * states[-1] ** 2 + 0.5 * action[0], -1, 1))
    arrays["observations"] = np.stack(states)
    assert "shifted-actions" not in findings(arrays)
    arrays["actions"] = np.roll(arrays["actions"], 1, axis=0)
    assert "shifted-actions" in findings(arrays)


# Bounds, discount, row numbers


def test_the_horizon_is_that_of_the_discount() -> None:
    assert "long-horizon" in findings(sound(), discount=0.99)
    assert "long-horizon" not in findings(sound(), discount=0.9)


@pytest.mark.parametrize(("longest", "told"), [(99, True), (100, False)])
def test_the_horizon_of_a_batch_in_memory_is_a_hundred_steps(longest: int, told: bool) -> None:
    arrays = with_ends(longest, 20)
    dataset = Dataset.from_columns(columns(arrays))
    found = {finding.kind: finding for finding in examine_dataset(dataset)}
    assert ("long-horizon" in found) == told
    if told:
        words = "the longest has 99 steps; discount 0.99 looks 100 steps ahead"
        assert found["long-horizon"].problem == words
    for discount in (0.5, None):
        kinds = {finding.kind for finding in examine_dataset(dataset, discount=discount)}
        assert "long-horizon" not in kinds


def test_bounds_decide_what_is_near_them() -> None:
    wide = ActionBounds(np.full(2, -40.0), np.full(2, 40.0))
    assert examine(columns(sound()), wide)[0].kind == "far-from-bounds"


def test_rows_are_numbered_as_in_the_file() -> None:
    arrays = sound()
    arrays["rewards"][77] = -1e9
    arrays["observations"][5] = np.nan
    moved = replace(columns(arrays), rows=np.arange(ROWS)[::-1].copy())
    found = {f.kind: f.rows for f in examine(moved)}
    assert found["outlier"] is not None
    assert found["outlier"].tolist() == [ROWS - 78]
    assert found["not-finite"] is not None
    assert found["not-finite"].tolist() == [ROWS - 6]
    assert "next-mismatch" not in found
    mended = repair(moved)
    assert mended.rows is not None
    assert mended.rows.tolist() == [row for row in range(ROWS)[::-1] if row != ROWS - 6]
    mended = repair(columns(arrays))
    assert mended.rows is not None
    assert mended.rows.tolist() == [row for row in range(ROWS) if row != 5]


def test_every_check_was_given_something_to_find() -> None:
    # A new one needs a fault above; that of `unused_choices` is in test_choices.py.
    assert len(ADVISORY_CHECKS) == 17


# Reports


def test_the_report_survives_json_and_names_the_first_rows_and_their_number() -> None:
    arrays = sound()
    both_flags_anywhere(arrays)
    report = as_json(examine(columns(arrays)))
    assert json.loads(json.dumps(report, allow_nan=False)) == report
    both = next(entry for entry in report if entry["kind"] == "both-flags")
    assert both["rows"] == ENDS[::2][:5].tolist()
    assert (both["count"], both["severity"], both["mended_by_fix"]) == (6, "warning", False)
    assert [entry["severity"] for entry in report] == ["warning", "note", "note"]


def test_a_report_has_every_part_of_a_finding() -> None:
    rows = np.arange(3, 9)
    whole = Finding("kind", "rewards", "is odd", "look", "it matters", rows, "note", option="fix")
    assert as_json([whole, Finding("other", "actions", "are odd", "ask")]) == [
        {
            **{"kind": "kind", "severity": "note", "field": "rewards", "problem": "is odd"},
            **{"rows": [3, 4, 5, 6, 7], "count": 6, "why": "it matters", "remedy": "look"},
            "mended_by_fix": True,
        },
        {
            **{"kind": "other", "severity": "error", "field": "actions", "problem": "are odd"},
            **{"rows": [], "count": 0, "why": "", "remedy": "ask"},
            "mended_by_fix": False,
        },
    ]
    assert as_text([Finding("other", "actions", "are odd", "ask", "it matters")]).splitlines() == [
        "doctor         1 error, no warnings, no notes",
        "error          actions: are odd",
        "               it matters",
        "               -> ask",
    ]


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (1, "[row 3]"),
        (2, "[rows 3, 4]"),
        (5, "[rows 3, 4, 5, 6, 7]"),
        (6, "[rows 3, 4, 5, 6, 7, ... (6 in total)]"),
    ],
)
def test_five_rows_are_shown(count: int, words: str) -> None:
    finding = Finding("kind", "rewards", "is odd", "look", rows=np.arange(3, 3 + count))
    assert as_text([finding]).splitlines()[1] == f"error          rewards: is odd {words}"


def test_the_text_has_severity_rows_reason_and_remedy() -> None:
    arrays = sound()
    lost_rows(arrays)
    lines = as_text(examine(columns(arrays))).splitlines()
    assert lines[0].split(None, 1) == ["doctor", "no errors, 1 warning, 2 notes"]
    assert lines[1].startswith("warning        next_observations: 2 rows within episodes differ")
    assert lines[1].endswith("[rows 9, 197]")
    assert lines[3].endswith(
        "-> check how the rows were joined; cut the episode where rows are missing "
        "or an end is not marked"
    )
    assert as_text([]).endswith("no errors, no warnings, no notes")


# Mending


def test_rows_that_are_not_finite_are_left_out_and_their_episode_cut() -> None:
    for paired in (True, False):
        arrays = sound()
        arrays["observations"][20, 1] = np.nan
        arrays["rewards"][100] = np.inf  # first row of an episode
        if not paired:
            del arrays["next_observations"]
        mended = Dataset.from_columns(repair(columns(arrays)))
        gone = [20, 100] if paired else [19, 20, 100, *ENDS[1::2].tolist()]
        kept = np.delete(np.arange(ROWS), gone)
        np.testing.assert_array_equal(mended.rewards, sound()["rewards"][kept])
        cut = 19 if paired else 18
        assert mended.truncated[np.flatnonzero(kept == cut)[0]]
        assert worse_than_a_note(examine_dataset(mended)) == []


def test_copies_go_and_breaks_are_cut() -> None:
    arrays = sound()
    lost_rows(arrays)
    for name in list(arrays):
        arrays[name] = np.concatenate([arrays[name], arrays[name][38:98]])
    repairable = {kind for kind, finding in findings(arrays).items() if finding.option == "fix"}
    assert repairable == {"next-mismatch", "duplicated-episode"}
    mended = Dataset.from_columns(repair(columns(arrays)))
    assert len(mended) == ROWS - 3
    assert mended.truncated[[9, 197]].all()
    assert worse_than_a_note(examine_dataset(mended)) == []


@pytest.mark.parametrize("field", ["observations", "actions", "rewards"])
def test_an_episode_that_differs_in_one_number_is_no_copy(field: str) -> None:
    arrays = sound()
    an_episode_twice(arrays)
    arrays[field][ROWS + 30] *= 0.999
    assert "duplicated-episode" not in findings(arrays)
    mended = repair(columns(arrays)).arrays
    for name in arrays:
        np.testing.assert_array_equal(mended[name], arrays[name])
    an_episode_twice(arrays)  # this one is, of the first
    assert len(repair(columns(arrays)).arrays["rewards"]) == ROWS + 60


def test_a_batch_that_knows_no_limits_is_cut_only_where_rows_go() -> None:
    for bad in (7, 12):  # within an episode, after its end
        arrays = with_ends(5, 7, rows=20)
        arrays["rewards"][bad] = np.nan
        mended = repair(columns(arrays)).arrays
        kept = [row for row in range(20) if row != bad]
        np.testing.assert_allclose(mended["observations"], arrays["observations"][kept], rtol=1e-6)
        cut = [row for row in kept if row == bad - 1 and not arrays["terminated"][row]]
        assert np.flatnonzero(mended["truncated"]).tolist() == cut
        assert mended["terminated"].tolist() == arrays["terminated"][kept].tolist()
    whole = repair(columns(with_ends(5, 7, rows=20))).arrays
    assert not whole["truncated"].any()


@pytest.mark.parametrize("change", [{"rewards": np.zeros(ROWS - 1)}, {"actions": np.zeros(3)}])
def test_what_is_no_batch_at_all_cannot_be_mended(change: Arrays) -> None:
    with pytest.raises(InputError, match="rows but observations has 600"):
        repair(columns(sound() | change))


def test_a_sound_batch_is_left_as_it_is() -> None:
    before = Dataset.from_columns(columns(sound()))
    assert Dataset.from_columns(repair(columns(sound()))).fingerprint == before.fingerprint


# The bundled experts


@pytest.mark.parametrize(
    ("environment", "recipe"), [("Hopper-v5", imitation), ("HalfCheetah-v5", imperfect)]
)
def test_demonstrations_are_clean(environment: str, recipe: Callable[..., Recipe]) -> None:
    dataset = collect(recipe(find("0", environment), transitions=2_000))
    assert worse_than_a_note(examine_dataset(dataset)) == []
