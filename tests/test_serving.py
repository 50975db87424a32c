"""A policy as a service: what it answers, what it refuses, and a log that becomes a batch."""

import asyncio
import http.client
import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import service_clients
from bcq.cli.application import main
from bcq.data.bounds import ActionBounds, Choices, TaskSpec
from bcq.data.dataset import Dataset
from bcq.data.formats.decisions import LogForm
from bcq.data.layout import Layout, ObservationColumn, Past
from bcq.data.opening import Options, open_batch
from bcq.export.exporting import export_policy
from bcq.serving import log as logs
from bcq.serving import running, service
from bcq.serving.log import opened
from bcq.serving.metrics import Metrics
from bcq.serving.policy import Acted, ServedPolicy, open_policy
from bcq.serving.requests import RequestError, question_of
from bcq.serving.service import Service
from bcq.system.errors import InputError
from test_export import make_run, run_onnx

pytestmark = pytest.mark.usefixtures("own_compilation_cache")
ROW = [0.5, -1.0, 2.0, 0.25]
NAMES = ["inside", "reward", "<img src=x>", "in*"]  # of which one is a column of every log
Ask = Callable[..., tuple[int, Any]]


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Files of a policy for quantities and of one for choices, without and with a fallback."""
    folder, found = tmp_path_factory.mktemp("exported"), {}
    for name, fallback in (("bcq", ["0", "2"]), ("discrete-bcq", ["stay"])):
        (folder / name).mkdir()
        run, dataset = make_run(folder / name, name)
        labels = {"observations": NAMES, "actions": ["heat", "fan"] if name == "bcq" else ["way"]}
        for words, given in (("", None), (" fallback", fallback)):
            for suffix in (".onnx", ".safetensors"):
                path = folder / f"{name}{words}{suffix}"
                export_policy(run, path, dataset=dataset, labels=labels, fallback=given)
                found[path.name] = path
    return found


@contextmanager
def served(policy: ServedPolicy | Path, **options: Any) -> Iterator[Ask]:
    """A service in a thread; a function that asks it."""
    policy = policy if isinstance(policy, ServedPolicy) else open_policy(policy)
    made = Service(policy, **options)
    server = running.server_of(made)
    place = running.listen("127.0.0.1", 0)
    port = place.getsockname()[1]
    thread = threading.Thread(target=server.run, kwargs={"sockets": [place]})
    thread.start()

    def ask(path: str, content: Any = None, body: Any = None, **headers: str) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        sent = {"Content-Type": "application/json"} | {
            name.replace("_", "-"): value for name, value in headers.items()
        }
        body = json.dumps(content).encode() if content is not None else body
        connection.request("GET" if body is None else "POST", path, body, sent)
        answer = connection.getresponse()
        text = answer.read()
        ask.headers = dict(answer.getheaders())  # type: ignore[attr-defined]
        kind = answer.headers["Content-Type"] or ""
        connection.close()
        return answer.status, json.loads(text) if "json" in kind else text.decode()

    ask.port, ask.service = port, made  # type: ignore[attr-defined]
    try:
        yield ask
    finally:
        server.should_exit = True
        thread.join(30)
        assert not thread.is_alive()


@pytest.fixture(scope="module")
def ask(exported: dict[str, Path]) -> Iterator[Ask]:
    with served(exported["bcq.onnx"]) as found:
        yield found


@pytest.fixture(scope="module")
def ask_choices(exported: dict[str, Path]) -> Iterator[Ask]:
    with served(exported["discrete-bcq fallback.onnx"]) as found:
        yield found


# Actions


def test_one_observation_or_many_by_name_or_position(ask: Ask, exported: dict[str, Path]) -> None:
    expected = run_onnx(exported["bcq.onnx"], [ROW, [9.0] * 4])
    status, one = ask("/act", {"observation": ROW})
    assert status == 200
    assert one.keys() == {"policy", "action", "valid", "inside"}
    np.testing.assert_allclose(one["action"], expected["action"][0], rtol=1e-6)
    assert (one["valid"], one["inside"]) == (True, bool(expected["inside"][0]))
    named = {"in*": 0.25, "reward": -1, "inside": 0.5, "<img src=x>": 2}  # in any order
    status, many = ask("/act", [{"observation": named}, {"observation": [9.0] * 4}])
    assert status == 200
    assert many["policy"] == one["policy"]
    np.testing.assert_allclose(
        [each["action"] for each in many["decisions"]], expected["action"], rtol=1e-5, atol=1e-6
    )
    assert [each["inside"] for each in many["decisions"]] == [one["inside"], False]
    status, alone = ask("/act", [{"observation": ROW}])
    assert len(alone["decisions"]) == 1


def test_many_rows_are_answered_as_few_are(ask: Ask) -> None:
    rows = np.random.default_rng(0).normal(size=(1_000, 4))
    status, found = ask("/act", [{"observation": row.tolist()} for row in rows])
    assert status == 200
    for row in (0, 500, 999):
        _, one = ask("/act", {"observation": rows[row].tolist()})
        np.testing.assert_allclose(
            found["decisions"][row]["action"], one["action"], rtol=1e-4, atol=1e-5
        )


@pytest.mark.parametrize("name", ["bcq fallback", "discrete-bcq fallback"])
def test_both_kinds_of_file_act_alike(name: str, exported: dict[str, Path]) -> None:
    rows = np.random.default_rng(1).normal(0, 3, (50, 4)).astype(np.float32)
    rows[3, 1] = np.nan
    rows[4, 0] = np.inf
    found = [open_policy(exported[f"{name}{kind}"]) for kind in (".onnx", ".safetensors")]
    first, second = (each.act(rows, None) for each in found)
    np.testing.assert_allclose(first.actions, second.actions, rtol=1e-4, atol=1e-5)
    assert (first.valid == second.valid).all()
    assert first.valid.sum() == 48
    assert (first.inside == second.inside).all()
    assert found[0].fingerprint != found[1].fingerprint
    assert found[0].card["seen"].keys() == {"low", "high"}


def test_choices_have_names_and_only_permitted_ones_are_taken(
    ask_choices: Ask, exported: dict[str, Path]
) -> None:
    names = ["left", "right", "stay"]
    number = int(run_onnx(exported["discrete-bcq.onnx"], [ROW])["action"][0])
    assert ask_choices("/act", {"observation": ROW})[1]["action"] == names[number]
    for name in names:
        row = {"observation": ROW, "permitted": [name]}
        assert ask_choices("/act", row)[1]["action"] == name
    rows = [{"observation": ROW, "permitted": ["left"]}, {"observation": ROW}]
    both = ask_choices("/act", rows)[1]["decisions"]
    assert [each["action"] for each in both] == ["left", names[number]]


def test_a_sampling_file_is_given_noise(tmp_path: Path) -> None:
    run, _ = make_run(tmp_path, "vae-bc")
    for suffix in (".onnx", ".safetensors"):
        export_policy(run, tmp_path / f"noisy{suffix}", mode="noise-input")
        policy = open_policy(tmp_path / f"noisy{suffix}")
        rows = np.array([ROW] * 20, np.float32)
        assert len(np.unique(policy.act(rows, None).actions, axis=0)) > 1


# Bad observations


def test_an_observation_that_is_not_finite_is_refused_or_gives_the_fallback(
    ask: Ask, ask_choices: Ask, exported: dict[str, Path]
) -> None:
    for bad in (None, 1e39, -1e300):
        status, found = ask("/act", {"observation": [0.5, bad, 2.0, 0.25]})
        assert (status, found.keys()) == (400, {"error"})
        assert found["error"].startswith("there is no action: a number is missing or not finite")
        _, found = ask_choices("/act", {"observation": [0.5, bad, 2.0, 0.25]})
        assert (found["action"], found["valid"], found["inside"]) == ("stay", False, False)
    _, found = ask("/act", [{"observation": ROW}, {"observation": [None] * 4}])
    assert found["error"].startswith("row 1: there is no action")
    for suffix in (".onnx", ".safetensors"):
        with served(exported[f"bcq fallback{suffix}"]) as other:
            _, found = other("/act", {"observation": [None] * 4})
            assert (found["action"], found["valid"]) == ([0.0, 2.0], False)


@pytest.mark.parametrize("suffix", [".onnx", ".safetensors"])
def test_a_fallback_that_is_not_permitted_is_no_action(
    suffix: str, exported: dict[str, Path]
) -> None:
    bad = {"observation": [None] * 4}
    with served(exported[f"discrete-bcq fallback{suffix}"]) as ask:
        assert ask("/act", bad | {"permitted": ["left", "stay"]})[1]["action"] == "stay"
        status, found = ask("/act", bad | {"permitted": ["left", "right"]})
        assert status == 400
        assert found["error"].endswith("has a fallback that is not permitted here")
        rows = [bad, {"observation": ROW, "permitted": ["left"]}, bad | {"permitted": ["right"]}]
        assert ask("/act", rows)[1]["error"].startswith("row 2: there is no action")
        assert ask("/act", rows[:2])[1]["decisions"][1]["action"] == "left"


REFUSED = [
    (b"", "not JSON"),
    (b"{", "not JSON"),
    (b"\xff\xfe\xfa", "not JSON"),
    (b"[" * 100_000, "not JSON"),
    (b'{"observation": [NaN, 1, 1, 1]}', "NaN is not JSON; a value that is missing is null"),
    (b'{"observation": [-Infinity, 1, 1, 1]}', "Infinity is not JSON"),
    (b'{"observation": [' + b"9" * 5_000 + b", 1, 1, 1]}", "not JSON"),
    (b"3", "row 0: must be an object"),
    (b"[]", "the list has no rows"),
    (b"[[1, 2, 3, 4]]", "row 0: must be an object"),
    (b"{}", "observation: must be a list of numbers, or an object with their names"),
    (b'{"observation": [1, 2, 3]}', "observation: has 3 numbers, but it needs 4"),
    (b'{"observation": [1, 2, 3, "4"]}', "observation, number 3: must be a number, or null"),
    (b'{"observation": [1, 2, 3, true]}', "observation, number 3: must be a number"),
    (b'{"observation": [1, 2, 3, [4]]}', "observation, number 3: must be a number"),
    (b'{"observation": {"inside": 1}}', "observation: 'reward' is missing"),
    (b'{"observation": {"other": 1}}', "'other' is not one of inside, reward"),
    (b'{"observation": [1, 2, 3, 4], "reward": 1}', "'reward' is not one of observation"),
    (b'{"observation": [1, 2, 3, 4], "permitted": ["a"]}', "are numbers, not choices"),
    (b'{"observation": [1, 2, 3, 4], "episode": ""}', "episode: must be a text"),
    (b'{"observation": [1, 2, 3, 4], "episode": true}', "episode: must be a text"),
    (b'{"observation": [1, 2, 3, 4], "episode": "\\ud800"}', "episode: must be a text"),
    (b'{"observation": [1, 2, 3, 4], "episode": 1e5}', "episode: must be a text"),
    (b'{"observation": [1, 2, 3, 4], "episode": 99999999999999999999}', "episode: must be a text"),
    (b'{"observation": [1, 2, 3, 4], "step": 1.5}', "step: must be a whole number"),
    (b'{"observation": [1, 2, 3, 4], "step": true}', "step: must be a whole number"),
    (b'{"observation": [1, 2, 3, 4], "logged": 1}', "logged: must be true or false"),
    (b'[{"observation": [1, 2, 3, 4]}, {}]', "row 1: observation: must be"),
]


@pytest.mark.parametrize(("body", "words"), REFUSED)
def test_what_is_wrong_with_a_request_is_said(body: bytes, words: str, ask: Ask) -> None:
    status, found = ask("/act", body=body)
    assert status == 400
    assert found.keys() == {"error"}
    assert words in found["error"]
    assert len(found["error"]) <= 500


def test_choices_that_do_not_exist_are_refused(ask_choices: Ask) -> None:
    for permitted in ([], ["up"], "left", [3], [["left"]]):
        status, found = ask_choices("/act", {"observation": ROW, "permitted": permitted})
        assert (status, found["error"].split(":")[0]) == (400, "permitted")


def test_too_much_is_refused_and_the_client_hears_it(ask: Ask) -> None:
    status, found = ask("/act", [{"observation": ROW}] * 1_001)
    assert (status, found["error"]) == (413, "1001 rows; a request has at most 1000")
    status, found = ask("/act", body=b" " * (2**20 + 1))
    assert (status, found["error"]) == (413, "the body is too large; the limit is 1,048,576 bytes")
    assert ask("/act", body=b" " * 50_000_000)[0] == 413
    in_chunks = iter([b" " * 2**19] * 4)
    assert ask("/act", body=in_chunks)[0] == 413
    assert ask("/act", body=b" " * (2**20 - 100) + b"{}")[0] == 400


def test_what_does_not_exist_is_said_in_json(ask: Ask) -> None:
    assert ask("/nothing") == (404, {"error": "Not Found"})
    assert ask("/act") == (405, {"error": "Method Not Allowed"})
    assert ask("/outcome", {"decision": "a", "reward": 1}) == (
        409,
        {"error": "this service keeps no log"},
    )


# Who may ask


def test_without_the_token_nothing_is_told(exported: dict[str, Path]) -> None:
    with served(exported["bcq.onnx"], token="s3cret") as ask:
        for given in ({}, {"Authorization": "Bearer s3cre"}, {"Authorization": "s3cret"}):
            status, found = ask("/act", {"observation": ROW}, **given)
            assert (status, found["error"][:17]) == (401, "a token is needed")
            assert ask.headers["www-authenticate"] == "Bearer"  # type: ignore[attr-defined]
            assert ask("/card", **given)[0] == ask("/metrics", **given)[0] == 401
            assert ask("/nothing", **given)[0] == 401
        right = {"Authorization": "Bearer s3cret"}
        assert ask("/act", {"observation": ROW}, **right)[0] == 200
        assert ask("/card", **right)[0] == ask("/metrics", **right)[0] == 200
        assert ask("/health")[0] == ask("/")[0] == 200


def test_a_token_comes_from_a_file_or_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BCQ_TOKEN", raising=False)
    assert running.read_token(None) is None
    monkeypatch.setenv("BCQ_TOKEN", "from-outside")
    assert running.read_token(None) == "from-outside"
    file = tmp_path / "token"
    file.write_text("in-a-file\n")
    assert running.read_token(file) == "in-a-file"
    for wrong in ("", " \n", "two words", "\u00fc"):
        file.write_text(wrong)
        with pytest.raises(InputError, match="must have a token"):
            running.read_token(file)
    monkeypatch.setenv("BCQ_TOKEN", "")
    with pytest.raises(InputError, match="BCQ_TOKEN: must have a token"):
        running.read_token(None)
    with pytest.raises(InputError, match="cannot be read"):
        running.read_token(tmp_path / "none")


def test_pages_of_other_sites_cannot_use_the_service(ask: Ask, exported: dict[str, Path]) -> None:
    """Neither by a form, whose types need no permission, nor by a name that leads here."""
    for kind in ("text/plain", "application/x-www-form-urlencoded", ""):
        status, found = ask("/act", {"observation": ROW}, Content_Type=kind)
        assert (status, found["error"]) == (415, "the Content-Type must be application/json")
    assert (
        ask("/act", {"observation": ROW}, Content_Type="application/json; charset=utf-8")[0] == 200
    )
    assert ask("/card", Host="evil.test")[0] == ask("/card", Host="evil.test:80")[0] == 421
    assert ask("/card", Host="localhost:1")[0] == ask("/card", Host="[::1]")[0] == 200
    assert not any(name.lower().startswith("access-control") for name in ask.headers)  # type: ignore[attr-defined]
    with served(exported["bcq.onnx"], local=False) as other:
        assert other("/card", Host="factory.test")[0] == 200
    assert running.is_local("127.0.0.1")
    assert not running.is_local("0.0.0.0")


# What it tells of itself


def test_the_card_the_health_and_the_counters(exported: dict[str, Path]) -> None:
    with served(exported["bcq fallback.onnx"]) as ask:
        policy = ask.service.policy  # type: ignore[attr-defined]
        assert ask("/card") == (200, {**policy.card, "fingerprint": policy.fingerprint})
        assert ask("/health") == (200, {"status": "ok", "policy": policy.fingerprint})
        ask("/act", [{"observation": ROW}, {"observation": [None] * 4}, {"observation": [99] * 4}])
        ask("/act", [])
        ask("/some/<path>")
        lines = ask("/metrics")[1].splitlines()
        assert ask.headers["content-type"].startswith("text/plain")  # type: ignore[attr-defined]
    assert f'bcq_policy{{fingerprint="{policy.fingerprint}",algorithm="bcq"}} 1' in lines
    assert 'bcq_requests_total{path="/act",status="200"} 1' in lines
    assert 'bcq_requests_total{path="/act",status="400"} 1' in lines
    assert 'bcq_requests_total{path="other",status="404"} 1' in lines
    assert "bcq_decisions_total 3" in lines
    assert "bcq_decisions_not_valid_total 1" in lines
    outside = 2 + (not policy.act(np.array([ROW], np.float32), None).inside[0])
    assert f"bcq_decisions_outside_total {outside}" in lines
    assert "bcq_act_seconds_count 1" in lines
    assert 'bcq_act_seconds_bucket{le="+Inf"} 1' in lines


def test_a_histogram_counts_what_is_at_most_its_end() -> None:
    metrics = Metrics(algorithm='a"b\\c\nd')
    for seconds in (0.0005, 0.0006, 5.0):
        metrics.acted(seconds)
    lines = metrics.text({"waiting": 2.0}).splitlines()
    assert 'bcq_policy{algorithm="a\\"b\\\\c\\nd"} 1' in lines
    counts = [int(line.split()[-1]) for line in lines if "_bucket" in line]
    assert counts[:2] == [1, 2]
    assert counts[-2:] == [2, 3]
    assert "bcq_waiting 2" in lines


def test_a_card_with_numbers_that_are_not_json_is_shown(exported: dict[str, Path]) -> None:
    policy = open_policy(exported["bcq.onnx"])
    card = {**policy.card, "dataset": {"mean_return": float("nan")}}
    odd = ServedPolicy(card, policy.fingerprint, policy.task, policy.act)
    with served(odd) as ask:
        assert ask("/card")[1]["dataset"] == {"mean_return": "NaN"}


def test_an_error_of_the_service_is_told_without_its_insides(exported: dict[str, Path]) -> None:
    policy = open_policy(exported["bcq.onnx"])

    def broken(*_: Any) -> Acted:
        raise RuntimeError("secret inside")

    with served(ServedPolicy(policy.card, "f", policy.task, broken)) as ask:
        status, found = ask("/act", {"observation": ROW})
        assert (status, found) == (500, {"error": "an error of the service; its log says more"})
        assert ask("/health")[0] == 200


# Slow clients


def test_the_body_of_an_answer_does_not_wait_for_the_client() -> None:
    with running.listen("127.0.0.1", 0) as place:
        client = socket.create_connection(place.getsockname())
        accepted, _ = place.accept()
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        accepted.close()
        client.close()


def test_a_slow_client_is_answered_or_let_go(
    exported: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "BODY_SECONDS", 0.3)
    monkeypatch.setattr(running, "PATIENCE", 1.0)
    with served(exported["bcq.onnx"]) as ask:
        port = ask.port  # type: ignore[attr-defined]
        with socket.create_connection(("127.0.0.1", port), timeout=10) as slow:
            slow.sendall(b"POST /act HTTP/1.1\r\nHost: localhost\r\nContent-Type: ")
            slow.sendall(b"application/json\r\nContent-Length: 100\r\n\r\n{")
            assert slow.recv(100).startswith(b"HTTP/1.1 408")
        begun = time.monotonic()
        with socket.create_connection(("127.0.0.1", port), timeout=10) as slow:
            slow.sendall(b"POST /act HTTP/1.1\r\nHos")  # and never the rest
            assert ask("/health")[0] == 200  # nobody else waits
            with suppress(ConnectionResetError):
                assert slow.recv(100) == b""
        assert 0.9 < time.monotonic() - begun < 8
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        for _ in range(6):  # longer than the patience in all, but each request is quick
            connection.request("GET", "/health")
            assert connection.getresponse().read()
            time.sleep(0.3)
        connection.close()


# The log


def decide(ask: Ask, steps: int, episode: str, seed: int = 0) -> None:
    """An episode with rewards: the reward is the first number of the action."""
    random = np.random.default_rng(seed)
    for step in range(steps):
        row = {"observation": random.normal(size=4).round(3).tolist(), "episode": episode}
        _, found = ask("/act", row)
        action = found["action"]
        reward = len(action) if isinstance(action, str) else action[0]
        end = step == steps - 1
        told = {"decision": found["decision"], "reward": reward, "terminated": end}
        assert ask("/outcome", told) == (200, {"outcomes": 1})


@pytest.mark.parametrize("name", ["bcq", "discrete-bcq"])
def test_a_log_is_the_next_batch(
    name: str, exported: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy, folder = open_policy(exported[f"{name}.onnx"]), tmp_path / "decisions.parquet"
    with opened(folder, policy) as log, served(policy, log=log) as ask:
        for number in range(3):
            decide(ask, 20, f"day {number}", seed=number)
        ask("/act", {"observation": ROW, "episode": "day 3"})  # not yet rewarded
        assert ask("/act", {"observation": ROW, "logged": False})[1]["decision"] is None
    checked = open_batch(folder, Options())
    dataset = Dataset.from_checked(checked)
    assert len(dataset) == 60
    assert dataset.terminated.sum() == 3
    rows = np.random.default_rng(1).normal(size=(20, 4)).round(3).astype(np.float32)
    np.testing.assert_array_equal(dataset.observations[20:40], rows)
    np.testing.assert_array_equal(dataset.next_observations[20:39], rows[1:])
    assert dataset.task.choices == policy.task.choices
    if name == "bcq":
        np.testing.assert_array_equal(dataset.bounds.low, policy.task.bounds.low)
        np.testing.assert_array_equal(dataset.bounds.high, policy.task.bounds.high)
        np.testing.assert_allclose(
            dataset.actions, policy.act(dataset.observations, None).actions, atol=1e-4
        )
        np.testing.assert_array_equal(dataset.rewards, dataset.actions[:, 0])
        assert dataset.propensities is None
    else:
        assert dataset.propensities is not None
        assert (dataset.propensities == 1).all()
        assert dataset.permitted is not None
        assert dataset.permitted.all()
    names = checked.columns.names
    assert names["observations"] == ("inside", "observation_1", "<img src=x>", "in*")
    assert "1 rows are left out" in " ".join(map(str, checked.columns.findings))
    main(["inspect", str(folder)])
    assert "60" in capsys.readouterr().out
    small = ["--steps", "100", "--hidden-sizes", "8", "--batch-size", "8"]
    main(
        [
            "train",
            name.replace("bcq", "bc"),
            "--data",
            str(folder),
            *small,
            "--out",
            str(tmp_path / "run"),
        ]
    )
    target = tmp_path / "next.hdf5"
    main(["convert", str(folder), str(target)])
    assert len(Dataset.from_checked(open_batch(target, Options()))) == 60


def row_of(policy: ServedPolicy, **row: Any) -> tuple[Any, ...]:
    """A decision as the service makes it, without the service."""
    question = question_of(json.dumps(row).encode(), policy)
    acted = policy.act(question.observations, question.permitted)
    names = policy.task.choices
    return question, acted, acted.actions.tolist() if names is None else [names[acted.actions[0]]]


def a_policy(task: TaskSpec, **card: Any) -> ServedPolicy:
    """One that always does the same."""
    low = np.zeros(1, int) if task.choices else task.bounds.low[None]

    def act(rows: Any, permitted: Any) -> Acted:
        del permitted
        return Acted(
            np.repeat(low, len(rows), 0), np.isfinite(rows).all(1), np.ones(len(rows), bool)
        )

    return ServedPolicy({"algorithm": "bc", **card}, "f" * 16, task, act)


def test_categories_and_steps_and_awkward_names_come_back(tmp_path: Path) -> None:
    columns = (ObservationColumn("episode"), ObservationColumn("mode", ("auto", "off", "rest")))
    task = TaskSpec(4, Choices(["far left", "left", "9"]), layout=Layout(columns))
    policy, folder = a_policy(task), tmp_path / "log.parquet"
    with opened(folder, policy) as log:
        for step, mode in ((2, "off"), (0, "auto"), (1, "off")):
            row = {"observation": {"episode": step, "mode": mode}, "episode": 7, "step": step}
            (name,) = log.add(*row_of(policy, **row, permitted=["left", "far left"]))
            assert name is not None
            log.outcomes.add(
                [{"decision": name, "reward": step, "terminated": step == 2, "truncated": False}]
            )
    dataset = Dataset.from_checked(open_batch(folder, Options()))
    assert dataset.observations.tolist() == [[0, 1, 0, 0], [1, 0, 1, 0], [2, 0, 1, 0]]
    assert dataset.rewards.tolist() == [0, 1, 2]  # in the order of the steps
    assert dataset.task.choices == task.choices
    assert dataset.permitted is not None
    assert dataset.permitted.tolist() == [[True, True, False]] * 3
    assert dataset.layout.columns[1] == columns[1]  # "rest" too, which is not in the log
    wrong = {"observation": [1, 0.5, 0.5, 0]}
    with pytest.raises(
        RequestError, match="exactly one of mode=auto, mode=off, mode=rest must be 1"
    ):
        row_of(policy, **wrong)
    with pytest.raises(RequestError, match="'on' is not in the data"):
        row_of(policy, observation={"episode": 1, "mode": "on"})
    with pytest.raises(RequestError, match="mode: must be one of auto, off, rest"):
        row_of(policy, observation={"episode": 1, "mode": 3})


def test_of_an_observation_with_past_steps_the_reading_is_logged(tmp_path: Path) -> None:
    bounds = ActionBounds(np.array([-1.0]), np.array([1.0]))
    task = TaskSpec(5, bounds, layout=Layout((), Past(1, 2, 1, ("u",))))
    names = ["x", "y", "x@-1", "y@-1", "u@-1"]
    policy, folder = (
        a_policy(task, observation_columns=names, action_columns=["u"]),
        tmp_path / "p.parquet",
    )
    with opened(folder, policy) as log:
        for step in range(6):
            row = {"observation": dict(zip(names, [step, 1, 0, 0, 0], strict=True)), "episode": "a"}
            (name,) = log.add(*row_of(policy, **row))
            log.outcomes.add(
                [{"decision": name, "reward": 1, "terminated": step == 5, "truncated": False}]
            )
    dataset = Dataset.from_checked(open_batch(folder, Options(lags=1)))
    assert dataset.observations.shape == (6, 5)
    assert dataset.observations[3].tolist() == [3, 1, 2, 1, -1]


def test_the_newest_outcome_counts_and_others_wait(tmp_path: Path) -> None:
    task = TaskSpec(1, ActionBounds(np.array([-1.0]), np.array([1.0])))
    policy, folder = a_policy(task), tmp_path / "log.parquet"
    with opened(folder, policy) as log:
        named = [log.add(*row_of(policy, observation=[i], episode="e"))[0] for i in range(5)]
        # Two without an episode: each is one of its own, so the first has no next observation.
        before, alone = (log.add(*row_of(policy, observation=[i]))[0] for i in (8, 9))
        log.outcomes.add([outcome(before, 5.0)])
        for name, reward in ((0, 5.0), (0, 1.0), (1, 2.0), (3, 3.0), (4, 4.0)):
            log.outcomes.add([outcome(named[name], reward, terminated=name == 4)])
        log.outcomes.add([outcome(alone, 6.0, terminated=True), outcome("unknown", 7.0)])
    dataset = Dataset.from_checked(open_batch(folder, Options()))
    # Decision 2 has no reward: the episode is cut there, and 1 has no next observation then.
    assert dataset.observations[:, 0].tolist() == [0, 3, 4, 9]
    assert dataset.rewards.tolist() == [1, 3, 4, 6]
    assert dataset.next_observations[:2, 0].tolist() == [1, 4]
    assert dataset.terminated.tolist() == [False, False, True, True]


def outcome(name: str | None, reward: float, **flags: bool) -> dict[str, Any]:
    return {"decision": name, "reward": reward, "terminated": False, "truncated": False} | flags


def test_outcomes_of_the_wrong_kind_are_refused(exported: dict[str, Path], tmp_path: Path) -> None:
    policy = open_policy(exported["bcq.onnx"])
    with opened(tmp_path / "log.parquet", policy) as log, served(policy, log=log) as ask:
        for body, words in (
            ({"decision": "a"}, "reward: must be a finite number"),
            ({"decision": "a", "reward": 1e39}, "reward: must be a finite number"),
            ({"decision": "a", "reward": "1"}, "reward: must be a number"),
            ({"reward": 1}, "decision: must be a text"),
            ({"decision": "a", "reward": 1, "terminated": 1}, "must be true or false"),
            ({"decision": "a", "reward": 1, "done": True}, "'done' is not one of decision"),
            ([{"decision": "a", "reward": 1}, {}], "row 1: reward"),
        ):
            status, found = ask("/outcome", body)
            assert status == 400
            assert words in found["error"]
        assert log.waiting == 0


def test_a_log_that_cannot_be_written_is_told_and_loses_nothing(
    exported: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    policy, folder = open_policy(exported["bcq.onnx"]), tmp_path / "log.parquet"
    with opened(folder, policy) as log, served(policy, log=log) as ask:
        with monkeypatch.context() as patch:
            patch.setattr(pq, "write_table", full_disk)
            ask("/act", {"observation": ROW})
            for _ in range(3):
                log.flush()
            assert log.waiting == 1
            said = capsys.readouterr().err
            assert said.count("No space left") == 1  # once, not at every flush
            assert said.startswith(f"bcq: cannot write {folder}")
            status, found = ask("/health")
            assert status == 503
            assert "the log cannot be written" in found["status"]
            assert str(tmp_path) not in found["status"]  # which needs no token
            assert "bcq_log_failing 1" in ask("/metrics")[1]
            patch.setattr(logs, "MOST_WAITING", 1)
            for path, content in (("/act", {"observation": ROW}), ("/outcome", outcome("a", 1))):
                status, found = ask(path, content)
                assert status == 503
                assert found["error"].startswith("the log cannot be written")
                assert str(tmp_path) not in found["error"]
        ask("/act", {"observation": ROW})
        log.flush()
        assert "the log is written again" in capsys.readouterr().err
        assert ask("/health")[0] == 200
        assert log.waiting == 0
    assert sum(pq.read_metadata(part).num_rows for part in folder.glob("decisions*")) == 2
    monkeypatch.setattr(pq, "write_table", full_disk)
    with pytest.raises(InputError, match=r"1 rows are lost: cannot write .*No space left"):
        write_one(folder, policy)


def write_one(folder: Path, policy: ServedPolicy) -> None:
    with opened(folder, policy) as log:
        log.add(*row_of(policy, observation=ROW))


def full_disk(*_: Any, **__: Any) -> None:
    raise OSError(28, "No space left on device")


def test_a_full_part_is_followed_by_a_new_one(
    exported: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "ROWS_PER_PART", 3)
    policy, folder = open_policy(exported["bcq.onnx"]), tmp_path / "log.parquet"
    for _ in range(2):  # two processes, one after the other
        with opened(folder, policy) as log:
            for _ in range(4):
                log.add(*row_of(policy, observation=ROW))
                log.flush()
            with (
                pytest.raises(InputError, match="another process is writing"),
                opened(folder, policy),
            ):
                pass
    sizes = [pq.read_metadata(part).num_rows for part in sorted(folder.glob("decisions-*"))]
    assert sizes == [3, 1, 3, 1]
    names = pa.concat_tables([pq.read_table(part) for part in folder.glob("decisions-*")])[
        "decision"
    ]
    assert len(set(names.to_pylist())) == 8
    (folder / "decisions-old.parquet").write_text("not one of its files")
    assert len(list(opened_rows(folder))) == 8


def opened_rows(folder: Path) -> list[Any]:
    return [
        each
        for part in sorted(folder.glob("decisions-0*"))
        for each in pq.read_table(part).to_pylist()
    ]


def test_a_log_of_something_else_is_refused(exported: dict[str, Path], tmp_path: Path) -> None:
    policy, folder = open_policy(exported["bcq.onnx"]), tmp_path / "log.parquet"
    with (
        pytest.raises(
            InputError, match=r"a log is a folder with a name such as decisions\.parquet"
        ),
        opened(tmp_path / "log", policy),
    ):
        pass
    with opened(folder, policy):
        pass
    with pytest.raises(InputError, match="has no decisions"):
        open_batch(folder, Options())
    with opened(folder, policy) as log:
        log.add(*row_of(policy, observation=ROW))
    with (
        pytest.raises(InputError, match="is the log of another task"),
        opened(folder, open_policy(exported["discrete-bcq.onnx"])),
    ):
        pass
    part = next(folder.glob("decisions-*"))
    pq.write_table(pa.table({"a": [1]}), part)
    with pytest.raises(InputError, match=r"decisions-00000001\.parquet: is not a log of decisions"):
        open_batch(folder, Options())
    part.write_bytes(b"damaged")
    with pytest.raises(InputError, match="cannot be read as Parquet"):
        open_batch(folder, Options())


def test_names_of_a_log_never_collide() -> None:
    task = TaskSpec(3, ActionBounds(np.zeros(2, np.float32), np.ones(2, np.float32)))
    form = LogForm.of(task, ["observation_1", "reward", "x"], ["x", "heat"])
    assert form.observations == ("observation_1", "observation_1_", "x")
    assert form.actions == ("action_0", "heat")
    again = LogForm.from_json(json.loads(json.dumps(form.as_json())))
    assert again.as_json() == form.as_json()
    assert again.schema.equals(form.schema, check_metadata=True)
    wrong: list[Any] = [
        {},
        [],
        {"task": {}},
        {"task": task.as_json(), "observations": 3, "actions": []},
    ]
    for broken in wrong:
        with pytest.raises(ValueError, match=r"form|task"):
            LogForm.from_json(broken)


# The process


@contextmanager
def process(*arguments: object) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """`bcq serve` in a process of its own, and its port."""
    command = [sys.executable, "-m", "bcq", "serve", *map(str, arguments), "--port", "0"]
    started = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert started.stdout is not None
        said = started.stdout.readline()
        found = re.match(r"http://127\.0\.0\.1:(\d+) serves .*, policy [0-9a-f]{16}$", said)
        assert found is not None, started.stderr and started.stderr.read()
        yield started, int(found[1])
    finally:
        if started.poll() is None:
            started.kill()
        started.communicate()


def post(port: int, path: str, content: Any) -> Any:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("POST", path, json.dumps(content), {"Content-Type": "application/json"})
    found = json.loads(connection.getresponse().read())
    connection.close()
    return found


def test_a_kill_loses_nothing_that_was_flushed_and_an_end_nothing_at_all(
    exported: dict[str, Path], tmp_path: Path
) -> None:
    folder = tmp_path / "log.parquet"
    with process(exported["bcq.onnx"], "--log", folder) as (started, port):
        for _ in range(7):
            post(port, "/act", {"observation": ROW})
        deadline = time.monotonic() + 20
        while len(opened_rows(folder)) < 7:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        started.kill()
        started.wait()
    assert len(opened_rows(folder)) == 7
    with process(exported["bcq.onnx"], "--log", folder) as (started, port):
        slow = socket.create_connection(("127.0.0.1", port), timeout=30)
        body = json.dumps({"observation": ROW}).encode()
        slow.sendall(service_clients.request("/act", body)[:-5])
        time.sleep(0.3)
        started.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        slow.sendall(body[-5:])  # a request that was open is still answered
        assert slow.recv(1_000).startswith(b"HTTP/1.1 200")
        slow.close()
        _, said = started.communicate(timeout=20)
        assert started.returncode == 128 + signal.SIGTERM
    assert "bcq: stopped; open requests were answered, and the log is complete" in said
    assert "Traceback" not in said
    assert len(opened_rows(folder)) == 8


def test_what_cannot_be_served_is_refused_in_one_line(
    exported: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    damaged, other = tmp_path / "damaged.onnx", tmp_path / "other.safetensors"
    damaged.write_bytes(exported["bcq.onnx"].read_bytes()[:-3_000])
    other.write_bytes(b"\x00" * 50)
    checkpoint = next(exported["bcq.onnx"].parent.glob("bcq/run/step-*.safetensors"))
    with running.listen("127.0.0.1", 0) as taken:
        for words, *arguments in (
            ("no such file", tmp_path / "none.onnx"),
            ("is not .onnx or .safetensors", Path(__file__)),
            ("is not an exported policy", damaged),
            ("is not an exported policy", other),
            ("is a folder, not an exported policy; `bcq export RUN policy.onnx`", tmp_path),
            ("(it has no 'card'); `bcq export RUN policy.onnx` makes one of a run", checkpoint),
            (
                "Address already in use; give another one with --port",
                *(exported["bcq.onnx"], "--port", taken.getsockname()[1]),
            ),
            (
                "cannot listen at no.such.host.invalid",
                exported["bcq.onnx"],
                "--host",
                "no.such.host.invalid",
            ),
            ("port 99999", exported["bcq.onnx"], "--port", 99_999),
        ):
            with pytest.raises(SystemExit) as stopped:
                main(["serve", *map(str, arguments)])
            assert str(stopped.value).startswith("bcq: ")
            assert words in str(stopped.value)
            assert "\n" not in str(stopped.value)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    monkeypatch.delitem(sys.modules, "bcq.serving.running")
    with pytest.raises(
        SystemExit, match="uvicorn, which the service needs, is not installed; `pip"
    ):
        main(["serve", str(exported["bcq.onnx"])])


# Many clients, and bad ones


def test_many_clients_at_once_are_all_answered(exported: dict[str, Path], tmp_path: Path) -> None:
    policy, folder = open_policy(exported["bcq.onnx"]), tmp_path / "log.parquet"
    with opened(folder, policy) as log, served(policy, log=log) as ask:
        answers = asyncio.run(service_clients.load(ask.port, 4, clients=100, seconds=1))  # type: ignore[attr-defined]
    assert answers.failures == []
    assert set(answers.statuses) == {200}
    assert len(opened_rows(folder)) == answers.statuses[200] >= 100


@pytest.mark.parametrize("name", ["bcq", "discrete-bcq fallback"])
def test_no_request_whatever_breaks_the_service(
    name: str, exported: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_clients, "PATIENCE", 0.5)
    policy, folder = open_policy(exported[f"{name}.onnx"]), tmp_path / "log.parquet"
    with opened(folder, policy) as log, served(policy, log=log) as ask:
        answers = asyncio.run(service_clients.fuzz(ask.port, 4, 300))  # type: ignore[attr-defined]
        assert ask("/health")[0] == 200
        assert log.failure is None
        text = ask("/metrics")[1]
    assert answers.failures == []
    assert max(answers.statuses) < 500
    assert 'status="5' not in text
    assert {200, 400, 404, 405} <= set(answers.statuses)
    assert len(opened_rows(folder)) > 20
