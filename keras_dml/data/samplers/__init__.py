"""Samplers: which images go into which batch."""

from keras_dml.data.samplers.base import Sampler
from keras_dml.data.samplers.class_balanced import (
    ClassBalanced,
    SurrogateSampler,
)
from keras_dml.data.samplers.cluster import ClusterSampler, usable_clusters
from keras_dml.data.samplers.hard_classes import HardClassBalanced
from keras_dml.data.samplers.multi_label import MultiLabelBalanced
from keras_dml.data.samplers.pairs import PairSampler
from keras_dml.data.samplers.relation import RelationSampler

__all__ = [
    "ClassBalanced",
    "ClusterSampler",
    "MultiLabelBalanced",
    "HardClassBalanced",
    "PairSampler",
    "RelationSampler",
    "Sampler",
    "SurrogateSampler",
    "usable_clusters",
]
