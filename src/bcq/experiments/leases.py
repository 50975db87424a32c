"""Who may work on a job, among processes that share only a place for small files.

The entries of a job are numbered: 1, 2, 3, ... An entry is created once and never changed. It says
either who works on the job from now on, or that the job is done. So the process of entry n can
publish its result only by creating entry n + 1, and it can be replaced only by creating the same
entry: exactly one of the two happens. Clocks decide when somebody tries, never who wins.
See docs/decisions/0019-leases.md.
"""

import json
import os
import signal
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from bcq.system import interruption
from bcq.system.errors import BCQError, InputError
from bcq.system.files import Row, make_directory

LEASE = 30.0  # seconds without a heartbeat after which a process counts as gone
BEATS = 5  # heartbeats within that time
GRACE = 60.0  # seconds that a job has to stop in after it was replaced
LOOK = 1.0  # seconds between two looks at somebody else's lease, at most


class ReplacedError(BCQError):
    """Another process has taken over the job, so this one must not publish anything."""


class Place(Protocol):
    """The small files of one job. A file is seen whole or not at all."""

    def create(self, name: str, content: Row) -> bool:
        """Writes a new file. False if there is one already, whoever wrote it."""
        ...

    def replace(self, name: str, content: Row) -> None:
        """Writes a file, new or not."""
        ...

    def read(self, name: str) -> Row | None:
        """The content of a file, None if there is no such file."""
        ...

    def names(self) -> list[str]:
        """The files that exist."""
        ...


@dataclass(frozen=True)
class FolderPlace:
    """Files in a folder that every process sees."""

    directory: Path

    def create(self, name: str, content: Row) -> bool:
        """A hard link is the one call that is atomic, refuses to replace, and shows whole files."""
        with self.written(content) as temporary:
            try:
                os.link(temporary, self.directory / name)
            except FileExistsError:
                return False
            except OSError as error:
                raise InputError(
                    f"{self.directory}: its file system has no hard links ({error.strerror}), "
                    "which keep two machines from doing one job; use another folder or a store"
                ) from error
        return True

    def replace(self, name: str, content: Row) -> None:
        """A rename."""
        with self.written(content) as temporary:
            temporary.replace(self.directory / name)

    def read(self, name: str) -> Row | None:
        """The content, which nobody writes in place."""
        try:
            found: Row = json.loads((self.directory / name).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise InputError(f"{self.directory / name}: cannot be read: {error}") from error
        return found

    def names(self) -> list[str]:
        """The files of the folder."""
        return [path.name for path in self.directory.iterdir()] if self.directory.exists() else []

    @contextmanager
    def written(self, content: Row) -> Iterator[Path]:
        """A file that nobody else looks at. Two machines can have equal process ids."""
        make_directory(self.directory)
        temporary = self.directory / f".{uuid.uuid4().hex}.tmp"
        try:
            temporary.write_text(json.dumps(content), encoding="utf-8")
            yield temporary
        except OSError as error:
            raise InputError(f"cannot write {self.directory}: {error.strerror}") from error
        finally:
            temporary.unlink(missing_ok=True)


def entry(number: int) -> str:
    """The file of an entry."""
    return f"lease-{number}.json"


def heartbeat(number: int) -> str:
    """The file that the process of an entry keeps writing."""
    return f"beat-{number}.json"


def newest(place: Place) -> tuple[int, Row]:
    """The last entry and its number; 0 if there is none."""
    numbers = [
        int(digits)
        for name in place.names()
        if (digits := name.removeprefix("lease-").removesuffix(".json")).isdecimal()
    ]
    number = max(numbers, default=0)
    return number, (place.read(entry(number)) or {}) if number else {}


@dataclass
class Lease:
    """The right to work on a job and to publish its result, as long as nobody takes it over."""

    place: Place
    number: int
    claim: Row
    after: bool  # whether the process before it has ended for certain
    beats: int = field(default=0)

    def held(self) -> bool:
        """Whether nobody has taken it over."""
        return self.place.read(entry(self.number + 1)) is None

    def beat(self, **notes: object) -> None:
        """Tells the others that this process is alive, and how far it is."""
        self.beats += 1
        self.place.replace(heartbeat(self.number), {"beat": self.beats, **notes})

    def release(self) -> None:
        """Tells the others that this process will not touch the job any more."""
        self.place.replace(heartbeat(self.number), {"ended": True})

    def publish(self, result: Row) -> Row:
        """Makes a result the one of the job, unless the lease was taken over."""
        done = {"done": self.number, "token": self.claim["token"], **result}
        if not created(self.place, self.number + 1, done):
            raise ReplacedError(replaced(self.place, self.number))
        return done


def created(place: Place, number: int, content: Row) -> bool:
    """Whether this process created an entry. A repeated request may meet its own first try."""
    return place.create(entry(number), content) or place.read(entry(number)) == content


def replaced(place: Place, number: int) -> str:
    """Says who took over."""
    other = place.read(entry(number + 1)) or {}
    return (
        f"replaced by another process (on {other.get('host', 'an unknown machine')}), which takes "
        "over when a process is not heard of for a while; nothing was published here"
    )


def acquire(
    place: Place,
    *,
    lease: float = LEASE,
    host: str | None = None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Lease | Row:
    """Waits until nobody else works on the job. The result is a lease, or the entry of the end.

    A process counts as gone if its heartbeat does not change for `lease` seconds of this process's
    own clock, so that no two clocks are compared.
    """
    seen: tuple[int, Row, Row | None] = (0, {}, None)
    since = clock()
    while True:
        number, last = newest(place)
        if "done" in last:
            return last
        beat = place.read(heartbeat(number)) if number else None
        if (number, last, beat) != seen:
            seen, since = (number, last, beat), clock()
        ended = number == 0 or has_ended(last, beat or {})
        if ended or clock() - since > lease:
            claim = me(host)
            if created(place, number + 1, claim):
                return Lease(place, number + 1, claim, after=ended)
            continue
        interruption.check()
        sleep(min(LOOK, lease / BEATS))


@contextmanager
def kept(lease: Lease, seconds: float, notes: Callable[[], Row]) -> Iterator[threading.Event]:
    """Beats until the block ends. If the lease is lost, says so and stops this process's work.

    It stops as at Ctrl-C. If it has not stopped after a while, the process ends.
    """
    over, lost = threading.Event(), threading.Event()

    def keep() -> None:
        while not over.is_set():
            with suppress(OSError, BCQError):  # a network that fails for a while
                if not lease.held():
                    lost.set()
                    os.kill(os.getpid(), signal.SIGTERM)
                    if not over.wait(GRACE):
                        os._exit(1)
                    return
                lease.beat(**notes())
            over.wait(seconds / BEATS)

    thread = threading.Thread(target=keep, daemon=True)
    thread.start()
    try:
        yield lost
    finally:
        over.set()
        thread.join()


def me(host: str | None = None) -> Row:
    """This process, and a word that no other claim has."""
    return {
        "host": host or socket.gethostname(),
        "machine": machine(),
        "pid": os.getpid(),
        "started": started(os.getpid()),
        "token": uuid.uuid4().hex,
    }


def has_ended(claim: Row, beat: Row) -> bool:
    """Whether a process said so, or ran on this machine and does not exist any more."""
    if beat.get("ended"):
        return True
    return claim.get("machine") == machine() and started(claim["pid"]) != claim["started"]


def machine() -> str:
    """Equal where process ids mean the same: one boot of one machine, outside of containers."""
    parts = [socket.gethostname()]
    with suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
        parts.append(str(Path("/proc/self/ns/pid").readlink()))
    return " ".join(parts)


def started(process: int) -> str | None:
    """When a process started, by the system's own count; None if there is no such process."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return None
    except OSError:
        return "unknown"
    with suppress(OSError):  # the command's name may have spaces and brackets
        state, *rest = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        return None if state in "ZX" else rest[18]
    return "unknown"
