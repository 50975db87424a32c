import ast
import errno
import fcntl
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy
from jax import Array
from numpy.typing import NDArray

import bcq
from bcq.algorithms import ALGORITHMS
from bcq.algorithms.learning import Algorithm, AlgorithmConfig, Metrics, Minibatch
from bcq.data.bounds import ActionBounds
from bcq.data.columns import Columns, Provenance
from bcq.data.dataset import Dataset
from bcq.runs import origin, recorder, recording
from bcq.runs.configuration import Continuation, LoggedBatch
from bcq.runs.directory import Run, last_step
from bcq.runs.recording import train_run
from bcq.runs.schedules import Schedule
from bcq.system import interruption, progress
from bcq.system.errors import DivergenceError, InputError, InterruptionError
from bcq.system.files import locked, write_text
from bcq.training import loop as training
from run_cases import configuration

NEVER = 1_000_000
LOGS = ("metrics.jsonl", "episodes.jsonl", "values.jsonl", "timing.jsonl")
TINY = bcq.BCQConfig(batch_size=8, hidden_sizes=(8,), vae_hidden_sizes=(8,))
SCHEDULE = Schedule(steps=400, evaluate_every=200, evaluate_episodes=2, checkpoint_every=200)


def batch(rows: int = 60, reward_scale: float = 1.0) -> Dataset:
    generator = np.random.default_rng(0)
    columns = Columns(
        source="test",
        arrays={
            "observations": generator.normal(size=(rows, 3)),
            "actions": generator.uniform(-2, 2, size=(rows, 1)),
            "rewards": generator.uniform(0.5, 1, size=rows) * reward_scale,
            "next_observations": generator.normal(size=(rows, 3)),
            "terminated": np.arange(rows) % 20 == 19,
        },
        provenance=Provenance(recipe="test"),
    )
    return Dataset.from_columns(columns, ActionBounds(np.array([-2.0]), np.array([2.0])))


@dataclass(frozen=True, kw_only=True)
class CounterConfig:
    """A learner that counts its updates, and breaks when told to."""

    discount: float = 0.9
    batch_size: int = 4
    growth: float = 0.0
    loss_breaks_at: int = NEVER
    weight_breaks_at: int = NEVER

    def create(self, observation_size: int, action_size: int, key: Array) -> "Counter":
        weight = jax.random.normal(key, (observation_size, action_size))
        return Counter(jnp.int32(0), weight, self)


class Counter(eqx.Module):
    count: Array
    weight: Array
    config: CounterConfig = eqx.field(static=True)

    def update(self, batch: Minibatch, key: Array) -> tuple["Counter", Metrics]:
        count = self.count + 1
        weight = self.weight * 0.99 + 0.01 * batch.observations.mean() + jax.random.normal(key)
        weight = jnp.where(count >= self.config.weight_breaks_at, jnp.nan, weight)
        loss = jnp.where(count >= self.config.loss_breaks_at, jnp.nan, jnp.float32(1))
        target_mean = self.config.growth * count.astype(jnp.float32)
        return Counter(count, weight, self.config), {"loss": loss, "target_mean": target_mean}

    def act(self, observations: Array, keys: Array) -> Array:
        return jnp.clip(observations @ self.weight, -1, 1)


@pytest.fixture(autouse=True)
def _counter_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ALGORITHMS, "counter", CounterConfig)


def leaves_of(learner: Algorithm) -> dict[str, bytes]:
    """dtype, shape and bytes of every leaf, without the code under test."""
    return {
        jax.tree_util.keystr(path): f"{leaf.dtype}{leaf.shape}".encode()
        + np.asarray(leaf).tobytes()
        for path, leaf in jax.tree_util.tree_leaves_with_path(learner)
    }


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def trained(directory: Path, config: AlgorithmConfig | None = None) -> Run:
    return train_run(directory, config or CounterConfig(), SCHEDULE, batch())


def arrays_file(run: Run) -> Path:
    return next(run.directory.glob("step-*.safetensors"))


def loaded(run: Run) -> tuple[int, Algorithm]:
    checkpoint = Run.open(run.directory).load()
    assert checkpoint is not None
    return checkpoint


# Going on elsewhere


def test_going_on_with_other_threads_is_said_and_recorded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def go_on(threads: int, steps: int) -> list[dict[str, int]]:
        monkeypatch.setattr(origin, "threads", lambda: threads)
        schedule = replace(SCHEDULE, steps=steps)
        run = train_run(tmp_path, CounterConfig(), schedule, batch(), resume=True)
        assert Run.open(tmp_path).config.as_json() == run.config.as_json()
        return [
            {"step": each.step, "threads": each.origin.threads or 0}
            for each in run.config.continuations
        ]

    assert go_on(2, 200) == []
    assert go_on(2, 400) == []
    assert capsys.readouterr().err == ""
    assert go_on(1, 600) == [{"step": 400, "threads": 1}]
    warning = capsys.readouterr().err
    assert warning.startswith(f"bcq: warning: {tmp_path}: continues with threads = 1, not 2: ")
    assert warning.count("\n") == 1
    assert go_on(1, 800) == [{"step": 400, "threads": 1}]
    assert go_on(2, 800) == [{"step": 400, "threads": 1}]  # finished: nothing went on
    assert capsys.readouterr().err == ""
    assert go_on(2, 900)[1:] == [{"step": 800, "threads": 2}]
    assert "threads = 2, not 1" in capsys.readouterr().err


def test_a_run_begun_elsewhere_and_killed_before_a_checkpoint_starts_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    schedule = replace(SCHEDULE, env="Pendulum-v1")
    whole = train_run(tmp_path / "whole", CounterConfig(), schedule, batch())
    with monkeypatch.context() as patch:
        patch.setattr(origin, "threads", lambda: 77)
        patch.setattr(Run, "save", killed)
        with pytest.raises(KeyboardInterrupt):
            train_run(tmp_path / "run", CounterConfig(), schedule, batch())
    run = train_run(tmp_path / "run", CounterConfig(), schedule, batch(), resume=True)
    for log in ("metrics.jsonl", "episodes.jsonl"):
        assert run.read(log) == whole.read(log)
    assert run.config.continuations == (Continuation(0, whole.config.origin),)
    stored = json.loads((tmp_path / "run" / "config.json").read_text())
    now = {name: stored[name] for name in ("versions", "commit", "device")}
    threads = whole.config.origin.threads
    assert stored["continuations"] == [{"step": 0, **now, "threads": threads}]


def test_going_on_with_a_package_that_was_not_there_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trained(tmp_path)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    del config["versions"]["mujoco"]
    path.write_text(json.dumps(config))
    longer = replace(SCHEDULE, steps=500)
    run = train_run(tmp_path, CounterConfig(), longer, batch(), resume=True)
    expected = f"continues with versions.mujoco = {version('mujoco')}, not None: "
    assert expected in capsys.readouterr().err
    assert [each.step for each in run.config.continuations] == [400]


# What config.json holds


def test_config_holds_everything_the_run_depends_on(tmp_path: Path) -> None:
    data = batch()
    schedule = replace(SCHEDULE, env="Pendulum-v1", steps=100, seed=7)
    train_run(tmp_path / "run", TINY, schedule, data)
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["algorithm"] == "bcq"
    assert config["settings"] == {
        **asdict(TINY),
        "hidden_sizes": [8],
        "vae_hidden_sizes": [8],
    }
    assert config["schedule"] == asdict(schedule)
    assert config["dataset"]["fingerprint"] == data.fingerprint
    assert config["dataset"]["transitions"] == 60
    assert config["dataset"]["episodes"] == 3  # of twenty rows each
    assert config["dataset"]["mean_return"] == pytest.approx(data.rewards.sum() / 3)
    assert config["dataset"]["recipe"] == "test"
    assert config["device"] == jax.devices()[0].device_kind
    assert config["task"] == {"observation_size": 3, "action_low": [-2.0], "action_high": [2.0]}
    assert config["threads"] == len(os.sched_getaffinity(0))
    for package in ("bcq", "jax", "jaxlib", "equinox", "optax", "gymnasium", "mujoco", "numpy"):
        assert config["versions"][package] == version(package)


def test_a_batch_without_a_complete_episode_has_no_mean_return() -> None:
    assert recording.configuration_of(TINY, SCHEDULE, batch(19)).dataset == LoggedBatch(
        fingerprint=batch(19).fingerprint,
        transitions=19,
        episodes=1,
        mean_return=None,
        provenance=batch(19).provenance,
    )


def test_files_for_people_have_a_line_for_each_setting(tmp_path: Path) -> None:
    run = trained(tmp_path / "run")
    run.note_divergence(400, "loss")
    for name in ("config.json", "checkpoint.json", "divergence.json"):
        text = (run.directory / name).read_text()
        assert text == json.dumps(json.loads(text), indent=2) + "\n"


def test_the_commit_is_told_in_full_and_whether_files_were_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    monkeypatch.setattr(origin, "__file__", str(tmp_path / "runs.py"))
    assert origin.commit() is None  # no checkout

    def git(*words: str) -> str:
        who = ("-c", "user.name=n", "-c", "user.email=e", "-c", "commit.gpgsign=false")
        command = ["git", "-C", str(tmp_path), *who, *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    git("init")
    (tmp_path / "runs.py").write_text("1")
    git("add", ".")
    git("commit", "-m", "one")
    git("tag", "-a", "v1", "-m", "one")
    head = git("rev-parse", "HEAD")
    assert len(head) == 40
    assert origin.commit() == head
    (tmp_path / "runs.py").write_text("2")
    assert origin.commit() == f"{head}-dirty"
    monkeypatch.setenv("PATH", str(tmp_path))
    assert origin.commit() is None  # no git


def test_git_is_asked_in_a_session_of_its_own_that_no_interrupt_reaches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git = tmp_path / "git"
    git.write_text("#!/bin/sh\nread -r _ _ _ _ _ session _ < /proc/$$/stat\necho $session\n")
    git.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    session = int(origin.commit() or 0)
    assert session > 0
    assert session != os.getsid(0)


def test_threads_are_the_cores_that_may_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {3, 5, 8} if not process else {1})
    monkeypatch.setattr(os, "cpu_count", lambda: 16)
    assert origin.threads() == 3
    monkeypatch.delattr(os, "sched_getaffinity")  # not on every system
    assert origin.threads() == 16


@pytest.mark.usefixtures("own_compilation_cache")
def test_compiled_code_is_kept_in_the_users_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable, folder in (("HOME", ".cache/bcq/compiled"), ("XDG_CACHE_HOME", "bcq/compiled")):
        monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
        monkeypatch.setenv(variable, str(tmp_path))
        origin.use_compilation_cache()
        settings: Any = jax.config
        assert settings.jax_compilation_cache_dir == str(tmp_path / folder)
        assert settings.jax_persistent_cache_min_compile_time_secs == 0.1


def test_config_names_the_commit_of_the_checkout(tmp_path: Path) -> None:
    run = trained(tmp_path / "run")
    head = subprocess.run(
        ["git", "-C", Path(bcq.__file__).parent, "rev-parse", "HEAD"],
        capture_output=True,
        text=True,
        check=False,
    )
    if head.returncode:
        assert run.config.origin.commit is None
    else:
        assert (run.config.origin.commit or "").removesuffix("-dirty") == head.stdout.strip()


def test_settings_come_back_as_they_were(tmp_path: Path) -> None:
    config = replace(TINY, discount=0.3, hidden_sizes=(4, 5))
    data = batch()
    Run.create(tmp_path, recording.configuration_of(config, SCHEDULE, data))
    run = Run.open(str(tmp_path))
    assert run.algorithm == config
    assert run.task.observation_size == 3
    np.testing.assert_array_equal(run.task.bounds.low, data.bounds.low)
    np.testing.assert_array_equal(run.task.bounds.high, data.bounds.high)


# Save and load


@pytest.fixture(scope="module")
def learner() -> Algorithm:
    *_, progress = bcq.train(TINY, batch(), steps=130)
    return progress.learner


def test_a_loaded_learner_equals_the_saved_one_in_every_bit(
    tmp_path: Path, learner: Algorithm
) -> None:
    run = Run.create(tmp_path, recording.configuration_of(TINY, SCHEDULE, batch()))
    run.save(130, learner)
    loaded_step, again = loaded(run)
    assert loaded_step == 130
    assert leaves_of(again) == leaves_of(learner)
    assert eqx.tree_equal(again, learner)
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(again))
    moments = [name for name in leaves_of(again) if ".mu" in name or ".nu" in name]
    assert len(moments) > 20
    assert all(any(leaves_of(again)[name][-8:]) for name in moments)


def test_a_loaded_policy_acts_as_the_saved_one(tmp_path: Path, learner: Algorithm) -> None:
    data = batch()
    Run.create(tmp_path, recording.configuration_of(TINY, SCHEDULE, data)).save(130, learner)
    actions = bcq.Policy(learner, data.task).act(data.observations, seed=3, step=5)
    again = Run.open(tmp_path).policy().act(data.observations, seed=3, step=5)
    assert again.tobytes() == actions.tobytes()


def test_only_the_newest_checkpoint_is_kept(tmp_path: Path) -> None:
    run = trained(tmp_path / "run")
    assert [path.name for path in run.directory.glob("step-*")] == ["step-400.safetensors"]
    assert run.checkpoint_step() == 400


@pytest.mark.parametrize(
    ("keep", "steps"),
    [
        (1, [400]),
        (2, [300, 400]),
        (3, [200, 300, 400]),
        (5, [100, 200, 300, 400]),  # one more than there are
        (9, [100, 200, 300, 400]),
    ],
)
def test_so_many_of_the_newest_checkpoints_are_kept(
    tmp_path: Path, keep: int, steps: list[int]
) -> None:
    schedule = replace(SCHEDULE, checkpoint_every=100, keep=keep)
    run = train_run(tmp_path / "run", CounterConfig(), schedule, batch())
    assert sorted(path.name for path in run.directory.glob("step-*")) == [
        f"step-{step}.safetensors" for step in steps
    ]
    assert [one["step"] for one in run.checkpoints()] == steps
    pointer = json.loads((run.directory / "checkpoint.json").read_text())
    digests = [
        hashlib.sha256((run.directory / f"step-{step}.safetensors").read_bytes()).hexdigest()
        for step in steps
    ]
    listed = [
        {"step": step, "file": f"step-{step}.safetensors", "sha256": digest}
        for step, digest in zip(steps, digests, strict=True)
    ]
    assert pointer == {**listed[-1], "older": listed[:-1]}  # flat: it grows by one a checkpoint


def test_every_checkpoint_kept_is_that_of_a_run_which_ended_there(tmp_path: Path) -> None:
    schedule = replace(SCHEDULE, checkpoint_every=100, keep="all")
    run = train_run(tmp_path / "run", CounterConfig(), schedule, batch())
    for step in (100, 200, 300, 400):
        alone = replace(SCHEDULE, steps=step)
        short = train_run(tmp_path / f"{step}", CounterConfig(), alone, batch())
        ours, theirs = Run.open(run.directory).load(step), short.load()
        assert ours is not None
        assert theirs is not None
        assert ours[0] == theirs[0] == step
        assert leaves_of(ours[1]) == leaves_of(theirs[1])
    assert run.policy(100).learner != run.policy(400).learner
    with pytest.raises(InputError, match="update 150 was not kept; available: 100, 200, 300, 400"):
        run.load(150)


def test_a_checkpoint_made_in_passing_is_not_kept_beside_newer_ones(tmp_path: Path) -> None:
    schedule = replace(SCHEDULE, checkpoint_every=100, keep="all")
    whole = train_run(tmp_path / "whole", CounterConfig(), schedule, batch())
    run = train_run(tmp_path / "run", CounterConfig(), replace(schedule, steps=200), batch())
    step, learner = loaded(run)
    run.save(step + 50, learner, keep="all", passing=True)
    assert [one["step"] for one in run.checkpoints()] == [100, 200, 250]
    run.save(300, learner, keep="all")
    assert [one["step"] for one in run.checkpoints()] == [100, 200, 300]
    assert not (run.directory / "step-250.safetensors").exists()
    assert [one["step"] for one in whole.checkpoints()] == [100, 200, 300, 400]


def test_a_checkpoint_saved_again_is_listed_once(tmp_path: Path) -> None:
    run = train_run(tmp_path, CounterConfig(), replace(SCHEDULE, keep="all"), batch())
    step, learner = loaded(run)
    run.save(step, learner, keep="all")
    assert [one["step"] for one in run.checkpoints()] == [200, 400]
    run.save(500, learner)
    assert [one["step"] for one in run.checkpoints()] == [500]  # one, unless told
    assert "passing" not in json.loads((tmp_path / "checkpoint.json").read_text())
    assert [path.name for path in tmp_path.glob("step-*")] == ["step-500.safetensors"]


def test_a_run_without_a_checkpoint_has_no_policy_yet(tmp_path: Path) -> None:
    run = Run.create(tmp_path, recording.configuration_of(TINY, SCHEDULE, batch()))
    assert run.load() is None
    assert run.checkpoint_step() is None
    with pytest.raises(InputError, match="has no checkpoint yet"):
        run.policy()


def test_a_refused_resumption_changes_nothing(tmp_path: Path) -> None:
    run = trained(tmp_path / "run")
    flip_a_bit(arrays_file(run))
    before = contents(run.directory)
    longer = replace(SCHEDULE, steps=1_000)
    with pytest.raises(InputError, match=r"step-400\.safetensors: is damaged"):
        train_run(run.directory, CounterConfig(), longer, batch(), resume=True)
    assert contents(run.directory) == before


def test_what_is_kept_may_change_when_a_run_is_resumed(tmp_path: Path) -> None:
    schedule = replace(SCHEDULE, checkpoint_every=100, keep="all")
    run = train_run(tmp_path, CounterConfig(), schedule, batch())
    later = replace(schedule, steps=500, keep=2)
    run = train_run(tmp_path, CounterConfig(), later, batch(), resume=True)
    assert [one["step"] for one in run.checkpoints()] == [400, 500]
    assert json.loads((tmp_path / "config.json").read_text())["schedule"]["keep"] == 2


@pytest.mark.parametrize("name", ["./step-400.safetensors", "../run/step-400.safetensors"])
@pytest.mark.parametrize("place", ["newest", "older"])
def test_a_checkpoint_under_another_name_is_refused_and_nothing_is_deleted(
    tmp_path: Path, name: str, place: str
) -> None:
    run = trained(tmp_path / "run")
    path = run.directory / "checkpoint.json"
    pointer = json.loads(path.read_text())
    if place == "newest":
        pointer["file"] = name
    else:
        pointer["older"] = [{**pointer, "file": name}]
    path.write_text(json.dumps(pointer))
    before = contents(run.directory)
    with pytest.raises(InputError, match=r"checkpoint\.json: is damaged"):
        train_run(run.directory, CounterConfig(), SCHEDULE, batch(), resume=True)
    assert contents(run.directory) == before


def test_a_checkpoint_that_nothing_supersedes_is_not_deleted(tmp_path: Path) -> None:
    run = trained(tmp_path / "run")
    for name in ("step-900.safetensors", "step-mine.safetensors"):
        (run.directory / name).write_bytes(b"precious")
    train_run(run.directory, CounterConfig(), SCHEDULE, batch(), resume=True)
    for name in ("step-900.safetensors", "step-mine.safetensors"):
        assert (run.directory / name).read_bytes() == b"precious"
    (run.directory / "checkpoint.json").unlink()
    run.remove_leftovers()
    assert (run.directory / "step-400.safetensors").exists()


# No pickle


def test_a_run_holds_only_json_and_safetensors(tmp_path: Path) -> None:
    files = contents(trained(tmp_path / "run").directory)
    assert set(files) == {
        ".lock",
        "config.json",
        "metrics.jsonl",
        "timing.jsonl",
        "checkpoint.json",
        "step-400.safetensors",
    }
    assert files[".lock"] == b""
    for name, content in files.items():
        if name.endswith(".json"):
            json.loads(content)
        elif name.endswith(".jsonl"):
            assert all(json.loads(line)["step"] <= 400 for line in content.splitlines())
    assert safetensors.numpy.load(files["step-400.safetensors"])["count"] == 400


def test_the_source_imports_nothing_that_unpickles() -> None:
    unpicklers = {"pickle", "cloudpickle", "dill", "joblib", "shelve", "marshal", "torch"}
    for path in Path(bcq.__file__).parent.rglob("*.py"):
        source = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(source)):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not {name.split(".")[0] for name in names} & unpicklers, path
        assert "allow_pickle=True" not in source, path


# Damaged and foreign checkpoints


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("damage", [truncate, flip_a_bit, Path.unlink])
def test_damaged_arrays_are_refused(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    run = trained(tmp_path / "run")
    damage(arrays_file(run))
    with pytest.raises(InputError, match=r"step-400\.safetensors: "):
        Run.open(run.directory).load()


@pytest.mark.parametrize(
    "text",
    [
        "not JSON",
        "",
        "[]",
        "{}",
        '{"step": 400, "file": "step-400.safetensors"}',
        '{"step": "400", "file": "step-400.safetensors", "sha256": ""}',
        '{"step": 400, "file": null, "sha256": ""}',
        '{"step": 400, "file": "step-400.safetensors", "sha256": "", "older": 7}',
        '{"step": 400, "file": "step-400.safetensors", "sha256": "", "older": [7]}',
        '{"step": 400, "file": "step-400.safetensors", "sha256": "", "older": [{"step": 200}]}',
        "\0\xff",
    ],
)
def test_a_damaged_pointer_is_refused(tmp_path: Path, text: str) -> None:
    run = trained(tmp_path / "run")
    (run.directory / "checkpoint.json").write_bytes(text.encode("latin-1"))
    again = Run.open(run.directory)
    for use in (again.load, again.checkpoint_step):
        with pytest.raises(InputError, match=r"checkpoint\.json: "):
            use()


def test_a_damaged_checkpoint_is_refused_on_resume_and_nothing_is_changed(tmp_path: Path) -> None:
    run = trained(tmp_path / "run")
    flip_a_bit(arrays_file(run))
    before = contents(run.directory)
    with pytest.raises(InputError, match=r"step-400\.safetensors: is damaged"):
        train_run(run.directory, CounterConfig(), SCHEDULE, batch(), resume=True)
    assert contents(run.directory) == before


def put_checkpoint(run: Run, arrays: dict[str, NDArray[np.generic]]) -> None:
    """A checkpoint with a valid SHA-256."""
    content = safetensors.numpy.save(arrays)
    arrays_file(run).write_bytes(content)
    pointer = {
        "step": 400,
        "file": "step-400.safetensors",
        "sha256": hashlib.sha256(content).hexdigest(),
    }
    (run.directory / "checkpoint.json").write_text(json.dumps(pointer))


COUNTER_ARRAYS: dict[str, NDArray[np.generic]] = {
    "count": np.array(400, np.int32),
    "weight": np.zeros((3, 1), np.float32),
}


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"weight": np.zeros((4, 1), np.float32)}, "weight"),
        ({"weight": np.zeros((1, 3), np.float32)}, "weight"),
        ({"weight": np.zeros((3, 1), np.float16)}, "weight"),
        ({"count": np.array(400, np.int64)}, "count"),
        ({"vae.model.encoder": np.zeros(1, np.float32)}, "vae.model.encoder"),
    ],
)
def test_arrays_of_another_learner_are_refused(
    tmp_path: Path, changes: dict[str, NDArray[np.generic]], named: str
) -> None:
    run = trained(tmp_path / "run")
    put_checkpoint(run, COUNTER_ARRAYS)
    assert loaded(run)[0] == 400
    put_checkpoint(run, COUNTER_ARRAYS | changes)
    with pytest.raises(
        InputError, match=rf"step-400\.safetensors: belongs to a different .*{named} "
    ):
        Run.open(run.directory).load()


def test_a_checkpoint_that_lacks_an_array_is_refused(tmp_path: Path) -> None:
    run = trained(tmp_path / "run")
    put_checkpoint(run, {"count": COUNTER_ARRAYS["count"]})
    with pytest.raises(InputError, match=r"step-400\.safetensors: .*weight"):
        Run.open(run.directory).load()


@pytest.mark.parametrize("other", [replace(TINY, hidden_sizes=(6,)), CounterConfig()])
def test_a_checkpoint_of_other_settings_is_refused(tmp_path: Path, other: AlgorithmConfig) -> None:
    data = batch()
    ours = Run.create(tmp_path / "ours", recording.configuration_of(TINY, SCHEDULE, data))
    theirs = Run.create(tmp_path / "theirs", recording.configuration_of(other, SCHEDULE, data))
    theirs.save(0, training.create(other, data, seed=0))
    for name in ("checkpoint.json", "step-0.safetensors"):
        (theirs.directory / name).rename(ours.directory / name)
    with pytest.raises(
        InputError, match=r"ours/step-0\.safetensors: belongs to a different learner"
    ):
        ours.load()


def test_a_file_that_is_not_safetensors_is_refused(tmp_path: Path) -> None:
    run = trained(tmp_path / "run")
    arrays_file(run).write_bytes(b"zeros")
    pointer = json.loads((run.directory / "checkpoint.json").read_text())
    pointer["sha256"] = hashlib.sha256(b"zeros").hexdigest()
    (run.directory / "checkpoint.json").write_text(json.dumps(pointer))
    with pytest.raises(InputError, match=r"step-400\.safetensors: is not a safetensors file"):
        Run.open(run.directory).load()


# Interrupted writes


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left"), KeyboardInterrupt()])
@pytest.mark.parametrize("while_doing", ["write_bytes", "write_text", "replace"])
def test_a_failed_save_leaves_the_earlier_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, while_doing: str, error: BaseException
) -> None:
    run = trained(tmp_path / "run")
    step, learner = loaded(run)
    files = set(contents(run.directory))

    def fail(path: Path, *content: object, **options: object) -> None:
        if while_doing != "replace":
            with path.open("wb") as file:
                file.write(b"half")
        raise error

    expected = InputError if isinstance(error, OSError) else KeyboardInterrupt
    with monkeypatch.context() as patch:
        patch.setattr(Path, while_doing, fail)
        with pytest.raises(expected):
            run.save(step + 1, learner)
    again_step, again = loaded(run)
    assert again_step == step
    assert leaves_of(again) == leaves_of(learner)
    new = set(contents(run.directory)) - files
    assert new <= {"step-401.safetensors"}  # whole, but nothing points to it yet
    assert while_doing == "write_text" or not new


def events_of(patch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Notes what is synced and what is renamed, in order, from here on."""
    events: list[tuple[str, str]] = []
    fsync, rename = os.fsync, Path.replace

    def synced(descriptor: int) -> None:
        events.append(("synced", Path(f"/proc/self/fd/{descriptor}").readlink().name))
        fsync(descriptor)

    def renamed(path: Path, target: Path) -> Path:
        events.append(("renamed", target.name))
        return rename(path, target)

    patch.setattr(os, "fsync", synced)
    patch.setattr(Path, "replace", renamed)
    return events


def test_a_file_is_on_the_disk_before_its_name_and_the_name_before_anything_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = events_of(monkeypatch)
    write_text(tmp_path / "a.txt", "new")
    temporary = f".a.txt.{os.getpid()}.tmp"
    folder = tmp_path.name
    assert events == [("synced", temporary), ("renamed", "a.txt"), ("synced", folder)]


def test_what_a_checkpoint_builds_on_is_on_the_disk_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = trained(tmp_path / "run")
    _, learner = loaded(run)
    for log in LOGS:
        run.append(log, [{"step": 401}])
    events = events_of(monkeypatch)
    run.save(401, learner)
    arrays, pointer = ("renamed", "step-401.safetensors"), ("renamed", "checkpoint.json")
    before = events[: events.index(arrays)]
    assert {("synced", log) for log in LOGS} < set(before)
    between = events[events.index(arrays) + 1 : events.index(pointer)]
    assert ("synced", "run") in between  # the arrays' name, before what points to it
    assert events[-1] == ("synced", "run")


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left"), KeyboardInterrupt()])
def test_a_log_that_is_being_cut_back_is_the_old_one_or_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    run = Run.create(tmp_path / "run", configuration())
    run.append("metrics.jsonl", [{"step": step} for step in (100, 200, 300)])
    before = contents(run.directory)
    real = os.fsync

    def fail(descriptor: int) -> None:
        real(descriptor)
        raise error

    def write_half(path: Path, text: str, **options: object) -> None:
        with path.open("w") as file:
            file.write(text[: len(text) // 2])
        raise error

    for owner, name, failing in ((os, "fsync", fail), (Path, "write_text", write_half)):
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, failing)
            with pytest.raises((InputError, KeyboardInterrupt)):
                run.cut_back(200)
        assert contents(run.directory) == before
    run.cut_back(200)
    assert run.read("metrics.jsonl") == [{"step": 100}, {"step": 200}]


def test_a_failed_save_says_what_could_not_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = trained(tmp_path / "run")
    _, learner = loaded(run)

    def fail(path: Path, content: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", fail)
    with pytest.raises(InputError, match=r"step-9\.safetensors: No space left on device"):
        run.save(9, learner)


def test_what_a_killed_process_left_is_removed_on_resume(tmp_path: Path) -> None:
    run = trained(tmp_path / "run")
    before = contents(run.directory)
    (run.directory / ".step-400.safetensors.12345.tmp").write_bytes(b"half")
    (run.directory / ".checkpoint.json.12345.tmp").write_bytes(b"half")
    (run.directory / "step-200.safetensors").write_bytes(b"superseded")
    train_run(run.directory, CounterConfig(), SCHEDULE, batch(), resume=True)
    assert contents(run.directory) == before


# Logs


def test_cut_back_removes_later_rows_and_a_torn_line(tmp_path: Path) -> None:
    run = Run.create(tmp_path, configuration())
    for log in LOGS:
        run.append(log, [{"step": step, "x": step / 3} for step in (0, 100, 200, 300)])
        with (tmp_path / log).open("a") as file:
            file.write('{"step": 100, "x"')
    run.cut_back(200)
    for log in LOGS:
        rows = [json.loads(line) for line in (tmp_path / log).read_text().splitlines()]
        assert rows == [{"step": step, "x": step / 3} for step in (0, 100, 200)]
        assert (tmp_path / log).read_text().endswith("\n")


@pytest.mark.parametrize("row", ["[]", "7", '{"step": "7"}', "{}"])
def test_a_row_without_its_numbers_is_damage(row: str, tmp_path: Path) -> None:
    run = Run.create(tmp_path, configuration())
    (tmp_path / "metrics.jsonl").write_text(f'{{"step": 0}}\n{row}\n')
    with pytest.raises(InputError, match=r"metrics\.jsonl: is damaged: row 1 has no step"):
        run.read("metrics.jsonl")


def test_cut_back_before_the_first_step_empties_the_logs(tmp_path: Path) -> None:
    run = Run.create(tmp_path, configuration())
    run.append("episodes.jsonl", [{"step": 0}])
    run.cut_back(-1)
    assert (tmp_path / "episodes.jsonl").read_text() == ""


def test_the_last_step_of_a_log_is_that_of_its_last_whole_row(tmp_path: Path) -> None:
    log = tmp_path / "episodes.jsonl"
    assert last_step(log) == 0
    log.write_text("")
    assert last_step(log) == 0
    log.write_text('{"step": 7, "return": 1}')  # torn
    assert last_step(log) == 0
    log.write_text('{"step": 7, "return": 1}\n')
    assert last_step(log) == 7
    with log.open("a") as file:
        file.writelines(f'{{"step": {step}, "return": 1}}\n' for step in range(8, 2_000))
        file.write('{"step": 2000, "ret')
    assert last_step(log) == 1_999
    log.write_text("{}\n")
    with pytest.raises(InputError, match=r"episodes\.jsonl: the last row is damaged"):
        last_step(log)
    log.unlink()
    log.mkdir()
    with pytest.raises(InputError, match=r"episodes\.jsonl"):
        last_step(log)


def test_a_place_that_is_gone_is_named(tmp_path: Path) -> None:
    run = Run(tmp_path / "gone", configuration())
    with pytest.raises(InputError, match=r"cannot write .*gone/metrics\.jsonl: No such file"):
        run.append("metrics.jsonl", [{"step": 1}])
    refused = pytest.raises(InputError, match=r"cannot write .*gone/\.lock: No such file")
    with refused, locked(run.directory):
        pass


def test_an_environment_of_other_sizes_is_refused_before_anything_is_written(
    tmp_path: Path,
) -> None:
    schedule = replace(SCHEDULE, env="MountainCarContinuous-v0")
    with pytest.raises(InputError, match="its observations have 2 numbers, those of the data 3"):
        train_run(tmp_path / "run", CounterConfig(), schedule, batch())
    assert list(tmp_path.iterdir()) == []


def test_an_algorithm_for_choices_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="discrete-bc: the actions of this batch are quantities"):
        train_run(tmp_path / "run", bcq.DiscreteBCConfig(), SCHEDULE, batch())
    assert list(tmp_path.iterdir()) == []


def test_progress_counts_updates_and_tells_each_evaluation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    advances: list[tuple[int, int]] = []
    notes: list[str] = []
    advance = progress.Progress.advance

    def advanced(bar: progress.Progress, updates: int) -> None:
        assert (bar.what, bar.unit, bar.total) in (("training", "update", n) for n in (200, 350))
        advances.append((bar.done, updates))
        advance(bar, updates)

    monkeypatch.setattr(progress.Progress, "advance", advanced)
    monkeypatch.setattr(progress.Progress, "note", lambda _, words: notes.append(words))
    schedule = replace(SCHEDULE, env="Pendulum-v1", steps=200)
    train_run(tmp_path, CounterConfig(), schedule, batch())
    train_run(tmp_path, CounterConfig(), replace(schedule, steps=350), batch(), resume=True)
    assert advances == [(0, 100), (100, 100), (200, 100), (300, 50)]
    assert [words.split(" at ")[1] for words in notes] == ["0", "200", "350"]


def test_what_happens_along_the_way_also_happens_at_the_end(tmp_path: Path) -> None:
    schedule = Schedule(
        steps=350,
        env="Pendulum-v1",
        evaluate_every=200,
        evaluate_episodes=1,
        checkpoint_every=100,
        keep="all",
    )
    run = train_run(tmp_path, CounterConfig(), schedule, batch())
    assert [row["step"] for row in run.read("episodes.jsonl")] == [0, 200, 350]
    assert [one["step"] for one in run.checkpoints()] == [100, 200, 300, 350]
    assert [row["step"] for row in run.read("metrics.jsonl")] == [100, 200, 300, 350]


def test_true_values_are_measured_at_their_steps_and_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured: list[int] = []
    monkeypatch.setattr(recording, "require_measurable", lambda *_: None)
    monkeypatch.setattr(
        recording, "measure_values_into", lambda _, step, *__: measured.append(step)
    )
    monkeypatch.setattr("bcq.runs.recorder.Recorder.evaluate", lambda *_: None)
    schedule = replace(SCHEDULE, steps=350, env="Pendulum-v1", true_value_every=200)
    train_run(tmp_path, CounterConfig(), schedule, batch())
    assert measured == [200, 350]


def test_timing_is_of_the_updates_since_the_last_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = count(step=0.12342)  # between two looks at it
    watch = SimpleNamespace(perf_counter=clock.__next__)
    monkeypatch.setattr("bcq.runs.recording.time", watch)
    monkeypatch.setattr("bcq.runs.recorder.Recorder.evaluate", lambda *_: next(clock))
    run = trained(tmp_path)
    assert run.read("timing.jsonl") == [
        {"step": step, "seconds": 0.1234} for step in (100, 200, 300, 400)
    ]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_append_refuses_what_json_cannot_hold_and_writes_none_of_it(
    tmp_path: Path, value: float
) -> None:
    run = Run.create(tmp_path, configuration())
    run.append("metrics.jsonl", [{"step": 1}])
    with pytest.raises(ValueError, match="JSON"):
        run.append("metrics.jsonl", [{"step": 2}, {"step": 3, "loss": value}])
    assert (tmp_path / "metrics.jsonl").read_text() == '{"step": 1}\n'


# One process a run


@contextmanager
def another_process_writing(directory: Path) -> Iterator[None]:
    code = (
        "import fcntl, sys\n"
        "file = open(sys.argv[1], 'w')\n"
        "fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)\n"
        "print('locked', flush=True)\n"
        "sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", code, str(directory / ".lock")]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "locked\n"
        yield
        process.communicate()


def test_a_second_process_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    run = trained(tmp_path / "run")
    before = contents(run.directory)
    longer = replace(SCHEDULE, steps=600)
    with another_process_writing(run.directory):
        with pytest.raises(InputError, match="run: another process is writing"):
            train_run(run.directory, CounterConfig(), longer, batch(), resume=True)
        assert contents(run.directory) == before
    train_run(run.directory, CounterConfig(), longer, batch(), resume=True)
    assert run.checkpoint_step() == 600


def test_a_run_is_locked_while_it_trains_and_free_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = []

    def try_to_lock(path: Path) -> None:
        with path.open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                refused.append(path)

    save = Run.save

    def save_and_try(run: Run, step: int, learner: Algorithm, **options: Any) -> None:
        try_to_lock(run.directory / ".lock")
        save(run, step, learner, **options)

    monkeypatch.setattr(Run, "save", save_and_try)
    run = trained(tmp_path / "run")
    assert len(refused) == 2
    try_to_lock(run.directory / ".lock")
    assert len(refused) == 2


# Stopped by the user


def test_a_run_stopped_before_its_first_update_has_no_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interruption, "requested", lambda: True)
    with pytest.raises(InterruptionError, match=r"run has no update yet$"):
        trained(tmp_path / "run")
    assert set(contents(tmp_path / "run")) == {".lock", "config.json"}


def test_a_run_stopped_along_the_way_is_saved_and_one_at_its_end_is_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interruption, "requested", lambda: True)
    run = Run.create(tmp_path, recording.configuration_of(CounterConfig(), SCHEDULE, batch()))
    learner = training.create(CounterConfig(), batch(), seed=0)
    with progress.Progress("training", 400, "update", shown=False) as bar:
        notes = recorder.Recorder(run, SCHEDULE, bar)
        for step, due in ((200, True), (300, False)):
            saved = f"^update {step} of 400 is saved in {tmp_path}$"
            with pytest.raises(InterruptionError, match=saved):
                notes.checkpoint(step, learner, due=due)
            assert run.checkpoint_step() == bar.done == step
            assert ("passing" in (run.pointer() or {})) == (not due)
        notes.checkpoint(400, learner, due=True)
        assert run.checkpoint_step() == bar.done == 400


# Numbers that are lost


def test_a_loss_that_is_not_finite_stops_the_run_and_keeps_the_last_checkpoint(
    tmp_path: Path,
) -> None:
    expected = r"run: loss is nan by update 300; update 200 is kept"
    with pytest.raises(DivergenceError, match=expected):
        trained(tmp_path / "run", CounterConfig(loss_breaks_at=250))
    run = Run.open(tmp_path / "run")
    step, learner = loaded(run)
    assert step == 200
    assert isinstance(learner, Counter)
    assert learner.count == 200
    assert np.isfinite(learner.weight).all()
    assert [row["step"] for row in run.read("metrics.jsonl")] == [100, 200]
    assert run.divergence() == {"step": 300, "what": "loss", "last_estimate": None}


def test_the_last_finite_estimate_is_told_and_a_resumed_run_tells_its_own(
    tmp_path: Path,
) -> None:
    run = trained(tmp_path / "run")
    run.append("metrics.jsonl", [{"step": s, "value_estimate": s / 2} for s in (410, 420)])
    run.append("metrics.jsonl", [{"step": 430}])
    run.note_divergence(440, "critic_loss")
    assert Run.open(run.directory).divergence() == {
        "step": 440,
        "what": "critic_loss",
        "last_estimate": 210.0,
    }
    train_run(run.directory, CounterConfig(), SCHEDULE, batch(), resume=True)
    assert Run.open(run.directory).divergence() is None


def test_one_number_that_is_not_finite_is_found_in_its_array() -> None:
    learner = training.create(TINY, batch(), seed=0)
    assert recorder.are_finite(learner).all()
    leaves, structure = jax.tree.flatten(learner)
    place = next(i for i, leaf in enumerate(leaves) if leaf.ndim == 2)
    leaves[place] = leaves[place].at[0, 1].set(jnp.nan)
    answers = recorder.are_finite(jax.tree.unflatten(structure, leaves))
    assert np.flatnonzero(~np.asarray(answers)).tolist() == [place]


def test_weights_that_are_not_finite_are_never_stored(tmp_path: Path) -> None:
    config = CounterConfig(weight_breaks_at=400)  # the losses are those before the step: finite
    with pytest.raises(DivergenceError, match=r"weight is not finite by update 400; update 200 is"):
        trained(tmp_path / "run", config)
    step, learner = loaded(Run.open(tmp_path / "run"))
    assert step == 200
    assert isinstance(learner, Counter)
    assert np.isfinite(learner.weight).all()


def test_rewards_too_large_for_the_loss_are_reported(tmp_path: Path) -> None:
    expected = r"critic_loss is (inf|nan) by update 100; no checkpoint was written"
    with pytest.raises(DivergenceError, match=expected):
        train_run(tmp_path, TINY, SCHEDULE, batch(reward_scale=1e38))
    assert Run.open(tmp_path).load() is None


@pytest.mark.parametrize(("growth", "reward_scale"), [(0.1, 1.0), (-0.1, 1.0), (0.1, -1.0)])
def test_a_runaway_value_warns_once_and_training_goes_on(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], growth: float, reward_scale: float
) -> None:
    data = batch(reward_scale=reward_scale)
    run = train_run(tmp_path / "run", CounterConfig(growth=growth), SCHEDULE, data)
    printed = "".join(capfd.readouterr())
    warnings = [line for line in printed.replace("\r", "\n").split("\n") if "warning" in line]
    assert len(warnings) == 1
    assert "diverges" in warnings[0]
    assert "at update 300" in warnings[0]  # 0.1 x 250 on average; the alarm is at 2 x 10 + 1
    assert run.checkpoint_step() == 400


def test_a_young_networks_noise_is_no_alarm_where_there_are_no_rewards(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    data = batch(reward_scale=0.0)
    short = replace(SCHEDULE, steps=3)
    train_run(tmp_path / "at", CounterConfig(growth=0.5), short, data)  # 1 on average: no more
    assert "warning" not in "".join(capfd.readouterr())
    train_run(tmp_path / "run", CounterConfig(growth=0.01), SCHEDULE, data)
    assert "at update 200;" in "".join(capfd.readouterr())  # 0.505, then 1.505: above 1


def test_a_value_within_reach_of_the_rewards_does_not_warn(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    trained(tmp_path / "run", CounterConfig(growth=0.02))
    assert "warning" not in "".join(capfd.readouterr())


def test_without_discount_no_value_is_too_large(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run = trained(tmp_path / "run", CounterConfig(discount=1.0, growth=1.0))
    assert run.checkpoint_step() == 400
    assert "warning" not in "".join(capfd.readouterr())


# Resuming


@pytest.mark.parametrize(
    ("config", "schedule", "setting"),
    [
        (CounterConfig(growth=0.5), SCHEDULE, "settings.growth = 0.0, not 0.5"),
        (CounterConfig(), replace(SCHEDULE, seed=1), "schedule.seed = 0, not 1"),
        (
            CounterConfig(),
            replace(SCHEDULE, checkpoint_every=100),
            "schedule.checkpoint_every = 200, not 100",
        ),
        (TINY, SCHEDULE, "algorithm = counter, not bcq"),
    ],
)
def test_resuming_with_another_setting_is_refused(
    tmp_path: Path, config: AlgorithmConfig, schedule: Schedule, setting: str
) -> None:
    run = trained(tmp_path / "run")
    before = contents(run.directory)
    with pytest.raises(InputError, match=f"run: was started with {setting}"):
        train_run(run.directory, config, schedule, batch(), resume=True)
    assert contents(run.directory) == before


def test_of_several_other_settings_the_first_by_name_is_told(tmp_path: Path) -> None:
    run = trained(tmp_path / "run")
    other = CounterConfig(
        discount=0.8, batch_size=5, growth=1.0, loss_breaks_at=9, weight_breaks_at=9
    )
    with pytest.raises(InputError, match=r"was started with settings\.batch_size = 4, not 5"):
        train_run(run.directory, other, SCHEDULE, batch(), resume=True)


def test_resuming_a_run_that_lacks_a_setting_is_refused(tmp_path: Path) -> None:
    run = trained(tmp_path / "run")
    path = run.directory / "config.json"
    config = json.loads(path.read_text())
    del config["settings"]["growth"]
    path.write_text(json.dumps(config))
    with pytest.raises(InputError, match=r"was started with settings\.growth = None, not 0\.0"):
        train_run(run.directory, CounterConfig(), SCHEDULE, batch(), resume=True)


def test_resuming_with_other_data_is_refused(tmp_path: Path) -> None:
    run = trained(tmp_path / "run")
    with pytest.raises(InputError, match=r"was started with dataset\.fingerprint = "):
        train_run(run.directory, CounterConfig(), SCHEDULE, batch(reward_scale=1.5), resume=True)


def test_a_folder_that_holds_a_run_is_refused_without_resume(tmp_path: Path) -> None:
    run = trained(tmp_path / "run")
    before = contents(run.directory)
    with pytest.raises(InputError, match=r"run already contains a run$") as refused:
        trained(run.directory)
    assert refused.value.option == "resume"
    assert contents(run.directory) == before


@pytest.mark.parametrize("first_steps", [200, 250])
def test_a_finished_run_can_be_extended(tmp_path: Path, first_steps: int) -> None:
    whole = trained(tmp_path / "whole")
    first = replace(SCHEDULE, steps=first_steps)
    train_run(tmp_path / "run", CounterConfig(), first, batch())
    run = train_run(tmp_path / "run", CounterConfig(), SCHEDULE, batch(), resume=True)
    assert contents(run.directory)["config.json"] == contents(whole.directory)["config.json"]
    assert arrays_file(run).read_bytes() == arrays_file(whole).read_bytes()


def test_a_run_is_not_cut_short(tmp_path: Path) -> None:
    run = trained(tmp_path / "run")
    before = contents(run.directory)
    with pytest.raises(InputError, match="run: is already at update 400, more than 300"):
        train_run(
            run.directory, CounterConfig(), replace(SCHEDULE, steps=300), batch(), resume=True
        )
    assert contents(run.directory) == before


def test_a_finished_run_resumed_changes_no_byte(tmp_path: Path) -> None:
    schedule = replace(SCHEDULE, env="Pendulum-v1")
    run = train_run(tmp_path / "run", CounterConfig(), schedule, batch())
    before = contents(run.directory)
    episodes = [(row["step"], row["episode"], row["length"]) for row in run.read("episodes.jsonl")]
    assert episodes == [(step, i, 200) for step in (0, 200, 400) for i in (0, 1)]
    train_run(run.directory, CounterConfig(), schedule, batch(), resume=True)
    assert contents(run.directory) == before


def test_resume_begins_a_run_where_there_is_none(tmp_path: Path) -> None:
    run = train_run(tmp_path / "new", CounterConfig(), SCHEDULE, batch(), resume=True)
    assert run.checkpoint_step() == 400
