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

KINDS = ("ranks", "clusters", "embeddings", "pairs", "neighbors")

OF_QUERIES = "ranks", "neighbors"
"""Kinds with a value for each query."""

MACRO = "macro/"
"""Prefix of a metric's name for the mean over classes of their means."""

MetricFunction: TypeAlias = Callable[..., Any]

Wanted: TypeAlias = str | MetricFunction
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
        """The name of what other libraries, or another spelling, call `name`.

        "PrecisionAtK" is "precision@k", and "precision_at_10" "precision@10".
        """
        spelled = _spelled(name)
        k = re.sub(r".*?(\d*)$", r"\1", spelled)
        for key, number in ((spelled, ""), (spelled.removesuffix(k) + "k", k)):
            for entry in self.values():
                names = names_elsewhere(entry.value, with_functions=True)
                if key != "k" and key in map(_spelled, {entry.name, *names}):
                    is_at_k = number and entry.name.endswith("@k")
                    return [entry.name[:-1] + number if is_at_k else entry.name]
        return []

    def check(self, name: str, details: dict[str, Any]) -> None:
        """Raises `ValueError` unless `details` are valid for a metric."""
        of = details.get("of", "ranks")
        if of not in KINDS or not set(details) <= {"of", "limits", "of_one"}:
            raise ValueError(
                f"METRICS.register must be given `of`, one of {KINDS}, "
                "`limits` and `of_one`, or none of them. Received: "
                f"{details} for {name!r}."
            )
        if of == "neighbors" and not name.endswith("@k"):
            raise ValueError(
                "The name of a metric of neighbors must end in '@k'. Received: "
                f"{name!r}. Register it with METRICS.register."
            )


def _spelled(name: str) -> str:
    """A name without what spellings differ in: MapAtK, map_at_k, mAP@k."""
    letters = re.sub("[^a-z0-9]", "", name.lower())
    return re.sub(r"at(?=(\d+|k|r)$)", "", letters)


METRICS = _Metrics("metric")
"""All metrics by name; "@k" at the end stands for "@1", "@2", …, and x for a
share such as 0.01."""


@dataclass(frozen=True)
class Metric:
    """A metric with a known k."""

    name: str  # In the results: "map@r", "recall@4".
    entry: Entry[MetricFunction]
    # k, if the registered name ends in "@k"; or the share that x stands for.
    arguments: tuple[int | float, ...] = ()
    is_macro: bool = False  # Every class has the same weight, not every query.

    @property
    def of(self) -> str:
        """Its input: one of `KINDS`."""
        return str(self.entry.details.get("of", "ranks"))

    @property
    def limits(self) -> Limits:
        """Ranks that it requires exactly, if it is a function of ranks."""
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

        `neighbors` are the `Neighbors` of these queries, if it is of them.
        """
        queries = neighbors if self.of == "neighbors" else ranks
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

    def of_whole(self, *given: Any) -> float:
        """Its value for clusters, embeddings or pairs."""
        return float(self.entry.value(*given, *self.arguments))


def metric(name: str) -> Metric | None:
    """The metric with a name such as "map@r" or "recall@10", if it exists.

    Levels and dimensions before the name, as in results, are ignored:
    "genus/recall@10" is recall@10.
    """
    first, slash, rest = name.partition("/")
    if slash:
        found = metric(rest)
        if found is None or first + slash != MACRO:
            return found
        is_mean = found.of in OF_QUERIES and not found.is_macro
        return replace(found, name=name, is_macro=True) if is_mean else None
    if name in METRICS and not name.endswith(("@k", "@x", "=x")):
        return Metric(name, METRICS[name])
    at_k = re.fullmatch(r"(.+@)([1-9]\d{0,8})", name)
    if at_k and f"{at_k[1]}k" in METRICS:
        return Metric(name, METRICS[f"{at_k[1]}k"], (int(at_k[2]),))
    at_x = re.fullmatch(r"(.+[@=])(0?\.\d+|\d\.?\d*e-\d+)", name)
    if at_x and f"{at_x[1]}x" in METRICS and 0 < float(at_x[2]) < 1:
        return Metric(name, METRICS[f"{at_x[1]}x"], (float(at_x[2]),))
    return None


def expanded(
    metrics: Wanted | Sequence[Wanted], ks: Sequence[int], owner: str
) -> list[Metric]:
    """The distinct metrics for some names, in order; `@k` stands for all `ks`.

    "package.module:name" first imports the module, which registers it.
    """
    found: dict[str, Metric] = {}
    if isinstance(metrics, str) or callable(metrics):
        metrics = [metrics]
    for wanted in metrics:
        if callable(wanted):
            own = _of_function(wanted, owner)
            found[own.name] = own
            continue
        for name in _names(wanted, ks, owner):
            known = metric(name)
            mean, slash, _ = name.rpartition("/")
            if known is None or mean + slash not in ("", MACRO):
                raise ValueError(_unknown(wanted, owner))
            found[name] = known
    if not found:
        raise ValueError(
            f"`metrics` of {owner} must name at least one metric. Received: "
            f"metrics={metrics!r}. Use some of {', '.join(METRICS)}."
        )
    return list(found.values())


def _names(wanted: object, ks: Sequence[int], owner: str) -> list[str]:
    """The names that a name stands for: one per k if it ends in @k."""
    if not isinstance(wanted, str):
        raise ValueError(_unknown(wanted, owner))
    module, colon, name = wanted.rpartition(":")
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


def _of_function(function: MetricFunction, owner: str) -> Metric:
    """A metric that is not registered, under the name of its function."""
    name = getattr(function, "name", None) or getattr(
        function, "__name__", type(function).__name__
    )
    if not isinstance(name, str) or name == "<lambda>" or metric(name):
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


def _unknown(name: object, owner: str) -> str:
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
