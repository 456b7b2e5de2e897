"""Deep metric learning for Keras 3 on TensorFlow."""

from keras_dml import (
    backbones,
    callbacks,
    data,
    evaluation,
    layers,
    losses,
    methods,
    optimizers,
    search,
    visualization,
)
from keras_dml.export import export
from keras_dml.model import MetricModel

__all__ = [
    "MetricModel",
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
