"""Deep metric learning for Keras 3 on TensorFlow."""

import os
import sys

# TensorFlow reads this once, when it is imported. The command has messages
# of its own; a program that imports the package decides for itself.
if os.path.basename(sys.argv[0]) in ("keras-dml", "keras-dml.exe"):
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from keras_dml import (
    backbones,
    callbacks,
    data,
    evaluation,
    export,
    layers,
    losses,
    methods,
    optimizers,
    search,
    visualization,
)
from keras_dml.model import Head, MetricModel, Objective

__all__ = [
    "Head",
    "MetricModel",
    "Objective",
    "backbones",
    "callbacks",
    "data",
    "evaluation",
    "export",
    "layers",
    "losses",
    "methods",
    "optimizers",
    "search",
    "visualization",
]
