"""Discrete actions in batches: every format carries numbers, names, masks and propensities."""

import json
import warnings
from pathlib import Path
from typing import Any

import gymnasium
import h5py
import minari
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from gymnasium.spaces import Box
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from minari.data_collector import EpisodeBuffer

import bcq
from bcq.data.actions import SeenActions
from bcq.data.bounds import ActionBounds, Choices, TaskSpec
from bcq.data.checks import check
from bcq.data.columns import Columns, Provenance
from bcq.data.dataset import Dataset
from bcq.data.doctor.examination import examine_dataset
from bcq.data.formats import tables
from bcq.data.inspection import as_text, picture, summary
from bcq.data.opening import Options
from bcq.data.saving import convert, save
from bcq.system.colours import COLOURS
from bcq.system.errors import InputError
from refusals import refusal

ROWS, LENGTH = 40, 10
NAMES = ("high", "low", "none")
# Sorted by name: the number of each text below.
TAKEN = np.array([2, 1, 0, 1, 2, 2, 0, 1] * 5)


def masks() -> np.ndarray:
    """Every choice is permitted but `high` in each third row where it was not taken."""
    permitted = np.ones((ROWS, 3), bool)
    permitted[::3, 0] = TAKEN[::3] == 0
    return permitted


def table(**changes: Any) -> dict[str, Any]:
    generator = np.random.default_rng(0)
    complete = {
        "episode": np.arange(ROWS) // LENGTH,
        "obs_0": generator.normal(size=ROWS),
        "obs_1": generator.normal(size=ROWS),
        "action": np.array(NAMES)[TAKEN],
        "reward": generator.normal(size=ROWS),
        "terminated": np.arange(ROWS) % LENGTH == LENGTH - 1,
        **{f"permitted_{name}": masks()[:, i] for i, name in enumerate(NAMES)},
        "propensity": np.linspace(0.1, 1, ROWS),
    } | changes
    return {name: values for name, values in complete.items() if values is not None}


def write(path: Path, columns: dict[str, Any]) -> Path:
    content = pa.table({name: pa.array(values) for name, values in columns.items()})
    if path.suffix == ".csv":
        pyarrow.csv.write_csv(content, path)
    else:
        pq.write_table(content, path)
    return path


@pytest.fixture(params=[".csv", ".parquet"])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return tmp_path / f"log{request.param}"


def assert_same(one: Dataset, other: Dataset) -> None:
    assert one.fingerprint == other.fingerprint
    assert one.task.choices == other.task.choices
    for name in ("actions", "permitted", "next_permitted", "propensities"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)


def test_a_table_with_names_masks_and_propensities(log: Path) -> None:
    dataset = bcq.load(write(log, table()))
    assert dataset.task.choices == NAMES
    assert dataset.task.action_size == 3
    assert dataset.actions.dtype == np.float32
    assert dataset.actions[:, 0].tolist() == TAKEN.tolist()
    np.testing.assert_array_equal(dataset.permitted, masks())
    assert dataset.next_permitted is not None
    inside = np.flatnonzero(~dataset.terminated)
    np.testing.assert_array_equal(dataset.next_permitted[inside], masks()[inside + 1])
    assert dataset.propensities is not None
    np.testing.assert_allclose(dataset.propensities, np.linspace(0.1, 1, ROWS), rtol=1e-6)


def test_masks_follow_the_choices_not_the_order_of_their_columns(log: Path) -> None:
    columns = table()
    turned = {name: columns.pop(f"permitted_{name}") for name in ("none", "high", "low")}
    write(log, columns | {f"permitted_{name}": values for name, values in turned.items()})
    np.testing.assert_array_equal(bcq.load(log).permitted, masks())


def test_a_choice_that_only_its_mask_names_is_one(log: Path) -> None:
    never = table(permitted_surgery=np.ones(ROWS, bool))
    assert bcq.load(write(log, never)).task.choices == (*NAMES, "surgery")


def test_masks_with_other_names_are_refused(log: Path) -> None:
    columns = table()
    for name in NAMES:
        columns[f"ok{name}"] = columns.pop(f"permitted_{name}")
    given = {"permitted": [f"ok{name}" for name in NAMES]}
    assert "permitted: name one column for each of the choices high, low, none" in refusal(
        write(log, columns), columns=given
    )


@pytest.mark.parametrize("prefix", ["ok_", ""])
def test_masks_may_be_named_by_their_choices_alone(prefix: str, log: Path) -> None:
    columns = table()
    for name in NAMES:
        columns[prefix + name] = columns.pop(f"permitted_{name}")
    given = {"permitted": [prefix + name for name in ("none", "high", "low")]}
    dataset = bcq.load(write(log, columns | {"ok_more": np.ones(ROWS)}), columns=given)
    assert dataset.task.choices == NAMES
    np.testing.assert_array_equal(dataset.permitted, masks())
    words = (
        "permitted: name one column for each of the choices high, low, none, such as permitted_h"
    )
    for wrong in ([*given["permitted"], "ok_more"], given["permitted"][:2]):
        assert words in refusal(log, columns={"permitted": wrong})


def test_masks_of_numbers_follow_the_numbers_if_all_columns_have_one(log: Path) -> None:
    columns = table(action=TAKEN)
    found = [columns.pop(f"permitted_{name}") for name in NAMES]
    write(log, columns | {f"permitted_{i}": found[i] for i in (2, 0, 1)})
    np.testing.assert_array_equal(bcq.load(log).permitted, masks())
    for names in (("a", "b", "c"), ("c", "ok_0", "ok_1"), ("ok_0", "no_0", "ok_1")):
        write(log, columns | dict(zip(names, found, strict=True)))
        dataset = bcq.load(log, columns={"permitted": names})
        np.testing.assert_array_equal(dataset.permitted, masks())


def test_a_bad_cell_among_names_is_told_with_its_row(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bcq.data.formats.arrow.BATCH_ROWS", 7)
    texts = [NAMES[number] for number in TAKEN]
    texts[25] = "?"
    message = refusal(write(log, table(action=texts)))
    words = "actions, row 25: action is '?', neither a number nor a word that begins"
    assert message.startswith(f"{log}: {words}")


def test_every_format_keeps_everything(log: Path, tmp_path: Path) -> None:
    dataset = bcq.load(write(log, table()))
    save(dataset, tmp_path / "copy.hdf5")
    save(dataset, tmp_path / "copy-v0")
    arrays: dict[str, Any] = dict(dataset.columns().arrays) | {"action_names": np.array(NAMES)}
    np.savez(tmp_path / "copy.npz", **arrays)
    for name in ("copy.hdf5", "copy-v0", "copy.npz"):
        assert_same(bcq.load(tmp_path / name), dataset)


def test_a_table_is_converted_in_parts(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bcq.data.formats.tables.WINDOW_BYTES", 4 * 10 * 7)  # seven rows
    write(log, table(action=TAKEN, permitted_high=None, permitted_low=None, permitted_none=None))
    convert(str(log), str(tmp_path / "parts.hdf5"), Options())
    with h5py.File(tmp_path / "parts.hdf5") as file:
        assert file["rewards"].chunks[0] < ROWS / 2  # as many rows as came in the first part
    whole = bcq.load(log)
    assert whole.task.choices == ("0", "1", "2")
    assert_same(bcq.load(tmp_path / "parts.hdf5"), whole)
    write(log, table())
    converted = convert(log, tmp_path / "named.hdf5", Options())
    assert converted.task.choices == NAMES
    assert_same(bcq.load(tmp_path / "named.hdf5"), bcq.load(log))


def test_a_number_that_only_has_a_mask_is_a_choice_of_a_converted_table(
    log: Path, tmp_path: Path
) -> None:
    columns = table(action=TAKEN)
    for i, name in enumerate(NAMES):
        columns[f"permitted_{i}"] = columns.pop(f"permitted_{name}")
    write(log, columns | {"permitted_3": np.ones(ROWS, bool)})
    converted = convert(log, tmp_path / "new.hdf5", Options())
    assert converted.task.choices == ("0", "1", "2", "3")
    assert bcq.load(log).task.choices == ("0", "1", "2", "3")


@pytest.mark.parametrize("kind", [str, "S5", object])
def test_names_in_hdf5(kind: Any, tmp_path: Path) -> None:
    with h5py.File(tmp_path / "log.hdf5", "w") as file:
        names = [NAMES[number] for number in TAKEN]
        text = h5py.string_dtype() if kind is not object else h5py.string_dtype("utf-8", 8)
        file["actions"] = np.array(names, "S5") if kind == "S5" else np.array(names, text)
        file["observations"] = np.zeros((ROWS, 2))
        file["rewards"] = np.zeros(ROWS)
        file["terminals"] = np.arange(ROWS) % LENGTH == LENGTH - 1
    dataset = bcq.load(tmp_path / "log.hdf5")
    assert dataset.task.choices == NAMES
    assert dataset.actions[:, 0].tolist() == TAKEN.tolist()


def test_names_in_npz(tmp_path: Path) -> None:
    names = np.array(NAMES)[TAKEN]
    np.savez(tmp_path / "log.npz", **plain(actions=names))
    assert bcq.load(tmp_path / "log.npz").task.choices == NAMES
    np.savez(tmp_path / "pairs.npz", **plain(actions=np.stack([names, names], axis=1)))
    assert "have 2 dimensions but the bounds have 1" in refusal(tmp_path / "pairs.npz")
    np.savez(tmp_path / "objects.npz", **plain(actions=names.astype(object)))
    assert "no pickle is opened" in refusal(tmp_path / "objects.npz")


def plain(**changes: Any) -> dict[str, Any]:
    """The arrays of an npz file."""
    return {
        "observations": np.random.default_rng(1).normal(size=(ROWS, 2)),
        "actions": TAKEN,
        "rewards": np.arange(ROWS, dtype=float),
        "terminated": np.arange(ROWS) % LENGTH == LENGTH - 1,
    } | changes


def test_minaris_own_choices_come_in_and_go_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    generator = np.random.default_rng(0)
    buffer = EpisodeBuffer(
        observations=generator.normal(size=(LENGTH + 1, 2)),
        actions=TAKEN[:LENGTH] + 5,
        rewards=list(range(LENGTH)),
        terminations=[False] * (LENGTH - 1) + [True],
        truncations=[False] * LENGTH,
    )
    space = Box(-np.inf, np.inf, (2,), np.float64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about missing authorship
        minari.create_dataset_from_buffers(
            "test/choices-v0",
            [buffer],
            observation_space=space,
            action_space=gymnasium.spaces.Discrete(4, start=5),
            data_format="hdf5",
        )
    dataset = bcq.load("minari:test/choices-v0")
    assert dataset.task.choices == ("5", "6", "7", "8")
    assert dataset.actions[:, 0].tolist() == TAKEN[:LENGTH].tolist()
    save(dataset, "minari:test/again-v0")
    again = minari.load_dataset("test/again-v0")
    assert again.action_space == gymnasium.spaces.Discrete(4)
    assert next(iter(again)).actions.tolist() == TAKEN[:LENGTH].tolist()
    assert_same(bcq.load("minari:test/again-v0"), dataset)


@pytest.mark.parametrize(
    ("values", "choices"),
    [
        (TAKEN, 3),
        (TAKEN % 2 == 0, 2),
        (TAKEN.astype(float), 3),
        (np.arange(ROWS) % 16, 16),
        (np.arange(ROWS) % 17, None),  # too many to be recognised
        (TAKEN * 2, None),  # 0, 2, 4: a gap
        (TAKEN + 1, None),
        (TAKEN / 2, None),
        (np.zeros(ROWS), None),  # one value says nothing
    ],
)
def test_small_whole_numbers_are_recognised(values: Any, choices: int | None, log: Path) -> None:
    columns = table(action=values)
    for name in NAMES:
        del columns[f"permitted_{name}"]
    write(log, columns)
    if choices is None:
        with tables.open_log(log, {}) as opened:
            assert not opened.seen_actions().are_choices()
        assert not SeenActions.of_arrays({"actions": values[:, None]}).are_choices()
    else:
        assert bcq.load(log).task.choices == tuple(map(str, range(choices)))


def test_bounds_or_a_word_make_them_quantities(tmp_path: Path) -> None:
    np.savez(tmp_path / "log.npz", **plain())
    path = tmp_path / "log.npz"
    assert bcq.load(path).task.choices == ("0", "1", "2")
    for given in ({"action_low": [0], "action_high": [2]}, {"action_margin": 0.0}):
        bounds = bcq.load(path, **given).bounds
        assert not isinstance(bounds, Choices)
        assert bounds.high.tolist() == [2]
    assert "is not between [-1.0] and [1.0]" in refusal(path, action_kind="continuous")
    np.savez(path, **plain(action_low=[0.0], action_high=[2.0]))
    assert bcq.load(path).task.choices is None
    assert bcq.load(path, action_kind="discrete").task.choices == ("0", "1", "2")


def test_an_environment_tells_the_number_of_choices(tmp_path: Path) -> None:
    np.savez(tmp_path / "log.npz", **plain(actions=TAKEN % 2))
    task = bcq.load(tmp_path / "log.npz", environment="Acrobot-v1").task
    assert task.choices == ("0", "1", "2")  # of which the log takes two


def test_names_cannot_be_quantities(log: Path) -> None:
    write(log, table())
    words = "actions: are choices; they have no bounds and cannot be continuous"
    assert words in refusal(log, action_kind="continuous")
    assert words in refusal(log, action_margin=0.1)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"actions": np.where(np.arange(ROWS) == 7, np.nan, TAKEN)},
            "actions, row 7: actions is nan",
        ),
        ({"actions": np.where(np.arange(ROWS) == 7, 1.5, TAKEN)}, "actions, row 7: 1.5 is not"),
        ({"actions": np.where(np.arange(ROWS) == 7, -1, TAKEN)}, "actions, row 7: -1 is not"),
        ({"actions": np.where(np.arange(ROWS) == 7, 10**9, TAKEN)}, "1000000000 is too large"),
        ({"actions": np.where(np.arange(ROWS) == 7, 1e300, TAKEN)}, "is too large"),
        ({"actions": np.stack([TAKEN, TAKEN], axis=1)}, "have 2 dimensions but the bounds have 1"),
        ({"action_names": np.array(["a", "b"])}, "actions, row 0: 2 is not the number of a choice"),
        ({"action_names": np.array(["a", "a", "c"])}, "two choices have the name 'a'"),
        ({"action_names": np.array(["a", "b\nc", "d"])}, "'b\\nc' is not a name for a choice"),
        ({"action_names": np.array(["a", " ", "d"])}, "' ' is not a name for a choice"),
        ({"action_names": np.array(["a", "b" * 101, "d"])}, "is not a name for a choice"),
        ({"permitted": np.ones((ROWS, 2))}, "permitted: has 2 columns but there are 3 choices"),
        ({"permitted": np.full((ROWS, 3), 0.5)}, "permitted, row 0: is 0.5; it must be 0 or 1"),
        ({"permitted": TAKEN[:, None] != np.arange(3)}, "actions, row 0: choice 2 was not perm"),
        (
            {"permitted": np.ones((ROWS, 3)), "next_observations": np.zeros((ROWS, 2))},
            "next_permitted: is missing",
        ),
        (
            {
                "permitted": np.ones((ROWS, 3)),
                "next_observations": np.zeros((ROWS, 2)),
                "next_permitted": np.arange(ROWS)[:, None] != np.full((1, 3), 4),
            },
            "next_permitted, row 4: no choice is permitted",
        ),
        ({"propensities": np.where(np.arange(ROWS) == 7, 0.0, 0.5)}, "propensities, row 7: is 0"),
        ({"propensities": np.where(np.arange(ROWS) == 7, 1.1, 0.5)}, "propensities, row 7: is 1.1"),
        ({"propensities": np.where(np.arange(ROWS) == 7, -0.1, 0.5)}, "row 7: is -0.1"),
    ],
)
def test_hostile_choices_are_refused_in_one_line(
    changes: dict[str, Any], words: str, tmp_path: Path
) -> None:
    np.savez(tmp_path / "log.npz", **plain(**changes))
    kind = "auto" if "action_names" in changes else "discrete"
    assert words in refusal(tmp_path / "log.npz", action_kind=kind)


def test_masks_and_numbers_are_told_with_every_row_and_their_reason() -> None:
    half = np.ones((ROWS, 3))
    half[7, 2] = half[9, 0] = half[9, 1] = 0.5
    forbidden = np.ones((ROWS, 3))
    forbidden[[4, 6], TAKEN[[4, 6]]] = 0
    for changes, kind, field, rows, problem in (
        ({"permitted": half}, "not-a-flag", "permitted", [7, 9], "is 0.5"),
        (
            {"permitted": forbidden},
            "wrong-mask",
            "actions",
            [4, 6],
            "choice 2 was not permitted (one of 2 such rows)",
        ),
        (
            {"actions": np.where(np.isin(np.arange(ROWS), [3, 8]), 3, TAKEN)},
            "not-a-choice",
            "actions",
            [3, 8],
            "3 is not the number of a choice, 0 to 2 (one of 2 such rows)",
        ),
        (
            {"propensities": np.where(np.isin(np.arange(ROWS), [3, 8]), 1.5, 1)},
            "not-a-propensity",
            "propensities",
            [3, 8],
            "is 1.5 (one of 2 such rows)",
        ),
    ):
        found = check(Columns("test", plain(**changes), Provenance(), choices=NAMES)).errors
        (finding,) = (f for f in found if f.kind == kind)
        assert finding.rows is not None
        assert (finding.field, finding.rows.tolist(), finding.problem) == (field, rows, problem)
        assert finding.option == ("action_kind" if kind == "not-a-choice" else None)
        if kind == "not-a-flag":
            assert finding.why == "a choice is either permitted or not"


def test_what_is_no_choice_cannot_be_forbidden() -> None:
    actions = np.where(np.arange(ROWS) == 3, 7, TAKEN)
    given = plain(actions=actions, permitted=np.ones((ROWS, 3)))
    found = check(Columns("test", given, Provenance(), choices=NAMES)).errors
    assert [finding.kind for finding in found] == ["not-a-choice"]


def test_a_row_after_which_nothing_is_permitted_is_told() -> None:
    given = plain(
        permitted=np.ones((ROWS, 3)),
        next_observations=np.zeros((ROWS, 2)),
        next_permitted=np.repeat(~np.isin(np.arange(ROWS), [4, 6])[:, None], 3, axis=1),
    )
    (finding,) = check(Columns("test", given, Provenance(), choices=NAMES)).errors
    assert (finding.kind, finding.field) == ("wrong-mask", "next_permitted")
    assert finding.rows is not None
    assert finding.rows.tolist() == [4, 6]
    assert finding.problem == "no choice is permitted (one of 2 such rows)"
    assert finding.remedy == "check the mask of this row"


def test_a_probability_may_be_above_one_by_rounding_only() -> None:
    assert batch(propensities=np.full(ROWS, 1 + 0.8e-6)).propensities is not None
    with pytest.raises(InputError, match="propensities, row 0: is 1"):
        batch(propensities=np.full(ROWS, 1 + 1.6e-6))


def test_a_wrong_mask_has_its_kind_and_its_remedy() -> None:
    columns = Columns("test", plain(permitted=np.ones((ROWS, 2))), Provenance(), choices=NAMES)
    (finding,) = check(columns).errors
    assert (finding.kind, finding.field) == ("wrong-mask", "permitted")
    assert finding.problem == "has 2 columns but there are 3 choices"
    assert finding.remedy == "give one column for each choice"
    assert finding.why == "values are compared only among permitted choices"


def test_after_a_terminal_no_choice_is_needed(tmp_path: Path) -> None:
    ends = np.arange(ROWS) % LENGTH == LENGTH - 1
    given = {
        "permitted": np.ones((ROWS, 3)),
        "next_observations": np.zeros((ROWS, 2)),
        "next_permitted": np.repeat(~ends[:, None], 3, axis=1),
    }
    np.savez(tmp_path / "log.npz", **plain(**given))
    np.testing.assert_array_equal(
        bcq.load(tmp_path / "log.npz").next_permitted, given["next_permitted"]
    )


def test_masks_of_numbers_become_flags(tmp_path: Path) -> None:
    np.savez(tmp_path / "log.npz", **plain(permitted=masks().astype(float)))
    dataset = bcq.load(tmp_path / "log.npz")
    assert dataset.permitted is not None
    assert dataset.permitted.dtype == bool
    np.testing.assert_array_equal(dataset.permitted, masks())


def test_a_minari_data_set_says_that_its_actions_are_whole_numbers(tmp_path: Path) -> None:
    save(batch(), tmp_path / "log-v0")
    with h5py.File(tmp_path / "log-v0/data/main_data.hdf5") as file:
        assert file["episode_0/actions"].dtype == np.int64
    path = tmp_path / "log-v0/data/metadata.json"
    metadata = json.loads(path.read_text())
    space = {"type": "Discrete", "dtype": "int64", "start": 0, "n": 3}
    assert json.loads(metadata["action_space"]) == space
    del space["start"]  # older versions of Gymnasium have none
    path.write_text(json.dumps(metadata | {"action_space": json.dumps(space)}))
    dataset = bcq.load(tmp_path / "log-v0")
    assert dataset.task.choices == NAMES
    assert dataset.actions[:, 0].tolist() == TAKEN.tolist()
    names = {"bcq_action_names": ["a", "b"]}  # of other choices
    path.write_text(json.dumps(metadata | names))
    assert bcq.load(tmp_path / "log-v0").task.choices == ("0", "1", "2")


def test_densities_may_be_above_one(tmp_path: Path) -> None:
    continuous = plain(actions=np.linspace(-1, 1, ROWS)[:, None], propensities=np.full(ROWS, 7.5))
    np.savez(tmp_path / "log.npz", **continuous)
    assert bcq.load(tmp_path / "log.npz").propensities is not None
    continuous["propensities"][3] = 0
    np.savez(tmp_path / "log.npz", **continuous)
    assert "propensities, row 3: is 0 (one of 1 such rows); it must be above 0" in refusal(
        tmp_path / "log.npz"
    )


def test_masks_of_quantities_are_refused(tmp_path: Path) -> None:
    for width in (3, 1):
        np.savez(tmp_path / "log.npz", **plain(permitted=np.ones((ROWS, width))))
        assert f"permitted: has {width} columns but there are no choices" in refusal(
            tmp_path / "log.npz", action_margin=0.0
        )


def test_texts_that_are_no_names_are_refused(log: Path) -> None:
    columns = table(permitted_high=None, permitted_low=None, permitted_none=None)
    many = [f"dose of {i} mg" for i in range(1_001)]
    long = {name: np.resize(values, 1_001) for name, values in columns.items()}
    assert "column action has more than 1,000 different texts" in refusal(
        write(log, long | {"action": many})
    )
    texts = [NAMES[number] for number in TAKEN]
    texts[5] = "no\nne"
    assert "'no\\nne' is not a name for a choice" in refusal(
        write(log, columns | {"action": texts})
    )


def test_a_bad_cell_among_numbers_is_no_name(tmp_path: Path) -> None:
    columns = table(permitted_high=None, permitted_low=None, permitted_none=None)
    texts = [str(number) for number in TAKEN]
    texts[5] = "n/k"
    write(tmp_path / "log.csv", columns | {"action": texts})
    assert "n/k" in refusal(tmp_path / "log.csv")


def test_a_missing_name_is_a_missing_cell(log: Path) -> None:
    columns = table(permitted_high=None, permitted_low=None, permitted_none=None)
    texts: list[str | None] = [NAMES[number] for number in TAKEN]
    texts[5] = None
    write(log, columns | {"action": texts})
    assert "actions, row 5: action is nan" in refusal(log)
    filled = bcq.load(log, missing="fill").actions[:, 0]
    assert filled.tolist() == [*TAKEN[:5], TAKEN[4], *TAKEN[6:]]


def batch(**changes: Any) -> Dataset:
    columns = Columns("test", plain(**changes), Provenance(), choices=NAMES)
    return Dataset.from_checked(check(columns))


def test_names_and_masks_are_part_of_the_fingerprint() -> None:
    known = {batch().fingerprint}
    renamed = Dataset.from_checked(
        check(Columns("test", plain(), Provenance(), choices=("a", "b", "c")))
    )
    known.add(renamed.fingerprint)
    known.add(batch(permitted=np.ones((ROWS, 3), bool)).fingerprint)
    known.add(batch(permitted=masks()).fingerprint)
    assert len(known) == 4
    assert batch(propensities=np.full(ROWS, 0.5)).fingerprint in known  # training never sees them


def test_a_task_with_choices_is_stored_and_read() -> None:
    task = TaskSpec(4, Choices(NAMES))
    content = json.loads(json.dumps(task.as_json()))
    assert content["action_names"] == list(NAMES)
    assert (content["action_low"], content["action_high"]) == ([0], [2])
    assert TaskSpec.from_json(content).choices == NAMES
    for bad in (["a", "a"], [], "ab\n", [1, 2], {"a": 1}):
        with pytest.raises(ValueError, match="task"):
            TaskSpec.from_json(content | {"action_names": bad})


def test_numbers_of_choices_are_whole_to_learners_and_float32_in_a_batch() -> None:
    choices = Choices(NAMES)
    taken = choices.normalise(np.array([[2], [0]], np.float32))
    assert taken.tolist() == [2, 0]
    assert taken.dtype == np.int32
    stored = choices.denormalise(taken)
    assert stored.tolist() == [[2], [0]]
    assert stored.dtype == np.float32


def test_quantities_have_no_names() -> None:
    task = TaskSpec(4, ActionBounds(np.zeros(2, np.float32), np.ones(2, np.float32)))
    assert task.choices is None
    assert "action_names" not in task.as_json()


def test_the_summary_counts_choices(tmp_path: Path) -> None:
    dataset = batch(permitted=masks(), propensities=np.full(ROWS, 0.25))
    figures = summary(dataset)
    assert figures["actions"] == {
        "choices": list(NAMES),
        "taken": [10, 15, 15],
        "permitted": [int(masks()[:, 0].sum()), ROWS, ROWS],
    }
    text = as_text(figures)
    assert "actions        3 choices" in text
    assert "low                          15   37.5%    100.0%" in text
    assert "propensities        0.25" in text
    picture(dataset, tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 1_000


def test_a_choice_that_was_never_taken_is_counted_too() -> None:
    assert summary(batch(actions=TAKEN % 2))["actions"]["taken"] == [25, 15, 0]


def test_the_picture_shows_the_most_common_choices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    panels: list[Any] = []

    def noted(figure: Figure, path: Path, **_: Any) -> None:
        panels.extend(figure.axes)
        path.touch()

    monkeypatch.setattr(Figure, "savefig", noted)
    often = np.concatenate([[3, 1, 0, 4, 2, 0, 0, 0], np.arange(16) + 5])
    taken = np.repeat(np.arange(24), often)
    rows = len(taken)
    arrays = {
        "observations": np.zeros((rows, 2)),
        "next_observations": np.zeros((rows, 2)),
        "actions": taken,
        "rewards": np.zeros(rows),
        "terminated": np.zeros(rows, bool),
    }
    names = [f"choice {number}" for number in range(24)]
    columns = Columns("test", arrays, Provenance(), choices=names)
    dataset = Dataset.from_checked(check(columns))
    picture(dataset, tmp_path / "picture.png")
    axes = panels[2]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("share", "choice")
    labels = axes.get_yticklabels()
    common = [1, 4, 0, 3, *range(8, 24)]  # taken 1, 2, 3, 4, 5, 6, ... times
    assert [label.get_text() for label in labels] == [f"choice {number}" for number in common]
    assert {label.get_size() for label in labels} == {7}
    assert {label.get_size() for label in axes.get_xticklabels()} != {7}
    widths = [bar.get_width() for bar in axes.patches]
    np.testing.assert_allclose(widths, np.arange(1, 21) / len(dataset))
    assert {bar.get_facecolor() for bar in axes.patches} == {to_rgba(COLOURS["bcq"])}


def kinds(dataset: Dataset) -> set[str]:
    return {finding.kind for finding in examine_dataset(dataset)}


def test_the_doctor_knows_choices() -> None:
    assert not {"far-from-bounds", "discrete-actions", "unused-choices"} & kinds(batch())
    unused = [f for f in examine_dataset(batch(actions=TAKEN % 2)) if f.kind == "unused-choices"]
    assert [finding.problem for finding in unused] == ["never taken: none"]
    assert [finding.field for finding in unused] == ["actions"]


@pytest.mark.parametrize(("count", "end"), [(11, "10"), (12, "10 and 1 more")])
def test_many_unused_choices_are_named_in_short(count: int, end: str) -> None:
    names = [str(number) for number in range(count)]
    columns = Columns("test", plain(), Provenance(), choices=names)
    found = examine_dataset(Dataset.from_checked(check(columns)))
    (unused,) = (finding for finding in found if finding.kind == "unused-choices")
    assert unused.problem == f"never taken: 3, 4, 5, 6, 7, 8, 9, {end}"


def thermostat(shift: int, random: float) -> Dataset:
    """Heating off, on or boosted, sometimes at random; actions are stored `shift` rows late."""
    generator = np.random.default_rng(3)
    episodes = []
    for _ in range(40):
        inside, rows = 18.0, []
        for _ in range(50):
            choice = 2 if inside < 17 else 1 if inside < 19 else 0
            if generator.random() < random:
                choice = int(generator.integers(3))
            after = inside + (-1.0, 0.7, 2.0)[choice] + generator.normal(0, 0.1)
            rows.append((inside, choice, -abs(after - 19), after))
            inside = after
        episodes.append(np.array(rows))
    observations, choices, rewards, following = np.concatenate(episodes).T
    choices = np.concatenate([np.roll(part, shift) for part in choices.reshape(40, 50)])
    arrays = {
        "observations": observations[:, None],
        "actions": choices.astype(int),
        "rewards": rewards,
        "next_observations": following[:, None],
        "terminated": np.zeros(2_000, bool),
        "truncated": np.arange(2_000) % 50 == 49,
    }
    return Dataset.from_checked(check(Columns("log", arrays, Provenance(), choices=NAMES)))


def test_shifted_choices_are_found_and_aligned_ones_are_not() -> None:
    for random in (0.05, 0.2, 1.0):
        assert "shifted-actions" not in kinds(thermostat(0, random))
    assert "shifted-actions" in kinds(thermostat(1, 0.2))
    # A choice stored early shows which observation it reacts to; only random ones show the shift.
    assert "shifted-actions" in kinds(thermostat(-1, 1.0))


def test_a_single_choice_is_a_choice_and_its_name_may_have_100_characters(
    tmp_path: Path,
) -> None:
    name = "x" * 100
    none = np.zeros(ROWS)
    np.savez(tmp_path / "log.npz", **plain(actions=none, action_names=np.array(name)))
    assert bcq.load(tmp_path / "log.npz").task.choices == (name,)
    with h5py.File(tmp_path / "log.hdf5", "w") as file:
        arrays = plain(actions=none)
        arrays["terminals"] = arrays.pop("terminated")
        for key, values in arrays.items():
            file[key] = values
        file.attrs["action_names"] = name
    assert bcq.load(tmp_path / "log.hdf5").task.choices == (name,)
    assert Choices(["wait"]).outputs == 1


def test_actions_are_seen_block_by_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bcq.data.actions.BLOCK", 3)
    quantities = [[-4, 2], [5, np.nan], [0, np.inf], [1, 3], [2, 0], [3, 1], [9, 4]]
    seen = SeenActions.of_arrays({"actions": np.array(quantities)})
    found = seen.range()
    assert found is not None
    assert (found[0].tolist(), found[1].tolist()) == ([-4, 0], [9, 4])
    assert seen.choices().outputs == 10
    assert not seen.are_choices()
    numbers = SeenActions.of_arrays({"actions": np.array([3, 0, 0, 1, 1, 0, 2])})
    assert numbers.are_choices()
    assert numbers.choices().outputs == 4


def test_where_no_action_says_more_there_is_one_choice() -> None:
    assert SeenActions.of_arrays({}).range() is None
    nothing = {"actions": np.array([[1, np.nan], [2, np.nan]])}
    for arrays in ({}, nothing, {"actions": np.zeros(4)}, {"actions": np.array(["a", "b"])}):
        seen = SeenActions.of_arrays(arrays)
        assert seen.choices().outputs == 1
        assert not seen.are_choices()
    masked = SeenActions.of_arrays({"actions": np.zeros(4), "permitted": np.ones((4, 5))})
    assert masked.are_choices()
    assert masked.choices().outputs == 5


def test_masks_and_actions_of_a_wrong_shape_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "log.npz", **plain(permitted=np.ones(ROWS)))
    assert "permitted: has shape (40,); it must be (transitions, size)" in refusal(
        tmp_path / "log.npz"
    )
    np.savez(tmp_path / "log.npz", **plain(actions=np.ones((ROWS, 2, 2))))
    assert "actions: has shape (40, 2, 2); it must be (transitions, size)" in refusal(
        tmp_path / "log.npz", action_margin=0.1
    )


def test_too_many_choices() -> None:
    with pytest.raises(InputError, match="1,001 choices"):
        Choices([str(i) for i in range(1_001)])
    assert Choices.numbered(1_000).outputs == 1_000


def test_past_choices_are_one_number_each(log: Path) -> None:
    columns = {name: values[:3] for name, values in table(episode=np.zeros(ROWS)).items()}
    dataset = bcq.load(write(log, columns), lags=1)
    now = np.stack([columns["obs_0"], columns["obs_1"]], axis=1)
    taken = np.eye(3)[TAKEN[:3]]
    first = np.concatenate([now[0], now[0], np.zeros(3)])  # nothing was chosen before
    second = np.concatenate([now[1], now[0], taken[0]])
    np.testing.assert_allclose(dataset.observations[:2], [first, second], rtol=1e-6)
    np.testing.assert_allclose(dataset.next_observations[0], second, rtol=1e-6)
    past = [f"action={name}@-1" for name in NAMES]
    assert list(dataset.layout.labels) == ["obs_0", "obs_1", "obs_0@-1", "obs_1@-1", *past]
