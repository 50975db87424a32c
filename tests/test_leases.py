"""Leases: one process at a time works on a job, and one result is published, whatever happens."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bcq.experiments import leases, storage
from bcq.experiments.jobs import Job, directory_name, is_finished
from bcq.experiments.kinds import Batch
from bcq.experiments.leases import FolderPlace, Lease, Place, ReplacedError, acquire, entry, me
from bcq.experiments.storage import SharedFolder, workplace
from bcq.experiments.worker import work
from bcq.system import interruption
from bcq.system.errors import InputError, InterruptionError
from bcq.system.files import Row, write_json

PATIENCE = 60.0


@dataclass(frozen=True)
class Count:
    """A job that counts to its length, keeps what it counted, and can be stopped there."""

    name: str
    needs: Sequence[Job] = ()
    length: int = 3

    def as_json(self) -> Row:
        return {"name": self.name, "needs": [need.as_json() for need in self.needs]}

    def perform(self, folder: Path) -> None:
        for need in self.needs:
            assert (folder / directory_name(need) / "counted.txt").exists()
        path = folder / directory_name(self) / "counted.txt"
        counted = path.read_text() if path.exists() else ""
        for number in range(len(counted), self.length):
            interruption.check()
            with path.open("a") as file:
                file.write(str(number % 10))


A = Count("a")
B = Count("b", (A,))


def entries(folder: Path, job: Job) -> list[Row]:
    found = (folder / directory_name(job)).glob("lease-*.json")
    return [json.loads(path.read_text()) for path in sorted(found)]


def test_a_result_is_published_once_and_is_where_it_always_was(tmp_path: Path) -> None:
    store = SharedFolder(tmp_path)
    work(A, store)
    work(B, store)
    work(B, store)
    directory = tmp_path / directory_name(B)
    assert (directory / "counted.txt").read_text() == "012"
    assert is_finished(B, tmp_path)
    assert [set(one) & {"done", "pid"} for one in entries(tmp_path, B)] == [{"pid"}, {"done"}]
    assert {path.name for path in directory.iterdir()} == {
        *("counted.txt", "done.json", "job.json"),
        *("lease-1.json", "lease-2.json", "beat-1.json"),
    }


# A place for leases keeps its promises.


def test_a_file_is_created_once_and_seen_whole(tmp_path: Path) -> None:
    place = FolderPlace(tmp_path / "new")
    assert place.names() == []
    assert place.read("x") is None
    assert place.create("x", {"a": 1})
    assert not place.create("x", {"a": 2})
    assert place.read("x") == {"a": 1}
    place.replace("x", {"a": 3})
    assert place.read("x") == {"a": 3}
    assert place.names() == ["x"]


def test_a_file_system_without_hard_links_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(InputError, match="no hard links"):
        FolderPlace(tmp_path).create("x", {})
    assert list(tmp_path.iterdir()) == []


class Deaf(FolderPlace):
    """A place whose answer to a first request is lost, so that the request is repeated."""

    def create(self, name: str, content: Row) -> bool:
        super().create(name, content)
        return super().create(name, content)


def test_a_lost_answer_is_not_a_lost_lease(tmp_path: Path) -> None:
    lease = acquire(Deaf(tmp_path))
    assert isinstance(lease, Lease)
    assert lease.number == 1
    assert lease.publish({})["done"] == 1


# Who is gone, and who is not.


def held(place: Place, **other: Any) -> Lease:
    claim = {**me(), **other}
    assert place.create(entry(1), claim)
    return Lease(place, 1, claim, after=True)


@dataclass
class Clock:
    """Time that passes when somebody sleeps."""

    now: float = 0.0
    then: Callable[[float], None] = field(default=lambda now: None)

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.then(self.now)


def taken(place: Place, clock: Clock) -> Lease:
    lease = acquire(place, lease=10.0, clock=clock, sleep=clock.sleep)
    assert isinstance(lease, Lease)
    return lease


def test_a_lease_is_taken_over_when_nothing_was_heard_for_its_time(tmp_path: Path) -> None:
    place, clock = FolderPlace(tmp_path), Clock()
    first = held(place, machine="elsewhere")
    first.beat()
    second = taken(place, clock)
    assert (second.number, second.after) == (2, False)
    assert 10.0 < clock.now <= 12.0
    assert not first.held()
    assert second.held()
    with pytest.raises(ReplacedError, match="nothing was published here"):
        first.publish({})
    assert second.publish({})["done"] == 2


def test_a_process_that_beats_keeps_its_lease(tmp_path: Path) -> None:
    place = FolderPlace(tmp_path)
    first = held(place, machine="elsewhere")

    def beat(now: float) -> None:
        if now < 30:
            first.beat()

    clock = Clock(then=beat)
    taken(place, clock)
    assert 39 <= clock.now <= 42


@pytest.mark.parametrize("how", ["released", "dead", "another with its number"])
def test_nobody_waits_for_a_process_that_is_known_to_have_ended(tmp_path: Path, how: str) -> None:
    place, clock, ended = FolderPlace(tmp_path), Clock(), subprocess.Popen(["true"])
    ended.wait()
    others: dict[str, Row] = {
        "released": {"machine": "elsewhere"},
        "dead": {"pid": ended.pid},
        "another with its number": {"started": "long ago"},
    }
    first = held(place, **others[how])
    if how == "released":
        first.release()
    second = taken(place, clock)
    assert (second.number, second.after, clock.now) == (2, True, 0.0)


def test_a_process_of_this_machine_that_lives_is_waited_for(tmp_path: Path) -> None:
    place, clock = FolderPlace(tmp_path), Clock()
    held(place)
    assert not taken(place, clock).after
    assert clock.now > 10


def test_waiting_for_a_lease_can_be_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held(FolderPlace(tmp_path))
    monkeypatch.setattr(interruption, "arrived", [signal.SIGINT])
    with pytest.raises(InterruptionError):
        acquire(FolderPlace(tmp_path))


def test_a_process_that_has_ended_but_was_not_waited_for_is_gone() -> None:
    process = subprocess.Popen(["true"])
    deadline = time.monotonic() + PATIENCE
    while leases.started(process.pid) is not None and time.monotonic() < deadline:
        time.sleep(0.01)
    assert leases.started(process.pid) is None
    process.wait()
    assert leases.started(os.getpid()) not in (None, "unknown")


# What was done before is continued, and nobody writes into somebody else's folder.


def test_a_job_goes_on_where_another_process_was(tmp_path: Path) -> None:
    store, directory = SharedFolder(tmp_path), tmp_path / directory_name(A)
    for after in (True, False):
        first = held(store.place(A), machine="elsewhere")
        own = store.prepare(A, first) / directory.name
        (own / "counted.txt").write_text("xy")
        assert workplace(directory) == own
        second = Lease(store.place(A), 2, me(), after=after)
        new = store.prepare(A, second) / directory.name
        assert (new / "counted.txt").read_text() == "xy"
        with pytest.raises(FileNotFoundError):  # the first one may still try
            (own / "counted.txt").open("a")
        store.place(A).create(entry(2), second.claim)
        second.release()
        work(A, store)
        assert (directory / "counted.txt").read_text() == "xy2"
        for path in directory.iterdir():
            path.unlink()


def test_what_a_stopped_process_has_open_is_not_what_the_next_one_writes(tmp_path: Path) -> None:
    store, directory = SharedFolder(tmp_path), tmp_path / directory_name(A)
    own = store.prepare(A, held(store.place(A), machine="elsewhere")) / directory.name
    with (own / "counted.txt").open("w") as file:
        file.write("0")
        file.flush()
        new = store.prepare(A, Lease(store.place(A), 2, me(), after=False)) / directory.name
        file.write("after it was replaced")
    assert (new / "counted.txt").read_text() == "0"


def test_the_folder_of_a_process_without_lease_is_continued(tmp_path: Path) -> None:
    directory = tmp_path / directory_name(A)  # as software before leases left it
    directory.mkdir()
    (directory / "counted.txt").write_text("z")
    (directory / "step-1.safetensors").write_text("kept by nobody")
    (directory / "output.txt").write_text("said\n")
    own = SharedFolder(tmp_path).prepare(A, held(SharedFolder(tmp_path).place(A))) / directory.name
    assert {path.name for path in own.iterdir()} == {"counted.txt", "step-1.safetensors"}
    (own / "step-1.safetensors").unlink()
    (directory / "lease-1.json").unlink()
    for path in own.iterdir():
        path.unlink()
    own.rmdir()
    work(A, SharedFolder(tmp_path))
    assert (directory / "counted.txt").read_text() == "z12"
    assert (directory / "output.txt").read_text() == "said\n"


def test_a_copy_waits_for_a_checkpoint_that_is_being_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "x"
    source.mkdir()
    write_json(source / "checkpoint.json", {"step": 1})
    (source / "step-1").touch()
    calls = []
    copyfile = shutil.copyfile

    def slowly(old: Path, new: Path) -> None:
        calls.append(old.name)
        if len(calls) == 1:
            write_json(source / "checkpoint.json", {"step": 2})
            (source / "step-1").rename(source / "step-2")
        copyfile(old, new)

    monkeypatch.setattr(shutil, "copyfile", slowly)
    storage.copy(source, tmp_path / "y")
    assert json.loads((tmp_path / "y" / "checkpoint.json").read_text()) == {"step": 2}
    assert (tmp_path / "y" / "step-2").exists()
    assert not (tmp_path / "y" / "step-1").exists()


def test_whoever_finds_a_published_result_finishes_putting_it_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    move, moves = storage.move, list[str]()

    def fails_at(number: int) -> Callable[[Path, Path], None]:
        def moved(source: Path, target: Path) -> None:
            moves.append(target.name)
            if len(moves) == number:
                raise KeyboardInterrupt
            move(source, target)

        return moved

    for number in range(1, 4):
        moves.clear()
        folder = tmp_path / str(number)
        monkeypatch.setattr(storage, "move", fails_at(number))
        with pytest.raises(KeyboardInterrupt):
            work(A, SharedFolder(folder))
        assert not is_finished(A, folder)
        monkeypatch.setattr(storage, "move", move)
        work(A, SharedFolder(folder))
        assert is_finished(A, folder)
        assert (folder / directory_name(A) / "counted.txt").read_text() == "012"
        assert len(entries(folder, A)) == 2
    assert moves == ["counted.txt", "job.json", "done.json"]  # the mark of the end is last


# Every order of events, at random: a small model checker.


class Stopped(BaseException):
    """A process is killed."""


@dataclass
class World:
    """Processes that take turns at every access to the place, in an order drawn at random.

    A process can be killed or left without a turn for long. Time passes for all alike.
    """

    random: random.Random
    folder: Path
    now: float = 0.0
    turns: int = 0
    ready: dict[str, threading.Semaphore] = field(default_factory=dict)
    idle: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    ended: dict[str, str] = field(default_factory=dict)
    killed: set[str] = field(default_factory=set)

    def turn(self, name: str) -> None:
        """Called by a process: waits until it is its turn."""
        self.idle.release()
        self.ready[name].acquire()
        if name in self.killed:
            raise Stopped

    def spawn(self, name: str, body: Callable[[], str]) -> None:
        self.ready[name] = threading.Semaphore(0)

        def live() -> None:
            try:
                self.turn(name)
                self.ended[name] = body()
            except Stopped:
                self.ended[name] = "killed"
            except ReplacedError:
                self.ended[name] = "replaced"
            except Exception as error:  # seen by the test at its end
                self.ended[name] = repr(error)
            finally:
                self.idle.release()

        threading.Thread(target=live, daemon=True).start()
        self.idle.acquire()

    def run(self) -> None:
        """Gives turns until all have ended."""
        while alive := [name for name in self.ready if name not in self.ended]:
            self.turns += 1
            assert self.turns < 5_000, "nobody comes to an end"
            chosen = self.random.choice(alive)
            if self.random.random() < 0.05:  # it stands still, or all others do
                self.now += self.random.choice([3.0, 30.0])
            if len(alive) > 1 and self.random.random() < 0.01:
                self.killed.add(chosen)
            self.now += 0.1
            self.ready[chosen].release()
            self.idle.acquire()


@dataclass(frozen=True)
class Watched:
    """A place where every access waits for its turn."""

    inner: FolderPlace
    world: World
    name: str

    def create(self, name: str, content: Row) -> bool:
        self.world.turn(self.name)
        return self.inner.create(name, content)

    def replace(self, name: str, content: Row) -> None:
        self.world.turn(self.name)
        self.inner.replace(name, content)

    def read(self, name: str) -> Row | None:
        self.world.turn(self.name)
        return self.inner.read(name)

    def names(self) -> list[str]:
        self.world.turn(self.name)
        return self.inner.names()


def live(world: World, name: str, published: list[str]) -> str:
    """What a worker does, with its heartbeats in between: it counts, publishes and settles."""
    store, place = SharedFolder(world.folder), FolderPlace(world.folder / directory_name(A))
    watched = Watched(place, world, name)

    def sleep(seconds: float) -> None:
        until = world.now + seconds
        while world.now < until:
            world.turn(name)

    lease = acquire(watched, lease=10.0, clock=lambda: world.now, sleep=sleep)
    if not isinstance(lease, Lease):
        store.settle(A, lease)
        return "found"
    world.turn(name)
    private = store.prepare(A, lease)
    path = private / directory_name(A) / "counted.txt"
    while len(counted := path.read_text() if path.exists() else "") < 4:
        world.turn(name)
        if not path.parent.exists():
            raise ReplacedError  # a later process has cleaned up
        path.write_text(counted + str(len(counted)))
        if world.random.random() < 0.3:
            if not lease.held():
                raise ReplacedError
            lease.beat()
    (path.parent / "done.json").write_text(json.dumps(name))
    result = store.result(A, lease, private)
    end = lease.publish(result)
    published.append(name)
    world.turn(name)
    store.settle(A, end)
    return "published"


SCHEDULES = 80  # 3,000 were tried by hand


def test_two_processes_never_both_publish_in_any_order_of_events(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "machine", lambda: str(threading.get_ident()))  # all elsewhere
    seen = set[str]()
    for seed in range(SCHEDULES):
        world, published = World(random.Random(seed), tmp_path / str(seed)), list[str]()
        for name in ("x", "y", "z"):
            world.spawn(name, partial(live, world, name, published))
        world.run()
        assert len(published) <= 1, seed
        ends = [one for one in entries(world.folder, A) if "done" in one]
        assert len(ends) == len(published), seed
        directory = world.folder / directory_name(A)
        if {"published", "found"} & set(world.ended.values()):
            # whoever was not killed saw to it that the result is in place, and whole
            assert (directory / "counted.txt").read_text() == "0123", seed
            assert json.loads((directory / "done.json").read_text()) == published[0], seed
        seen |= set(world.ended.values())
    assert seen == {"published", "found", "killed", "replaced"}


# Real processes.

WORKER = """
import sys
from bcq.experiments import leases, worker
worker.work.__kwdefaults__["lease"] = 1.0
worker.main()
"""


def start(folder: Path, job: Job) -> "subprocess.Popen[str]":
    directory = folder / directory_name(job)
    directory.mkdir(parents=True, exist_ok=True)
    write_json(directory / "job.json", job.as_json())
    words = [sys.executable, "-c", WORKER, str(folder), directory.name]
    return subprocess.Popen(words, stderr=subprocess.PIPE, text=True)


@pytest.fixture
def processes() -> Iterator[list["subprocess.Popen[str]"]]:
    started: list[subprocess.Popen[str]] = []
    yield started
    for process in started:
        process.kill()
        process.communicate()


def test_a_process_that_was_stopped_for_long_notices_that_it_was_replaced(
    tmp_path: Path, processes: list["subprocess.Popen[str]"]
) -> None:
    job = Batch("random", "Pendulum-v1", 20_000, 0)
    directory = tmp_path / directory_name(job)
    notes = Path("batch.hdf5.partial", "progress.json")
    first = start(tmp_path, job)
    processes.append(first)
    deadline = time.monotonic() + PATIENCE
    while not (workplace(directory) / notes).exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    first.send_signal(signal.SIGSTOP)
    second = start(tmp_path, job)
    processes.append(second)
    assert second.wait(PATIENCE) == 0
    before = {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file()}
    assert json.loads((directory / "done.json").read_text())["threads"]
    first.send_signal(signal.SIGCONT)
    said = first.communicate(timeout=PATIENCE)[1]
    assert first.returncode == 1
    assert said.splitlines()[-1].startswith("bcq: replaced by another process")
    after = {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file()}
    del before["beat-1.json"], after["beat-1.json"]
    assert after == before
    assert [("done" in one) for one in entries(tmp_path, job)] == [False, False, True]
