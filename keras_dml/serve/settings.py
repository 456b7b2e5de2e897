"""Settings: the address that a server listens on, and its limits.

Nothing here needs Keras: the command listens before it imports it.
"""

import contextlib
import ipaddress
import re
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from annotated_types import Ge, Le

from keras_dml.utils.arguments import Checked
from keras_dml.utils.types import Count, Positive


@dataclass(frozen=True)
class Settings(Checked):
    """The address that a server listens on, and its limits.

    Args:
        host: The address to listen on; by default, only this machine can reach
            the server.
        port: The port; 0 chooses a free one.
        token: Token that clients must send as `Authorization: Bearer TOKEN`;
            None allows everyone.
        max_body: Largest size of a request body, in bytes.
        max_pixels: Largest number of pixels of a picture, according to its
            header, and of those that are decoded at a time. Kinds of file
            that take more memory than PNG and JPEG count for more.
        max_batch: Largest number of examples in a batch for the model.
        queue: Largest number of waiting examples; further requests are answered
            with status 503.
        max_connections: Largest number of open connections; while there are
            more, requests are answered with status 503.
        request_timeout: Seconds that a request may take, from its complete head
            to its response.
        stop_timeout: Seconds that requests have to finish when the server
            stops, rounded up; what is left is answered with status 503.
        poll: Seconds between two looks at the folder of the gallery.

    Raises:
        ValueError: If an argument is invalid.
    """

    host: str = "127.0.0.1"
    port: Annotated[int, Ge(0), Le(65535)] = 8501
    token: str | None = None
    max_body: Count = 32 * 2**20
    max_pixels: Count = 2**26
    max_batch: Count = 64
    queue: Count = 1024
    max_connections: Count = 512
    request_timeout: Positive = 30.0
    stop_timeout: Positive = 30.0
    poll: Positive = 0.25

    def __post_init__(self) -> None:
        if self.token is not None and not re.fullmatch("[!-~]+", self.token):
            raise ValueError(
                "`token` of Settings must consist of visible ASCII characters, "
                "because it is sent in a header. Received: a text of length "
                f"{len(self.token)} that does not. Use for instance the output "
                "of `openssl rand -hex 32`."
            )


def check_is_there(path: str) -> None:
    """Raises `FileNotFoundError` if there is nothing to serve at a path."""
    if not Path(path).exists():
        raise FileNotFoundError(
            f"There is nothing at {path!r}. Use the folder of a run, or a "
            ".keras file."
        )


def is_local(host: str) -> bool:
    """Whether only this machine can reach an address or host name."""
    try:
        addresses = socket.getaddrinfo(host, None)
    except socket.gaierror:
        return False
    return ipaddress.ip_address(addresses[0][4][0]).is_loopback


def bind(settings: Settings) -> socket.socket:
    """A socket bound to the address of the settings, not yet listening."""
    host, port = settings.host, settings.port
    try:
        with contextlib.ExitStack() as on_error:
            family = socket.getaddrinfo(host, port)[0][0]
            opened = on_error.enter_context(socket.socket(family))
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            # asyncio does not set this; answers would wait 40 ms for an ACK.
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            opened.bind((host, port))
            on_error.pop_all()
        return opened
    except OSError as error:
        reason = str(error.strerror).partition(" (")[0]
        raise OSError(
            f"The server cannot listen on {host}, port {port}: {reason}. Use "
            "another --host or --port; --port 0 takes a free one."
        ) from error


def address_of(opened: socket.socket) -> str:
    """The URL of a socket for clients on this machine."""
    host, port = opened.getsockname()[:2]
    if ipaddress.ip_address(host).is_unspecified:
        host = "localhost"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
