"""The runner: order, failures, interruption, what it shows."""

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from bcq.experiments import board as boards
from bcq.experiments import runner, worker
from bcq.experiments.board import Board, Outcome, Running
from bcq.experiments.forms import steps_done
from bcq.experiments.jobs import Job, directory_name, is_finished
from bcq.experiments.kinds import Batch
from bcq.experiments.runner import LocalProcess, LocalProcesses, SharedCores, run_jobs
from bcq.experiments.storage import SharedFolder
from bcq.experiments.waiting import Waiting, kind
from bcq.experiments.worker import work
from bcq.system import interruption, progress
from bcq.system.errors import InterruptionError
from bcq.system.files import locked
from bcq.system.progress import duration


@dataclass(frozen=True)
class Step:
    """A job that takes no time."""

    name: str
    needs: Sequence[Job] = ()
    length: int = 1

    def as_json(self) -> dict[str, Any]:
        return {"name": self.name, "needs": [need.as_json() for need in self.needs]}

    def perform(self, folder: Path) -> None:
        for need in self.needs:
            assert is_finished(need, folder)


@dataclass
class Instant:
    """Ends at the second look; its work was done at the first."""

    ended: int
    looks: int = 0
    stopped: bool = False
    last_look: ClassVar[int] = 2

    def poll(self) -> int | None:
        self.looks += 1
        return self.ended if self.looks == self.last_look else None

    def stop(self) -> None:
        self.stopped = True


@dataclass
class InThisProcess:
    """An engine that does the work at once, and fails where it is told to."""

    slots: int = 2
    failing: Sequence[str] = ()
    interrupt_at: str | None = None
    started: list[str] = field(default_factory=list)
    processes: list[Instant] = field(default_factory=list)

    def start(self, job: Job, folder: Path, slot: int) -> Instant:
        self.started.append(job.name)
        assert slot < self.slots
        if job.name == self.interrupt_at:
            raise KeyboardInterrupt
        if job.name in self.failing:
            (folder / directory_name(job) / "output.txt").write_text("bcq: no luck\n")
            process = Instant(1)
        else:
            work(job, SharedFolder(folder))
            process = Instant(0)
        self.processes.append(process)
        return process


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "POLL", 0.0)
    monkeypatch.setattr(boards, "EVERY", 0.0)
    monkeypatch.setenv("COLUMNS", "120")


A = Step("a")
B = Step("b", (A,))
C = Step("c", (B,))
D = Step("d")


def run(jobs: Sequence[Job], folder: Path, engine: Any) -> tuple[Outcome, str]:
    screen = io.StringIO()
    outcome = run_jobs(jobs, folder, engine, screen=screen)
    return outcome, screen.getvalue()


def test_a_job_starts_when_what_it_needs_is_done(tmp_path: Path) -> None:
    engine = InThisProcess()
    outcome, _ = run([C, D], tmp_path, engine)
    assert sorted(job.name for job in outcome.done) == ["a", "b", "c", "d"]
    assert engine.started == ["a", "d", "b", "c"]  # d did not wait for b


def test_finished_jobs_are_not_repeated(tmp_path: Path) -> None:
    run([B], tmp_path, InThisProcess())
    engine = InThisProcess()
    outcome, _ = run([C], tmp_path, engine)
    assert engine.started == ["c"]
    assert len(outcome.done) == 3


def test_a_failure_is_reported_and_the_rest_go_on(tmp_path: Path) -> None:
    engine = InThisProcess(failing=["b"])
    outcome, printed = run([C, D], tmp_path, engine)
    assert [job.name for job in outcome.skipped] == ["c"]
    assert sorted(job.name for job in outcome.done) == ["a", "d"]
    assert outcome.failed == {directory_name(B): "bcq: no luck"}
    assert "FAILED  b: bcq: no luck" in printed
    again, _ = run([C, D], tmp_path, InThisProcess())
    assert len(again.done) == 4  # the same call tries again


def test_never_more_jobs_than_slots(tmp_path: Path) -> None:
    engine = InThisProcess(slots=1)
    outcome, _ = run([Step(str(i)) for i in range(5)], tmp_path, engine)
    assert engine.started == list("01234")
    assert [job.name for job in outcome.done] == list("01234")


def test_whatever_stops_the_runner_stops_what_it_started(tmp_path: Path) -> None:
    engine = InThisProcess(interrupt_at="d")
    with pytest.raises(KeyboardInterrupt):
        run_jobs([A, D], tmp_path, engine, screen=io.StringIO())
    assert [process.stopped for process in engine.processes] == [True]


def test_a_folder_is_worked_in_by_one_runner_at_a_time(tmp_path: Path) -> None:
    with locked(tmp_path), pytest.raises(Exception, match="another process"):
        run([A], tmp_path, InThisProcess())


class Terminal(io.StringIO):
    """A screen that can be drawn on."""

    def isatty(self) -> bool:
        return True


def test_the_board_says_what_runs_and_what_is_left(tmp_path: Path) -> None:
    screen = Terminal()
    run_jobs([C, D], tmp_path, InThisProcess(), screen=screen)
    text = screen.getvalue()
    assert "0 of 4 jobs done, 0 failed, 0 skipped; at least 0 s to go" in text
    assert "starting" in text
    assert text.endswith("\x1b[Jdone    c in 0 s\n")  # the moving part is gone


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds that pass only where a test says so."""
    now = [0.0]
    fake = SimpleNamespace(monotonic=lambda: now[0], sleep=lambda _: None)
    monkeypatch.setattr(runner, "time", fake)
    monkeypatch.setattr(boards, "time", fake)
    return now


def at_step(job: Job, step: int, folder: Path) -> None:
    (folder / directory_name(job)).mkdir(exist_ok=True)
    (folder / directory_name(job) / "metrics.jsonl").write_text(json.dumps({"step": step}) + "\n")


def test_a_jobs_time_is_told_by_its_own_speed_or_that_of_its_kind(
    tmp_path: Path, clock: list[float]
) -> None:
    one, two, other = (Step(name, length=1_000) for name in ("x-seed0", "x-seed1", "y-seed0"))
    board = Board(3, tmp_path, Terminal())
    running = Running(one, Instant(0), begun=0.0, steps_before=100)
    at_step(one, 100, tmp_path)
    clock[0] = 10.0
    assert running.speed(tmp_path) is None
    assert board.seconds_left(running) is None
    at_step(one, 300, tmp_path)
    assert running.speed(tmp_path) == 20
    assert board.seconds_left(running) == 35
    assert board.seconds_of(Waiting([two], tmp_path)) == [None]
    board.learn(running)  # it did not begin at the beginning
    assert board.seconds_of(Waiting([two], tmp_path)) == [None]
    board.learn(replace(running, steps_before=0))
    assert board.seconds_of(Waiting([two], tmp_path)) == [10]
    at_step(two, 500, tmp_path)
    assert board.seconds_of(Waiting([two], tmp_path)) == [5]
    assert board.seconds_of(Waiting([other], tmp_path)) == [None]
    fresh = Running(two, Instant(0), begun=10.0, steps_before=500)
    assert board.seconds_left(fresh) == 5


def test_the_board_adds_up_what_is_known(tmp_path: Path, clock: list[float]) -> None:
    jobs: list[Job] = [Step(f"x-seed{i}", length=1_000) for i in range(4)]
    screen = Terminal()
    board = Board(9, tmp_path, screen)
    running = {i: Running(jobs[i], Instant(0), begun=0.0, steps_before=0) for i in (0, 1)}
    clock[0] = 10.0
    for job in jobs[:2]:
        at_step(job, 500, tmp_path)
    outcome = Outcome([A, B], {"name": "line"}, [C])
    board.show(
        running, Waiting([jobs[2]], tmp_path), outcome
    )  # 10 s twice, and one of which nothing is known
    head, first, second = screen.getvalue().splitlines()
    assert head == "2 of 9 jobs done, 1 failed, 1 skipped; at least 10 s to go"
    assert first.split() == ["x-seed0", "500", "of", "1,000", "50/s", "10", "s", "to", "go"]
    assert second.split()[0] == "x-seed1"
    board.speeds["x"] = 100.0
    board.show(
        running, Waiting(jobs[2:], tmp_path), outcome
    )  # 10 s twice and 10 s twice, on two workers
    assert "\x1b[3F\x1b[J2 of 9 jobs done, 1 failed, 1 skipped; 20 s to go" in screen.getvalue()
    board.say("a line that stays")
    assert screen.getvalue().endswith("\x1b[3F\x1b[Ja line that stays\n")
    board.clear()
    assert screen.getvalue().endswith("a line that stays\n")


def test_a_board_is_drawn_on_terminals_only_and_never_in_silence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = io.StringIO()
    Board(1, tmp_path, plain).show({}, Waiting([A], tmp_path), Outcome([], {}, []))
    assert plain.getvalue() == ""
    monkeypatch.setattr(progress, "silent", True)
    screen = Terminal()
    board = Board(1, tmp_path, screen)
    board.show({}, Waiting([A], tmp_path), Outcome([], {}, []))
    board.say("nothing")
    assert screen.getvalue() == ""


def test_no_line_of_the_board_is_wider_than_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "50")
    screen = Terminal()
    job = Step("a-name-that-is-longer-than-the-terminal-is-wide-by-far", length=1_000)
    running = {0: Running(job, Instant(0), begun=0.0, steps_before=0)}
    Board(1, tmp_path, screen).show(running, Waiting([], tmp_path), Outcome([], {}, []))
    head, line = screen.getvalue().splitlines()
    assert head == "0 of 1 jobs done, 0 failed, 0 skipped; at least 0 "
    assert line == f"  {job.name}"[:50]


def test_a_new_line_is_said_every_ten_seconds_where_no_board_can_be_drawn(
    tmp_path: Path, clock: list[float]
) -> None:
    plain = io.StringIO()
    board = Board(2, tmp_path, plain)
    done: list[Job] = [B]
    for now in (0.0, 9.9, 10.0, 15.0, 19.9, 20.0, 30.0, 39.9, 40.0):
        clock[0] = now
        if now > 30.0:
            done = [A, B]
        board.show({}, Waiting([A], tmp_path), Outcome(done, {}, []))
    rest = "of 2 jobs done, 0 failed, 0 skipped; at least 0 s to go\n"
    assert plain.getvalue() == f"1 {rest}2 {rest}"  # at 10 and 40 seconds


def test_all_of_it_takes_as_long_as_the_longest_job_at_least(
    tmp_path: Path, clock: list[float]
) -> None:
    running = {}
    for slot, done in enumerate((100, 900)):
        job = Step(f"x{slot}", length=1_000)
        at_step(job, done, tmp_path)
        running[slot] = Running(job, Instant(0), begun=0.0, steps_before=0)
    clock[0] = 10.0
    summary = Board(2, tmp_path, Terminal()).summary(
        running, Waiting([], tmp_path), Outcome([], {}, [])
    )
    assert summary.endswith("; 2 min to go")  # 90 s, and a second for the other


def test_one_running_job_has_the_waiting_ones_before_it(tmp_path: Path, clock: list[float]) -> None:
    one, two = (Step(f"x-seed{i}", length=1_000) for i in range(2))
    at_step(one, 500, tmp_path)
    board = Board(2, tmp_path, Terminal())
    board.speeds["x"] = 50.0
    clock[0] = 10.0
    running = {0: Running(one, Instant(0), begun=0.0, steps_before=0)}
    summary = board.summary(running, Waiting([two], tmp_path), Outcome([], {}, []))
    assert summary.endswith("; 30 s to go")  # 10 s, then 20 s


def test_the_first_step_is_a_speed(tmp_path: Path, clock: list[float]) -> None:
    job = Step("x", length=100)
    at_step(job, 1, tmp_path)
    clock[0] = 10.0
    assert Running(job, Instant(0), begun=0.0, steps_before=0).speed(tmp_path) == 0.1


@pytest.mark.parametrize(
    ("name", "of"), [("x-seed3", "x"), ("a-seedling-seed3", "a-seedling"), ("theory", "theory")]
)
def test_the_kind_of_a_job_is_its_name_without_the_seed(name: str, of: str) -> None:
    assert kind(Step(name)) == of


def test_the_time_of_a_finished_job_is_that_of_its_kind(tmp_path: Path) -> None:
    screen = Terminal()
    jobs = [Step(f"x-seed{i}") for i in range(2)]
    run_jobs(jobs, tmp_path, InThisProcess(slots=1), screen=screen)
    assert "0 of 2 jobs done, 0 failed, 0 skipped; at least 0 s to go" in screen.getvalue()
    assert "1 of 2 jobs done, 0 failed, 0 skipped; 0 s to go" in screen.getvalue()


def test_the_board_is_gone_when_the_last_jobs_were_skipped(tmp_path: Path) -> None:
    screen = Terminal()
    run_jobs([B], tmp_path, InThisProcess(failing=["a"]), screen=screen)
    assert screen.getvalue().endswith("\x1b[2F\x1b[JFAILED  a: bcq: no luck\n")


def test_a_job_is_skipped_if_one_of_several_that_it_needs_failed(tmp_path: Path) -> None:
    outcome, _ = run([Step("e", (D, A))], tmp_path, InThisProcess(failing=["a"]))
    assert [job.name for job in outcome.skipped] == ["e"]
    assert [job.name for job in outcome.done] == ["d"]


def test_the_runner_rests_longer_while_nothing_happens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rests: list[float] = []
    fake = SimpleNamespace(monotonic=time.monotonic, sleep=rests.append)
    monkeypatch.setattr(runner, "time", fake)
    monkeypatch.setattr(runner, "POLL", 0.007)
    monkeypatch.setattr(Instant, "last_look", 4)
    run([B], tmp_path, InThisProcess())
    rests_of_a_job = [0.005, 0.006, 0.007, 0.007]  # and short again after a job has ended
    assert rests == pytest.approx(2 * rests_of_a_job)


class Nothing(InThisProcess):
    """An engine without work: jobs are done when they are started."""

    def start(self, job: Job, folder: Path, slot: int) -> Instant:
        (folder / directory_name(job) / "done.json").touch()
        return Instant(0)


@dataclass(frozen=True)
class Counted(Step):
    """Counts how often somebody asks what a job needs."""

    asked: list[str] = field(default_factory=list, hash=False, compare=False)

    def __getattribute__(self, name: str) -> Any:
        if name == "needs":
            object.__getattribute__(self, "asked").append(name)
        return object.__getattribute__(self, name)


def layered(count: int, asked: list[str]) -> list[Job]:
    """A tenth of the jobs need nothing, and every other one needs two of them."""
    first: list[Job] = [Counted(f"a{i}", asked=asked) for i in range(count // 10)]
    rest = range(count - len(first))
    needs = [(first[i % len(first)], first[(i + 1) % len(first)]) for i in rest]
    return [*first, *(Counted(f"b{i}", needs[i], asked=asked) for i in rest)]


def test_the_runners_own_work_grows_as_the_jobs_do(tmp_path: Path) -> None:
    looks = []
    for count in (30, 300):
        asked: list[str] = []
        jobs = layered(count, asked)
        outcome, _ = run(jobs, tmp_path / str(count), Nothing(slots=3))
        assert len(outcome.done) == count
        looks.append(len(asked) / count)
    assert looks[1] <= 1.2 * looks[0]


def test_a_freed_slot_is_used_again_and_the_first_one_first(tmp_path: Path) -> None:
    engine, slots = InThisProcess(slots=3), list[int]()
    start = engine.start

    def noted(job: Job, folder: Path, slot: int) -> Instant:
        slots.append(slot)
        return start(job, folder, slot)

    engine.start = noted  # type: ignore[method-assign]
    run([Step(str(i)) for i in range(7)], tmp_path, engine)
    assert slots == [0, 1, 2, 0, 1, 2, 0]


class Slow(Terminal):
    """A screen that shows what was flushed."""

    shown = ""

    def flush(self) -> None:
        self.shown = self.getvalue()


def test_what_is_said_and_drawn_is_seen_at_once(tmp_path: Path) -> None:
    screen = Slow()
    board = Board(1, tmp_path, screen)
    board.say("a line")
    assert screen.shown == "a line\n"
    board.show({}, Waiting([A], tmp_path), Outcome([], {}, []))
    assert screen.shown.endswith("0 of 1 jobs done, 0 failed, 0 skipped; at least 0 s to go\n")


def test_workers_use_the_cores_that_this_process_may_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if hasattr(os, "sched_getaffinity"):
        assert runner.cores() == sorted(os.sched_getaffinity(0))
    with monkeypatch.context() as elsewhere:  # as on macOS
        elsewhere.delattr(os, "sched_getaffinity", raising=False)
        elsewhere.setattr(os, "cpu_count", lambda: 3)
        assert runner.cores() == [0, 1, 2]
        elsewhere.setattr(os, "cpu_count", lambda: None)
        assert runner.cores() == [0]
    given: list[Any] = []
    monkeypatch.setattr(runner, "start_worker", lambda *values: given.append(values))
    engine = LocalProcesses([3, 5])
    assert engine.slots == 2
    for slot in range(2):
        engine.start(A, tmp_path, slot)
    assert given == [(A, tmp_path, "3"), (A, tmp_path, "5")]


def test_a_worker_leads_a_session_which_ctrl_c_does_not_reach(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\nexec sleep 60\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    (tmp_path / directory_name(A)).mkdir()
    started = runner.start_worker(A, tmp_path)
    try:
        assert os.getsid(started.process.pid) == started.process.pid
    finally:
        started.stop()


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the system has no such call")
def test_a_process_stays_on_a_core_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    before = os.sched_getaffinity(0)
    core = max(before)
    with worker.staying_on(core):
        assert os.sched_getaffinity(0) == {core}
    assert os.sched_getaffinity(0) == before
    with monkeypatch.context() as elsewhere:
        elsewhere.delattr(os, "sched_setaffinity")
        with worker.staying_on(core):
            assert os.sched_getaffinity(0) == before
        worker.stay_on(core)


def test_what_a_worker_prints_and_its_errors_go_to_its_own_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = tmp_path / "python"
    worker.write_text("#!/bin/sh\necho said\necho failed >&2\n")
    worker.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(worker))
    folder = tmp_path / directory_name(A)
    folder.mkdir()
    (folder / "output.txt").write_text("before\n")
    runner.start_worker(A, tmp_path).process.wait(10)
    assert (folder / "output.txt").read_text() == "before\nsaid\nfailed\n"


def test_where_cores_are_shared_the_first_slot_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = []

    def start(job: Job, folder: Path, *core: str) -> LocalProcess:
        assert (job, folder, core) == (A, tmp_path, ())  # on no core of its own
        started.append(LocalProcess(subprocess.Popen(["sleep", "60"], start_new_session=True)))
        return started[-1]

    monkeypatch.setattr(runner, "start_worker", start)
    engine = SharedCores(3)
    try:
        found = [engine.start(A, tmp_path, slot) for slot in range(engine.slots)]
        assert found == started
        usual = os.getpriority(os.PRIO_PROCESS, 0)
        priorities = [os.getpriority(os.PRIO_PROCESS, one.process.pid) for one in started]
        assert priorities == [usual, 10, 10]
        groups = [Path(f"/proc/{one.process.pid}/autogroup") for one in started]
        if groups[0].exists():  # each process leads a session, and Linux counts those first
            shares = [path.read_text().split()[-1] for path in groups]
            assert shares == ["0", "10", "10"]
    finally:
        for one in started:
            one.stop()


@dataclass
class Stubborn:
    """A process that ends at the nth order, or was never asked."""

    ends_at: int
    orders: list[str] = field(default_factory=list)

    def terminate(self) -> None:
        self.orders.append("terminate")

    def kill(self) -> None:
        self.orders.append("kill")

    def wait(self, seconds: float) -> None:
        assert seconds == 60
        if len(self.orders) < self.ends_at:
            raise subprocess.TimeoutExpired("worker", seconds)


@pytest.mark.parametrize("orders", [1, 2, 3])
def test_a_worker_is_asked_twice_before_it_is_killed(orders: int) -> None:
    process: Any = Stubborn(orders)
    LocalProcess(process).stop()
    assert process.orders == ["terminate", "terminate", "kill"][:orders]


def test_jobs_that_need_a_skipped_one_are_skipped_too(tmp_path: Path) -> None:
    outcome, _ = run([Step("e", (C,)), D], tmp_path, InThisProcess(slots=1, failing=["a"]))
    assert [job.name for job in outcome.skipped] == ["b", "c", "e"]
    assert [job.name for job in outcome.done] == ["d"]


def test_a_request_to_stop_says_how_far_it_came(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = InThisProcess(slots=1)
    monkeypatch.setattr(interruption, "requested", lambda: len(engine.started) == 2)
    with pytest.raises(InterruptionError, match="1 of 4 jobs are done"):
        run([C, D], tmp_path, engine)
    assert [process.stopped for process in engine.processes] == [False, True]


def test_progress_is_read_from_the_jobs_folder(tmp_path: Path) -> None:
    folder = tmp_path / directory_name(A)
    folder.mkdir()
    (folder / "metrics.jsonl").write_text('{"step": 100}\n{"step": 200}\n{"st')
    assert steps_done(A, tmp_path) == 200


def test_a_batch_that_has_just_been_tidied_up_is_no_error(tmp_path: Path) -> None:
    batch = Batch("random", "Pendulum-v1", 50, 0)
    assert steps_done(batch, tmp_path) == 0
    partial = tmp_path / directory_name(batch) / "batch.hdf5.partial"
    partial.mkdir(parents=True)
    assert steps_done(batch, tmp_path) == 0
    (partial / "progress.json").write_text('{"rows": 30}')
    assert steps_done(batch, tmp_path) == 30


def test_a_real_worker_does_its_job_and_a_failing_one_says_why(tmp_path: Path) -> None:
    good = Batch("random", "Pendulum-v1", 50, 0)
    bad = Batch("random", "Nowhere-v0", 50, 0)
    outcome, printed = run([good, bad], tmp_path, LocalProcesses())
    assert [job.name for job in outcome.done] == [good.name]
    summary = json.loads((tmp_path / directory_name(good) / "batch.json").read_text())
    assert summary["transitions"] == 50
    notes = json.loads((tmp_path / directory_name(good) / "done.json").read_text())
    assert notes["threads"] == 1
    assert "FAILED  batch-random-Nowhere-v0-seed0: bcq: " in printed


def test_a_worker_ends_when_the_runner_is_killed(tmp_path: Path) -> None:
    long = Batch("random", "Pendulum-v1", 50_000_000, 0)
    code = f"""
import sys
from pathlib import Path
from bcq.experiments.kinds import Batch
from bcq.experiments.runner import LocalProcesses, run_jobs
run_jobs([{long!r}], Path({str(tmp_path)!r}), LocalProcesses(), screen=sys.stdout)
"""
    process = subprocess.Popen([sys.executable, "-c", code])
    notes = Path("generation-1", directory_name(long), "batch.hdf5.partial", "progress.json")
    lock = tmp_path / directory_name(long) / notes
    deadline = time.monotonic() + 60
    while not lock.exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    time.sleep(3)
    before = lock.read_text()
    time.sleep(2)
    assert lock.read_text() == before  # nobody collects any more


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (5, "5 s"),
        (89, "89 s"),
        (90, "2 min"),
        (3_000, "50 min"),
        (89 * 60, "89 min"),
        (90 * 60, "1 h 30 min"),
        (7_260, "2 h 01 min"),
    ],
)
def test_durations_are_said_as_people_say_them(seconds: float, text: str) -> None:
    assert duration(seconds) == text
