"""How far a loop is: a bar on a terminal, elsewhere a line now and then, nothing where unwanted.

All of it goes to stderr, and none of it is worth failing for: a reader of the log may have left.
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
    """Keeps bars, lines and warnings back, if so wanted."""
    global silent  # noqa: PLW0603 - there is one screen
    before, silent = silent, silent or wanted
    try:
        yield
    finally:
        silent = before


def say(text: str) -> None:
    """A line that is no error, above the bar if there is one."""
    if not silent:
        write_line(f"bcq: {text}")


def write_line(line: str) -> None:
    """Writes a line to stderr, above the bar if there is one, whether or not anybody reads it."""
    try:
        tqdm.write(line, file=sys.stderr)
    except OSError:
        discard(sys.stderr)


def discard(stream: TextIO) -> None:
    """Throws away what a stream has left and what is to come: its reader has gone."""
    with suppress(OSError):  # no file at all
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def duration(seconds: float) -> str:
    """A duration for people."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02} min"


class Progress:
    """How far one loop is, of a known length."""

    def __init__(self, what: str, total: int, unit: str, *, done: int = 0, shown: bool = True):
        self.what, self.total, self.unit = what, total, unit
        self.done = self.before = done
        self.remark = ""
        self.shown = shown and not silent
        self.begun = self.said = time.monotonic()
        self.bar: tqdm[NoReturn] | None = None

    def __enter__(self) -> Self:
        if self.shown and sys.stderr.isatty():
            self.bar = tqdm(desc=self.what, total=self.total, initial=self.done, unit=self.unit)
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
        """So much more is done."""
        self.done += count
        if self.bar is not None:
            self.bar.update(count)
        elif self.shown and time.monotonic() - self.said >= EVERY:
            self.said = time.monotonic()
            write_line(self.line())

    def note(self, remark: str) -> None:
        """Something to stand behind the figures."""
        self.remark = remark
        if self.bar is not None:
            self.bar.set_postfix_str(remark)

    def line(self) -> str:
        """What a bar would show."""
        rate = (self.done - self.before) / (time.monotonic() - self.begun)
        left = f", {duration((self.total - self.done) / rate)} to go" if rate else ""
        remark = f", {self.remark}" if self.remark else ""
        return (
            f"{self.what}: {self.done:,} of {self.total:,} {self.unit}s, {rate:.4g}/s{left}{remark}"
        )


def over(items: Collection[Item], what: str, unit: str) -> Iterator[Item]:
    """The items, one after another, with the progress among them."""
    with Progress(what, len(items), unit) as progress:
        for item in items:
            yield item
            progress.advance()
