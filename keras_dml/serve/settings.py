"""Settings: where a server listens, and how much it takes on."""

import math
from dataclasses import dataclass

from keras_dml.utils.arguments import check_count, check_positive


@dataclass(frozen=True)
class Settings:
    """How a server listens, and its limits.

    Args:
        host: The address it listens on: by default this machine alone can
            reach it.
        port: The port; 0 takes a free one.
        token: What clients must send as `Authorization: Bearer TOKEN`; None
            lets everyone in.
        max_body: Bytes of the largest request body.
        max_pixels: Pixels of the largest picture, by its header.
        max_batch: Examples that run through the model at a time.
        batch_timeout: Seconds that a batch waits for more examples; with 0
            it takes those that queued while the one before it ran.
        queue: Examples that wait at most; further requests are answered 503.
        request_timeout: Seconds a request may take, from its first byte to
            its answer.
        stop_timeout: Seconds that requests are given to finish in when the
            server stops.
        poll: Seconds between two looks for a new version.

    Raises:
        ValueError: If an argument is not as described.
    """

    host: str = "127.0.0.1"
    port: int = 8501
    token: str | None = None
    max_body: int = 32 * 2**20
    max_pixels: int = 2**26
    max_batch: int = 64
    batch_timeout: float = 0.0
    queue: int = 1024
    request_timeout: float = 30.0
    stop_timeout: float = 30.0
    poll: float = 1.0

    def __post_init__(self) -> None:
        for name in ("max_body", "max_pixels", "max_batch", "queue"):
            check_count("Settings", name, getattr(self, name))
        for name in ("request_timeout", "stop_timeout", "poll"):
            check_positive("Settings", name, getattr(self, name))
        check_count("Settings", "port", self.port, least=0)
        if self.port > 65535:
            raise ValueError(
                "`port` of Settings must be at most 65535. Received: "
                f"port={self.port}."
            )
        if not 0 <= self.batch_timeout < math.inf:
            raise ValueError(
                "`batch_timeout` of Settings must be a number of seconds, 0 "
                f"or more. Received: batch_timeout={self.batch_timeout!r}."
            )
        if self.token is not None and not _is_header_text(self.token):
            raise ValueError(
                "`token` of Settings must be visible ASCII characters, at "
                "least one, as it is sent in a header. Received: another "
                f"text, of length {len(self.token)}. Use for instance what "
                "`openssl rand -hex 32` prints."
            )


def _is_header_text(token: str) -> bool:
    return bool(token) and all("!" <= letter <= "~" for letter in token)
