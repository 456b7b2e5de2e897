"""Searches: finding rows of an index, and calibrating what is a match."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from keras_dml.evaluation.identification import (
    DEFAULT,
    AnyThreshold,
    IdentificationThreshold,
    parse_rate,
)
from keras_dml.evaluation.verification import calibrate
from keras_dml.search.contents import Contents
from keras_dml.search.filters import Where, by_condition
from keras_dml.search.hits import NONE, Hits, padded, without_self
from keras_dml.search.identification import calibrate_search
from keras_dml.utils.arguments import check_count
from keras_dml.utils.types import FloatArray, Rows

logger = logging.getLogger(__name__)


MOST = 2**20
"""Hits of a query that may be asked for whatever the size of the gallery."""


class Searches(Contents):
    """Methods that search an index and calibrate what counts as a match."""

    threshold: AnyThreshold | None = None
    _has_warned = False

    def search(
        self,
        queries: Any,
        k: int = 10,
        *,
        where: Where | Sequence[Mapping[str, Any] | None] | None = None,
        exclude: Any = None,
        threshold: float | None = None,
        batch_size: int = 256,
    ) -> Hits:
        """Finds the k most similar images for each query.

        Args:
            queries: Embeddings, (Q, D) or (D,); examples, such as an `ImageSet`
                or `ArraySet`; or one image or a list of images: paths, encoded
                files as bytes, PIL images, or pixels, (H, W), (H, W, C) or (Q,
                H, W, C), as uint8 or as numbers from 0 to 255, which are
                rounded.
            k: Number of images to find, at most 2²⁰ or the size of the gallery.
                Fewer are returned if the gallery is smaller.
            where: The rows to search among, as conditions by column. A value
                that a column must have: `{"name": "crow"}`; one of several
                values: `{"label": [3, 4]}`; or comparisons by ==, !=, "in",
                "not in", <, <=, > and >=: `{"price": {">=": 10, "<": 20}}`; or,
                in lists, "contains": `{"tags": {"contains": "red"}}`, which
                also takes several values, of which one must be there. Dates
                compare with dates. Rows must fulfill the conditions on all
                columns. None equals None and nothing else, and never fulfills
                <, <=, > or >=. Instead of conditions, a mask, (N,) booleans in
                the order of `ids`, or a function that maps columns, as arrays,
                to a mask. A list of Q conditions has one for each query, None
                for no condition.
            exclude: For each query, the key of a row that it must not find,
                usually its own, (Q,). Keys that do not exist exclude nothing.
            threshold: The score from which a hit counts as a match; by default,
                the calibrated one, if any.
            batch_size: Number of images embedded at a time.

        Raises:
            ValueError: If queries are zero, not finite or of the wrong
                dimension, if they are images but there is no model, or if
                another argument is invalid.
        """
        owner = "Index.search"
        k = check_count(owner, "k", k)
        if k > MOST and k > len(self):
            raise ValueError(
                f"`k` of {owner} must be at most {MOST:,}, or the size of the "
                f"gallery, {len(self):,}, where that is larger. Received: "
                f"k={k}. Use k=len(index) for all rows."
            )
        threshold = self._threshold(threshold, owner)
        x = self._embeddings(queries, "queries", owner, batch_size)
        k += exclude is not None
        scores = np.empty((len(x), k), np.float32)
        ids = np.empty((len(x), k), np.int64)
        for rows, condition in by_condition(where, len(x), owner):
            hits = self._gallery.nearest(x.array[rows], k, condition)
            scores[rows], ids[rows] = hits
        if exclude is not None:
            self_ids = self._self_ids(exclude, len(ids), owner)
            scores, ids = without_self(self_ids, scores, ids)
        return self._hits(scores, ids, threshold)

    def range_search(
        self,
        queries: Any,
        threshold: float | None = None,
        *,
        where: Where | Sequence[Mapping[str, Any] | None] | None = None,
        exclude: Any = None,
        batch_size: int = 256,
    ) -> Hits:
        """Finds all images that reach a threshold, for each query.

        Every vector is compared, whatever the kind of index, so none is missed.
        Scores are computed from the vectors as they are stored. Each query
        takes up as much memory as the one with the most hits.

        Args:
            queries: As for `search`.
            threshold: The lowest score to return; by default, the calibrated
                one.
            where, exclude, batch_size: As for `search`.

        Raises:
            ValueError: As for `search`, or if there is no threshold, or if this
                kind of index does not support range search.
        """
        owner = "Index.range_search"
        threshold = self._threshold(threshold, owner)
        if threshold is None:
            raise ValueError(
                f"`threshold` of {owner} must be a score. Received: None, for "
                "an index that is not calibrated. Use a score, or "
                "Index.calibrate."
            )
        x = self._embeddings(queries, "queries", owner, batch_size).array
        parts = []
        for rows, condition in by_condition(where, len(x), owner):
            which, scores, ids = self._gallery.above(
                x[rows], threshold, condition
            )
            parts.append((np.arange(len(x))[rows][which], scores, ids))
        which, scores, ids = map(np.concatenate, zip(*parts, strict=True))
        order = np.argsort(which, kind="stable")
        which, scores, ids = which[order], scores[order], ids[order]
        if exclude is not None:
            is_other = ids != self._self_ids(exclude, len(x), owner)[which]
            which, scores, ids = (
                which[is_other],
                scores[is_other],
                ids[is_other],
            )
        return self._hits(*padded(len(x), which, scores, ids), threshold)

    def calibrate(
        self,
        images: Any,
        labels: Any = None,
        criterion: str = DEFAULT,
        *,
        batch_size: int = 256,
        **options: Any,
    ) -> AnyThreshold:
        """Calibrates the score from which a hit counts as a match.

        By default the rate that is asked for is one of searches (1:N): the
        share of queries whose class is not in the gallery that get a match, the
        false positive identification rate. Each image is searched in this
        gallery, so that the rate is one at its size, without rows of its own
        class ("name" or else "label") and without exact copies. A gallery
        without these columns must not hold classes of `images`. All classes
        count alike. The rate is then measured on classes that the threshold
        was not chosen on, with an interval by a bootstrap over classes; so is
        the share of the gallery's own images, at most 1,000, whose nearest
        other row is a match of the same class.

        The score is in the metric of the index; for "euclidean" it is a
        negative distance.

        Args:
            images: Images of classes that the model was not trained on, best
                of 20 classes and more: an `ImageSet`, or embeddings, (N, D).
            labels: Their classes, (N,); by default, the labels of the set.
            criterion: "fpir=0.01" for that share of queries; or, for comparing
                pairs of images (1:1), "eer", "f1" or "fpr=0.01": see
                `keras_dml.search.calibrate`.
            batch_size: Number of images embedded at a time.
            **options: `confidence`, `num_resamples`, `seed` and `progress`, as
                for `keras_dml.search.calibrate`.

        Returns:
            The threshold. The index keeps it and saves it, too.

        Raises:
            ValueError: If there are fewer than two classes, the gallery is
                empty, or an argument is not as described.

        Reference:
            ISO/IEC 19795-1:2021, "Biometric performance testing and
            reporting", false-positive identification-error rate.
        """
        owner = "Index.calibrate"
        rate = parse_rate(criterion)
        names = {} if labels is not None else getattr(images, "names", {})
        if labels is None:
            labels = getattr(images, "labels", None)
        if labels is None:
            raise ValueError(
                f"`labels` of {owner} must be given unless `images` is a set "
                f"with labels. Received: images of {type(images).__name__}, "
                "labels=None."
            )
        x = self._embeddings(images, "images", owner, batch_size).array
        self.threshold = (
            calibrate(x, labels, criterion, distance=self.metric, **options)
            if rate is None
            else calibrate_search(
                self._gallery, x, labels, names, criterion, rate, **options
            )
        )
        self._has_warned = False
        return self.threshold

    def _self_ids(self, exclude: Any, count: int, owner: str) -> Rows:
        """The id of each query's own row; one of no row where it is missing."""
        ids = self._gallery.rows.find(exclude, owner, "exclude")
        if len(ids) != count:
            raise ValueError(
                f"`exclude` of {owner} must be one key, or one key per query. "
                f"Received: {len(ids)} keys for {count} queries."
            )
        return np.array([NONE - 1 if x is None else x for x in ids], np.int64)

    def _threshold(self, given: Any, owner: str) -> float | None:
        """The score that is given, or that of `calibrate`."""
        if given is None:
            self._check_size()
            return None if self.threshold is None else self.threshold.value
        is_number = isinstance(given, int | float | np.integer | np.floating)
        if not is_number or isinstance(given, bool) or given != given:
            raise ValueError(
                f"`threshold` of {owner} must be a score, a number. Received: "
                f"threshold={given!r}."
            )
        return float(given)

    def _check_size(self) -> None:
        """Warns once if the threshold is one of a gallery of another size."""
        known = self.threshold
        if not isinstance(known, IdentificationThreshold) or self._has_warned:
            return
        rows = len(self)
        if 2 * abs(rows - known.gallery_rows) > known.gallery_rows:
            self._has_warned = True
            logger.warning(
                "The threshold of this Index was calibrated with %s rows, and "
                "it has %s now: %s of the queries without a class in it get a "
                "match. Use Index.calibrate again.",
                f"{known.gallery_rows:,}",
                f"{rows:,}",
                "more" if rows > known.gallery_rows else "fewer",
            )

    def _hits(
        self, scores: FloatArray, ids: Rows, threshold: float | None
    ) -> Hits:
        known = self.threshold
        is_own = known is not None and known.value == threshold
        meaning = known.meaning if known is not None and is_own else ""
        rows = self._gallery.rows
        return Hits(scores, ids, rows, threshold, self.metric, meaning)
