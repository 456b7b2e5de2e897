"""Requests for a served model, and those that warm a server up.

TensorFlow Serving plays the latter to a version before it serves it. They
are records of `PredictionLog`, a message of tensorflow-serving-api. That
package needs the one release of TensorFlow that it was made for, so the
three fields that are needed are encoded here; their numbers are those of
tensorflow_serving/apis/{prediction_log,predict,model}.proto.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from keras_dml.data import View
from keras_dml.export.signatures import K_SPEC, LOOKUP_K, PIXELS, Served
from keras_dml.utils.types import Tensor, Tensors

WARMUP = Path("assets.extra", "tf_serving_warmup_requests")

Batch = npt.NDArray[np.uint8]
"""Images of one size, (B, H, W, C)."""


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
    """A batch for each image of `check`, which must be as the model's are."""
    for i, image in enumerate(images):
        fits = image.ndim == 3 and image.shape[-1] == view.channels
        if not (fits and image.dtype == np.uint8):
            raise ValueError(
                "`check` of export must hold uint8 images of shape "
                f"(H, W, {view.channels}). Received: check[{i}] with "
                f"shape={image.shape}, dtype={image.dtype}."
            )
    return [image[None] for image in images]


def requests(
    served: Served, name: str, batches: Sequence[Batch]
) -> Iterator[tuple[Tensors, Tensor]]:
    """What a signature takes, and the views that the model sees of it."""
    view = served.view
    if name == PIXELS:
        for batch in batches:
            images = tf.cast(batch, served.input_dtype)
            yield {"images": images}, view.apply(batch)
        return
    files = [tf.io.encode_png(image) for x in batches for image in x]
    named = {"images": tf.stack(files)}
    if name == LOOKUP_K:
        named = with_k(named, served.k)
    yield named, tf.concat([view.apply(x) for x in batches], 0)


def with_k(named: Tensors, k: int) -> Tensors:
    """Inputs of "lookup_k": those of "lookup", and the same k for each."""
    return {**named, K_SPEC.name: tf.fill([len(next(iter(named.values())))], k)}


def write_warmup(
    served: Served, folder: Path, name: str, batches: list[Batch]
) -> None:
    """Writes requests for all signatures of a model into its export."""
    logged = [
        (signature, named)
        for signature in served.signatures
        for named, _ in requests(served, signature, batches)
    ]
    write_logs(folder, name, logged)


def write_logs(
    folder: Path, name: str, logged: Iterable[tuple[str, Tensors]]
) -> None:
    """Writes requests, a signature and its inputs by name, into an export."""
    path = folder / WARMUP
    path.parent.mkdir()
    try:
        with tf.io.TFRecordWriter(str(path)) as writer:
            for signature, inputs in logged:
                writer.write(prediction_log(name, signature, inputs))
    except tf.errors.OpError as error:
        raise OSError(f"The export cannot be written: {error}") from error


def prediction_log(name: str, signature: str, inputs: Any) -> bytes:
    """A `PredictionLog` of one `PredictRequest`.

    A tensor alone is the input "images".
    """
    named = inputs if isinstance(inputs, dict) else {"images": inputs}
    request = _field(
        1, _field(1, name.encode()) + _field(3, signature.encode())
    )
    for key, value in named.items():
        tensor = tf.make_tensor_proto(value).SerializeToString()
        request += _field(2, _field(1, key.encode()) + _field(2, tensor))
    predict_log = _field(1, request)
    return _field(6, predict_log)


def _field(number: int, content: bytes) -> bytes:
    """A field of bytes, a text or a message, in the protobuf wire format."""
    length_delimited = 2
    tag = _varint(number << 3 | length_delimited)
    return tag + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    low, rest = value & 0x7F, value >> 7
    return bytes([low | 0x80]) + _varint(rest) if rest else bytes([low])
