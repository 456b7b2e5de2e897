"""Pairs of images counted by their scores, also in bootstrap samples."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keras_dml.data.relations import PairSet
from keras_dml.evaluation.confidence import times_drawn
from keras_dml.evaluation.ranks.relevance import Images, Positives, Relevance
from keras_dml.utils.lazy_rows import EmbeddingRows, map_rows, select_rows
from keras_dml.utils.progress import with_progress
from keras_dml.utils.types import FloatArray, Rows
from keras_dml.utils.vectors import (
    blocks,
    row_norms,
    squares,
    unit_rows,
    within,
)

STEP = 2.0**-20
"""Distance between thresholds: about the resolution of float32."""

CELLS = round(2 / STEP) + 1
"""Cell i holds scores from −1 + i·STEP up to those of the next cell."""

BLOCK_SIDE = 1024
"""Rows and columns of a block of pairs."""

MAX_UNITS = 512
"""Maximum number of classes or groups drawn: time grows quadratically."""

UNIT_ROWS, UNIT_PAIRS = 256, 2**21
"""Rows and pairs of a block while classes are drawn."""

_LISTED_PAIRS = 2**14
"""Pairs of a list that are compared at a time."""


@dataclass(frozen=True)
class Factors:
    """Matrices whose product has the scores of pairs, from −1 to 1."""

    lhs: EmbeddingRows  # Of the first images, (N, d).
    rhs: EmbeddingRows  # Of the second images, (M, d).
    distance: str = "cosine"
    # The dot product that a score of 1 stands for; for Euclidean distances,
    # its square root.
    unit: float = 1.0

    @classmethod
    def of(cls, x: EmbeddingRows, y: EmbeddingRows, distance: str) -> "Factors":
        """Factors of embeddings, (N, D) and (M, D); unit ones for cosine."""
        if distance == "cosine":
            return cls(x, y)
        tiny = np.finfo(np.float64).tiny
        largest = [max(float(row_norms(z).max()), tiny) for z in (x, y)]
        if distance == "dot":
            changes = [partial(_divide, by=z) for z in largest]
            unit = largest[0] * largest[1]
        else:
            # 1 − c|x − y|² = 2c x·y − c|x|² + (1 − c|y|²), with
            # c|x − y|² ≤ 2.
            unit = sum(largest) / 2**0.5
            changes = [partial(f, unit=unit) for f in (_lhs, _rhs)]
        lhs, rhs = map(map_rows, (x, y), changes)
        return cls(lhs, rhs, distance, unit)

    def select(self, rows: Rows) -> "Factors":
        """Factors of some images, the same on both sides."""
        lhs = select_rows(self.lhs, rows)
        is_same = self.rhs is self.lhs
        rhs = lhs if is_same else select_rows(self.rhs, rows)
        return replace(self, lhs=lhs, rhs=rhs)

    def outer(self, scores: Any) -> Any:
        """Scores from −1 to 1 as cosines, as x·y or as −|x − y|."""
        if self.distance != "euclidean":
            return scores * self.unit
        squared = 1.0 - scores
        return -np.sign(squared) * self.unit * np.sqrt(np.abs(squared))


def _divide(x: FloatArray, by: float) -> FloatArray:
    return x.astype(np.float64) / by


def _lhs(x: FloatArray, unit: float) -> FloatArray:
    x = _divide(x, unit)
    return np.hstack([2 * x, -squares(x)[:, None], np.ones((len(x), 1))])


def _rhs(x: FloatArray, unit: float) -> FloatArray:
    x = _divide(x, unit)
    return np.hstack([x, np.ones((len(x), 1)), 1 - squares(x)[:, None]])


def cells_of(lhs: FloatArray, rhs: FloatArray) -> Rows:
    """Cells of the scores of all pairs, (n, m)."""
    scores = (
        lhs.astype(np.float64, copy=False)
        @ rhs.astype(np.float64, copy=False).T
    )
    return _cells(scores)


def _cells(scores: FloatArray) -> Rows:
    """Cells of scores, which are overwritten."""
    scores += 1.0
    scores *= 1 / STEP
    # Towards zero, which is down: rounding may only just leave [-1, 1].
    cells = scores.astype(np.int64)
    return np.clip(cells, 0, CELLS - 1, cells)


def threshold_at(position: Any) -> Any:
    """The score or scores at a position of `accepted_positive`."""
    return -1.0 + position * STEP


@dataclass(frozen=True)
class PairCounts:
    """How many pairs score at least as much as each threshold.

    Thresholds are those between and around the cells, ascending. The counts
    are exact and cover all pairs.

    Attributes:
        accepted_positive: Number of same-class pairs, (CELLS + 1,).
        accepted_negative: Number of different-class pairs, (CELLS + 1,).
    """

    accepted_positive: Rows
    accepted_negative: Rows

    @property
    def positives(self) -> int:
        """Number of same-class pairs."""
        return int(self.accepted_positive[0])

    @property
    def negatives(self) -> int:
        """Number of different-class pairs."""
        return int(self.accepted_negative[0])

    @classmethod
    def of(cls, positive: Rows, negative: Rows) -> "PairCounts":
        """Counts from the pairs in each cell, (CELLS + 1,), the last one 0."""
        # A cell's pairs are accepted from the threshold below it on.
        return cls(*(np.cumsum(x[::-1])[::-1] for x in (positive, negative)))


@dataclass(frozen=True)
class BootstrapCounts:
    """The pairs of bootstrap samples."""

    hits: FloatArray  # Same-class pairs that reach some thresholds, (B, T).
    false: FloatArray  # Different-class pairs that reach them, (B, T).
    lowest: Rows  # Lowest cell of the same-class pairs, (B,).
    highest: Rows  # Highest cell of the different-class pairs, (B,).


@dataclass(frozen=True)
class AllPairs:
    """All N(N − 1)/2 pairs of images with classes."""

    factors: Factors  # Of all images, (N, d) both.
    classes: Rows  # Numbered from 0, (N,).
    progress: bool | None = False  # None shows it in a terminal.

    @property
    def num_classes(self) -> int:
        """Number of classes."""
        return int(self.classes.max(initial=-1)) + 1

    @cached_property
    def counts(self) -> PairCounts:
        """How many reach each threshold, in memory that is independent of N."""
        positive, total = np.zeros((2, CELLS + 1), np.int64)
        parts = blocks(len(self.classes), BLOCK_SIDE)
        about = len(parts), "Comparing pairs", self.progress
        for part in with_progress(parts, *about):
            for rows, columns, cells, later in _pair_blocks(
                self.factors, part, BLOCK_SIDE, BLOCK_SIDE**2
            ):
                same = self.classes[rows, None] == self.classes[columns]
                positive += np.bincount(cells[same & later], None, CELLS + 1)
                total += np.bincount(cells[later], None, CELLS + 1)
        return PairCounts.of(positive, total - positive)

    def bootstrap(
        self, num_resamples: int, seed: int, positions: Rows
    ) -> BootstrapCounts:
        """Pairs of samples of the classes, or of groups, as for `calibrate`.

        Pairs between two copies of the same class are excluded: they are
        same-class pairs, and some pair an image with itself. Positions, (T,),
        are those of some thresholds in `PairCounts`, ascending.
        """
        rng = np.random.default_rng(seed)
        count = min(self.num_classes, MAX_UNITS)
        units = rng.permutation(self.num_classes)[self.classes] % count
        order = np.argsort(units, kind="stable")
        by_unit = self.factors.select(order), self.classes[order], units[order]
        bins = np.searchsorted(positions, np.arange(CELLS), side="right")
        times_of = times_drawn(rng, num_resamples, count)
        hits, false = np.zeros((2, num_resamples, len(positions) + 1))
        lowest = np.full(num_resamples, CELLS)
        highest = np.full(num_resamples, -1)
        about = count, "Drawing classes for the interval", self.progress
        for unit in with_progress(range(count), *about):
            positive, negative, low, high = _unit_pairs(
                *by_unit, unit, bins, hits.shape[1]
            )
            times = times_of[:, unit, None]
            hits += times * positive
            false += times * negative[unit]
            # Pairs of two classes count by the product of their draws.
            later = slice(unit + 1, None)
            false += times * (times_of[:, later] @ negative[later])
            samples = np.flatnonzero(times[:, 0])
            lowest[samples] = np.minimum(lowest[samples], low)
            both = np.where(times_of[samples] > 0, high, -1)
            highest[samples] = np.maximum(highest[samples], both.max(axis=1))
        return BootstrapCounts(_totals(hits), _totals(false), lowest, highest)


def _pair_blocks(
    factors: Factors, part: slice, height: int, size: int
) -> Iterator[tuple[slice, slice, Rows, NDArray[np.bool_]]]:
    """Pairs of a part's rows with all rows that follow them, block by block.

    Yields rows, at most `height`; columns; the cells of their scores, (rows,
    columns), at most `size`; and which of these are pairs, (rows, columns).
    """
    for part_rows in blocks(part.stop - part.start, height):
        rows = within(part, part_rows)
        lhs = factors.lhs[rows].astype(np.float64, copy=False)
        for rest in blocks(len(factors.rhs) - rows.start, size // len(lhs)):
            columns = within(rows, rest)
            later = (
                np.arange(columns.start, columns.stop)
                > np.arange(rows.start, rows.stop)[:, None]
            )
            yield rows, columns, cells_of(lhs, factors.rhs[columns]), later


def _unit_pairs(
    factors: Factors,
    classes: Rows,
    units: Rows,
    unit: int,
    bins: Rows,
    width: int,
) -> tuple[FloatArray, FloatArray, int, Rows]:
    """Counts pairs of a unit's images with each other and with later ones.

    Factors, classes and units, (N, …), are ordered by unit; `bins`, (CELLS,),
    has the bin of every cell. Returns same-class pairs by bin, (W,);
    different-class pairs by the unit of the other image and by bin, (U, W); and
    their lowest cell, and highest ones, (U,).
    """
    count = int(units[-1]) + 1
    positive, negative = np.zeros(width), np.zeros((count, width))
    lowest, highest = CELLS, np.full(count, -1)
    rows_of_unit = slice(*np.searchsorted(units, [unit, unit + 1]).tolist())
    for rows, columns, cells, later in _pair_blocks(
        factors, rows_of_unit, UNIT_ROWS, UNIT_PAIRS
    ):
        same = classes[rows, None] == classes[columns]
        alike, apart = later & same, later & ~same
        positive += np.bincount(bins[cells[alike]], None, width)
        index = units[columns] * width + bins[cells]
        tally = np.bincount(index[apart], None, negative.size)
        negative += tally.reshape(negative.shape)
        lowest = min(lowest, int(cells[alike].min(initial=CELLS)))
        top = np.where(apart, cells, -1).max(axis=0)
        np.maximum.at(highest, units[columns], top)
    return positive, negative, lowest, highest


class Trials:
    """The pairs of a `PairSet` with their scores, from factors of its examples.

    Raises `ValueError` for `owner` if there is not one embedding per example.
    """

    def __init__(
        self,
        factors: Factors,
        pairs: PairSet,
        owner: str,
        progress: bool | None = False,
    ) -> None:
        count = len(factors.lhs)
        if count != len(pairs.examples):
            raise ValueError(
                f"`embeddings` of {owner} must be those of the examples of "
                f"the PairSet, in their order. Received: {count} embeddings "
                f"for {len(pairs.examples)} examples."
            )
        self._kinds = pairs.positive, ~pairs.positive
        self._progress = progress
        subjects = subjects_of(pairs)[pairs.rows.T]
        names, numbers = np.unique(subjects, return_inverse=True)
        self.num_classes = len(names)
        self._first, self._second = numbers.reshape(subjects.shape)
        self.cells = np.empty(len(pairs.rows), np.int64)
        for part in blocks(len(pairs.rows), _LISTED_PAIRS):
            lhs, rhs = (
                np.asarray(factor[rows], np.float64)
                for factor, rows in zip(
                    (factors.lhs, factors.rhs), pairs.rows[part].T,
                    strict=True,
                )
            )  # fmt: skip
            self.cells[part] = _cells(np.einsum("nd,nd->n", lhs, rhs))

    @property
    def counts(self) -> PairCounts:
        """How many trials reach each threshold."""
        return PairCounts.of(
            *(np.bincount(self.cells[x], None, CELLS + 1) for x in self._kinds)
        )

    def bootstrap(
        self, num_resamples: int, seed: int, positions: Rows
    ) -> BootstrapCounts:
        """Trials of samples of the subjects, as `AllPairs.bootstrap`."""
        rng = np.random.default_rng(seed)
        samples = times_drawn(rng, num_resamples, self.num_classes)
        bins = np.searchsorted(positions, self.cells, side="right")
        width = len(positions) + 1
        counts = np.empty((2, num_resamples, width))
        lowest, highest = np.empty((2, num_resamples), np.int64)
        # A trial of a single subject counts as often as it is drawn.
        is_one = self._first == self._second
        about = "Drawing subjects for the interval", self._progress
        for sample, times in enumerate(
            with_progress(samples, num_resamples, *about)
        ):
            second = np.where(is_one, 1, times[self._second])
            weights = times[self._first] * second
            for count, kind in zip(counts, self._kinds, strict=True):
                count[sample] = np.bincount(bins[kind], weights[kind], width)
            alike, apart = (self.cells[x & (weights > 0)] for x in self._kinds)
            lowest[sample] = alike.min(initial=CELLS)
            highest[sample] = apart.max(initial=-1)
        hits, false = map(_totals, counts)
        return BootstrapCounts(hits, false, lowest, highest)


def subjects_of(pairs: PairSet) -> Rows:
    """The subject of every example, numbered, (N,).

    It is the label of the examples. Without labels, examples that positive
    pairs connect are of one subject.
    """
    labels = pairs.examples.labels
    if labels is not None and np.ndim(labels) == 1:
        subjects: Rows = np.unique(labels, return_inverse=True)[1]
        return subjects
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    count = len(pairs.examples)
    first, second = pairs.rows[pairs.positive].T
    joins = coo_array(
        (np.ones(len(first), bool), (first, second)), (count, count)
    )
    return connected_components(joins, directed=False)[1].astype(np.int64)


def count_pairs_searched(
    queries: Images, gallery: Images, relevance: Relevance, distance: str
) -> PairCounts:
    """Counts the pairs of all queries with every image that they may retrieve.

    If queries and gallery are the same images, each pair is counted from both
    sides, which does not change any rate.
    """
    x, y = queries.embeddings, gallery.embeddings
    if distance == "cosine":
        x, y = map_rows(x, unit_rows), map_rows(y, unit_rows)
    factors = Factors.of(x, y, distance)
    positive, negative = np.zeros((2, CELLS + 1), np.int64)
    for rows in blocks(len(queries), BLOCK_SIDE):
        lhs = factors.lhs[rows].astype(np.float64, copy=False)
        positives, ignored, _ = relevance.of(rows)
        for items in blocks(len(gallery), BLOCK_SIDE):
            cells = cells_of(lhs, factors.rhs[items])
            same = _in_block(positives, items)
            is_other = queries.rows[rows, None] != gallery.rows[items]
            is_other[_in_block(ignored, items)] = False
            is_other[same] = False
            positive += np.bincount(cells[same], None, CELLS + 1)
            negative += np.bincount(cells[is_other], None, CELLS + 1)
    return PairCounts.of(positive, negative)


def _in_block(lists: Positives, items: slice) -> tuple[Rows, Rows]:
    """Queries and images of lists, within a block of the gallery."""
    inside = (lists.items >= items.start) & (lists.items < items.stop)
    return lists.owners[inside], lists.items[inside] - items.start


def quantile_positions(counts: PairCounts, number: int = 64) -> Rows:
    """Thresholds between which rates change little, ascending.

    They are quantiles of the same-class pairs, and powers of shares of both
    kinds, because small error rates matter as much as large ones. Where no
    score lies above a threshold for a while, the end of that gap is one too: in
    a gap all thresholds are equally good, and its middle is chosen.
    """
    positives, negatives = counts.positives, counts.negatives
    shares = np.linspace(0, 1, number)
    missed = 1 - np.geomspace(1 / positives, 1, number)
    powers = np.geomspace(1 / negatives, 1, number)
    positions = [
        _positions(counts.accepted_positive, shares * positives),
        _positions(counts.accepted_positive, missed * positives),
        _positions(counts.accepted_negative, powers * negatives),
        _positions(counts.accepted_negative, np.zeros(1)),
        np.array([0, CELLS]),
    ]
    unique = np.unique(np.concatenate(positions))
    accepted = counts.accepted_positive + counts.accepted_negative
    ends = _positions(accepted, accepted[unique] - 1) - 1
    return np.unique(np.concatenate([unique, ends[unique < CELLS]]))


def _positions(accepted: Rows, limits: FloatArray) -> Rows:
    """The first positions that accept at most each of `limits`."""
    return len(accepted) - np.searchsorted(accepted[::-1], limits, "right")


def _totals(tally: FloatArray) -> FloatArray:
    """Sums over the bins above each edge, (B, T), of tallies, (B, T + 1)."""
    sums: FloatArray = np.cumsum(tally[:, ::-1], axis=1)[:, ::-1]
    return sums[:, 1:]
