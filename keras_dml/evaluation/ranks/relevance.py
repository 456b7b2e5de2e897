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

    def select(self, places: Rows) -> "Images":
        """The images at some positions; the same object if these are all."""
        if np.array_equal(places, np.arange(len(self))):
            return self
        return Images(
            select_rows(self.embeddings, places),
            {level: x[places] for level, x in self.targets.items()},
            self.rows[places],
            None if self.groups is None else self.groups[places],
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
    """Same class, but not the same row and not the same group."""

    upper_counts: Rows  # Bound on each query's relevant images, (Q,).
    ids: Rows  # Class, or a number for a set of labels, (Q,).

    def __init__(self, queries: Images, gallery: Images) -> None:
        self._own = [(queries.rows, gallery.rows)]
        if queries.groups is not None and gallery.groups is not None:
            self._own.append((queries.groups, gallery.groups))

    def of(self, queries: slice) -> tuple[Positives, Positives, Apart]:
        """The images of the queries' classes: relevant ones, and others.

        Also returns a function for which images share no class with a query.
        """
        raise NotImplementedError

    def _divided(
        self,
        queries: slice,
        owner: Rows,
        items: Rows,
        gains: FloatArray | None = None,
    ) -> tuple[Positives, Positives]:
        """Lists of relevant images, and of those that must not be found."""
        keep = np.ones(len(items), bool)
        for query_values, gallery_values in self._own:
            keep &= query_values[queries][owner] != gallery_values[items]
        count = queries.stop - queries.start
        kept = None if gains is None else gains[keep]
        return (
            _lists(owner[keep], items[keep], count, kept),
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
        places = np.arange(len(owner)) + np.repeat(
            self._first[queries] - (ends - counts), counts
        )
        own = self.ids[queries]

        def apart(query: Rows, item: Rows) -> NDArray[np.bool_]:
            found: NDArray[np.bool_] = own[query] != self._labels[item]
            return found

        return *self._divided(queries, owner, self._by_label[places]), apart


class SharedRelevance(Relevance):
    """An image has labels; those that share one with the query are relevant."""

    def __init__(
        self, queries: Images, gallery: Images, own: LabelSets, other: LabelSets
    ) -> None:
        super().__init__(queries, gallery)
        self.ids = ids_of(own)
        self._queries, self._gallery = own, other
        self._by_label = other.matrix.T.tocsr()
        # Images with several of a query's labels are counted several times.
        sizes = np.diff(self._by_label.indptr)
        most = own.matrix @ sizes.astype(np.int64)
        self.upper_counts = np.minimum(most, len(other))

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
            wanted = query * len(self._gallery) + item
            at = np.searchsorted(keys, wanted)
            found: NDArray[np.bool_] = (
                keys[np.minimum(at, len(keys) - 1)] != wanted
            )
            return found

        return *self._divided(queries, owner, items, gains), apart


def relevance_of(queries: Images, gallery: Images, level: str) -> Relevance:
    """The relevance at a level."""
    own, other = queries.targets[level], gallery.targets[level]
    if isinstance(own, LabelSets) and isinstance(other, LabelSets):
        return SharedRelevance(queries, gallery, own, other)
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
    own, other = queries.targets[level], gallery.targets[level]
    if isinstance(own, LabelSets) and isinstance(other, LabelSets):
        shared = own.matrix[rows].multiply(other.matrix[items]).sum(axis=1)
        is_same = np.asarray(shared).ravel() > 0
    else:
        is_same = ids_of(own)[rows] == ids_of(other)[items]
    same: NDArray[np.bool_]
    same = is_same & (queries.groups[rows] == gallery.groups[items])
    return same


def _lists(
    owners: Rows, items: Rows, queries: int, gains: FloatArray | None = None
) -> Positives:
    counts = np.bincount(owners, minlength=queries)
    starts = np.concatenate([[0], np.cumsum(counts)])
    return Positives(starts.astype(np.int64), items, gains)
