"""The Ray engine, on a cluster of two nodes on this machine."""

import io
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import fsspec
import jax
import pytest
from moto.server import ThreadedMotoServer

from bcq.algorithms import BCConfig
from bcq.cli.application import main
from bcq.experiments import board as boards
from bcq.experiments import ray_engine, ray_nodes, ray_worker
from bcq.experiments.board import Outcome
from bcq.experiments.cores import on_a_free_core
from bcq.experiments.engines import EngineChoice
from bcq.experiments.jobs import Job, directory_name, perform
from bcq.experiments.kinds import Batch, Training
from bcq.experiments.ray_engine import RayCluster, RayTask, connected
from bcq.experiments.ray_nodes import require_usable
from bcq.experiments.runner import run_jobs
from bcq.experiments.storage import workplace
from bcq.runs.schedules import Schedule
from bcq.system.errors import InputError
from ray_cluster import LOOPBACK, ClusterProcess

needs_ray = pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed")
AWS = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_DEFAULT_REGION": "us-east-1"}
PATIENCE = 120.0
LEASE = 2.0
BATCH = Batch("random", "Pendulum-v1", 100, 0)
NOWHERE = Batch("random", "Nowhere-v0", 50, 0)
SHORT = Training(
    BCConfig(hidden_sizes=(8,)),
    Schedule(steps=200, seed=1, env="Pendulum-v1", evaluate_every=200, evaluate_episodes=1),
    BATCH,
)
LONG = replace(
    SHORT,
    schedule=replace(SHORT.schedule, steps=10_000_000, evaluate_every=10_000_000),
)
SAME = ("batch.json", "metrics.jsonl", "episodes.jsonl", "measures.json", "step-200.safetensors")


@pytest.fixture(scope="module")
def cluster() -> Iterator[ClusterProcess]:
    """A head that does no work, and two nodes with a core each; an S3 server that they know."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    fsspec.get_filesystem_class("s3").clear_instance_cache()  # one may know another server
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        for name, value in AWS.items():
            patch.setenv(name, value)
        for name, value in LOOPBACK.items():
            patch.setenv(name, value)
        patch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        # Its own folder for everything: a path for sockets must be short, unlike those of pytest.
        found = ClusterProcess(TMPDIR=folder)
        try:
            for _ in range(2):
                found.add()
            yield found
        finally:
            found.shutdown()
            server.stop()


@pytest.fixture(scope="module")
def engine(
    cluster: ClusterProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RayCluster]:
    """One connection for all tests: workers are kept and need not import everything again."""
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with connected(cluster.address, tmp_path_factory.mktemp("jobs"), lease=LEASE) as engine:
        assert [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)] == handlers
        yield engine


def run(jobs: list[Job], folder: Path, engine: RayCluster) -> tuple[Outcome, str]:
    screen = io.StringIO()
    return run_jobs(jobs, folder, engine, screen=screen), screen.getvalue()


def claims(folder: Path, job: Job) -> list[Any]:
    found = sorted((folder / directory_name(job)).glob("lease-*.json"))
    return [json.loads(path.read_text()) for path in found]


def timing(directory: Path) -> list[Any]:
    lines = (directory / "timing.jsonl").read_text().splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]  # it may be written to


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@needs_ray
def test_the_cluster_gives_what_this_machine_gives(engine: RayCluster, tmp_path: Path) -> None:
    outcome, printed = run([SHORT, NOWHERE], tmp_path / "ray", engine)
    assert [job.name for job in outcome.done] == [BATCH.name, SHORT.name]
    for job in (BATCH, SHORT):
        (tmp_path / "here").mkdir(exist_ok=True)
        perform(job, tmp_path / "here")
        for name in SAME:
            one, two = (tmp_path / way / directory_name(job) / name for way in ("ray", "here"))
            assert one.exists() == two.exists()
            assert not one.exists() or one.read_bytes() == two.read_bytes(), name
    notes = json.loads((tmp_path / "ray" / directory_name(SHORT) / "done.json").read_text())
    assert notes["threads"] == 1
    # An error of its own is told, and not repeated.
    assert "Nowhere" in outcome.failed[directory_name(NOWHERE)]
    assert len(claims(tmp_path / "ray", NOWHERE)) == 1
    # A line whenever something changes.
    host = socket.gethostname()
    assert f"running {SHORT.name} on {host}-" in printed
    assert f"FAILED  {NOWHERE.name}: bcq: " in printed


@needs_ray
def test_a_stopped_job_saves_first(
    engine: RayCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders = []

    def cancelled(cancel: Callable[..., None], task: Any, *, force: bool) -> None:
        orders.append(force)
        cancel(task, force=force)

    run([BATCH], tmp_path, engine)
    directory = tmp_path / directory_name(LONG)
    directory.mkdir()
    task = engine.start(LONG, tmp_path, 0)
    until(lambda: (workplace(directory) / "metrics.jsonl").exists())  # noqa: PLW0108 - it moves
    assert task.poll() is None
    with monkeypatch.context() as patch:
        patch.setattr(ray_engine, "SAVING", PATIENCE)  # a busy machine is no failure
        patch.setattr(engine.ray, "cancel", partial(cancelled, engine.ray.cancel))
        task.stop()
    assert orders == [False]  # it was not killed
    assert task.poll() == 1
    own = workplace(directory)
    last = json.loads((own / "metrics.jsonl").read_text().splitlines()[-1])
    assert json.loads((own / "checkpoint.json").read_text())["step"] == last["step"]
    assert json.loads((directory / "beat-1.json").read_text()) == {"ended": True}


@needs_ray
def test_a_node_that_cannot_do_the_jobs_is_refused_in_a_line(
    engine: RayCluster, cluster: ClusterProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Path, "touch", lambda self: None)  # as if it were on another disk
        with pytest.raises(InputError, match=rf"does not see {tmp_path}; all nodes must share"):
            ray_nodes.examine(engine.ray, tmp_path)
    (tmp_path / "without" / "bcq").mkdir(parents=True)
    (tmp_path / "without" / "bcq" / "__init__.py").write_text("raise ImportError('none here')")
    node = cluster.add(str(tmp_path / "without"))
    try:
        with pytest.raises(InputError, match=r"has no bcq; install the same version there"):
            ray_nodes.examine(engine.ray, tmp_path)
    finally:
        cluster.remove(node)
    assert list(tmp_path.glob(".seen-*")) == []


@needs_ray
def test_results_travel_through_a_store(engine: RayCluster, tmp_path: Path) -> None:
    bucket = "of-a-cluster"  # moto keeps the buckets of all tests of a process
    fsspec.filesystem("s3", endpoint_url=os.environ["AWS_ENDPOINT_URL"]).mkdir(bucket)
    through = RayCluster(engine.ray, lease=LEASE, store=f"s3://{bucket}/jobs")
    perform(BATCH, tmp_path / "ray")  # made on this machine
    outcome, printed = run([SHORT, NOWHERE], tmp_path / "ray", through)
    assert [job.name for job in outcome.done] == [BATCH.name, SHORT.name]
    assert "Nowhere" in outcome.failed[directory_name(NOWHERE)]
    perform(BATCH, tmp_path / "here")
    perform(SHORT, tmp_path / "here")
    for name in SAME[1:]:
        one, two = (tmp_path / way / directory_name(SHORT) / name for way in ("ray", "here"))
        assert one.read_bytes() == two.read_bytes(), name
    assert f"running {SHORT.name} on {socket.gethostname()}-" in printed


@needs_ray
def test_a_task_that_the_cluster_gives_up_says_so(engine: RayCluster, tmp_path: Path) -> None:
    def dies() -> None:
        os._exit(1)

    reference = engine.ray.remote(max_retries=0)(dies).remote()
    (tmp_path / directory_name(BATCH)).mkdir()
    task = RayTask(engine.ray, reference, reference.future(), BATCH, tmp_path)
    until(lambda: task.poll() is not None)
    assert task.poll() == 1
    line = (tmp_path / directory_name(BATCH) / "output.txt").read_text().splitlines()[-1]
    assert line.startswith("bcq: lost by the cluster, also when repeated: ")
    assert task.where() == "waits for a node"


@needs_ray
def test_a_job_goes_on_elsewhere_when_its_node_dies(
    engine: RayCluster, cluster: ClusterProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(boards, "EVERY", 0.1)
    job = replace(SHORT, schedule=replace(SHORT.schedule, steps=20_000, checkpoint_every=1_000))
    directory = tmp_path / directory_name(job)

    own = directory / "generation-1" / directory.name

    def checkpoint() -> int:
        path = own / "checkpoint.json"
        return int(json.loads(path.read_text())["step"]) if path.exists() else 0

    with ThreadPoolExecutor() as pool:
        running = pool.submit(run, [job], tmp_path, engine)
        until(lambda: checkpoint() >= 2_000)
        kept = [row for row in timing(own) if row["step"] <= checkpoint()]
        host = claims(tmp_path, job)[0]["host"]
        (node,) = [one["NodeID"] for one in engine.ray.nodes() if one["NodeID"][:6] == host[-6:]]
        cluster.remove(node)
        cluster.add()
        outcome, printed = running.result()
    assert outcome.failed == {}
    first, second, end = claims(tmp_path, job)
    assert first["host"] != second["host"]
    assert end["done"] == 2
    assert f"running {job.name} on {second['host']}, begun 2 times" in printed
    assert [row["step"] for row in timing(directory)] == list(range(100, 20_001, 100))
    # It lost only what came after its last checkpoint: nothing before was timed again.
    assert timing(directory)[: len(kept)] == kept
    assert len(kept) >= 20


def test_versions_must_agree(tmp_path: Path) -> None:
    fine = {"versions": {}, "sees": True}
    with pytest.raises(InputError, match=r"node x of the cluster has bcq 0\.0\.0, this machine"):
        require_usable("x", {**fine, "versions": {"bcq": "0.0.0"}}, tmp_path)


@needs_ray
@pytest.mark.parametrize(
    ("address", "line"),
    [
        ("127.0.0.1:1", "bcq: no Ray cluster at 127.0.0.1:1; `ray start --head` starts one"),
        ("nonsense", "bcq: nonsense: is not the address of a Ray cluster"),
        ("ray://127.0.0.1:10001", "bcq: ray://127.0.0.1:10001: is not the address of"),
    ],
)
def test_an_address_without_a_cluster_is_refused_in_a_line(
    tmp_path: Path, address: str, line: str
) -> None:
    words = ["reproduce", "theory", "--preset", "smoke", "--out", str(tmp_path / "out")]
    with pytest.raises(SystemExit) as end:
        main([*words, "--engine", "ray", "--address", address])
    assert str(end.value.code).startswith(line)
    assert "\n" not in str(end.value.code)


def test_without_ray_a_line_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    words = ["reproduce", "theory", "--preset", "smoke", "--out", str(tmp_path / "out")]
    with pytest.raises(SystemExit) as end:
        main([*words, "--engine", "ray"])
    assert str(end.value.code) == (
        "bcq: Ray is not installed; `pip install 'ray>=2.60'` installs it (the extra ray)"
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"address": "x:1"}, "are settings of a Ray cluster"),
        ({"gpus": 0.5}, "are settings of a Ray cluster"),
        ({"name": "ray", "gpus": 1.5}, "neither a share of a GPU nor a whole number"),
        ({"name": "ray", "gpus": -1.0}, "is negative"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        EngineChoice(**settings)


@pytest.mark.usefixtures("own_compilation_cache")
def test_a_process_does_not_keep_the_programs_of_its_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    traced = []

    def program(x: jax.Array) -> jax.Array:
        traced.append(x)
        return x + 1

    compiled, jobs = jax.jit(program), str(tmp_path / "jobs")
    for number, (job, error) in enumerate(((BATCH, ""), (NOWHERE, "Nowhere"))):
        for _ in range(2):
            compiled(1.0)
        assert len(traced) == number + 1  # it is kept until a job has ended
        assert error in ray_worker.do(job.as_json(), jobs, LEASE, "here", None)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the system has no such call")
def test_two_jobs_of_a_node_do_not_share_a_core(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = os.sched_getaffinity(0)
    try:
        with on_a_free_core():
            (first,) = os.sched_getaffinity(0)
            with on_a_free_core():
                (second,) = os.sched_getaffinity(0)
                assert (second == first) == (len(before) == 1)
                if len(before) == 2:
                    with on_a_free_core():  # none is free: any
                        assert len(os.sched_getaffinity(0)) == 1
        with on_a_free_core():
            assert os.sched_getaffinity(0) == {first}  # it was given back
    finally:
        for thread in Path("/proc/self/task").iterdir():
            os.sched_setaffinity(int(thread.name), before)


def test_the_cluster_of_this_machine_is_found_where_ray_notes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("RAY_ADDRESS", "RAY_TMPDIR", "TMPDIR"):
        monkeypatch.delenv(name, raising=False)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        for name in ("TMPDIR", "RAY_TMPDIR"):  # the last one counts
            folder = tmp_path / name
            (folder / "ray").mkdir(parents=True)
            monkeypatch.setenv(name, str(folder))
            assert ray_engine.running_here() is None
            (folder / "ray" / "ray_current_cluster").write_text(f"{address}\n")
            assert ray_engine.running_here() == address
    assert ray_engine.running_here() is None  # it has ended
