"""Routes of the page: its files, and the endpoints that they ask."""

import json
from collections.abc import Sequence
from importlib import resources
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from keras_dml.reports.html import asset as report_asset
from keras_dml.reports.html import style
from keras_dml.serve.current import Current
from keras_dml.serve.errors import RequestError
from keras_dml.serve.page.about import about
from keras_dml.serve.page.search import find, key_of, query_of
from keras_dml.serve.page.thumbnails import (
    content_of,
    find_row,
    make_thumbnail,
    weigh_row,
)
from keras_dml.serve.service import Service
from keras_dml.serve.settings import Settings

HEADERS = {
    # Nothing from elsewhere, nothing that stands in the page itself.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; "
    "style-src 'self'; img-src 'self' blob: data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}

_KINDS = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}


def routes(service: Service, settings: Settings) -> list[BaseRoute]:
    """The routes of the page.

    "/" and "/page/assets/…" are the same for everyone and tell nothing of
    what is served. "/page/about", "/search" and "/page/thumbnail" do.
    """
    assets = read_assets()

    async def home(request: Request) -> Response:
        return _response(*assets["index.html"], "no-cache")

    async def asset(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in assets:
            raise RequestError(f"The page has no file {name!r}.", 404)
        return _response(*assets[name], "no-cache")

    async def describe(request: Request) -> Response:
        current = service.current
        return _json(await run_in_threadpool(about, current, settings))

    async def search(request: Request) -> Response:
        query = query_of(await request.body(), request.query_params)
        return _json(await find(service, query))

    async def thumbnail(request: Request) -> Response:
        key = key_of(request.query_params, "key")
        current = service.current
        row = await run_in_threadpool(find_row, current.index, key)
        pixels = await run_in_threadpool(weigh_row, row, settings.max_pixels)
        uri = await service.submit(
            "thumbnail", _thumbnails, row, pixels=pixels, current=current
        )
        # Another gallery may have another picture by this key.
        return _response(*content_of(uri), "private, no-cache")

    return [
        Route("/", home),
        Route("/page/assets/{name}", asset),
        Route("/page/about", describe),
        Route("/search", search, methods=["POST"]),
        Route("/page/thumbnail", thumbnail),
    ]


def read_assets() -> dict[str, tuple[bytes, str]]:
    """Content and MIME type of each file of the page by its name.

    "base.css" is the style of reports, which the page adds to, and
    "elements.js" what their scripts have in common.
    """
    folder = resources.files("keras_dml.serve.page") / "static"
    assets = {
        file.name: (file.read_bytes(), _KINDS[file.name.rpartition(".")[2]])
        for file in folder.iterdir()
    }
    assets["base.css"] = style().encode(), _KINDS["css"]
    assets["elements.js"] = report_asset("elements.js").encode(), _KINDS["js"]
    return assets


def _thumbnails(current: Current, rows: Sequence[dict[str, Any]]) -> list[str]:
    return [make_thumbnail(row) for row in rows]


def _json(content: Any) -> Response:
    # Names of files may hold surrogates, which only ASCII carries.
    text = json.dumps(content, allow_nan=False)
    return _response(text, "application/json", "no-store")


def _response(content: str | bytes, kind: str, caching: str) -> Response:
    headers = {"Cache-Control": caching, **HEADERS}
    return Response(content, 200, headers, kind)
