"""Existing embeddings of the training set, for callbacks to start from."""

import os
from typing import TypeAlias

import numpy as np

from keras_dml.data import Examples
from keras_dml.embedding import EmbeddingShards
from keras_dml.embedding.source import Source

Initial: TypeAlias = EmbeddingShards | str | os.PathLike[str]
"""Shards or their folder."""


def initial_embeddings(
    given: Initial, examples: Examples, owner: str
) -> EmbeddingShards:
    """Shards of exactly these examples, in the same order.

    Args:
        given: The value of the argument `initial` of `owner`.
        examples: The training set.
        owner: The name of the owner of the argument in messages.

    Raises:
        ValueError: If their number, ids or labels differ from the examples'.
    """
    shards = given
    if not isinstance(shards, EmbeddingShards):
        shards = EmbeddingShards(shards)
    difference = _difference(shards, examples)
    if difference:
        raise ValueError(
            f"`initial` of {owner} must be embeddings of all of its examples, "
            f"in the same order. Received: {shards!r}, {difference}. Use "
            "`keras-dml embed` on the same examples."
        )
    return shards


def _difference(shards: EmbeddingShards, examples: Examples) -> str:
    """How they differ; empty if they do not."""
    if len(shards) != len(examples):
        return f"of {len(shards)} examples instead of {len(examples)}"
    ids = Source(examples, None).ids
    for row, (found, own) in enumerate(zip(shards.ids, ids, strict=True)):
        if found != own:
            return f"whose row {row} is {found!r} instead of {own!r}"
    theirs, ours = shards.labels, examples.labels
    if theirs is not None and not np.array_equal(theirs, np.asarray(ours)):
        return "whose labels are different"
    return ""
