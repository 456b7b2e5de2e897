"""Evaluation of embeddings: exact retrieval, clustering, confidence.

Open first: `_evaluate`, the functions that users call; `metrics` and
`clustering` hold what they measure, `results` what they return. `ranks` finds
exact ranks in blocks, `confidence` compares results, `verification` and
`identification` set thresholds, `reranking` changes an order of neighbors.

Imports: `embedding`, `backbones`, `model` and below.

A module in this folder that registers metrics does not need to be listed here.

Also known as:
    - pytorch-metric-learning: `testers`, `AccuracyCalculator`.
    - TF Similarity: `retrieval_metrics`.
"""

from typing import TYPE_CHECKING

from keras_dml.embedding.in_memory import embed
from keras_dml.evaluation._evaluate import evaluate, evaluate_embeddings
from keras_dml.evaluation.clustering import kmeans
from keras_dml.evaluation.confidence import (
    Comparison,
    Difference,
    Interval,
    bootstrap,
    compare,
)
from keras_dml.evaluation.folds import FoldAccuracy, fold_accuracy
from keras_dml.evaluation.identification import IdentificationThreshold
from keras_dml.evaluation.inputs import Protocol, one_per_class
from keras_dml.evaluation.metrics import METRICS
from keras_dml.evaluation.ranks.positives import Limits, Ranks
from keras_dml.evaluation.reciprocal import KReciprocal
from keras_dml.evaluation.reranking import (
    RERANKING,
    AlphaQueryExpansion,
    DatabaseAugmentation,
    Reranking,
    rerank,
)
from keras_dml.evaluation.results import Results
from keras_dml.evaluation.verification import (
    Threshold,
    calibrate,
    evaluate_trials,
)
from keras_dml.utils.registry import Paper, attribute_hints, import_modules

import_modules(__name__)

if not TYPE_CHECKING:
    __getattr__ = attribute_hints(__name__)

__all__ = [
    "METRICS",
    "RERANKING",
    "AlphaQueryExpansion",
    "Comparison",
    "DatabaseAugmentation",
    "Difference",
    "FoldAccuracy",
    "IdentificationThreshold",
    "Interval",
    "KReciprocal",
    "Limits",
    "Paper",
    "Protocol",
    "Ranks",
    "Reranking",
    "Results",
    "Threshold",
    "bootstrap",
    "calibrate",
    "compare",
    "embed",
    "evaluate",
    "evaluate_embeddings",
    "evaluate_trials",
    "fold_accuracy",
    "kmeans",
    "one_per_class",
    "rerank",
]
