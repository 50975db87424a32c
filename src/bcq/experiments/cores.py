"""One core for one job, among workers of a node that do not know of each other.

XLA makes as many compute threads as a process may use cores, so this is imported before JAX is.
"""

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

ALL = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


def node_folder() -> Path:
    """A folder on this machine's own disk, for this user."""
    folder = Path(tempfile.gettempdir()) / f"bcq-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    return folder


@contextmanager
def on_a_free_core(number: int = 1) -> Iterator[None]:
    """Restricts this process to cores that no other worker uses, or to some if none is free."""
    taken = dict[int, IO[str]]()
    for core in ALL:
        if len(taken) < number and (lock := locked(core)) is not None:
            taken[core] = lock
    usual = [ALL[(os.getpid() + i) % len(ALL)] for i in range(number)] if ALL else []
    move_to(set(taken) if len(taken) == number else set(usual))
    try:
        yield
    finally:
        for lock in taken.values():
            lock.close()


def locked(core: int) -> IO[str] | None:
    """The lock of a core, if nobody has it. The system unlocks it when a process ends."""
    file = (node_folder() / f"core-{core}.lock").open("w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        return None
    return file


def move_to(cores: set[int]) -> None:
    """Moves every thread of this process. Those that it starts later follow."""
    if not cores:
        return  # the system cannot do it
    for thread in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # it has just ended
            os.sched_setaffinity(int(thread.name), cores)
