"""Metrics by name: their registry, and the names that users write.

A metric is a function that is registered with `METRICS.register`, with its
name, a one-line definition, its paper and, by keyword:

    of: The input of the function.
        "ranks" (default): `metric(ranks)` returns a value for each query,
        (Q,), and the result is their mean. `ranks` is a `Ranks`.
        "clusters": `metric(labels, clusters)` returns a number, given (N,)
        classes and clusters of K-means.
        "embeddings": `metric(embeddings, labels)` returns a number, given
        (N, D) embeddings, of unit length if the distance is "cosine".
        `labels` is None if an example may have several.
        "pairs": `metric(counts)` returns a number; `counts` is a
        `PairCounts`.
        "neighbors": `metric(neighbors, k)` returns a value for each query,
        (Q,); `neighbors` is a `Neighbors`, and the name ends in "@k".
    limits: For "ranks", the `Limits` up to which it requires exact ranks; by
        default all are exact, which takes longer.
    of_one: The definition for k = 1, if it has a better one.

If a name ends in "@k", the function has an additional argument, `k`, and so do
its `limits`, which are then a function: `lambda k: Limits(first=k)`. If it
ends in "@x" or "=x", the argument is a share between 0 and 1.

A function that is not registered can also be a metric: its name is that of the
function, and it may have attributes `of` and `limits`.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from keras_dml.evaluation.ranks.positives import UNLIMITED, Limits, Ranks
from keras_dml.utils.arguments import did_you_mean
from keras_dml.utils.registry import (
    Entry,
    Paper,
    Registry,
    import_own,
    names_elsewhere,
)
from keras_dml.utils.types import FloatArray

INPUTS = ("ranks", "clusters", "embeddings", "pairs", "neighbors")

QUERY_INPUTS = "ranks", "neighbors"
"""Inputs of metrics with a value for each query."""

MACRO = "macro/"
"""Prefix of a metric's name for the mean over classes of their means."""

MetricFunction: TypeAlias = Callable[..., Any]

MetricLike: TypeAlias = str | MetricFunction
"""A metric: its name, or a function that is not registered."""


class _Metrics(Registry[MetricFunction]):
    def register(
        self,
        name: str,
        definition: str = "",
        paper: Paper | None = None,
        **details: Any,
    ) -> Callable[[Any], Any]:
        self.check(name, details)
        return super().register(name, definition, paper, **details)

    def known_as(self, name: str) -> list[str]:
        """The registered name for another library's name, or another spelling.

        "PrecisionAtK" is "precision@k", and "precision_at_10" "precision@10".
        """
        letters = _normalize(name)
        k = re.sub(r".*?(\d*)$", r"\1", letters)
        for key, number in ((letters, ""), (letters.removesuffix(k) + "k", k)):
            for entry in self.values():
                names = names_elsewhere(entry.value, with_functions=True)
                if key != "k" and key in map(_normalize, {entry.name, *names}):
                    is_at_k = number and entry.name.endswith("@k")
                    return [entry.name[:-1] + number if is_at_k else entry.name]
        return []

    def check(self, name: str, details: dict[str, Any]) -> None:
        """Raises `ValueError` unless `details` are valid for a metric."""
        of = details.get("of", "ranks")
        if of not in INPUTS or not set(details) <= {"of", "limits", "of_one"}:
            raise ValueError(
                f"METRICS.register must be given `of`, one of {INPUTS}, "
                "`limits` and `of_one`, or none of them. Received: "
                f"{details} for {name!r}."
            )
        if of == "neighbors" and not name.endswith("@k"):
            raise ValueError(
                "The name of a metric of neighbors must end in '@k'. Received: "
                f"{name!r}. Register it with METRICS.register."
            )


def _normalize(name: str) -> str:
    """Removes differences of spelling: MapAtK, map_at_k, mAP@k."""
    letters = re.sub("[^a-z0-9]", "", name.lower())
    return re.sub(r"at(?=(\d+|k|r)$)", "", letters)


METRICS = _Metrics("metric")
"""All metrics by name; "@k" at the end stands for "@1", "@2", …, and x for a
share such as 0.01."""


@dataclass(frozen=True)
class Metric:
    """A registered metric with its k, or share, filled in."""

    name: str  # In the results: "map@r", "recall@4".
    entry: Entry[MetricFunction]
    # k, if the registered name ends in "@k"; or the share that x stands for.
    arguments: tuple[int | float, ...] = ()
    is_macro: bool = False  # Every class has the same weight, not every query.

    @property
    def input(self) -> str:
        """Its input: one of `INPUTS`."""
        return str(self.entry.details.get("of", "ranks"))

    @property
    def limits(self) -> Limits:
        """Limits up to which it requires exact ranks."""
        limits = self.entry.details.get("limits", Limits(every=UNLIMITED))
        return limits(*self.arguments) if callable(limits) else limits

    @property
    def definition(self) -> str:
        """Its one-line definition, with the number in place of k or x."""
        definition = self.entry.definition
        if self.arguments == (1,):
            definition = self.entry.details.get("of_one", definition)
        for number in self.arguments:
            letter = self.entry.name[-1]
            definition = re.sub(rf"\b{letter}\b", str(number), definition)
        mean = "mean over classes: " if self.is_macro else ""
        return mean + definition

    def per_query(self, ranks: Ranks, neighbors: Any = None) -> FloatArray:
        """Its value for each query, (Q,) float64, checked.

        `neighbors` are the `Neighbors` of these queries, if they are its input.
        """
        queries = neighbors if self.input == "neighbors" else ranks
        values = np.asarray(self.entry.value(queries, *self.arguments))
        if values.shape != ranks.counts.shape:
            raise ValueError(
                f"The metric {self.name!r} must return one value per "
                f"query, (Q,). Received: shape {values.shape} for "
                f"{len(ranks.counts)} queries. Use `ranks.sum(values)` for "
                "the sum over the relevant images of each query."
            )
        if np.isnan(values).any():
            raise ValueError(
                f"The metric {self.name!r} must return a number for each "
                f"query. Received: {int(np.isnan(values).sum())} NaN of "
                f"{len(values)}. Queries without a relevant image are already "
                "excluded."
            )
        return values.astype(np.float64)

    def compute(self, *inputs: Any) -> float:
        """Its value for clusters, embeddings or pairs."""
        return float(self.entry.value(*inputs, *self.arguments))


def parse_metric(name: str) -> Metric | None:
    """The metric with a name such as "map@r" or "recall@10", if it exists.

    Levels and dimensions before the name, as in results, are ignored:
    "genus/recall@10" is recall@10.
    """
    first, slash, rest = name.partition("/")
    if slash:
        inner = parse_metric(rest)
        if inner is None or first + slash != MACRO:
            return inner
        is_mean = inner.input in QUERY_INPUTS and not inner.is_macro
        return replace(inner, name=name, is_macro=True) if is_mean else None
    if name in METRICS and not name.endswith(("@k", "@x", "=x")):
        return Metric(name, METRICS[name])
    at_k = re.fullmatch(r"(.+@)([1-9]\d{0,8})", name)
    if at_k and f"{at_k[1]}k" in METRICS:
        return Metric(name, METRICS[f"{at_k[1]}k"], (int(at_k[2]),))
    at_x = re.fullmatch(r"(.+[@=])(0?\.\d+|\d\.?\d*e-\d+)", name)
    if at_x and f"{at_x[1]}x" in METRICS and 0 < float(at_x[2]) < 1:
        return Metric(name, METRICS[f"{at_x[1]}x"], (float(at_x[2]),))
    return None


def expand_metrics(
    metrics: MetricLike | Sequence[MetricLike], ks: Sequence[int], owner: str
) -> list[Metric]:
    """The distinct metrics for some names, in order; `@k` stands for all `ks`.

    "package.module:name" first imports the module, which registers it.
    """
    by_name: dict[str, Metric] = {}
    if isinstance(metrics, str) or callable(metrics):
        metrics = [metrics]
    for item in metrics:
        if callable(item):
            custom_metric = _from_function(item, owner)
            by_name[custom_metric.name] = custom_metric
            continue
        for name in _expand_name(item, ks, owner):
            parsed_metric = parse_metric(name)
            mean, slash, _ = name.rpartition("/")
            if parsed_metric is None or mean + slash not in ("", MACRO):
                raise ValueError(_unknown_message(item, owner))
            by_name[name] = parsed_metric
    if not by_name:
        raise ValueError(
            f"`metrics` of {owner} must name at least one metric. Received: "
            f"metrics={metrics!r}. Use some of {', '.join(METRICS)}."
        )
    return list(by_name.values())


def _expand_name(item: object, ks: Sequence[int], owner: str) -> list[str]:
    """Expands a name that ends in @k to one name per k."""
    if not isinstance(item, str):
        raise ValueError(_unknown_message(item, owner))
    module, colon, name = item.rpartition(":")
    if colon:
        import_own("metric", name, module)
    if not name.endswith("@k") or name.removeprefix(MACRO) not in METRICS:
        return [name]
    if not len(ks) or any(k != int(k) or k < 1 for k in ks):
        raise ValueError(
            f"`ks` of {owner} must be positive integers. Received: "
            f"ks={ks!r}. Use, for example, ks=(1, 2, 4, 8)."
        )
    return [f"{name[:-1]}{int(k)}" for k in ks]


def _from_function(function: MetricFunction, owner: str) -> Metric:
    """A metric that is not registered, under the name of its function."""
    name = getattr(function, "name", None) or getattr(
        function, "__name__", type(function).__name__
    )
    if not isinstance(name, str) or name == "<lambda>" or parse_metric(name):
        raise ValueError(
            f"`metrics` of {owner} must have distinct names. Received: "
            f"{function!r} with the name {name!r}. Define it with `def`, or "
            "set its attribute `name`."
        )
    details = {
        key: getattr(function, key)
        for key in ("of", "limits")
        if hasattr(function, key)
    }
    METRICS.check(name, details)
    return Metric(name, Entry(name, function, name, None, details))


def _unknown_message(name: object, owner: str) -> str:
    candidates = [*METRICS, *(x[:-1] + "1" for x in METRICS if x[-2:] == "@k")]
    hint = "." + did_you_mean(str(name).lower(), candidates)
    if same := METRICS.known_as(str(name).removeprefix(MACRO)):
        macro = MACRO if str(name).startswith(MACRO) else ""
        hint = f", which is {macro + same[0]!r} here."
    return (
        f"`metrics` of {owner} must be known metrics. Received: {name!r}"
        f"{hint} Known: {', '.join(METRICS)}, where k is a positive integer, "
        "or the letter for each of `ks`, and x a share such as 0.01; "
        f"{MACRO!r} before a name is the mean over classes. Use a function "
        "of your own, or register it with `evaluation.METRICS.register`."
    )
