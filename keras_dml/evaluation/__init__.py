"""Exact evaluation of embeddings: retrieval, clustering, confidence."""

from keras_dml.evaluation._embed import embed
from keras_dml.evaluation._evaluate import evaluate, evaluate_embeddings
from keras_dml.evaluation.clustering import kmeans
from keras_dml.evaluation.confidence import (
    Comparison,
    Difference,
    Interval,
    bootstrap,
    compare,
)
from keras_dml.evaluation.inputs import Protocol, one_per_class
from keras_dml.evaluation.results import Results

__all__ = [
    "Comparison",
    "Difference",
    "Interval",
    "Protocol",
    "Results",
    "bootstrap",
    "compare",
    "embed",
    "evaluate",
    "evaluate_embeddings",
    "kmeans",
    "one_per_class",
]
