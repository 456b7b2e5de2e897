"""What is searched for in what: a protocol applied to embeddings."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from keras_dml.evaluation.inputs import Images
from keras_dml.evaluation.protocols import Protocol, one_per_class
from keras_dml.evaluation.ranks.relevance import Relevance
from keras_dml.utils.types import Rows

PROTOCOLS = ("all_vs_all", "official")


@dataclass(frozen=True)
class Task:
    """Queries and the gallery that they are searched for in.

    Attributes:
        queries: (Q,)
        gallery: (G,)
        query_rows: Identity of each query, (Q,).
        gallery_rows: Identity of each gallery image, (G,); a query never
            retrieves its own.
    """

    queries: Images
    gallery: Images
    query_rows: Rows
    gallery_rows: Rows

    @property
    def symmetric(self) -> bool:
        """Whether queries and gallery are the same."""
        return self.queries is self.gallery

    def relevance(self) -> Relevance:
        """Who is relevant to whom."""
        return Relevance(
            self.queries.labels,
            self.gallery.labels,
            self.query_rows,
            self.gallery_rows,
            self.queries.groups,
            self.gallery.groups,
        )


Protocols = str | Protocol | Sequence[Protocol] | None


def tasks_of(
    images: Images, gallery: Images | None, protocol: Protocols
) -> list[Task]:
    """The searches to make, one for each draw of the protocol.

    Args:
        images: The queries; with no `gallery`, all images.
        gallery: Other images to search among, or None.
        protocol: A protocol, several to average over, a name, or None.

    Raises:
        ValueError: If the name is unknown, there is no protocol, or there
            is one beside a gallery.
    """
    if gallery is None:
        return [_task(images, draw) for draw in _draws(images, protocol)]
    if protocol is not None:
        raise ValueError(
            "`protocol` of evaluate is for searches among the rows of `x`. "
            f"Received: protocol={protocol!r} and a gallery. Leave out one."
        )
    rows = np.arange(len(images) + len(gallery))
    return [Task(images, gallery, rows[: len(images)], rows[len(images) :])]


def _task(images: Images, protocol: Protocol) -> Task:
    queries, gallery = protocol.rows(len(images))
    return Task(
        images.select(queries), images.select(gallery), queries, gallery
    )


def _draws(images: Images, protocol: Protocols) -> Sequence[Protocol]:
    if protocol is None:
        return [Protocol()]
    if isinstance(protocol, Protocol):
        return [protocol]
    if protocol == "all_vs_all":
        return [Protocol()]
    if protocol == "official":
        return one_per_class(images.labels)
    if isinstance(protocol, str) or not len(protocol):
        raise ValueError(
            f"`protocol` of evaluate must be one of {PROTOCOLS}, a "
            "`Protocol` or a sequence of them. Received: "
            f"protocol={protocol!r}."
        )
    return protocol
