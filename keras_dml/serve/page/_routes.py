"""Routes of the page: its files, and the endpoints that they ask."""

import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from keras_dml.serve.current import Current
from keras_dml.serve.limits import TooManyPixels
from keras_dml.serve.page import requests
from keras_dml.serve.page.about import about
from keras_dml.serve.page.assets import HOME, read_assets
from keras_dml.serve.page.finder import Finder
from keras_dml.serve.page.plain import plain_error, plain_page
from keras_dml.serve.page.thumbnails import (
    NoPicture,
    Picture,
    content_of,
    picture_of,
)
from keras_dml.serve.reloading import Reloader
from keras_dml.serve.service import Service
from keras_dml.serve.settings import Settings

Endpoint: TypeAlias = Callable[[Request], Awaitable[Response]]

PLAIN = "/page/plain"
"""The search for browsers that run no JavaScript, which show its answer."""

HTML = "text/html; charset=utf-8"

HEADERS = {
    # Nothing from elsewhere, nothing that stands in the page itself.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; "
    "style-src 'self'; img-src 'self' blob: data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Permissions-Policy": "camera=(self), microphone=(), geolocation=()",
    "Cross-Origin-Resource-Policy": "same-origin",
}


def routes(
    service: Service, settings: Settings, reloader: Reloader | None = None
) -> list[BaseRoute]:
    """The routes of the page.

    "/" and "/page/assets/…" are the same for everyone and tell nothing of
    what is served. The others do: "/page/about", "/page/search",
    "/page/thumbnail", and `PLAIN`.
    """
    finder = Finder(service, settings)
    assets = read_assets()

    def loading() -> str | None:
        return reloader.loading if reloader else None

    async def home(request: Request) -> Response:
        return _file(*assets[HOME])

    async def asset(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in assets:
            return failed(404, f"The page has no file {name!r}.")
        return _file(*assets[name])

    async def describe(request: Request) -> Response:
        current = service.current
        outputs = await finder.outputs(current)
        told = await run_in_threadpool(about, current, outputs, settings)
        return _json(told)

    async def search(request: Request) -> Response:
        wanted = requests.wanted(request.query_params)
        found = await finder.find(await request.body(), wanted)
        return _json(found | {"loading": loading()})

    async def thumbnail(request: Request) -> Response:
        key = requests.key_of(request.query_params.get("key"), "key")
        current, most = service.current, settings.max_pixels
        found = await run_in_threadpool(picture_of, current.index, key, most)
        uri = found.uri or await service.submit(
            "thumbnail", _made, found, pixels=found.pixels, current=current
        )
        content, kind = content_of(uri, key)
        # Another version may have another picture by this key.
        return _response(content, kind, {"Cache-Control": "private, no-cache"})

    async def plain(request: Request) -> Response:
        async with request.form(max_files=1, max_fields=10) as form:
            data, wanted = await requests.of_form(form)
        found = await finder.find(data, wanted)
        content = plain_page(found, service.current.index, loading())
        return _response(content, HTML)

    return [
        Route("/", home),
        Route("/page/assets/{name}", asset),
        Route("/page/about", _answering(describe)),
        Route("/page/search", _answering(search), methods=["POST"]),
        Route("/page/thumbnail", _answering(thumbnail)),
        Route(PLAIN, _answering(plain, plain_failed), methods=["POST"]),
    ]


def failed(status: int, error: str) -> Response:
    """An error, in the form that REST has."""
    return _json({"error": error}, status)


def plain_failed(status: int, error: str) -> Response:
    """An error, as a page."""
    return _response(plain_error(error), HTML, status=status)


def _answering(
    endpoint: Endpoint, failed: Callable[[int, str], Response] = failed
) -> Endpoint:
    """An endpoint that answers what was wrong with a request."""

    async def answer(request: Request) -> Response:
        try:
            return await endpoint(request)
        except NoPicture as error:
            return failed(404, str(error))
        except TooManyPixels as error:
            return failed(413, str(error))
        except ValueError as error:
            return failed(400, str(error))

    return answer


def _made(current: Current, pictures: Sequence[Picture]) -> list[str]:
    return [picture.made() for picture in pictures]


def _json(content: Any, status: int = 200) -> Response:
    # Names of files may hold surrogates, which only ASCII carries.
    text = json.dumps(content, allow_nan=False)
    return _response(text, "application/json", status=status)


def _file(content: bytes, kind: str) -> Response:
    return _response(content, kind, {"Cache-Control": "no-cache"})


def _response(
    content: str | bytes,
    kind: str,
    headers: dict[str, str] | None = None,
    status: int = 200,
) -> Response:
    headers = {"Cache-Control": "no-store", **HEADERS, **(headers or {})}
    return Response(content, status, headers, kind)
