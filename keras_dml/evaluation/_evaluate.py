"""`evaluate`: all metrics of embeddings, exactly, from one search."""

import functools
import operator
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from keras_dml.evaluation import clustering, embedding_space, names
from keras_dml.evaluation.inputs import Images, checked_images, embedded
from keras_dml.evaluation.ranking import ranking_metric
from keras_dml.evaluation.ranks.scores import DISTANCES, Scores
from keras_dml.evaluation.ranks.search import search
from keras_dml.evaluation.results import Results
from keras_dml.evaluation.task import Protocols, Task, tasks_of
from keras_dml.utils.arrays import as_bytes
from keras_dml.utils.types import FloatArray, Rows
from keras_dml.utils.vectors import unit_rows

DEFAULT_METRICS = ("recall@k", "r_precision", "map@r")


def evaluate(
    x: Any,
    labels: Any = None,
    *,
    metrics: str | Sequence[str] = DEFAULT_METRICS,
    ks: Sequence[int] = (1, 2, 4, 8),
    distance: str = "cosine",
    gallery: Any = None,
    gallery_labels: Any = None,
    protocol: Protocols = None,
    exclude: Any = None,
    memory: int | str = "512MB",
    seeds: Sequence[int] = (0,),
    batch_size: int = 256,
    progress: bool | None = None,
) -> Results:
    """Measures how well embeddings retrieve and cluster their classes.

    All retrieval metrics come from one exact search. An image never
    retrieves itself, though it may retrieve its duplicates. Equal scores
    rank in the order of the gallery. Queries without a relevant image are
    excluded and counted.

    Comparisons that float32 rounding could turn are decided in float64,
    so ranks are those of the scores summed in float64: they depend
    neither on `memory` nor on the matrix library and its threads, and
    duplicates tie exactly.

    Args:
        x: Embeddings, (N, D); or a Keras model, and then `labels` is an
            `ImageSet`, which it embeds in the test view.
        labels: Class of every row, (N,) integers; or an `ImageSet`.
        metrics: Names: "recall@k", "precision@1", "r_precision", "map@r",
            "map@r_with_self", "map", "map@k", "mrr", "minp" (retrieval,
            see `evaluation.ranking`); "nmi", "ami", "f1" (of K-means with
            as many clusters as classes, 20 iterations, see
            `evaluation.clustering`); "spectral_decay", "density" (see
            `evaluation.embedding_space`). k is a number, or the letter
            for each of `ks`.
        ks: What the letter k stands for.
        distance: "cosine", "euclidean" or "dot". Clusters and embedding
            space are Euclidean; of unit vectors for "cosine".
        gallery: Embeddings to search among, (G, D), or an `ImageSet`, if
            the queries are not to be searched among themselves. Clusters
            and embedding space are those of the union.
        gallery_labels: Class of every row of the gallery, (G,).
        protocol: Without `gallery`: which rows query which. "all_vs_all"
            (default); "official", VehicleID's (see
            `evaluation.one_per_class`); a `Protocol`; or several, over
            which results are averaged.
        exclude: Group of every row, (N,), or a pair of those of queries
            and gallery. A query ignores the images of its own class in
            its own group: with groups the cameras, this is the rule of
            Market-1501 and VeRi-776.
        memory: What the search may take beside the embeddings, as bytes
            or as a text such as "512MB", and up to 10 MB for each
            thread. Twice the size of the embeddings allows
            the fastest way.
        seeds: Seeds of K-means; results are averaged over them.
        batch_size: Images embedded at a time.
        progress: Whether to show progress, after two seconds; None shows
            it in a terminal.

    Returns:
        The metrics by name, the number of queries and more; see
        `evaluation.Results`.

    Raises:
        ValueError: If an argument is not as described, embeddings are not
            finite, or no query has a relevant image.

    Example:
        >>> results = evaluate(embeddings, labels, metrics=("map@r", "nmi"))
        >>> results["map@r"]
    """
    wanted = names.expanded(metrics, ks)
    _check_options(distance, seeds)
    workspace = as_bytes(memory)
    if isinstance(x, keras.Model):
        x, labels, gallery, gallery_labels = embedded(
            x, labels, gallery, batch_size, progress
        )
    images, others = checked_images(x, labels, gallery, gallery_labels, exclude)
    tasks = tasks_of(images, others, protocol)
    rows, per_query = _search(tasks, wanted, distance, workspace, progress)
    per_seed, values = _whole_set(images, others, wanted, distance, seeds)
    for name, measured in (per_query | per_seed).items():
        values[name] = float(measured.mean())
    asked = sum(len(task.queries) for task in tasks) if per_query else 0
    return Results(
        {name: values[name] for name in wanted},
        queries=len(rows),
        excluded=asked - len(rows),
        classes=_count_classes(images, others),
        gallery=len(tasks[0].gallery),
        distance=distance,
        draws=len(tasks),
        per_query=per_query,
        per_seed=per_seed,
        query_rows=rows,
        query_labels=images.labels[rows],
    )


def _check_options(distance: str, seeds: Sequence[int]) -> None:
    if distance not in DISTANCES:
        raise ValueError(
            f"`distance` of evaluate must be one of {DISTANCES}. Received: "
            f"distance={distance!r}."
        )
    if not len(seeds):
        raise ValueError(
            "`seeds` of evaluate must not be empty. Received: "
            f"seeds={seeds!r}. Use seeds=(0,)."
        )


def _search(
    tasks: list[Task],
    wanted: list[str],
    distance: str,
    memory: int,
    progress: bool | None,
) -> tuple[Rows, dict[str, FloatArray]]:
    """Rows of the queries that count, and their metrics."""
    metrics = [m for name in wanted if (m := ranking_metric(name))]
    if not metrics:
        return np.empty(0, np.int64), {}
    limits = functools.reduce(operator.or_, (m.limits for m in metrics))
    rows: list[Rows] = []
    values: dict[str, list[FloatArray]] = {m.name: [] for m in metrics}
    for task in tasks:
        scores = Scores(
            task.queries.embeddings, task.gallery.embeddings, distance
        )
        for ranks in search(
            scores,
            task.relevance(),
            limits,
            memory=memory,
            symmetric=task.symmetric,
            progress=progress,
        ):
            rows.append(task.query_rows[ranks.queries])
            for metric in metrics:
                values[metric.name].append(metric.per_query(ranks))
    if not sum(map(len, rows)):
        raise ValueError(
            "`labels` of evaluate must give at least one query a relevant "
            "image: another image of its class in the gallery. Received: "
            f"{len(tasks[0].queries)} queries, {len(tasks[0].gallery)} "
            "gallery images and no such pair."
        )
    return np.concatenate(rows), {
        name: np.concatenate(parts) for name, parts in values.items()
    }


def _whole_set(
    images: Images,
    others: Images | None,
    wanted: list[str],
    distance: str,
    seeds: Sequence[int],
) -> tuple[dict[str, FloatArray], dict[str, float]]:
    """Clustering metrics for each seed, and those of the space."""
    clusterings = [name for name in wanted if name in clustering.METRICS]
    spaces = [name for name in wanted if name in embedding_space.METRICS]
    if not clusterings and not spaces:
        return {}, {}
    points, labels = images.embeddings, images.labels
    if others is not None:
        points = np.concatenate([points, others.embeddings])
        labels = np.concatenate([labels, others.labels])
    if distance == "cosine":
        points = unit_rows(points)
    per_seed: dict[str, FloatArray] = {
        name: np.empty(len(seeds)) for name in clusterings
    }
    for number, seed in enumerate(seeds if clusterings else ()):
        clusters = clustering.kmeans(
            points, len(np.unique(labels)), seed=int(seed)
        )
        for name in clusterings:
            value = clustering.METRICS[name](labels, clusters)
            per_seed[name][number] = value
    return per_seed, {
        name: embedding_space.METRICS[name](points, labels) for name in spaces
    }


def _count_classes(images: Images, others: Images | None) -> int:
    labels = np.unique(images.labels)
    if others is not None:
        labels = np.union1d(labels, others.labels)
    return len(labels)
