"""The signatures of a served model, and the SavedModel that has them."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from keras_dml.data import View
from keras_dml.export.files import OK, load_files
from keras_dml.export.gallery import Gallery
from keras_dml.export.neighbors import Neighbors
from keras_dml.utils.types import Tensor

PIXELS, ENCODED, LOOKUP = "serving_default", "encoded", "lookup"


@dataclass(frozen=True)
class Search:
    """What "lookup" searches in, and for what.

    Attributes:
        gallery: The gallery.
        k: Neighbors an image.
        threshold: Cosine from which on they match; None: all do.
    """

    gallery: Gallery
    k: int
    threshold: float | None


@dataclass(frozen=True)
class Served:
    """What a SavedModel is made of.

    Attributes:
        model: The model.
        view: What it sees of an image.
        input_dtype: Pixels that "serving_default" takes.
        search: What "lookup" does; None: there is no such signature.
    """

    model: keras.Model
    view: View
    input_dtype: str
    search: Search | None

    @property
    def signatures(self) -> tuple[str, ...]:
        """Their names."""
        names = (PIXELS, ENCODED)
        return names if self.search is None else (*names, LOOKUP)


def embed(model: keras.Model, seen: Tensor) -> Tensor:
    """Embeddings of views as an export gives them, (B, D) float32."""
    return tf.cast(model(seen, training=False), "float32")


def write_saved_model(served: Served, folder: Path) -> None:
    """Writes a SavedModel with the signatures that `export` describes.

    Raises:
        OSError: If it cannot be written.
    """
    # Endpoints bring the variables that they use, and only those. To
    # track the model would ship the weights of its objective too.
    archive = keras.export.ExportArchive()
    view = served.view
    pixels = (None, None, None, view.channels)
    files = tf.TensorSpec((None,), "string", name="images")
    embed_seen = _embed_function(served.model, view)
    embed_files = _embed_files_function(embed_seen, view)
    archive.add_endpoint(
        PIXELS,
        lambda images: {"embedding": embed_seen(_viewed(images, view))},
        [tf.TensorSpec(pixels, served.input_dtype, name="images")],
    )
    archive.add_endpoint(
        ENCODED,
        lambda images: _spread_embeddings(*embed_files(images)),
        [files],
    )
    if served.search is not None:
        find = _Lookup(served.search)
        archive.add_endpoint(
            LOOKUP, lambda images: find(*embed_files(images)), [files]
        )
    try:
        archive.write_out(str(folder), verbose=False)
    except tf.errors.OpError as error:
        raise OSError(f"The export cannot be written: {error}") from error


def _embed_function(
    model: keras.Model, view: View
) -> Callable[[Tensor], Tensor]:
    shape = (None, *view.size, view.channels)

    # A function, so that the endpoints share one graph of the model.
    @tf.function(
        input_signature=[tf.TensorSpec(shape, "float32")], autograph=False
    )
    def embed_seen(seen: Tensor) -> Tensor:
        # Not every layer takes a batch of nothing.
        count = tf.shape(seen)[0]
        return embed(model, _pad_empty(seen, (1, 0, 0, 0)))[:count]

    return embed_seen


def _embed_files_function(
    embed_seen: Callable[[Tensor], Tensor], view: View
) -> Callable[[Tensor], Any]:
    @tf.function(
        input_signature=[tf.TensorSpec((None,), "string")], autograph=False
    )
    def embed_files(files: Tensor) -> tuple[Tensor, Tensor]:
        """Statuses, (B,), and embeddings of those that are "ok"."""
        status, seen = load_files(files, view)
        return status, embed_seen(tf.boolean_mask(seen, status == OK))

    return embed_files


def _viewed(images: Tensor, view: View) -> Tensor:
    # Resizing takes at least one image, of at least one pixel.
    count = tf.shape(images)[0]
    return view.apply(_pad_empty(images, (1, 1, 1, 0)))[:count]


def _pad_empty(x: Tensor, amounts: tuple[int, ...]) -> Tensor:
    """Adds zeros at the end of each axis of a batch of nothing."""
    is_empty = tf.cast(tf.shape(x)[0] == 0, "int32")
    padded = tf.pad(x, [[0, is_empty * amount] for amount in amounts])
    return tf.ensure_shape(padded, x.shape)


class _Lookup:
    def __init__(self, search: Search) -> None:
        self._neighbors = Neighbors(search.gallery.embeddings, search.k)
        self._threshold = search.threshold
        with tf.device("CPU:0"):
            self._ids = tf.Variable(search.gallery.ids, trainable=False)
            self._labels = tf.Variable(search.gallery.labels, trainable=False)

    def __call__(self, status: Tensor, embeddings: Tensor) -> dict[str, Tensor]:
        # An overflow in half precision has no neighbors, but the other
        # images of the batch have.
        is_finite = tf.reduce_all(tf.math.is_finite(embeddings), axis=1)
        rows, scores = self._neighbors(tf.boolean_mask(embeddings, is_finite))
        found = _spread(is_finite, False, status == OK)
        above = tf.ones_like(scores, "bool")
        if self._threshold is not None:
            above = scores >= self._threshold
        return {
            "ids": _spread(tf.gather(self._ids, rows), _none(self._ids), found),
            "labels": _spread(
                tf.gather(self._labels, rows), _none(self._labels), found
            ),
            "scores": _spread(scores, 0.0, found),
            "above_threshold": _spread(above, False, found),
            "status": status,
        }


def _none(column: Tensor) -> int | str:
    """The id or label of no neighbor."""
    return "" if column.dtype == tf.string else -1


def _spread_embeddings(status: Tensor, embeddings: Tensor) -> dict[str, Tensor]:
    return {
        "embedding": _spread(embeddings, 0.0, status == OK),
        "status": status,
    }


def _spread(rows: Tensor, filler: Any, where: Tensor) -> Tensor:
    """Rows at the places where there is one, and a filler elsewhere.

    Args:
        rows: (n, …), one for each true value.
        filler: What each number of a row is elsewhere.
        where: (B,) booleans, n of which are true.

    Returns:
        (B, …).
    """
    filler_row = tf.fill(tf.shape(rows)[1:], tf.constant(filler, rows.dtype))
    with_filler = tf.concat([rows, filler_row[None]], axis=0)
    place = tf.cumsum(tf.cast(where, "int32"), exclusive=True)
    return tf.gather(with_filler, tf.where(where, place, tf.shape(rows)[0]))
