"""Results: metrics by name, of whole embeddings and of their subspaces."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any

import numpy as np

from keras_dml.evaluation.label_sets import ClassNames
from keras_dml.evaluation.metrics import MACRO
from keras_dml.evaluation.ranks.relevance import Images
from keras_dml.utils.lazy_rows import map_rows
from keras_dml.utils.types import FloatArray, Rows

PARTS = "parts"
"""Prefix of the means over the parts."""


@dataclass(eq=False, repr=False)
class Results(Mapping[str, float]):
    """Metrics by name, and what they were measured on.

    Args:
        values: The metrics, in the order requested; the rest by keyword.

    Attributes:
        num_queries: Number of queries included (over all draws).
        num_excluded: Number of queries excluded because their class has no
            other image in the gallery (over all draws).
        num_classes: Number of classes.
        gallery_size: Number of images searched.
        distance: "cosine", "euclidean", "dot" or the name of a function; with
            the re-ranking, if any.
        num_draws: Number of protocols averaged over.
        per_query: For each retrieval metric, its value for each query, (Q,),
            with the draws one after another. NaN if a query has a relevant
            image only at another level.
        per_seed: For each clustering metric, its value for each seed, (S,).
        query_rows: Row of each query, (Q,).
        query_labels: Class of each query, (Q,): with several levels, that of
            the first; with several labels, a number for the set of labels.
        memberships: For each level, if there are levels or several labels:
            positions of queries and a class of each, (M,) each.
        class_names: For each level, or "": names by class, for classes that
            have names.
        cluster_sample: Number of rows that the centroids of K-means come from;
            None for all.
    """

    _values: dict[str, float]
    _: KW_ONLY
    num_queries: int
    num_excluded: int
    num_classes: int
    gallery_size: int
    distance: str
    num_draws: int
    per_query: dict[str, FloatArray]
    per_seed: dict[str, FloatArray]
    query_rows: Rows
    query_labels: Rows
    memberships: dict[str, tuple[Rows, Rows]] = field(default_factory=dict)
    class_names: Mapping[str, ClassNames] = field(default_factory=dict)
    cluster_sample: int | None = None

    def __getitem__(self, name: str) -> float:
        if name not in self._values:
            raise KeyError(
                f"{name!r} was not measured. Received: metrics="
                f"{tuple(self._values)}. Add it to `metrics` of evaluate."
            )
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def per_class(self, metric: str) -> dict[Any, float]:
        """Returns the mean of a retrieval metric over the queries of each
        class.

        With several labels per example, a query counts for each of its labels.

        Args:
            metric: A name in `per_query`.

        Returns:
            The means by class. The keys are class names if all classes have
            distinct names, as they do if labels are strings or folders;
            otherwise class numbers. Labels given as sets are their own keys.

        Raises:
            KeyError: If the metric is not in `per_query`.
        """
        if metric not in self.per_query:
            raise KeyError(
                f"{metric!r} has no values for single queries. Received: "
                f"retrieval metrics {tuple(self.per_query)}."
            )
        positions, classes = self._members(metric)
        values = self.per_query[metric][positions]
        unique_classes, inverse = np.unique(classes, return_inverse=True)
        means = np.bincount(inverse, values) / np.bincount(inverse)
        keys = self._class_keys(unique_classes.tolist(), self._level(metric))
        return dict(zip(keys, means.tolist(), strict=True))

    def weights(self, metric: str) -> FloatArray:
        """Returns the weight of each query in the mean of a metric, (Q,).

        It is 1, or 0 if the query has no value; for the mean over classes, it
        is 1 / n for each of its classes with n queries.
        """
        values = self.per_query[metric]
        if MACRO not in metric:
            return (~np.isnan(values)).astype(np.float64)
        positions, classes = self._members(metric)
        inverse = np.unique(classes, return_inverse=True)[1]
        shares = 1 / np.bincount(inverse)[inverse]
        return np.bincount(positions, shares, len(values)).astype(np.float64)

    def _level(self, metric: str) -> str:
        parts = metric.split("/")[:-1]
        return next((x for x in parts if x in self.memberships), "")

    def _members(self, metric: str) -> tuple[Rows, Rows]:
        """Positions of queries with a value, and a class of each, (M,)."""
        alone = np.arange(len(self.query_labels)), self.query_labels
        positions, classes = self.memberships.get(self._level(metric), alone)
        has_value = ~np.isnan(self.per_query[metric][positions])
        return positions[has_value], classes[has_value]

    def _class_keys(self, classes: list[int], level: str) -> list[Any]:
        names = self.class_names.get(level, {})
        keys = [names[x] for x in classes if x in names]
        return keys if len(set(keys)) == len(classes) else classes

    def to_dict(self) -> dict[str, Any]:
        """Returns everything except the values of single queries, ready for
        JSON."""
        sampled = {}
        if self.cluster_sample is not None:
            sampled = {"cluster_sample": self.cluster_sample}
        return {
            "metrics": dict(self._values),
            "num_queries": self.num_queries,
            "num_excluded": self.num_excluded,
            "num_classes": self.num_classes,
            "gallery_size": self.gallery_size,
            "distance": self.distance,
            "num_draws": self.num_draws,
            "per_seed": {k: v.tolist() for k, v in self.per_seed.items()},
            **sampled,
        }

    def __repr__(self) -> str:
        values = ", ".join(f"{k}={v:.4f}" for k, v in self.items())
        return f"Results({values})"

    def __str__(self) -> str:
        width = max(len(name) for name in self)
        lines = [
            f"{name:<{width}}  {value:8.4f}{self._spread(name)}"
            for name, value in self.items()
        ]
        draws = f", {self.num_draws} draws" if self.num_draws > 1 else ""
        sampled = ""
        if self.cluster_sample is not None:
            sampled = f", centroids of {self.cluster_sample} rows"
        excluded = ""
        if self.num_excluded:
            excluded = f" ({self.num_excluded} more without a relevant image)"
        about = (
            f"{self.num_queries} queries{excluded}, "
            f"gallery of {self.gallery_size}, "
            f"{self.num_classes} classes, {self.distance}{draws}{sampled}"
        )
        return "\n".join([*lines, about])

    def _spread(self, name: str) -> str:
        values = self.per_seed.get(name, np.empty(0))
        if len(values) < 2:
            return ""
        return f" ± {values.std(ddof=1):.4f} ({len(values)} seeds)"


def subspaces(
    dim: int, prefixes: Sequence[int] | None, parts: int | None
) -> dict[str, slice]:
    """Slices of the dimensions that are measured separately, by name."""
    slices = {str(size): slice(0, size) for size in prefixes or ()}
    size = -(-dim // parts) if parts else 0
    for k, name in enumerate(part_names(parts)):
        slices[name] = slice(k * size, (k + 1) * size)
    return slices


def part_names(parts: int | None) -> list[str]:
    """Names of the results of each part, counted from 1."""
    return [f"part{k + 1}" for k in range(parts or 0)]


def cut(inputs: Sequence[Images], dimensions: slice) -> list[Images]:
    """Cuts all embeddings to some dimensions."""
    return [
        replace(
            images,
            embeddings=map_rows(
                images.embeddings,
                lambda x: np.ascontiguousarray(x[:, dimensions]),
            ),
        )
        for images in inputs
    ]


def with_subspaces(whole: Results, by_subspace: dict[str, Results]) -> Results:
    """Results including those of subspaces, with the names of these as prefix.

    If some are parts, their mean is included as well.
    """
    parts = [x for name, x in by_subspace.items() if name.startswith("part")]

    def merge(kind: Callable[[Results], Mapping[str, Any]]) -> dict[str, Any]:
        values = dict(kind(whole))
        for name, results in by_subspace.items():
            for metric, value in kind(results).items():
                values[f"{name}/{metric}"] = value
        for metric in kind(whole) if parts else ():
            values[f"{PARTS}/{metric}"] = np.mean(
                [kind(part)[metric] for part in parts], axis=0
            )
        return values

    values = merge(dict)
    return replace(
        whole,
        _values={name: float(value) for name, value in values.items()},
        per_query=merge(lambda results: results.per_query),
        per_seed=merge(lambda results: results.per_seed),
    )
