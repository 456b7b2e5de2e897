"""Outputs: what a model says of pictures, beside their embeddings."""

import io
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_dml.data import View
from keras_dml.data.decode import MAX_SIDE_RATIO, read_image
from keras_dml.export.files import OK, TOO_LARGE, load_files
from keras_dml.serve.errors import RequestError
from keras_dml.utils.types import FloatArray, Tensor, Tensors
from keras_dml.visualization.attention import maps_of
from keras_dml.visualization.outputs import output_shapes

_SAME = 1e-4
"""By how much float32 lets lengths and cosines differ from the exact ones."""


@dataclass(frozen=True)
class Part:
    """What one learner, or group, contributes to the embedding.

    Attributes:
        name: What it is called.
        columns: Those of the embedding that are its own.
        length: The length of its slice in every unit embedding; None where
            that is not the same for all images.
    """

    name: str
    columns: slice
    length: float | None


class Outputs:
    """Embeddings of one model's views, with parts and attention maps.

    Args:
        model: A model of images. Only one with a head has parts and maps.
        view: What it sees of an image.

    Attributes:
        model: The model.
        parts: Its learners, if their slices make up the embedding.
        has_attention: Whether there are maps.
    """

    def __init__(self, model: keras.Model, view: View) -> None:
        self.model, self._view = model, view
        self._named = bool(output_shapes(model))
        try:
            self._maps = maps_of(model)
        except ValueError:  # No attention, or to tokens that are on no grid.
            self._maps = lambda outputs: {}
        shape = (None, *view.size, view.channels)
        self._computed = tf.function(
            self._compute,
            input_signature=[tf.TensorSpec(shape, "float32")],
            autograph=False,
        )
        self._loaded = tf.function(
            lambda files: load_files(files, view),
            input_signature=[tf.TensorSpec((1,), "string")],
            autograph=False,
        )
        tried = self(_unlike_views(shape[1:]))
        self.has_attention = "maps" in tried
        names = getattr(getattr(model, "head", None), "tasks", ())
        self.parts = _parts(tried["embedding"], tried.get("parts"), names)

    def __call__(self, seen: FloatArray) -> dict[str, FloatArray]:
        """What is computed of views, (B, H, W, C).

        Returns:
            "embedding", (B, D); "parts", (B, K, d), and "maps", (B, h, w, P),
            of models that have them; all float32.
        """
        return {x: y.numpy() for x, y in self._computed(seen).items()}

    def see(self, data: bytes) -> FloatArray:
        """What the model sees of an image file, (H, W, C) float32, 0 to 255.

        It is decoded as "encoded" does, which takes less memory than Pillow,
        to the same pixels; Pillow decodes other formats, and says what is
        wrong with a damaged file.

        Raises:
            RequestError: If it cannot be decoded, or becomes too large.
        """
        [status], [seen] = self._loaded(tf.constant([data]))
        if status == TOO_LARGE:
            raise RequestError(
                "A picture must not be so long and thin that one side is more "
                f"than {MAX_SIDE_RATIO} times the other. Received: one that "
                "is. Crop it.",
                413,
            )
        if status != OK:
            try:
                image = read_image(io.BytesIO(data))
            except ValueError as error:
                raise RequestError(str(error)) from error
            seen = self._view.apply(image)
        view: FloatArray = seen.numpy()
        return view

    def _compute(self, seen: Tensor) -> Tensors:
        if not self._named:
            found = {"embedding": self.model(seen, training=False)}
        else:
            outputs = self.model.outputs_of(seen)
            wanted = {"embedding", "parts"} & set(outputs)
            found = {x: outputs[x] for x in wanted} | self._maps(outputs)
        return {name: tf.cast(x, "float32") for name, x in found.items()}


def _unlike_views(shape: tuple[int, ...]) -> FloatArray:
    """Noise, a light edge at the left, and one at the top, (3, H, W, C)."""
    views = np.zeros((3, *shape), np.float32)
    views[0] = np.random.default_rng(0).uniform(0, 255, shape)
    views[1, :, : shape[1] // 3] = 255
    views[2, : shape[0] // 3] = 128
    return views


def _parts(
    embeddings: FloatArray, parts: FloatArray | None, names: Any
) -> tuple[Part, ...]:
    """The parts of a model, by some embeddings, (n, D), and (n, K, d).

    Parts that are smaller than others end with zeros.
    """
    if parts is None or parts.shape[1] < 2:
        return ()
    is_used = (parts != 0).any(axis=0)  # (K, d)
    sizes = [int(x.nonzero()[0].max(initial=-1)) + 1 for x in is_used]
    if sum(sizes) != embeddings.shape[1]:
        return ()
    ends = np.cumsum(sizes).tolist()
    found = []
    for number, (end, size) in enumerate(zip(ends, sizes, strict=True)):
        columns = slice(end - size, end)
        slices, own = embeddings[:, columns], parts[:, number, :size]
        lengths = np.linalg.norm(slices, axis=1)
        cosines = (slices * own).sum(axis=1)
        if not np.allclose(cosines, lengths, rtol=_SAME, atol=_SAME):
            return ()
        is_same = np.ptp(lengths) < _SAME
        name = names[number] if len(names) == len(sizes) else number + 1
        length = float(lengths.mean()) if is_same else None
        found.append(Part(f"learner {name}", columns, length))
    return tuple(found)
