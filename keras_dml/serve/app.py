"""The application: all routes, behind a guard that measures every request."""

import asyncio
import hmac
import logging
import re
import time
from collections.abc import Callable
from typing import Any

import orjson
from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from keras_dml.serve import page, predict
from keras_dml.serve.errors import (
    Busy,
    RequestError,
    as_request_error,
    error_response,
)
from keras_dml.serve.logs import REQUESTS
from keras_dml.serve.service import GalleryWatcher, Service
from keras_dml.serve.settings import Settings, is_local

logger = logging.getLogger(__name__)
request_log = logging.getLogger(REQUESTS)
"""Logger of requests, whose records have attributes in `fields`."""

OPEN_PATHS = re.compile(r"/healthz|/|/page/assets/.*")
"""Paths that need no token: monitoring has none, and the page asks for it. Its
files reveal nothing of what is served.
"""

MAX_BODIES = 2
"""Bodies of `max_body` bytes that are in memory at a time."""

_SIZES = tuple(2**power for power in range(11))
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


def application(
    service: Service, settings: Settings, watcher: GalleryWatcher | None = None
) -> Starlette:
    metrics = Metrics(service)
    if watcher is not None:
        watcher.on_reload = lambda x: metrics.reloads.labels(x).inc()

    def healthz(request: Request) -> Response:
        # A server that answers is healthy, even if a file is damaged.
        current = service.current
        index = current.index
        body = {
            "status": "ok",
            "model": current.name,
            "gallery": None if index is None else {"rows": len(index)},
            "problem": None if watcher is None else watcher.problem,
        }
        return Response(orjson.dumps(body), media_type="application/json")

    def measure(request: Request) -> Response:
        text = generate_latest(metrics.registry)
        return Response(text, media_type=CONTENT_TYPE_LATEST)

    async def reraise(request: Request, error: Exception) -> Response:
        raise error

    # A server that only this machine reaches allows only local names: a website
    # can point its own name to this machine and have its scripts read answers
    # of the server (DNS rebinding).
    hosts = ["*"]
    if is_local(settings.host):
        hosts = ["localhost", "127.0.0.1", "[::1]", settings.host]
    app = Starlette(
        routes=[
            *predict.routes(service),
            Route("/healthz", healthz),
            Route("/metrics", measure),
            *page.routes(service),
        ],
        middleware=[
            Middleware(Guard, settings, metrics),
            Middleware(TrustedHostMiddleware, hosts),
        ],
        exception_handlers={HTTPException: reraise},
    )
    app.state.service = service
    return app


class Metrics:
    """Metrics for Prometheus, among them the batches of a service."""

    def __init__(self, service: Service) -> None:
        self.registry = CollectorRegistry()

        def add(kind: Any, name: str, about: str, **options: Any) -> Any:
            name = f"keras_dml_{name}"
            return kind(name, about, registry=self.registry, **options)

        self.requests = add(
            Counter,
            "requests_total",
            "Requests answered.",
            labelnames=("route", "code"),
        )
        self.seconds = add(
            Histogram,
            "request_seconds",
            "Seconds from the head of a request to the end of its answer.",
            labelnames=("route",),
            buckets=_SECONDS,
        )
        self.reloads = add(
            Counter,
            "reloads_total",
            "Galleries that were saved anew, by whether they could be loaded.",
            labelnames=("outcome",),
        )
        about = "Examples in a batch that ran."
        batches = add(Histogram, "batch_examples", about, buckets=_SIZES)
        service.on_batch = batches.observe
        waiting = add(Gauge, "queue_examples", "Examples that wait.")
        waiting.set_function(lambda: service.waiting)
        galleries = add(Gauge, "galleries", "Galleries served so far.")
        galleries.set_function(lambda: service.current.version)


class Guard:
    """Middleware: token, size and time limits, errors, log and metrics."""

    def __init__(
        self, app: ASGIApp, settings: Settings, metrics: Metrics
    ) -> None:
        self._app, self._settings, self._metrics = app, settings, metrics
        self._held_bytes = 0  # Of bodies of requests without an answer.

    async def __call__(
        self, scope: Scope, receive: Receive, send: Send
    ) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        exchange = _Exchange(receive, send, self._hold)
        began = time.perf_counter()
        try:
            self._admit(scope)
            async with asyncio.timeout(self._settings.request_timeout):
                await self._app(scope, exchange.receive, exchange.send)
        except asyncio.CancelledError:
            # The server has waited long enough while it stops; the task ends.
            await self._refuse(Busy("it is stopping"), scope, exchange)
        except Exception as error:
            await self._refuse(error, scope, exchange)
        finally:
            self._held_bytes -= exchange.bytes_received
            self._record(scope, exchange, time.perf_counter() - began)

    def _hold(self, total: int, part: int) -> None:
        """Counts a part of a body with `total` bytes received so far."""
        self._held_bytes += part
        self._check_size(total)
        if self._held_bytes > MAX_BODIES * self._settings.max_body:
            raise Busy("it has many large requests", retry_after=5)

    def _admit(self, scope: Scope) -> None:
        """Raises errors that the head of the request reveals."""
        headers = dict(scope["headers"])
        token = self._settings.token
        if token is not None and not OPEN_PATHS.fullmatch(scope["path"]):
            kind, _, key = headers.get(b"authorization", b"").partition(b" ")
            # The time of this comparison does not reveal where keys differ.
            is_same = hmac.compare_digest(key.strip(), token.encode())
            if kind.lower() != b"bearer" or not is_same:
                raise RequestError(
                    "The request must have the header `Authorization: Bearer "
                    "TOKEN`, with the token of the server.",
                    401,
                    {"www-authenticate": "Bearer"},
                )
        length = headers.get(b"content-length", b"0")
        self._check_size(int(length) if length.isdigit() else 0)

    def _check_size(self, size: int) -> None:
        if size > self._settings.max_body:
            raise RequestError(
                "The body of a request must not exceed "
                f"{self._settings.max_body:,} bytes. Send fewer images at a "
                "time, or start the server with a larger --max-body.",
                413,
            )

    async def _refuse(
        self, error: Exception, scope: Scope, exchange: "_Exchange"
    ) -> None:
        answer = as_request_error(error)
        if answer.status_code == 500:
            logger.error("A request failed.", exc_info=error)
        if exchange.code:  # The answer has begun and cannot be replaced.
            raise error
        response = error_response(answer)
        # The rest of a refused body is discarded so that the connection can be
        # used again, unless the client took too long to send it.
        if answer.status_code == 504 and not exchange.has_body:
            response.headers["connection"] = "close"
        await response(scope, exchange.receive, exchange.send)

    def _record(
        self, scope: Scope, exchange: "_Exchange", seconds: float
    ) -> None:
        route = getattr(scope.get("route"), "path", "unknown")
        code = exchange.code or 499  # The client went away.
        self._metrics.requests.labels(route, code).inc()
        self._metrics.seconds.labels(route).observe(seconds)
        if request_log.isEnabledFor(logging.INFO):
            client = scope.get("client")
            fields = {
                "method": scope["method"],
                "path": scope["path"],
                "code": code,
                "ms": round(1000 * seconds, 3),
                "bytes_in": exchange.bytes_received,
                "bytes_out": exchange.bytes_sent,
                "client": client[0] if client else None,
            }
            request_log.info("request", extra={"fields": fields})


class _Exchange:
    """The messages of one request and its answer, counted."""

    def __init__(
        self, receive: Receive, send: Send, hold: Callable[[int, int], None]
    ) -> None:
        self._receive, self._send, self._hold = receive, send, hold
        self.bytes_received = self.bytes_sent = self.code = 0
        self.has_body = False

    async def receive(self) -> Message:
        message = await self._receive()
        part = len(message.get("body", b""))
        self.bytes_received += part
        self.has_body |= not message.get("more_body", False)
        self._hold(self.bytes_received, part)
        return message

    async def send(self, message: Message) -> None:
        self.code = message.get("status", self.code)
        self.bytes_sent += len(message.get("body", b""))
        await self._send(message)
