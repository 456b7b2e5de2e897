"""Sources: rows that an index is made of, a block at a time."""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from xxhash import xxh3_128

from keras_dml.embedding import EmbeddingShards, Shard
from keras_dml.evaluation.identification import AnyThreshold
from keras_dml.model.identity import ModelIdentity
from keras_dml.search.gallery import Block, Gallery, Values, joined_types
from keras_dml.search.keys import Key
from keras_dml.search.metrics import Metric
from keras_dml.search.rows import Columns, checked_columns
from keras_dml.search.state import State
from keras_dml.utils.arrays import Embeddings
from keras_dml.utils.types import Rows
from keras_dml.utils.vectors import blocks, row_norms

_AT_A_TIME = 2**16
"""Rows whose contents are looked at at a time."""


@dataclass(frozen=True)
class Source:
    """Rows to be written into a database.

    Attributes:
        count: How many there are, N.
        state: What the database is to say of them, but for the kind of index.
        blocks: Maps a number of rows to an iterator over blocks of at most this
            size, with ascending ids; it can be called repeatedly.
    """

    count: int
    state: State
    blocks: Callable[[int], Iterator[Block]]

    @classmethod
    def of_rows(
        cls, x: Embeddings, columns: Values, keys: list[Key] | None, by: Metric
    ) -> "Source":
        """Rows in memory, by ids from 0."""
        block = Block(np.arange(len(x)), x.array, columns, keys)
        return cls._of(lambda size: _cut(block, size), len(x), x.shape[1], by)

    @classmethod
    def of_gallery(
        cls,
        gallery: Gallery,
        model: ModelIdentity | None,
        threshold: AnyThreshold | None,
    ) -> "Source":
        """The rows of an index, by the ids that they have there."""
        return cls._of(
            gallery.blocks,
            len(gallery),
            gallery.dim,
            gallery.metric,
            model=model,
            threshold=threshold,
        )

    @classmethod
    def of_shards(
        cls, shards: EmbeddingShards, by: Metric, keys: str
    ) -> "Source":
        """The rows of a folder of embeddings, by their numbers."""

        def read(size: int) -> Iterator[Block]:
            for shard in shards:
                yield from _cut(block_of(shard, by, keys), size)

        known = f"{shards.digest} {keys} {by.name}"
        return cls._of(
            read,
            len(shards),
            shards.dim,
            by,
            model=shards.model,
            digest=xxh3_128(known.encode()).hexdigest(),
        )

    def by_model(self, model: ModelIdentity | None) -> "Source":
        """The same rows, whose vectors a model made, if it is known."""
        if model is None:
            return self
        return replace(self, state=self.state.changed(model=model))

    @classmethod
    def _of(
        cls,
        read: Callable[[int], Iterator[Block]],
        count: int,
        dim: int,
        by: Metric,
        digest: str = "",
        **known: Any,
    ) -> "Source":
        """A source, of which one reading says what is in its rows."""
        first = next(read(1), None)
        kind: Any = None
        if first and first.keys:
            kind = type(first.keys[0]).__name__
        state = State(dim, by.name, "", "", kind, digest, **known)
        if digest:
            if first:
                none: Values = {name: [] for name in first.columns}
                state = state.changed(columns=joined_types({}, none))
            return cls(count, state.changed(next_id=count), read)
        found = xxh3_128(f"{dim} {by.name} {kind}".encode())
        for block in read(_AT_A_TIME):
            _digest(found, block)
            state = state.changed(
                columns=joined_types(state.columns, block.columns),
                longest=max(state.longest, longest_of(block)),
                next_id=int(block.ids[-1]) + 1,
            )
        return cls(count, state.changed(source=found.hexdigest()), read)


def longest_of(block: Block) -> float:
    """Length of the longest vector of a block."""
    return float(row_norms(block.vectors).max(initial=0))


def block_of(shard: Shard, by: Metric, keys: str) -> Block:
    """The rows of a shard.

    Args:
        shard: The shard.
        by: How its embeddings are compared.
        keys: Name of the column that has the keys; "id" for the ids.
    """
    x = by.given(shard.embeddings, None, "embeddings", "a shard")
    ids = np.arange(shard.rows.start, shard.rows.stop)
    columns: Columns = dict(shard.columns)
    if shard.labels is not None:
        columns = {"label": label_values(shard.labels), **columns}
    values = checked_columns(columns, len(ids))
    own: Any = shard.ids if keys == "id" else values[keys]
    return Block(ids, x.array, values, own)


def label_values(labels: Any) -> list[Any]:
    """A class each, or a list of classes."""
    if labels.ndim == 1:
        return list(labels.tolist())
    return [np.flatnonzero(row).tolist() for row in labels]


def _cut(block: Block, size: int) -> Iterator[Block]:
    """A block in parts of at most `size` rows."""
    for part in blocks(len(block), size):
        columns = {name: x[part] for name, x in block.columns.items()}
        keys = None if block.keys is None else block.keys[part]
        yield Block(block.ids[part], block.vectors[part], columns, keys)


def _digest(digest: Any, block: Block) -> None:
    for array in (block.ids, np.ascontiguousarray(block.vectors)):
        digest.update(array.view(np.uint8).reshape(-1))
    digest.update(json.dumps([block.columns, block.keys]).encode())


def sampled(rows: Rows, parts: Iterable[Block]) -> Iterator[Block]:
    """Some rows, ascending places in a source, of its blocks."""
    first = 0
    for block in parts:
        inside = rows[(rows >= first) & (rows < first + len(block))] - first
        first += len(block)
        if len(inside):
            chosen = inside.tolist()
            columns = {
                name: [x[i] for i in chosen]
                for name, x in block.columns.items()
            }
            keys = block.keys and [block.keys[i] for i in chosen]
            yield Block(block.ids[inside], block.vectors[inside], columns, keys)
