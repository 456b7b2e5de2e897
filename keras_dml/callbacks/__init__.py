"""Keras callbacks: re-clustering, retrieval metrics while training."""

from keras_dml.callbacks.checkpoint import Checkpoint
from keras_dml.callbacks.recluster import Recluster
from keras_dml.callbacks.retrieval_evaluation import RetrievalEvaluation

__all__ = ["Checkpoint", "Recluster", "RetrievalEvaluation"]
