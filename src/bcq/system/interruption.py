"""Ctrl-C and SIGTERM: the first lets what is under way come to its end, the second ends at once.

Only the command line watches for them. Loops ask `check` (or `requested`, if they have something to
save first) wherever they can stop; Python's own exception would strike anywhere, inside HDF5 too.
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
    """Takes both signals over; inside another such block, nothing."""
    global watching  # noqa: PLW0603 - signals are the process's
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
    """Between two steps of the program: remembers the first signal, obeys the second."""
    del frame
    arrived.append(number)
    if len(arrived) > 1:
        raise KeyboardInterrupt


def acknowledge(pipe: int) -> None:
    """In a thread, since compiled code does not come back for seconds: answers at once."""
    with os.fdopen(pipe, "rb", buffering=0) as signals:
        if signals.read(1):
            write(ACKNOWLEDGED)
        if number := signals.read(1):
            time.sleep(GRACE)
            write(AT_ONCE)
            os._exit(128 + number[0])


def write(words: str) -> None:
    """Not by `print`, which the program may be in the middle of."""
    with suppress(OSError):  # nobody reads it
        os.write(2, f"{os.linesep * os.isatty(2)}bcq: {words}{os.linesep}".encode())


def requested() -> bool:
    """Whether the user wants to stop."""
    return bool(arrived)


def exit_code() -> int:
    """What a shell makes of a command that a signal ended."""
    return 128 + (arrived[0] if arrived else signal.SIGINT)


def check() -> None:
    """Stops here, if that is wanted and nobody up the line has to finish first."""
    if arrived and not deferrals:
        raise InterruptionError


@contextmanager
def deferred() -> Iterator[None]:
    """Within, `check` passes: the caller asks `requested` itself, and saves before it stops."""
    global deferrals  # noqa: PLW0603 - as above
    deferrals += 1
    try:
        yield
    finally:
        deferrals -= 1
