"""The application: REST, the page, health and metrics."""

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from keras_dml.serve import page, rest
from keras_dml.serve.service import Service
from keras_dml.serve.settings import Settings


def application(service: Service, settings: Settings) -> Starlette:
    """All that a server answers.

    Args:
        service: What is served.
        settings: The limits.
    """

    def healthz(request: Request) -> JSONResponse:
        return JSONResponse({"status": "ok"})

    return Starlette(
        routes=[
            *rest.routes(service),
            Route("/healthz", healthz),
            *page.routes(service, settings),
        ]
    )
