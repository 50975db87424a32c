"""Where jobs keep their results. A process works in a folder of its own, and publishes it whole."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from bcq.experiments.jobs import Job, directory_name, is_finished, with_needs
from bcq.experiments.leases import FolderPlace, Lease, Place
from bcq.system.errors import InputError
from bcq.system.files import Row, make_directory, sync_directory

OWN = ("lease-", "beat-", "generation-", "output.txt", "job.json", ".")  # not of a job's result
POINTERS = ("checkpoint.json", "batch.hdf5.partial/progress.json", "judged.json")
ATTEMPTS = 10  # to copy a folder that somebody may still write to


class Storage(Protocol):
    """What a worker needs to know about the place of results."""

    def is_finished(self, job: Job) -> bool:
        """Whether the result is there."""
        ...

    def place(self, job: Job) -> Place:
        """Where its leases are."""
        ...

    def prepare(self, job: Job, lease: Lease) -> Path:
        """A private folder with the job's inputs, and with what an earlier process left of it."""
        ...

    def push(self, job: Job, lease: Lease, private: Path) -> None:
        """Saves what there is so far, if the private folder is lost together with its machine."""
        ...

    def result(self, job: Job, lease: Lease, private: Path) -> Row:
        """What the entry of the end says about the result, which is complete now."""
        ...

    def settle(self, job: Job, end: Row) -> None:
        """Puts a published result where others look for it. Anybody may do so, also twice."""
        ...


def generation(number: int) -> str:
    """The folder of the process that holds this lease."""
    return f"generation-{number}"


def workplace(directory: Path) -> Path:
    """Where a job is worked on: in the newest private folder, else in the job's own."""
    found = max(generations(directory), default=None)
    return directory if found is None else directory / generation(found) / directory.name


def generations(directory: Path) -> Iterator[int]:
    """The numbers of the private folders that have the job's files."""
    for path in directory.glob(generation(0)[:-1] + "*"):
        number = path.name.rpartition("-")[2]
        if number.isdecimal() and (path / directory.name).is_dir():
            yield int(number)


class SharedFolder:
    """One folder that every process sees: private folders are inside those of the jobs."""

    def __init__(self, folder: Path):
        self.folder = folder

    def is_finished(self, job: Job) -> bool:
        """Whether its folder is marked as done."""
        return is_finished(job, self.folder)

    def place(self, job: Job) -> FolderPlace:
        """Its folder."""
        return FolderPlace(self.folder / directory_name(job))

    def prepare(self, job: Job, lease: Lease) -> Path:
        """Continues what the newest private folder has, or what an unleased process left."""
        directory = self.folder / directory_name(job)
        private = directory / generation(lease.number)
        make_directory(private)
        before = directory / generation(lease.number - 1) / directory.name
        if lease.after and before.is_dir():
            before.rename(private / directory.name)
        else:  # a process that was only stopped may go on to write there
            copy(directory, private / directory.name)
        for need in with_needs(job.needs):
            link = private / directory_name(need)
            link.unlink(missing_ok=True)
            link.symlink_to(Path("..", "..", directory_name(need)))
        for number in range(1, lease.number):
            shutil.rmtree(directory / generation(number), ignore_errors=True)
        return private

    def push(self, job: Job, lease: Lease, private: Path) -> None:
        """Everybody sees it already."""

    def result(self, job: Job, lease: Lease, private: Path) -> Row:
        """The files of the result."""
        own = private / directory_name(job)
        return {"files": sorted(str(path.relative_to(own)) for path in files_in(own))}

    def settle(self, job: Job, end: Row) -> None:
        """Moves the files to the job's folder, the mark of the end last.

        Every process moves the same files, so it does not matter who moves which.
        """
        directory = self.folder / directory_name(job)
        source, mark = directory / generation(end["done"]) / directory.name, "done.json"
        if not (directory / mark).exists():
            for name in (*(name for name in end["files"] if name != mark), mark):
                make_directory((directory / name).parent)
                move(source / name, directory / name)
            sync_directory(directory)
        for path in files_in(directory):  # of a process without a lease
            name = str(path.relative_to(directory))
            if name not in end["files"] and not name.startswith(OWN):
                path.unlink(missing_ok=True)
        for path in directory.glob(generation(0)[:-1] + "*"):
            shutil.rmtree(path, ignore_errors=True)


def move(source: Path, target: Path) -> None:
    """Moves a file, unless somebody else has done so."""
    try:
        source.replace(target)
    except FileNotFoundError:
        if not target.exists():
            raise InputError(f"{source}: is missing; remove {target.parent} to repeat it") from None
    except OSError as error:
        raise InputError(f"cannot write {target}: {error.strerror}") from error


def files_in(directory: Path) -> Iterator[Path]:
    """The files of a job in its folder and below it, without private folders."""
    for root, folders, names in os.walk(directory):
        folders[:] = [one for one in folders if not one.startswith(generation(0)[:-1])]
        yield from (Path(root) / name for name in names if not name.endswith(".tmp"))


def copy(directory: Path, target: Path) -> None:
    """Copies what was done of a job. Repeats it if a checkpoint was made in the meantime."""
    draft = target.with_name(".copy")
    for _ in range(ATTEMPTS):
        shutil.rmtree(draft, ignore_errors=True)
        make_directory(draft)
        source = workplace(directory)
        try:
            before = pointers(source)
            for path in files_in(source):
                name = path.relative_to(source)
                if not str(name).startswith(OWN):
                    make_directory((draft / name).parent)
                    shutil.copyfile(path, draft / name)
            if pointers(source) == before:
                draft.rename(target)
                return
        except FileNotFoundError:  # it was replaced by a newer one
            continue
    raise InputError(f"{source}: changes all the time; is another version of this software at it?")


def pointers(directory: Path) -> list[bytes]:
    """The files that name a consistent state."""
    paths = [directory / name for name in POINTERS]
    return [path.read_bytes() for path in paths if path.exists()]
