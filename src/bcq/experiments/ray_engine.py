"""Jobs as tasks of a Ray cluster. Only `imported` imports Ray, and only when it is asked for."""

import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bcq.experiments.jobs import Job, directory_name, with_needs
from bcq.experiments.leases import LEASE, entry, newest
from bcq.experiments.object_store import ObjectStore, opened
from bcq.experiments.ray_nodes import examine
from bcq.experiments.storage import SharedFolder
from bcq.system.errors import BCQError, InputError
from bcq.system.files import Row

RETRIES = 5  # of a job whose process or node dies
CALLS = 500  # jobs that a process does before a new one takes its place, should memory be lost
SAVING = 60.0  # seconds that a job has to save and stop
REACH = 5.0  # seconds to reach an address
OWN = """
import sys, ray
started = ray.init("local", include_dashboard=False, log_to_driver=False, logging_level="ERROR")
print(started.address_info["gcs_address"], flush=True)
sys.stdin.read()
"""


def imported(*, loopback: bool = False) -> Any:
    """Ray, without reports to its makers and with few words; reachable from outside, or not."""
    if loopback:  # whatever the name says, it makes every address 127.0.0.1
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # as it will be; else it warns
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # or a node that dies prints pages
    os.environ.setdefault("RAY_worker_niceness", "0")  # as our own workers; Ray's usual one is 15
    import ray  # noqa: PLC0415 - an extra, and it takes a second
    import ray.exceptions  # noqa: PLC0415
    import ray.util.scheduling_strategies  # noqa: PLC0415

    return ray


@dataclass(frozen=True)
class RayTask:
    """A job in the cluster: it waits for a node, runs, or is run again on another one."""

    ray: Any
    reference: Any
    answer: "Future[str]"
    job: Job
    folder: Path
    store: ObjectStore | None = None

    def poll(self) -> int | None:
        """0 if it ended well, 1 if not."""
        if not self.answer.done():
            return None
        try:
            line = self.answer.result()
            if self.store is not None and not line:
                self.store.fetch(self.job, self.folder)
            elif self.store is not None:
                self.note(line)
        except self.ray.exceptions.RayError as error:
            line = f"lost by the cluster, also when repeated: {' '.join(str(error).split())[:300]}"
            self.note(line)
        except BCQError as error:
            line = str(error)
            self.note(line)
        return 1 if line else 0

    def note(self, line: str) -> None:
        """Writes what no worker could write to the job's folder."""
        path = self.folder / directory_name(self.job) / "output.txt"
        with suppress(OSError), path.open("a") as output:
            output.write(f"bcq: {line}\n")

    def stop(self) -> None:
        """Asks it to save and stop; kills it if it does not."""
        for force in (False, True):
            with suppress(self.ray.exceptions.RayError, ValueError):
                self.ray.cancel(self.reference, force=force)
            if wait([self.answer], SAVING).done:
                return

    def where(self) -> str:
        """The node that has the job, or had it last, and how often it was begun."""
        with suppress(BCQError):
            place = (self.store or SharedFolder(self.folder)).place(self.job)
            number, claim = newest(place)
            if "done" in claim:
                number = int(claim["done"])
                claim = place.read(entry(number)) or {}
            if number:
                again = f", begun {number} times" if number > 1 else ""
                return f"on {claim.get('host')}{again}"
        return "waits for a node"


@dataclass
class RayCluster:
    """Every job is a task; the cluster finds the node."""

    ray: Any
    gpus: float = 0.0  # that a job has, such as 0.25; 0: it computes on one core
    lease: float = LEASE
    store: str | None = None  # address of an object store; None: all nodes see the folder
    counted: float = field(default=0.0, init=False)
    known: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        resources = {"num_gpus": self.gpus} if self.gpus else {"num_cpus": 1}
        self.task = self.ray.remote(
            **resources, max_retries=RETRIES, retry_exceptions=False, max_calls=CALLS
        )(task())
        self.opened = None if self.store is None else ObjectStore(*opened(self.store))

    @property
    def slots(self) -> int:
        """As many as the nodes have, which may come and go."""
        if time.monotonic() - self.counted > 1:
            self.counted = time.monotonic()
            resources = self.ray.cluster_resources()
            share = resources.get("GPU", 0) / self.gpus if self.gpus else resources.get("CPU", 0)
            self.known = int(share)
        return self.known

    def start(self, job: Job, folder: Path, slot: int) -> RayTask:
        """Hands a job to the cluster."""
        del slot
        if self.opened is not None:
            for need in with_needs(job.needs):  # may have been made on this machine
                self.opened.offer(need, folder)
        words = (job.as_json(), str(folder.resolve()), self.lease, self.gpus, self.store)
        reference = self.task.options(name=job.name).remote(*words)
        return RayTask(self.ray, reference, reference.future(), job, folder, self.opened)


def task() -> Callable[[Row, str, float, float, str | None], str]:
    """What a node does. Sent as code, so that it can tell that a node has no bcq."""

    def run(told: Row, folder: str, lease: float, gpus: float, store: str | None) -> str:
        import os  # noqa: PLC0415 - on another machine
        import socket  # noqa: PLC0415

        import ray  # noqa: PLC0415

        host = f"{socket.gethostname()}-{ray.get_runtime_context().get_node_id()[:6]}"
        if not gpus:
            os.environ.setdefault("JAX_PLATFORMS", "cpu")
        elif gpus < 1:
            os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
        try:
            from bcq.experiments.cores import on_a_free_core  # noqa: PLC0415

            with on_a_free_core():  # before JAX makes its threads
                from bcq.experiments.ray_worker import do  # noqa: PLC0415

                return do(told, folder, lease, host, store)
        except ImportError as error:
            return f"node {host} cannot import bcq: {error}"

    return run


@contextmanager
def connected(
    address: str | None,
    folder: Path,
    *,
    gpus: float = 0.0,
    store: str | None = None,
    lease: float = LEASE,
) -> Iterator[RayCluster]:
    """The cluster at an address, or one on this machine. It is left, and ended if it is ours."""
    if find_spec("ray") is None:
        raise InputError("Ray is not installed", option="ray")
    known = address or running_here()
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    with started() if known is None else nullcontext(known) as there:
        ray = imported(loopback=there.startswith(("127.", "localhost:")))
        reach(ray, there)
        for number, handler in handlers.items():  # Ray sets its own
            signal.signal(number, handler)
        try:
            examine(ray, folder, shared=store is None)
            engine = RayCluster(ray, gpus=gpus, lease=lease, store=store)
            if not engine.slots:
                what = "GPU" if gpus else "CPU"
                raise InputError(f"the Ray cluster has no node with a {what} for a job")
            yield engine
        finally:
            ray.shutdown()


def running_here() -> str | None:
    """The address of the cluster that this machine is a node of, if there is one."""
    folder = os.environ.get("RAY_TMPDIR") or os.environ.get("TMPDIR") or "/tmp"  # as Ray does
    note = Path(folder) / "ray" / "ray_current_cluster"
    known = os.environ.get("RAY_ADDRESS") or (note.read_text().strip() if note.exists() else "")
    return known if known and is_reachable(known) else None


@contextmanager
def started() -> Iterator[str]:
    """A cluster of this machine alone, which ends with the block, and its address.

    Another process starts it: Ray forks, which is not safe in a process that uses JAX. It ends the
    cluster when its input ends, also if this process is killed. Who wants to use the cluster must
    know a word that is made up here: other users of this machine could run code otherwise.
    """
    own = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    before = {name: os.environ.get(name) for name in own}
    os.environ.update(own, RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER="0", RAY_worker_niceness="0")
    process = subprocess.Popen(
        [sys.executable, "-c", OWN],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        words = process.stdout.readline().split()
        if not words:
            raise InputError("Ray does not start on this machine; try `ray start --head`")
        yield words[-1]
    finally:
        process.communicate(timeout=SAVING)
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


def is_reachable(address: str) -> bool:
    """Whether something listens at an address."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), REACH).close()
    except (OSError, OverflowError, ValueError):
        return False
    return True


def reach(ray: Any, address: str) -> None:
    """Connects, or says in one line why not."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or "/" in host:
        raise InputError(f"{address}: is not the address of a Ray cluster, such as 10.0.0.1:6379")
    if not is_reachable(address):
        raise InputError(
            f"no Ray cluster at {address}; `ray start --head` starts one and prints its address"
        )
    try:
        with silent():  # it would say that it found RAY_BACKEND_LOG_LEVEL
            ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    except ConnectionError as error:
        raise InputError(
            f"no Ray cluster answers at {address}; if it asks for a token, set RAY_AUTH_TOKEN"
        ) from error
    except (RuntimeError, ValueError, self_made(ray)) as error:
        line = " ".join(str(error).split())[:300]
        raise InputError(f"the Ray cluster at {address} cannot be used: {line}") from error


@contextmanager
def silent() -> Iterator[None]:
    """Discards what libraries print to stderr without Python."""
    kept = os.dup(2)
    try:
        with Path(os.devnull).open("w") as nothing:
            os.dup2(nothing.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def self_made(ray: Any) -> type[Exception]:
    """The errors of Ray."""
    found: type[Exception] = ray.exceptions.RayError
    return found
