"""Batches on disk: exact round trips, D4RL's own files, and files that are not to be trusted."""

import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

import bcq
from bcq.data.bounds import ActionBounds
from bcq.data.columns import Provenance
from bcq.data.dataset import Dataset
from bcq.data.formats.hdf5 import FileForHDF5, write_parts
from bcq.data.opening import Options, open_batch
from bcq.data.saving import convert
from bcq.simulation.environments import registered_bounds
from bcq.system.errors import InputError, InterruptionError
from bcq.training.loop import on_device
from conftest import ROWS, BatchFile

FIELDS = (
    "observations",
    "actions",
    "rewards",
    "next_observations",
    "terminated",
    "truncated",
    "qpos",
    "qvel",
)


@pytest.fixture(scope="module")
def pendulum() -> Dataset:
    return bcq.collect_random("Pendulum-v1", transitions=450, seed=3)


def assert_same(one: Dataset, other: Dataset) -> None:
    for name in FIELDS:
        ours, theirs = getattr(one, name), getattr(other, name)
        assert (ours is None) == (theirs is None), name
        if ours is not None:
            assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape), name
            assert ours.tobytes() == theirs.tobytes(), name
    assert one.bounds.low.tobytes() == other.bounds.low.tobytes()
    assert one.bounds.high.tobytes() == other.bounds.high.tobytes()
    assert one.provenance == other.provenance
    assert one.fingerprint == other.fingerprint


def refusal(path: Path) -> str:
    """The message with which a file is refused."""
    with pytest.raises(InputError) as caught:
        bcq.load(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    return message


# Round trips


def test_a_collected_batch_comes_back_exactly(pendulum: Dataset, tmp_path: Path) -> None:
    bcq.save(pendulum, tmp_path / "batch.hdf5")
    again = bcq.load(tmp_path / "batch.hdf5")
    assert_same(again, pendulum)
    assert pendulum.qpos is not None
    assert pendulum.qpos.dtype == np.float64
    assert pendulum.bounds.high.tolist() == [2]
    version = bcq.__version__
    assert again.provenance == Provenance("Pendulum-v1", "random", "uniform", 3, version)


@st.composite
def datasets(draw: st.DrawFn) -> Dataset:
    """Batches of any shape and content, up to the largest and smallest numbers."""
    rows, observation_size, action_size = draw(array_shapes(min_dims=3, max_dims=3, max_side=5))
    floats = st.floats(width=32, allow_nan=False, allow_infinity=False)
    doubles = st.floats(allow_nan=False, allow_infinity=False)
    ends = draw(arrays(np.int8, rows, elements=st.integers(0, 2)))
    low = draw(arrays(np.float32, action_size, elements=st.floats(-10, 10, width=32)))
    high = low + np.float32(0.75)
    states = draw(arrays(np.float64, (rows, 2), elements=doubles))
    provenance = st.builds(
        Provenance,
        *[st.none() | st.text(st.characters(exclude_characters="\0", codec="utf-8"))] * 3,
        seed=st.none() | st.integers(0, 2**31 - 1),
    )
    return Dataset(
        observations=draw(arrays(np.float32, (rows, observation_size), elements=floats)),
        actions=np.broadcast_to(draw(st.sampled_from([low, high])), (rows, action_size)),
        rewards=draw(arrays(np.float32, rows, elements=floats)),
        next_observations=draw(arrays(np.float32, (rows, observation_size), elements=floats)),
        terminated=ends == 1,
        truncated=ends == 2,
        bounds=ActionBounds(low, high),
        provenance=draw(provenance),
        qpos=draw(st.sampled_from([states, None])),
        qvel=draw(st.sampled_from([states[:, :1], None])),
    )


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(dataset=datasets())
def test_any_batch_comes_back_exactly(dataset: Dataset, tmp_path: Path) -> None:
    bcq.save(dataset, tmp_path / "batch.hdf5")
    assert_same(bcq.load(tmp_path / "batch.hdf5"), dataset)


def content(path: Path) -> dict[str, Any]:
    """Every array and attribute of a file, as bytes with their types."""
    found: dict[str, Any] = {}

    def visit(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset):
            found[name] = (item.dtype, item.shape, item[()].tobytes())

    with h5py.File(path, "r") as file:
        file.visititems(visit)
        for name, value in file.attrs.items():
            found[f"attribute {name}"] = np.asarray(value).tolist()
    return found


def test_the_same_seed_gives_the_same_file_and_another_seed_another(tmp_path: Path) -> None:
    for name, seed in (("one", 5), ("two", 5), ("other", 6)):
        batch = bcq.collect_random("Pendulum-v1", transitions=210, seed=seed)
        bcq.save(batch, tmp_path / f"{name}.hdf5")
    one, two, other = (content(tmp_path / f"{name}.hdf5") for name in ("one", "two", "other"))
    assert one == two
    assert (tmp_path / "one.hdf5").read_bytes() == (tmp_path / "two.hdf5").read_bytes()
    assert one.keys() == other.keys()
    assert one["actions"] != other["actions"]
    assert one["infos/qpos"] != other["infos/qpos"]


def test_the_file_has_the_names_of_d4rl(pendulum: Dataset, tmp_path: Path) -> None:
    bcq.save(pendulum, tmp_path / "batch.h5")
    assert set(content(tmp_path / "batch.h5")) == {
        *("observations", "actions", "rewards", "next_observations", "terminals", "timeouts"),
        *("infos/qpos", "infos/qvel"),
        *("attribute environment", "attribute recipe", "attribute behaviour", "attribute seed"),
        *("attribute version", "attribute action_low", "attribute action_high"),
    }


def test_columns_are_compressed_and_can_grow(pendulum: Dataset, tmp_path: Path) -> None:
    bcq.save(pendulum, tmp_path / "batch.hdf5")
    with h5py.File(tmp_path / "batch.hdf5") as file:
        column = file["observations"]
        assert (column.chunks, column.maxshape) == ((450, 3), (None, 3))
        assert (column.compression, column.compression_opts, column.shuffle) == ("gzip", 1, True)
        assert file["rewards"].maxshape == (None,)


def test_a_long_column_is_stored_in_chunks_of_65536_rows(tmp_path: Path) -> None:
    rows = 70_000
    bcq.save(
        Dataset(
            *(np.zeros((rows, 1), np.float32), np.zeros((rows, 1), np.float32)),
            *(np.zeros(rows, np.float32), np.zeros((rows, 1), np.float32)),
            *(np.zeros(rows, bool), np.zeros(rows, bool)),
            bounds=ActionBounds(np.array([-1]), np.array([1])),
            provenance=Provenance(),
        ),
        tmp_path / "batch.hdf5",
    )
    with h5py.File(tmp_path / "batch.hdf5") as file:
        assert file["observations"].chunks == (65_536, 1)
        assert file["terminals"].chunks == (65_536,)


def test_a_chunk_stays_in_memory_until_it_is_full(pendulum: Dataset, tmp_path: Path) -> None:
    seen: list[int] = []

    def parts() -> Iterator[Dataset]:
        for file in h5py.h5f.get_obj_ids(types=h5py.h5f.OBJ_FILE):
            seen.append(file.get_access_plist().get_cache()[2])
        yield pendulum

    write_parts(parts(), tmp_path / "batch.hdf5")
    # 65,536 rows of 100 numbers, and not more than any machine can spare
    assert any(65_536 * 100 * 4 < size < 100e6 for size in seen)


def test_simulator_states_are_those_before_the_step(pendulum: Dataset) -> None:
    assert pendulum.qpos is not None
    assert pendulum.qvel is not None
    seen = np.concatenate([np.cos(pendulum.qpos), np.sin(pendulum.qpos), pendulum.qvel], axis=1)
    np.testing.assert_allclose(pendulum.observations, seen, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("wrong", [{"transitions": 0}, {"seed": -1}, {"seed": 2**31}])
def test_impossible_batches_are_not_collected(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=f"{next(iter(wrong))}: {next(iter(wrong.values()))} is"):
        bcq.collect_random("Pendulum-v1", **wrong)


# Files of other tools


def test_a_d4rl_file_is_read_as_it_stands(batch_file: BatchFile) -> None:
    path = batch_file()
    dataset = bcq.load(path)
    names = {"terminals": "terminated", "timeouts": "truncated"}
    with h5py.File(path) as file:
        for name in file:
            ours = getattr(dataset, names.get(name, name))
            np.testing.assert_array_equal(ours, file[name][()], err_msg=name)
    assert dataset.provenance == Provenance()
    assert (dataset.qpos, dataset.qvel) == (None, None)
    assert dataset.bounds.low.tolist() == [-1]


def test_without_next_observations_rows_are_paired_and_stay_aligned(batch_file: BatchFile) -> None:
    numbers = np.arange(ROWS, dtype=np.float32)
    dataset = bcq.load(
        batch_file(
            observations=np.stack([numbers] * 3, axis=1),
            actions=numbers[:, None] / ROWS,
            rewards=numbers,
            next_observations=None,
            **{"infos/qpos": numbers[:, None].astype(float)},
        )
    )
    kept = [row for row in range(ROWS) if row % 20 != 9]  # the time limits have no successor
    following = [row if row % 20 == 19 else row + 1 for row in kept]
    assert dataset.observations[:, 0].tolist() == kept
    assert dataset.rewards.tolist() == kept
    np.testing.assert_allclose(dataset.actions[:, 0] * ROWS, kept, rtol=1e-6)
    assert dataset.next_observations[:, 2].tolist() == following
    assert dataset.qpos is not None
    assert dataset.qpos[:, 0].tolist() == kept
    assert np.flatnonzero(dataset.terminated).tolist() == [kept.index(19), kept.index(39)]
    assert np.flatnonzero(dataset.truncated).tolist() == [kept.index(8), kept.index(28)]


def test_without_timeouts_only_terminals_end_episodes(batch_file: BatchFile) -> None:
    dataset = bcq.load(batch_file(timeouts=None))
    assert not dataset.truncated.any()
    assert dataset.episodes.tolist() == [[0, 20], [20, 40]]


def test_double_precision_and_column_vectors_are_read(batch_file: BatchFile) -> None:
    flags = (np.arange(ROWS) % 20 == 19).astype(np.float64)[:, None]
    dataset = bcq.load(batch_file(rewards=np.ones((ROWS, 1)), terminals=flags))
    assert dataset.rewards.shape == (ROWS,)
    assert np.flatnonzero(dataset.terminated).tolist() == [19, 39]


def test_a_column_of_arrays_is_read(batch_file: BatchFile) -> None:
    path = batch_file(observations=None)
    values = np.arange(3 * ROWS, dtype=np.float32).reshape(ROWS, 3)
    with h5py.File(path, "a") as file:
        column = file.create_dataset("observations", (ROWS,), np.dtype((np.float32, (3,))))
        column[...] = values
    assert np.array_equal(bcq.load(path).observations, values)


def test_what_a_file_holds_is_trained_on_without_a_copy(batch_file: BatchFile) -> None:
    dataset = bcq.load(batch_file())
    batch = on_device(dataset)
    for name in ("observations", "rewards", "next_observations"):
        address = getattr(batch, name).unsafe_buffer_pointer()
        assert address == getattr(dataset, name).ctypes.data, name


def test_awkward_episodes_of_d4rl_are_read(batch_file: BatchFile) -> None:
    """Episodes of one row, ends by both flags, an unfinished tail: with and without successors."""
    numbers = np.arange(12, dtype=np.float32)
    items: dict[str, Any] = {
        "observations": numbers[:, None],
        "actions": numbers[:, None] / 12,
        "rewards": numbers,
        "terminals": np.isin(numbers, (0, 3, 8)),
        "timeouts": np.isin(numbers, (1, 3, 6)),
    }
    paired = bcq.load(batch_file(**items, next_observations=numbers[:, None] + 100))
    assert paired.episodes.tolist() == [[0, 1], [1, 2], [2, 4], [4, 7], [7, 9], [9, 12]]
    assert np.flatnonzero(paired.terminated).tolist() == [0, 3, 8]
    assert np.flatnonzero(paired.truncated).tolist() == [1, 6]
    assert paired.next_observations[:, 0].tolist() == (numbers + 100).tolist()

    derived = bcq.load(batch_file(**items, next_observations=None))
    assert derived.rewards.tolist() == [0, 2, 3, 4, 5, 7, 8, 9, 10]
    assert derived.next_observations[:, 0].tolist() == [0, 3, 3, 5, 6, 8, 8, 10, 11]
    assert derived.rewards[derived.terminated].tolist() == [0, 3, 8]
    assert derived.rewards[derived.truncated].tolist() == [5]


def test_text_of_fixed_length_and_single_bounds_are_read(batch_file: BatchFile) -> None:
    told = {"environment": np.bytes_("Pendulum-v1"), "recipe": np.bytes_("ü".encode())}
    dataset = bcq.load(batch_file(attributes={**told, "action_low": -3.0, "action_high": 4}))
    assert dataset.provenance == Provenance("Pendulum-v1", "ü")
    assert (dataset.bounds.low.tolist(), dataset.bounds.high.tolist()) == ([-3], [4])


def test_an_array_in_the_place_of_infos_is_an_unknown_item(batch_file: BatchFile) -> None:
    dataset = bcq.load(batch_file(infos=np.zeros(ROWS)))
    assert (dataset.qpos, dataset.propensities) == (None, None)


def test_unknown_items_are_left_alone(batch_file: BatchFile) -> None:
    path = batch_file(**{"infos/action_log_probs": np.full(ROWS, np.nan), "notes": "text"})
    assert bcq.load(path).fingerprint == bcq.load(batch_file("plain.hdf5")).fingerprint


# Bounds


def test_bounds_are_those_given_else_the_files_else_the_environments(
    batch_file: BatchFile,
) -> None:
    known = {"environment": "Pendulum-v1"}
    own = {"action_low": [-3.0], "action_high": [4.0]}
    with_own = batch_file("own.hdf5", attributes=known | own)
    without = batch_file("without.hdf5", attributes=known)
    unknown = batch_file("unknown.hdf5")

    assert bcq.load(with_own, action_low=[-5], action_high=[6]).bounds.high.tolist() == [6]
    assert bcq.load(with_own).bounds.low.tolist() == [-3]
    assert bcq.load(with_own, environment="Pendulum-v1").bounds.high.tolist() == [4]
    assert bcq.load(without).bounds.high.tolist() == [2]
    assert bcq.load(unknown, environment="Pendulum-v1").bounds.high.tolist() == [2]
    assert bcq.load(unknown).bounds.high.tolist() == [1]
    other = "MountainCarContinuous-v0"  # the one given goes before the one in the file
    assert bcq.load(without, environment=other).bounds.high.tolist() == [1]


def test_actions_up_to_2_need_the_environments_name(batch_file: BatchFile) -> None:
    actions = np.linspace(-2, 2, ROWS, dtype=np.float32)[:, None]
    known = batch_file("known.hdf5", actions=actions, attributes={"environment": "Pendulum-v1"})
    np.testing.assert_array_equal(bcq.load(known).actions, actions)
    assert "action_low" in refusal(batch_file("unknown.hdf5", actions=actions))


def test_one_bound_without_the_other_is_refused(batch_file: BatchFile) -> None:
    with pytest.raises(InputError, match=r"^action_low and action_high must be given together"):
        bcq.load(batch_file(), action_low=[-1])
    with pytest.raises(InputError, match=r"^action_low and action_high must be given together"):
        bcq.load(batch_file(), action_high=[1])
    with pytest.raises(InputError, match=r"^action_margin replaces action_low and action_high"):
        bcq.load(batch_file(), action_low=[-1], action_high=[1], action_margin=0.1)
    with pytest.raises(
        InputError, match=": has the column names of D4RL; columns is for tables and npz"
    ):
        bcq.load(batch_file(), columns={"rewards": ["reward"]})


@pytest.mark.parametrize("name", ["action_low", "action_high"])
def test_one_bound_in_a_file_does_not_become_the_environments(
    name: str, batch_file: BatchFile
) -> None:
    told = {"environment": "Pendulum-v1", name: [0.5]}
    words = "contains only one of action_low and action_high"
    assert words in refusal(batch_file(attributes=told))


def test_whole_numbers_are_quantities_where_the_environment_says_so(batch_file: BatchFile) -> None:
    zero_or_one = (np.arange(ROWS) % 2)[:, None].astype(np.float32)
    known = bcq.load(batch_file(actions=zero_or_one, attributes={"environment": "Pendulum-v1"}))
    assert (known.task.choices, known.bounds.high.tolist()) == (None, [2])
    assert bcq.load(batch_file(actions=zero_or_one)).task.choices == ("0", "1")


def test_bounds_of_the_data_need_a_number_in_every_dimension(batch_file: BatchFile) -> None:
    half = np.zeros((ROWS, 2))
    half[:, 1] = np.nan
    checked = open_batch(batch_file(actions=half), Options(action_margin=0.2))
    assert "actions, row 0: is nan" in str(checked.errors[0])


def test_bounds_of_the_data_go_before_all_others_and_skip_what_is_no_number(
    batch_file: BatchFile,
) -> None:
    actions = np.linspace(-0.5, 0.75, ROWS, dtype=np.float32)[:, None]
    own = {"environment": "Pendulum-v1", "action_low": [-3.0], "action_high": [4.0]}
    bounds = bcq.load(batch_file(actions=actions, attributes=own), action_margin=0.2).bounds
    assert [*bounds.low, *bounds.high] == pytest.approx([-0.75, 1])
    actions[[3, 7]] = [[np.nan], [np.inf]]
    found = open_batch(batch_file(actions=actions), Options(action_margin=0.2)).bounds
    assert found is not None
    assert [*found.low, *found.high] == pytest.approx([-0.75, 1])
    actions[:] = np.nan
    found = open_batch(batch_file(actions=actions), Options(action_margin=0.2)).bounds
    assert found is not None
    assert [*found.low, *found.high] == [-1, 1]  # as if none had been asked for


def test_a_converted_batch_keeps_its_environment_or_takes_the_one_given(
    batch_file: BatchFile, tmp_path: Path
) -> None:
    named = batch_file("named.hdf5", attributes={"environment": "Pendulum-v1"})
    unnamed = batch_file("unnamed.hdf5")
    for source, told, expected in (
        (named, None, "Pendulum-v1"),
        (named, "MountainCarContinuous-v0", "Pendulum-v1"),
        (unnamed, "Pendulum-v1", "Pendulum-v1"),
        (unnamed, None, None),
    ):
        target = tmp_path / "new" / "batch.h5"
        assert convert(source, target, Options(environment=told))[0] == ROWS
        assert bcq.load(target).provenance.environment == expected
        with pytest.raises(InputError, match="already exists"):
            convert(source, target, Options())
        target.unlink()
    with pytest.raises(InputError, match="unknown ending; use one of"):
        convert(named, tmp_path / "other" / "batch.npz", Options())
    assert not (tmp_path / "other").exists()  # refused before anything is done


@pytest.mark.parametrize("name", ["os:system-v0", "intruder:Pendulum-v1", "Nowhere-v0", ""])
def test_an_environment_named_by_a_file_imports_no_module(
    name: str, batch_file: BatchFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "intruder.py").write_text("raise SystemExit('imported')\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert registered_bounds(name) is None
    dataset = bcq.load(batch_file(attributes={"environment": name}))
    assert dataset.provenance.environment == name
    assert dataset.bounds.high.tolist() == [1]
    assert "intruder" not in sys.modules


# Writing


def test_a_failed_write_leaves_the_old_file_and_nothing_else(
    pendulum: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "batch.hdf5"
    bcq.save(pendulum, path)
    before = path.read_bytes()
    create = h5py.File.create_dataset

    def fail_at_rewards(self: Any, name: str, **options: Any) -> Any:
        if name == "rewards":
            raise OSError(28, "No space left on device")
        return create(self, name, **options)

    monkeypatch.setattr(h5py.File, "create_dataset", fail_at_rewards)
    changed = replace(pendulum, observations=pendulum.observations + 1)
    with pytest.raises(InputError, match=r"cannot write .*batch\.hdf5: No space left on device"):
        bcq.save(changed, path)
    assert path.read_bytes() == before
    with pytest.raises(InputError, match=r"cannot write .*new\.hdf5"):
        bcq.save(changed, tmp_path / "new.hdf5")
    assert list(tmp_path.iterdir()) == [path]


def fill_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every write fails from now on."""
    write = FileForHDF5.write

    def fail(self: FileForHDF5, content: Any) -> int:
        self.failure = OSError(28, "No space left on device")
        return write(self, content)

    monkeypatch.setattr(FileForHDF5, "write", fail)


def test_after_a_failed_write_no_further_column_is_begun(
    pendulum: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_the_disk(monkeypatch)
    begun: list[str] = []
    create = h5py.File.create_dataset

    def look(self: Any, name: str, **options: Any) -> Any:
        begun.append(name)
        return create(self, name, **options)

    monkeypatch.setattr(h5py.File, "create_dataset", look)
    with pytest.raises(InputError, match=r"cannot write .*batch\.hdf5: No space left on device"):
        bcq.save(pendulum, tmp_path / "batch.hdf5")
    assert begun == ["observations"]
    assert list(tmp_path.iterdir()) == []


def test_reading_and_writing_stop_when_the_user_wants_to(
    pendulum: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bcq.save(pendulum, tmp_path / "batch.hdf5")
    monkeypatch.setattr("bcq.system.interruption.arrived", [2])
    with pytest.raises(InterruptionError):
        bcq.load(tmp_path / "batch.hdf5")
    with pytest.raises(InterruptionError):
        bcq.save(pendulum, tmp_path / "new.hdf5")
    with pytest.raises(InterruptionError):
        bcq.save(pendulum, tmp_path / "new-v0")
    assert [path.name for path in tmp_path.iterdir()] == ["batch.hdf5"]


def test_the_new_file_appears_whole(
    pendulum: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "batch.hdf5"
    seen: list[bool] = []
    create = h5py.File.create_dataset

    def look(self: Any, name: str, **options: Any) -> Any:
        seen.append(path.exists())
        return create(self, name, **options)

    monkeypatch.setattr(h5py.File, "create_dataset", look)
    bcq.save(pendulum, path)
    assert seen == [False] * 8
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("file.txt/batch.hdf5", "cannot write {}: "),
        ("nowhere/batch.hdf5", "cannot write {}: "),
        ("folder.hdf5", "{}: is a folder; give a file"),
    ],
)
def test_a_place_that_cannot_be_written_is_named(
    place: str, message: str, pendulum: Dataset, tmp_path: Path
) -> None:
    (tmp_path / "file.txt").write_text("mine")
    (tmp_path / "folder.hdf5").mkdir()
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(InputError, match=message.format(tmp_path / place)):
        bcq.save(pendulum, tmp_path / place)
    assert sorted(tmp_path.rglob("*")) == before


def test_only_hdf5_names_are_written_and_read(pendulum: Dataset, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"\.hdf5, \.h5"):
        bcq.save(pendulum, tmp_path / "batch.pkl")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "batch.pkl").write_bytes(b"")
    assert "unknown file type" in refusal(tmp_path / "batch.pkl")


# Files that are refused


@pytest.mark.parametrize("name", ["rewards", "observations", "terminals"])
def test_soft_and_external_links_are_refused(name: str, batch_file: BatchFile) -> None:
    other = batch_file("other.hdf5")
    for link in (
        h5py.SoftLink("/elsewhere"),
        h5py.SoftLink("/nowhere"),
        h5py.ExternalLink(other, f"/{name}"),
        h5py.ExternalLink("/nowhere.hdf5", f"/{name}"),
    ):
        path = batch_file(**{name: link, "elsewhere": np.zeros(ROWS)})
        assert f"{name}: is a link" in refusal(path)


def test_a_link_in_the_middle_of_a_path_is_refused(batch_file: BatchFile) -> None:
    states = {"infos/qpos": np.zeros((ROWS, 1))}
    other = batch_file("other.hdf5", **states)
    path = batch_file(infos=h5py.ExternalLink(other, "/infos"))
    assert "infos/qpos: is a link" in refusal(path)


def test_numbers_stored_in_other_files_are_refused(batch_file: BatchFile) -> None:
    other = batch_file("other.hdf5")
    layout = h5py.VirtualLayout((ROWS,), np.float32)
    layout[:] = h5py.VirtualSource(other, "rewards", (ROWS,))
    path = batch_file(rewards=None)
    with h5py.File(path, "a") as file:
        file.create_virtual_dataset("rewards", layout)
    assert "rewards: is stored in other files" in refusal(path)

    raw = other.with_name("rewards.raw")
    raw.write_bytes(np.zeros(ROWS, np.float32).tobytes())
    path = batch_file(rewards=None)
    with h5py.File(path, "a") as file:
        file.create_dataset("rewards", (ROWS,), np.float32, external=[(raw, 0, ROWS * 4)])
    assert "rewards: is stored in other files" in refusal(path)


def test_an_array_that_claims_far_more_than_is_stored_is_refused(batch_file: BatchFile) -> None:
    for shape in ((2**40,), (2**29,), (2**62,)):
        path = batch_file(rewards=None)
        with h5py.File(path, "a") as file:
            file.create_dataset("rewards", shape, np.float64, chunks=(1024,))
        begun = time.perf_counter()
        assert "rewards: claims" in refusal(path)
        assert time.perf_counter() - begun < 2


def test_a_group_in_the_place_of_an_array_is_refused(batch_file: BatchFile) -> None:
    path = batch_file(rewards=None, **{"rewards/inner": np.zeros(ROWS)})
    assert "rewards: is a group" in refusal(path)


def test_arrays_of_objects_are_refused(batch_file: BatchFile) -> None:
    path = batch_file(rewards=None)
    with h5py.File(path, "a") as file:
        ragged = file.create_dataset("rewards", (ROWS,), h5py.vlen_dtype(np.float32))
        ragged[0] = [1, 2, 3]
    assert "rewards: contains objects" in refusal(path)
    assert "rewards: contains objects" in refusal(batch_file(rewards=["1.5"] * ROWS))
    assert "rewards: contains |S3, not numbers" in refusal(
        batch_file(rewards=np.full(ROWS, b"1.5"))
    )


@pytest.mark.parametrize("value", [3.0, h5py.Empty("f4")])
def test_a_single_value_in_the_place_of_an_array_is_refused(
    value: Any, batch_file: BatchFile
) -> None:
    assert "rewards: is a single value" in refusal(batch_file(rewards=value))


@pytest.mark.parametrize("fraction", [0.0, 0.1, 0.5, 0.99])
def test_a_truncated_file_is_refused(fraction: float, batch_file: BatchFile) -> None:
    path = batch_file()
    whole = path.read_bytes()
    path.write_bytes(whole[: int(fraction * len(whole))])
    assert "cannot be read as HDF5" in refusal(path)


def test_a_damaged_array_is_refused(pendulum: Dataset, tmp_path: Path) -> None:
    path = tmp_path / "batch.hdf5"
    bcq.save(pendulum, path)
    with h5py.File(path) as file:
        chunk = file["observations"].id.get_chunk_info(0)
    damaged = bytearray(path.read_bytes())
    damaged[chunk.byte_offset + 100 : chunk.byte_offset + 200] = bytes(100)
    path.write_bytes(damaged)
    assert "cannot be read as HDF5" in refusal(path)


@pytest.mark.parametrize("text", ["observations,actions\n0,1\n", "\x89PNG", "\x80\x04."])
def test_a_foreign_file_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "batch.hdf5"
    path.write_text(text * 500, encoding="latin-1")
    assert "cannot be read as HDF5" in refusal(path)


def test_a_folder_and_a_missing_file_are_refused(tmp_path: Path) -> None:
    (tmp_path / "folder.hdf5").mkdir()
    assert "is a folder" in refusal(tmp_path / "folder.hdf5")
    assert "no such file" in refusal(tmp_path / "missing.hdf5")


@pytest.mark.parametrize(
    "attributes",
    [
        {"seed": "three"},
        {"seed": np.inf},
        {"action_low": "low", "action_high": "high"},
        {"action_low": [1.0], "action_high": [-1.0]},
        {"action_low": [-1.0], "action_high": [np.nan]},
        {"action_low": [-1.0, -1.0], "action_high": [1.0, 1.0]},
    ],
)
def test_impossible_attributes_are_refused(
    attributes: dict[str, Any], batch_file: BatchFile
) -> None:
    refusal(batch_file(attributes=attributes))


def test_what_could_not_be_written_is_read_from_memory(tmp_path: Path) -> None:
    with FileForHDF5(tmp_path / "file") as file:
        file.write(b"0123456789")
        file.failure = OSError("full")
        file.seek(8)
        assert file.write(b"abcdef") == 6  # kept: two bytes over what is there, four beyond
        assert (tmp_path / "file").stat().st_size == 10
        target = bytearray(10)
        file.seek(5)
        assert file.readinto(target) == 9
        assert bytes(target) == b"567abcdef\0"
        file.seek(0)
        assert file.readinto(target) == 10
        assert bytes(target) == b"01234567ab"
        file.seek(20)
        file.write(b"further")
        file.seek(0)
        assert file.readinto(bytearray(20)) == 14  # what begins after the last byte is not in it
        with pytest.raises(OSError, match="full"):
            file.raise_failure()


def test_what_was_to_be_written_is_kept_as_it_was(tmp_path: Path) -> None:
    with FileForHDF5(tmp_path / "file") as file:
        file.write(b"0123456789")
        file.failure = OSError("full")
        file.seek(2)
        content = bytearray(b"abc")
        file.write(content)
        content[:] = b"xyz"  # HDF5 uses its memory again
        target = bytearray(8)
        file.seek(0)
        assert file.readinto(target) == 8  # as much as there is, not only up to what is kept
        assert bytes(target) == b"01abc567"
        beginning = bytearray(2)
        file.seek(3)
        assert file.readinto(beginning) == 2  # what is kept began before it
        assert bytes(beginning) == b"bc"
        file.seek(50)
        assert file.readinto(target) == 0


def test_a_length_that_cannot_be_set_is_a_failure_for_later(tmp_path: Path) -> None:
    with FileForHDF5(tmp_path / "file") as file:
        file.write(b"0123456789")
        assert file.truncate(5) == 5
        assert file.failure is None
        file.seek(3)
        assert file.truncate(-1) == 3
        first = file.failure
        assert isinstance(first, OSError)
        file.truncate(-1)
        with pytest.raises(OSError, match="Invalid argument") as caught:
            file.raise_failure()
        assert caught.value is first
    assert (tmp_path / "file").read_bytes() == b"01234"
