"""False matches: how often other classes score as high as a hit."""

import numpy as np

from keras_dml.evaluation.pairs import negative_pairs
from keras_dml.search import Index
from keras_dml.search.metrics import Metric
from keras_dml.utils.types import FloatArray
from keras_dml.utils.vectors import blocks

MOST_PAIRS = 100_000


def scores_of_negatives(
    index: Index | None, most: int = MOST_PAIRS
) -> FloatArray | None:
    """Scores of pairs of rows of different classes, ascending.

    Classes are the gallery's own, see `Index.labels`. Of more pairs, `most`
    are drawn at random, with seed 0.

    Returns:
        None without such a pair, if a row has no class or several, and if the
        gallery does not keep its embeddings: compressed, or in a database.
    """
    if index is None or index.store is not None:
        return None
    try:
        labels, vectors = np.asarray(index.labels), index.embeddings
    except ValueError:
        return None
    if labels.ndim != 1 or labels.dtype == object:
        return None
    first, second = negative_pairs(labels, most)
    pairs = Metric(index.metric).pairs
    found = [
        pairs(vectors[first[some]], vectors[second[some]])
        for some in blocks(len(first), 10_000)
    ]
    return np.sort(np.concatenate(found)) if found else None


def rate_of_false_matches(negatives: FloatArray, score: float) -> float:
    """The share of pairs of different classes that score at least so high."""
    above = len(negatives) - np.searchsorted(negatives, score)
    return float(above / len(negatives))
