"""Retrieval metrics, each a function of the ranks of the relevant images."""

import numpy as np

from keras_dml.evaluation.metrics import METRICS
from keras_dml.evaluation.ranks.positives import UNLIMITED, Limits, Ranks
from keras_dml.utils.registry import Paper
from keras_dml.utils.types import FloatArray, Rows

INFORMATION_RETRIEVAL = Paper(
    "Introduction to Information Retrieval",
    "Manning et al.",
    "Cambridge University Press 2008",
    "https://nlp.stanford.edu/IR-book/",
)


@METRICS.register(
    "recall@k",
    "share of queries with an example of their class among the k nearest",
    of_one="share of queries whose nearest neighbor is of the same class",
    limits=lambda k: Limits(first=k),
)
def recall(ranks: Ranks, k: int) -> FloatArray:
    """1 if a relevant image is among the k nearest, otherwise 0.

    This is the definition used throughout deep metric learning; in information
    retrieval it is called the hit rate or success@k, and recall is the share of
    all R relevant images among the k nearest. Benchmarks of approximate search
    mean the share of the true k nearest that an index finds, without classes.

    Also known as:
        - TF Similarity: `RecallAtK`.
        - scikit-learn: `top_k_accuracy_score`, if scores are those of classes.
        - Elsewhere: R@k, hit rate@k, hits@k, success@k, rank-k, CMC@k, top-k,
          top-k accuracy.

    Reference:
        Song et al., "Deep Metric Learning via Lifted Structured Feature
        Embedding", CVPR 2016, https://arxiv.org/abs/1511.06452
    """
    return (ranks.first <= k).astype(np.float64)


@METRICS.register("precision@1", "the same as recall@1", limits=Limits(first=1))
def precision_at_1(ranks: Ranks) -> FloatArray:
    """1 if the nearest image is relevant, otherwise 0.

    Also known as:
        - pytorch-metric-learning: `precision_at_1`.
    """
    return recall(ranks, 1)


@METRICS.register(
    "precision@k",
    "share of hits among the k nearest",
    INFORMATION_RETRIEVAL,
    limits=lambda k: Limits(every=k),
)
def precision(ranks: Ranks, k: int) -> FloatArray:
    """Hits among the k nearest, divided by k (section 8.4).

    A query with R < k relevant images scores at most R / k. The metric of this
    name in Open Metric Learning divides by min(k, R).

    Also known as:
        - TF Similarity: `PrecisionAtK`.
    """
    return ranks.sum(ranks.ranks <= k) / k


@METRICS.register(
    "ndcg@k",
    "discounted gain of the k nearest, divided by the largest possible",
    limits=lambda k: Limits(every=k),
)
def ndcg(ranks: Ranks, k: int) -> FloatArray:
    """nDCG@k: Σ_{i≤k} g(i) / log2(i + 1), divided by that of the best ranking.

    The gain g is 1 for relevant images and 0 for the rest, unless the examples
    have several labels and `relevance` is graded. Papers on hashing often use
    gains of 2^g − 1, which are the same for g of 0 or 1.

    Also known as:
        - TF Similarity: `BNDCG`.
        - scikit-learn: `ndcg_score`, which averages over the orders of tied
          scores; here, the order of the gallery decides.

    Deviations:
        The first image is discounted like the others, by log2(2) = 1; with a
        logarithm to base b, the paper discounts from rank b onwards.

    Reference:
        Järvelin and Kekäläinen, "Cumulated Gain-Based Evaluation of IR
        Techniques", TOIS 2002, https://doi.org/10.1145/582415.582418
    """
    gain = _discounted_gain(ranks, ranks.gains, ranks.ranks, k)
    # Within each query, the largest gains come first.
    owners = np.repeat(np.arange(len(ranks.counts)), ranks.counts)
    best = ranks.gains[np.lexsort((-ranks.gains, owners))]
    positions = 1 + np.arange(len(best)) - np.repeat(ranks.starts, ranks.counts)
    return gain / _discounted_gain(ranks, best, positions, k)


@METRICS.register(
    "r_precision",
    "share of hits among the R nearest, where R is how many others are of the "
    "query's class",
    INFORMATION_RETRIEVAL,
    limits=Limits(extra=0),
)
def r_precision(ranks: Ranks) -> FloatArray:
    """Hits among the R nearest, divided by R (section 8.4).

    Also known as:
        - pytorch-metric-learning: `r_precision`, unless its `k` is below the
          largest R, which it warns of.
    """
    depth = np.repeat(ranks.counts, ranks.counts)
    return ranks.sum(ranks.ranks <= depth) / ranks.counts


@METRICS.register(
    "map@r",
    "precision at each hit among the R nearest, added up and divided by R, "
    "where R is how many others are of the query's class",
    limits=Limits(extra=0),
)
def map_at_r(ranks: Ranks) -> FloatArray:
    """MAP@R, (1/R) Σ_{i≤R} P(i)·rel(i).

    P(i) is the precision of the first i, and rel(i) is 1 for a hit. The R
    nearest must be right and well ordered, so it tells models apart when
    recall@1 is close to 1.

    Also known as:
        - pytorch-metric-learning: `mean_average_precision_at_r`, unless its `k`
          is below the largest R, which it warns of.

    Reference:
        Musgrave et al., "A Metric Learning Reality Check", ECCV 2020,
        equation 5, https://arxiv.org/abs/2003.08505
    """
    return _average_precision(ranks, ranks.counts, ranks.counts)


@METRICS.register(
    "map@r_with_self",
    "as map@r, with R one larger: a perfect model scores R/(R + 1)",
    limits=Limits(extra=1),
)
def map_at_r_with_self(ranks: Ranks) -> FloatArray:
    """The metric that the released code of DiVA and DGML prints as "mAP".

    R is the size n = R + 1 of the class, including the query, although the
    query is not searched for: perfect retrieval scores (n − 1)/n.

    Deviations:
        Queries without a relevant image are excluded; that code counts them as
        0.

    Reference:
        Milbich et al., "DiVA: Diverse Visual Feature Aggregation for Deep
        Metric Learning", ECCV 2020, https://arxiv.org/abs/2004.13458
    """
    size = ranks.counts + 1
    return _average_precision(ranks, size, size)


@METRICS.register(
    "map", "average precision over the whole ranking", INFORMATION_RETRIEVAL
)
def average_precision(ranks: Ranks) -> FloatArray:
    """Average precision over the whole ranking, (1/R) Σ_i P(i)·rel(i).

    It is never smaller than MAP@R. `mAP_lim` and `mAP_1000` in the code of Roth
    et al. (ICML 2020) stop after 1,023 and 1,000 neighbors, and divide by the
    size of the class, including the query.

    Also known as:
        - pytorch-metric-learning: `mean_average_precision` with `k=None`.
        - scikit-learn: `average_precision_score` of one query, without ties,
          and `label_ranking_average_precision_score`.
    """
    depth = np.full_like(ranks.counts, UNLIMITED)
    return _average_precision(ranks, depth, ranks.counts)


@METRICS.register(
    "map@k",
    "average precision of the k nearest, divided by k or by the number of "
    "others of the class, whichever is smaller",
    limits=lambda k: Limits(every=k),
)
def map_at_k(ranks: Ranks, k: int) -> FloatArray:
    """MAP@k, Σ_{i≤k} P(i)·rel(i) / min(k, R), so a perfect model scores 1.

    With a number as `k`, `mean_average_precision` of pytorch-metric-learning
    and `MapAtK` of TensorFlow Similarity divide by R, even where k is too small
    for R hits. Others divide by k, or by the number of hits found.

    Also known as:
        - TF Similarity: `MapAtK`.
        - Elsewhere: mean average precision@k.
    """
    depth = np.full_like(ranks.counts, k)
    return _average_precision(ranks, depth, np.minimum(ranks.counts, k))


@METRICS.register(
    "mrr", "1 / rank of the first hit", limits=Limits(first=UNLIMITED)
)
def mrr(ranks: Ranks) -> FloatArray:
    """Reciprocal rank of the nearest relevant image, over the whole ranking.

    Also known as:
        - pytorch-metric-learning: `mean_reciprocal_rank` with `k=None`; with
          another `k`, queries without a hit among that many count as 0.

    Reference:
        Voorhees, "The TREC-8 Question Answering Track Report", TREC 1999,
        https://trec.nist.gov/pubs/trec8/papers/qa_report.pdf
    """
    return 1.0 / ranks.first


@METRICS.register("minp", "number of hits, divided by the rank of the last one")
def minp(ranks: Ranks) -> FloatArray:
    """Inverse negative penalty, R / rank of the farthest hit.

    It says how far one has to look to find everything.

    Reference:
        Ye et al., "Deep Learning for Person Re-identification: A Survey and
        Outlook", TPAMI 2021, equation 9, https://arxiv.org/abs/2001.04193
    """
    last = ranks.ranks[ranks.starts + ranks.counts - 1]
    values: FloatArray = ranks.counts / last
    return values


def _average_precision(ranks: Ranks, depth: Rows, divisor: Rows) -> FloatArray:
    """Σ_{i≤depth} P(i)·rel(i) / divisor for each query."""
    starts = np.repeat(ranks.starts, ranks.counts)
    hits = np.arange(1, len(starts) + 1) - starts
    within_depth = ranks.ranks <= np.repeat(depth, ranks.counts)
    return ranks.sum(hits / ranks.ranks * within_depth) / divisor


def _discounted_gain(
    ranks: Ranks, gains: FloatArray, rank: Rows, k: int
) -> FloatArray:
    """Σ gain / log2(rank + 1) over the first k ranks of each query."""
    return ranks.sum(np.where(rank <= k, gains, 0) / np.log2(1.0 + rank))
