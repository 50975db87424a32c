"""Does one job in a separate process: `python -m bcq.experiments.worker FOLDER JOB [CORE]`."""

import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from bcq.experiments.forms import from_json
from bcq.experiments.jobs import Job, perform
from bcq.experiments.leases import LEASE, Lease, ReplacedError, acquire, kept, replaced
from bcq.experiments.storage import SharedFolder, Storage
from bcq.runs.origin import use_compilation_cache
from bcq.system import interruption
from bcq.system.errors import BCQError, InterruptionError
from bcq.system.files import read_json

SEND = 10.0  # seconds between two looks for a checkpoint to send to a store
WATCH = 0.5  # seconds between two checks of the parent


def stay_on(core: int) -> None:
    """Restricts this process and its compute threads to one core."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {core})


@contextmanager
def staying_on(core: int) -> Iterator[None]:
    """Restricts this process to one core for a while."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    stay_on(core)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def end_with(parent: int) -> None:
    """Ends this process when its parent has ended, for any reason."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(WATCH)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()


def work(job: Job, storage: Storage, *, lease: float = LEASE, host: str | None = None) -> None:
    """Does a job in a private folder under a lease, and publishes the result if it holds it."""
    if storage.is_finished(job):
        return
    held = acquire(storage.place(job), lease=lease, host=host)
    if not isinstance(held, Lease):
        storage.settle(job, held)
        return
    try:
        with kept(held, lease, dict) as lost:
            private = storage.prepare(job, held)
            with sent(lambda: storage.push(job, held, private)):
                perform(job, private)
            result = storage.result(job, held, private)
        end = held.publish(result)
    except (OSError, BCQError) as error:  # who takes over also removes the private folder
        if lost.is_set() or not held.held():
            raise ReplacedError(replaced(held.place, held.number)) from error
        raise
    finally:
        with suppress(OSError, BCQError):  # it would run out
            held.release()
    storage.settle(job, end)
    shutil.rmtree(private, ignore_errors=True)


@contextmanager
def sent(push: Callable[[], None]) -> Iterator[None]:
    """Sends checkpoints within the block, and once more at its end."""
    over = threading.Event()

    def keep() -> None:
        while not over.wait(SEND):
            with suppress(OSError, BCQError):  # the next one may succeed
                push()

    thread = threading.Thread(target=keep, daemon=True)
    thread.start()
    try:
        yield
    except BaseException:
        over.set()
        thread.join()
        with suppress(OSError, BCQError):
            push()
        raise
    finally:
        over.set()
        thread.join()


def main() -> None:
    """Does the job of FOLDER/JOB/job.json; an error is one line."""
    folder, name, *core = sys.argv[1:]
    with interruption.watched():
        end_with(os.getppid())
        if core:
            stay_on(int(core[0]))
        use_compilation_cache()
        try:
            job = from_json(read_json(Path(folder) / name / "job.json"))
            work(job, SharedFolder(Path(folder)))
        except InterruptionError:
            sys.exit(interruption.exit_code())  # the runner prints the message
        except KeyboardInterrupt:
            os._exit(interruption.exit_code())
        except BCQError as error:
            sys.exit(f"bcq: {error}")


if __name__ == "__main__":
    main()
