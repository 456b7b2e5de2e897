"""The page for people: its files, and the endpoints that they ask."""

import json
from importlib import resources
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from keras_dml.reports.html import SCORES, style
from keras_dml.reports.html import asset as report_asset
from keras_dml.search import Index
from keras_dml.serve.current import Current
from keras_dml.serve.errors import RequestError
from keras_dml.serve.search import (
    DEFAULT_K,
    MAX_K,
    find,
    find_row,
    key_of,
    make_thumbnails,
    query_of,
    refusal,
    weigh_row,
)
from keras_dml.serve.service import Service

HEADERS = {
    # Nothing from elsewhere, nothing that stands in the page itself.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; "
    "style-src 'self'; img-src 'self' blob: data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}

MAX_VALUES = 500
"""Distinct texts of a column that the page suggests, at most."""

_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}

_KINDS = {str: "text", int: "number", float: "number", bool: "boolean"}

_HIDDEN = ("thumbnail", "box")
"""Columns that nobody filters by."""


def routes(service: Service) -> list[BaseRoute]:
    """The routes of the page.

    "/" and "/page/assets/…" are the same for everyone and tell nothing of
    what is served. "/page/about", "/search" and "/page/thumbnail" do.
    """
    assets, settings = read_assets(), service.settings

    async def home(request: Request) -> Response:
        return _response(*assets["index.html"], "no-cache")

    async def asset(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in assets:
            raise RequestError(f"The page has no file {name!r}.", 404)
        return _response(*assets[name], "no-cache")

    async def describe(request: Request) -> Response:
        about = await run_in_threadpool(_about, service.current)
        return _json({**about, "max_body": settings.max_body})

    async def search(request: Request) -> Response:
        query = query_of(await request.body(), request.query_params)
        return _json(await find(service, query))

    async def thumbnail(request: Request) -> Response:
        key = key_of(request.query_params, "key")
        current = service.current
        row = await run_in_threadpool(find_row, current.index, key)
        pixels = await run_in_threadpool(weigh_row, row, settings.max_pixels)
        content, kind = await service.submit(
            "thumbnail", make_thumbnails, row, pixels=pixels, current=current
        )
        # Another gallery may have another picture by this key.
        return _response(content, kind, "private, no-cache")

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
    folder = resources.files("keras_dml.serve") / "static"
    assets = {
        file.name: (file.read_bytes(), _TYPES[file.name.rpartition(".")[2]])
        for file in folder.iterdir()
    }
    assets["base.css"] = style().encode(), _TYPES["css"]
    assets["elements.js"] = report_asset("elements.js").encode(), _TYPES["js"]
    return assets


def _about(current: Current) -> dict[str, Any]:
    index = current.index
    return {
        "model": current.name,
        "version": current.version,
        "refusal": refusal(current),
        "gallery": None if index is None else _gallery(current, index),
        "k": {"default": DEFAULT_K, "max": MAX_K},
    }


def _gallery(current: Current, index: Index) -> dict[str, Any]:
    negatives, threshold = current.negatives, index.threshold
    columns, values_of = [], index.columns
    for name, types in index.types.items():
        kinds = {_KINDS.get(x, "") for x in types}
        # Others cannot be compared.
        if name not in _HIDDEN and len(kinds) == 1 and "" not in kinds:
            [kind] = kinds
            texts = set(values_of[name]) - {None} if kind == "text" else set()
            values = sorted(texts) if len(texts) <= MAX_VALUES else []
            columns.append({"name": name, "kind": kind, "values": values})
    return {
        "rows": len(index),
        "scores": SCORES[index.metric],
        "negative_pairs": 0 if negatives is None else len(negatives),
        "threshold": None if threshold is None else float(threshold.value),
        "threshold_meaning": None if threshold is None else threshold.meaning,
        "columns": columns,
    }


def _json(content: Any) -> Response:
    # Names of files may hold surrogates, which only ASCII carries.
    text = json.dumps(content, allow_nan=False)
    return _response(text, "application/json", "no-store")


def _response(content: str | bytes, kind: str, caching: str) -> Response:
    headers = {"Cache-Control": caching, **HEADERS}
    return Response(content, 200, headers, kind)
