"""A SavedModel of a model of arrays, or of images, and its comparison."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import numpy.typing as npt

from keras_dml.data import View
from keras_dml.data.decode import MAX_SIDE_RATIO
from keras_dml.export.files import OK, load_files
from keras_dml.export.gallery import Gallery, Lookup, spread
from keras_dml.model.generated import generated_inputs, input_specs
from keras_dml.model.warnings import expects_bytes, print_pixels
from keras_dml.utils.tensorflow import tf
from keras_dml.utils.types import FloatArray, Tensor, Tensors
from keras_dml.utils.vectors import unit_rows

PIXELS, ENCODED = "serving_default", "encoded"
LOOKUP, LOOKUP_K = "lookup", "lookup_k"

K_SPEC = tf.TensorSpec((None,), "int32", name="k")
"""The `k` of each example, which "lookup_k" takes beside the examples.

It is not a scalar: a server that batches joins all inputs along an axis.
"""

INPUT = "inputs"
"""The name of the input in signatures of models with a single input."""

Batch = npt.NDArray[np.uint8]
"""Images of one size, (B, H, W, C)."""


class Served:
    """A model of arrays, and the gallery that "lookup" and "lookup_k" search.

    `inputs` are the specs of "serving_default", by name, and `searched` those
    of "lookup".
    """

    def __init__(
        self, model: keras.Model, gallery: Gallery | None, k: int
    ) -> None:
        self.model, self.gallery, self.k = model, gallery, k
        self.inputs = self.searched = self._specs()
        self.signatures = [PIXELS]
        if gallery is not None:
            self.signatures.append(LOOKUP)
            # An input of the model may have this name.
            if K_SPEC.name not in self.inputs:
                self.signatures.append(LOOKUP_K)
        self._embed = tf.function(
            self._embed_inputs, [self.inputs], autograph=False
        )

    def _specs(self) -> dict[str, tf.TensorSpec]:
        specs = input_specs(self.model)
        by_name = specs if isinstance(specs, dict) else {INPUT: specs}
        return {
            name: tf.TensorSpec(spec.shape, spec.dtype, name)
            for name, spec in by_name.items()
        }

    def _model_inputs(self, by_name: Tensors) -> Any:
        """Inputs in the structure in which the model takes them."""
        return by_name if list(self.inputs) != [INPUT] else by_name[INPUT]

    def _embed_inputs(self, inputs: Tensors) -> Tensor:
        count = tf.shape(next(iter(inputs.values())))[0]
        padded = {name: _with_a_row(x) for name, x in inputs.items()}
        return embed(self.model, self._model_inputs(padded))[:count]

    def embed_searched(self, inputs: Tensors) -> tuple[Tensor, Tensor]:
        """Statuses, (B,), and embeddings of those that are "ok"."""
        embeddings = self._embed(inputs)
        return tf.fill(tf.shape(embeddings)[:1], OK), embeddings

    def write(self, folder: Path) -> None:
        """Writes a SavedModel; an `OSError` if that fails."""
        archive = keras.export.ExportArchive()
        if ENCODED not in self.signatures:
            # Signatures include the variables that they use, but no tables,
            # such as the vocabulary of a layer that takes texts. All of these
            # are in the backbone. With images, this would ship the weights of
            # the objective, too.
            archive.track(getattr(self.model, "backbone", self.model))
        for name, function in self._functions().items():
            specs = [self.inputs if name == PIXELS else self.searched]
            specs += [K_SPEC] * (name == LOOKUP_K)
            archive.add_endpoint(name, function, specs)
        # A served model needs no gradients, and loading a model with gradients
        # keeps all of it in memory forever.
        options = tf.saved_model.SaveOptions(
            experimental_custom_gradients=False
        )
        try:
            archive.write_out(str(folder), options, verbose=False)
        except tf.errors.OpError as error:
            raise OSError(f"The export cannot be written: {error}") from error

    def _functions(self) -> dict[str, Callable[..., Tensors]]:

        def embed_files(inputs: Tensors) -> Tensors:
            status, embeddings = self.embed_searched(inputs)
            embeddings = spread(embeddings, status == OK)
            return {"embedding": embeddings, "status": status}

        def look_up(inputs: Tensors) -> Tensors:
            outputs = lookup(*self.embed_searched(inputs))
            if ENCODED not in self.signatures:
                del outputs["status"]  # Only files can be damaged.
            return outputs

        functions: dict[str, Callable[..., Tensors]] = {
            PIXELS: lambda inputs: {"embedding": self._embed(inputs)},
            ENCODED: embed_files,
        }
        if self.gallery is not None:
            lookup = Lookup(self.gallery, self.k)
            functions[LOOKUP] = look_up
            functions[LOOKUP_K] = lambda inputs, k: lookup.of_own_k(
                *self.embed_searched(inputs), k
            )
        return {name: functions[name] for name in self.signatures}

    def samples(self, signature: str) -> Iterator[tuple[Tensors, Any]]:
        """Inputs of a signature, and those of the model that they become."""
        inputs = generated_inputs(self.model)
        generated = inputs if isinstance(inputs, dict) else {INPUT: inputs}
        for count in (2, 1):
            batch = {k: tf.constant(x[:count]) for k, x in generated.items()}
            yield self._with_k(signature, batch), self._model_inputs(batch)

    def _with_k(self, signature: str, inputs: Tensors) -> Tensors:
        """Inputs of "lookup_k": those of "lookup", and the same k for each."""
        if signature != LOOKUP_K:
            return inputs
        count = len(next(iter(inputs.values())))
        return {**inputs, K_SPEC.name: tf.fill([count], self.k)}


class ServedImages(Served):
    """A model of images, taken as pixels of `input_dtype` and as files.

    It is compared with the model on `batches`.
    """

    def __init__(
        self,
        model: keras.Model,
        gallery: Gallery | None,
        k: int,
        view: View,
        input_dtype: str,
        batches: Sequence[Batch],
    ) -> None:
        self._view, self._dtype, self._batches = view, input_dtype, batches
        super().__init__(model, gallery, k)
        self.signatures.insert(1, ENCODED)
        self.searched = {"images": tf.TensorSpec((None,), "string", "images")}
        views = tf.TensorSpec((None, *view.size, view.channels), "float32")
        # The signatures share one graph of the model, and one of the files.
        self._embed_views = tf.function(
            lambda x: embed(self.model, _with_a_row(x))[: tf.shape(x)[0]],
            [views],
            autograph=False,
        )
        self.embed_searched = tf.function(  # type: ignore[method-assign]
            self._embed_files, [self.searched], autograph=False
        )

    def _specs(self) -> dict[str, tf.TensorSpec]:
        pixels = (None, None, None, self._view.channels)
        return {"images": tf.TensorSpec(pixels, self._dtype, "images")}

    def _embed_inputs(self, inputs: Tensors) -> Tensor:
        images = inputs["images"]
        sides = tf.shape(images)[1:3]
        checks = [
            tf.debugging.assert_less_equal(
                tf.reduce_max(sides),
                MAX_SIDE_RATIO * tf.reduce_min(sides),
                f"One side of `images` must be at most {MAX_SIDE_RATIO} times "
                "as long as the other.",
            )
        ]
        if self._dtype == "float32" and expects_bytes(self.model):
            checks.append(print_pixels(images, PIXELS))
        with tf.control_dependencies(checks):
            views = self._view.apply(_with_a_row(images))
        return self._embed_views(views[: tf.shape(images)[0]])

    def _embed_files(self, inputs: Tensors) -> tuple[Tensor, Tensor]:
        status, views = load_files(inputs["images"], self._view)
        return status, self._embed_views(tf.boolean_mask(views, status == OK))

    def samples(self, signature: str) -> Iterator[tuple[Tensors, Any]]:
        views = [self._view.apply(batch) for batch in self._batches]
        if signature == PIXELS:
            for batch, batch_views in zip(self._batches, views, strict=True):
                yield {"images": tf.cast(batch, self._dtype)}, batch_views
            return
        files = [tf.io.encode_png(x) for batch in self._batches for x in batch]
        inputs = self._with_k(signature, {"images": tf.stack(files)})
        yield inputs, tf.concat(views, 0)


def embed(model: keras.Model, inputs: Tensor) -> Tensor:
    """Embeddings as an export returns them, (B, D) float32."""
    return tf.cast(model(inputs, training=False), "float32")


def generated_batches(view: View) -> list[Batch]:
    """Two images each of three sizes, the view's first, and a black one.

    A network may have no activation at all where an image is black.
    """
    # Coarse blocks, because fine noise averages out to gray in the view.
    blocks = np.random.default_rng(0).integers(
        256, size=(2, 5, 5, view.channels), dtype=np.uint8
    )
    batches = []
    h, w = view.size
    for height, width in ((h, w), (h // 2 + 1, w // 3 + 1), (2 * h + 1, 3 * w)):
        rows = np.arange(height) * 5 // height
        columns = np.arange(width) * 5 // width
        batches.append(blocks[:, rows][:, :, columns])
    return [*batches, np.zeros_like(batches[0][:1])]


def given_batches(
    images: Sequence[npt.NDArray[np.uint8]], view: View
) -> list[Batch]:
    """A batch for each image of `check`, which the model must accept."""
    for i, image in enumerate(images):
        fits = image.ndim == 3 and image.shape[-1] == view.channels
        if not (fits and image.dtype == np.uint8):
            raise ValueError(
                "`check` of export must hold uint8 images of shape "
                f"(H, W, {view.channels}). Received: check[{i}] with "
                f"shape={image.shape}, dtype={image.dtype}."
            )
    return [image[None] for image in images]


def _with_a_row(x: Tensor) -> Tensor:
    """A batch, or one row of zeros if it is empty; also of strings.

    Some layers do not accept an empty batch, and images without pixels cannot
    be resized.
    """
    shape = tf.shape(x)
    # A row has at least one item along each axis.
    row = tf.concat([[1], tf.maximum(shape[1:], 1)], axis=0)
    padded = tf.cond(shape[0] > 0, lambda: x, lambda: tf.zeros(row, x.dtype))
    return tf.ensure_shape(padded, x.shape)


def compare(served: Served, folder: Path, tolerance: float) -> None:
    """Loads an export; raises `RuntimeError` if it differs from the model."""
    # On the CPU both compute alike; on a GPU, compiled and TF32 arithmetic
    # differ by more than the mistakes that this must find.
    with tf.device("CPU:0"):
        signatures = tf.saved_model.load(str(folder)).signatures
        for name in served.signatures:
            for inputs, model_inputs in served.samples(name):
                outputs = signatures[name](**inputs)
                status = outputs.get("status", tf.constant(OK)).numpy()
                if not np.all(status == OK.encode()):
                    raise RuntimeError(
                        "The export must decode all image files of its check. "
                        f"The signature {name!r} returned the status {status}. "
                        "Nothing was written."
                    )
                expected = embed(served.model, model_inputs).numpy()
                values = outputs.get("embedding", outputs.get("scores"))
                if served.gallery is not None and "scores" in outputs:
                    rows = served.gallery.embeddings
                    cosines = unit_rows(expected) @ unit_rows(rows).T
                    expected = -np.sort(-cosines, axis=1)[:, : served.k]
                difference = values.numpy() - expected
                check_difference(difference, f"signature {name!r}", tolerance)


def check_difference(
    difference: FloatArray, what: str, tolerance: float
) -> None:
    """Raises `RuntimeError` unless all numbers are within the tolerance."""
    largest = np.abs(difference).max()
    # A comparison with NaN is false, so NaN is an error, too.
    if not largest <= tolerance:
        raise RuntimeError(
            f"The export must return the same numbers as the model. Its {what} "
            f"differs by {largest:.3g}, more than the `tolerance` of "
            f"{tolerance:.3g}. Nothing was written. If the model computes in "
            "half precision, use a larger `tolerance`."
        )
