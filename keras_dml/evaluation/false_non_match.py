"""Metrics of pairs (verification), on all pairs of a protocol."""

import numpy as np

from keras_dml.evaluation.metrics import METRICS
from keras_dml.evaluation.ranks.relevance import Images, Positives, Relevance
from keras_dml.evaluation.verification.pair_counts import (
    CELLS,
    Factors,
    PairCounts,
    cells_of,
)
from keras_dml.utils.lazy_rows import changed
from keras_dml.utils.registry import Paper
from keras_dml.utils.types import FloatArray, Rows
from keras_dml.utils.vectors import blocks, unit_rows

_ISO = Paper(
    "Information technology – Biometric performance testing and reporting",
    "ISO/IEC 19795-1",
    "ISO 2021",
    "https://www.iso.org/standard/73515.html",
)

_SIDE = 1024
"""Number of queries and of gallery images that are processed together."""


@METRICS.register(
    "fnmr@fmr=x",
    "share of same-class pairs below the threshold that a share x of "
    "different-class pairs reaches",
    _ISO,
    of="pairs",
)
def fnmr_at_fmr(counts: PairCounts, x: float) -> float:
    """False non-match rate at a false match rate of at most x.

    The threshold is the lowest that at most this share of the different-class
    pairs reaches. The value is the share of the same-class pairs that do not
    reach it, which is 1 minus the true positive rate of
    `calibrate(criterion="fpr=…")`. Thresholds are 2⁻²⁰ apart. `fnmr@fmr` of
    Open Metric Learning interpolates the threshold between two distances, and
    counts pairs that equal it as missed.

    It is a rate of pairs, without a value for each query: `calibrate` and
    `evaluate_trials` give its interval, `bootstrap` does not.

    Args:
        counts: Pairs by their scores.
        x: The false match rate.

    Returns:
        The rate; NaN without same-class or without different-class pairs.
    """
    if not (counts.positives and counts.negatives):
        return float("nan")
    allowed = counts.accepted_negative <= x * counts.negatives
    position = int(np.argmax(allowed))
    accepted = int(counts.accepted_positive[position])
    return 1 - accepted / counts.positives


@METRICS.register(
    "tpr@fpr=x",
    "share of same-class pairs at the threshold that a share x of "
    "different-class pairs reaches (TAR at FAR)",
    _ISO,
    of="pairs",
)
def tpr_at_fpr(counts: PairCounts, x: float) -> float:
    """True positive rate at a false positive rate of at most x (TAR at FAR).

    It is 1 minus `fnmr_at_fmr`.
    """
    return 1 - fnmr_at_fmr(counts, x)


@METRICS.register(
    "eer",
    "error rate at the threshold where as large a share of same-class pairs "
    "is missed as of different-class pairs accepted",
    _ISO,
    of="pairs",
)
def equal_error_rate(counts: PairCounts) -> float:
    """Equal error rate: the mean of both rates where they differ least.

    Args:
        counts: Pairs by their scores.

    Returns:
        The rate; NaN without same-class or without different-class pairs.
    """
    missed, false = _error_rates(counts)
    nearest = int(np.argmin(np.abs(missed - false)))
    return float(missed[nearest] + false[nearest]) / 2


@METRICS.register(
    "min_dcf=x",
    "lowest detection cost of any threshold if a share x of pairs are "
    "same-class pairs; 1 is the cost of one answer for all pairs",
    Paper(
        "The DET curve in assessment of detection task performance",
        "Martin et al.",
        "Eurospeech 1997",
        "https://doi.org/10.21437/Eurospeech.1997-504",
    ),
    of="pairs",
)
def min_dcf(counts: PairCounts, x: float) -> float:
    """Lowest normalized detection cost, for a prior x of same-class pairs.

    The cost of accepting or refusing every pair is 1.

    The cost x·FNMR + (1 − x)·FMR, at the threshold where it is lowest, divided
    by min(x, 1 − x), as in the speaker recognition evaluations of NIST.

    Args:
        counts: Pairs by their scores.
        x: The prior.

    Returns:
        The cost; NaN without same-class or without different-class pairs.
    """
    missed, false = _error_rates(counts)
    return float((x * missed + (1 - x) * false).min()) / min(x, 1 - x)


def count_pairs_searched(
    queries: Images, gallery: Images, relevance: Relevance, distance: str
) -> PairCounts:
    """Counts the pairs of all queries with every image that they may retrieve.

    If queries and gallery are the same images, each pair is counted from both
    sides, which does not change any rate.
    """
    x, y = queries.embeddings, gallery.embeddings
    if distance == "cosine":
        x, y = changed(x, unit_rows), changed(y, unit_rows)
    factors = Factors.of(x, y, distance)
    positive, negative = np.zeros((2, CELLS + 1), np.int64)
    for rows in blocks(len(queries), _SIDE):
        left = factors.left[rows].astype(np.float64, copy=False)
        positives, ignored, _ = relevance.of(rows)
        for items in blocks(len(gallery), _SIDE):
            right = factors.right[items].astype(np.float64, copy=False)
            cells = cells_of(left @ right.T)
            same = _within(positives, items)
            is_other = queries.rows[rows, None] != gallery.rows[items]
            is_other[_within(ignored, items)] = False
            is_other[same] = False
            positive += np.bincount(cells[same], minlength=CELLS + 1)
            negative += np.bincount(cells[is_other], minlength=CELLS + 1)
    return PairCounts.of(positive, negative)


def _within(lists: Positives, items: slice) -> tuple[Rows, Rows]:
    """Queries and images of lists, within a block of the gallery."""
    there = (lists.items >= items.start) & (lists.items < items.stop)
    return lists.owners[there], lists.items[there] - items.start


def _error_rates(counts: PairCounts) -> tuple[FloatArray, FloatArray]:
    """False non-match and false match rates, or NaN, at every threshold."""
    missed = 1 - counts.accepted_positive / (counts.positives or np.nan)
    return missed, counts.accepted_negative / (counts.negatives or np.nan)
