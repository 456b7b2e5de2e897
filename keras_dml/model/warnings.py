"""Warnings about data and embeddings without meaning, each logged once.

They concern batches without positives, pixels in another range than a model
expects, embeddings that have collapsed, and queries that find copies of
themselves. What cannot be trained at all, such as one-hot labels, is an error
of `checks`.
"""

from __future__ import annotations

import contextlib
import logging
import math
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from functools import partial
from typing import Any

import keras
import numpy as np
import numpy.typing as npt

from keras_dml.distribution.workers import (
    is_one_of_several,
    on_this_process,
)
from keras_dml.utils.lazy_rows import EmbeddingRows
from keras_dml.utils.tensorflow import tf
from keras_dml.utils.types import FloatArray, Rows
from keras_dml.utils.vectors import CHUNK, blocks, row_norms, unit_rows

logger = logging.getLogger(__name__)

_LARGEST_SCORE = 32.0
"""Standardized pixels are smaller; a photograph has some that are larger."""

_CENTERED = (-64.0, 160.0)
"""Pixels from 0 to 255 minus a mean are smaller, and none are larger."""

_MAX_IMAGES = 4096
"""Number of images that are checked."""

_STUCK_CHANGE = 1e-4
"""Relative change of a loss from one epoch to the next that is suspicious."""

_ROUNDING = 1e-5
"""Relative difference up to which embeddings count as equal: batches of other
sizes are computed in another order."""

_COPY_SHARE = 0.05
"""Share of queries with a copy in the gallery from which there is a warning."""

_COPY_NUMBERS = 2**22
"""Numbers of queries, or of the gallery, that are compared at a time."""

_PROBES = 8
"""Rows of the gallery that are compared on either side of a query's key."""

_PIXELS = (
    "Pixels of %s range from %.3g to %.3g, and the model scales pixels itself, "
    "so it %s. Pass pixels from 0 to 255."
)

_messages: ContextVar[set[str] | None] = ContextVar("messages", default=None)
_warned: weakref.WeakSet[keras.Model] = weakref.WeakSet()
"""Models that were given pixels in a wrong range."""


@contextlib.contextmanager
def warn_once(messages: set[str]) -> Iterator[None]:
    """Context in which `warn` does not repeat messages that are in `messages`.

    Within another such context, the messages of the outer one count.
    """
    outer = _messages.get()
    token = _messages.set(messages if outer is None else outer)
    try:
        yield
    finally:
        _messages.reset(token)


def warn(message: str, *values: Any, messages: set[str] | None = None) -> None:
    """Logs a kind of message, once within `warn_once` or among `messages`."""
    seen_messages = _messages.get() if messages is None else messages
    if seen_messages is None or message not in seen_messages:
        logger.warning(message, *values)
    if seen_messages is not None:
        seen_messages.add(message)


# Pixels.


def expects_bytes(model: keras.Model) -> bool:
    """Whether a model scales pixels itself and so expects 0 to 255."""
    return any(
        layer.name == "preprocessing"
        or (
            isinstance(layer, keras.layers.Rescaling)
            and 0 < np.max(np.abs(layer.scale)) <= 1 / 32
        )
        or (
            isinstance(layer, keras.layers.Normalization)
            and layer.input_mean is not None
            and np.max(np.abs(layer.input_mean)) > _LARGEST_SCORE
        )
        for layer in model._flatten_layers()
    )


def warn_of_pixels(
    images: npt.NDArray[Any], owner: str, messages: set[str] | None = None
) -> bool:
    """Warns, and returns True, if pixels, (B, H, W, C), are not 0 to 255."""
    is_pixels = images.ndim == 4 and images.shape[-1] in (1, 3)
    if not is_pixels or images.dtype.kind not in "fiu" or not images.size:
        return False
    # The first image suffices in most cases.
    if images[0].min() >= 0 and images[0].max() > 1:
        return False
    lowest, highest = float(images.min()), float(images.max())
    is_unit = _are_unit(lowest, highest)
    if not is_unit and not _are_moved(lowest, highest):
        return False
    effect = "almost nothing" if is_unit else "other images than it should"
    warn(_PIXELS, owner, lowest, highest, f"sees {effect}", messages=messages)
    return True


def _are_unit(lowest: Any, highest: Any) -> Any:
    return (lowest >= 0) & (highest > 0) & (highest <= 1)


def _are_moved(lowest: Any, highest: Any) -> Any:
    is_standardized = (lowest < 0) & (highest <= _LARGEST_SCORE)
    return is_standardized | (lowest < _CENTERED[0]) & (highest < _CENTERED[1])


def warn_model_of_pixels(model: Any, x: Any, owner: str) -> None:
    """Warns, once per model, of pixels in a range that it does not expect.

    `x` is a batch of its inputs, of any kind, that `owner` was given.
    """
    is_model = isinstance(model, keras.Model) and model not in _warned
    if not is_model or len(getattr(x, "shape", ())) != 4:
        return
    if expects_bytes(model) and warn_of_pixels(
        np.asarray(x[:_MAX_IMAGES]), owner, set()
    ):
        _warned.add(model)


def print_pixels(images: tf.Tensor, owner: str) -> tf.Operation:
    """Like `warn_of_pixels`, whenever a graph runs, to standard error."""
    lowest, highest = tf.reduce_min(images), tf.reduce_max(images)
    is_wrong = _are_unit(lowest, highest) | _are_moved(lowest, highest)
    return tf.cond(
        # Without images there is no range.
        is_wrong & (tf.size(images) > 0),
        lambda: tf.print(
            f"Pixels of {owner} range from", lowest, "to", highest,
            "and should range from 0 to 255: the embeddings are wrong.",
        ),
        tf.no_op,
    )  # fmt: skip


# Batches.


_NO_POSITIVES = (
    "No two of the %d examples in a batch have the same class, so the batch "
    "has no positive pair and teaches almost nothing. Use batches of "
    "keras_dml.data.ClassBalanced, or call model.fit(x, y) with arrays, which "
    "builds such batches."
)
_NO_NEGATIVES = (
    "All %d examples in a batch have the same class, so the batch has no "
    "negative pair and teaches nothing, or only to collapse. Shuffle the data, "
    "use larger batches, or batches of keras_dml.data.ClassBalanced with "
    "several classes."
)
_NOTHING_SHARED = (
    "No two of the %d examples in a batch share a label, so the batch has no "
    "positive pair and teaches almost nothing. Use batches of "
    "keras_dml.data.MultiLabelBalanced."
)
_NO_RELATIONS = (
    "The relations of the %d examples in a batch lack %s, which the loss "
    "needs, so the batch teaches nothing, or only to collapse. Use "
    'RelationSampler(…, others="negative"), triplets, or pairs of both kinds.'
)


def warn_of_classes(
    labels: Rows, needs_negatives: bool, messages: set[str]
) -> None:
    """Warns if a batch, (B,) class ids, has no positive or no negative pair."""
    count, classes = len(labels), len(np.unique(labels))
    if 1 < count == classes:
        warn(_NO_POSITIVES, count, messages=messages)
    elif count > 1 == classes and needs_negatives:
        warn(_NO_NEGATIVES, count, messages=messages)


def warn_of_tables(
    labels: npt.NDArray[Any], needs: Any, messages: set[str]
) -> None:
    """Warns if no label, (B, C), is shared, or a relation, (B, B), is missing.

    Labels are booleans; for the others, see `missing_relation`.
    """
    count = len(labels)
    if labels.dtype == bool:
        is_shared = np.triu(labels @ labels.T, 1).any()
        if needs.needs_positives and count > 1 and not is_shared:
            warn(_NOTHING_SHARED, count, messages=messages)
    elif missing := missing_relation(labels, needs):
        warn(_NO_RELATIONS, count, missing, messages=messages)


def missing_relation(relations: npt.NDArray[Any], needs: Any) -> str:
    """What a loss needs and a batch lacks, in words; "" if nothing.

    A relation, (B, B), is 1 for a positive pair and 0 for a negative one;
    `needs` has the `needs_…` of an objective.
    """
    off_diagonal = ~np.eye(len(relations), dtype=bool)
    positive = ((relations == 1) & off_diagonal).any(axis=1)
    negative = ((relations == 0) & off_diagonal).any(axis=1)
    if needs.needs_positives and not positive.any():
        return "a positive pair"
    if needs.needs_negatives and not negative.any():
        return "a negative pair"
    if needs.needs_triplets and not (positive & negative).any():
        return "an example with both a positive and a negative"
    return ""


def warn_of_random_batches(
    labels: Rows, batch_size: int, messages: set[str]
) -> None:
    """Warns if random batches have few positive pairs, on average."""
    counts = np.unique(labels, return_counts=True)[1].astype(float)
    total = len(labels)
    share = (counts * (counts - 1)).sum() / (total * (total - 1))
    size = min(batch_size, total)
    expected = share * size * (size - 1) / 2
    if expected < 1:
        warn(
            "Random batches of %d examples have %.2g positive pairs on "
            "average, so most of them teach almost nothing. Remove "
            "balanced=False and shuffle=False, or use larger batches.",
            batch_size,
            expected,
            messages=messages,
        )


# Collapse, and copies.


def warn_of_collapse(
    parts: Sequence[EmbeddingRows], is_cosine: bool, owner: str
) -> bool:
    """Warns, and returns True, if all embeddings are zero, or all equal.

    If `is_cosine`, their directions count. It stops at the first rows that
    differ, so it is cheap.
    """

    def read(part: EmbeddingRows, rows: slice) -> FloatArray:
        return unit_rows(part[rows]) if is_cosine else part[rows]

    count, first = sum(map(len, parts)), read(parts[0], slice(0, 1))
    limit = _ROUNDING * np.abs(first).max()
    if count < 2 or any(
        np.abs(read(part, rows) - first).max() > limit
        for part in parts
        for rows in blocks(len(part), CHUNK)
    ):
        return False
    warn(
        "All %d embeddings measured by %s are %s, so ranks are only the "
        "order of the rows, and metrics are meaningless. The model has "
        "collapsed: check whether its weights are finite, whether the loss "
        "stays at its margin, and use a lower learning rate or an easier "
        "mining.",
        count,
        owner,
        "equal" if np.any(parts[0][:1]) else "zero",
    )
    return True


class NoticeCollapse(keras.callbacks.Callback):
    """Warns, once, that training has collapsed.

    If the loss is the same in two epochs, as a triplet loss that stays at its
    margin, the training examples that `checks` have seen last are embedded.
    """

    def __init__(self, model: keras.Model, checks: Any) -> None:
        super().__init__()
        self.set_model(model)
        self.checks = checks
        self._loss = math.nan
        self._has_warned = False

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        loss, before = (logs or {}).get("loss", math.nan), self._loss
        self._loss = loss
        is_stuck = abs(loss - before) <= _STUCK_CHANGE * abs(before)
        if self._has_warned or not is_stuck or self.checks.sample is None:
            return
        embed: Callable[[Any], Any] = partial(self.model, training=False)
        if is_one_of_several():  # Each has its own sample.
            embed = on_this_process(embed, self.model.variables)
        outputs = embed(self.checks.sample)
        embeddings = keras.ops.convert_to_numpy(outputs)
        if len(embeddings) < 2 or np.ptp(embeddings, axis=0).max() > _ROUNDING:
            return
        self._has_warned = True
        logger.warning(
            "The model has collapsed: all of %d training examples have %s "
            "embedding, and the loss stays at %.4g. Check whether its weights "
            "are finite, and use a lower learning rate or an easier mining.",
            len(embeddings),
            "the same" if embeddings.any() else "a zero",
            loss,
        )


def warn_of_copies(
    queries: EmbeddingRows,
    gallery: EmbeddingRows,
    is_ignored: Callable[[Rows, Rows], npt.NDArray[np.bool_]],
    is_cosine: bool,
    owner: str,
) -> None:
    """Warns if 5 % of the queries, or more, have a copy in the gallery.

    Queries and gallery have separate rows; `is_ignored` returns which pairs of
    a query and a row of the gallery, (n,) each, do not count. Embeddings that
    several queries share are not counted, and there is no warning if most are
    shared: a model, or a code of few bits, maps different examples to one
    point there. Of more than 4 million numbers, a sample of queries, evenly
    spaced, is compared.
    """
    size, dim = len(queries), queries.shape[1]
    if is_cosine and dim < 3:
        return  # Directions in a plane are equal by chance.
    count = min(size, max(1, _COPY_NUMBERS // dim))
    rows = np.linspace(0, size - 1, count).astype(np.int64)
    x = queries[rows]

    def is_out(query: Rows, item: Rows) -> npt.NDArray[np.bool_]:
        return is_ignored(rows[query], item)

    is_copy = _have_copies(x, gallery, is_out, is_cosine)
    if is_copy.sum() < _COPY_SHARE * count:
        return
    is_shared = _have_copies(x, x, np.equal, is_cosine)
    copies = int((is_copy & ~is_shared).sum())
    if copies < max(_COPY_SHARE * count, is_shared.sum()):
        return
    warn(
        "%d of %d %squeries of %s (%.1f %%) stand in the gallery, too: an "
        "embedding there equals theirs, so they find themselves first, and "
        "recall@1 and other metrics are too high. Leave them out of the "
        "gallery or of the queries. To search a set among itself, omit "
        "`gallery`; to search it for some of its rows, use "
        "protocol=Protocol(queries=rows).",
        copies,
        count,
        "sampled " if count < size else "",
        owner,
        100 * copies / count,
    )


def _have_copies(
    x: FloatArray,
    gallery: EmbeddingRows,
    is_ignored: Callable[[Rows, Rows], npt.NDArray[np.bool_]],
    is_cosine: bool,
) -> npt.NDArray[np.bool_]:
    """Whether queries, (Q, D), have an equal row in the gallery, (Q,)."""
    # Equal rows are next to each other on any axis, and few others are near
    # on two. So hardly any row is compared as a whole.
    axes = unit_rows(np.random.default_rng(0).normal(size=(2, x.shape[1]))).T
    keys, norms = _keys(x, axes, is_cosine)
    limits = _ROUNDING * (np.ones(len(x)) if is_cosine else norms)
    has_copy = np.zeros(len(x), bool)
    for rows in blocks(len(gallery), max(1, _COPY_NUMBERS // x.shape[1])):
        y = gallery[rows]
        gallery_keys = _keys(y, axes, is_cosine)[0]
        order = np.argsort(gallery_keys[:, 0])
        gallery_keys = gallery_keys[order]
        first, middle, end = (
            np.searchsorted(gallery_keys[:, 0], keys[:, 0] + gap)
            for gap in (-limits, 0, limits)
        )
        place = np.maximum(first, middle - _PROBES)
        end = np.minimum(end, middle + _PROBES)
        while len(rest := np.flatnonzero((place < end) & ~has_copy)):
            near = place[rest]
            place[rest] += 1
            gaps = np.abs(gallery_keys[near, 1] - keys[rest, 1])
            is_near = gaps <= limits[rest]
            which, near = rest[is_near], near[is_near]
            items = order[near]
            whole = x[which], y[items]
            if is_cosine:
                whole = unit_rows(whole[0]), unit_rows(whole[1])
            gaps = row_norms(np.subtract(*whole, dtype=np.float64))
            is_equal = gaps <= limits[which]
            is_equal &= ~is_ignored(which, items + rows.start)
            has_copy[which[is_equal]] = True
    return has_copy


def _keys(
    x: FloatArray, axes: FloatArray, is_cosine: bool
) -> tuple[FloatArray, FloatArray]:
    """Coordinates on two axes, (N, 2), of x or its directions; norms, (N,)."""
    with np.errstate(all="ignore"):
        norms = np.linalg.norm(x, axis=1)
        # Squares of very large or very small numbers leave the range.
        if not 1e-15 < norms.min() <= norms.max() < 1e15:
            norms = row_norms(x)
        keys = x @ axes
        return (keys / norms[:, None] if is_cosine else keys), norms
