"""A campaign of bad inputs over every verb and every kind of file.

Whatever is wrong is said in one line that begins with `bcq: ` (or by the option parser), the exit
code is not 0, and no file is lost, changed or left half-written.
"""

import json
import os
import shutil
import signal
import socket
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from gymnasium.envs.registration import EnvSpec

import bcq
from bcq.cli.application import main
from conftest import ROWS

pytestmark = pytest.mark.usefixtures("own_compilation_cache")
Make = Callable[[Path], object]
Case = tuple[str, Make, tuple[str, ...]]  # what is wrong, how it comes about, the command
TINY = ("--hidden-sizes", "8", "--steps", "100")

GENERATOR = np.random.default_rng(0)
ARRAYS: dict[str, Any] = {
    "observations": GENERATOR.normal(size=(ROWS, 3)).astype(np.float32),
    "actions": GENERATOR.uniform(-1, 1, (ROWS, 1)).astype(np.float32),
    "rewards": GENERATOR.normal(size=ROWS).astype(np.float32),
    "next_observations": GENERATOR.normal(size=(ROWS, 3)).astype(np.float32),
    "terminals": np.arange(ROWS) % 20 == 19,
    "timeouts": np.arange(ROWS) % 20 == 9,
}


def spoiled(name: str, value: float) -> Any:
    values = ARRAYS[name].astype(np.float64)
    values.flat[17] = value
    return values


# Arrays that no batch may have, whatever file they are in
BAD_ARRAYS: dict[str, dict[str, Any]] = {
    **{f"without {name}": {name: None} for name in ("observations", "actions", "rewards")},
    **{
        f"{value} in {name}": {name: spoiled(name, value)}
        for name in ("observations", "actions", "rewards", "next_observations", "terminals")
        for value in (np.nan, np.inf, -np.inf, 1e300)
    },
    **{f"{name} one row short": {name: values[:-1]} for name, values in ARRAYS.items()},
    **{f"{name} empty": {name: values[:0]} for name, values in ARRAYS.items()},
    **{
        f"{name} of three dimensions": {name: v.reshape(ROWS, -1, 1, 1)}
        for name, v in ARRAYS.items()
    },
    **{f"{name} complex": {name: v.astype(complex)} for name, v in ARRAYS.items()},
    "no rows at all": {name: values[:0] for name, values in ARRAYS.items()},
    "a flag of 2": {"terminals": np.full(ROWS, 2)},
    "observations without columns": {"observations": np.zeros((ROWS, 0))},
    "actions without columns": {"actions": np.zeros((ROWS, 0))},
    "next observations of another size": {"next_observations": np.zeros((ROWS, 2))},
}


def hdf5(path: Path, /, **changes: Any) -> None:
    with h5py.File(path, "w") as file:
        for name, values in (ARRAYS | changes).items():
            if values is not None:
                file[name] = values


def npz(path: Path, /, **changes: Any) -> None:
    arrays = ARRAYS | changes
    np.savez(path, **{name: values for name, values in arrays.items() if values is not None})


def with_attribute(name: str, value: Any) -> Make:
    def make(path: Path) -> None:
        hdf5(path)
        with h5py.File(path, "a") as file:
            file.attrs[name] = value

    return make


def of_bytes(content: bytes) -> Make:
    return lambda path: path.write_bytes(content)


def cut(make: Make, share: float) -> Make:
    def shorter(path: Path) -> None:
        make(path)
        content = path.read_bytes()
        path.write_bytes(content[: int(share * len(content))])

    return shorter


def socket_at(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        here = Path.cwd()
        os.chdir(path.parent)  # a socket's name is short
        one.bind(path.name)
        os.chdir(here)


NO_FILES: dict[str, Make] = {
    "absent": lambda path: None,
    "folder": lambda path: path.mkdir(),
    "pipe": os.mkfifo,
    "socket": socket_at,
    "device without end": lambda path: path.symlink_to("/dev/zero"),
    "device without content": lambda path: path.symlink_to("/dev/null"),
    "link to nothing": lambda path: path.symlink_to("nowhere"),
    "link to itself": lambda path: path.symlink_to(path.name),
    "empty": of_bytes(b""),
    "zeros": of_bytes(bytes(5_000)),
    "noise": of_bytes(np.random.default_rng(1).bytes(5_000)),
    "text": of_bytes(b"hello\n"),
    "not UTF-8": of_bytes(b"\xff\xfe\x00\xd8" * 100),
}


def csv(text: str) -> Make:
    return lambda path: path.write_text(text)


HEADER = "obs_0,action,reward,terminated\n"
LINES = "0.5,0.25,1,0\n" * 5
CSVS = {
    "header alone": HEADER,
    "no header": LINES,
    "a column twice": HEADER.replace("action", "obs_0") + LINES,
    "two rewards": "obs_0,action,reward,reward\n" + LINES,
    "without actions": HEADER.replace("action", "other") + LINES,
    "without rewards": HEADER.replace("reward", "other") + LINES,
    "a word for a number": HEADER + LINES + "word,0.25,1,0\n",
    "a missing number": HEADER + LINES + ",0.25,1,0\n",
    "NaN": HEADER + LINES + "nan,0.25,1,0\n",
    "infinite": HEADER + LINES + "0.5,0.25,inf,0\n",
    "a field too many": HEADER + LINES + "0.5,0.25,1,0,7\n",
    "a field too few": HEADER + LINES + "0.5,0.25\n",
    "an open quote": HEADER + LINES + '"0.5,0.25,1,0\n',
    "an action out of bounds": HEADER + LINES + "0.5,25,1,0\n",
    "a flag of 3": HEADER + LINES + "0.5,0.25,1,3\n",
    "one row that needs a successor": HEADER + "0.5,0.25,1,0\n",
    "one step twice": "step," + HEADER + "".join(f"1,{line}\n" for line in LINES.split()),
    "no step": "step," + HEADER + "1,0.5,0.25,1,0\n,0.5,0.25,1,0\n",
}


def parquet(path: Path, /, **changes: Any) -> None:
    columns = {"obs_0": [0.5] * 5, "action": [0.25] * 5, "reward": [1.0] * 5, "terminated": [0] * 5}
    columns |= changes
    pq.write_table(pa.table({n: v for n, v in columns.items() if v is not None}), path)


PARQUETS: dict[str, dict[str, Any]] = {
    "without rewards": {"reward": None},
    "text": {"reward": ["one"] * 5},
    "lists": {"obs_0": [[1.0, 2.0]] * 5},
    "nulls": {"reward": [None, 1.0, 1.0, 1.0, 1.0]},
    "NaN": {"obs_0": [np.nan] * 5},
    "binary": {"obs_0": [b"\xff"] * 5},
    "no rows": {
        name: pa.array([], pa.float64()) for name in ("obs_0", "action", "reward", "terminated")
    },
    "an action out of bounds": {"action": [9.0] * 5},
}


def minari(**changes: Any) -> Make:
    """A data set whose metadata or file is changed; None leaves one out."""

    def make(folder: Path) -> None:
        batch = bcq.Dataset.from_columns(
            bcq.collect_random("Pendulum-v1", transitions=30).columns()
        )
        path = folder.with_name("good-v0")
        bcq.save(batch, path)
        shutil.move(path, folder)
        metadata = folder / "data" / "metadata.json"
        content = json.loads(metadata.read_text())
        for name, value in changes.items():
            content[name] = value
            if value is None:
                del content[name]
        metadata.write_text(json.dumps(content))

    return make


def minari_file(name: str, damage: Make) -> Make:
    def make(folder: Path) -> None:
        minari()(folder)
        (folder / "data" / name).unlink()
        damage(folder / "data" / name)

    return make


def minari_group(change: Callable[[h5py.File], object]) -> Make:
    def make(folder: Path) -> None:
        minari()(folder)
        with h5py.File(folder / "data" / "main_data.hdf5", "a") as file:
            change(file)

    return make


MINARIS: dict[str, Make] = {
    "images": minari(observation_space=json.dumps({"type": "Box", "shape": [4, 4, 3]})),
    "discrete": minari(action_space=json.dumps({"type": "Discrete", "n": 3})),
    "a space that is no JSON": minari(action_space="{"),
    "a space that is a number": minari(action_space=3),
    "a space without a type": minari(action_space="{}"),
    "arrow": minari(data_format="arrow"),
    "a specification without a name": minari(env_spec="{}", bcq=None),
    "a specification that is no JSON": minari(env_spec="{", bcq=None),
    **{f"metadata: {name}": minari_file("metadata.json", make) for name, make in NO_FILES.items()},
    **{f"data: {name}": minari_file("main_data.hdf5", make) for name, make in NO_FILES.items()},
    "metadata is a list": minari_file("metadata.json", of_bytes(b"[]")),
    "metadata nested too deep": minari_file("metadata.json", of_bytes(b"[" * 100_000)),
    "no episode 0": minari_group(lambda file: file.move("episode_0", "episode_x")),
    "no observations": minari_group(lambda file: file.__delitem__("episode_0/observations")),
    "rewards are a group": minari_group(
        lambda file: (file.__delitem__("episode_0/rewards"), file.create_group("episode_0/rewards"))
    ),
}

DATA: dict[str, dict[str, Make]] = {
    "batch.hdf5": {
        **{name: partial(hdf5, **changes) for name, changes in BAD_ARRAYS.items()},
        **NO_FILES,
        **{f"cut to {share:.0%}": cut(hdf5, share) for share in (0.1, 0.5, 0.9, 0.99)},
        "bounds of text": with_attribute("action_low", "low"),
        "one bound": with_attribute("action_low", [-1.0]),
        "a seed of text": with_attribute("seed", "seven"),
        "a name that is not UTF-8": with_attribute("environment", np.bytes_(b"\xff\xfe")),
        "text": lambda path: hdf5(path, rewards=["one"] * ROWS),
        "a group": lambda path: hdf5(path, rewards=None, **{"rewards/inner": np.zeros(ROWS)}),
        "a single value": lambda path: hdf5(path, rewards=1.0),
    },
    "batch.npz": {
        **{name: partial(npz, **BAD_ARRAYS[name]) for name in list(BAD_ARRAYS)[::3]},
        **NO_FILES,
        **{f"cut to {share:.0%}": cut(npz, share) for share in (0.1, 0.5, 0.9, 0.99)},
        "objects": lambda path: npz(path, rewards=np.array([{}] * ROWS)),
        "text": lambda path: npz(path, rewards=np.array(["one"] * ROWS)),
        "dones": lambda path: npz(path, terminals=None, dones=np.zeros(ROWS)),
    },
    "batch.csv": {
        **{name: csv(text) for name, text in CSVS.items()},
        **NO_FILES,
    },
    "batch.parquet": {
        **{name: partial(parquet, **changes) for name, changes in PARQUETS.items()},
        **NO_FILES,
        **{f"cut to {share:.0%}": cut(parquet, share) for share in (0.1, 0.5, 0.9, 0.99)},
    },
    "bad-v0": MINARIS,
    "batch.pkl": {"a pickle": of_bytes(b"\x80\x04N.")},
    "batch": {"no suffix": of_bytes(b"")},
}


def at(name: str, make: Make) -> Make:
    """The same in a file of that name in a folder."""
    return lambda folder: make(folder / name)


def data_cases() -> Iterator[Case]:
    """Each bad file with one verb in turn, so that all verbs see all kinds."""
    files = [(name, *damage) for name, damages in DATA.items() for damage in damages.items()]
    for number, (name, words, make) in enumerate(files):
        commands = (
            ("inspect", name),
            ("convert", name, "new.hdf5"),
            ("train", "bc", "--data", name, "--out", "run", *TINY),
        )
        yield f"{name}: {words}", at(name, make), commands[number % 3]


def in_run(name: str, damage: Make) -> Make:
    """The good run, with one of its files replaced."""

    def make(folder: Path) -> None:
        path = folder / "run" / name
        if path.exists():
            path.unlink()
        damage(path)

    return make


def config(place: str, value: Any) -> Make:
    """The good run with one item of its settings changed, or without it (...)."""

    def make(folder: Path) -> None:
        path = folder / "run" / "config.json"
        content = json.loads(path.read_text())
        *parts, last = place.split(".")
        inner = content
        for part in parts:
            inner = inner[part]
        inner[last] = value
        if value is ...:
            del inner[last]
        path.write_text(json.dumps(content))

    return make


WRONG: tuple[Any, ...] = (None, 7, "text", [], {}, [[]], True)
CONFIGS: dict[str, tuple[Any, ...]] = {
    "format": (2, "1", ..., None, []),
    "algorithm": (*(value for value in WRONG), "sarsa", ...),
    "settings": (None, 7, "text", [], ..., {"unknown": 1}),
    "settings.hidden_sizes": (None, 7, "text", {}, [[]], [-1], ["8"], [10**30], [9]),
    "settings.batch_size": ("text", None, [], 0, -1),
    "settings.learning_rate": ("text", None, -1, []),
    "schedule": (None, 7, "text", [], {}, ...),
    "schedule.env": (7, [], {}, ..., "no such", "Nowhere-v0", "os:Pendulum-v1"),
    "dataset": (None, 7, "text", [], {}, ...),
    "dataset.environment": (7, [], {}, ...),
    "task": (*WRONG, ...),
    "task.observation_size": (None, "3", [], {}, -3, 0, 2.5, 4, 10**20, ...),
    "task.action_low": (
        None,
        "low",
        {},
        [],
        [[1], [2, 3]],
        [1, 2],
        ["a"],
        [float("nan")],
        [9],
        ...,
    ),
    "task.action_high": (None, "high", {}, [], [1, 2], [float("inf")], [-9], ...),
}
POINTERS: dict[str, object] = {
    "no step": {"file": "step-100.safetensors", "sha256": "0"},
    "a step of text": {"step": "100", "file": "step-100.safetensors", "sha256": "0"},
    "no file": {"step": 100, "sha256": "0"},
    "another file": {"step": 100, "file": "config.json", "sha256": "0"},
    "a way out": {"step": 100, "file": "../../etc/passwd", "sha256": "0"},
    "a wrong sum": {"step": 100, "file": "step-100.safetensors", "sha256": "0"},
    "a list": [1],
    "a number": 3,
    "nothing": None,
}
LOG_LINES = {
    "not UTF-8": b"\xff\xfe\n",
    "no JSON": b"{\n",
    "a list": b"[1]\n",
    "a number": b"7\n",
    "no step": b'{"return": 1}\n',
    "a step of text": b'{"step": "1", "return": 1}\n',
    "nested too deep": b"[" * 100_000 + b"\n",
}


EVALUATE = ("evaluate", "run", "--episodes", "1")
RESUME = (
    *("train", "bc", "--data", "good.hdf5", "--out", "run", "--resume", *TINY),
    *("--env", "Pendulum-v1", "--evaluate-episodes", "1"),
)
EXPERT = ("collect", "imitation", "--env", "Pendulum-v1", "--policy", "run", "--out", "a.hdf5")
USES = (EVALUATE, RESUME, EXPERT)
NEW = ("absent", "link to nothing", "link to itself")  # as if the run had not begun


def settings_cases() -> Iterator[Case]:
    changes = [(place, value) for place, values in CONFIGS.items() for value in values]
    for number, (place, value) in enumerate(changes):
        # Only an evaluation asks a run where it belongs.
        command = EVALUATE if place.endswith((".env", ".environment")) else USES[number % 3]
        yield f"config.json: {place} = {value!r}", config(place, value), command


def checkpoint_cases() -> Iterator[Case]:
    for name, content in POINTERS.items():
        damage = of_bytes(json.dumps(content).encode())
        for command in USES:
            yield f"checkpoint.json: {name}", in_run("checkpoint.json", damage), command
    for file in ("config.json", "checkpoint.json", "step-100.safetensors"):
        for name, damage in NO_FILES.items():
            for command in USES[::2] if name in NEW else USES:
                yield f"{file}: {name}", in_run(file, damage), command


def log_cases() -> Iterator[Case]:
    for log in ("metrics.jsonl", "episodes.jsonl", "timing.jsonl"):
        for name, line in LOG_LINES.items():
            yield f"{log}: {name}", in_run(log, of_bytes(line)), RESUME
        for name in ("folder", "pipe", "socket", "device without end"):
            yield f"{log}: {name}", in_run(log, NO_FILES[name]), RESUME
    for name in ("folder", "pipe", "socket"):
        yield f".lock: {name}", in_run(".lock", NO_FILES[name]), RESUME


NUMBERS = ("-1", "nan", "1.5", "text", "", "1e3", "0x10", "99999999999999999999")
OPTIONS: tuple[tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]], ...] = (
    (("train", "bc", "--data", "good.hdf5", "--out", "new"), ("--steps", "--seed"), NUMBERS),
    (
        ("train", "bcq", "--data", "good.hdf5", "--out", "new"),
        ("--batch-size", "--num-samples", "--evaluate-every", "--checkpoint-every"),
        ("-1", "0", "nan", "text", ""),
    ),
    (
        ("train", "bcq", "--data", "good.hdf5", "--out", "new"),
        ("--discount", "--min-weight", "--learning-rate", "--target-rate"),
        ("-1", "nan", "inf", "text", ""),
    ),
    (("evaluate", "run"), ("--episodes", "--seed"), ("-1", "nan", "text", "", "1.5")),
    (("theory", "--out", "new"), ("--seed",), ("-1", "nan", "text", "99999999999")),
    (
        ("collect", "random", "--env", "Pendulum-v1", "--out", "new.hdf5"),
        ("--transitions", "--seed"),
        ("-1", "nan", "text", "1.5"),
    ),
    (
        ("collect", "imperfect", "--env", "Hopper-v5", "--out", "new.hdf5"),
        ("--noise", "--random-probability", "--policy"),
        ("-1", "nan", "text"),
    ),
    (
        ("experts", "train", "--env", "Pendulum-v1", "--out", "new"),
        ("--seeds", "--keep", "--steps"),
        ("-1", "0..", "..", "a,b", "", "5..1", "0,0", "nan"),
    ),
    (("inspect", "good.hdf5"), ("--action-margin",), ("-1", "nan", "inf", "text")),
    (("inspect", "good.hdf5"), ("--columns",), ("a", "a=b", "=", "missing.json", "good.hdf5")),
    (
        ("convert", "good.hdf5"),
        ("new.txt", "new", "good.hdf5", "run", "minari:.."),
        ("",),
    ),
    (("reproduce", "--out", "new", "--dry-run"), ("--preset", "--env"), ("none", "", "Nowhere-v0")),
    (("reproduce", "--check"), ("--out",), ("absent", "run", "good.hdf5")),
    (("demo", "pendulum", "--out", "new"), ("--steps", "--seed"), ("-1", "0.5", "text")),
    (("demo", "cheetah", "--out", "good.hdf5"), ("--steps",), ("100",)),
    (("inspect", "--picture"), ("/dev/null", "run", "absent/x.png"), ("good.hdf5",)),
    ((), ("fly", "--fly", "train", "collect", "demo", "experts", "--version"), ("extra",)),
    (
        ("evaluate",),
        ("absent", "good.hdf5", "", "x" * 5_000, "two\nlines", "\udcff", "--"),
        (),
    ),
    (
        ("inspect",),
        ("absent.csv", "", "x" * 5_000 + ".csv", "two\nlines.csv", "\udcff.csv", "~"),
        (),
    ),
)


def option_cases() -> Iterator[Case]:
    for command, options, values in OPTIONS:
        for option in options:
            for value in values or (None,):
                if option in ("--seed",) and value == "0":
                    continue
                words = [option] if value is None else [option, value]
                if command == ("convert", "good.hdf5"):
                    words = [option]
                yield " ".join((*command, *words))[:70], lambda folder: None, (*command, *words)


CASES = [
    *data_cases(),
    *settings_cases(),
    *checkpoint_cases(),
    *log_cases(),
    *option_cases(),
]
COUNT = 640  # distinct cases, so that none is lost unnoticed


def test_there_are_as_many_cases_as_ever() -> None:
    assert len(CASES) == COUNT


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory, own_compilation_cache: None) -> Path:
    """A batch and a run that nothing is wrong with."""
    folder = tmp_path_factory.mktemp("good")
    bcq.save(bcq.collect_random("Pendulum-v1", transitions=40), folder / "good.hdf5")
    data = ("--data", str(folder / "good.hdf5"), "--env", "Pendulum-v1", "--evaluate-episodes", "1")
    main(["train", "bc", *data, "--out", str(folder / "run"), *TINY])
    return folder


@pytest.fixture(autouse=True)
def patience() -> Iterator[None]:
    """A hang is a failure."""

    def give_up(*_: object) -> None:
        raise RuntimeError("nothing happened in half a minute")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(30)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def tree(folder: Path) -> dict[str, bytes | None]:
    """Every regular file with its content, everything else by name."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        if path.is_file() and not path.is_symlink()
        else None
        for path in folder.rglob("*")
    }


@pytest.mark.parametrize(("words", "make", "command"), CASES, ids=range(len(CASES)))
def test_a_bad_input_is_refused_in_one_line(
    words: str,
    make: Make,
    command: tuple[str, ...],
    good: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    shutil.copytree(good, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    make(tmp_path)
    before = tree(tmp_path)
    with pytest.raises(SystemExit) as caught:
        main(list(command))
    said = capsys.readouterr().err
    if caught.value.code == 2:  # the parser's own words, in a box
        assert "Traceback" not in said
    else:
        assert isinstance(caught.value.code, str), words
        assert caught.value.code.startswith("bcq: ")
        assert "\n" not in caught.value.code
        assert len(caught.value.code) < 6_000
    after = tree(tmp_path)
    assert {name: after.get(name) for name in before} == before
    assert not [name for name in after.keys() - before.keys() if name.endswith(".tmp")]
    assert not after.keys() & {"new.hdf5", "new-v1", "a.hdf5"} - before.keys()


# What only a run of its own brings to light


class Failing(gymnasium.Env[Any, Any]):
    """An environment that fails in one way or another."""

    observation_space = gymnasium.spaces.Box(-1, 1, (3,), np.float32)
    action_space = gymnasium.spaces.Box(-2, 2, (1,), np.float32)

    def __init__(self, way: str):
        if way == "init":
            raise OSError("no licence\nfor this machine")
        self.way = way

    def reset(self, **_: Any) -> Any:
        if self.way == "reset":
            raise KeyError("world")
        return np.full(2 if self.way == "shape" else 3, 0, np.float32), {}

    def step(self, action: Any) -> Any:
        if self.way == "step":
            raise ZeroDivisionError("no\nfriction")
        if self.way == "four":
            return np.zeros(3, np.float32), 0.0, False, {}
        reward = np.nan if self.way == "reward" else 0.0
        seen = np.full(3, np.nan if self.way == "nan" else 0, np.float32)
        return seen, reward, False, False, {}


@pytest.mark.parametrize(
    ("way", "words"),
    [
        ("init", "cannot be created: OSError: no licence for this machine"),
        ("reset", "reset failed: KeyError: 'world'"),
        ("shape", "reset returned an observation of float32 and shape (2,), not (3,)"),
        ("step", "step failed: ZeroDivisionError: no friction"),
        ("four", "step failed: ValueError: not enough values to unpack"),
        ("nan", "step returned a non-finite observation"),
        ("reward", "step returned a reward of nan"),
    ],
)
@pytest.mark.parametrize(
    "command",
    [
        ("evaluate", "run", "--env", "Failing-v0", "--episodes", "1"),
        ("collect", "random", "--env", "Failing-v0", "--out", "new.hdf5", "--transitions", "5"),
        ("collect", "concurrent", "--env", "Failing-v0", "--out", "new.hdf5", "--transitions", "5"),
    ],
)
def test_an_environment_that_fails_is_named(
    way: str,
    words: str,
    command: tuple[str, ...],
    good: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shutil.copytree(good, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    spec = EnvSpec("Failing-v0", lambda **_: Failing(way), disable_env_checker=True)
    monkeypatch.setitem(gymnasium.registry, "Failing-v0", spec)
    with pytest.raises(SystemExit) as caught:
        main(list(command))
    assert str(caught.value.code).startswith(f"bcq: environment Failing-v0: {words}")
    assert "\n" not in str(caught.value.code)


def test_what_memory_cannot_hold_is_named(good: Path, tmp_path: Path) -> None:
    batch = ("--data", str(good / "good.hdf5"), "--out", str(tmp_path / "run"))
    with pytest.raises(SystemExit) as caught:
        main(["train", "bc", *batch, "--batch-size", str(2**31 - 1)])
    message = str(caught.value.code)
    assert message.startswith("bcq: out of memory: reduce --batch-size 2147483647 (")
    assert "\n" not in message
