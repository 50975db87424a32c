"""The HTTP service of a policy: what it answers, and what it refuses."""

import asyncio
import base64
import hashlib
import hmac
import json
import re
import time
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bcq.serving.log import DecisionLog
from bcq.serving.metrics import Metrics
from bcq.serving.policy import Acted, ServedPolicy
from bcq.serving.requests import Question, RequestError, outcomes_of, question_of

LARGEST_BODY = 2**20  # bytes
BODY_SECONDS = 10.0  # in which a body must have come
FEW_ROWS = 16  # acting in more rows would delay the answers to other clients
PATHS = ("/", "/card", "/health", "/metrics", "/act", "/outcome")
OPEN = ("/", "/health")  # need no token: the page says nothing, and supervisors ask for health
LOCAL = ("127.0.0.1", "localhost", "[::1]")
FAILING = "the log cannot be written; the output of the service says why"  # paths are not told
PAGE = Path(__file__).with_name("page.html").read_text(encoding="utf-8")


class Service:
    """Answers the requests to one policy."""

    def __init__(
        self,
        policy: ServedPolicy,
        *,
        log: DecisionLog | None = None,
        token: str | None = None,
        local: bool = True,  # whether only this machine may ask
    ):
        self.policy, self.log, self.token, self.local = policy, log, token, local
        names = {"fingerprint": policy.fingerprint, "algorithm": str(policy.card.get("algorithm"))}
        self.metrics = Metrics(**names)
        # NaN is not JSON.
        self.card = json.loads(json.dumps(policy.card), parse_constant=str)

    def application(self) -> Starlette:
        """The service as an application of ASGI."""
        routes = [
            Route("/", self.page),
            Route("/card", self.show_card),
            Route("/health", self.health),
            Route("/metrics", self.show_metrics),
            Route("/act", self.act, methods=["POST"]),
            Route("/outcome", self.outcome, methods=["POST"]),
        ]
        handlers: dict[Any, Any] = {
            RequestError: lambda _, error: refusal(str(error), error.status),
            HTTPException: lambda _, error: refusal(error.detail, error.status_code),
            ClientDisconnect: lambda *_: Response(status_code=400),  # nobody reads it
            Exception: lambda *_: refusal("an error of the service; its log says more", 500),
        }
        guard = Middleware(Guard, service=self)
        made = Starlette(routes=routes, exception_handlers=handlers, middleware=[guard])
        made.router.redirect_slashes = False  # a path has one spelling
        return made

    def refuses(self, path: str, headers: Headers) -> Response | None:
        """The answer to a request that may not be made at all."""
        host = re.sub(r":\d*$", "", headers.get("host", ""))
        if self.local and host not in LOCAL:  # a page of another site, by a name of its own
            return refusal(f"this service answers at {' or '.join(LOCAL)} only", 421)
        if self.token is None or path in OPEN:
            return None
        given = headers.get("authorization", "").encode("utf-8", "replace")
        if hmac.compare_digest(given, f"Bearer {self.token}".encode()):
            return None
        return refusal("a token is needed: Authorization: Bearer ...", 401)

    async def act(self, request: Request) -> Response:
        """The actions for one observation or many."""
        question = question_of(await body_of(request), self.policy)
        if self.log is not None and self.log.overflows:
            raise RequestError(FAILING, 503)
        start, rows = time.perf_counter(), question.observations
        if len(rows) <= FEW_ROWS:
            acted = self.policy.act(rows, question.permitted)
        else:
            acted = await asyncio.to_thread(self.policy.act, rows, question.permitted)
        self.metrics.acted(time.perf_counter() - start)
        self.require_action(question, acted)
        said = self.words(acted)
        answers: list[dict[str, Any]] = [
            {"action": action, "valid": bool(valid), "inside": bool(inside)}
            for action, valid, inside in zip(said, acted.valid, acted.inside, strict=True)
        ]
        if self.log is not None:
            for answer, name in zip(answers, self.log.add(question, acted, said), strict=True):
                answer["decision"] = name
        self.count(acted)
        about = {"policy": self.policy.fingerprint}
        return JSONResponse(about | ({"decisions": answers} if question.many else answers[0]))

    def require_action(self, question: Question, acted: Acted) -> None:
        """Refuses rows without an action: neither valid, nor with a fallback that is permitted."""
        without, why = ~acted.valid, "was exported without a fallback"
        if self.policy.has_fallback:
            if question.permitted is None:
                return
            allowed = question.permitted[range(len(acted.actions)), acted.actions]
            without, why = without & ~allowed, "has a fallback that is not permitted here"
        if without.any():
            place = f"row {int(without.argmax())}: " if question.many else ""
            raise RequestError(
                f"{place}there is no action: a number is missing or not finite, and the policy "
                f"{why}"
            )

    def words(self, acted: Acted) -> list[Any]:
        """Actions as clients see them: the names of choices, or lists of numbers."""
        found: list[Any] = acted.actions.tolist()
        names = self.policy.task.choices
        return found if names is None else [names[number] for number in found]

    def count(self, acted: Acted) -> None:
        """Takes decisions into the metrics."""
        self.metrics.counts["decisions"] += len(acted.valid)
        self.metrics.counts["decisions_outside"] += int((~acted.inside).sum())
        self.metrics.counts["decisions_not_valid"] += int((~acted.valid).sum())

    async def outcome(self, request: Request) -> Response:
        """Takes what decisions brought."""
        outcomes = outcomes_of(await body_of(request))
        if self.log is None:
            raise RequestError("this service keeps no log", 409)
        if self.log.overflows:
            raise RequestError(FAILING, 503)
        self.log.learn(outcomes)
        self.metrics.counts["outcomes"] += len(outcomes)
        return JSONResponse({"outcomes": len(outcomes)})

    async def show_card(self, request: Request) -> Response:
        """What the policy is."""
        del request
        return JSONResponse({**self.card, "fingerprint": self.policy.fingerprint})

    async def health(self, request: Request) -> Response:
        """Whether everything works."""
        del request
        failing = self.log is not None and self.log.failure is not None
        told = {"status": FAILING if failing else "ok", "policy": self.policy.fingerprint}
        return JSONResponse(told, status_code=503 if failing else 200)

    async def show_metrics(self, request: Request) -> Response:
        """Counters for Prometheus."""
        del request
        gauges: dict[str, float] = {"resident_memory_bytes": resident_memory()}
        if self.log is not None:
            gauges |= {"log_rows_waiting": self.log.waiting, "log_failing": bool(self.log.failure)}
        return PlainTextResponse(self.metrics.text(gauges), media_type="text/plain; version=0.0.4")

    async def page(self, request: Request) -> Response:
        """A page to try the policy by hand; it is always the same and reads the card itself."""
        del request
        hashes = {
            kind: base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
            for kind, text in re.findall(r"<(style|script)>(.*?)</\1>", PAGE, re.DOTALL)
        }
        policy = (
            f"default-src 'none'; style-src 'sha256-{hashes['style']}'; "
            f"script-src 'sha256-{hashes['script']}'; connect-src 'self'; img-src data:; "
            "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        )
        return HTMLResponse(PAGE, headers={"Content-Security-Policy": policy})


class Guard:
    """Stands before the service: who may ask, headers of every answer, counts."""

    def __init__(self, app: ASGIApp, service: Service):
        self.app, self.service = app, service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        path = scope["path"] if scope["path"] in PATHS else "other"

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                self.service.metrics.requests[path, message["status"]] += 1
                headers = MutableHeaders(scope=message)
                headers["X-Content-Type-Options"] = "nosniff"
                headers["Cache-Control"] = "no-store"
            await send(message)

        refused = self.service.refuses(path, Headers(scope=scope))
        await (refused or self.app)(scope, receive, counted)


def refusal(message: str, status: int) -> Response:
    """An error, in one sentence."""
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else None
    return JSONResponse({"error": message}, status_code=status, headers=headers)


async def body_of(request: Request) -> bytes:
    """The body of a request.

    One that is too large is read to its end but not kept: a client that is still sending would
    not hear the answer.
    """
    if request.headers.get("content-type", "").split(";")[0].strip() != "application/json":
        # Pages of other sites may send other types without asking, to this machine too.
        raise RequestError("the Content-Type must be application/json", 415)
    body = bytearray()
    size = 0
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for chunk in request.stream():
                size += len(chunk)
                if size <= LARGEST_BODY:
                    body += chunk
    except TimeoutError as error:
        raise RequestError(f"the body did not come within {BODY_SECONDS:g} s", 408) from error
    if size > LARGEST_BODY:
        raise RequestError(f"the body is too large; the limit is {LARGEST_BODY:,} bytes", 413)
    return bytes(body)


def resident_memory() -> int:
    """Bytes of memory of this process; 0 where the system does not tell."""
    status = Path("/proc/self/status")
    found = re.search(r"VmRSS:\s+(\d+)", status.read_text()) if status.exists() else None
    return 0 if found is None else 1024 * int(found[1])
