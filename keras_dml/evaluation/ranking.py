"""Retrieval metrics, each a function of the ranks of the relevant images."""

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from keras_dml.evaluation.ranks.ranked_positives import BEYOND, Limits
from keras_dml.evaluation.ranks.search import Ranks
from keras_dml.utils.types import FloatArray, Rows

UNLIMITED = BEYOND - 1


@dataclass(frozen=True)
class RankingMetric:
    """A metric that has a value for every query.

    Attributes:
        name: As in the results.
        limits: Ranks that it needs.
        per_query: From ranks to a value for each query, (Q,) float64.
    """

    name: str
    limits: Limits
    per_query: Callable[[Ranks], FloatArray]


def recall(k: int) -> RankingMetric:
    """Recall@k: share of queries with a relevant image among the k nearest.

    As in Jégou et al. (2011) and all of deep metric learning; in
    information retrieval this is called the hit rate.
    """
    return RankingMetric(
        f"recall@{k}",
        Limits(first=k),
        lambda ranks: (_first(ranks) <= k).astype(np.float64),
    )


def precision_at_1() -> RankingMetric:
    """Precision@1, the same number as recall@1."""
    return RankingMetric("precision@1", Limits(first=1), recall(1).per_query)


def r_precision() -> RankingMetric:
    """Hits among the R nearest, divided by R."""

    def per_query(ranks: Ranks) -> FloatArray:
        depth = np.repeat(ranks.counts, ranks.counts)
        return _sums(ranks, ranks.ranks <= depth) / ranks.counts

    return RankingMetric("r_precision", Limits(extra=0), per_query)


def map_at_r() -> RankingMetric:
    """MAP@R: (1/R) Σ_{i≤R} P(i)·rel(i).

    Reference:
        Musgrave et al., "A Metric Learning Reality Check", ECCV 2020,
        equation 5.
    """
    return RankingMetric(
        "map@r",
        Limits(extra=0),
        lambda ranks: _average_precision(ranks, ranks.counts, ranks.counts),
    )


def map_at_r_with_self() -> RankingMetric:
    """What the code of DiVA and DGML prints as "mAP".

    R is the size n = R + 1 of the class, the query included, though the
    query is not searched for: perfect retrieval scores (n − 1)/n.

    Deviations:
        Queries without a relevant image are left out; that code counts
        them as 0.

    Reference:
        Milbich et al., "DiVA: Diverse Visual Feature Aggregation for Deep
        Metric Learning", ECCV 2020, released code.
    """

    def per_query(ranks: Ranks) -> FloatArray:
        size = ranks.counts + 1
        return _average_precision(ranks, size, size)

    return RankingMetric("map@r_with_self", Limits(extra=1), per_query)


def mean_average_precision() -> RankingMetric:
    """MAP over the whole ranking: (1/R) Σ_i P(i)·rel(i)."""
    return RankingMetric(
        "map",
        Limits(every=UNLIMITED),
        lambda ranks: _average_precision(
            ranks, np.full_like(ranks.counts, UNLIMITED), ranks.counts
        ),
    )


def map_at_k(k: int) -> RankingMetric:
    """MAP@k: Σ_{i≤k} P(i)·rel(i) / min(k, R)."""
    return RankingMetric(
        f"map@{k}",
        Limits(every=k),
        lambda ranks: _average_precision(
            ranks, np.full_like(ranks.counts, k), np.minimum(ranks.counts, k)
        ),
    )


def mrr() -> RankingMetric:
    """Mean reciprocal rank of the nearest relevant image."""
    return RankingMetric(
        "mrr", Limits(first=UNLIMITED), lambda ranks: 1.0 / _first(ranks)
    )


def minp() -> RankingMetric:
    """Mean inverse negative penalty: R / rank of the farthest relevant image.

    Reference:
        Ye et al., "Deep Learning for Person Re-identification: A Survey
        and Outlook", TPAMI 2021, equation 9.
    """

    def per_query(ranks: Ranks) -> FloatArray:
        last = ranks.ranks[ranks.starts + ranks.counts - 1]
        values: FloatArray = ranks.counts / last
        return values

    return RankingMetric("minp", Limits(every=UNLIMITED), per_query)


METRICS: dict[str, Callable[[], RankingMetric]] = {
    "precision@1": precision_at_1,
    "r_precision": r_precision,
    "map@r": map_at_r,
    "map@r_with_self": map_at_r_with_self,
    "map": mean_average_precision,
    "mrr": mrr,
    "minp": minp,
}

METRICS_AT_K: dict[str, Callable[[int], RankingMetric]] = {
    "recall": recall,
    "map": map_at_k,
}


def ranking_metric(name: str) -> RankingMetric | None:
    """The metric of a name such as "map@r" or "recall@10", if it is one."""
    if name in METRICS:
        return METRICS[name]()
    at_k = re.fullmatch(r"([a-z]+)@([1-9]\d*)", name)
    if at_k and at_k[1] in METRICS_AT_K:
        return METRICS_AT_K[at_k[1]](int(at_k[2]))
    return None


def _first(ranks: Ranks) -> Rows:
    return ranks.ranks[ranks.starts]


def _sums(ranks: Ranks, values: np.ndarray) -> FloatArray:
    # No query is empty, which `reduceat` would get wrong.
    sums: FloatArray = np.add.reduceat(values.astype(np.float64), ranks.starts)
    return sums


def _average_precision(ranks: Ranks, depth: Rows, divisor: Rows) -> FloatArray:
    """Σ_{i≤depth} P(i)·rel(i) / divisor for each query."""
    starts = np.repeat(ranks.starts, ranks.counts)
    hits = np.arange(1, len(starts) + 1) - starts
    within_depth = ranks.ranks <= np.repeat(depth, ranks.counts)
    return _sums(ranks, hits / ranks.ranks * within_depth) / divisor
