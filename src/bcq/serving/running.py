"""The process of a service: its socket, its end, and how long it waits for clients."""

import asyncio
import errno
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from bcq.serving.log import DecisionLog
from bcq.serving.service import Service
from bcq.system import interruption
from bcq.system.errors import InputError
from bcq.system.files import require_regular

MOST_CONNECTIONS = 512
IDLE_SECONDS = 5  # that a connection is kept between two requests
PATIENCE = 30.0  # seconds from one answer to the end of the next
STOPPING = 10  # seconds that open requests have when the service stops
FLUSH_TICKS = 10  # uvicorn ticks ten times a second
TOKEN = "BCQ_TOKEN"


class Connection(H11Protocol):
    """A connection that ends if a request or the reading of its answer takes too long.

    uvicorn itself waits for ever for headers that come letter by letter.
    """

    timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn's
        """Begins to wait for the first request."""
        super().connection_made(transport)
        self.wait()

    def on_response_complete(self) -> None:
        """Begins to wait for the next request."""
        super().on_response_complete()
        self.wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends waiting."""
        super().connection_lost(exc)
        if self.timer is not None:
            self.timer.cancel()

    def wait(self) -> None:
        """Gives the next answer a time by which it must be read."""
        if self.timer is not None:
            self.timer.cancel()
        self.timer = self.loop.call_later(PATIENCE, self.transport.abort)


class Server(uvicorn.Server):
    """Stops as every command of `bcq` does, and flushes the log once a second."""

    def __init__(self, config: uvicorn.Config, log: DecisionLog | None):
        super().__init__(config)
        self.log = log

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leaves signals to `interruption`."""
        yield

    async def on_tick(self, counter: int) -> bool:
        """Whether to stop."""
        if self.log is not None and counter % FLUSH_TICKS == 0:
            await asyncio.to_thread(self.log.flush)
        return interruption.requested() or await super().on_tick(counter)


def listen(host: str, port: int) -> socket.socket:
    """A socket at an address of this machine."""
    if not 0 <= port < 2**16:
        raise InputError(f"port {port}: is not between 0 and {2**16 - 1}")
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        place = socket.create_server((host, port), family=family, backlog=1024)
    except (OSError, UnicodeError) as error:
        # Python repeats the address in the words of the error.
        words = str(getattr(error, "strerror", None) or error).partition(" (while")[0]
        failed = f"cannot listen at {host}, port {port}: {words}"
        if getattr(error, "errno", None) == errno.EADDRINUSE:
            raise InputError(failed, option="port") from error
        raise InputError(failed) from error
    # The head of an answer and its body are sent apart: a client would wait 40 ms for the body.
    # asyncio does this only for sockets that name their protocol.
    place.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return place


def is_local(host: str) -> bool:
    """Whether only this machine can reach an address."""
    return host in ("127.0.0.1", "localhost", "::1")


def server_of(service: Service) -> Server:
    """The server: it runs until it is asked to stop, and then answers open requests."""
    config = uvicorn.Config(
        service.application(),
        loop="asyncio",
        http=Connection,
        ws="none",
        lifespan="off",
        log_config=None,  # uvicorn's own closes the handlers of other libraries
        log_level="error",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=MOST_CONNECTIONS,
        timeout_keep_alive=IDLE_SECONDS,
        timeout_graceful_shutdown=STOPPING,
    )
    return Server(config, service.log)


def read_token(file: Path | None) -> str | None:
    """The token of a file, or of the environment; None if there is none."""
    if file is None:
        found = os.environ.get(TOKEN)
    else:
        require_regular(file)
        try:
            found = file.read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise InputError(f"{file}: cannot be read: {error}") from error
    if found is None:
        return None
    token = found.strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise InputError(f"{file or TOKEN}: must have a token of letters, digits and signs")
    return token
