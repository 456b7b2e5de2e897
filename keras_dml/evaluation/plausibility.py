"""Plausibility: signs that what is measured means nothing, said in words."""

import contextlib
import logging
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from typing import Any

import numpy as np

from keras_dml.evaluation.ranks.relevance import Images, relevance_of
from keras_dml.utils.lazy_rows import EmbeddingRows
from keras_dml.utils.types import FloatArray
from keras_dml.utils.vectors import CHUNK, blocks, unit_rows

logger = logging.getLogger(__name__)

_ROUNDING = 1e-5
"""Relative difference up to which embeddings count as equal: batches of other
sizes are computed in another order."""

_SAMPLED = 64
"""Number of queries that are looked for in the gallery."""

_NEARLY_ALL = 0.9

_said: ContextVar[set[str] | None] = ContextVar("said", default=None)


@contextlib.contextmanager
def saying_once(said: set[str]) -> Iterator[None]:
    """Within it, `warn` does not repeat messages that are in `said`.

    Within another, the other one's messages count.
    """
    outer = _said.get()
    token = _said.set(said if outer is None else outer)
    try:
        yield
    finally:
        _said.reset(token)


def warn(message: str, *values: Any) -> None:
    """Warns in the log, once per kind of message within `saying_once`."""
    said = _said.get()
    if said is not None:
        if message in said:
            return
        said.add(message)
    logger.warning(message, *values)


def warn_of_collapse(
    parts: Sequence[EmbeddingRows], is_cosine: bool, owner: str
) -> bool:
    """Warns if all embeddings of a model are zero, or all equal.

    It is cheap, as it stops at the first rows that differ. Returns whether they
    have collapsed; if `is_cosine`, only their directions count.
    """

    def read(part: EmbeddingRows, rows: slice) -> FloatArray:
        return unit_rows(part[rows]) if is_cosine else part[rows]

    count = sum(map(len, parts))
    first = read(parts[0], slice(0, 1))
    largest = np.abs(first).max()
    differ = (
        np.abs(read(part, rows) - first).max() > _ROUNDING * largest
        for part in parts
        for rows in blocks(len(part), CHUNK)
    )
    if count < 2 or any(differ):
        return False
    warn(
        "All %d embeddings measured by %s are %s, so ranks are only the "
        "order of the rows, and metrics are meaningless. The model has "
        "collapsed: check whether its weights are finite, whether the loss "
        "stays at its margin, and use a lower learning rate or an easier "
        "mining.",
        count,
        owner,
        "equal" if largest else "zero",
    )
    return True


def warn_of_copies(queries: Images, gallery: Images, owner: str) -> None:
    """Warns if nearly every query finds an exact copy of itself.

    Queries and gallery have rows of their own.
    """
    count = min(_SAMPLED, len(queries))
    places = np.linspace(0, len(queries) - 1, count).astype(np.int64)
    # A few first, as hardly any evaluation needs more.
    for some in (places[:: max(1, count // 8)], places):
        found = _num_with_copy(queries.select(np.unique(some)), gallery)
        if found < _NEARLY_ALL * len(np.unique(some)):
            return
    warn(
        "Nearly every query of %s (%d of %d sampled) has an exact copy of "
        "itself in the gallery and finds it first, so recall@1 says nothing. "
        "Leave the queries out of the gallery. To search a set among itself, "
        "omit `gallery`; to search it for some of its rows, use "
        "protocol=Protocol(queries=rows).",
        owner,
        found,
        count,
    )


def _num_with_copy(queries: Images, gallery: Images) -> int:
    """Number of queries that may find an exact copy of themselves."""
    x = np.asarray(queries.embeddings)
    limits = _ROUNDING * np.linalg.norm(x, axis=1)
    # Few rows are near in the largest coordinate, so few are compared.
    axes = np.abs(x).argmax(axis=1)
    has_copy = np.zeros(len(x), bool)
    level = next(iter(queries.targets))
    ignored = relevance_of(queries, gallery, level).of(slice(0, len(x)))[1]
    must_not = np.split(ignored.items, ignored.starts[1:-1])
    for rows in blocks(len(gallery), max(1, 2**24 // x.shape[1])):
        y = gallery.embeddings[rows]
        for i in np.flatnonzero(~has_copy).tolist():
            is_near = np.abs(y[:, axes[i]] - x[i, axes[i]]) <= limits[i]
            near = np.flatnonzero(is_near)
            near = near[~np.isin(near + rows.start, must_not[i])]
            gaps = np.linalg.norm(y[near] - x[i], axis=1)
            has_copy[i] = (gaps <= limits[i]).any()
    return int(has_copy.sum())
