"""Connections: how long they may be silent, and how many there may be.

uvicorn waits for the head of a request for ever, and so does it for a client
to read its answer: its only timer runs after an answer, until the next byte.
"""

import asyncio
import http
from typing import Any

import orjson
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from keras_dml.serve.settings import Settings

SURPLUS = "keras_dml.surplus"
"""Is in the state of requests by a connection beyond the limit."""

ON_REFUSAL = "keras_dml.on_refusal"
"""In the state of the application: is called with the code and the address of
the client where a connection answers what never became a request.
"""

SPARE = 100
"""Connections beyond the limit that are told so; others are just closed, or
they would take the files that the process may open.
"""

MOST_HEAD = 2**16
"""Bytes of a head, which is in memory before anything can be known of it."""


def protocol(settings: Settings) -> type[asyncio.Protocol]:
    """What handles connections, for the argument `http` of uvicorn."""
    limits = {
        "head_timeout": settings.head_timeout,
        "most": settings.max_connections,
    }
    return type("Connection", (Connection,), limits)


class Connection(HttpToolsProtocol):
    """A connection whose client must send, and read what it asked for.

    One timer looks at it now and then. Nothing is due earlier than a full
    `head_timeout` after it began, so a look in between moves the timer to
    where it is due, and requests need not touch it.

    Attributes:
        head_timeout: Seconds that a connection may wait for a complete head,
            since it was opened or since its last answer.
        most: Connections that may be open.
    """

    head_timeout: float
    most: int

    def connection_made(  # type: ignore[override]
        self, transport: asyncio.Transport
    ) -> None:
        super().connection_made(transport)
        self._since = self.loop.time()
        self._is_in_head, self._head_size = False, 0
        self._unread: int | None = None
        self._look_after(self.head_timeout)
        surplus = len(self.connections) - self.most
        if surplus > SPARE:
            transport.abort()
        elif surplus > 0:
            self.app_state = {**self.app_state, SURPLUS: True}

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        # The bytes before, in which a head begins, may also end a body.
        if self._is_in_head:
            self._head_size += len(data)
        super().data_received(data)
        is_too_long = self._is_in_head and self._head_size > MOST_HEAD
        if is_too_long and not self.transport.is_closing():
            self._refuse(
                431,
                f"The head of a request must not exceed {MOST_HEAD:,} bytes. "
                "Send less in its address and headers.",
            )

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._is_in_head, self._head_size = True, 0

    def on_headers_complete(self) -> None:
        self._is_in_head = False
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._since = self.loop.time()

    def send_400_response(self, msg: str) -> None:
        """As all errors are, where uvicorn's is plain text."""
        self._refuse(400, msg)

    def _look_after(self, seconds: float) -> None:
        self._timer = self.loop.call_later(seconds, self._look)

    def _look(self) -> None:
        """Ends what has waited too long."""
        due = self.head_timeout
        if self.transport.is_closing():
            self._check_is_read()
        elif self.cycle is None or self.cycle.response_complete:
            due += self._since - self.loop.time()
            if due <= 0:
                self._expire()
                due = self.head_timeout
        self._look_after(due)

    def _expire(self) -> None:
        if self._is_in_head:
            self._refuse(
                408,
                "The head of a request must be complete within "
                f"{self.head_timeout:g} seconds. Send it faster, or start the "
                "server with a larger --head-timeout.",
            )
        else:  # Browsers open connections that they may never need.
            self.transport.close()

    def _check_is_read(self) -> None:
        """Closing waits until the client has read everything."""
        unread = self.transport.get_write_buffer_size()
        if unread == self._unread:
            self.transport.abort()
        self._unread = unread

    def _refuse(self, code: int, error: str) -> None:
        """Answers what never became a request."""
        if self.cycle and self.cycle.response_started:
            if not self.cycle.response_complete:
                # This would be taken for a part of that answer.
                return self.transport.abort()
        body = orjson.dumps({"error": error})
        headers: list[tuple[bytes, Any]] = [
            *self.server_state.default_headers,
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
            (b"connection", b"close"),
        ]
        phrase = http.HTTPStatus(code).phrase.encode()
        lines = [b"HTTP/1.1 %d %s" % (code, phrase)]
        lines += [b"%s: %s" % x for x in headers]
        self.transport.write(b"\r\n".join([*lines, b"", body]))
        self.transport.close()
        if on_refusal := self.app_state.get(ON_REFUSAL):
            on_refusal(code, self.client)
