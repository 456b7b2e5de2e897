"""The application: REST, the page, health and metrics."""

from typing import Any

import orjson
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from keras_dml.serve import rest
from keras_dml.serve.current import Current
from keras_dml.serve.guard import Guard
from keras_dml.serve.metrics import Metrics
from keras_dml.serve.page import endpoints
from keras_dml.serve.service import Service
from keras_dml.serve.settings import Settings, is_local
from keras_dml.serve.watcher import GalleryWatcher


def application(
    service: Service, settings: Settings, watcher: GalleryWatcher | None = None
) -> Starlette:
    """All that a server answers."""
    metrics = Metrics(service)
    if watcher is not None:
        watcher.on_reload = lambda x: metrics.reloads.labels(x).inc()

    def healthz(request: Request) -> Response:
        body = orjson.dumps(health(service.current, watcher))
        return Response(body, media_type="application/json")

    def measured(request: Request) -> Response:
        return Response(metrics.text(), media_type=metrics.MEDIA_TYPE)

    async def to_guard(request: Request, error: Exception) -> Response:
        raise error

    app = Starlette(
        routes=[
            *rest.routes(service),
            Route("/healthz", healthz),
            Route("/metrics", measured),
            *endpoints.routes(service, settings),
        ],
        middleware=[
            Middleware(Guard, settings, metrics),
            # A website can point its own name to this machine and have its
            # scripts read what a server here answers (DNS rebinding).
            Middleware(TrustedHostMiddleware, allowed_hosts(settings.host)),
        ],
        exception_handlers={HTTPException: to_guard},
    )
    app.state.service = service
    return app


def allowed_hosts(host: str) -> list[str]:
    """Names by which clients may ask a server that listens on an address.

    Any name, unless this machine alone can reach it.
    """
    if not is_local(host):
        return ["*"]
    return ["localhost", "127.0.0.1", "[::1]", host]


def health(current: Current, watcher: GalleryWatcher | None) -> dict[str, Any]:
    """What is served, and what is wrong with the folder of the gallery.

    A server that answers is healthy, whatever is wrong with a file.
    """
    index = current.index
    return {
        "status": "ok",
        "model": current.name,
        "gallery": None if index is None else {"rows": len(index)},
        "problem": None if watcher is None else watcher.problem,
    }
