"""Requests that warm a server up.

TensorFlow Serving plays them to a version before it serves it. They are
records of `PredictionLog`, a message of tensorflow-serving-api. That package
needs the one release of TensorFlow that it was made for, so the three fields
that are needed are encoded here; their numbers are those of
tensorflow_serving/apis/{prediction_log,predict,model}.proto.
"""

from pathlib import Path

from keras_dml.export.served import Served
from keras_dml.utils.tensorflow import tf
from keras_dml.utils.types import Tensors

WARMUP = Path("assets.extra", "tf_serving_warmup_requests")


def write_warmup(served: Served, folder: Path, name: str) -> None:
    """Writes requests for all signatures of a model into its export."""
    path = folder / WARMUP
    path.parent.mkdir()
    try:
        with tf.io.TFRecordWriter(str(path)) as writer:
            for signature in served.signatures:
                for named, _ in served.samples(signature, most=2):
                    writer.write(prediction_log(name, signature, named))
    except tf.errors.OpError as error:
        raise OSError(f"The export cannot be written: {error}") from error


def prediction_log(name: str, signature: str, inputs: Tensors) -> bytes:
    """A `PredictionLog` of one `PredictRequest`."""
    request = _field(
        1, _field(1, name.encode()) + _field(3, signature.encode())
    )
    for key, value in inputs.items():
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
