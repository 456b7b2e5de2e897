"""Embeddings of the training set that are there before a model trains."""

import os
from typing import TypeAlias

import numpy as np

from keras_dml.data import Examples
from keras_dml.embedding import EmbeddingShards
from keras_dml.embedding.source import Source

Initial: TypeAlias = EmbeddingShards | str | os.PathLike[str]
"""Shards, or their folder."""


def initial_embeddings(
    given: Initial, examples: Examples, owner: str
) -> EmbeddingShards:
    """Shards of exactly these examples, in their order.

    Args:
        given: What the argument `initial` of `owner` was given.
        examples: The training set.
        owner: What messages call the one that has the argument.

    Raises:
        ValueError: If they are of others: their number, ids or labels differ.
    """
    shards = given
    if not isinstance(shards, EmbeddingShards):
        shards = EmbeddingShards(shards)
    difference = _difference(shards, examples)
    if difference:
        raise ValueError(
            f"`initial` of {owner} must be embeddings of its examples, all of "
            f"them in their order. Received: {shards!r}, {difference}. Use "
            "`keras-dml embed` on the same examples."
        )
    return shards


def _difference(shards: EmbeddingShards, examples: Examples) -> str:
    """In what they differ; empty if they do not."""
    if len(shards) != len(examples):
        return f"of {len(shards)} examples, and not {len(examples)}"
    ids = Source(examples, None).ids
    for row, (found, own) in enumerate(zip(shards.ids, ids, strict=True)):
        if found != own:
            return f"whose row {row} is {found!r}, and not {own!r}"
    theirs, ours = shards.labels, examples.labels
    if theirs is not None and not np.array_equal(theirs, np.asarray(ours)):
        return "whose labels are others"
    return ""
