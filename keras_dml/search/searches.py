"""Searches: finding rows of an index, and calibrating what is a match."""

from typing import Any

import numpy as np

from keras_dml.evaluation.verification import Threshold, calibrate
from keras_dml.search.contents import Contents
from keras_dml.search.filters import Where
from keras_dml.search.hits import NONE, Hits, padded, without
from keras_dml.utils.arguments import check_count
from keras_dml.utils.types import FloatArray, Rows


class Searches(Contents):
    """Methods that search an index and calibrate what counts as a match.

    Attributes:
        threshold: The score from which two images count as the same class; None
            until the index is calibrated.
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
        """Finds the k most similar images for each query.

        Args:
            queries: Embeddings, (Q, D) or (D,); examples, such as an `ImageSet`
                or `ArraySet`; or one image or a list of images: paths, encoded
                files as bytes, PIL images, or pixels, (H, W), (H, W, C) or (Q,
                H, W, C), as uint8 or as numbers from 0 to 255, which are
                rounded.
            k: Number of images to find. Fewer are returned if the gallery is
                smaller.
            where: The rows to search among, as conditions by column. A value
                that a column must have: `{"name": "crow"}`; one of several
                values: `{"label": [3, 4]}`; or comparisons by ==, !=, <, <=, >
                and >=: `{"price": {">=": 10, "<": 20}}`. Rows must fulfil the
                conditions on all columns. None equals None and nothing else,
                and never fulfils <, <=, > or >=. Instead of conditions, a mask,
                (N,) booleans in the order of `ids`, or a function that maps
                columns, as arrays, to a mask.
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
        """Calibrates the score from which two images count as the same class.

        The score is in the metric of the index; for "euclidean" it is a
        negative distance.

        Args:
            images: Images of classes that the model was not trained on: an
                `ImageSet`, or embeddings, (N, D).
            labels: Their classes, (N,); by default, the labels of the set.
            criterion: See `keras_dml.search.calibrate`.
            batch_size: Number of images embedded at a time.
            **options: Further arguments for `keras_dml.search.calibrate`.

        Returns:
            The threshold. The index keeps it and saves it, too.
        """
        owner = "Index.calibrate"
        if labels is None:
            labels = getattr(images, "labels", None)
        if labels is None:
            raise ValueError(
                f"`labels` of {owner} must be given unless `images` is a set "
                f"with labels. Received: images of {type(images).__name__}, "
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
                f"`exclude` of {owner} must be one key, or one key per query. "
                f"Received: {len(found)} keys for {count} queries."
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
