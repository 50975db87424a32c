"""What a batch is: its checks, its pairing of rows, its bounds, its episodes."""

import json
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from bcq.data.bounds import ActionBounds, TaskSpec
from bcq.data.checks import check
from bcq.data.columns import Columns, Provenance
from bcq.data.dataset import Dataset
from bcq.data.layout import Layout, ObservationColumn
from bcq.system.errors import InputError

ROWS = 40


def columns(low: Any = None, high: Any = None, **changes: Any) -> Columns:
    """Forty unfinished transitions, with some columns changed, or left out where None."""
    generator = np.random.default_rng(0)
    complete = {
        "observations": generator.normal(size=(ROWS, 3)),
        "actions": generator.uniform(-1, 1, (ROWS, 2)),
        "rewards": generator.normal(size=ROWS),
        "next_observations": generator.normal(size=(ROWS, 3)),
        "terminated": np.zeros(ROWS, bool),
    } | changes
    kept = {name: values for name, values in complete.items() if values is not None}
    return Columns("batch.hdf5", kept, Provenance(), low, high)


def refusal(batch: Columns, bounds: ActionBounds | None = None) -> str:
    """The message with which the columns are refused."""
    with pytest.raises(InputError) as caught:
        Dataset.from_columns(batch, bounds)
    message = str(caught.value)
    assert message.startswith("batch.hdf5: ")
    assert "\n" not in message
    return message


def box(low: Any, high: Any) -> ActionBounds:
    return ActionBounds(np.array(low), np.array(high))


# Checks


@pytest.mark.parametrize("name", ["observations", "actions", "rewards", "terminated"])
def test_a_missing_column_is_named(name: str) -> None:
    assert f"{name}: is missing" in refusal(columns(**{name: None}))


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("observations", (39, 3)),
        ("actions", (41, 2)),
        ("rewards", (39,)),
        ("next_observations", (41, 3)),
        ("terminated", (39,)),
        ("truncated", (41,)),
        ("qpos", (39, 1)),
        ("qvel", (39, 1)),
    ],
)
def test_lengths_that_differ_are_refused(name: str, shape: tuple[int, ...]) -> None:
    message = refusal(columns(**{name: np.zeros(shape)}))
    assert "rows but observations has" in message
    assert str(shape[0]) in message


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("observations", (ROWS,)),
        ("observations", (ROWS, 2, 2)),
        ("actions", (ROWS, 1, 1)),
        ("rewards", (ROWS, 2)),
        ("rewards", ()),
        ("terminated", (ROWS, 2)),
        ("next_observations", (ROWS, 4)),
        ("observations", (ROWS, 0)),
        ("actions", (ROWS, 0)),
    ],
)
def test_wrong_shapes_are_refused_by_name(name: str, shape: tuple[int, ...]) -> None:
    assert f"{name}: has " in refusal(columns(**{name: np.zeros(shape)}))


def test_a_batch_without_rows_is_refused() -> None:
    empty = {name: values[:0] for name, values in columns().arrays.items()}
    (finding,) = check(columns(**empty)).errors
    assert (finding.kind, finding.field) == ("different-lengths", "observations")
    assert (finding.problem, finding.remedy) == (
        "has no rows",
        "a batch needs at least one transition",
    )
    refusal(columns(**empty))


@pytest.mark.parametrize("name", ["observations", "rewards", "terminated", "qpos"])
@pytest.mark.parametrize("kind", [object, "U3", "S3", complex])
def test_what_is_not_a_number_is_refused(name: str, kind: Any) -> None:
    shape = (ROWS, 3) if name in ("observations", "qpos") else (ROWS,)
    values = np.zeros(shape).astype(kind)
    assert f"{name}: contains {values.dtype}, not numbers" in refusal(columns(**{name: values}))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("observations", np.nan),
        ("actions", np.nan),
        ("rewards", np.inf),
        ("next_observations", -np.inf),
        ("terminated", np.nan),
        ("qpos", np.nan),
        ("rewards", 1e39),  # finite, but not in float32
    ],
)
def test_a_value_that_is_not_finite_is_named_with_its_row(name: str, value: float) -> None:
    width = {"rewards": (), "terminated": (), "actions": (2,)}.get(name, (3,))
    values = np.zeros((ROWS, *width))
    values[17] = value
    values[30] = value
    message = refusal(columns(**{name: values}))
    assert f"{name}, row 17: is " in message
    assert f"one of {2 * int(np.prod(width))} values" in message


def test_findings_are_numbered_as_the_rows_of_the_file() -> None:
    rewards = np.zeros(ROWS)
    rewards[[3, 5]] = np.nan
    batch = replace(columns(rewards=rewards), rows=np.arange(ROWS)[::-1])
    finding = batch.in_file(check(batch).errors[0])
    assert finding.rows is not None
    assert finding.rows.tolist() == [ROWS - 6, ROWS - 4]
    assert (finding.severity, finding.kind) == ("error", "not-finite")
    assert f"rewards, row {ROWS - 6}: is nan" in refusal(batch)
    message = refusal(replace(columns(), rows=np.arange(ROWS)), box([-1], [1]))
    assert message.startswith("batch.hdf5: actions: have 2 dimensions")  # not about single rows


@pytest.mark.parametrize(
    ("change", "kind", "remedy"),
    [
        ({"rewards": None}, "missing-field", "(the file has observations, actions, "),
        ({"rewards": np.full(ROWS, "a")}, "not-numbers", "float32"),
        ({"rewards": np.zeros((ROWS, 2))}, "wrong-shape", "it must be (transitions,)"),
        ({"actions": np.zeros((ROWS, 1, 1))}, "wrong-shape", "it must be (transitions, size)"),
        ({"actions": np.zeros((ROWS, 0))}, "wrong-shape", "at least one number"),
        (
            {"next_observations": np.zeros((ROWS, 4))},
            "wrong-shape",
            "match the (3,) of observations",
        ),
        ({"rewards": np.zeros(3)}, "different-lengths", "one row per transition"),
        ({"rewards": np.full(ROWS, np.nan)}, "not-finite", "remove or repair"),
        ({"terminated": np.full(ROWS, 2)}, "not-a-flag", "0 or 1"),
        ({"actions": np.full((ROWS, 2), 2.0)}, "out-of-bounds", "action_margin"),
        ({"actions": np.zeros((ROWS, 3))}, "out-of-bounds", "as many bounds as dimensions"),
    ],
)
def test_an_error_has_its_kind_and_its_remedy(
    change: dict[str, Any], kind: str, remedy: str
) -> None:
    found = check(columns(**change), box([-1, -1], [1, 1])).errors
    assert [(finding.kind, finding.severity) for finding in found] == [(kind, "error")]
    assert remedy in found[0].remedy
    assert found[0].why
    assert found[0].field in change


def test_one_cell_is_enough_and_each_row_is_named_once() -> None:
    observations = np.zeros((ROWS, 3))
    observations[5, 1] = observations[9, 0] = observations[9, 2] = np.nan
    (finding,) = check(columns(observations=observations)).errors
    assert finding.rows is not None
    assert finding.rows.tolist() == [5, 9]
    assert finding.problem == "is nan (one of 3 values that are not finite)"


@pytest.mark.parametrize(
    ("change", "option"),
    [
        ({"rewards": np.full(ROWS, np.nan)}, "fix"),
        ({"actions": np.full((ROWS, 2), 2.0)}, "action_margin"),
        ({"terminated": np.full(ROWS, 2)}, None),
    ],
)
def test_a_refusal_names_the_setting_that_helps(change: dict[str, Any], option: str | None) -> None:
    with pytest.raises(InputError) as caught:
        Dataset.from_columns(columns(**change))
    assert caught.value.option == option


def test_several_problems_of_one_kind_are_counted() -> None:
    bad = np.full(ROWS, np.nan)
    message = refusal(columns(rewards=bad, terminated=bad))
    assert message.endswith("(other problems: 1)")
    assert "other problems" not in refusal(columns(rewards=bad))


@pytest.mark.parametrize("name", ["terminated", "truncated"])
@pytest.mark.parametrize("value", [2, -1, 0.5, 1 + 1e-9])
def test_flags_other_than_0_and_1_are_refused_with_their_row(name: str, value: float) -> None:
    flags = np.zeros(ROWS)
    flags[17] = value
    message = refusal(columns(**{name: flags}))
    assert f"{name}, row 17: is {value}" in message
    assert "must be 0 or 1" in message


@pytest.mark.parametrize("kind", [bool, np.uint8, np.int64, np.float32, np.float64])
def test_flags_of_any_number_type_are_read(kind: Any) -> None:
    flags = np.arange(ROWS) % 7 == 3
    dataset = Dataset.from_columns(columns(terminated=flags.astype(kind)))
    np.testing.assert_array_equal(dataset.terminated, flags)
    assert dataset.terminated.dtype == bool


def test_columns_of_shape_n_by_1_are_accepted_as_scalars() -> None:
    flat = columns(terminated=np.arange(ROWS) % 7 == 3, truncated=np.arange(ROWS) % 7 == 5)
    scalars = ("rewards", "terminated", "truncated")
    tall = {name: flat.arrays[name][:, None] for name in scalars}
    dataset = Dataset.from_columns(columns(**tall))
    assert dataset.rewards.shape == dataset.terminated.shape == dataset.truncated.shape == (ROWS,)
    assert dataset.fingerprint == Dataset.from_columns(flat).fingerprint


def test_a_step_that_both_terminates_and_is_truncated_counts_as_terminated() -> None:
    terminated, truncated = np.arange(ROWS) % 4 == 3, np.arange(ROWS) % 2 == 1
    dataset = Dataset.from_columns(columns(terminated=terminated, truncated=truncated))
    np.testing.assert_array_equal(dataset.terminated, terminated)
    np.testing.assert_array_equal(dataset.truncated, truncated & ~terminated)


def test_precision_is_float32_and_float64_for_simulator_states() -> None:
    qpos = np.random.default_rng(1).normal(size=(ROWS, 4))
    dataset = Dataset.from_columns(columns(qpos=qpos, qvel=qpos + 1))
    for name in ("observations", "actions", "rewards", "next_observations"):
        assert getattr(dataset, name).dtype == np.float32
    assert dataset.qpos is not None
    assert dataset.qpos.dtype == np.float64
    np.testing.assert_array_equal(dataset.qpos, qpos)


# Action bounds


def test_an_action_out_of_bounds_is_named_with_its_row() -> None:
    actions = np.zeros((ROWS, 2))
    actions[17] = [0.5, 2.25]
    actions[30] = [-3.5, 0]
    message = refusal(columns(actions=actions), box([-3, -2], [3, 2]))
    assert "actions, row 17: [0.5, 2.25] is not between [-3.0, -2.0] and [3.0, 2.0]" in message
    assert "one of 2 such rows" in message
    assert "action_low" in message
    assert "action_high" in message


def test_each_dimension_has_its_own_bounds() -> None:
    actions = np.tile([2.5, 0.0], (ROWS, 1))
    Dataset.from_columns(columns(actions=actions), box([-3, -1], [3, 1]))
    refusal(columns(actions=actions), box([-1, -3], [1, 3]))


@pytest.mark.parametrize("sign", [-1, 1])
def test_rounding_at_a_bound_is_tolerated_and_no_more(sign: int) -> None:
    half_width = 0.4
    just_beyond = np.full((ROWS, 2), sign * half_width * (1 + 8e-6))
    too_far = np.full((ROWS, 2), sign * half_width * (1 + 1.5e-5))
    bounds = box([-half_width] * 2, [half_width] * 2)
    Dataset.from_columns(columns(actions=just_beyond), bounds)
    refusal(columns(actions=too_far), bounds)
    Dataset.from_columns(columns(actions=just_beyond / half_width))  # the same of [-1, 1]
    refusal(columns(actions=too_far / half_width))


def test_bounds_given_go_before_those_of_the_file() -> None:
    dataset = Dataset.from_columns(columns(low=[-2, -2], high=[2, 2]), box([-5, -1], [5, 4]))
    np.testing.assert_array_equal(dataset.bounds.low, [-5, -1])
    np.testing.assert_array_equal(dataset.bounds.high, [5, 4])


def test_bounds_of_the_file_go_before_minus_1_to_1() -> None:
    dataset = Dataset.from_columns(columns(low=[-2, -3], high=[2, 4]))
    np.testing.assert_array_equal(dataset.bounds.low, [-2, -3])
    np.testing.assert_array_equal(dataset.bounds.high, [2, 4])


def test_without_any_bounds_minus_1_to_1_is_taken_where_every_action_fits() -> None:
    dataset = Dataset.from_columns(columns())
    np.testing.assert_array_equal(dataset.bounds.low, [-1, -1])
    np.testing.assert_array_equal(dataset.bounds.high, [1, 1])


def test_without_any_bounds_a_larger_action_is_refused_with_what_to_do() -> None:
    actions = np.zeros((ROWS, 2))
    actions[17, 1] = -1.5
    message = refusal(columns(actions=actions))
    assert "actions, row 17: [0.0, -1.5] is not between [-1.0, -1.0] and [1.0, 1.0]" in message
    assert "give the true bounds as action_low and action_high" in message


def test_bounds_of_another_size_are_refused() -> None:
    assert "2 dimensions but the bounds have 3" in refusal(columns(), box([-1] * 3, [1] * 3))


@pytest.mark.parametrize(
    ("low", "high"),
    [
        ([-1.0], [1.0, 1.0]),
        ([-np.inf], [1.0]),
        ([0.0], [np.nan]),
        ([-1e39], [1.0]),
        ([-np.inf, -1.0], [np.inf, 1.0]),
        ([np.inf], [np.inf]),
        ([-3e38], [3e38]),  # the width is beyond float32
        ([1.0], [0.5]),
        ([-1.0, 2.0], [1.0, -2.0]),
        (list(range(40)), list(range(1, 42))),
    ],
)
def test_impossible_bounds_are_refused_in_one_line(low: list[float], high: list[float]) -> None:
    with pytest.raises(InputError, match="action bounds") as caught:
        box(low, high)
    assert "\n" not in str(caught.value)


def test_bounds_the_wrong_way_round_are_named_by_their_dimension() -> None:
    with pytest.raises(InputError, match=r"low 2.0 is above high -2.0 in dimension 2"):
        box([-1, 0, 2], [1, 0, -2])


@st.composite
def bounds_and_fractions(draw: st.DrawFn) -> tuple[ActionBounds, NDArray[np.float32]]:
    """Bounds that differ by dimension, and points of [-1, 1], ends included."""
    size = draw(st.integers(1, 4))
    exact = st.floats(-100, 100, width=32)
    low = draw(arrays(np.float32, size, elements=exact))
    width = draw(arrays(np.float32, size, elements=st.floats(0.125, 100, width=32)))
    points = draw(arrays(np.float32, (5, size), elements=st.floats(-1, 1, width=32)))
    return ActionBounds(low, low + width), points


@given(bounds_and_fractions())
def test_denormalise_never_passes_a_bound_and_normalise_undoes_it(
    drawn: tuple[ActionBounds, NDArray[np.float32]],
) -> None:
    bounds, points = drawn
    actions = bounds.denormalise(points)
    assert actions.dtype == np.float32
    assert (actions >= bounds.low).all()
    assert (actions <= bounds.high).all()
    # float32 carries actions of size 200 to 1.2e-5, and half-widths are 0.06 or more
    np.testing.assert_allclose(bounds.normalise(actions), points, atol=5e-4)
    again = bounds.denormalise(bounds.normalise(actions))
    np.testing.assert_allclose(again, actions, rtol=1e-6, atol=1e-4)


@given(bounds_and_fractions(), st.floats(1, 1000, width=32))
def test_denormalise_keeps_what_is_beyond_minus_1_to_1_inside(
    drawn: tuple[ActionBounds, NDArray[np.float32]], factor: float
) -> None:
    bounds, points = drawn
    actions = bounds.denormalise(points * np.float32(factor))
    assert (actions >= bounds.low).all()
    assert (actions <= bounds.high).all()


def test_bounds_map_to_minus_1_and_1_in_each_dimension() -> None:
    bounds = box([-1, 0, 10], [3, 0.5, 30])
    rows = np.array([[-1, 0, 10], [1, 0.25, 20], [3, 0.5, 30]], np.float32)
    expected = np.array([[-1] * 3, [0] * 3, [1] * 3], np.float32)
    np.testing.assert_array_equal(bounds.normalise(rows), expected)
    np.testing.assert_array_equal(bounds.denormalise(expected), rows)


def test_a_constant_dimension_becomes_0_and_comes_back() -> None:
    bounds = box([-1, 3], [1, 3])
    rows = np.array([[-1, 3], [0.5, 3]], np.float32)
    np.testing.assert_array_equal(bounds.normalise(rows), [[-1, 0], [0.5, 0]])
    assert bounds.normalise(np.array([[0, 3.5]], np.float32)).tolist() == [[0, 0.5]]
    np.testing.assert_array_equal(
        bounds.denormalise(np.array([[-1, -1], [0.5, 1]], np.float32)), rows
    )
    actions = np.tile([0.5, 3.0], (ROWS, 1))
    assert Dataset.from_columns(columns(actions=actions), bounds).task.action_size == 2
    actions[17, 1] = 3.5
    assert "actions, row 17" in refusal(columns(actions=actions), bounds)


def test_bounds_of_the_data_have_their_margin_and_keep_constants() -> None:
    bounds = ActionBounds.of_data(np.array([-2.0, 0.0, 3.0]), np.array([2.0, 10.0, 3.0]), 0.05)
    np.testing.assert_allclose(bounds.low, [-2.2, -0.5, 3])
    np.testing.assert_allclose(bounds.high, [2.2, 10.5, 3])
    assert ActionBounds.of_data(np.zeros(1), np.ones(1), 0).high.tolist() == [1]
    for margin in (-0.1, np.nan, np.inf):
        with pytest.raises(InputError, match="action_margin"):
            ActionBounds.of_data(np.zeros(1), np.ones(1), margin)


# What a policy knows of its task


def test_a_task_survives_a_file() -> None:
    task = Dataset.from_columns(columns(), box([-2, -1], [1, 3])).task
    assert (task.observation_size, task.action_size) == (3, 2)
    stored = json.loads(json.dumps(task.as_json()))
    assert stored == {"observation_size": 3, "action_low": [-2, -1], "action_high": [1, 3]}
    again = TaskSpec.from_json(stored)
    assert (again.observation_size, again.action_size) == (3, 2)
    np.testing.assert_array_equal(again.bounds.low, [-2, -1])
    np.testing.assert_array_equal(again.bounds.high, [1, 3])
    smallest = TaskSpec.from_json({"observation_size": 1, "action_low": [0], "action_high": [1]})
    assert (smallest.observation_size, smallest.action_size) == (1, 1)


@pytest.mark.parametrize(
    "change",
    [
        {"observation_size": 0},
        {"observation_size": 2.0},
        {"observation_size": True},
        {"observation_size": None},
        {"action_low": [], "action_high": []},
        {"action_low": [2]},
        {"action_low": None},
        {"action_high": [{}]},
        {"action_high": "high"},
    ],
)
def test_what_is_no_task_is_a_value_error(change: dict[str, Any]) -> None:
    stored = {"observation_size": 2, "action_low": [-1], "action_high": [1]}
    with pytest.raises(ValueError, match=r"task|could not convert"):
        TaskSpec.from_json(stored | change)
    for name in change:
        with pytest.raises(ValueError, match="task"):
            TaskSpec.from_json({n: value for n, value in stored.items() if n != name})


# Next observations from the following row


def paired(terminated: list[int], truncated: list[int]) -> dict[str, list[float]]:
    """Rows whose observation is their number, without next observations, as they are kept."""
    rows = len(terminated)
    numbers = np.arange(rows, dtype=float)
    batch = columns(
        observations=numbers[:, None],
        actions=numbers[:, None] / rows,
        rewards=10 * numbers,
        terminated=np.array(terminated),
        truncated=np.array(truncated),
        qpos=numbers[:, None],
        next_observations=None,
    )
    dataset = Dataset.from_columns(batch)
    kept = dataset.observations[:, 0]
    np.testing.assert_allclose(dataset.rewards, 10 * kept)
    np.testing.assert_allclose(dataset.actions[:, 0], kept / rows, rtol=1e-6)
    assert dataset.qpos is not None
    np.testing.assert_array_equal(dataset.qpos[:, 0], kept)
    return {
        "kept": kept.tolist(),
        "next": dataset.next_observations[:, 0].tolist(),
        "terminated": dataset.terminated.astype(int).tolist(),
        "truncated": dataset.truncated.astype(int).tolist(),
    }


def test_terminal_rows_stay_and_never_lead_into_the_next_episode() -> None:
    assert paired([0, 0, 1, 0, 1], [0, 0, 0, 0, 0]) == {
        "kept": [0, 1, 2, 3, 4],
        "next": [1, 2, 2, 4, 4],
        "terminated": [0, 0, 1, 0, 1],
        "truncated": [0, 0, 0, 0, 0],
    }


def test_a_truncated_last_row_is_dropped_and_the_row_before_it_ends_the_episode() -> None:
    assert paired([0, 0, 0, 0, 0, 1], [0, 0, 1, 0, 0, 0]) == {
        "kept": [0, 1, 3, 4, 5],
        "next": [1, 2, 4, 5, 5],
        "terminated": [0, 0, 0, 0, 1],
        "truncated": [0, 1, 0, 0, 0],
    }


def test_an_unfinished_tail_loses_its_last_row() -> None:
    assert paired([0, 1, 0, 0, 0], [0, 0, 0, 0, 0]) == {
        "kept": [0, 1, 2, 3],
        "next": [1, 1, 3, 4],
        "terminated": [0, 1, 0, 0],
        "truncated": [0, 0, 0, 0],
    }


def test_an_unfinished_tail_of_one_row_is_dropped() -> None:
    assert paired([0, 1, 0], [0, 0, 0])["kept"] == [0, 1]


def test_terminal_episodes_of_one_row_stay() -> None:
    assert paired([1, 1, 0, 1], [0, 0, 0, 0]) == {
        "kept": [0, 1, 2, 3],
        "next": [0, 1, 3, 3],
        "terminated": [1, 1, 0, 1],
        "truncated": [0, 0, 0, 0],
    }


def test_truncated_episodes_of_one_row_vanish_and_mark_no_neighbour() -> None:
    assert paired([0, 1, 0, 0, 0, 0, 1], [0, 0, 1, 0, 1, 1, 0]) == {
        "kept": [0, 1, 3, 6],
        "next": [1, 1, 4, 6],
        "terminated": [0, 1, 0, 1],
        "truncated": [0, 0, 1, 0],
    }


def test_a_row_with_both_ends_is_terminal_and_stays() -> None:
    assert paired([0, 1, 0, 1], [0, 1, 0, 0])["kept"] == [0, 1, 2, 3]


@pytest.mark.parametrize("truncated", [[1, 1, 1], [1, 1, 0]])
def test_nothing_left_to_pair_is_refused(truncated: list[int]) -> None:
    batch = columns(
        **{name: values[:3] for name, values in columns().arrays.items()}
        | {"truncated": np.array(truncated), "next_observations": None}
    )
    assert "next_observations: is missing" in refusal(batch)


def test_next_observations_of_the_file_are_left_alone() -> None:
    batch = columns(truncated=np.arange(ROWS) % 5 == 4, terminated=np.arange(ROWS) % 7 == 6)
    dataset = Dataset.from_columns(batch)
    expected = batch.arrays["next_observations"].astype(np.float32)
    np.testing.assert_array_equal(dataset.next_observations, expected)


# Immutability, episodes, identity


def test_arrays_cannot_be_written_to_nor_through_the_originals() -> None:
    batch = columns(
        **{name: values.astype(np.float32) for name, values in columns().arrays.items()},
        qpos=np.zeros((ROWS, 1)),
        qvel=np.zeros((ROWS, 1)),
        truncated=np.zeros(ROWS, bool),
    )
    low, high = np.full(2, -1, np.float32), np.full(2, 1, np.float32)
    dataset = Dataset.from_columns(batch, ActionBounds(low, high))
    before = {name: getattr(dataset, name).copy() for name in batch.arrays}
    for values in (*batch.arrays.values(), low, high):
        with suppress(ValueError):  # read-only where the batch took the array over
            values[:] = 1
    for name, values in before.items():
        np.testing.assert_array_equal(getattr(dataset, name), values, err_msg=name)
        with pytest.raises(ValueError, match="read-only"):
            getattr(dataset, name)[0] = 1
    for name, value in (("low", -1), ("high", 1)):
        assert (getattr(dataset.bounds, name) == value).all()
        with pytest.raises(ValueError, match="read-only"):
            getattr(dataset.bounds, name)[0] = 0


def test_arrays_are_copied_only_if_they_are_not_contiguous() -> None:
    given = np.arange(3.0 * ROWS, dtype=np.float32).reshape(ROWS, 3)
    dataset = Dataset.from_columns(columns(observations=given))
    assert np.shares_memory(dataset.observations, given)
    in_columns = np.asfortranarray(given)
    turned = Dataset.from_columns(columns(observations=in_columns))
    assert turned.observations.flags.c_contiguous
    assert turned.fingerprint == dataset.fingerprint
    assert replace(dataset, observations=in_columns).fingerprint == dataset.fingerprint


def test_episodes_and_returns_worked_by_hand() -> None:
    dataset = Dataset.from_columns(
        columns(
            **{name: values[:7] for name, values in columns().arrays.items()}
            | {
                "rewards": np.array([1, 2, 4, 8, 16, 32, 64]),
                "terminated": np.array([0, 1, 0, 0, 0, 0, 0]),
                "truncated": np.array([0, 0, 1, 0, 0, 1, 0]),
            }
        )
    )
    assert dataset.episodes.tolist() == [[0, 2], [2, 3], [3, 6], [6, 7]]
    assert dataset.episode_returns.tolist() == [3, 4, 56]  # the last has no end


def test_a_batch_that_stops_at_an_end_has_no_empty_episode() -> None:
    terminated = np.arange(ROWS) % 20 == 19
    dataset = Dataset.from_columns(columns(terminated=terminated, rewards=np.ones(ROWS)))
    assert dataset.episodes.tolist() == [[0, 20], [20, 40]]
    assert dataset.episode_returns.tolist() == [20, 20]


def test_a_batch_without_ends_is_one_episode_without_a_return() -> None:
    dataset = Dataset.from_columns(columns())
    assert dataset.episodes.tolist() == [[0, ROWS]]
    assert dataset.episode_returns.tolist() == []


def test_returns_are_summed_in_float64() -> None:
    rewards = np.ones(ROWS)
    rewards[0] = 2**24  # the sum is odd: not a float32
    dataset = Dataset.from_columns(columns(rewards=rewards, truncated=np.arange(ROWS) == ROWS - 1))
    assert dataset.episode_returns.tolist() == [2**24 + ROWS - 1]


@pytest.mark.parametrize(
    "name",
    ["observations", "actions", "rewards", "next_observations", "terminated", "truncated"],
)
def test_the_fingerprint_changes_with_one_value_of_each_field(name: str) -> None:
    batch = columns(truncated=np.zeros(ROWS, bool))
    changed = batch.arrays[name].copy()
    changed[17] = 1 if changed.dtype == bool else changed[17] * 0.999
    other = replace(batch, arrays={**batch.arrays, name: changed})
    assert Dataset.from_columns(other).fingerprint != Dataset.from_columns(batch).fingerprint


@pytest.mark.parametrize("bounds", [box([-2, -1], [1, 1]), box([-1, -1], [1, 2])])
def test_the_fingerprint_changes_with_the_bounds(bounds: ActionBounds) -> None:
    plain = Dataset.from_columns(columns())
    assert Dataset.from_columns(columns(), bounds).fingerprint != plain.fingerprint


def test_the_fingerprint_is_blind_to_what_training_does_not_see() -> None:
    batch = columns()
    stored = {
        name: np.asfortranarray(values.astype(">f8") if values.dtype == float else values)
        for name, values in batch.arrays.items()
    }
    other = Columns(
        "elsewhere.hdf5",
        stored | {"qpos": np.ones((ROWS, 1)), "qvel": np.ones((ROWS, 1))},
        Provenance("Pendulum-v1", "random", "uniform", 3, "9.9"),
        action_low=np.full(2, -1.0),
        action_high=np.full(2, 1.0),
    )
    assert Dataset.from_columns(other).fingerprint == Dataset.from_columns(batch).fingerprint


def test_columns_and_dataset_are_inverse() -> None:
    dataset = Dataset.from_columns(columns(qpos=np.ones((ROWS, 1)), qvel=np.ones((ROWS, 2))))
    again = Dataset.from_columns(dataset.columns())
    assert again.fingerprint == dataset.fingerprint
    assert again.provenance == dataset.provenance
    np.testing.assert_array_equal(again.qpos, dataset.qpos)
    np.testing.assert_array_equal(again.qvel, dataset.qvel)


def test_a_batch_of_one_row_is_a_batch() -> None:
    one = {name: values[:1] for name, values in columns().arrays.items()}
    dataset = Dataset.from_columns(columns(**one))
    assert (len(dataset), dataset.episodes.tolist()) == (1, [[0, 1]])


def test_the_fingerprint_changes_with_the_shape() -> None:
    prints = set()
    # Every number is 0 but the last bound, so that both have the same bytes.
    for size, width, bounds in ((2, 1, box([0], [1])), (1, 2, box([0, 0], [0, 1]))):
        arrays = {
            "observations": np.zeros((2, size)),
            "actions": np.zeros((2, width)),
            "rewards": np.zeros(2),
            "next_observations": np.zeros((2, size)),
            "terminated": np.zeros(2, bool),
        }
        prints.add(Dataset.from_columns(columns(**arrays), bounds).fingerprint)
    assert len(prints) == 2


def test_labels_leave_the_names_as_they_are() -> None:
    names = {"observations": ["mode"], "next_observations": ["later"]}
    layout = Layout((ObservationColumn("mode", ("off", "on")),))
    batch = replace(columns(), names=names, layout=layout)
    assert batch.labels == {
        "observations": ("mode=off", "mode=on"),
        "next_observations": ("later=off", "later=on"),
    }
    assert names == {"observations": ["mode"], "next_observations": ["later"]}
    assert columns().labels == {}
