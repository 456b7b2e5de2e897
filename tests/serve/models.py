"""Serves every model in a folder, each from when it is first asked for."""

import contextlib
import functools
from collections.abc import Iterator
from pathlib import Path

from starlette.applications import Starlette
from starlette.types import Receive, Scope, Send

from keras_dml.serve.app import application
from keras_dml.serve.loading import load
from keras_dml.serve.server import running, server_of
from keras_dml.serve.service import Service
from keras_dml.serve.settings import Settings, address_of, listen
from keras_dml.serve.sources import find_source


@contextlib.contextmanager
def serving(models: Path) -> Iterator[str]:
    """Gives the address of the server, host and port."""
    settings = Settings(port=0)

    @functools.cache
    def served(name: str) -> Starlette:
        service = Service(load(find_source(str(models / name))), settings)
        return application(service, settings)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        name = scope["path"].split("/")[3].partition(":")[0]
        await served(name)(scope, receive, send)

    server = server_of(app, settings)
    with contextlib.closing(listen(settings)) as opened:
        with running(server, opened):
            yield address_of(opened).removeprefix("http://")
