"""Samplers: which images go into which batch."""

from keras_dml.data.samplers.base import Sampler
from keras_dml.data.samplers.class_balanced import ClassBalanced
from keras_dml.data.samplers.cluster import ClusterSampler, usable_clusters
from keras_dml.data.samplers.pairs import PairSampler

__all__ = [
    "ClassBalanced",
    "ClusterSampler",
    "PairSampler",
    "Sampler",
    "usable_clusters",
]
