"""Results that travel through an object store: an S3 server of these tests, and two folders."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fsspec
import pytest
from moto.server import ThreadedMotoServer

from bcq.experiments import object_store
from bcq.experiments.jobs import directory_name, is_finished, perform
from bcq.experiments.leases import Lease, ReplacedError, acquire
from bcq.experiments.object_store import ObjectPlace, ObjectStore, opened, tried
from bcq.experiments.worker import work
from bcq.system.errors import InputError, InterruptionError
from test_leases import A, B, Count


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def address(server: str, monkeypatch: pytest.MonkeyPatch, request: Any) -> str:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_ENDPOINT_URL", server)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    fsspec.get_filesystem_class("s3").clear_instance_cache()  # one may know another server
    store = fsspec.filesystem("s3", endpoint_url=server)
    if not store.exists("bucket"):
        store.mkdir("bucket")
    return f"s3://bucket/{request.node.name}"


@pytest.fixture(params=["s3", "folder"])
def node(request: Any, tmp_path: Path) -> Any:
    """Makes nodes: each has a disk of its own, and all reach one store."""

    def make(name: str) -> ObjectStore:
        if request.param == "s3":
            place = opened(request.getfixturevalue("address"))
        else:
            place = fsspec.filesystem("file", auto_mkdir=True), str(tmp_path / "store")
        return ObjectStore(*place, cache=tmp_path / name)

    return make


def test_a_result_is_made_on_one_node_and_used_on_another(node: Any, tmp_path: Path) -> None:
    one, two = node("one"), node("two")
    work(A, one)
    work(B, two)
    work(B, one)
    assert one.is_finished(B)
    here = tmp_path / "here"
    for job in (A, B):
        one.fetch(job, here)
        assert is_finished(job, here)
        assert (here / directory_name(job) / "counted.txt").read_text() == "012"
    assert list((tmp_path / "two" / "work").iterdir()) == []  # nothing is left on the nodes
    assert not (tmp_path / "one" / directory_name(B)).exists()


def test_a_checkpoint_is_continued_on_another_node(node: Any, tmp_path: Path) -> None:
    one, two = node("one"), node("two")
    first = acquire(one.place(A))
    assert isinstance(first, Lease)
    private = one.prepare(A, first)
    own = private / directory_name(A)
    (own / "counted.txt").write_text("xy")
    one.push(A, first, private)  # nothing names a checkpoint yet
    (own / "checkpoint.json").write_text("{}")
    one.push(A, first, private)
    first.release()
    work(A, two)
    two.fetch(A, tmp_path / "here")
    assert (tmp_path / "here" / directory_name(A) / "counted.txt").read_text() == "xy2"
    with pytest.raises(ReplacedError):
        first.publish(one.result(A, first, private))


def test_what_is_interrupted_is_sent_first(
    node: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def stopped(self: Count, folder: Path) -> None:
        (folder / directory_name(self) / "counted.txt").write_text("ab")
        (folder / directory_name(self) / "checkpoint.json").write_text("{}")
        raise InterruptionError

    with monkeypatch.context() as patch:
        patch.setattr(Count, "perform", stopped)
        with pytest.raises(InterruptionError):
            work(A, node("one"))
    work(A, node("two"))
    node("two").fetch(A, tmp_path / "here")
    assert (tmp_path / "here" / directory_name(A) / "counted.txt").read_text() == "ab2"


def test_what_another_engine_made_is_offered_once(node: Any, tmp_path: Path) -> None:
    perform(A, tmp_path / "here")
    store = node("one")
    store.offer(A, tmp_path / "here")
    store.offer(A, tmp_path / "here")
    work(B, node("two"))
    assert sorted(name for name in store.place(A).names() if name.startswith("lease")) == [
        "lease-1.json",
        "lease-2.json",
    ]


def test_an_unfinished_result_cannot_be_fetched(node: Any, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the result of a is not in the store"):
        node("one").fetch(A, tmp_path)
    assert list(tmp_path.glob(".*")) == []


def test_an_object_is_created_once(address: str) -> None:
    place = ObjectPlace(*opened(address))
    assert place.names() == []
    assert place.create("x", {"a": 1})
    assert not place.create("x", {"a": 2})
    assert place.read("x") == {"a": 1}
    place.replace("x", {"a": 3})
    assert place.read("x") == {"a": 3}
    assert place.names() == ["x"]
    assert place.read("y") is None


@dataclass
class Unreliable:
    """A store that loses requests: some before they are done, some after."""

    inner: Any
    calls: int = 0
    lost: list[str] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.inner, name)

        def call(*words: Any, **options: Any) -> Any:
            self.calls += 1
            if self.calls % 3 == 1:
                self.lost.append(name)
                if self.calls % 2:
                    method(*words, **options)
                raise OSError("connection lost")
            return method(*words, **options)

        return call


def test_a_lost_push_is_repeated(
    node: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(object_store, "PAUSE", 0.001)
    store = node("one")
    store.store = Unreliable(store.store)
    work(A, store)
    assert {"pipe_file", "put_file"} <= set(store.store.lost)
    node("two").fetch(A, tmp_path / "here")
    assert json.loads((tmp_path / "here" / directory_name(A) / "done.json").read_text())
    assert len([name for name in store.place(A).names() if name.startswith("lease")]) == 2


def test_a_store_that_never_answers_is_an_error_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_store, "PAUSE", 0.001)

    def fail() -> None:
        raise OSError("connection lost")

    with pytest.raises(InputError, match="x: the store does not answer: connection lost"):
        tried(fail, "x")


def test_other_kinds_of_stores_are_refused() -> None:
    with pytest.raises(InputError, match=r"only s3:// is known to create objects without"):
        opened("ftp://host/folder")
