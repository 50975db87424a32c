"""Ctrl-C and SIGTERM: answered at once, what is under way finished and saved, exit 130 or 143."""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

import h5py
import numpy as np
import pytest

import bcq
from bcq.collection.behaviour import train_behaviour
from bcq.collection.recipes import collect_to, random_batch
from bcq.runs.schedules import BehaviourSchedule
from bcq.system import interruption
from bcq.system.errors import InterruptionError
from kill_and_resume import PATIENCE, SETTINGS, Workshop, differing, rows_logged
from short_task import AGENT, NAME, STEPS, registered

STOPPING = "bcq: stopping after the current unit of work; interrupt again to stop immediately"
INTERRUPT, TERMINATE = signal.SIGINT, signal.SIGTERM


@pytest.fixture(autouse=True, scope="module")
def not_ignored() -> Iterator[None]:
    """A child ignores what its parent does; tests that run in the background ignore Ctrl-C."""
    before = signal.signal(INTERRUPT, signal.default_int_handler)
    yield
    signal.signal(INTERRUPT, before)


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    workshop = Workshop(tmp_path_factory.mktemp("interruption"))
    workshop.prepare()
    return workshop


class Command:
    """`bcq` in a process of its own, in a folder; or a script that calls it with small numbers."""

    def __init__(self, folder: Path, *arguments: str | Path, script: str | None = None):
        program = ["-m", "bcq"] if script is None else ["-c", script]
        self.process = subprocess.Popen(
            [sys.executable, *program, *map(str, arguments)],
            cwd=folder,
            env=os.environ | {"XDG_CACHE_HOME": str(folder / "cache")},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def when(self, ready: Callable[[], object]) -> None:
        """Waits for something to be true."""
        begun = time.monotonic()
        while not ready():
            assert self.process.poll() is None, self.process.communicate()
            assert time.monotonic() - begun < PATIENCE
            time.sleep(0.01)

    def send(self, *numbers: int) -> list[str]:
        """Sends signals, half a second apart; the lines on stderr, none of them a traceback."""
        try:
            for i, number in enumerate(numbers):
                time.sleep(0.5 * (i > 0))
                self.process.send_signal(number)
            _, lines = self.process.communicate(timeout=PATIENCE)
        finally:
            self.process.kill()
        assert self.process.returncode == 128 + numbers[0], lines
        assert "Traceback" not in lines
        return lines.splitlines()


def files(folder: Path) -> set[str]:
    """What lies in a folder, but for compiled code."""
    return {path.name for path in folder.iterdir()} - {"cache"}


# Training


def test_nothing_heavy_is_imported_before_signals_are_watched() -> None:
    code = "import sys, bcq.__main__; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert not {"numpy", "jax", "h5py", "mujoco"} & set(loaded.stdout.split())


def is_watching(process: int) -> bool:
    """Whether a process catches SIGTERM, which Python by itself does not."""
    status = Path(f"/proc/{process}/status").read_text()
    caught = next(line for line in status.splitlines() if line.startswith("SigCgt"))
    return bool(int(caught.split()[1], 16) >> (TERMINATE - 1) & 1)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lists the signals of a process")
@pytest.mark.parametrize("seconds", [0.0, 0.5, 1.2])
def test_the_first_second_is_watched(workshop: Workshop, seconds: float) -> None:
    command = Command(workshop.folder, "train", "bcq", "--data", "batch.hdf5", "--out", "early")
    command.when(lambda: is_watching(command.process.pid))
    time.sleep(seconds)
    said = "nothing was saved; run the same command to start again"
    told = command.send(INTERRUPT)
    if (workshop.folder / "early").exists():  # a fast machine has begun by then
        said = "early has no update yet; run the same command with --resume to continue"
        assert seconds > 1
    assert told == [STOPPING, f"bcq: stopped; {said}"]


def test_training_saves_and_goes_on_as_if_nothing_had_been(workshop: Workshop) -> None:
    run = workshop.folder / "run"
    options = (*SETTINGS, "--data", "batch.hdf5", "--out", run)
    for number, rows, resume, again in (
        (INTERRUPT, 1, (), "the same command with --resume"),
        (TERMINATE, 5, ("--resume",), "the same command"),
    ):
        command = Command(workshop.folder, "train", "bcq", *options, *resume)
        command.when(lambda rows=rows: rows_logged(run) >= rows)  # type: ignore[misc]
        lines = command.send(number)
        step = bcq.Run.open(run).checkpoint_step()
        assert step is not None
        assert step == 100 * rows_logged(run) < 1500
        assert STOPPING in lines[-3:]  # a line of progress may come after it
        saved = f"update {step:,} of 1,500 is saved in {run}"
        assert lines[-1] == f"bcq: stopped; {saved}; run {again} to continue"
    with workshop.training(run, "cache", "--resume") as process:
        workshop.finish(process, run)
    assert differing(workshop.reference, run) == []


def test_before_the_first_update_nothing_is_promised(workshop: Workshop) -> None:
    run = workshop.folder / "first"
    options = (*SETTINGS, "--data", "batch.hdf5", "--out", run, "--evaluate-episodes=100")
    command = Command(workshop.folder, "train", "bcq", *options)
    command.when((run / "config.json").exists)
    assert command.send(INTERRUPT)[-1] == (
        f"bcq: stopped; {run} has no update yet; run the same command with --resume to continue"
    )
    assert files(run) == {"config.json", ".lock", "episodes.jsonl"}


def test_a_second_signal_stops_at_once(workshop: Workshop) -> None:
    run = workshop.folder / "twice"
    options = ("--steps=100000", "--data", "batch.hdf5", "--out", run)  # a chunk takes seconds
    command = Command(workshop.folder, "train", "bcq", *options)
    command.when((run / "config.json").exists)
    time.sleep(1)
    begun = time.monotonic()
    lines = command.send(INTERRUPT, INTERRUPT)
    assert time.monotonic() - begun < 4
    assert lines[0] == STOPPING
    assert "bcq: stopped immediately; everything saved before is kept" in lines


def test_a_log_that_nobody_reads_any_more_costs_no_checkpoint(workshop: Workshop) -> None:
    run = workshop.folder / "unread"  # as with `bcq train ... 2>&1 | tee`, which Ctrl-C ends first
    command = Command(workshop.folder, "train", "bcq", *SETTINGS, "--data=batch.hdf5", "--out", run)
    command.when(lambda: rows_logged(run) >= 1)
    for stream in (command.process.stdout, command.process.stderr):
        assert stream is not None
        stream.close()
    command.process.send_signal(INTERRUPT)
    assert command.process.wait(PATIENCE) == 130
    assert bcq.Run.open(run).checkpoint_step() == 100 * rows_logged(run)


# Everything else


def test_a_conversion_leaves_nothing(tmp_path: Path) -> None:
    rows = 400_000
    with h5py.File(tmp_path / "batch.hdf5", "w") as file:
        generator = np.random.default_rng(0)
        for name in ("observations", "next_observations"):
            file[name] = generator.normal(size=(rows, 10)).astype(np.float32)
        file["actions"] = generator.uniform(-1, 1, (rows, 5)).astype(np.float32)
        file["rewards"], file["terminals"] = np.zeros((2, rows), np.float32)
    command = Command(tmp_path, "convert", "batch.hdf5", "new.hdf5")
    command.when(lambda: list(tmp_path.glob(".new.hdf5.*.tmp")))
    assert command.send(INTERRUPT) == [
        STOPPING,
        "bcq: stopped; nothing was saved; run the same command to start again",
    ]
    assert files(tmp_path) == {"batch.hdf5"}


def test_collecting_goes_on_where_it_was(tmp_path: Path) -> None:
    options = ("--env", "Pendulum-v1", "--transitions", "40000", "--seed", "3")
    command = Command(tmp_path, "collect", "random", *options, "--out", "new.hdf5")
    command.when((tmp_path / "new.hdf5.partial" / "progress.json").exists)
    line = command.send(TERMINATE)[-1]
    assert line.startswith("bcq: stopped; ")
    assert (
        " of 40,000 transitions are kept in new.hdf5.partial; run the same command to continue"
        in line
    )
    recipe = random_batch("Pendulum-v1", transitions=40_000, seed=3)
    collect_to(tmp_path / "new.hdf5", recipe)
    collect_to(tmp_path / "other.hdf5", recipe)
    new, other = (bcq.load(tmp_path / name).fingerprint for name in ("new.hdf5", "other.hdf5"))
    assert new == other
    assert files(tmp_path) == {"new.hdf5", "other.hdf5"}


def test_an_evaluation_stops_between_steps(workshop: Workshop) -> None:
    command = Command(workshop.folder, "evaluate", workshop.reference, "--episodes", "3000")
    time.sleep(6)
    assert command.send(INTERRUPT) == [
        STOPPING,
        "bcq: stopped; nothing was saved; run the same command to start again",
    ]


def test_the_theory_stops_between_cases(tmp_path: Path) -> None:
    command = Command(tmp_path, "theory", "--out", "theory")
    command.when((tmp_path / "theory").exists)
    assert command.send(INTERRUPT)[0] == STOPPING
    assert list((tmp_path / "theory").iterdir()) == []


TWO_LONG_JOBS = """
from dataclasses import replace
from bcq.algorithms import BCConfig, VAEBCConfig
from bcq.cli.application import main
from bcq.paper import figure_9_random_behaviour as figure_9, presets
smoke = presets.PRESETS["smoke"]
plan = replace(smoke.plans["random"][0], updates=1_000_000, evaluate_every=1_000_000)
presets.PRESETS["smoke"] = replace(smoke, plans={"random": [plan]})
figure_9.ALGORITHMS = BCConfig(hidden_sizes=(8,)), VAEBCConfig(vae_hidden_sizes=(8,))
main()
"""


def test_a_reproduction_stops_its_workers_and_they_save(tmp_path: Path) -> None:
    words = ("reproduce", "random", "--preset", "smoke", "--out", "out")
    command = Command(tmp_path, *words, script=TWO_LONG_JOBS)
    command.when(lambda: len(list(tmp_path.glob("out/jobs/*/*/*/metrics.jsonl"))) == 2)
    line = command.send(INTERRUPT)[-1]
    assert (
        " jobs are done, running jobs keep what they saved; run the same command to continue"
        in line
    )
    for log in tmp_path.glob("out/jobs/*/*/*/metrics.jsonl"):
        run = bcq.Run.open(log.parent)
        assert run.checkpoint_step() == run.read("metrics.jsonl")[-1]["step"]


# The agent that learns online can stop where an episode ends


@pytest.fixture
def stop_after(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Ctrl-C, as seen at the so-manieth look and from then on."""

    def stop(looks: int) -> None:
        left = iter(range(looks))
        monkeypatch.setattr(interruption, "requested", lambda: next(left, None) is None)

    return stop


def test_an_agent_stopped_after_any_episode_goes_on_as_if_it_had_not_been(
    tmp_path: Path, stop_after: Callable[[int], None]
) -> None:
    schedule = BehaviourSchedule(
        env=NAME, steps=STEPS, seed=4, random_steps=30, evaluate_every=100, evaluate_episodes=1
    )
    with registered():
        whole = train_behaviour(tmp_path / "whole", AGENT, schedule)
        episodes = len(whole.read("timing.jsonl"))
        for looks in (0, 7, episodes - 2, episodes - 1, episodes):
            stop_after(looks)
            ends = nullcontext() if looks >= episodes else pytest.raises(InterruptionError)
            with ends as caught:
                train_behaviour(tmp_path / "part", AGENT, schedule)
            if isinstance(caught, pytest.ExceptionInfo):
                step = bcq.Run.open(tmp_path / "part").checkpoint_step()
                assert str(caught.value).startswith(f"step {step} of {STEPS} is saved in ")
            stop_after(10_000)
            train_behaviour(tmp_path / "part", AGENT, schedule, resume=True)
            assert differing(tmp_path / "whole", tmp_path / "part") == []
            shutil.rmtree(tmp_path / "part")


# Who watches


def test_a_library_leaves_signals_alone() -> None:
    code = "import signal, bcq; bcq.Run; print(signal.getsignal(signal.SIGINT).__name__)"
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert answer.stdout == "default_int_handler\n"


def test_watching_ends() -> None:
    before = [signal.getsignal(number) for number in interruption.SIGNALS]
    with interruption.watched(), interruption.watched():
        os.kill(os.getpid(), TERMINATE)
        assert interruption.requested()
        assert interruption.exit_code() == 143
        with interruption.deferred():
            interruption.check()
        with pytest.raises(InterruptionError):
            interruption.check()
    assert not interruption.requested()
    assert [signal.getsignal(number) for number in interruption.SIGNALS] == before


def test_a_thread_leaves_signals_to_the_main_one() -> None:
    before, seen = signal.getsignal(TERMINATE), list[object]()

    def work() -> None:
        with interruption.watched():
            seen.append(signal.getsignal(TERMINATE))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [before]


def test_a_signal_that_was_ignored_stays_ignored_and_the_other_is_watched() -> None:
    before = signal.signal(TERMINATE, signal.SIG_IGN)
    try:
        with interruption.watched():
            assert signal.getsignal(TERMINATE) == signal.SIG_IGN
            assert signal.getsignal(INTERRUPT) is interruption.on_signal
        assert signal.getsignal(TERMINATE) == signal.SIG_IGN
    finally:
        signal.signal(TERMINATE, before)


def test_watching_leaves_no_thread_and_no_wakeup_behind() -> None:
    before = set(threading.enumerate())
    with interruption.watched():
        (thread,) = set(threading.enumerate()) - before
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert signal.set_wakeup_fd(-1) == -1
