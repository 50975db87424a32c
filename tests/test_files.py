"""Files that are written whole or not at all, and what is said of those that cannot be."""

import os
from pathlib import Path

import pytest

from bcq.system.errors import InputError
from bcq.system.files import (
    as_json_lines,
    last_line,
    locked,
    make_directory,
    read_json,
    replacing,
    require_regular,
    write_json,
    write_text,
)


def test_what_is_written_replaces_the_file_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "note.txt"
    write_text(path, "old")
    write_text(path, "größer als zuvor")
    assert path.read_bytes().decode() == "größer als zuvor"
    assert list(tmp_path.iterdir()) == [path]


def test_json_is_written_for_people(tmp_path: Path) -> None:
    write_json(tmp_path / "notes.json", {"one": [1.5], "two": None})
    written = (tmp_path / "notes.json").read_text()
    assert written == '{\n  "one": [\n    1.5\n  ],\n  "two": null\n}\n'


def test_the_old_file_stays_until_the_new_one_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "note.txt"
    write_text(path, "old")
    with replacing(path) as temporary:
        temporary.write_text("half of it")
        assert temporary.parent == tmp_path
        assert temporary.name == f".note.txt.{os.getpid()}.tmp"  # hidden
        assert path.read_text() == "old"
    assert path.read_text() == "half of it"


@pytest.mark.parametrize("failure", [RuntimeError, KeyboardInterrupt])
def test_a_failure_leaves_the_old_file_alone(failure: type[BaseException], tmp_path: Path) -> None:
    path = tmp_path / "note.txt"
    write_text(path, "old")

    def fail() -> None:
        with replacing(path) as temporary:
            temporary.write_text("half of it")
            raise failure

    with pytest.raises(failure):
        fail()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_content_and_name_are_on_the_disk_before_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is synced under its temporary name, then the folder, in which it has its own."""
    path = tmp_path / "note.txt"
    folder = tmp_path.stat().st_ino
    synced: list[tuple[bool, bool]] = []
    descriptors: list[int] = []

    def record(descriptor: int) -> None:
        synced.append((os.fstat(descriptor).st_ino == folder, path.exists()))
        descriptors.append(descriptor)

    monkeypatch.setattr(os, "fsync", record)
    write_text(path, "new")
    assert synced == [(False, False), (True, True)]
    for descriptor in descriptors:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)


def test_two_processes_write_to_different_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with replacing(tmp_path / "note.txt") as one:
        one.write_text("one")
        monkeypatch.setattr(os, "getpid", lambda: 1)
        with replacing(tmp_path / "note.txt") as other:
            other.write_text("other")
        assert (tmp_path / "note.txt").read_text() == "other"
    assert (tmp_path / "note.txt").read_text() == "one"


def test_what_is_no_regular_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").touch()
    for name in ("file", "missing"):
        require_regular(tmp_path / name)
    with pytest.raises(InputError, match="is a folder"):
        require_regular(tmp_path)
    for refused in (require_regular, lambda path: write_text(path, "text")):
        with pytest.raises(InputError, match="is a pipe, a socket or a device"):
            refused(tmp_path / "pipe")


def test_a_place_that_cannot_be_written_is_named_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot write .*note.txt: No such file or directory"):
        write_text(tmp_path / "missing" / "note.txt", "text")
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"cannot create folder .*inner: Not a directory"):
        make_directory(tmp_path / "file" / "inner")
    with pytest.raises(InputError, match="cannot write"), replacing(tmp_path / "note.txt"):
        raise OSError("for a reason without a number")


def test_a_folder_is_made_with_its_parents_and_may_be_there(tmp_path: Path) -> None:
    make_directory(tmp_path / "one" / "two")
    make_directory(tmp_path / "one" / "two")
    assert (tmp_path / "one" / "two").is_dir()


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (b"first\nlast\n", "last"),
        (b"first\nlast\n \n\n", "last"),
        (b" 10%\r 20%\r 30%", " 30%"),
        (b"one\r\ntwo\r\n", "two"),
        (b"\xff broken", "\ufffd broken"),
        (b"", "it ended without output"),
        (b"\n \n", "it ended without output"),
    ],
)
def test_the_last_line_of_a_log_is_its_last_words(text: bytes, line: str, tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(text)
    assert last_line(tmp_path / "log") == line
    assert last_line(tmp_path / "missing") == "it ended without output"


def test_a_folder_is_locked_until_the_writer_has_finished(tmp_path: Path) -> None:
    with locked(tmp_path):
        words = f"{tmp_path}: another process is writing to this folder"
        with pytest.raises(InputError, match=words), locked(tmp_path):
            pytest.fail("locked twice")
    with locked(tmp_path):
        assert [path.name for path in tmp_path.iterdir()] == [".lock"]


def test_a_folder_that_cannot_be_locked_is_named(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    with pytest.raises(InputError, match=f"cannot write {missing / '.lock'}: No such file"):
        locked(missing).__enter__()
    (tmp_path / ".lock").mkdir()
    with pytest.raises(InputError, match=r"\.lock: is a folder"):
        locked(tmp_path).__enter__()


def test_rows_of_json_are_one_a_line_and_have_only_numbers() -> None:
    assert as_json_lines([{"a": 1}, {"b": [0.5, None]}]) == '{"a": 1}\n{"b": [0.5, null]}\n'
    assert as_json_lines([]) == ""
    with pytest.raises(ValueError, match="JSON"):
        as_json_lines([{"a": float("nan")}])


def test_what_is_no_json_object_is_named(tmp_path: Path) -> None:
    path = tmp_path / "notes.json"
    path.write_text('{"größe": 1}', encoding="utf-8")
    assert read_json(path) == {"größe": 1}
    with pytest.raises(InputError, match="is a folder"):
        read_json(tmp_path)
    for text, words in (("{", "cannot be read as JSON"), ("[1]", "must contain a JSON object")):
        path.write_text(text)
        with pytest.raises(InputError, match=f"{path}: {words}"):
            read_json(path)
