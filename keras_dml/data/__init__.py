"""Images: where they come from, and how they reach a model in batches."""

from keras_dml.data.cache import cache_folder
from keras_dml.data.folder import image_folder, image_folder_splits
from keras_dml.data.glyphs import glyphs
from keras_dml.data.imageset import ImageSet, concatenate
from keras_dml.data.pipeline import pipeline, test_view
from keras_dml.data.preview import preview
from keras_dml.data.samplers import (
    ClassBalanced,
    ClusterSampler,
    PairSampler,
    Sampler,
    usable_clusters,
)
from keras_dml.data.splits import DataSplits, holdout_classes, split_classes
from keras_dml.data.view import View

__all__ = [
    "ClassBalanced",
    "ClusterSampler",
    "DataSplits",
    "ImageSet",
    "PairSampler",
    "Sampler",
    "View",
    "cache_folder",
    "concatenate",
    "glyphs",
    "holdout_classes",
    "image_folder",
    "image_folder_splits",
    "pipeline",
    "preview",
    "split_classes",
    "test_view",
    "usable_clusters",
]
