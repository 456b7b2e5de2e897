"""Keras callbacks: re-clustering, what is measured while training."""

from keras_dml.callbacks.checkpoint import Checkpoint
from keras_dml.callbacks.hard_classes import HardClasses
from keras_dml.callbacks.logs import LearningRateMonitor, RetrievalEvaluation
from keras_dml.callbacks.recluster import Recluster
from keras_dml.callbacks.tensorboard import EmbeddingTensorBoard

__all__ = [
    "Checkpoint",
    "EmbeddingTensorBoard",
    "HardClasses",
    "LearningRateMonitor",
    "Recluster",
    "RetrievalEvaluation",
]
