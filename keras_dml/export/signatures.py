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
class Served:
    """What a SavedModel is made of.

    Attributes:
        model: The model.
        view: What it sees of an image.
        input_dtype: Pixels that "serving_default" takes.
        gallery: What "lookup" searches in; None: there is no such signature.
        k: Neighbors that it finds for an image.
    """

    model: keras.Model
    view: View
    input_dtype: str
    gallery: Gallery | None
    k: int

    @property
    def signatures(self) -> tuple[str, ...]:
        """Their names."""
        names = (PIXELS, ENCODED)
        return names if self.gallery is None else (*names, LOOKUP)


def embed(model: keras.Model, seen: Tensor) -> Tensor:
    """Embeddings of views as an export gives them, (B, D) float32."""
    return tf.cast(model(seen, training=False), "float32")


def write_saved_model(served: Served, folder: Path) -> None:
    """Writes a SavedModel with the signatures that `export_model` describes."""
    # Endpoints bring the variables that they use, and only those. To
    # track the model would ship the weights of its objective too.
    archive = keras.export.ExportArchive()
    view = served.view
    pixels = (None, None, None, view.channels)
    files = tf.TensorSpec((None,), "string", name="images")
    embed_seen, embed_files = _shared_functions(served.model, view)

    def serve_pixels(images: Tensor) -> dict[str, Tensor]:
        # Resizing takes at least one image, of at least one pixel.
        seen = view.apply(_pad_empty(images, (1, 1, 1, 0)))
        return {"embedding": embed_seen(seen[: tf.shape(images)[0]])}

    def serve_encoded(images: Tensor) -> dict[str, Tensor]:
        status, found = embed_files(images)
        embedding = _spread(found, 0.0, status == OK)
        return {"embedding": embedding, "status": status}

    specs = [tf.TensorSpec(pixels, served.input_dtype, name="images")]
    archive.add_endpoint(PIXELS, serve_pixels, specs)
    archive.add_endpoint(ENCODED, serve_encoded, [files])
    if served.gallery is not None:
        find = Lookup(served.gallery, served.k)
        archive.add_endpoint(
            LOOKUP, lambda images: find(*embed_files(images)), [files]
        )
    try:
        archive.write_out(str(folder), verbose=False)
    except tf.errors.OpError as error:
        raise OSError(f"The export cannot be written: {error}") from error


def _shared_functions(
    model: keras.Model, view: View
) -> tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Any]]:
    """Of views, and of files: the endpoints share one graph of the model."""
    shape = (None, *view.size, view.channels)

    @tf.function(
        input_signature=[tf.TensorSpec(shape, "float32")], autograph=False
    )
    def embed_seen(seen: Tensor) -> Tensor:
        # Not every layer takes a batch of nothing.
        count = tf.shape(seen)[0]
        return embed(model, _pad_empty(seen, (1, 0, 0, 0)))[:count]

    @tf.function(
        input_signature=[tf.TensorSpec((None,), "string")], autograph=False
    )
    def embed_files(files: Tensor) -> tuple[Tensor, Tensor]:
        """Statuses, (B,), and embeddings of those that are "ok"."""
        status, seen = load_files(files, view)
        return status, embed_seen(tf.boolean_mask(seen, status == OK))

    return embed_seen, embed_files


def _pad_empty(x: Tensor, amounts: tuple[int, ...]) -> Tensor:
    """Adds zeros at the end of each axis of a batch of nothing."""
    is_empty = tf.cast(tf.shape(x)[0] == 0, "int32")
    padded = tf.pad(x, [[0, is_empty * amount] for amount in amounts])
    return tf.ensure_shape(padded, x.shape)


class Lookup:
    """The nearest rows of a gallery, for embeddings whose status is OK."""

    def __init__(self, gallery: Gallery, k: int) -> None:
        self._neighbors = Neighbors(gallery.embeddings, k)
        self._threshold = gallery.threshold
        with tf.device("CPU:0"):
            self._ids = tf.Variable(gallery.ids, trainable=False)
            self._labels = tf.Variable(gallery.labels, trainable=False)

    def __call__(self, status: Tensor, embeddings: Tensor) -> dict[str, Tensor]:
        # An overflow in half precision has no neighbors, but the other
        # images of the batch have.
        is_finite = tf.reduce_all(tf.math.is_finite(embeddings), axis=1)
        rows, scores = self._neighbors(tf.boolean_mask(embeddings, is_finite))
        found = _spread(is_finite, False, status == OK)
        above = tf.ones_like(scores, "bool")
        if self._threshold is not None:
            above = scores >= self._threshold

        def of_rows(column: Tensor) -> Tensor:
            none = "" if column.dtype == tf.string else -1
            return _spread(tf.gather(column, rows), none, found)

        return {
            "ids": of_rows(self._ids),
            "labels": of_rows(self._labels),
            "scores": _spread(scores, 0.0, found),
            "above_threshold": _spread(above, False, found),
            "status": status,
        }


def _spread(rows: Tensor, filler: Any, where: Tensor) -> Tensor:
    """(B, …): rows, (n, …), where n of B booleans are true, else a filler."""
    filler_row = tf.fill(tf.shape(rows)[1:], tf.constant(filler, rows.dtype))
    with_filler = tf.concat([rows, filler_row[None]], axis=0)
    place = tf.cumsum(tf.cast(where, "int32"), exclusive=True)
    return tf.gather(with_filler, tf.where(where, place, tf.shape(rows)[0]))
