"""All metrics of embeddings, from one search."""

import functools
import operator
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from keras_dml.evaluation.clustering import kmeans
from keras_dml.evaluation.inputs import Inputs, Protocols, plan_searches
from keras_dml.evaluation.label_sets import LabelSets, ids_of, labels_in
from keras_dml.evaluation.metrics import (
    MACRO,
    QUERY_INPUTS,
    Metric,
    MetricLike,
    expand_metrics,
)
from keras_dml.evaluation.neighbors import Neighbors, neighbors_of
from keras_dml.evaluation.pair_counts import count_pairs_searched
from keras_dml.evaluation.ranks.positives import Limits, Ranks
from keras_dml.evaluation.ranks.relevance import (
    Images,
    Relevance,
    are_ignored,
    relevance_of,
)
from keras_dml.evaluation.ranks.scores import DISTANCES
from keras_dml.evaluation.ranks.search import (
    DistanceFunction,
    Distances,
    by_function,
    dense_search,
    search,
)
from keras_dml.evaluation.reranking import Kind, rerankings
from keras_dml.evaluation.results import (
    PARTS,
    Results,
    cut,
    part_names,
    subspaces,
    with_subspaces,
)
from keras_dml.model.warnings import (
    warn,
    warn_of_collapse,
    warn_of_copies,
)
from keras_dml.utils.arguments import (
    check_choice,
    check_count,
    check_not_empty,
    check_type,
)
from keras_dml.utils.lazy_rows import LazyRows, join_rows, map_rows
from keras_dml.utils.types import FloatArray, Rows, Several
from keras_dml.utils.vectors import as_bytes, blocks, unit_rows


@dataclass
class Evaluation:
    """The common arguments of `evaluate` and `evaluate_embeddings`."""

    owner: str
    metrics: MetricLike | Sequence[MetricLike]
    ks: Sequence[int] = (1, 2, 4, 8)
    distance: str | DistanceFunction = "cosine"
    protocol: Protocols = None
    prefixes: Sequence[int] | None = None
    parts: int | None = None
    rerank: Kind | Sequence[Kind] | None = None
    memory: int | str = "512MB"
    seeds: Sequence[int] = (0,)
    progress: bool | None = None
    cluster_sample: int | None = None

    def __post_init__(self) -> None:
        self._metrics = expand_metrics(self.metrics, self.ks, self.owner)
        self._memory = as_bytes(self.memory, self.owner)
        if not callable(self.distance):
            check_choice(self.owner, "distance", self.distance, DISTANCES)
        elif self._metrics_of("pairs"):
            names = [metric.name for metric in self._metrics_of("pairs")]
            raise ValueError(
                f"`distance` of {self.owner} must be one of {DISTANCES} for "
                f"{names}. Received: distance={self.distance!r}."
            )
        self._steps = rerankings(self.rerank, self.distance, self.owner)
        if not len(self.seeds):
            raise ValueError(
                f"`seeds` of {self.owner} must not be empty. Received: "
                f"seeds={self.seeds!r}. Use seeds=(0,)."
            )
        if self.prefixes is not None:
            check_not_empty(self.owner, "prefixes", self.prefixes)
            for size in self.prefixes:
                check_count(self.owner, "prefixes", size)
        check_type(self.owner, "parts", self.parts, Several | None)

    def check(self, inputs: Inputs) -> None:
        """Raises `ValueError` unless protocol and metrics fit the examples."""
        self._check_classes(inputs)
        draws = plan_searches(inputs, self.protocol, self.owner)
        for queries, gallery in draws:
            for level in queries.targets:
                relevance = relevance_of(queries, gallery, level)
                parts = blocks(len(queries), 64)
                if not any(len(relevance.of(x)[0].items) for x in parts):
                    raise self._nothing_to_find(queries, gallery, level)

    def names(self, inputs: Inputs) -> tuple[str, ...]:
        """Names of all results; those of prefixes and parts come last."""
        names = self._names(inputs)
        spaces = [*map(str, self.prefixes or ()), *part_names(self.parts)]
        spaces += [PARTS] if self.parts else []
        return (*names, *(f"{space}/{x}" for space in spaces for x in names))

    def of(self, inputs: Inputs) -> Results:
        """Measures embeddings, their prefixes and their parts."""
        self._check_classes(inputs)
        self._check_sample(inputs)
        self._check_embeddings(inputs)
        size = inputs[0].embeddings.shape[1]
        if max(self.prefixes or (0,)) > size:
            raise ValueError(
                f"`prefixes` of {self.owner} must be at most the dimensions "
                f"of the embeddings, {size}. Received: prefixes="
                f"{tuple(self.prefixes or ())}."
            )
        if self.parts and -(-size // self.parts) * (self.parts - 1) >= size:
            raise ValueError(
                f"`parts` of {self.owner} must leave at least one dimension "
                f"per part. Received: parts={self.parts}, embeddings of {size} "
                "dimensions."
            )
        whole = self._measure(inputs)
        slices = subspaces(size, self.prefixes, self.parts)
        by_name = {x: self._measure(cut(inputs, y)) for x, y in slices.items()}
        return with_subspaces(whole, by_name) if by_name else whole

    def _measure(self, inputs: Inputs) -> Results:
        searches = plan_searches(inputs, self.protocol, self.owner)
        query_rows, per_query = self._search(searches)
        per_seed, values = self._whole_set(inputs)
        values |= self._pairs(searches)
        total = sum(len(queries) for queries, _ in searches) if per_query else 0
        targets = [next(iter(images.targets.values())) for images in inputs]
        labels = np.concatenate([ids_of(x) for x in targets])
        each_label = np.concatenate([labels_in(x) for x in targets])
        results = Results(
            {},
            num_queries=len(query_rows),
            num_excluded=total - len(query_rows),
            num_classes=len(np.unique(each_label)),
            gallery_size=len(searches[0][1]),
            distance=self._name_of_distance,
            num_draws=len(searches),
            per_query=per_query,
            per_seed=per_seed,
            query_rows=query_rows,
            query_labels=labels[np.searchsorted(inputs[0].rows, query_rows)],
            memberships=_memberships(inputs, query_rows),
            class_names=inputs[0].class_names,
            cluster_sample=self.cluster_sample if per_seed else None,
        )
        for name, seed_values in per_seed.items():
            values[name] = float(seed_values.mean())
        for name in per_query:
            values[name] = _mean(results, name)
        names = self._names(inputs)
        return replace(results, _values={name: values[name] for name in names})

    @property
    def _name_of_distance(self) -> str:
        if callable(self.distance):
            return str(getattr(self.distance, "__name__", "own distance"))
        steps = [type(step).__name__ for step in self._steps]
        return " + ".join([self.distance, *steps])

    def _names(self, inputs: Inputs) -> list[str]:
        """Names of all results, level by level."""
        return [
            _full_name(level, metric.name)
            for level in inputs[0].targets
            for metric in self._metrics
        ]

    def _search(
        self, searches: list[tuple[Images, Images]]
    ) -> tuple[Rows, dict[str, FloatArray]]:
        """Rows of the included queries, and their metrics."""
        metrics = self._metrics_of(*QUERY_INPUTS)
        if not metrics:
            return np.empty(0, np.int64), {}
        rows: list[Rows] = []
        values: dict[str, list[FloatArray]] = defaultdict(list)
        levels = list(searches[0][0].targets)
        for queries, gallery in searches:
            relevances = [relevance_of(queries, gallery, x) for x in levels]
            images = self._rerank(queries, gallery)
            nearest = self._neighbors(
                *images, dict(zip(levels, relevances, strict=True))
            )
            for panel in self._ranks(*images, relevances):
                positions = functools.reduce(
                    np.union1d, (ranks.queries for ranks in panel)
                )
                rows.append(queries.rows[positions])
                for level, ranks in zip(levels, panel, strict=True):
                    neighbors = nearest and nearest[level].select(ranks.queries)
                    for metric in metrics:
                        # NaN for queries without a value at this level.
                        column = np.full(len(positions), np.nan)
                        at = np.searchsorted(positions, ranks.queries)
                        column[at] = metric.per_query(ranks, neighbors)
                        values[_full_name(level, metric.name)].append(column)
        per_query = {name: np.concatenate(x) for name, x in values.items()}
        for level in levels:
            if np.isnan(per_query[_full_name(level, metrics[0].name)]).all():
                raise self._nothing_to_find(*searches[0], level)
        return np.concatenate(rows), per_query

    def _ranks(
        self,
        queries: Images,
        gallery: Images,
        distances: Distances | None,
        relevances: list[Relevance],
    ) -> Iterator[tuple[Ranks, ...]]:
        """Ranks at each level, one panel of queries at a time."""
        limits = functools.reduce(
            operator.or_,
            (metric.limits for metric in self._metrics_of("ranks")),
            Limits(),
        )
        images = queries, gallery, relevances
        options: Any = {"memory": self._memory, "progress": self.progress}
        if distances is not None:
            return dense_search(*images, distances, **options)
        assert not callable(self.distance)  # noqa: S101
        return search(*images, self.distance, limits, **options)

    def _neighbors(
        self,
        queries: Images,
        gallery: Images,
        distances: Distances | None,
        relevances: dict[str, Relevance],
    ) -> dict[str, Neighbors]:
        """The nearest images of each query by level, if metrics need them."""
        ks = [int(x.arguments[0]) for x in self._metrics_of("neighbors")]
        if not ks:
            return {}
        distance: Any = self.distance if distances is None else distances
        return {
            level: neighbors_of(
                queries, gallery, level, x, distance, max(ks), self._memory
            )
            for level, x in relevances.items()
        }

    def _rerank(
        self, queries: Images, gallery: Images
    ) -> tuple[Images, Images, Distances | None]:
        """Re-ranks; returns queries, gallery and, if special, distances."""
        if not callable(self.distance) and not self._steps:
            return queries, gallery, None
        # Functions and re-ranking need all embeddings in memory.
        x, y = np.asarray(queries.embeddings), np.asarray(gallery.embeddings)
        if callable(self.distance):
            return queries, gallery, by_function(self.distance, x, y)
        itself = _positions(queries.rows, gallery.rows)
        distances = None
        for step in self._steps:
            x, y = step.embeddings(x, y, itself)
            distances = step.distances(x, y, itself, self.distance)
        return (
            replace(queries, embeddings=x),
            replace(gallery, embeddings=y),
            distances,
        )

    def _nothing_to_find(
        self, queries: Images, gallery: Images, level: str
    ) -> ValueError:
        at = f" at the level {level!r}" if level else ""
        return ValueError(
            f"The labels given to {self.owner} must leave at least "
            f"one query with a relevant image{at}: another image of its class "
            f"in the gallery. Received: {len(queries)} queries, "
            f"{len(gallery)} gallery images and no such pair."
        )

    def _check_classes(self, inputs: Inputs) -> None:
        clusterings = self._metrics_of("clusters", "neighbors")
        label_sets = [
            x for x in inputs[0].targets.values() if isinstance(x, LabelSets)
        ]
        if clusterings and label_sets:
            raise ValueError(
                f"`metrics` of {self.owner} must not compare clusters with "
                "classes, or classify, if examples have several labels. "
                "Received: "
                f"{[metric.name for metric in clusterings]}."
            )
        for level in inputs[0].targets:
            labels = _classes_at(inputs, level)
            if labels is not None and len(np.unique(labels)) == 1:
                warn(
                    "All %d examples measured by %s are of one class%s, so "
                    "every result is correct and metrics are meaningless. Use "
                    "examples of several classes.",
                    len(labels),
                    self.owner,
                    f" at the level {level!r}" if level else "",
                )

    def _check_embeddings(self, inputs: Inputs) -> None:
        """Warns if ranks of these embeddings are meaningless."""
        parts = [images.embeddings for images in inputs]
        is_cosine = self.distance == "cosine"
        collapsed = warn_of_collapse(parts, is_cosine, self.owner)
        if collapsed or not self._metrics_of(*QUERY_INPUTS):
            return
        queries, gallery = plan_searches(inputs, self.protocol, self.owner)[0]
        # A query that is a row of the gallery does not find itself.
        is_inside = np.isin(queries.rows, gallery.rows)
        if is_inside.all():
            return
        warn_of_copies(
            queries.embeddings,
            gallery.embeddings,
            lambda rows, items: (
                is_inside[rows] | are_ignored(queries, gallery, rows, items)
            ),
            is_cosine,
            self.owner,
        )

    def _check_sample(self, inputs: Inputs) -> None:
        """Rejects samples smaller than the clusters, and too large files."""
        if not self._metrics_of("clusters"):
            return
        if self.cluster_sample is not None:
            labels = [_classes_at(inputs, level) for level in inputs[0].targets]
            counts = [len(np.unique(x)) for x in labels if x is not None]
            sample, min_rows = self.cluster_sample, max(counts, default=1)
            check_count(self.owner, "cluster_sample", sample, min_rows)
            return
        embeddings = [x.embeddings for x in inputs]
        num_bytes = sum(4 * len(x) * x.shape[1] for x in embeddings)
        is_stored = any(isinstance(x, LazyRows) for x in embeddings)
        if is_stored and num_bytes > self._memory:
            raise ValueError(
                f"`cluster_sample` of {self.owner} must give the number of "
                "rows for K-means if the embeddings are in files and do not "
                f"fit into `memory`. Received: {num_bytes / 2**20:,.0f} MB of "
                f"embeddings and memory={self.memory!r}. Use a sample of 1,000 "
                "rows or more per class, or more memory."
            )

    def _whole_set(
        self, inputs: Inputs
    ) -> tuple[dict[str, FloatArray], dict[str, float]]:
        """Clustering metrics for each seed, and metrics of the space."""
        clusterings = self._metrics_of("clusters")
        spaces = self._metrics_of("embeddings")
        if not clusterings and not spaces:
            return {}, {}
        parts = [images.embeddings for images in inputs]
        if self.distance == "cosine":
            parts = [map_rows(x, unit_rows) for x in parts]
        points, sample = join_rows(parts), self.cluster_sample
        per_seed: dict[str, FloatArray] = {}
        values: dict[str, float] = {}
        for level in inputs[0].targets:
            labels = _classes_at(inputs, level)
            for metric in spaces:
                name = _full_name(level, metric.name)
                values[name] = metric.compute(points, labels)
            if labels is None or not clusterings:
                continue
            classes = len(np.unique(labels))
            # Points are read into memory once for all seeds.
            points = points if sample else np.asarray(points)
            clusters = [
                kmeans(points, classes, seed=int(seed), sample=sample)
                for seed in self.seeds
            ]
            for metric in clusterings:
                per_seed[_full_name(level, metric.name)] = np.array(
                    [metric.compute(labels, x) for x in clusters]
                )
        return per_seed, values

    def _pairs(self, searches: list[tuple[Images, Images]]) -> dict[str, float]:
        """Metrics of pairs, averaged over the draws of the protocol."""
        metrics = self._metrics_of("pairs")
        if not metrics or callable(self.distance):
            return {}
        values: dict[str, list[float]] = defaultdict(list)
        for queries, gallery in searches:
            for level in queries.targets:
                relevance = relevance_of(queries, gallery, level)
                counts = count_pairs_searched(
                    queries, gallery, relevance, self.distance
                )
                for metric in metrics:
                    value = metric.compute(counts)
                    values[_full_name(level, metric.name)].append(value)
        return {name: float(np.mean(x)) for name, x in values.items()}

    def _metrics_of(self, *kinds: str) -> list[Metric]:
        return [metric for metric in self._metrics if metric.input in kinds]


def _positions(rows: Rows, gallery_rows: Rows) -> Rows:
    """Positions of rows in the gallery, or −1, (n,)."""
    order = np.argsort(gallery_rows)
    insertions = np.searchsorted(gallery_rows, rows, sorter=order)
    positions: Rows = order[np.minimum(insertions, len(gallery_rows) - 1)]
    return np.where(gallery_rows[positions] == rows, positions, -1)


def _full_name(level: str, name: str) -> str:
    return f"{level}/{name}" if level else name


def _mean(results: Results, name: str) -> float:
    """The mean over queries, or over classes."""
    values = results.per_query[name]
    if MACRO in name:
        return float(np.mean(list(results.per_class(name).values())))
    # A query without a relevant image at this level has NaN.
    return float(values[~np.isnan(values)].mean())


def _classes_at(inputs: Inputs, level: str) -> Rows | None:
    """Classes of all images at a level; None if an image has several."""
    targets = [images.targets[level] for images in inputs]
    if isinstance(targets[0], LabelSets):
        return None
    return np.concatenate([ids_of(x) for x in targets])


def _memberships(inputs: Inputs, rows: Rows) -> dict[str, tuple[Rows, Rows]]:
    """By level, positions of queries and a class of each; see `Results`."""
    members = {}
    # Queries are always rows of the first input.
    for level, targets in inputs[0].targets.items():
        if isinstance(targets, LabelSets):
            position, label = targets.matrix[rows].nonzero()
            members[level] = position.astype(np.int64), label.astype(np.int64)
        elif level:
            members[level] = np.arange(len(rows)), targets[rows]
    return members
