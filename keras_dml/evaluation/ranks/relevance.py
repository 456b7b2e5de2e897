"""Relevance: the gallery images of a query's class that it may retrieve."""

from dataclasses import dataclass

import numpy as np

from keras_dml.utils.types import FloatArray, Rows


@dataclass(frozen=True)
class Images:
    """Embedded images.

    Attributes:
        embeddings: (N, D).
        labels: Class of every image, (N,).
        rows: Identity of every image, (N,); a query never retrieves its own.
        groups: Group of every image, (N,), or None where nothing is excluded.
    """

    embeddings: FloatArray
    labels: Rows
    rows: Rows
    groups: Rows | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def select(self, places: Rows) -> "Images":
        """The images at some places; the same object if at all of them."""
        if np.array_equal(places, np.arange(len(self))):
            return self
        return Images(
            self.embeddings[places],
            self.labels[places],
            self.rows[places],
            None if self.groups is None else self.groups[places],
        )


@dataclass(frozen=True)
class Positives:
    """A list of gallery images for each of some queries, one after another.

    Attributes:
        starts: Where the list of each query starts; one more entry for
            the end, (Q + 1,).
        items: Gallery images, numbered by their place in the gallery, (P,).
    """

    starts: Rows
    items: Rows

    @property
    def counts(self) -> Rows:
        """Number of relevant images of each query, (Q,)."""
        return np.diff(self.starts)

    @property
    def owners(self) -> Rows:
        """Query that each of `items` belongs to, (P,)."""
        return np.repeat(np.arange(len(self.starts) - 1), self.counts)


class Relevance:
    """Same class, but not the same row and not the same group.

    Attributes:
        upper_counts: At most so many relevant images has each query, (Q,).
    """

    def __init__(self, queries: Images, gallery: Images) -> None:
        self.queries, self.gallery = queries, gallery
        self._own = [(queries.rows, gallery.rows)]
        if queries.groups is not None and gallery.groups is not None:
            self._own.append((queries.groups, gallery.groups))
        self._by_label = np.argsort(gallery.labels, kind="stable")
        ordered = gallery.labels[self._by_label]
        self._first = np.searchsorted(ordered, queries.labels, side="left")
        last = np.searchsorted(ordered, queries.labels, side="right")
        self.upper_counts: Rows = last - self._first

    def of(self, queries: slice) -> tuple[Positives, Positives]:
        """The images of the queries' classes: relevant ones, and others."""
        counts = self.upper_counts[queries]
        ends = np.cumsum(counts)
        owner = np.repeat(np.arange(len(counts)), counts)
        places = np.arange(len(owner)) + np.repeat(
            self._first[queries] - (ends - counts), counts
        )
        items = self._by_label[places]
        keep = np.ones(len(items), bool)
        for query_values, gallery_values in self._own:
            keep &= query_values[queries][owner] != gallery_values[items]
        return (
            _lists(owner[keep], items[keep], len(counts)),
            _lists(owner[~keep], items[~keep], len(counts)),
        )


def _lists(owners: Rows, items: Rows, queries: int) -> Positives:
    counts = np.bincount(owners, minlength=queries)
    starts = np.concatenate([[0], np.cumsum(counts)])
    return Positives(starts.astype(np.int64), items)
