"""Explorer of a report: queries, neighbors, thumbnails."""

import os
from itertools import chain
from typing import Any

import numpy as np

from keras_dml.data import Examples, ImageSet
from keras_dml.data.pictures import each_seen
from keras_dml.data.thumbnails import thumbnail
from keras_dml.reports.analysis import Run
from keras_dml.utils.types import FloatArray, Rows
from keras_dml.visualization import nearest
from keras_dml.visualization.attention import encoded_maps

THUMBNAIL = 72
"""Longer side of a thumbnail, in pixels, at most."""


def explorer(
    run: Run,
    num_queries: int = 60,
    num_examples: int = 4,
    num_neighbors: int = 6,
    budget: int = 4_000_000,
) -> dict[str, Any]:
    """All that the explorer needs, ready for JSON.

    Args:
        num_queries: Random queries that can be explored.
        num_examples: Best, typical and worst queries, each.
        num_neighbors: Images shown for each query and embedding.
        budget: Bytes of thumbnails; where those of the random queries would
            take more, there are fewer of these.

    Returns:
        "embeddings", names of the full embedding and of the parts;
        "queries", rows; "examples", as `Run.examples`, by "metric";
        "neighbors", for each query, for each embedding, its nearest as row,
        cosine, and 1 if it is of the query's class, else 0; "images", for
        each row its class, name and thumbnail;
        "attention", for each query the maps' shape and bytes, or nothing;
        "total", the number of test images.
    """
    examples = run.examples(num_examples)
    random = run.queries(num_queries)
    # Examples come first, so that a budget never leaves them out.
    always = {row for found in examples.values() for row, _ in found}
    rows = np.array([*always, *(x for x in random.tolist() if x not in always)])
    spaces = [run.embeddings]
    if run.parts is not None:
        spaces += list(np.moveaxis(run.parts, 1, 0))
    found = [
        nearest(
            embeddings,
            rows,
            num_neighbors,
            gallery=run.splits.gallery_rows,
            labels=run.images.labels,
            groups=run.splits.cameras,
        )
        for embeddings in spaces
    ]
    thumbnails, count = _thumbnails(
        run, rows, [n for n, _ in found], len(always), budget
    )
    return {
        "embeddings": ["full embedding", *run.part_names],
        "queries": np.intersect1d(rows[:count], random).tolist(),
        "examples": examples,
        "metric": run.metric,
        "neighbors": {
            str(row): [
                _found(run.images, row, n[i], cosines[i])
                for n, cosines in found
            ]
            for i, row in enumerate(rows[:count].tolist())
        },
        "images": {
            str(row): [*_about(run.images, row), thumbnail]
            for row, thumbnail in thumbnails.items()
        },
        "attention": _attention(run, rows[:count]),
        "total": len(run.images),
    }


def _found(
    images: Examples, query: int, rows: Rows, cosines: FloatArray
) -> list[list[float]]:
    right = images.alike(query, rows)
    return [
        [int(row), round(float(cosine), 3), int(is_right)]
        for row, cosine, is_right in zip(rows, cosines, right, strict=True)
        if row >= 0
    ]


def _thumbnails(
    run: Run, rows: Rows, found: list[Rows], always: int, budget: int
) -> tuple[dict[int, str], int]:
    """By row, of queries and their neighbors; and of how many queries."""
    needed = [
        dict.fromkeys([row, *(int(n) for x in found for n in x[i] if n >= 0)])
        for i, row in enumerate(rows.tolist())
    ]
    order = list(dict.fromkeys(chain.from_iterable(needed)))
    pictures = each_seen(run.images, np.array(order, np.int64), run.view)
    made: dict[int, str] = {}
    used = 0
    for i, ids in enumerate(needed):
        added = {
            n: thumbnail(next(pictures), THUMBNAIL, "webp", 75)
            for n in ids
            if n not in made
        }
        used += sum(map(len, added.values()))
        if used > budget and i >= always:
            return made, i
        made |= added
    return made, len(rows)


def _about(images: Examples, row: int) -> list[str]:
    """The class of an image, and what the image itself is called."""
    name = f"image {row}"
    if images.ids is not None:
        name = images.ids[row]
    elif not isinstance(images, ImageSet):
        name = f"example {images.called(row)}"
    elif images.paths is not None:
        name = os.path.basename(images.paths[row])
    called = images.class_called(row)
    return [called if images.names else f"class {called}", name]


def _attention(run: Run, rows: Rows) -> dict[str, Any] | None:
    """For each query its maps, each from 0 to 255."""
    if not run.explores_attention:
        return None
    height, width = run.attention.shape[1:3]
    return {
        "height": height,
        "width": width,
        "maps": {
            row: encoded_maps(run.attention[row]) for row in rows.tolist()
        },
    }
