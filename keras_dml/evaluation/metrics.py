"""Metrics by name: their registry, and the names that users write.

A metric is a function that `METRICS.register` enters with its name, its
definition in a line, its paper and, by keyword:

    of: What the function is given.
        "ranks" (default): `metric(ranks)` returns a value for each query,
        (Q,), of which the result is the mean. `ranks` is a `Ranks`.
        "clusters": `metric(labels, clusters)` returns a number, (N,)
        classes and clusters of K-means given.
        "embeddings": `metric(embeddings, labels)` returns a number, (N, D)
        embeddings given, of unit length where the distance is "cosine".
    limits: For "ranks", the `Limits` up to which it needs them exact; by
        default it gets all of them, which takes longer.

Where a name ends in "@k", the function has one more argument, `k`, and so
have its `limits`, which then are a function: `lambda k: Limits(first=k)`.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from keras_dml.evaluation.ranks.ranked_positives import UNLIMITED, Limits
from keras_dml.evaluation.ranks.search import Ranks
from keras_dml.utils.arguments import did_you_mean
from keras_dml.utils.registry import Entry, Paper, Registry
from keras_dml.utils.types import FloatArray

KINDS = ("ranks", "clusters", "embeddings")


class _Metrics(Registry[Callable[..., Any]]):
    def register(
        self,
        name: str,
        definition: str = "",
        paper: Paper | None = None,
        **details: Any,
    ) -> Callable[[Any], Any]:
        of = details.get("of", "ranks")
        if of not in KINDS or not set(details) <= {"of", "limits"}:
            raise ValueError(
                f"METRICS.register must be given `of`, one of {KINDS}, and "
                f"`limits`, or neither. Received: {details} for {name!r}."
            )
        return super().register(name, definition, paper, **details)


METRICS = _Metrics("metric")
"""All metrics by name; "@k" at its end stands for "@1", "@2", …"""


@dataclass(frozen=True)
class Metric:
    """A metric whose k is known.

    Attributes:
        name: As in the results: "map@r", "recall@4".
        entry: What is registered.
        arguments: k, if the registered name ends in "@k".
    """

    name: str
    entry: Entry[Callable[..., Any]]
    arguments: tuple[int, ...] = ()

    @property
    def of(self) -> str:
        """What it is a function of: "ranks", "clusters", "embeddings"."""
        return str(self.entry.details.get("of", "ranks"))

    @property
    def limits(self) -> Limits:
        """Ranks that it needs exactly, if it is a function of ranks."""
        limits = self.entry.details.get("limits", Limits(every=UNLIMITED))
        return limits(*self.arguments) if callable(limits) else limits

    @property
    def definition(self) -> str:
        """What it is, in a line, with the number that k is."""
        definition = self.entry.definition
        for k in self.arguments:
            definition = re.sub(r"\bk\b", str(k), definition)
        return definition

    def per_query(self, ranks: Ranks) -> FloatArray:
        """Its value for each query, (Q,) float64.

        Raises:
            ValueError: If the function returns something else.
        """
        values = np.asarray(self.entry.value(ranks, *self.arguments))
        if values.shape != ranks.counts.shape:
            raise ValueError(
                f"The metric {self.name!r} must return one value for each "
                f"query, (Q,). Received: shape {values.shape} for "
                f"{len(ranks.counts)} queries. Use `ranks.sum(values)` for "
                "the sum over the relevant images of each query."
            )
        return values.astype(np.float64)

    def of_whole(self, *given: Any) -> float:
        """Its value for clusters or embeddings."""
        return float(self.entry.value(*given, *self.arguments))


def metric(name: str) -> Metric | None:
    """The metric of a name such as "map@r" or "recall@10", if it is one."""
    if name in METRICS and not name.endswith("@k"):
        return Metric(name, METRICS[name])
    at_k = re.fullmatch(r"(.+@)([1-9]\d*)", name)
    if at_k and f"{at_k[1]}k" in METRICS:
        return Metric(name, METRICS[f"{at_k[1]}k"], (int(at_k[2]),))
    return None


def expanded(
    metrics: str | Sequence[str], ks: Sequence[int], owner: str
) -> list[Metric]:
    """Different metrics by their names, in order; `@k` stands for all `ks`.

    Raises:
        ValueError: If a name is unknown, or k is needed and not positive.
    """
    found: dict[str, Metric] = {}
    for name in [metrics] if isinstance(metrics, str) else metrics:
        names = [name]
        if name in METRICS and name.endswith("@k"):
            if not len(ks) or any(k != int(k) or k < 1 for k in ks):
                raise ValueError(
                    f"`ks` of {owner} must be positive integers. Received: "
                    f"ks={ks!r}. Use for example ks=(1, 2, 4, 8)."
                )
            names = [f"{name[:-1]}{int(k)}" for k in ks]
        for one in names:
            known = metric(one)
            if known is None:
                raise ValueError(_unknown(name, owner))
            found[one] = known
    if not found:
        raise ValueError(
            f"`metrics` of {owner} must name at least one metric. Received: "
            f"metrics={metrics!r}. Use some of {', '.join(METRICS)}."
        )
    return list(found.values())


def _unknown(name: object, owner: str) -> str:
    candidates = [*METRICS, *(x[:-1] + "1" for x in METRICS if x[-2:] == "@k")]
    hint = did_you_mean(str(name).lower(), candidates)
    return (
        f"`metrics` of {owner} must be known metrics. Received: {name!r}."
        f"{hint} Known: {', '.join(METRICS)}, where k is a positive integer, "
        "or the letter for each of `ks`. Register your own with "
        "`evaluation.METRICS.register`."
    )
