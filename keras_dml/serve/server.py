"""The server: from what is to be served to a process that answers."""

import contextlib
import gc
import ipaddress
import logging
import math
import signal
import socket
import threading
import warnings
from collections.abc import Callable, Iterator
from types import FrameType

import PIL.Image
import uvicorn
from starlette.types import ASGIApp

from keras_dml.serve.app import application, starting
from keras_dml.serve.loading import load
from keras_dml.serve.memory import limit_memory, release_memory
from keras_dml.serve.reloading import Reloader
from keras_dml.serve.service import Service
from keras_dml.serve.settings import Settings, is_local
from keras_dml.serve.sources import find_source

logger = logging.getLogger(__name__)

_SOON = 5
"""Seconds in which a server without a model has long begun."""


def serve(
    path: str,
    gallery: str | None = None,
    *,
    name: str | None = None,
    settings: Settings | None = None,
    on_ready: Callable[[str, str], object] = lambda address, name: None,
) -> None:
    """Serves a model until the process receives SIGTERM or SIGINT.

    Requests in progress are completed first.

    Args:
        path: The folder of a run, a `.keras` file, or `saved_models/NAME`,
            whose highest version is served.
        gallery: The folder of an index or its address in a database; without
            one, the server only makes predictions.
        name: Name of the model in addresses; by default, the name of the run,
            file or folder.
        settings: The address to listen on, and limits.
        on_ready: Called with the address and the name of the model when the
            server is ready.

    Raises:
        OSError: If the port is in use, or a file does not exist.
        ValueError: If model or gallery cannot be served.
    """
    limit_memory()
    settings = settings or Settings()
    source = find_source(path, name, gallery)
    with contextlib.closing(listen(settings)) as opened:
        if settings.token is None and not is_local(settings.host):
            logger.warning(
                "Anyone who can reach %s can use this server, because it has "
                "no --token.",
                settings.host,
            )
        stamps = source.stamps()
        with loading(opened, settings):
            current = load(source)
        service = Service(current, settings)
        reloader = Reloader(service, source, stamps)
        # Requests of pixels are many small lists, which make Python look
        # through all objects for garbage: 0.2 s while those of TensorFlow
        # and Keras are among them.
        release_memory(collect=True)
        gc.freeze()
        server = Server(
            application(service, settings, reloader),
            settings,
            lambda: on_ready(address_of(opened), source.name),
        )
        # Pictures have a limit of their own; Pillow would warn at its.
        warnings.simplefilter("ignore", PIL.Image.DecompressionBombWarning)
        server.run([opened])


@contextlib.contextmanager
def loading(opened: socket.socket, settings: Settings) -> Iterator[None]:
    """Answers that the model is being loaded, until the block ends.

    Args:
        opened: The socket; connections that nobody has accepted by the end
            wait for the server.
        settings: The limits.
    """
    ready = threading.Event()
    server = Server(starting, settings, ready.set)
    # A server closes its sockets when it stops.
    thread = threading.Thread(target=server.run, args=([opened.dup()],))
    thread.start()
    ready.wait(_SOON)  # One that is stopped earlier leaves its socket open.
    try:
        yield
    finally:
        server.should_exit = True
        thread.join()


class Server(uvicorn.Server):
    """Says when it answers; ends with 0 when it was asked to stop.

    Args:
        app: What it serves.
        settings: The limits.
        on_ready: Called when it answers.
    """

    def __init__(
        self, app: ASGIApp, settings: Settings, on_ready: Callable[[], object]
    ) -> None:
        config = uvicorn.Config(
            app,
            http="httptools",
            # There are none, and the guard would not see them.
            ws="none",
            access_log=False,
            log_level="warning",
            log_config=None,
            # With uvloop, which uvicorn prefers, clients that wait while the
            # server stops lose their connections.
            loop="asyncio",
            server_header=False,
            # uvicorn refuses as soon as there are this many.
            limit_concurrency=settings.max_connections + 1,
            timeout_keep_alive=5,
            timeout_graceful_shutdown=math.ceil(settings.stop_timeout),
        )
        super().__init__(config)
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._on_ready()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """As uvicorn's, which ends the process by the signal afterwards."""
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = True


def listen(settings: Settings) -> socket.socket:
    """A socket bound to the address of the settings.

    Raises:
        OSError: If the port is in use, or there is no such address.
    """
    host, port = settings.host, settings.port
    try:
        family = socket.getaddrinfo(host, port)[0][0]
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        reason = str(error.strerror).partition(" (")[0]
        raise OSError(
            f"The server cannot listen on {host}, port {port}: {reason}. Use "
            "another --host or --port; --port 0 takes a free one."
        ) from error


def address_of(opened: socket.socket) -> str:
    """The address of a socket, as clients on this machine write it."""
    host, port = opened.getsockname()[:2]
    if ipaddress.ip_address(host).is_unspecified:
        host = "localhost"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
