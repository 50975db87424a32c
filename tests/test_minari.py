"""Minari's data sets: written by Minari and read here, written here and read by Minari."""

import json
import shutil
import time
import warnings
from pathlib import Path
from typing import Any

import gymnasium
import h5py
import minari
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete, MultiDiscrete
from minari.data_collector import EpisodeBuffer

import bcq
from bcq.data.bounds import ActionBounds
from bcq.data.checks import check
from bcq.data.columns import Columns, Provenance
from bcq.data.dataset import Dataset
from bcq.data.doctor.examination import examine, examine_dataset
from bcq.data.opening import Options, read
from bcq.data.saving import convert
from bcq.system.errors import InputError
from test_hdf5 import assert_same, content, fill_the_disk

# Lengths and ends of the awkward episodes: one step, both flags, cut, no flag, unfinished tail.
EPISODES = ((4, 1, 0), (1, 1, 0), (3, 1, 1), (1, 0, 1), (5, 0, 1), (2, 0, 0), (6, 0, 0))
STEPS = sum(length for length, _, _ in EPISODES)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where Minari keeps its data sets."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    return tmp_path / "minari"


def buffers() -> list[EpisodeBuffer]:
    generator = np.random.default_rng(0)
    return [
        EpisodeBuffer(
            observations=generator.normal(size=(length + 1, 3)),
            actions=generator.uniform((-2, 0), (1, 5), (length, 2)).astype(np.float32),
            rewards=generator.normal(size=length).tolist(),
            terminations=[False] * (length - 1) + [bool(terminated)],
            truncations=[False] * (length - 1) + [bool(truncated)],
            infos={"qpos": generator.normal(size=(length + 1, 2))},
        )
        for length, terminated, truncated in EPISODES
    ]


def by_minari(
    name: str = "space/log-v0", episodes: list[EpisodeBuffer] | None = None, **options: Any
) -> str:
    """A data set that Minari writes."""
    spaces: dict[str, Any] = {
        "observation_space": Box(-np.inf, np.inf, (3,), np.float64),
        "action_space": Box(np.array([-2, 0], np.float32), np.array([1, 5], np.float32)),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it would like an author and more
        minari.create_dataset_from_buffers(name, episodes or buffers(), **spaces | options)
    return f"minari:{name}"


# Written by Minari


def test_a_data_set_of_minari_is_read_step_by_step(home: Path) -> None:
    name = by_minari(algorithm_name="somebody")
    dataset = bcq.load(name)
    assert len(dataset) == STEPS
    start = 0
    for buffer in buffers():
        length = len(buffer.rewards)
        rows = slice(start, start + length)
        observations = np.array(buffer.observations, np.float32)
        np.testing.assert_array_equal(dataset.observations[rows], observations[:-1])
        np.testing.assert_array_equal(dataset.next_observations[rows], observations[1:])
        np.testing.assert_array_equal(dataset.actions[rows], buffer.actions)
        np.testing.assert_array_equal(dataset.rewards[rows], np.array(buffer.rewards, np.float32))
        assert buffer.infos is not None
        assert dataset.qpos is not None
        np.testing.assert_array_equal(dataset.qpos[rows], buffer.infos["qpos"][:length])
        start += length
    ends = np.cumsum([length for length, _, _ in EPISODES]) - 1
    assert np.flatnonzero(dataset.terminated).tolist() == ends[:3].tolist()
    assert (
        np.flatnonzero(dataset.truncated).tolist() == ends[3:6].tolist()
    )  # the last is unfinished
    assert dataset.bounds.low.tolist() == [-2, 0]
    assert dataset.bounds.high.tolist() == [1, 5]
    assert dataset.provenance.behaviour == "somebody"
    for path in (home / "space/log-v0", home / "space/log-v0/data"):
        assert bcq.load(path).fingerprint == dataset.fingerprint


def test_an_end_that_has_no_flag_is_told() -> None:
    found = read(by_minari(), Options()).findings
    assert [(f.kind, f.severity) for f in found] == [("end-without-flag", "note")]
    assert found[0].rows is not None
    assert found[0].rows.tolist() == [sum(n for n, _, _ in EPISODES[:6]) - 1]


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # Minari leaves a temporary folder to go
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_its_environment_is_known() -> None:
    environment = minari.DataCollector(gymnasium.make("Pendulum-v1"))
    for seed in range(2):
        environment.reset(seed=seed)
        for _ in range(200):
            environment.step(environment.action_space.sample())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        environment.create_dataset("pendulum/random-v0")
    environment.close()
    dataset = bcq.load("minari:pendulum/random-v0")
    assert dataset.provenance.environment == "Pendulum-v1"
    assert dataset.bounds.high.tolist() == [2]
    assert dataset.episodes.tolist() == [[0, 200], [200, 400]]
    assert dataset.truncated.sum() == 2
    assert [f for f in examine_dataset(dataset) if f.severity != "note"] == []
    columns = read("minari:pendulum/random-v0", Options())
    assert [f for f in examine(check(columns)).findings if f.severity != "note"] == []


def test_a_single_episode_and_the_metadata_of_older_versions_are_read(home: Path) -> None:
    name = by_minari(episodes=buffers()[:1])
    path = home / "space/log-v0/data/metadata.json"
    metadata = json.loads(path.read_text())
    path.write_text(json.dumps({"action_space": metadata["action_space"]}))
    dataset = bcq.load(name)
    assert dataset.rewards.tolist() == np.array(buffers()[0].rewards, np.float32).tolist()
    assert dataset.bounds.high.tolist() == [1, 5]
    assert dataset.provenance == Provenance()
    path.write_text("{}")  # without a space, the actions are quantities of unknown bounds
    assert bcq.load(name, action_margin=0.0).task.choices is None


def test_columns_of_one_number_are_read_as_numbers(home: Path) -> None:
    name = by_minari(episodes=buffers()[:2])
    plain = bcq.load(name)
    with h5py.File(home / "space/log-v0/data/main_data.hdf5", "a") as file:
        for column in ("rewards", "terminations", "truncations"):
            values = file["episode_0"][column][()]
            replaced(f"episode_0/{column}", values[:, None])(file)
    assert bcq.load(name).fingerprint == plain.fingerprint


def test_an_episode_without_steps_is_left_out(home: Path) -> None:
    name = by_minari(episodes=buffers()[:3])
    with h5py.File(home / "space/log-v0/data/main_data.hdf5", "a") as file:
        for column, values in (
            *(("observations", np.zeros((1, 3))), ("actions", np.zeros((0, 2), np.float32))),
            *((column, np.zeros(0)) for column in ("rewards", "terminations", "truncations")),
            ("infos/qpos", np.zeros((1, 2))),
        ):
            replaced(f"episode_1/{column}", values)(file)
    assert bcq.load(name).episodes.tolist() == [[0, 4], [4, 7]]


def test_bounds_that_are_infinite_are_none(home: Path) -> None:
    name = by_minari(action_space=Box(-np.inf, np.inf, (2,), np.float32))
    with pytest.raises(InputError, match="action_margin"):
        bcq.load(name)
    assert bcq.load(name, action_margin=0.1).bounds.high.tolist() > [0.5, 4]
    half = Box(np.array([-2, 0], np.float32), np.array([1, np.inf], np.float32))
    with pytest.raises(InputError, match="action_margin"):
        bcq.load(by_minari("space/half-v0", action_space=half))


# Written here


def awkward() -> Dataset:
    """Episodes of one step, an unfinished tail, states, and all that provenance can say."""
    generator = np.random.default_rng(1)
    ends = np.isin(np.arange(20), (0, 5, 6, 12))
    observations = generator.normal(size=(20, 3)).astype(np.float32)
    following = np.concatenate([observations[1:], generator.normal(size=(1, 3))]).astype(np.float32)
    following[ends] = generator.normal(size=(4, 3))
    arrays: dict[str, Any] = {
        "observations": observations,
        "actions": generator.uniform(-1, 1, (20, 2)),
        "rewards": generator.normal(size=20),
        "next_observations": following,
        "terminated": np.isin(np.arange(20), (0, 6)),
        "truncated": np.isin(np.arange(20), (5, 12)),
        "qpos": generator.normal(size=(20, 2)),
        "qvel": generator.normal(size=(20, 1)),
    }
    provenance = Provenance("Nowhere-v0", "by hand", "nobody", 7, "0.0")
    bounds = ActionBounds(np.array([-1, -3]), np.array([2.5, 1]))
    return Dataset.from_columns(Columns("awkward", arrays, provenance), bounds)


@pytest.mark.parametrize("target", ["minari:space/deep/copy-v3", "copy-v0"])
def test_hdf5_to_minari_to_hdf5_is_exact(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, dataset in (
        ("awkward", awkward()),
        ("pendulum", bcq.collect_random("Pendulum-v1", transitions=450, seed=3)),
    ):
        bcq.save(dataset, f"{name}.hdf5")
        convert(f"{name}.hdf5", f"{target}{len(name)}", Options())
        convert(f"{target}{len(name)}", f"{name}-again.hdf5", Options())
        assert_same(bcq.load(f"{name}-again.hdf5"), dataset)
        assert content(Path(f"{name}.hdf5")) == content(Path(f"{name}-again.hdf5"))


def test_minari_reads_what_is_written() -> None:
    dataset = bcq.collect_random("Pendulum-v1", transitions=450, seed=3)
    bcq.save(dataset, "minari:pendulum/random-v1")
    theirs = minari.load_dataset("pendulum/random-v1")
    assert (theirs.total_episodes, theirs.total_steps) == (3, 450)
    assert theirs.action_space == gymnasium.make("Pendulum-v1").action_space
    assert theirs.recover_environment().spec is not None
    for episode, (start, stop) in zip(theirs, dataset.episodes.tolist(), strict=True):
        rows = slice(start, stop)
        np.testing.assert_array_equal(episode.observations[:-1], dataset.observations[rows])
        np.testing.assert_array_equal(episode.observations[1:], dataset.next_observations[rows])
        np.testing.assert_array_equal(episode.actions, dataset.actions[rows])
        np.testing.assert_array_equal(episode.rewards, dataset.rewards[rows])
        np.testing.assert_array_equal(episode.terminations, dataset.terminated[rows])
        np.testing.assert_array_equal(episode.truncations, dataset.truncated[rows])
    assert list(minari.list_local_datasets()) == ["pendulum/random-v1"]


def test_what_is_written_describes_itself(home: Path, tmp_path: Path) -> None:
    dataset = awkward()
    bcq.save(dataset, "minari:space/log-v2")
    bcq.save(dataset, tmp_path / "log-v3")
    for folder, identity in (
        (home / "space/log-v2/data", "space/log-v2"),
        (tmp_path / "log-v3/data", "log-v3"),
    ):
        written = json.loads((folder / "metadata.json").read_text())
        size = (folder / "main_data.hdf5").stat().st_size
        assert written["dataset_id"] == identity
        assert (written["total_episodes"], written["total_steps"]) == (5, 20)
        assert (written["data_format"], written["algorithm_name"]) == ("hdf5", "nobody")
        assert written["dataset_size"] == pytest.approx(size / 1e6, abs=0.051)
        assert "env_spec" not in written
        assert json.loads(written["action_space"]) == {
            **{"type": "Box", "dtype": "float32", "shape": [2]},
            **{"low": [-1, -3], "high": [2.5, 1]},
        }
        space = json.loads(written["observation_space"])
        assert (space["low"], space["high"]) == ([-np.inf] * 3, [np.inf] * 3)
        with h5py.File(folder / "main_data.hdf5") as file:
            assert list(file) == [f"episode_{i}" for i in range(5)]
            assert [file[name].attrs["id"] for name in file] == [0, 1, 2, 3, 4]
            assert [file[name].attrs["total_steps"] for name in file] == [1, 5, 1, 6, 7]
            assert [len(file[name]["observations"]) for name in file] == [2, 6, 2, 7, 8]
    anonymous = Dataset.from_columns(
        Columns("log", dataset.columns().arrays, Provenance()), dataset.bounds
    )
    bcq.save(anonymous, tmp_path / "log-v4")
    written = json.loads((tmp_path / "log-v4/data/metadata.json").read_text())
    assert written["algorithm_name"] == "unknown"
    assert bcq.load(tmp_path / "log-v4").provenance == Provenance()


def test_the_size_of_a_large_data_set_is_in_megabytes(tmp_path: Path) -> None:
    states = np.random.default_rng(2).normal(size=(20, 8_200))
    arrays = {**awkward().columns().arrays, "qpos": states}
    bcq.save(Dataset.from_columns(Columns("log", arrays, Provenance())), tmp_path / "log-v0")
    size = (tmp_path / "log-v0/data/main_data.hdf5").stat().st_size
    assert 1_312_000 < size < 1_344_999
    assert json.loads((tmp_path / "log-v0/data/metadata.json").read_text())["dataset_size"] == 1.3


def test_the_usual_place_is_in_the_home_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MINARI_DATASETS_PATH")
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    bcq.save(awkward(), "minari:log-v0")
    assert (tmp_path / "me/.minari/datasets/log-v0/data/main_data.hdf5").is_file()


def test_more_episodes_than_ten_stay_in_order(home: Path) -> None:
    dataset = bcq.collect_random("Pendulum-v1", transitions=24, seed=3)
    ends = {"truncated": np.arange(24) % 2 == 1}
    batch = Columns("log", {**dataset.columns().arrays, **ends}, dataset.provenance)
    bcq.save(Dataset.from_columns(batch, dataset.bounds), "minari:log-v0")
    with h5py.File(home / "log-v0/data/main_data.hdf5") as file:
        assert list(file) == [f"episode_{i}" for i in range(12)]
    np.testing.assert_array_equal(bcq.load("minari:log-v0").observations, dataset.observations)


def test_what_t_plus_1_observations_cannot_hold_is_refused(tmp_path: Path) -> None:
    dataset = awkward()
    torn = dataset.next_observations.copy()
    torn[9, 1] += 1
    torn[14] += 1
    arrays = {**dataset.columns().arrays, "next_observations": torn}
    broken = Dataset.from_columns(Columns("torn", arrays, Provenance()), dataset.bounds)
    with pytest.raises(
        InputError, match=r"row 9: is not the observation of the next row \(one of 2"
    ):
        bcq.save(broken, tmp_path / "torn-v0")
    assert list(tmp_path.iterdir()) == []


def test_after_a_failed_write_no_further_episode_is_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_the_disk(monkeypatch)
    begun: list[str] = []
    create = h5py.Group.create_group

    def look(self: Any, name: str) -> Any:
        begun.append(name)
        return create(self, name)

    monkeypatch.setattr(h5py.Group, "create_group", look)
    with pytest.raises(InputError, match=r"cannot write .*log-v0: No space left on device"):
        bcq.save(awkward(), tmp_path / "log-v0")
    assert begun == ["episode_0", "infos"]
    assert list(tmp_path.iterdir()) == []


def test_an_existing_data_set_is_not_touched(tmp_path: Path) -> None:
    bcq.save(awkward(), tmp_path / "log-v0")
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    with pytest.raises(InputError, match="already exists"):
        bcq.save(awkward(), tmp_path / "log-v0")
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


# Not to be trusted


def refusal(path: Path | str) -> str:
    begun = time.perf_counter()
    with pytest.raises(InputError) as caught:
        bcq.load(path)
    assert time.perf_counter() - begun < 2
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    "name", ["../../etc-v0", "/etc/passwd-v0", "a/../../b-v0", "log", "größe-v0", ""]
)
def test_names_that_climb_out_are_refused(name: str) -> None:
    assert "is not a Minari data set" in refusal(f"minari:{name}")


def test_files_that_lie_elsewhere_are_refused(home: Path, tmp_path: Path) -> None:
    by_minari()
    data = home / "space/log-v0/data"
    shutil.move(data / "main_data.hdf5", tmp_path / "elsewhere.hdf5")
    (data / "main_data.hdf5").symlink_to(tmp_path / "elsewhere.hdf5")
    assert "points outside the folder" in refusal(data)


def damaged(home: Path, change: Any) -> str:
    by_minari()
    with h5py.File(home / "space/log-v0/data/main_data.hdf5", "a") as file:
        change(file)
    return refusal("minari:space/log-v0")


def replaced(name: str, values: Any) -> Any:
    def change(file: h5py.File) -> None:
        del file[name]
        file[name] = values

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (replaced("episode_2/actions", np.zeros((3, 4))), "actions, row 5: has shape (4,)"),
        (replaced("episode_0/observations", np.zeros((4, 3))), "one more observation than steps"),
        (replaced("episode_0/actions", np.zeros((3, 2))), "actions: has 3 rows for 4 rewards"),
        (replaced("episode_0/terminations", np.zeros(5)), "terminations: has 5 rows for 4"),
        (replaced("episode_0/truncations", np.zeros(3)), "truncations: has 3 rows for 4"),
        (replaced("episode_0/infos/qpos", np.zeros((3, 2))), "fewer rows than the 4 steps"),
        (replaced("episode_1/rewards", h5py.ExternalLink("/x.hdf5", "/r")), "rewards: is a link"),
        (replaced("episode_1", h5py.SoftLink("/episode_0")), "episode_1: is missing or is a link"),
        (replaced("episode_0/rewards", [b"text"] * 4), "rewards: contains objects"),
        (replaced("episode_1/infos/qpos", np.zeros((1, 5))), "qpos, row 4: has"),
        (lambda file: file.clear(), "data: has no steps"),
        (lambda file: file.pop("episode_3"), "episode_3: is missing"),
        (lambda file: file["episode_4"].pop("truncations"), "episode_4: truncations: is missing"),
    ],
)
def test_damaged_and_mixed_episodes_are_refused(change: Any, words: str, home: Path) -> None:
    assert words in damaged(home, change)


@pytest.mark.parametrize(
    "space",
    [
        {"observation_space": Discrete(3)},
        {"observation_space": Box(0, 255, (64, 64, 3), np.uint8)},
        {"action_space": Box(-1, 1, (2, 2))},
        {"action_space": MultiDiscrete([2, 3])},
    ],
)
def test_spaces_that_are_no_vectors_are_refused(space: dict[str, Any], home: Path) -> None:
    by_minari()
    path = home / "space/log-v0/data/metadata.json"
    metadata = json.loads(path.read_text())
    for name, value in space.items():
        metadata[name] = minari.serialization.serialize_space(value)
    path.write_text(json.dumps(metadata))
    assert "only vectors of numbers" in refusal("minari:space/log-v0")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"action_space": 3}', '{"data_format": "arrow"}'])
def test_damaged_metadata_are_refused(text: str, home: Path) -> None:
    by_minari()
    (home / "space/log-v0/data/metadata.json").write_text(text)
    refusal("minari:space/log-v0")


def test_a_format_other_than_hdf5_is_named(home: Path) -> None:
    name = by_minari()
    path = home / "space/log-v0/data/metadata.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"data_format": "arrow"}))
    assert "its data format is arrow; create it again with data_format='hdf5'" in refusal(name)


def test_a_folder_in_the_place_of_a_file_is_refused(home: Path) -> None:
    name = by_minari()
    (home / "space/log-v0/data/main_data.hdf5").unlink()
    (home / "space/log-v0/data/main_data.hdf5").mkdir()
    assert "main_data.hdf5: is a folder; give a file" in refusal(name)


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file.txt").write_text("mine")
    words = f"^cannot create folder {tmp_path}/file.txt: "
    with pytest.raises(InputError, match=words):
        bcq.save(awkward(), tmp_path / "file.txt/log-v0")
    with pytest.raises(InputError, match="minari:log: is not a Minari data set"):
        bcq.save(awkward(), "minari:log")


def test_a_data_set_that_is_not_there_is_told() -> None:
    assert "no such file" in refusal("minari:space/other-v0")
