"""The page for people, and `POST /search`: a picture's nearest rows."""

import base64
import binascii
import contextlib
import json
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from typing import Any, TypeAlias

import numpy as np
import PIL.Image
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from keras_dml.data.decode import open_image
from keras_dml.data.thumbnails import SIDE, row_thumbnail, thumbnail
from keras_dml.reports.html import SCORES, caption, style
from keras_dml.reports.html import asset as report_asset
from keras_dml.search import Index
from keras_dml.search.engine import Similarity
from keras_dml.search.rows import Key
from keras_dml.serve.current import Current
from keras_dml.serve.errors import RequestError, bad_value
from keras_dml.serve.pictures import Viewer, read_picture, weigh, weigh_image
from keras_dml.serve.service import Service
from keras_dml.utils.types import FloatArray

HEADERS = {
    # Neither other hosts nor inline code are allowed.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; "
    "style-src 'self'; img-src 'self' blob: data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}

MAX_VALUES = 500
"""Maximum number of distinct texts of a column that the page suggests."""

_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}

_KINDS = {str: "text", int: "number", float: "number", bool: "boolean"}

NUM_EXAMPLES = 6
"""Maximum number of rows whose pictures the page offers as queries."""

_HIDDEN_COLUMNS = ("thumbnail", "box")
"""Columns that nobody filters by."""

VIEW_SIDE = 384
"""Maximum of the longer side of the model's view of a picture, in pixels."""

DEFAULT_K = 12
MAX_K = 1000
"""Maximum k, because no request may ask for an answer of gigabytes."""

_URI = re.compile(r"data:(image/(?:jpeg|png|webp|gif));base64,(.*)", re.DOTALL)
"""Kinds of pictures that cannot hold scripts, as SVG can."""


Query: TypeAlias = tuple[bytes, dict[str, Any]]
"""An image file, and options of `Index.search`."""


def routes(service: Service) -> list[BaseRoute]:
    """The routes of the page.

    "/" and "/page/assets/…" are the same for everyone and reveal nothing of
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
        # Another gallery may have another picture under this key.
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
        # Values of other or several kinds cannot be compared.
        if name not in _HIDDEN_COLUMNS and len(kinds) == 1 and "" not in kinds:
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
        "examples": _examples(index),
    }


def _examples(index: Index) -> list[dict[str, Any]]:
    """Rows with a picture, evenly spaced, which the page offers as queries."""
    pictures = [x for x in ("thumbnail", "path") if x in index.types]
    if not pictures:
        return []
    step = max(1, len(index) // NUM_EXAMPLES)
    rows = [(key, index[key]) for key in index.keys[::step][:NUM_EXAMPLES]]
    return [
        {"key": key, "name": caption(row), "file": _file_name(row)}
        for key, row in rows
        if any(row.get(x) for x in pictures)
    ]


def _file_name(row: Mapping[str, Any]) -> str:
    return os.path.basename(str(row.get("path") or ""))


def _json(content: Any) -> Response:
    # File names may hold surrogates, which only escapes can express.
    text = json.dumps(content, allow_nan=False)
    return _response(text, "application/json", "no-store")


def _response(content: str | bytes, kind: str, caching: str) -> Response:
    headers = {"Cache-Control": caching, **HEADERS}
    return Response(content, 200, headers, kind)


def query_of(data: bytes, params: Mapping[str, str]) -> Query:
    """Reads a request: an image file, "k", "where" and "exclude" as JSON."""
    k = _value(params, "k") if params.get("k") else DEFAULT_K
    if type(k) is not int or not 1 <= k <= MAX_K:
        rule = f"be a whole number from 1 to {MAX_K}"
        raise bad_value("k", rule, params["k"])
    where = _value(params, "where") if params.get("where") else None
    if not isinstance(where, dict | None):
        example = '{"name": "crow"} or {"price": {">=": 10, "<": 20}}'
        rule = f"be conditions by column, as JSON, for instance {example}"
        raise bad_value("where", rule, params["where"])
    exclude = [key_of(params, "exclude")] if params.get("exclude") else None
    return data, {"k": k, "where": where, "exclude": exclude}


def key_of(params: Mapping[str, str], name: str) -> Key:
    """A key from JSON: a number, or a text in quotes."""
    key = _value(params, name)
    if type(key) not in (int, str):
        rule = "be a key as JSON: a whole number, or a text in double quotes"
        raise bad_value(name, rule, params.get(name, ""))
    return key


def _value(params: Mapping[str, str], name: str) -> Any:
    """The JSON value of a parameter; NaN if it is invalid."""
    try:
        # int raises an error for NaN and Infinity, which are constants.
        return json.loads(params.get(name, ""), parse_constant=int)
    except (ValueError, RecursionError):
        return math.nan


def refusal(current: Current) -> str | None:
    """Why the server cannot search for a picture; None if it can."""
    if current.viewer is not None:
        return None
    return (
        f"The model {current.name!r} does not take pictures. Send its inputs "
        f"to /v1/models/{current.name}:predict."
    )


async def find(service: Service, query: Query) -> dict[str, Any]:
    """The answer to `POST /search`, of the gallery that is served now."""
    current = service.current
    file, options = query
    if current.viewer is None:
        raise RequestError(str(refusal(current)))
    if current.index is None and (options["where"] or options["exclude"]):
        raise RequestError(
            "There is no gallery to search. Received: a filter. Start the "
            "server with --gallery."
        )
    max_pixels = service.settings.max_pixels
    pixels = await run_in_threadpool(weigh, file, max_pixels)
    answer: dict[str, Any] = await service.submit(
        "search", _find, query, pixels=pixels, current=current
    )
    return answer


def _find(current: Current, queries: Sequence[Query]) -> list[dict[str, Any]]:
    assert isinstance(current.viewer, Viewer)  # noqa: S101
    try:
        views = [current.viewer.see(file) for file, _ in queries]
    except ValueError as error:
        raise RequestError(str(error)) from error
    embeddings = current.embed(np.stack(views))
    pixels = [np.rint(x).clip(0, 255).astype(np.uint8) for x in views]
    return [
        {
            "model": current.name,
            "version": current.version,
            "seen": thumbnail(picture, VIEW_SIDE, "webp", 90),
            "hits": _hits(current, embedding, options),
        }
        for (_, options), picture, embedding in zip(
            queries, pixels, embeddings, strict=True
        )
    ]


def _hits(
    current: Current, embedding: FloatArray, options: dict[str, Any]
) -> list[dict[str, Any]] | None:
    index, negatives = current.index, current.negatives
    if index is None:
        return None
    try:
        [hits] = index.search(embedding, **options)
    except ValueError as error:
        raise RequestError(str(error)) from error
    scores = np.array([hit.score for hit in hits])
    similarity = Similarity(index.metric)
    copies = similarity.are_copies(embedding[None], scores[None])[0]
    rates: list[float | None] = [None] * len(hits)
    if negatives is not None:
        # The share of different-class pairs with at least this score.
        above = len(negatives) - np.searchsorted(negatives, scores)
        rates = (above / len(negatives)).tolist()
    return [
        {
            "key": hit.key,
            "name": caption(hit.row),
            "file": _file_name(hit.row),
            "score": hit.score,
            "is_match": hit.is_match,
            "is_copy": bool(is_copy),
            "false_matches": rate,
            "row": {x: y for x, y in hit.row.items() if x != "thumbnail"},
        }
        for hit, is_copy, rate in zip(hits, copies, rates, strict=True)
    ]


def find_row(index: Index | None, key: Key) -> dict[str, Any]:
    """The row of a key; only files of rows can be requested."""
    if index is None:
        raise RequestError("There is no gallery.", 404)
    try:
        return index[key]
    except KeyError:
        raise RequestError(f"The gallery has no row {key!r}.", 404) from None
    except ValueError as error:
        raise RequestError(str(error)) from error


def weigh_row(row: Mapping[str, Any], max_pixels: int) -> int:
    """The pixels that a row's thumbnail takes; 0 if the row contains it."""
    if row.get("thumbnail") or not row.get("path"):
        return 0
    with _reading_file(), open_image(str(row["path"])) as image:
        # A box is cut out of the whole picture.
        return weigh_image(image, max_pixels, is_whole=bool(row.get("box")))


def make_thumbnails(
    current: Current, rows: Sequence[Mapping[str, Any]]
) -> list[tuple[bytes, str]]:
    """Content and type of each row's thumbnail, its own or of its file."""
    pictures = []
    for row in rows:
        uri = str(row.get("thumbnail"))
        if not row.get("thumbnail") and row.get("path"):
            with _reading_file():
                if row.get("box"):
                    uri = row_thumbnail(row) or ""
                else:
                    sides = 2 * SIDE, 2 * SIDE
                    uri = thumbnail(read_picture(str(row["path"]), sides))
        match = _URI.fullmatch(uri)
        if match is None:
            raise RequestError("The row has no picture.", 404)
        try:
            content = base64.b64decode(match[2], validate=True)
        except binascii.Error:
            error = RequestError("The row has a damaged picture.", 404)
            raise error from None
        pictures.append((content, match[1]))
    return pictures


@contextlib.contextmanager
def _reading_file() -> Iterator[None]:
    """Turns every error of reading a row's file into a request error."""
    try:
        yield
    except (
        OSError,
        ValueError,
        TypeError,
        OverflowError,
        PIL.Image.DecompressionBombError,
    ):
        raise RequestError("The file of the row cannot be read.", 404) from None
