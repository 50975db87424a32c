"""Ctrl-C and SIGTERM: the first finishes the current unit of work, the second stops immediately.

Only the command line handles them. Loops call `check` (or `requested`, if they have to save first)
wherever they can stop. Python's KeyboardInterrupt could occur anywhere, also inside HDF5.
"""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from bcq.system.errors import InterruptionError

SIGNALS = (signal.SIGINT, signal.SIGTERM)
GRACE = 1.0  # seconds to clean up in, after the second signal
ACKNOWLEDGED = "stopping after the current unit of work; interrupt again to stop immediately"
AT_ONCE = "stopped immediately; everything saved before is kept"

watching = False
arrived: list[int] = []  # signals, in order
deferrals = 0


@contextmanager
def watched() -> Iterator[None]:
    """Handles both signals within the block; a nested block does nothing."""
    global watching  # noqa: PLW0603 - a process has one set of signal handlers
    if watching or threading.current_thread() is not threading.main_thread():
        yield
        return
    # A signal that was ignored from the start, as by nohup, stays ignored.
    taken = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    threading.Thread(target=acknowledge, args=(reader,), daemon=True).start()
    wakeup = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    before = {number: signal.signal(number, on_signal) for number in taken}
    watching = True
    try:
        yield
    finally:
        watching = False
        arrived.clear()
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(wakeup)
        os.close(writer)


def on_signal(number: int, frame: FrameType | None) -> None:
    """The signal handler: remembers the first signal, raises on the second."""
    del frame
    arrived.append(number)
    if len(arrived) > 1:
        raise KeyboardInterrupt


def acknowledge(pipe: int) -> None:
    """Answers at once, from a thread: compiled code blocks the main thread for seconds."""
    with os.fdopen(pipe, "rb", buffering=0) as signals:
        if signals.read(1):
            write(ACKNOWLEDGED)
        if number := signals.read(1):
            time.sleep(GRACE)
            write(AT_ONCE)
            os._exit(128 + number[0])


def write(words: str) -> None:
    """Writes to stderr without `print`, which the signal may have interrupted."""
    with suppress(OSError):  # stderr is closed
        os.write(2, f"{os.linesep * os.isatty(2)}bcq: {words}{os.linesep}".encode())


def requested() -> bool:
    """Whether the user wants to stop."""
    return bool(arrived)


def exit_code() -> int:
    """The exit code of a command that was ended by a signal, as in a shell."""
    return 128 + (arrived[0] if arrived else signal.SIGINT)


def check() -> None:
    """Raises InterruptionError if the user wants to stop and no caller has deferred it."""
    if arrived and not deferrals:
        raise InterruptionError


@contextmanager
def deferred() -> Iterator[None]:
    """Within the block `check` does nothing: the caller calls `requested` and saves first."""
    global deferrals  # noqa: PLW0603 - as above
    deferrals += 1
    try:
        yield
    finally:
        deferrals -= 1
