"""Search: from the bytes of a picture to what the page shows of it."""

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
from keras_dml.search import Hit, Index
from keras_dml.search.metrics import Metric
from keras_dml.search.rows import Key
from keras_dml.serve.current import Current
from keras_dml.serve.errors import RequestError
from keras_dml.serve.limits import check_picture
from keras_dml.serve.outputs import Part
from keras_dml.serve.page.about import DEFAULT_K, MOST_K, refusal
from keras_dml.serve.service import Service
from keras_dml.utils.types import FloatArray
from keras_dml.visualization.attention import encoded_maps

SEEN = 384
"""The longer side of the picture as the model sees it, in pixels, at most."""


@dataclass(frozen=True, eq=False)
class Query:
    """A picture to be searched for.

    Attributes:
        data: The image file.
        k: Rows of the gallery that are wanted.
        where: Which rows, as of `Index.search`.
        exclude: The key of a row that is not wanted.
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
    if type(k) is not int or not 1 <= k <= MOST_K:
        raise _wrong("k", f"be a whole number from 1 to {MOST_K}", params)
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
    """What is found for an image file by what is served now.

    Returns:
        "model", its name and version; "seen", a data URI; "hits" of the
        gallery, or None without one, with "is_copy" where the embedding
        is that of the picture and "false_matches", the rate at this score
        or None; "parts", name and hits of each learner;
        "attention", with "height", "width" and "maps", bytes in base 64,
        or None.

    Raises:
        RequestError: If the file cannot be read, if the gallery cannot be
            searched so, or if the model takes no pictures.
        Busy: As `Service.submit`.
    """
    current, most = service.current, service.settings.max_pixels
    if current.view is None:
        raise RequestError(str(refusal(current)))
    if current.index is None and (query.where or query.exclude):
        raise RequestError(
            "There is no gallery to search. Received: a filter. Start the "
            "server with --gallery."
        )
    pixels = await run_in_threadpool(check_picture, query.data, most)
    found: dict[str, Any] = await service.submit(
        "page", _find, query, pixels=pixels, current=current
    )
    return found


def _find(current: Current, queries: Sequence[Query]) -> list[dict[str, Any]]:
    outputs = current.outputs
    if outputs is None:
        raise RequestError(str(refusal(current)))
    views = np.stack([outputs.see(query.data) for query in queries])
    found = outputs(views)
    return [
        _answer(
            current,
            outputs.parts,
            query,
            views[row],
            {name: x[row] for name, x in found.items()},
        )
        for row, query in enumerate(queries)
    ]


def _answer(
    current: Current,
    parts: Sequence[Part],
    query: Query,
    view: FloatArray,
    found: dict[str, FloatArray],
) -> dict[str, Any]:
    hits, of_parts = _search(current.index, query, found, parts)
    negatives = current.negatives
    for hit in hits or ():
        hit["false_matches"] = (
            None
            if negatives is None
            else rate_of_false_matches(negatives, hit["score"])
        )
    pixels = np.rint(view).clip(0, 255).astype(np.uint8)
    return {
        "model": {"name": current.name, "version": current.version},
        "seen": thumbnail(pixels, SEEN, "webp", 90),
        "hits": hits,
        "parts": of_parts,
        "attention": _attention(found.get("maps")),
    }


def rate_of_false_matches(negatives: FloatArray, score: float) -> float:
    """The share of pairs of different classes that score at least so high."""
    above = len(negatives) - np.searchsorted(negatives, score)
    return float(above / len(negatives))


def _search(
    index: Index | None,
    query: Query,
    found: dict[str, FloatArray],
    parts: Sequence[Part],
) -> tuple[list[Any] | None, list[Any]]:
    """Hits of the embedding, and of each part."""
    if index is None:
        return None, [{"name": part.name, "hits": None} for part in parts]
    embedding = found["embedding"]
    searched = [part for part in parts if embedding[part.columns].any()]
    vectors = np.stack([embedding, *(_alone(embedding, x) for x in searched)])
    exclude = None if query.exclude is None else [query.exclude] * len(vectors)
    try:
        whole, *alone = index.search(
            vectors, query.k, where=query.where, exclude=exclude
        )
    except ValueError as error:
        raise RequestError(str(error)) from error
    scores = np.array([[hit.score for hit in whole]])
    copies = Metric(index.metric).are_copies(embedding[None], scores)[0]
    hits = [
        {
            **_shown(hit),
            "score": hit.score,
            "is_match": hit.is_match,
            "is_copy": bool(is_copy),
            "row": {x: y for x, y in hit.row.items() if x != "thumbnail"},
        }
        for hit, is_copy in zip(whole, copies, strict=True)
    ]
    # The threshold is one of whole embeddings.
    listed = [
        {
            "name": part.name,
            "hits": [
                {**_shown(hit), "score": _own_score(hit, part, index.metric)}
                for hit in found_alone
            ],
        }
        for part, found_alone in zip(searched, alone, strict=True)
    ]
    return hits, listed


def _alone(embedding: FloatArray, part: Part) -> FloatArray:
    """A unit vector of a part, (D,); zeros let no other column count."""
    vector = np.zeros_like(embedding)
    own = embedding[part.columns]
    vector[part.columns] = own / np.linalg.norm(own)
    return vector


def _own_score(hit: Hit, part: Part, metric: str) -> float:
    """The cosine of a part's sub-embeddings, if its slices have one length.

    Otherwise the product of the query's sub-embedding with the hit's slice.
    """
    # Both vectors are unit: |x − y|² = 2 − 2 x·y.
    product = 1 - hit.score**2 / 2 if metric == "euclidean" else hit.score
    return product / (part.length or 1.0)


def _shown(hit: Hit) -> dict[str, Any]:
    """What says which row it is."""
    file = os.path.basename(str(hit.row.get("path") or ""))
    return {"key": hit.key, "name": caption(hit.row), "file": file}


def _attention(maps: FloatArray | None) -> dict[str, Any] | None:
    """Maps of a picture, (h, w, P), each from 0 to 255."""
    if maps is None:
        return None
    height, width = maps.shape[:2]
    return {"height": height, "width": width, "maps": encoded_maps(maps)}
