"""Requests that TensorFlow Serving plays to a version before it serves it.

They are records of `PredictionLog`, a message of tensorflow-serving-api.
That package needs the one release of TensorFlow that it was made for, so
the three fields that are needed are encoded here; their numbers are those
of tensorflow_serving/apis/{prediction_log,predict,model}.proto.
"""

from pathlib import Path

import tensorflow as tf

from keras_dml.export.requests import Batch, requests
from keras_dml.export.signatures import Served
from keras_dml.utils.types import Tensor

FILE = Path("assets.extra", "tf_serving_warmup_requests")


def write_warmup(
    served: Served, folder: Path, name: str, batches: list[Batch]
) -> None:
    """Writes requests for all signatures of a model into its export."""
    path = folder / FILE
    path.parent.mkdir()
    try:
        with tf.io.TFRecordWriter(str(path)) as writer:
            for signature in served.signatures:
                for images, _ in requests(served, signature, batches):
                    writer.write(prediction_log(name, signature, images))
    except tf.errors.OpError as error:
        raise OSError(f"The export cannot be written: {error}") from error


def prediction_log(name: str, signature: str, images: Tensor) -> bytes:
    """A `PredictionLog` of one `PredictRequest`."""
    tensor = tf.make_tensor_proto(images).SerializeToString()
    spec = _field(1, name.encode()) + _field(3, signature.encode())
    entry = _field(1, b"images") + _field(2, tensor)
    request = _field(1, spec) + _field(2, entry)
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
