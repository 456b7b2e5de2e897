"""Images: where they come from, and how they reach a model in batches."""

from keras_dml.data._check import Findings, check
from keras_dml.data._glyphs import glyphs
from keras_dml.data._pipeline import eval_batches, pipeline
from keras_dml.data._preview import preview
from keras_dml.data._table import table
from keras_dml.data.archives import cars196, cub200, inshop, sop, vehicleid
from keras_dml.data.cache.folder import cache_folder
from keras_dml.data.folder import image_folder, image_folder_splits
from keras_dml.data.imageset import ImageSet, concatenate
from keras_dml.data.samplers import (
    ClassBalanced,
    ClusterSampler,
    PairSampler,
    Sampler,
    usable_clusters,
)
from keras_dml.data.splits import DataSplits, holdout_classes, split_classes
from keras_dml.data.tfds import tfds_splits
from keras_dml.data.view import View

__all__ = [
    "ClassBalanced",
    "ClusterSampler",
    "DataSplits",
    "Findings",
    "ImageSet",
    "PairSampler",
    "Sampler",
    "View",
    "cache_folder",
    "cars196",
    "check",
    "concatenate",
    "cub200",
    "eval_batches",
    "glyphs",
    "holdout_classes",
    "image_folder",
    "image_folder_splits",
    "inshop",
    "pipeline",
    "preview",
    "sop",
    "split_classes",
    "table",
    "tfds_splits",
    "usable_clusters",
    "vehicleid",
]
