"""The application: REST, the page, health and metrics."""

import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any

import orjson
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from keras_dml.serve import page, rest
from keras_dml.serve.guard import Guard
from keras_dml.serve.health import health
from keras_dml.serve.metrics import Metrics
from keras_dml.serve.reloading import Reloader
from keras_dml.serve.service import Service
from keras_dml.serve.settings import Settings


def application(
    service: Service, settings: Settings, reloader: Reloader | None = None
) -> Starlette:
    """All that a server answers.

    Args:
        service: What is served.
        settings: The limits.
        reloader: What looks for new versions while the application runs.
    """
    metrics = Metrics(service)
    if reloader is not None:
        reloader.on_reload = lambda x: metrics.reloads.labels(x).inc()

    def healthz(request: Request) -> Response:
        return _json(health(service.current, reloader))

    def measured(request: Request) -> Response:
        return Response(metrics.text(), media_type=metrics.MEDIA_TYPE)

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        looking = reloader.looking() if reloader else contextlib.nullcontext()
        async with looking:
            yield
        await service.close()

    app = Starlette(
        routes=[
            *rest.routes(service),
            Route("/healthz", healthz),
            Route("/metrics", measured),
            *page.routes(service, settings),
        ],
        middleware=[Middleware(Guard, settings, metrics)],
        exception_handlers={HTTPException: _failed},
        lifespan=lifespan,
    )
    app.state.service = service
    return app


def _failed(request: Request, error: Exception) -> Response:
    """An address that does not exist, or another method than it takes."""
    if not isinstance(error, HTTPException):
        raise error
    return _json({"error": error.detail}, error.status_code, error.headers)


def _json(
    content: Any, code: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    body = orjson.dumps(content)
    return Response(body, code, headers, "application/json")
