"""Searches: what is found in an index, and from which score on it matches."""

from typing import Any

import numpy as np

from keras_dml.evaluation.verification import Threshold, calibrate
from keras_dml.search.contents import Contents
from keras_dml.search.filters import Where
from keras_dml.search.hits import NONE, Hits, padded, without
from keras_dml.utils.arguments import check_count
from keras_dml.utils.types import FloatArray, Rows


class Searches(Contents):
    """What searches an index, and calibrates what counts as a match.

    Attributes:
        threshold: From which score on two images are of one class; None
            before it is calibrated.
    """

    threshold: Threshold | None = None

    def search(
        self,
        queries: Any,
        k: int = 10,
        *,
        where: Where | None = None,
        exclude: Any = None,
        threshold: float | None = None,
        batch_size: int = 256,
    ) -> Hits:
        """The k most similar images of each query.

        Args:
            queries: Embeddings, (Q, D) or (D,); examples, as an `ImageSet`
                or `ArraySet`; or images: paths, files as bytes, PIL images,
                uint8 pixels, (H, W), (H, W, C) or (Q, H, W, C), or such
                pixels as numbers in 0 to 255, which are rounded; one or a
                list of them.
            k: How many; there are fewer where the gallery has fewer.
            where: Which rows to search. Values that columns must have:
                `{"name": "crow"}`, or `{"label": [3, 4]}` for any of
                several; comparisons: `{"price": {">=": 10, "<": 20}}`, by
                ==, !=, <, <=, > and >=; or a function from columns, as
                arrays, to a mask, (N,) booleans in the order of `ids`; or
                the mask. Several columns must all fit. None is equal to
                None and unequal to all else, and in no order with anything.
            exclude: Key of a row that each query must not find, (Q,): its
                own. One that is not there excludes nothing.
            threshold: The score from which a hit is a match; by default
                that of `calibrate`, if there is one.
            batch_size: Images embedded at a time.

        Raises:
            ValueError: If queries are not finite, zero or of another
                dimension, if there is no model for images, or if another
                argument is not as described.
        """
        k = check_count("Index.search", "k", k)
        threshold = self._threshold(threshold, "Index.search")
        x = self._embeddings(queries, "queries", "Index.search", batch_size)
        has_own = exclude is not None
        scores, ids = self._gallery.nearest(x.array, k + has_own, where)
        if has_own:
            own = self._own(exclude, len(ids), "Index.search")
            scores, ids = without(own, scores, ids)
        return self._hits(scores, ids, threshold)

    def range_search(
        self,
        queries: Any,
        threshold: float | None = None,
        *,
        where: Where | None = None,
        exclude: Any = None,
        batch_size: int = 256,
    ) -> Hits:
        """All images that reach a threshold, for each query.

        Every vector is compared, whatever the kind of index: none is missed,
        and scores are those of the vectors as they are kept. Hits take memory
        for as many as the query with most of them has.

        Args:
            queries: As for `search`.
            threshold: The least score; by default that of `calibrate`.
            where, exclude, batch_size: As for `search`.

        Raises:
            ValueError: As for `search`, if there is no threshold, or if
                this kind of index cannot be searched so.
        """
        owner = "Index.range_search"
        threshold = self._threshold(threshold, owner)
        if threshold is None:
            raise ValueError(
                f"`threshold` of {owner} must be a score. Received: None, for "
                "an index that is not calibrated. Give one, or calibrate the "
                "index."
            )
        x = self._embeddings(queries, "queries", owner, batch_size).array
        which, scores, ids = self._gallery.above(x, threshold, where)
        if exclude is not None:
            kept = ids != self._own(exclude, len(x), owner)[which]
            which, scores, ids = which[kept], scores[kept], ids[kept]
        return self._hits(*padded(len(x), which, scores, ids), threshold)

    def calibrate(
        self,
        images: Any,
        labels: Any = None,
        criterion: str = "eer",
        *,
        batch_size: int = 256,
        **options: Any,
    ) -> Threshold:
        """Calibrates the score from which two images are of one class.

        It is a score by the metric of the index: of "euclidean", the negative
        of a distance.

        Args:
            images: Of classes that the model was not trained on: an
                `ImageSet`, or embeddings, (N, D).
            labels: Their classes, (N,); by default those of the set.
            criterion: See `keras_dml.search.calibrate`.
            batch_size: Images embedded at a time.
            **options: Further arguments of `keras_dml.search.calibrate`.

        Returns:
            The threshold, which is also kept and saved.
        """
        owner = "Index.calibrate"
        if labels is None:
            labels = getattr(images, "labels", None)
        if labels is None:
            raise ValueError(
                f"`labels` of {owner} must be given, or `images` be a set "
                f"that has them. Received: images of {type(images).__name__}, "
                "labels=None."
            )
        x = self._embeddings(images, "images", owner, batch_size).array
        self.threshold = calibrate(
            x, labels, criterion, distance=self.metric, **options
        )
        self._gallery.keep_threshold(self.threshold)
        return self.threshold

    def _own(self, exclude: Any, count: int, owner: str) -> Rows:
        """The id of each query's own row; of none where it is not there."""
        found = self._gallery.find(exclude, owner, "exclude")
        if len(found) != count:
            raise ValueError(
                f"`exclude` of {owner} must be one id for each query, or one "
                f"key. Received: {len(found)} for {count} queries."
            )
        return np.array([NONE - 1 if x is None else x for x in found], np.int64)

    def _threshold(self, given: Any, owner: str) -> float | None:
        """The score that is given, or that of `calibrate`."""
        if given is None:
            return None if self.threshold is None else self.threshold.value
        is_number = isinstance(given, int | float | np.integer | np.floating)
        if not is_number or isinstance(given, bool) or given != given:
            raise ValueError(
                f"`threshold` of {owner} must be a score, a number. Received: "
                f"threshold={given!r}."
            )
        return float(given)

    def _hits(
        self, scores: FloatArray, ids: Rows, threshold: float | None
    ) -> Hits:
        table = self._gallery.table(np.unique(ids[ids != NONE]))
        return Hits(scores, ids, table, threshold, self.metric)
