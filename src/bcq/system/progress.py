"""Progress of a loop: a bar on a terminal, otherwise a line every few seconds.

Everything goes to stderr. If nobody reads stderr any more, the program continues without it.
"""

import os
import sys
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import NoReturn, Self, TextIO, TypeVar

from tqdm import tqdm

EVERY = 10.0  # seconds between two lines where no bar can be drawn

Item = TypeVar("Item")
silent = False


@contextmanager
def silenced(wanted: bool) -> Iterator[None]:
    """Suppresses bars, lines and warnings within the block, if wanted."""
    global silent  # noqa: PLW0603 - a process has one stderr
    before, silent = silent, silent or wanted
    try:
        yield
    finally:
        silent = before


def say(text: str) -> None:
    """Prints a message, unless silenced."""
    if not silent:
        write_line(f"bcq: {text}")


def write_line(line: str) -> None:
    """Writes a line to stderr, above the bar if there is one; a closed stderr is ignored."""
    try:
        tqdm.write(line, file=sys.stderr)
    except OSError:
        discard(sys.stderr)


def discard(stream: TextIO) -> None:
    """Discards all further output of a stream that nobody reads any more."""
    with suppress(OSError):  # the stream is not a file
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def duration(seconds: float) -> str:
    """A duration in words, such as 2 h 05 min."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02} min"


class Progress:
    """Progress of one loop of known length."""

    def __init__(
        self,
        what: str,
        total: int,
        unit: str,
        *,
        done: int = 0,
        shown: bool = True,
        delay: float = 0.0,  # seconds: a loop that ends sooner shows no bar
    ):
        self.what, self.total, self.unit, self.delay = what, total, unit, delay
        self.done = self.before = done
        self.remark = ""
        self.shown = shown and not silent
        self.begun = self.said = time.monotonic()
        self.bar: tqdm[NoReturn] | None = None

    def __enter__(self) -> Self:
        if self.shown and sys.stderr.isatty():
            self.bar = tqdm(
                desc=self.what,
                total=self.total,
                initial=self.done,
                unit=self.unit,
                delay=self.delay,
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.bar is not None:
            self.bar.close()

    def advance(self, count: int = 1) -> None:
        """Counts finished units."""
        self.done += count
        if self.bar is not None:
            self.bar.update(count)
        elif self.shown and time.monotonic() - self.said >= EVERY:
            self.said = time.monotonic()
            write_line(self.line())

    def note(self, remark: str) -> None:
        """Sets the remark that is shown after the figures."""
        self.remark = remark
        if self.bar is not None:
            self.bar.set_postfix_str(remark)

    def line(self) -> str:
        """The content of the bar as a line of text."""
        rate = (self.done - self.before) / (time.monotonic() - self.begun)
        left = f", {duration((self.total - self.done) / rate)} to go" if rate else ""
        remark = f", {self.remark}" if self.remark else ""
        return (
            f"{self.what}: {self.done:,} of {self.total:,} {self.unit}s, {rate:.4g}/s{left}{remark}"
        )


def over(items: Collection[Item], what: str, unit: str, *, delay: float = 0.0) -> Iterator[Item]:
    """Yields the items and shows the progress."""
    with Progress(what, len(items), unit, delay=delay) as progress:
        for item in items:
            yield item
            progress.advance()
