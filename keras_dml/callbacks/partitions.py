"""Partitions of a training set that are made once, without embeddings."""

import numpy as np

from keras_dml.utils.types import Rows


def random_partition(count: int, num_learners: int, seed: int) -> Rows:
    """Assigns images to learners at random, as evenly as possible."""
    balanced = np.arange(count, dtype=np.int64) % num_learners
    return np.random.default_rng(seed).permutation(balanced)


def label_partition(labels: Rows, num_learners: int) -> Rows:
    """Assigns whole classes to learners, in the order of the labels.

    Neighboring labels stay together, which groups classes by meaning if labels
    are sorted by meaning. All learners get about the same number of images.
    """
    _, inverse, counts = np.unique(
        labels, return_inverse=True, return_counts=True
    )
    middle = np.cumsum(counts) - counts / 2
    learner_of_class = (middle * num_learners / len(labels)).astype(np.int64)
    return learner_of_class[inverse]


def group_partition(groups: Rows, num_learners: int) -> Rows:
    """Assigns whole groups to learners, about as many images to each.

    The largest group comes first, and each goes to the learner with the fewest
    images: with as many groups as learners, each learner gets one.

    Raises:
        ValueError: If there are fewer groups than learners.
    """
    _, inverse, counts = np.unique(
        groups, return_inverse=True, return_counts=True
    )
    if len(counts) < num_learners:
        raise ValueError(
            "`partition_column` of Recluster must have at least as many groups "
            f"as there are learners. Received: {len(counts)} groups and "
            f"{num_learners} learners. Use fewer learners."
        )
    images = np.zeros(num_learners, np.int64)
    learner_of_group = np.empty(len(counts), np.int64)
    for group in np.argsort(-counts, kind="stable"):
        learner = images.argmin()
        learner_of_group[group] = learner
        images[learner] += counts[group]
    return learner_of_group[inverse]
