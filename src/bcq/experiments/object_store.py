"""Results in an object store, for machines that share no folder.

A worker fetches the inputs of its job to the disk of its node, works there, and sends every
checkpoint to the store. Objects are never changed: a small file that lists them is written last.
"""

import json
import shutil
import time
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from bcq.experiments.cores import node_folder
from bcq.experiments.jobs import Job, directory_name, with_needs
from bcq.experiments.leases import Lease, acquire, newest
from bcq.experiments.storage import copy, files_in, generation, pointers
from bcq.system.errors import InputError
from bcq.system.files import Row, make_directory

TRIES, PAUSE = 6, 0.5  # of a request that fails, and seconds after the first failure
SNAPSHOT = "snapshot.json"
Answer = TypeVar("Answer")


def tried(request: Callable[[], Answer], what: str) -> Answer:
    """Repeats a request that fails, each time after a longer pause."""
    for attempt in range(TRIES):
        try:
            return request()
        except (FileNotFoundError, FileExistsError):
            raise
        except OSError as error:
            if attempt == TRIES - 1:
                raise InputError(f"{what}: the store does not answer: {error}") from error
            time.sleep(PAUSE * 2**attempt)
    raise AssertionError


@dataclass(frozen=True)
class ObjectPlace:
    """The small files of one job in a store that can create an object only if there is none."""

    store: Any  # a file system of fsspec
    root: str

    def create(self, name: str, content: Row) -> bool:
        """A conditional put."""
        path, data = f"{self.root}/{name}", json.dumps(content).encode()
        try:
            tried(lambda: self.store.pipe_file(path, data, mode="create"), path)
        except FileExistsError:
            return False
        return True

    def replace(self, name: str, content: Row) -> None:
        """A put."""
        path, data = f"{self.root}/{name}", json.dumps(content).encode()
        tried(lambda: self.store.pipe_file(path, data), path)

    def read(self, name: str) -> Row | None:
        """The content of an object."""
        path = f"{self.root}/{name}"
        try:
            found: Row = json.loads(tried(lambda: self.store.cat_file(path), path))
        except FileNotFoundError:
            return None
        return found

    def names(self) -> list[str]:
        """The objects of the job, without those in folders."""
        try:
            found = tried(lambda: self.store.ls(self.root, detail=False, refresh=True), self.root)
        except FileNotFoundError:
            return []
        return [str(path).rstrip("/").rpartition("/")[2] for path in found]


def opened(address: str) -> tuple[Any, str]:
    """The store at an address, and the path in it."""
    if not address.startswith("s3://"):
        raise InputError(f"{address}: only s3:// is known to create objects without replacing them")
    try:
        import fsspec  # noqa: PLC0415 - an extra
        import s3fs  # noqa: F401, PLC0415
    except ImportError as error:
        raise InputError("s3fs is not installed", option="store") from error
    try:
        store, root = fsspec.core.url_to_fs(address, use_listings_cache=False)
        tried(lambda: store.exists(root), address)
    except (OSError, ValueError, ImportError) as error:
        raise InputError(f"{address}: cannot be opened: {error}") from error
    return store, str(root)


@dataclass
class ObjectStore:
    """Jobs in a store; what a node has fetched stays in its cache."""

    store: Any
    root: str
    cache: Path = field(default_factory=lambda: node_folder() / "results")
    sent: list[bytes] = field(default_factory=list)  # what named the checkpoint that was sent last

    def path(self, job: Job, *parts: str) -> str:
        """A place of a job in the store."""
        return "/".join((self.root, directory_name(job), *parts))

    def place(self, job: Job) -> ObjectPlace:
        """Where its leases are."""
        return ObjectPlace(self.store, self.path(job))

    def end(self, job: Job) -> Row | None:
        """The entry that published the job's result."""
        last = newest(self.place(job))[1]
        return last if "done" in last else None

    def is_finished(self, job: Job) -> bool:
        """Whether the result is in the store."""
        return self.end(job) is not None

    def prepare(self, job: Job, lease: Lease) -> Path:
        """Fetches the inputs, and the last checkpoint that an earlier process sent."""
        private = self.cache / "work" / f"{directory_name(job)}-{lease.claim['token']}"
        make_directory(private)
        for need in with_needs(job.needs):
            self.fetch(need, self.cache)
            (private / directory_name(need)).symlink_to(self.cache / directory_name(need))
        own = private / directory_name(job)
        make_directory(own)
        for number in range(lease.number - 1, 0, -1):
            place = ObjectPlace(self.store, self.path(job, generation(number)))
            if (snapshot := place.read(SNAPSHOT)) is not None:
                self.download(snapshot["files"], own)
                break
        return private

    def push(self, job: Job, lease: Lease, private: Path) -> None:
        """Sends the last checkpoint, if it is new."""
        own, draft = private / directory_name(job), private / ".push"
        if not (state := pointers(own)) or state == self.sent:
            return
        shutil.rmtree(draft, ignore_errors=True)
        make_directory(draft)
        copy(own, draft / own.name)
        names = {str(path.relative_to(draft / own.name)) for path in files_in(draft / own.name)}
        files = self.upload(job, lease, draft / own.name, names)
        place = ObjectPlace(self.store, self.path(job, generation(lease.number)))
        place.replace(SNAPSHOT, {"files": files})
        self.sent = pointers(draft / own.name)

    def result(self, job: Job, lease: Lease, private: Path) -> Row:
        """Sends every file; the entry of the end says which objects they are."""
        own = private / directory_name(job)
        names = {str(path.relative_to(own)) for path in files_in(own)}
        return {"files": self.upload(job, lease, own, names)}

    def settle(self, job: Job, end: Row) -> None:
        """The entry of the end is all that others need."""

    def upload(
        self, job: Job, lease: Lease, directory: Path, names: Iterable[str]
    ) -> dict[str, str]:
        """Sends files as new objects, and returns their names in the store."""
        files = {}
        for name in sorted(names):
            thing = self.path(job, generation(lease.number), uuid.uuid4().hex)
            tried(partial(self.store.put_file, str(directory / name), thing), thing)
            files[name] = thing.removeprefix(self.root + "/")
        return files

    def download(self, files: dict[str, str], target: Path) -> None:
        """Fetches objects as files."""
        for name, thing in files.items():
            make_directory((target / name).parent)
            path = f"{self.root}/{thing}"
            tried(partial(self.store.get_file, path, str(target / name)), path)

    def fetch(self, job: Job, folder: Path) -> None:
        """Puts a published result into a folder, whole or not at all, if it is not there yet."""
        target = folder / directory_name(job)
        if (target / "done.json").exists():
            return
        end = self.end(job)
        if end is None:
            raise InputError(f"{self.path(job)}: the result of {job.name} is not in the store")
        draft = folder / f".{uuid.uuid4().hex}"
        try:
            self.download(end["files"], draft)
            make_directory(target)
            names = sorted(end["files"], key=lambda name: name == "done.json")  # the mark last
            for name in names:
                make_directory((target / name).parent)
                (draft / name).replace(target / name)
        finally:
            shutil.rmtree(draft, ignore_errors=True)

    def offer(self, job: Job, folder: Path) -> None:
        """Sends a result that another engine made."""
        if self.is_finished(job):
            return
        lease = acquire(self.place(job))
        if isinstance(lease, Lease):
            own = folder / directory_name(job)
            names = {str(path.relative_to(own)) for path in files_in(own)}
            kept = {name for name in names if not name.startswith(("lease-", "beat-"))}
            lease.publish({"files": self.upload(job, lease, own, kept)})
