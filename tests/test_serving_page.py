"""The page of a service in a real browser, at the width of a phone and of a desk."""

import base64
import json
import os
import re
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from websockets.sync.client import ClientConnection, connect

from bcq.data.bounds import ActionBounds, Choices, TaskSpec
from bcq.data.layout import Layout, ObservationColumn
from bcq.serving.policy import Acted, ServedPolicy
from bcq.serving.service import PAGE
from test_card import BROWSER, FLAGS
from test_serving import Ask, served

HOSTILE = "<img src=x onerror=document.title='broken'>"
WITHOUT = pytest.mark.skipif(BROWSER is None, reason="there is no Chromium or Chrome on the PATH")


def act(rows: Any, permitted: Any) -> Acted:
    """Twice the first number; what is above 2 is outside the batch, what is missing not valid."""
    del permitted
    valid = np.isfinite(rows).all(axis=1)
    actions = np.stack([2 * rows[:, 0], rows[:, 1]], axis=1)
    return Acted(np.where(valid[:, None], actions, 0), valid, valid & (rows[:, 0] <= 2))


def quantities() -> ServedPolicy:
    task = TaskSpec(2, ActionBounds(np.full(2, -10, np.float32), np.full(2, 10, np.float32)))
    card = {
        **{"algorithm": HOSTILE, "task": task.as_json(), "fallback_given": True},
        "observation_columns": [HOSTILE, "a name without spaces, " + "long" * 60],
        "action_columns": [HOSTILE, "torque"],
        "seen": {"low": [-2.0, 0.0], "high": [2.0, 0.0]},
        "verdict": {"verdict": HOSTILE},
    }
    return ServedPolicy(card, "0123456789abcdef", task, act)


def choices() -> ServedPolicy:
    columns = (ObservationColumn("level"), ObservationColumn("mode", ("auto", HOSTILE)))
    task = TaskSpec(3, Choices(["wait", HOSTILE]), layout=Layout(columns))

    def choose(rows: Any, permitted: Any) -> Acted:
        del permitted
        return Acted(rows[:, 2].astype(int), *np.ones((2, len(rows)), bool))

    return ServedPolicy({"algorithm": "bc", "task": task.as_json()}, "f" * 16, task, choose)


class Tab:
    """A page in a browser, by the protocol of its developer tools."""

    def __init__(self, socket: ClientConnection):
        self.socket, self.number = socket, 0
        self.events: list[dict[str, Any]] = []
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self.number += 1
        self.socket.send(json.dumps({"id": self.number, "method": method, "params": parameters}))
        while True:
            found = json.loads(self.socket.recv(timeout=30))
            if found.get("id") == self.number:
                assert "error" not in found, found
                return found["result"]
            self.events.append(found)

    def value(self, code: str) -> Any:
        return self.call("Runtime.evaluate", expression=code, returnByValue=True)["result"].get(
            "value"
        )

    def open(self, address: str, width: int, dark: bool) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            **{"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 800},
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Page.navigate", url=address)

    def wait(self, code: str) -> None:
        """Until something is true of the page."""
        until = time.monotonic() + 20
        while not self.value(code):
            assert time.monotonic() < until, self.value("document.body.innerText")
            time.sleep(0.05)

    def enter(self, selector: str, value: str, event: str = "input") -> None:
        """Does what a hand does."""
        place = f"document.querySelector({json.dumps(selector)})"
        self.value(
            f"{place}.value = {json.dumps(value)}; {place}.dispatchEvent(new Event('{event}'))"
        )

    def text(self, name: str) -> str:
        return str(self.value(f"document.getElementById({name!r}).innerText"))

    def errors(self) -> list[Any]:
        """What the page did wrong: exceptions, and what its policy forbade."""
        return [
            each
            for each in self.events
            if each["method"] == "Runtime.exceptionThrown"
            or (each["method"] == "Log.entryAdded" and "401" not in each["params"]["entry"]["text"])
        ]

    def asked(self) -> set[str]:
        """Every address that the page asked for."""
        sent = [e for e in self.events if e["method"] == "Network.requestWillBeSent"]
        return {each["params"]["request"]["url"] for each in sent}


@contextmanager
def browser(folder: Path) -> Iterator[Tab]:
    assert BROWSER is not None
    own = [f"--user-data-dir={folder / 'profile'}", "--remote-debugging-port=0", "about:blank"]
    short = os.environ | {"TMPDIR": "/tmp"}
    started = subprocess.Popen(
        [BROWSER, *FLAGS, *own], stderr=subprocess.PIPE, text=True, env=short
    )
    try:
        assert started.stderr is not None
        found = None
        while found is None:
            line = started.stderr.readline()
            assert line, "the browser ended"
            found = re.search(r"DevTools listening on ws://([\d.:]+)/", line)
        with urllib.request.urlopen(f"http://{found[1]}/json/list", timeout=20) as answer:
            tab = next(each for each in json.load(answer) if each["type"] == "page")
        with connect(tab["webSocketDebuggerUrl"], max_size=None, proxy=None) as socket:
            yield Tab(socket)
    finally:
        started.kill()
        started.communicate()


def address_of(ask: Ask) -> str:
    return f"http://127.0.0.1:{ask.port}/"  # type: ignore[attr-defined]


@WITHOUT
def test_a_person_moves_a_slider_and_sees_the_action(tmp_path: Path) -> None:
    with browser(tmp_path) as tab, served(quantities()) as ask:
        for width in (390, 1280):
            for dark in (False, True):
                tab.open(address_of(ask), width, dark)
                tab.wait("document.querySelectorAll('#action b').length === 2")
                shot = tab.call("Page.captureScreenshot")["data"]
                name = f"page-{width}-{'dark' if dark else 'light'}.png"
                (Path(os.environ.get("BCQ_SHOTS", tmp_path)) / name).write_bytes(
                    base64.b64decode(shot)
                )
                assert tab.value("document.documentElement.scrollWidth") == width
                shade = tab.value("getComputedStyle(document.body).backgroundColor")
                assert (int(re.findall(r"\d+", shade)[0]) < 64) == dark
        assert tab.value("document.title") == "A policy by hand"
        assert tab.value("document.querySelectorAll('img').length") == 0
        assert HOSTILE in tab.text("about")
        assert HOSTILE in tab.text("fields")
        assert HOSTILE in tab.text("action")
        assert "not logged" in tab.text("about")
        tab.enter("#number-0", "1.5")
        tab.wait("document.querySelector('#action b').innerText === '3'")
        assert "within the range of the batch" in tab.text("flags")
        tab.enter(".row input[type=number]", "4")
        tab.wait("document.querySelector('#action b').innerText === '8'")
        assert "outside its range" in tab.text("flags")
        tab.enter(".row input[type=number]", "")
        tab.wait("document.getElementById('flags').innerText.includes('fallback')")
        assert (
            tab.value("document.querySelector('#number-1').min") == "-1"
        )  # a number that is constant
        assert tab.errors() == []
        paths = {"", "card", "act"}
        outside = {url for url in tab.asked() if not url.startswith("data:")}
        assert outside == {address_of(ask) + path for path in paths}


@WITHOUT
def test_categories_choices_and_the_token_work_by_hand(tmp_path: Path) -> None:
    with browser(tmp_path) as tab, served(choices(), token="s3cret") as ask:
        tab.open(address_of(ask), 390, False)
        tab.wait("!document.getElementById('ask').hidden")
        assert "a token is needed" in tab.text("about")
        tab.enter("#token", "s3cret")
        tab.value("document.querySelector('#ask button').click()")
        tab.wait("document.getElementById('action').innerText === 'wait'")
        assert tab.value("document.getElementById('ask').hidden")
        tab.enter("select", HOSTILE, "change")
        tab.wait(f"document.getElementById('action').innerText === {json.dumps(HOSTILE)}")
        assert "range of the batch is not known" in tab.text("flags")
        assert tab.value("document.querySelectorAll('img').length") == 0
        assert tab.errors() == []


def test_the_page_is_always_the_same_and_nothing_in_it_makes_html_of_text() -> None:
    assert "innerHTML" not in PAGE
    assert not re.search(r"insertAdjacent|outerHTML|document\.write|eval\(|Function\(", PAGE)
    assert not re.search(r"https?://|//[a-z]", PAGE)
    with served(quantities()) as ask:
        status, page = ask("/")
        policy = ask.headers["content-security-policy"]  # type: ignore[attr-defined]
    assert (status, page) == (200, PAGE)
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
