"""Relevance: the gallery images of a query's class that it may retrieve."""

from dataclasses import dataclass

import numpy as np

from keras_dml.utils.types import Rows


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

    Args:
        query_labels: (Q,) class of every query.
        gallery_labels: (G,) class of every gallery image.
        query_ids: (Q,) identity of every query: its row.
        gallery_ids: (G,) identity of every gallery image.
        query_groups: (Q,), or None where nothing is excluded.
        gallery_groups: (G,), or None.
    """

    def __init__(
        self,
        query_labels: Rows,
        gallery_labels: Rows,
        query_ids: Rows,
        gallery_ids: Rows,
        query_groups: Rows | None = None,
        gallery_groups: Rows | None = None,
    ) -> None:
        self.query_labels = query_labels
        self.gallery_labels = gallery_labels
        self._own = [(query_ids, gallery_ids)]
        if query_groups is not None and gallery_groups is not None:
            self._own.append((query_groups, gallery_groups))
        self._by_label = np.argsort(gallery_labels, kind="stable")
        ordered = gallery_labels[self._by_label]
        self._first = np.searchsorted(ordered, query_labels, side="left")
        last = np.searchsorted(ordered, query_labels, side="right")
        self.upper_counts = last - self._first
        """At most so many relevant images has each query, (Q,)."""

    def positives(self, queries: slice) -> Positives:
        """The relevant images of consecutive queries."""
        return self._members(queries)[0]

    def ignored(self, queries: slice) -> Positives:
        """Images of their classes that are not relevant, such as themselves."""
        return self._members(queries)[1]

    def _members(self, queries: slice) -> tuple[Positives, Positives]:
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
