"""Finding: what the page shows of a picture, as JSON."""

import base64
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_dml.data.thumbnails import thumbnail
from keras_dml.reports.search_page import caption
from keras_dml.search import Hit
from keras_dml.search.metrics import Metric
from keras_dml.serve.page.outputs import Outputs, Part
from keras_dml.utils.types import FloatArray

if TYPE_CHECKING:
    from keras_dml.search import Index
    from keras_dml.serve.current import Current

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
    where: dict[str, Any] | None = None
    exclude: Any = None


def find(
    current: "Current", outputs: Outputs, queries: Sequence[Query]
) -> list[dict[str, Any] | ValueError]:
    """What is found for each query; an error where it cannot be searched for.

    Returns:
        For each "model", its name and version; "seen", a data URI;
        "hits" of the gallery, or None without one, with "is_copy" where the
        embedding is that of the picture; "parts", name and hits of
        each learner; "attention", with "height", "width" and "maps", bytes
        in base 64, or None.
    """
    views: list[FloatArray | ValueError] = [
        _seen(outputs, query.data) for query in queries
    ]
    good = [x for x in views if not isinstance(x, ValueError)]
    found = outputs(np.stack(good)) if good else {}
    rows = iter(range(len(good)))
    answers: list[dict[str, Any] | ValueError] = []
    for query, seen in zip(queries, views, strict=True):
        if isinstance(seen, ValueError):
            answers.append(seen)
            continue
        number = next(rows)
        own = {name: x[number] for name, x in found.items()}
        try:
            hits, parts = _search(current.index, query, own, outputs.parts)
        except ValueError as error:
            answers.append(error)
            continue
        pixels = np.rint(seen).clip(0, 255).astype(np.uint8)
        answers.append(
            {
                "model": {"name": current.name, "version": current.version},
                "seen": thumbnail(pixels, SEEN, "webp", 90),
                "hits": hits,
                "parts": parts,
                "attention": _attention(own.get("maps")),
            }
        )
    return answers


def _seen(outputs: Outputs, data: bytes) -> FloatArray | ValueError:
    try:
        return outputs.see(data)
    except ValueError as error:
        return error


def _search(
    index: "Index | None",
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
    whole, *alone = index.search(
        vectors, query.k, where=query.where, exclude=exclude
    )
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
    """A unit vector of a part, (D,); zeros let no other column count.

    So any index searches by a part, in memory or in a database.
    """
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
    low, high = maps.min(axis=(0, 1)), maps.max(axis=(0, 1))
    scaled = (maps - low) / np.where(high > low, high - low, 1)
    levels = np.rint(255 * scaled).astype(np.uint8)
    return {
        "height": levels.shape[0],
        "width": levels.shape[1],
        "maps": [
            base64.b64encode(levels[..., k].tobytes()).decode()
            for k in range(levels.shape[2])
        ],
    }
