"""Explorer of a report: queries, neighbors, thumbnails."""

import os
from itertools import chain
from typing import Any

import numpy as np

from keras_dml.data import Examples, ImageSet
from keras_dml.data.pictures import each_seen
from keras_dml.data.thumbnails import thumbnail
from keras_dml.reports.analysis import Run
from keras_dml.utils.types import Rows
from keras_dml.visualization import nearest
from keras_dml.visualization.attention import encoded_maps

THUMBNAIL = 72
"""Longer side of a thumbnail, in pixels, at most."""


def explorer(
    run: Run,
    num_queries: int = 60,
    num_examples: int = 4,
    num_neighbors: int = 6,
) -> dict[str, Any]:
    """All that the explorer needs, ready for JSON.

    Args:
        num_queries: Random queries that can be explored.
        num_examples: Best, typical and worst queries, each.
        num_neighbors: Images shown for each query and embedding.

    Returns:
        "embeddings", names of the full embedding and of the parts;
        "queries", rows; "examples", as `Run.examples`, by "metric";
        "neighbors", for each query, for each embedding, its nearest as row,
        cosine, and 1 if it is of the query's class, else 0; "images", for
        each row its class, name and thumbnail;
        "attention", for each query the maps' shape and bytes, or nothing;
        "total", the number of test images.
    """
    examples, images = run.examples(num_examples), run.images
    queries = run.queries(num_queries).tolist()
    shown = (row for pairs in examples.values() for row, _ in pairs)
    rows = np.unique([*queries, *shown])
    spaces = [run.embeddings]
    if run.parts is not None:
        spaces += list(np.moveaxis(run.parts, 1, 0))
    neighbors: dict[int, list[Any]] = {row: [] for row in rows.tolist()}
    for embeddings in spaces:
        nearest_rows, cosines = nearest(
            embeddings,
            rows,
            num_neighbors,
            gallery=run.splits.gallery_rows,
            labels=images.labels,
            groups=run.splits.cameras,
        )
        for i, row in enumerate(neighbors):
            is_alike = images.alike(row, nearest_rows[i])
            triples = zip(nearest_rows[i], cosines[i], is_alike, strict=True)
            neighbors[row].append(
                [
                    [int(x), round(float(cosine), 3), int(is_right)]
                    for x, cosine, is_right in triples
                    if x >= 0
                ]
            )
    found = (x for lists in neighbors.values() for x in chain(*lists))
    pictured = np.unique([*rows, *(x for x, *_ in found)])
    pictures = each_seen(images, pictured, run.view)
    return {
        "embeddings": ["full embedding", *run.part_names],
        "queries": queries,
        "examples": examples,
        "metric": run.metric,
        "neighbors": neighbors,
        "images": {
            row: [*_about(images, row), thumbnail(x, THUMBNAIL, "webp", 75)]
            for row, x in zip(pictured.tolist(), pictures, strict=True)
        },
        "attention": _attention(run, rows),
        "total": len(images),
    }


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
