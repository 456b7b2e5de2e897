"""Embeddings of examples, made in one process or in several."""

from keras_dml.embedding._embed import embed

__all__ = ["embed"]
