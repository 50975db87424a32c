"""One job in a process of its own: `python -m bcq.experiments.worker FOLDER JOB [CORE]`."""

import os
import signal
import sys
import threading
import time
from pathlib import Path

from bcq.experiments.jobs import perform
from bcq.experiments.kinds import from_json
from bcq.runs.origin import use_compilation_cache
from bcq.system import interruption
from bcq.system.errors import BCQError, InterruptionError
from bcq.system.files import read_json

WATCH = 0.5  # seconds between two looks at the parent


def stay_on(core: int) -> None:
    """Confines this process to one core, and with it the threads that compute."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {core})


def end_with(parent: int) -> None:
    """Ends this process when the one that started it is gone, however it went."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(WATCH)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()


def main() -> None:
    """Does the job that FOLDER/JOB/job.json describes; says in one line why it cannot."""
    folder, name, *core = sys.argv[1:]
    with interruption.watched():
        end_with(os.getppid())
        if core:
            stay_on(int(core[0]))
        use_compilation_cache()
        try:
            perform(from_json(read_json(Path(folder) / name / "job.json")), Path(folder))
        except InterruptionError:
            sys.exit(interruption.exit_code())  # the runner says what there is to say
        except KeyboardInterrupt:
            os._exit(interruption.exit_code())
        except BCQError as error:
            sys.exit(f"bcq: {error}")


if __name__ == "__main__":
    main()
