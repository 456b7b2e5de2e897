"""k-nearest-neighbor classification: the class that most neighbors have."""

from dataclasses import dataclass

import numpy as np

from keras_dml.evaluation.label_sets import ids_of
from keras_dml.evaluation.metrics import METRICS
from keras_dml.evaluation.ranks.relevance import Images, Relevance
from keras_dml.evaluation.ranks.scores import Scores, nearest_allowed
from keras_dml.evaluation.ranks.search import Distances
from keras_dml.utils.types import FloatArray, Rows
from keras_dml.utils.vectors import blocks

_BYTES_OF_PAIR = 32
"""Bytes per pair while the nearest of a block of queries are chosen."""


@dataclass(frozen=True)
class Neighbors:
    """Classes of the nearest images of some queries.

    Attributes:
        labels: Classes by number, from 0, the nearest first, (Q, k); −1 where
            there are fewer than k others.
        truth: Class of each query, (Q,).
    """

    labels: Rows
    truth: Rows

    def select(self, queries: Rows) -> "Neighbors":
        return Neighbors(self.labels[queries], self.truth[queries])


def neighbors_of(
    queries: Images,
    gallery: Images,
    level: str,
    relevance: Relevance,
    distance: str | Distances,
    k: int,
    memory: int,
) -> Neighbors:
    """Finds classes of the k nearest images that each query may find.

    `distance` is a name, or returns the distances of consecutive queries. At
    least one query is compared at a time, whatever the memory.
    """
    targets = [ids_of(x.targets[level]) for x in (queries, gallery)]
    classes = np.unique(np.concatenate(targets), return_inverse=True)[1]
    truth, gallery_classes = np.split(classes, [len(queries)])
    labels = np.empty((len(queries), min(k, len(gallery))), np.int64)
    if isinstance(distance, str):
        scores = Scores(queries.embeddings, gallery.embeddings, distance)
        rhs = scores.rhs(slice(0, len(gallery)))
    size = max(1, memory // (_BYTES_OF_PAIR * len(gallery)))
    for rows in blocks(len(queries), size):
        ignored = relevance.of(rows)[1]
        pairs = ignored.owners, ignored.items
        if isinstance(distance, str):
            best, images = nearest_allowed(scores, rows, rhs, pairs, k)
        else:
            all_scores = -distance(rows)
            all_scores[pairs] = -np.inf
            images = np.argsort(-all_scores, axis=1, kind="stable")[:, :k]
            best = np.take_along_axis(all_scores, images, axis=1)
        labels[rows] = np.where(np.isneginf(best), -1, gallery_classes[images])
    return Neighbors(labels, truth)


@METRICS.register(
    "knn_accuracy@k",
    "share of queries whose class is that of most of the k nearest; of classes "
    "with equally many, that of the nearest",
    of="neighbors",
    of_one="share of queries whose nearest neighbor is of the same class",
)
def knn_accuracy(neighbors: Neighbors, k: int) -> FloatArray:
    """1 if most of the k nearest are of the query's class, otherwise 0.

    Every neighbor has one vote. Among classes with equally many votes, the one
    with the nearest image wins.

    Also known as:
        - scikit-learn: `KNeighborsClassifier(k)`, for which the smallest label
          wins.
        - Self-supervised learning (DINO, MoCo): k-NN accuracy, where votes are
          often weighted by similarity.
    """
    labels = neighbors.labels[:, :k]
    is_right = np.empty(len(labels))
    for rows in blocks(len(labels), max(1, 2**24 // labels.shape[1] ** 2)):
        part = labels[rows]
        votes = (part[:, :, None] == part[:, None]).sum(axis=2)
        votes[part < 0] = 0
        # Of several classes, `argmax` takes that of the nearest.
        winners = part[np.arange(len(part)), votes.argmax(axis=1)]
        is_right[rows] = winners == neighbors.truth[rows]
    return is_right
