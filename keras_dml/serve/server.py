"""The server process: loads model and gallery, and answers until stopped."""

import contextlib
import gc
import logging
import math
import os
import signal
import socket
import threading
import warnings
from collections.abc import Callable, Iterator

import PIL.Image
import uvicorn
from starlette.types import ASGIApp

from keras_dml.embedding.engines import KERAS, Engine, check_engine
from keras_dml.serve.app import application
from keras_dml.serve.current import load
from keras_dml.serve.service import (
    GalleryWatcher,
    Service,
    limit_memory,
    release_memory,
)
from keras_dml.serve.settings import Settings, address_of, bind, is_local

logger = logging.getLogger(__name__)


def serve(
    path: str,
    gallery: str | None = None,
    *,
    name: str | None = None,
    settings: Settings | None = None,
    engine: Engine = KERAS,
    trust: bool = False,
    opened: socket.socket | None = None,
    on_ready: Callable[[str, str], object] = lambda address, name: None,
) -> None:
    """Serves a model until the process receives SIGTERM or SIGINT.

    Requests in progress are completed first, for at most the time-out of the
    settings; then the process ends without them. While the model is loaded,
    connections are refused. Arguments are those of the command, a socket from
    `bind`, and a function that is called with the address and the name of the
    model when the server is ready.
    """
    check_engine("serve", engine)
    limit_memory()
    settings = settings or Settings()
    with contextlib.closing(opened or bind(settings)) as opened:
        if settings.token is None and not is_local(settings.host):
            logger.warning(
                "Anyone who can reach %s can use this server, because it has "
                "no --token.",
                settings.host,
            )
        service = Service(load(path, name, engine, trust), settings)
        watcher = None
        if gallery is not None:
            watcher = GalleryWatcher(service, gallery)
            service.current = service.current.with_gallery(gallery)
        # The many small lists of requests with pixels trigger garbage
        # collection, which takes 0.2 s with the objects of TensorFlow and
        # Keras, so these are frozen.
        release_memory(collect=True)
        gc.freeze()
        # Pictures have a limit of their own, below which Pillow may warn.
        warnings.simplefilter("ignore", PIL.Image.DecompressionBombWarning)
        server = server_of(application(service, settings, watcher), settings)
        opened.listen(2048)
        with stopped_by_signals(server), running(server, opened) as thread:
            if watcher is not None:
                watcher.start(settings.poll)
            on_ready(address_of(opened), service.current.name)
            thread.join()
    if not service.close():
        logger.warning("A request was not completed in time.")
        logging.shutdown()
        # Python would wait for the thread of this request.
        os._exit(0)


@contextlib.contextmanager
def running(
    server: uvicorn.Server, opened: socket.socket
) -> Iterator[threading.Thread]:
    thread = threading.Thread(target=server.run, args=([opened],))
    thread.start()
    try:
        yield thread
    finally:
        server.should_exit = True
        thread.join()


@contextlib.contextmanager
def stopped_by_signals(server: uvicorn.Server) -> Iterator[None]:
    """Makes SIGINT and SIGTERM stop a server, and do nothing else."""
    kinds = (signal.SIGINT, signal.SIGTERM)
    handlers = {x: signal.signal(x, server.handle_exit) for x in kinds}
    try:
        yield
    finally:
        for kind, handler in handlers.items():
            signal.signal(kind, handler)


def server_of(app: ASGIApp, settings: Settings) -> uvicorn.Server:
    config = uvicorn.Config(
        app,
        http="httptools",
        # No route takes WebSockets, and they would bypass the guard.
        ws="none",
        lifespan="off",
        access_log=False,
        log_level="warning",
        log_config=None,
        # With uvloop, which uvicorn prefers, clients that wait while the
        # server stops lose their connections.
        loop="asyncio",
        server_header=False,
        # uvicorn refuses the connection that reaches this number.
        limit_concurrency=settings.max_connections + 1,
        timeout_keep_alive=5,
        timeout_graceful_shutdown=math.ceil(settings.stop_timeout),
    )
    config.load()  # Missing packages raise here, not in a thread.
    return uvicorn.Server(config)
