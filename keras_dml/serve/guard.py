"""Guard: what holds for every request, whatever it asks for.

The token, the size of the body, the time limit; an answer to every error; a
line in the log and a count in the metrics.
"""

import asyncio
import hmac
import logging
import re
import time
from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from keras_dml.serve.errors import (
    Busy,
    RequestError,
    as_request_error,
    error_response,
)
from keras_dml.serve.logs import REQUESTS
from keras_dml.serve.metrics import Metrics
from keras_dml.serve.settings import Settings

logger = logging.getLogger(__name__)
request_log = logging.getLogger(REQUESTS)
"""Its records have what a request was in their `fields`."""

OPEN = re.compile(r"/healthz|/|/page/assets/.*")
"""Addresses that need no token: what watches a server has none, and the page
asks for it. Its files tell nothing of what is served.
"""


MAX_BODIES = 2
"""Bodies of `max_body` bytes that are held at a time."""


class Guard:
    """Wraps an application; see the module."""

    def __init__(
        self, app: ASGIApp, settings: Settings, metrics: Metrics
    ) -> None:
        self._app, self._settings, self._metrics = app, settings, metrics
        self._held = 0  # Bytes of bodies whose requests are not answered yet.

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
            # The server stops, and has waited long enough. The task ends.
            await self._refuse(Busy("it is stopping"), scope, exchange)
        except Exception as error:
            await self._refuse(error, scope, exchange)
        finally:
            self._held -= exchange.received
            self._record(scope, exchange, time.perf_counter() - began)

    def _hold(self, received: int, part: int) -> None:
        """Counts a part of a body of which so many bytes have been received."""
        self._held += part
        if received > self._settings.max_body:
            raise _too_large(self._settings.max_body)
        if self._held > MAX_BODIES * self._settings.max_body:
            raise Busy("it has many large requests", retry_after=5)

    def _admit(self, scope: Scope) -> None:
        """Refuses what can be refused by the head of the request."""
        headers = dict(scope["headers"])
        token = self._settings.token
        if token is not None and not OPEN.fullmatch(scope["path"]):
            _check_token(headers, token.encode())
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length) > self._settings.max_body:
            raise _too_large(self._settings.max_body)

    async def _refuse(
        self, error: Exception, scope: Scope, exchange: "_Exchange"
    ) -> None:
        told = as_request_error(error)
        if told.status_code == 500:
            logger.error("A request failed.", exc_info=error)
        if exchange.code:  # The answer has begun; it cannot be another now.
            raise error
        response = error_response(told)
        # The rest of a refused body is thrown away, and the connection is used
        # again; who took too long to send it is not listened to.
        if told.status_code == 504 and not exchange.has_body:
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
                "bytes_in": exchange.received,
                "bytes_out": exchange.sent,
                "client": client[0] if client else None,
            }
            request_log.info("request", extra={"fields": fields})


class _Exchange:
    """The messages of one request and its answer, counted."""

    def __init__(
        self, receive: Receive, send: Send, hold: Callable[[int, int], None]
    ) -> None:
        self._receive, self._send, self._hold = receive, send, hold
        self.received = self.sent = self.code = 0
        self.has_body = False

    async def receive(self) -> Message:
        message = await self._receive()
        part = len(message.get("body", b""))
        self.received += part
        self.has_body |= not message.get("more_body", False)
        self._hold(self.received, part)
        return message

    async def send(self, message: Message) -> None:
        self.code = message.get("status", self.code)
        self.sent += len(message.get("body", b""))
        await self._send(message)


def _too_large(max_body: int) -> RequestError:
    return RequestError(
        f"The body of a request must not exceed {max_body:,} bytes. Send fewer "
        "images at a time, or start the server with a larger --max-body.",
        413,
    )


def _check_token(headers: dict[bytes, bytes], token: bytes) -> None:
    """Raises `RequestError` unless the token is sent."""
    kind, _, given = headers.get(b"authorization", b"").partition(b" ")
    # Takes as long whatever the first letters are.
    is_same = hmac.compare_digest(given.strip(), token)
    if kind.lower() != b"bearer" or not is_same:
        raise RequestError(
            "The request must have the header `Authorization: Bearer TOKEN`, "
            "with the token of the server.",
            401,
            {"www-authenticate": "Bearer"},
        )
