"""Progress: a bar for people, lines for logs, silence on request."""

import io
import os
import sys
import time
from pathlib import Path

import pytest

import bcq
from bcq.cli.application import main
from bcq.system import progress

pytestmark = pytest.mark.usefixtures("own_compilation_cache")
TINY = ("--hidden-sizes", "8", "--steps", "400")


class Clock:
    """Time that passes only when told to."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


class Screen(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        return True


class Gone(io.StringIO):
    """A pipe that nobody reads any more."""

    def write(self, text: str) -> int:
        raise BrokenPipeError


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    return clock


def test_a_log_gets_a_line_every_ten_seconds(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    clock.now = 500.0
    with progress.Progress("training", 10_000, "update", done=1_000) as bar:
        bar.note("return -3.5 at 1000")
        for _ in range(44):
            clock.now += 0.5
            bar.advance(100)
    assert capsys.readouterr().err.splitlines() == [
        "training: 3,000 of 10,000 updates, 200/s, 35 s to go, return -3.5 at 1000",
        "training: 5,000 of 10,000 updates, 200/s, 25 s to go, return -3.5 at 1000",
    ]


def test_a_short_loop_leaves_no_line_in_a_log(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    assert list(progress.over([3, 1, 2], "measuring", "job")) == [3, 1, 2]
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(("delay", "shown"), [(0.0, True), (0.01, True), (60.0, False)])
def test_a_loop_that_ends_soon_needs_no_bar(
    delay: float, shown: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", screen := Screen())
    for _ in progress.over(range(2), "checking", "check", delay=delay):
        time.sleep(0.15)  # a bar is drawn ten times per second at most
    assert ("checking" in screen.getvalue()) == shown


def test_a_terminal_gets_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", screen := Screen())
    with progress.Progress("exploring", 40, "step") as bar:
        bar.note("return 7")
        bar.advance(40)
    assert "exploring: 100%" in screen.getvalue()
    assert "return 7" in screen.getvalue()
    assert "\r" in screen.getvalue()


@pytest.mark.parametrize("screen", [io.StringIO, Screen])
def test_silence_is_silent_and_ends(
    screen: type[io.StringIO], clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", shown := screen())
    with progress.silenced(True), progress.silenced(False):
        with progress.Progress("exploring", 40, "step") as bar:
            clock.now += 60
            bar.advance()
        progress.say("warning: unheard")
    assert shown.getvalue() == ""
    progress.say("warning: heard")
    assert shown.getvalue() == "bcq: warning: heard\n"


@pytest.mark.parametrize("screen", [io.StringIO, Screen])
def test_a_loop_that_is_not_shown_is_counted_in_silence(
    screen: type[io.StringIO], clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", shown := screen())
    with progress.Progress("exploring", 40, "step", shown=False) as bar:
        clock.now += 60
        bar.advance()
    assert shown.getvalue() == ""
    assert bar.done == 1


def test_a_bar_goes_on_where_the_work_was_and_ends_its_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "stderr", screen := Screen())
    with progress.Progress("exploring", 40, "step", done=10) as bar:
        bar.advance(20)
    assert "| 10/40 [" in screen.getvalue()
    assert "| 30/40 [" in screen.getvalue().splitlines()[-1]
    assert screen.getvalue().endswith("\n")


def test_each_item_is_one_unit_of_the_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", screen := Screen())
    assert list(progress.over([3, 1, 2], "measuring", "job")) == [3, 1, 2]
    assert "measuring: 100%" in screen.getvalue()
    assert "| 3/3 [" in screen.getvalue()


def test_without_progress_no_end_is_promised(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    with progress.Progress("exploring", 40, "step") as bar:
        clock.now += 10
        bar.advance(0)
    assert capsys.readouterr().err == "exploring: 0 of 40 steps, 0/s\n"


def test_what_is_written_after_the_reader_left_goes_nowhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reader, writer = os.pipe()
    stream = os.fdopen(writer, "w", buffering=1)
    monkeypatch.setattr(sys, "stderr", stream)
    os.close(reader)
    progress.say("warning: nobody hears it")
    stream.write("nor this\n")
    stream.close()  # what was kept for a reader is gone too


def test_a_reader_that_left_stops_nothing(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Gone())
    with progress.Progress("exploring", 40, "step") as bar:
        clock.now += 60
        bar.advance()
    progress.say("warning: nobody hears it")
    assert bar.done == 1


def test_quiet_leaves_the_result_alone(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(progress, "EVERY", 0.0)
    data = str(tmp_path / "log.csv")  # which names no terminals: a warning
    Path(data).write_text("obs_0,action,reward\n" + "0.5,0.25,1\n0.25,-0.5,2\n" * 5)
    main(["train", "bc", "--data", data, "--out", str(tmp_path / "loud"), *TINY])
    printed = capsys.readouterr()
    assert printed.err.count("training: ") == 4
    assert "bcq: warning: " in printed.err
    main(["train", "bc", "--data", data, "--out", str(tmp_path / "quiet"), *TINY, "--quiet"])
    printed = capsys.readouterr()
    assert printed.err == ""
    assert printed.out == f"trained for 400 updates; the run is in {tmp_path / 'quiet'}\n"


def test_there_is_one_place_for_bars() -> None:
    root = Path(bcq.__file__).parent
    found = [path.name for path in root.rglob("*.py") if "import tqdm" in path.read_text()]
    assert found == ["progress.py"]
