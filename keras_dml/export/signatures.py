"""The signatures of a served model, and the SavedModel that has them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import keras
import tensorflow as tf

from keras_dml.data import View
from keras_dml.export.files import OK, load_files
from keras_dml.export.gallery import Gallery
from keras_dml.export.neighbors import Neighbors
from keras_dml.model.pixels import expects_bytes, print_wrong_range
from keras_dml.utils.types import Tensor

PIXELS, ENCODED = "serving_default", "encoded"
LOOKUP, LOOKUP_K = "lookup", "lookup_k"

K_SPEC = tf.TensorSpec((None,), "int32", name="k")
"""What "lookup_k" takes beside the examples: the `k` of each.

Not one of all: a server that batches joins all inputs along an axis.
"""

MOST_NEIGHBORS = 1000
"""The largest `k` that "lookup_k" takes, if that of the export is not larger.

A request must not be able to ask for an answer of gigabytes.
"""

K_OUT_OF_RANGE = "k out of range"

NOTHING = {tf.string: "", tf.int64: -1, tf.float32: 0.0, tf.bool: False}
"""What stands in an output, by its dtype, where there is nothing to say."""


@dataclass(frozen=True)
class Served:
    """What a SavedModel is made of.

    Attributes:
        model: The model.
        view: What it sees of an image.
        input_dtype: Pixels that "serving_default" takes.
        gallery: What "lookup" and "lookup_k" search in; None: there are no
            such signatures.
        k: Neighbors that the former finds for an image.
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
        return names if self.gallery is None else (*names, LOOKUP, LOOKUP_K)


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
    takes_floats = served.input_dtype == "float32"
    may_be_scaled = takes_floats and expects_bytes(served.model)

    def serve_pixels(images: Tensor) -> dict[str, Tensor]:
        said = [print_wrong_range(images, PIXELS)] if may_be_scaled else []
        with tf.control_dependencies(said):
            # Resizing takes at least one image, of at least one pixel.
            seen = view.apply(_pad_empty(images, (1, 1, 1, 0)))
        return {"embedding": embed_seen(seen[: tf.shape(images)[0]])}

    def serve_encoded(images: Tensor) -> dict[str, Tensor]:
        status, found = embed_files(images)
        embedding = _spread(found, status == OK)
        return {"embedding": embedding, "status": status}

    specs = [tf.TensorSpec(pixels, served.input_dtype, name="images")]
    archive.add_endpoint(PIXELS, serve_pixels, specs)
    archive.add_endpoint(ENCODED, serve_encoded, [files])
    if served.gallery is not None:
        find = Lookup(served.gallery, served.k)
        archive.add_endpoint(
            LOOKUP, lambda images: find(*embed_files(images)), [files]
        )
        archive.add_endpoint(
            LOOKUP_K,
            lambda images, k: find.of_own_k(*embed_files(images), k),
            [files, K_SPEC],
        )
    write_archive(archive, folder)


def write_archive(archive: keras.export.ExportArchive, folder: Path) -> None:
    """Writes a SavedModel; OSError if that fails.

    It has no gradients of its own, which nobody asks a served model for: who
    loads one with them keeps all of it in memory for good.
    """
    options = tf.saved_model.SaveOptions(experimental_custom_gradients=False)
    try:
        archive.write_out(str(folder), options, verbose=False)
    except tf.errors.OpError as error:
        raise OSError(f"The export cannot be written: {error}") from error


def _shared_functions(
    model: keras.Model, view: View
) -> tuple[
    Callable[[Tensor], Tensor], Callable[[Tensor], tuple[Tensor, Tensor]]
]:
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
        self._k = k
        self._most = min(max(k, MOST_NEIGHBORS), len(gallery))
        self._neighbors = Neighbors(gallery.embeddings)
        self._threshold = gallery.threshold
        with tf.device("CPU:0"):
            self._ids = tf.Variable(gallery.ids, trainable=False)
            self._labels = tf.Variable(gallery.labels, trainable=False)

    def __call__(self, status: Tensor, embeddings: Tensor) -> dict[str, Tensor]:
        """The outputs of "lookup", of statuses, (B,)."""
        return self._find(status, embeddings, self._k)

    def of_own_k(
        self, status: Tensor, embeddings: Tensor, k: Tensor
    ) -> dict[str, Tensor]:
        """The outputs of "lookup_k": as many as the k of each, (B,) int32.

        Columns are as many as the largest. An image has nothing in those
        beyond its own k, and in none if that is out of range.
        """
        tf.debugging.assert_equal(
            tf.size(k),
            tf.size(status),
            "`k` of lookup_k must have one number per example.",
        )
        fits = (k >= 1) & (k <= self._most)
        columns = tf.reduce_max(tf.concat([[1], tf.boolean_mask(k, fits)], 0))
        searched = tf.boolean_mask(fits, status == OK)
        status = tf.where(fits | (status != OK), status, K_OUT_OF_RANGE)
        embeddings = tf.boolean_mask(embeddings, searched)
        found = self._find(status, embeddings, columns)
        is_asked = tf.range(columns) < k[:, None]
        return {
            name: x if name == "status" else tf.where(is_asked, x, _nothing(x))
            for name, x in found.items()
        }

    def _find(
        self, status: Tensor, embeddings: Tensor, k: int | Tensor
    ) -> dict[str, Tensor]:
        # An overflow in half precision has no neighbors, but the other
        # images of the batch have.
        is_finite = tf.reduce_all(tf.math.is_finite(embeddings), axis=1)
        finite = tf.boolean_mask(embeddings, is_finite)
        rows, scores = self._neighbors(finite, k)
        found = _spread(is_finite, status == OK)
        above = tf.ones_like(scores, "bool")
        if self._threshold is not None:
            above = scores >= self._threshold
        return {
            "ids": _spread(tf.gather(self._ids, rows), found),
            "labels": _spread(tf.gather(self._labels, rows), found),
            "scores": _spread(scores, found),
            "above_threshold": _spread(above, found),
            "status": status,
        }


def lookups(
    encoded: Callable[..., Mapping[str, Tensor]], find: Lookup
) -> dict[str, Callable[..., dict[str, Tensor]]]:
    """ "lookup" and "lookup_k", by an "encoded" that has been exported."""
    files = tf.TensorSpec((None,), "string", name="images")

    def embed_files(images: Tensor) -> tuple[Tensor, Tensor]:
        found = encoded(images=images)
        status = found["status"]
        return status, tf.boolean_mask(found["embedding"], status == OK)

    return {
        LOOKUP: tf.function(
            lambda images: find(*embed_files(images)),
            [files],
            autograph=False,
        ),
        LOOKUP_K: tf.function(
            lambda images, k: find.of_own_k(*embed_files(images), k),
            [files, K_SPEC],
            autograph=False,
        ),
    }


def _nothing(x: Tensor) -> Tensor:
    return tf.constant(NOTHING[x.dtype], x.dtype)


def _spread(rows: Tensor, where: Tensor) -> Tensor:
    """(B, …): rows, (n, …), where n of B booleans are true, else nothing."""
    filler_row = tf.fill(tf.shape(rows)[1:], _nothing(rows))
    with_filler = tf.concat([rows, filler_row[None]], axis=0)
    place = tf.cumsum(tf.cast(where, "int32"), exclusive=True)
    return tf.gather(with_filler, tf.where(where, place, tf.shape(rows)[0]))
