"""Re-ranking: better rankings from the neighbors of neighbors."""

from keras_dml.evaluation.reranking.base import (
    RERANKING,
    Reranking,
    rerank,
)
from keras_dml.evaluation.reranking.expansion import (
    AlphaQueryExpansion,
    DatabaseAugmentation,
)
from keras_dml.evaluation.reranking.reciprocal import KReciprocal

__all__ = [
    "RERANKING",
    "AlphaQueryExpansion",
    "DatabaseAugmentation",
    "KReciprocal",
    "Reranking",
    "rerank",
]
