"""Search for exact ranks: queries and gallery, block by block, in threads."""

from collections.abc import Iterator, Sequence

import numpy as np

from keras_dml.evaluation.ranks.panels import PanelSearch
from keras_dml.evaluation.ranks.ranked_positives import Limits
from keras_dml.evaluation.ranks.ranks import Ranks
from keras_dml.evaluation.ranks.relevance import Images, Relevance
from keras_dml.evaluation.ranks.scores import Scores
from keras_dml.evaluation.ranks.workers import searched
from keras_dml.pools import Pool

BYTES_OF_POSITIVE = 128
"""Maximum number of bytes per relevant image while its rank is computed."""


def search(
    queries: Images,
    gallery: Images,
    relevances: Sequence[Relevance],
    distance: str,
    limits: Limits,
    *,
    memory: int,
    progress: bool | None = None,
    pool: Pool | None = None,
    workers: int | None = None,
) -> Iterator[tuple[Ranks, ...]]:
    """Ranks of all relevant images, one panel of queries at a time.

    Args:
        queries: Images that are searched for.
        gallery: Images to search. If they are the same object, half the
            products are sufficient, provided that all queries form one panel.
        relevances: Which images are relevant to which query, for one or
            several levels; the products serve all.
        distance: "cosine", "euclidean" or "dot".
        limits: Ranks up to which they must be exact.
        memory: Number of bytes to use.
        progress: Whether to show progress; None shows it in a terminal.
        pool: The pool that searches; None to search here.
        workers: Its number of workers, if it is known.

    Yields:
        For each relevance, the ranks of a panel of consecutive queries, as
        large as half of the memory allows.
    """
    scores = Scores(queries.embeddings, gallery.embeddings, distance)
    work = PanelSearch(scores, relevances, limits, memory // 4)
    panels = _panels(scores, relevances, memory // 2)
    if pool is not None:
        yield from searched(pool, workers, work, panels, progress)
        return
    symmetric = queries is gallery and len(panels) == 1
    for rows in panels:
        yield work.of(rows, symmetric, progress)


def _panels(
    scores: Scores, relevances: Sequence[Relevance], memory: int
) -> list[slice]:
    """Consecutive queries whose factors and relevant images fit."""
    counts = sum(relevance.upper_counts for relevance in relevances)
    needed = BYTES_OF_POSITIVE * np.asarray(counts)
    needed = np.cumsum(needed + 4 * scores.factor_size)
    panels = []
    start, used = 0, 0
    while start < len(needed):
        stop = int(np.searchsorted(needed, used + memory, side="right"))
        stop = max(stop, start + 1)
        panels.append(slice(start, stop))
        start, used = stop, int(needed[stop - 1])
    return panels
