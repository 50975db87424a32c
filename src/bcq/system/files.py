"""Writing files so that an interruption leaves either the old one or the new one."""

import fcntl
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from bcq.system.errors import InputError


def require_regular(path: Path) -> None:
    """Refuses a path that exists but is not a regular file: reading a pipe may never end."""
    if path.is_dir():
        raise InputError(f"{path}: is a folder; give a file")
    if path.exists() and not path.is_file():
        raise InputError(f"{path}: is a pipe, a socket or a device; give a regular file")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yields a temporary path to write to; on success it is synced and takes the name `path`."""
    require_regular(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
        sync_directory(path.parent)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        with suppress(OSError):  # it may not exist, nor its folder
            temporary.unlink()


def write_text(path: Path, text: str) -> None:
    """Replaces the file's whole content, atomically."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, content: Any) -> None:
    """Replaces a file by JSON that people can read."""
    write_text(path, json.dumps(content, indent=2) + "\n")


def last_line(path: Path) -> str:
    """The last line of a log, or a note that the log is empty."""
    text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
    lines = [line for line in text.replace("\r", "\n").split("\n") if line.strip()]
    return lines[-1] if lines else "it ended without output"


def make_directory(path: Path) -> None:
    """Creates the folder and its parents if they do not exist."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot create folder {path}: {error.strerror or error}") from error


def sync_directory(path: Path) -> None:
    """Makes a rename inside the folder survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


Row = dict[str, Any]


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Prevents two processes from writing to a folder at the same time."""
    path = directory / ".lock"
    require_regular(path)
    try:
        file = path.open("w")
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            words = "another process is writing to this folder; wait until it has finished"
            raise InputError(f"{directory}: {words}") from error
        yield


def as_json_lines(rows: Iterable[Row]) -> str:
    """Rows as JSON, one per line."""
    return "".join(json.dumps(row, allow_nan=False) + "\n" for row in rows)


def read_json(path: Path) -> Row:
    """Reads a JSON object from a file."""
    require_regular(path)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: cannot be read as JSON: {error}") from error
    if not isinstance(content, dict):
        raise InputError(f"{path}: must contain a JSON object")
    return content
