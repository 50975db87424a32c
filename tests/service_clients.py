"""Clients of a service on this machine: well-behaved ones at once, and requests made to hurt it.

`benchmarks/serving.py` uses them for a minute, the tests for a second.
"""

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

HOST = "127.0.0.1"
PATIENCE = 2.0  # seconds for an answer to an odd request, which may wait for its own end


@dataclass
class Answers:
    """What clients heard, and how long they waited."""

    statuses: Counter[int] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)  # connections that broke

    def percentile(self, share: float) -> float:
        return sorted(self.seconds)[int(share * (len(self.seconds) - 1))]


def request(path: str, body: bytes, method: str = "POST", **headers: str) -> bytes:
    """The bytes of a request."""
    lines = {"Host": HOST, "Content-Type": "application/json", "Content-Length": str(len(body))}
    lines |= {name.replace("_", "-"): value for name, value in headers.items()}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode("utf-8", "surrogateescape") + body


async def read_answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """Status and body of an answer."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    length = next(
        (
            int(line.split(":")[1])
            for line in head.split("\r\n")
            if "content-length" in line.lower()
        ),
        0,
    )
    return int(head.split()[1]), await reader.readexactly(length)


async def keep_asking(port: int, bodies: Iterator[bytes], until: float, answers: Answers) -> None:
    """One client with one connection, which asks at least once, again as soon as it is answered."""
    reader, writer = await asyncio.open_connection(HOST, port)
    try:
        start = 0.0
        while start < until:
            start = time.perf_counter()
            writer.write(request("/act", next(bodies)))
            status, _ = await asyncio.wait_for(read_answer(reader), 30)
            answers.statuses[status] += 1
            answers.seconds.append(time.perf_counter() - start)
    except (OSError, EOFError, TimeoutError) as error:
        answers.failures.append(repr(error))
    finally:
        writer.close()


def states(size: int, client: int) -> Iterator[bytes]:
    """Observations of one episode, as a client sends them."""
    generator = random.Random(client)
    while True:
        numbers = [generator.gauss(0, 1) for _ in range(size)]
        yield json.dumps({"observation": numbers, "episode": f"client {client}"}).encode()


async def load(port: int, size: int, clients: int, seconds: float) -> Answers:
    """Many clients at once, for some time."""
    answers, until = Answers(), time.perf_counter() + seconds
    asking = (keep_asking(port, states(size, i), until, answers) for i in range(clients))
    await asyncio.gather(*asking)
    return answers


ODD: Sequence[Any] = (
    *(
        None,
        True,
        0,
        -1,
        1.5,
        1e308,
        -1e308,
        10**400,
        "",
        "a",
        "NaN",
        "\x00",
        "\u202e",
        "x" * 3_000,
    ),
    *([], {}, [[]], [None], {"a": {}}, "1", "-0", 2**63),
)
KEYS = ("observation", "permitted", "episode", "step", "logged", "decision", "reward", "terminated")
RAW = (
    b"",
    b"{",
    b"[",
    b"]" * 50,
    b"[" * 20_000,
    b'{"observation": NaN}',
    b'{"observation": [Infinity, 1, 1, 1]}',
    b'{"observation": [1e999, 1, 1, 1]}',
    b"\xff\xfe\x00",
    b"\x00" * 100,
    b'{"observation": [' + b"9" * 10_000 + b"]}",
    b'{"a": 1, "a": 2}',
    b'"\\ud800"',
    b'{"observation": "\\ud800"}',
    b'{"episode": "\\ud800", "observation": [1, 1, 1, 1]}',
    b"null",
    b"[]",
    b"[{}]",
    b"[" + b"{}," * 2_000 + b"{}]",
)
PATHS = (
    "/act",
    "/outcome",
    "/card",
    "/",
    "/health",
    "/metrics",
    "/%00",
    "/../etc/passwd",
    "/act/",
    "//",
)
METHODS = ("POST", "POST", "POST", "GET", "PUT", "DELETE", "OPTIONS", "HEAD", "TRACE", "X")
NOISE = (
    b"GARBAGE\r\n\r\n",
    b"GET / HTTP/9.9\r\n\r\n",
    b"POST /act HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n",
    b"POST /act HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n",
    b"GET / HTTP/1.1\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: localhost\r\nA: " + b"b" * 100_000 + b"\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc",
)


def odd_body(generator: random.Random, size: int) -> bytes:
    """A body that is nearly right, or far from it."""
    if generator.random() < 0.3:
        return generator.choice(RAW)
    row: dict[str, Any] = {"observation": [generator.gauss(0, 3) for _ in range(size)]}
    for _ in range(generator.randrange(3)):
        place = generator.randrange(size)
        row["observation"][place] = generator.choice(ODD)
    if generator.random() < 0.3:
        row["observation"] = row["observation"][: generator.randrange(size + 1)]
    if generator.random() < 0.5:
        row[generator.choice(KEYS)] = generator.choice(ODD)
    rows: Any = row if generator.random() < 0.6 else [row] * generator.randrange(1, 20)
    body = json.dumps(rows).encode()
    if generator.random() < 0.2:  # some bytes become others
        changed = bytearray(body)
        for _ in range(3):
            changed[generator.randrange(len(changed))] = generator.randrange(256)
        body = bytes(changed)
    return body


def odd_request(generator: random.Random, size: int) -> bytes:
    """A request of any kind."""
    if generator.random() < 0.05:
        return generator.choice(NOISE)
    headers = {}
    if generator.random() < 0.1:
        names = ("Content_Type", "Content_Length", "Host", "Authorization", "Transfer_Encoding")
        headers[generator.choice(names)] = generator.choice(("", "7", "x", "chunked", "\u00e9"))
    path = "/act" if generator.random() < 0.6 else generator.choice(PATHS)
    method = "POST" if generator.random() < 0.8 else generator.choice(METHODS)
    return request(path, odd_body(generator, size), method, **headers)


async def ask_once(port: int, content: bytes, answers: Answers) -> None:
    """Sends bytes on a connection of their own; hears one answer, or that there is none."""
    reader, writer = await asyncio.open_connection(HOST, port)
    try:
        writer.write(content)
        status, _ = await asyncio.wait_for(read_answer(reader), PATIENCE)
        answers.statuses[status] += 1
    except (OSError, EOFError, TimeoutError):
        answers.statuses[0] += 1  # what was sent is no whole request
    finally:
        writer.close()


async def fuzz(port: int, size: int, count: int, seed: int = 0, at_once: int = 20) -> Answers:
    """Many odd requests."""
    generator, answers = random.Random(seed), Answers()
    for first in range(0, count, at_once):
        some = [odd_request(generator, size) for _ in range(min(at_once, count - first))]
        await asyncio.gather(*(ask_once(port, content, answers) for content in some))
    return answers
