"""Search: from the bytes of a picture to its nearest rows."""

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from starlette.concurrency import run_in_threadpool

from keras_dml.data.thumbnails import thumbnail
from keras_dml.reports.search_page import caption
from keras_dml.search.metrics import Similarity
from keras_dml.search.rows import Key
from keras_dml.serve.current import Current
from keras_dml.serve.errors import RequestError
from keras_dml.serve.page.about import DEFAULT_K, MAX_K, refusal
from keras_dml.serve.pictures import Viewer, weigh
from keras_dml.serve.service import Service
from keras_dml.utils.types import FloatArray

VIEW_SIDE = 384
"""The longer side of the picture as the model sees it, in pixels, at most."""


@dataclass(frozen=True, eq=False)
class Query:
    """A picture to be searched for.

    Attributes:
        data: The image file.
        k: Rows of the gallery to find.
        where: Which rows, as of `Index.search`.
        exclude: The key of a row to leave out.
    """

    data: bytes
    k: int
    where: dict[str, Any] | None
    exclude: Key | None


def query_of(data: bytes, params: Mapping[str, str]) -> Query:
    """What a request asks for.

    Args:
        data: The image file.
        params: "k"; "where", conditions by column; and "exclude", a key; all
            as JSON.

    Raises:
        RequestError: If one is not as described.
    """
    k = _value(params, "k") if params.get("k") else DEFAULT_K
    if type(k) is not int or not 1 <= k <= MAX_K:
        raise _wrong("k", f"be a whole number from 1 to {MAX_K}", params)
    where = _value(params, "where") if params.get("where") else None
    if not isinstance(where, dict | None):
        example = '{"name": "crow"} or {"price": {">=": 10, "<": 20}}'
        rule = f"be conditions by column, as JSON, for instance {example}"
        raise _wrong("where", rule, params)
    exclude = key_of(params, "exclude") if params.get("exclude") else None
    return Query(data, k, where, exclude)


def key_of(params: Mapping[str, str], name: str) -> Key:
    """A key from JSON: a number, or a text in quotes."""
    key = _value(params, name)
    if type(key) not in (int, str):
        rule = "be a key as JSON: a whole number, or a text in double quotes"
        raise _wrong(name, rule, params)
    return key


def _value(params: Mapping[str, str], name: str) -> Any:
    """The JSON value of a parameter; not a number if it has none."""
    try:
        # What NaN and Infinity are, int refuses.
        return json.loads(params.get(name, ""), parse_constant=int)
    except (ValueError, RecursionError):
        return math.nan


def _wrong(name: str, rule: str, params: Mapping[str, str]) -> RequestError:
    received = params.get(name, "")[:200]
    return RequestError(f"`{name}` must {rule}. Received: {name}={received!r}.")


async def find(service: Service, query: Query) -> dict[str, Any]:
    """The nearest rows to an image file in the gallery that is served now.

    Returns:
        "model", its name; "version", the number of the gallery; "seen", a
        data URI; "hits" of the gallery, or None without one, with "is_copy"
        where the embedding is that of the picture and "false_matches", the
        rate at this score or None.

    Raises:
        RequestError: If the file cannot be read, if the gallery cannot be
            searched so, or if the model takes no pictures.
        Busy: As `Service.submit`.
    """
    current = service.current
    if current.viewer is None:
        raise RequestError(str(refusal(current)))
    if current.index is None and (query.where or query.exclude):
        raise RequestError(
            "There is no gallery to search. Received: a filter. Start the "
            "server with --gallery."
        )
    max_pixels = service.settings.max_pixels
    pixels = await run_in_threadpool(weigh, query.data, max_pixels)
    answer: dict[str, Any] = await service.submit(
        "search", _find, query, pixels=pixels, current=current
    )
    return answer


def _find(current: Current, queries: Sequence[Query]) -> list[dict[str, Any]]:
    assert isinstance(current.viewer, Viewer)  # noqa: S101
    try:
        views = [current.viewer.see(query.data) for query in queries]
    except ValueError as error:
        raise RequestError(str(error)) from error
    embeddings = current.embed(np.stack(views))
    return [
        {
            "model": current.name,
            "version": current.version,
            "seen": _picture(view),
            "hits": _hits(current, query, embedding),
        }
        for query, view, embedding in zip(
            queries, views, embeddings, strict=True
        )
    ]


def _picture(view: FloatArray) -> str:
    pixels = np.rint(view).clip(0, 255).astype(np.uint8)
    return thumbnail(pixels, VIEW_SIDE, "webp", 90)


def _hits(
    current: Current, query: Query, embedding: FloatArray
) -> list[dict[str, Any]] | None:
    index = current.index
    if index is None:
        return None
    exclude = None if query.exclude is None else [query.exclude]
    try:
        [hits] = index.search(
            embedding, query.k, where=query.where, exclude=exclude
        )
    except ValueError as error:
        raise RequestError(str(error)) from error
    scores = np.array([[hit.score for hit in hits]])
    copies = Similarity(index.metric).are_copies(embedding[None], scores)[0]
    return [
        {
            "key": hit.key,
            "name": caption(hit.row),
            "file": os.path.basename(str(hit.row.get("path") or "")),
            "score": hit.score,
            "is_match": hit.is_match,
            "is_copy": bool(is_copy),
            "false_matches": rate_of_false_matches(current, hit.score),
            "row": {x: y for x, y in hit.row.items() if x != "thumbnail"},
        }
        for hit, is_copy in zip(hits, copies, strict=True)
    ]


def rate_of_false_matches(current: Current, score: float) -> float | None:
    """The share of pairs of different classes that score at least so high."""
    negatives = current.negatives
    if negatives is None:
        return None
    above = len(negatives) - np.searchsorted(negatives, score)
    return float(above / len(negatives))
