"""`evaluate`: all metrics of a model or of embeddings, from one search."""

import functools
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from keras_dml.evaluation import inputs
from keras_dml.evaluation.clustering import kmeans
from keras_dml.evaluation.inputs import Inputs, Protocols
from keras_dml.evaluation.metrics import Metric, expanded
from keras_dml.evaluation.ranks.relevance import Images
from keras_dml.evaluation.ranks.scores import DISTANCES
from keras_dml.evaluation.ranks.search import search
from keras_dml.evaluation.results import Results
from keras_dml.utils.arguments import check_choice
from keras_dml.utils.arrays import as_bytes
from keras_dml.utils.types import FloatArray, Rows
from keras_dml.utils.vectors import unit_rows

DEFAULT_METRICS = ("recall@k", "r_precision", "map@r")


def evaluate(
    model: Any,
    examples: Any,
    *,
    metrics: str | Sequence[str] = DEFAULT_METRICS,
    ks: Sequence[int] = (1, 2, 4, 8),
    distance: str = "cosine",
    gallery: Any = None,
    protocol: Protocols = None,
    exclude: Any = None,
    memory: int | str = "512MB",
    seeds: Sequence[int] = (0,),
    batch_size: int = 256,
    progress: bool | None = None,
) -> Results:
    """Measures how well a model's embeddings retrieve and cluster classes.

    The examples are embedded in the test view; `evaluate_embeddings` says
    what is computed of the embeddings, and how.

    Args:
        model: A Keras model whose output is the embedding, (B, D).
        examples: An `ImageSet`, `ArraySet` or other `Examples`, with labels;
            arrays `(x, y)`; or a finite `tf.data.Dataset` of (x, y). See
            `embed`.
        metrics, ks, distance, memory, seeds, progress: As for
            `evaluate_embeddings`.
        gallery: Examples to search among, of any of these kinds, if the
            examples are not to be searched among themselves.
        protocol: Without `gallery`: which examples query which; as for
            `evaluate_embeddings`.
        exclude: Group of every example, (N,), or a pair of those of
            examples and gallery; as for `evaluate_embeddings`.
        batch_size: Examples embedded at a time.

    Returns:
        The metrics by name, the number of queries and more; see
        `evaluation.Results`.

    Raises:
        ValueError: If an argument is not as described, embeddings are not
            finite, or no query has a relevant image.

    Example:
        >>> results = evaluate(model, images, metrics=("map@r", "nmi"))
        >>> results["map@r"]
    """
    asked = metrics, ks, distance, protocol, memory, seeds, progress
    given = model, examples, gallery, exclude, batch_size, progress
    return _Evaluation("evaluate", *asked).of(inputs.from_model(*given))


def evaluate_embeddings(
    embeddings: Any,
    labels: Any,
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
        embeddings: (N, D).
        labels: Class of every row, (N,) integers.
        metrics: Names of `evaluation.METRICS`, which lists them with their
            definitions: "recall@k", "map@r", "nmi", … k is a number, or
            the letter for each of `ks`. Clusters are those of K-means, as
            many as classes, in 20 iterations.
        ks: What the letter k stands for.
        distance: "cosine", "euclidean" or "dot". Clusters and embedding
            space are Euclidean; of unit vectors for "cosine".
        gallery: Embeddings to search among, (G, D), if the queries are not
            to be searched among themselves. Clusters and embedding space
            are those of the union.
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
        progress: Whether to show progress, after two seconds; None shows
            it in a terminal.

    Returns:
        The metrics by name, the number of queries and more; see
        `evaluation.Results`.

    Raises:
        ValueError: If an argument is not as described, embeddings are not
            finite, or no query has a relevant image.

    Example:
        >>> results = evaluate_embeddings(embeddings, labels, metrics="map@r")
        >>> results["map@r"]
    """
    asked = metrics, ks, distance, protocol, memory, seeds, progress
    evaluation = _Evaluation("evaluate_embeddings", *asked)
    given = embeddings, labels, gallery, gallery_labels, exclude
    return evaluation.of(inputs.from_embeddings(*given))


@dataclass
class _Evaluation:
    """What to measure and how: the arguments that both functions have."""

    owner: str
    metrics: str | Sequence[str]
    ks: Sequence[int]
    distance: str
    protocol: Protocols
    memory: int | str
    seeds: Sequence[int]
    progress: bool | None

    def __post_init__(self) -> None:
        self._wanted = expanded(self.metrics, self.ks, self.owner)
        self._memory = as_bytes(self.memory, self.owner)
        check_choice(self.owner, "distance", self.distance, DISTANCES)
        if not len(self.seeds):
            raise ValueError(
                f"`seeds` of {self.owner} must not be empty. Received: "
                f"seeds={self.seeds!r}. Use seeds=(0,)."
            )

    def of(self, given: Inputs) -> Results:
        """Measures."""
        searches = inputs.searches(given, self.protocol, self.owner)
        found, per_query = self._search(searches)
        per_seed, values = self._whole_set(given)
        for name, measured in (per_query | per_seed).items():
            values[name] = float(measured.mean())
        asked = sum(len(queries) for queries, _ in searches) if per_query else 0
        labels = np.concatenate([images.labels for images in given])
        return Results(
            {metric.name: values[metric.name] for metric in self._wanted},
            num_queries=len(found),
            num_excluded=asked - len(found),
            num_classes=len(np.unique(labels)),
            gallery_size=len(searches[0][1]),
            distance=self.distance,
            num_draws=len(searches),
            per_query=per_query,
            per_seed=per_seed,
            query_rows=found,
            query_labels=labels[found],
        )

    def _search(
        self, searches: list[tuple[Images, Images]]
    ) -> tuple[Rows, dict[str, FloatArray]]:
        """Rows of the queries that count, and their metrics."""
        metrics = self._wanted_of("ranks")
        if not metrics:
            return np.empty(0, np.int64), {}
        limits = functools.reduce(operator.or_, (m.limits for m in metrics))
        rows: list[Rows] = []
        values: dict[str, list[FloatArray]] = {m.name: [] for m in metrics}
        for queries, gallery in searches:
            for ranks in search(
                queries,
                gallery,
                self.distance,
                limits,
                memory=self._memory,
                progress=self.progress,
            ):
                rows.append(queries.rows[ranks.queries])
                for metric in metrics:
                    values[metric.name].append(metric.per_query(ranks))
        if not sum(map(len, rows)):
            queries, gallery = searches[0]
            raise ValueError(
                f"The labels that {self.owner} is given must leave at least "
                "one query a relevant image: another image of its class in "
                f"the gallery. Received: {len(queries)} queries, "
                f"{len(gallery)} gallery images and no such pair."
            )
        return np.concatenate(rows), {
            name: np.concatenate(parts) for name, parts in values.items()
        }

    def _whole_set(
        self, given: Inputs
    ) -> tuple[dict[str, FloatArray], dict[str, float]]:
        """Clustering metrics for each seed, and those of the space."""
        clusterings = self._wanted_of("clusters")
        spaces = self._wanted_of("embeddings")
        if not clusterings and not spaces:
            return {}, {}
        parts = [images.embeddings for images in given]
        if self.distance == "cosine":
            parts = [unit_rows(x) for x in parts]
        points = np.concatenate(parts) if len(parts) > 1 else parts[0]
        labels = np.concatenate([images.labels for images in given])
        classes = len(np.unique(labels))
        clusters = [
            kmeans(points, classes, seed=int(seed))
            for seed in (self.seeds if clusterings else ())
        ]
        per_seed = {
            metric.name: np.array(
                [metric.of_whole(labels, x) for x in clusters]
            )
            for metric in clusterings
        }
        return per_seed, {
            metric.name: metric.of_whole(points, labels) for metric in spaces
        }

    def _wanted_of(self, kind: str) -> list[Metric]:
        return [metric for metric in self._wanted if metric.of == kind]
