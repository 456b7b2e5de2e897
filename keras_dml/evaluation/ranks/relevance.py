"""Relevance: the gallery images that a query should find."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from keras_dml.evaluation.label_sets import (
    ClassNames,
    LabelSets,
    Targets,
    ids_of,
)
from keras_dml.utils.lazy_rows import EmbeddingRows, select_rows
from keras_dml.utils.types import FloatArray, Rows


@dataclass(frozen=True)
class Images:
    """Embedded images, the queries or the gallery of a search."""

    embeddings: EmbeddingRows  # (N, D).
    # Classes, (N,), or label sets, by level; a single level is named "".
    targets: Mapping[str, Targets]
    rows: Rows  # Identity, (N,); a query never retrieves its own.
    groups: Rows | None = None  # (N,), or None if nothing is excluded.
    # Names of classes or labels, by level, for those that have names.
    class_names: Mapping[str, ClassNames] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.rows)

    def select(self, positions: Rows) -> "Images":
        """The images at some positions; the same object if these are all."""
        if np.array_equal(positions, np.arange(len(self))):
            return self
        return Images(
            select_rows(self.embeddings, positions),
            {level: x[positions] for level, x in self.targets.items()},
            self.rows[positions],
            None if self.groups is None else self.groups[positions],
            self.class_names,
        )


@dataclass(frozen=True)
class Positives:
    """A list of gallery images for each of some queries, one after another."""

    starts: Rows  # Where each query's list starts, and the end, (Q + 1,).
    items: Rows  # Positions in the gallery, (P,).
    gains: FloatArray | None = None  # In graded metrics, (P,); None for 1.

    @property
    def counts(self) -> Rows:
        """Number of relevant images of each query, (Q,)."""
        return np.diff(self.starts)

    @property
    def owners(self) -> Rows:
        """Query that each of `items` belongs to, (P,)."""
        return np.repeat(np.arange(len(self.starts) - 1), self.counts)


Apart: TypeAlias = Callable[[Rows, Rows], NDArray[np.bool_]]
"""Whether pairs of a query, numbered within a panel, and an image of the
gallery have nothing in common, (n,)."""


class Relevance:
    """Base of relevance: the same class, but another row and group."""

    upper_counts: Rows  # Bound on each query's relevant images, (Q,).
    ids: Rows  # Class, or a number for a set of labels, (Q,).

    def __init__(self, queries: Images, gallery: Images) -> None:
        self._identities = [(queries.rows, gallery.rows)]
        if queries.groups is not None and gallery.groups is not None:
            self._identities.append((queries.groups, gallery.groups))

    def of(self, queries: slice) -> tuple[Positives, Positives, Apart]:
        """Images of the queries' classes: relevant ones and ignored ones.

        Also returns a function for which images share no class with a query.
        """
        raise NotImplementedError

    def _split(
        self,
        queries: slice,
        owner: Rows,
        items: Rows,
        gains: FloatArray | None = None,
    ) -> tuple[Positives, Positives]:
        """Splits images of a class into relevant and ignored ones."""
        keep = np.ones(len(items), bool)
        for query_values, gallery_values in self._identities:
            keep &= query_values[queries][owner] != gallery_values[items]
        count = queries.stop - queries.start
        relevant_gains = None if gains is None else gains[keep]
        return (
            _lists(owner[keep], items[keep], count, relevant_gains),
            _lists(owner[~keep], items[~keep], count),
        )


class ClassRelevance(Relevance):
    """An image has one class; images of the query's class are relevant."""

    def __init__(self, queries: Images, gallery: Images, level: str) -> None:
        super().__init__(queries, gallery)
        self.ids = ids_of(queries.targets[level])
        self._labels = ids_of(gallery.targets[level])
        self._by_label = np.argsort(self._labels, kind="stable")
        ordered = self._labels[self._by_label]
        self._first = np.searchsorted(ordered, self.ids, side="left")
        last = np.searchsorted(ordered, self.ids, side="right")
        self.upper_counts = last - self._first

    def of(self, queries: slice) -> tuple[Positives, Positives, Apart]:
        counts = self.upper_counts[queries]
        ends = np.cumsum(counts)
        owner = np.repeat(np.arange(len(counts)), counts)
        positions = np.arange(len(owner)) + np.repeat(
            self._first[queries] - (ends - counts), counts
        )
        query_ids = self.ids[queries]

        def apart(query: Rows, item: Rows) -> NDArray[np.bool_]:
            is_apart: NDArray[np.bool_] = query_ids[query] != self._labels[item]
            return is_apart

        return *self._split(queries, owner, self._by_label[positions]), apart


class SharedRelevance(Relevance):
    """An image has labels; those that share one with the query are relevant."""

    def __init__(
        self, queries: Images, gallery: Images, x: LabelSets, y: LabelSets
    ) -> None:
        super().__init__(queries, gallery)
        self.ids = ids_of(x)
        self._queries, self._gallery = x, y
        self._by_label = y.matrix.T.tocsr()
        # An image that shares several labels is counted several times.
        sizes = np.diff(self._by_label.indptr)
        upper_counts = x.matrix @ sizes.astype(np.int64)
        self.upper_counts = np.minimum(upper_counts, len(y))

    def of(self, queries: slice) -> tuple[Positives, Positives, Apart]:
        matrix = self._queries.matrix[queries]
        # Row q, column i: the number of labels that q and i share.
        shared = (matrix @ self._by_label).tocsr()
        shared.sort_indices()
        owner = np.repeat(np.arange(shared.shape[0]), np.diff(shared.indptr))
        items = shared.indices.astype(np.int64)
        gains = self._queries.gains(
            shared.data,
            self._queries.sizes[queries][owner],
            self._gallery.sizes[items],
        )
        keys = owner * len(self._gallery) + items

        def apart(query: Rows, item: Rows) -> NDArray[np.bool_]:
            if not len(keys):
                return np.ones(len(query), bool)
            pair_keys = query * len(self._gallery) + item
            at = np.searchsorted(keys, pair_keys)
            is_apart: NDArray[np.bool_] = (
                keys[np.minimum(at, len(keys) - 1)] != pair_keys
            )
            return is_apart

        return *self._split(queries, owner, items, gains), apart


def relevance_of(queries: Images, gallery: Images, level: str) -> Relevance:
    """The relevance at a level."""
    x, y = queries.targets[level], gallery.targets[level]
    if isinstance(x, LabelSets) and isinstance(y, LabelSets):
        return SharedRelevance(queries, gallery, x, y)
    return ClassRelevance(queries, gallery, level)


def are_ignored(
    queries: Images, gallery: Images, rows: Rows, items: Rows
) -> NDArray[np.bool_]:
    """Whether pairs of a query and an image, (n,) each, do not count.

    These are in one group and, at the first level, of one class.
    """
    if queries.groups is None or gallery.groups is None:
        return np.zeros(len(rows), bool)
    level = next(iter(queries.targets))
    x, y = queries.targets[level], gallery.targets[level]
    if isinstance(x, LabelSets) and isinstance(y, LabelSets):
        shared = x.matrix[rows].multiply(y.matrix[items]).sum(axis=1)
        is_same = np.asarray(shared).ravel() > 0
    else:
        is_same = ids_of(x)[rows] == ids_of(y)[items]
    same: NDArray[np.bool_]
    same = is_same & (queries.groups[rows] == gallery.groups[items])
    return same


def _lists(
    owners: Rows, items: Rows, queries: int, gains: FloatArray | None = None
) -> Positives:
    counts = np.bincount(owners, minlength=queries)
    starts = np.concatenate([[0], np.cumsum(counts)])
    return Positives(starts.astype(np.int64), items, gains)
