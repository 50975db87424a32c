"""What a node of a Ray cluster does for a job."""

import os
import signal
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path

import jax

from bcq.experiments.cores import node_folder
from bcq.experiments.forms import from_json
from bcq.experiments.jobs import directory_name
from bcq.experiments.object_store import ObjectStore, opened
from bcq.experiments.storage import SharedFolder, Storage
from bcq.experiments.worker import work
from bcq.runs.origin import use_compilation_cache
from bcq.system import interruption
from bcq.system.errors import BCQError, InterruptionError
from bcq.system.files import Row, make_directory


def do(told: Row, folder: str, lease: float, host: str, store: str | None) -> str:
    """Does a job. The result says what went wrong; it is empty if nothing did.

    An error of the job is a result: Ray repeats a task only if its process or its node dies.
    """
    job = from_json(told)
    use_compilation_cache(node_folder())
    storage: Storage = SharedFolder(Path(folder)) if store is None else ObjectStore(*opened(store))
    home = Path(folder) if store is None else node_folder() / "output"
    directory = home / directory_name(job)
    make_directory(directory)
    # Ray cancels a task by SIGINT, which is ignored if the node was started in the background.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with writing_to(directory / "output.txt"), interruption.watched():
        try:
            work(job, storage, lease=lease, host=host)
        except InterruptionError:
            return "interrupted"
        except BCQError as error:
            print(f"bcq: {error}", file=sys.stderr)
            return str(error)
        except Exception as error:
            traceback.print_exc()
            return repr(error)
        finally:
            jax.clear_caches()  # type: ignore[no-untyped-call] # or each job adds 24 MB of programs
    return ""


@contextmanager
def writing_to(path: Path) -> Iterator[None]:
    """Sends what this process prints to a file, also what libraries print without Python."""
    with path.open("a", encoding="utf-8", buffering=1) as file:
        kept = {number: os.dup(number) for number in (1, 2)}
        try:
            for number in kept:
                os.dup2(file.fileno(), number)
            with redirect_stdout(file), redirect_stderr(file):
                yield
        finally:
            for number, before in kept.items():
                os.dup2(before, number)
                os.close(before)
