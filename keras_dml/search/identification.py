"""Calibration of searches (1:N) in a gallery of the given size."""

import logging
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keras_dml.evaluation.confidence import FEWEST_CLASSES, percentiles
from keras_dml.evaluation.identification import IdentificationThreshold, OpenSet
from keras_dml.evaluation.label_sets import as_class_ids
from keras_dml.evaluation.verification import percent
from keras_dml.search.engine import BLOCK_SCORES, NO_ID, Engine
from keras_dml.search.rows import LABEL, NAME, RowTable
from keras_dml.utils.arguments import check_count, check_type
from keras_dml.utils.types import FloatArray, Fraction, Rows
from keras_dml.utils.vectors import blocks

logger = logging.getLogger(__name__)

_RELIABLE_CLASSES = 20
"""Number of calibration classes from which a rate of new ones is reliable."""

WAYS_OUT = (
    "Use images of other classes of the same kind, for instance of products "
    "of another shop, which need not be in the gallery; or leave this out, and "
    "choose a score between those of pictures that are in the gallery and of "
    "some that are not:"
)
"""Advice for too few calibration classes."""

_MAX_QUERIES = 1000
"""Maximum number of the gallery's rows that are used as queries."""


def calibrate_search(
    engine: Engine,
    table: RowTable,
    queries: FloatArray,
    labels: Any,
    names: Mapping[int, str],
    criterion: str,
    rate: float,
    *,
    confidence: float = 0.95,
    num_resamples: int = 1000,
    seed: int = 0,
    progress: bool | None = None,
) -> IdentificationThreshold:
    """Chooses and measures the threshold of searches; see `Index.calibrate`.

    Queries are as vectors are compared, (Q, D), with labels, (Q,), of which
    `names` are the names. The criterion is "fpir=RATE", with this `rate`.
    `progress` is not used: searches take as long as others.
    """
    owner = "Index.calibrate"
    check_type(owner, "confidence", confidence, Fraction)
    check_count(owner, "num_resamples", num_resamples, minimum=0)
    classes = as_class_ids([labels], [len(queries)], ["labels"], owner)
    rows = ClassRows(engine, table, labels, names)
    best, _ = rows.nearest(queries, classes[0][0])
    is_usable = best > -np.inf
    best = best[is_usable]
    sample = OpenSet(best, classes[0][0][is_usable], rate)
    count = sample.num_classes
    if count < FEWEST_CLASSES:
        raise ValueError(
            f"`images` of {owner} must have at least {FEWEST_CLASSES} classes, "
            "better 20, with an image that a row of another class can match. "
            f"Received: {count} of them, for {len(table):,} rows. "
            f"{WAYS_OUT} search(…, threshold=0.6)."
        )
    value = sample.threshold(np.ones(count))
    rates = sample.held_out_rates(seed)
    ends: list[Any] = [(None, None)] * 2
    if num_resamples:
        estimates = value, float(rates.mean())
        samples = sample.resample(num_resamples, seed)
        ends = [
            percentiles(*each, confidence) or (None, None)
            for each in zip(samples, estimates, strict=True)
        ]
    if count < _RELIABLE_CLASSES or len(best) * rate < 1:
        logger.warning(
            "Index.calibrate has %d classes with %d images, which hardly tell "
            "a share of %s of queries: %s, and the "
            "true rate may be several times as high. Use at least %d classes "
            "and %d images for criterion=%r.",
            count,
            len(best),
            percent(rate),
            "there is no interval"
            if ends[0] == (None, None)
            else "the interval is too narrow",
            _RELIABLE_CLASSES,
            int(np.ceil(1 / rate)),
            criterion,
        )
    scores, is_right = rows.within(seed)
    hits = is_right & (scores >= value)
    return IdentificationThreshold(
        value=value,
        low=ends[0][0],
        high=ends[0][1],
        criterion=criterion,
        false_positive_identification_rate=float(rates.mean()),
        false_positive_low=ends[1][0],
        false_positive_high=ends[1][1],
        true_positive_identification_rate=(
            float(hits.mean()) if len(hits) else None
        ),
        num_true_positive_queries=len(hits),
        gallery_rows=len(table),
        confidence=confidence,
        num_resamples=num_resamples,
        num_images=len(best),
        num_classes=count,
        distance=engine.metric.name,
    )


class ClassRows:
    """The rows of a gallery by class; nearest rows, except excluded ones.

    Queries have `labels`, (Q,), integers or text, with these `names`, if any.
    """

    def __init__(
        self,
        engine: Engine,
        table: RowTable,
        labels: Any,
        names: Mapping[int, str],
    ) -> None:
        self._engine, self._ids = engine, table.ids
        labels = np.asarray(labels)
        by_name = bool(names) or labels.dtype.kind in "UO"
        column = NAME if by_name and NAME in table.columns else LABEL
        self._values = labels.tolist()
        if column == NAME:
            self._values = [names.get(x, x) for x in self._values]
        values = table.columns.get(column, [])
        self._of_class: dict[Any, list[int]] = defaultdict(list)
        for row_id, value in zip(self._ids.tolist(), values, strict=False):
            # With several labels per row, they are a list.
            for each in value if isinstance(value, list) else [value]:
                self._of_class[each].append(row_id)

    def nearest(
        self, queries: FloatArray, classes: Rows
    ) -> tuple[FloatArray, Rows]:
        """Scores and ids, (Q,), of the nearest rows of other classes; -inf, -1.

        Queries are (Q, D), with the numbers of their classes, (Q,); copies of a
        query do not count.
        """
        ids_of_class = {
            classes[i]: self._of_class.get(value, [])
            for i, value in enumerate(self._values)
        }

        def is_excluded(rows: Rows, scores: FloatArray, ids: Rows) -> Any:
            mask = self._engine.metric.are_copies(queries[rows], scores)
            for number in np.unique(classes[rows]):
                if same_class := ids_of_class[number]:
                    queries_of_class = classes[rows] == number
                    mask[queries_of_class] |= np.isin(
                        ids[queries_of_class], same_class
                    )
            return mask

        return self._first(queries, is_excluded)

    def within(self, seed: int) -> tuple[FloatArray, NDArray[np.bool_]]:
        """Scores of the nearest other rows, (n,), and whether classes agree.

        At most 1,000 rows are drawn from classes with several rows.
        """
        class_of = {
            row_id: value
            for value, ids in self._of_class.items()
            if len(ids) > 1 and value is not None
            for row_id in ids
        }
        ids = np.sort(np.array(list(class_of), np.int64))
        if len(ids) > _MAX_QUERIES:
            rng = np.random.default_rng(seed)
            ids = np.sort(rng.choice(ids, _MAX_QUERIES, replace=False))
        try:
            queries = self._engine.fetch(ids)
        except ValueError:  # Some kinds of index do not return vectors.
            ids = ids[:0]
        if not len(ids):
            return np.empty(0), np.empty(0, bool)
        scores, hits = self._first(
            queries, lambda rows, _, hits: hits == ids[rows, None]
        )
        members = {value: set(rows) for value, rows in self._of_class.items()}
        is_right = [
            hit in members[class_of[row_id]]
            for row_id, hit in zip(ids.tolist(), hits.tolist(), strict=True)
        ]
        return scores, np.array(is_right)

    def _first(
        self, queries: FloatArray, is_excluded: Callable[..., Any]
    ) -> tuple[FloatArray, Rows]:
        """The nearest row that is not excluded; widens the search as needed."""
        scores = np.full(len(queries), -np.inf, np.float32)
        ids = np.full(len(queries), NO_ID)
        rows, k = np.arange(len(queries)), min(8, len(self._ids))
        while len(rows) and k:
            again = []
            for part in blocks(len(rows), max(1, BLOCK_SCORES // k)):
                its = rows[part]
                near, hits = self._engine.search(queries[its], k)
                is_allowed = ~is_excluded(its, near, hits) & (hits != NO_ID)
                position = np.arange(len(its)), is_allowed.argmax(axis=1)
                has_hit = is_allowed[position]
                scores[its[has_hit]] = near[position][has_hit]
                ids[its[has_hit]] = hits[position][has_hit]
                again.append(its[~has_hit])
            if k == len(self._ids):
                break
            rows, k = np.concatenate(again), min(4 * k, len(self._ids))
        return scores, ids
