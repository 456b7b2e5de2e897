"""Dividing a training set among learners, and keeping it divided alike."""

import numpy as np

from keras_dml.utils.types import FloatArray, Rows


def match_learners(new: Rows, old: Rows, num_learners: int) -> Rows:
    """Relabels clusters so that each learner keeps as much as it can.

    New clusters are matched one to one to old ones by maximum total
    overlap (Hungarian method) and take the matched old number.

    Args:
        new: New cluster of every image, (N,), 0 to K − 1.
        old: Old cluster of every image, (N,), 0 to K − 1.
        num_learners: Number of clusters, K.

    Returns:
        The new clusters under the numbers of the old ones, (N,).
    """
    from scipy.optimize import linear_sum_assignment

    overlap = np.zeros((num_learners, num_learners), np.int64)
    np.add.at(overlap, (new, old), 1)
    rows, columns = linear_sum_assignment(overlap, maximize=True)
    old_number_of = np.empty(num_learners, np.int64)
    old_number_of[rows] = columns
    return old_number_of[new]


def merge_unusable(
    assignments: Rows, centroids: FloatArray, usable: np.ndarray
) -> Rows:
    """Gives the images of unusable clusters to the nearest usable one.

    Args:
        assignments: Cluster of every image, (N,).
        centroids: (K, D).
        usable: Which clusters can be trained on, (K,) booleans.

    Returns:
        Assignments to usable clusters only, (N,). If no cluster is
        usable, all images go to cluster 0.
    """
    if not usable.any():
        return np.zeros_like(assignments)
    distances = np.square(centroids[:, None] - centroids[None, usable]).sum(-1)
    nearest = np.flatnonzero(usable)[distances.argmin(axis=1)]
    target = np.where(usable, np.arange(len(usable)), nearest)
    return target[assignments]


def random_partition(count: int, num_learners: int, seed: int) -> Rows:
    """Every image to a learner at random, all learners alike in size."""
    balanced = np.arange(count, dtype=np.int64) % num_learners
    return np.random.default_rng(seed).permutation(balanced)


def label_partition(labels: Rows, num_learners: int) -> Rows:
    """Whole classes to learners, in the order of the labels.

    Neighbouring labels go together, which groups by meaning where labels
    are sorted by meaning. Learners get about as many images each.
    """
    _, inverse, counts = np.unique(
        labels, return_inverse=True, return_counts=True
    )
    middle = np.cumsum(counts) - counts / 2
    learner_of_class = (middle * num_learners / len(labels)).astype(np.int64)
    return learner_of_class[inverse]


def centroids_of(
    points: FloatArray, assignments: Rows, num_learners: int
) -> FloatArray:
    """Mean point of every cluster, (K, D); zeros for an empty one."""
    sums = np.zeros((num_learners, points.shape[1]), np.float64)
    np.add.at(sums, assignments, points)
    counts = np.bincount(assignments, minlength=num_learners)
    return sums / np.maximum(counts, 1)[:, None]
