"""Examples: their sources, and how they reach a model in batches.

Open first: `examples`, the interface of all kinds of examples (`ImageSet`,
`ArraySet` and so on). A sampler plans an epoch as rows of batches
(`samplers.base`), and `pipeline`, in `_pipeline`, makes a `tf.data.Dataset` of
plan and examples; `batches` has its steps for each kind. `splits` holds
data sets split by class, `archives` the benchmarks.

Imports: `utils`.

A data set that a module here declares does not need to be listed here: its
loader is available as `keras_dml.data.<name>` automatically.

Also known as:
    - pytorch-metric-learning: `samplers`.
    - TF Similarity: `samplers`.
"""

from typing import TYPE_CHECKING

from keras_dml.data._check import Findings, check
from keras_dml.data._glyphs import glyphs
from keras_dml.data._pipeline import eval_batches, pipeline
from keras_dml.data._table import table
from keras_dml.data.archives import cars196, cub200, inshop, sop, vehicleid
from keras_dml.data.arrayset import ArraySet
from keras_dml.data.caching import cache_folder
from keras_dml.data.examples import Examples, concatenate
from keras_dml.data.feature_set import FeatureSet
from keras_dml.data.folder import image_folder, image_folder_splits
from keras_dml.data.host import grain_pipeline
from keras_dml.data.imageset import ImageSet
from keras_dml.data.pictures import preview
from keras_dml.data.reading import from_dataset, from_source
from keras_dml.data.relations import PairSet, TripletSet, read_trials
from keras_dml.data.samplers import (
    ClassBalanced,
    ClusterSampler,
    HardClassBalanced,
    MultiLabelBalanced,
    PairSampler,
    RelationSampler,
    Sampler,
    SurrogateSampler,
    usable_clusters,
)
from keras_dml.data.splits import (
    DATASETS,
    DataSplits,
    dataset,
    holdout_classes,
    split_classes,
)
from keras_dml.data.texts import byte_tokens, symbol_names
from keras_dml.data.tfds import tfds_images
from keras_dml.data.view import View
from keras_dml.utils.registry import attributes, import_modules

import_modules(__name__)

if not TYPE_CHECKING:
    __getattr__ = attributes(__name__, DATASETS)

__all__ = [
    "DATASETS",
    "ArraySet",
    "ClassBalanced",
    "ClusterSampler",
    "DataSplits",
    "Examples",
    "FeatureSet",
    "Findings",
    "ImageSet",
    "MultiLabelBalanced",
    "HardClassBalanced",
    "PairSampler",
    "PairSet",
    "RelationSampler",
    "Sampler",
    "SurrogateSampler",
    "TripletSet",
    "View",
    "byte_tokens",
    "cache_folder",
    "cars196",
    "check",
    "concatenate",
    "cub200",
    "dataset",
    "eval_batches",
    "from_dataset",
    "from_source",
    "glyphs",
    "grain_pipeline",
    "holdout_classes",
    "image_folder",
    "image_folder_splits",
    "inshop",
    "pipeline",
    "preview",
    "read_trials",
    "sop",
    "split_classes",
    "symbol_names",
    "table",
    "tfds_images",
    "usable_clusters",
    "vehicleid",
]
