"""Messages of tensorflow-serving-api, as far as they are needed here.

From tensorflow_serving/apis/{model,predict,prediction_log}.proto. A map is
a repeated message of keys and values on the wire. Imports TensorFlow only.
"""

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from tensorflow.core.framework import tensor_pb2

FIELDS = {
    "ModelSpec": {"name": (1, str), "signature_name": (3, str)},
    "Entry": {"key": (1, str), "value": (2, "tensorflow.TensorProto")},
    "PredictRequest": {
        "model_spec": (1, "ModelSpec"),
        "inputs": (2, ["Entry"]),
    },
    "PredictLog": {"request": (1, "PredictRequest")},
    "PredictionLog": {"predict_log": (6, "PredictLog")},
}


def _add_with_dependencies(pool: Any, file: Any) -> None:
    for dependency in file.dependencies:
        _add_with_dependencies(pool, dependency)
    content = descriptor_pb2.FileDescriptorProto()
    file.CopyToProto(content)
    pool.Add(content)


def _set_type(field: Any, kind: Any) -> None:
    field.label = field.LABEL_OPTIONAL
    if isinstance(kind, list):
        field.label = field.LABEL_REPEATED
        kind = kind[0]
    if kind is str:
        field.type = field.TYPE_STRING
        return
    field.type = field.TYPE_MESSAGE
    field.type_name = "." + (
        kind if "." in kind else f"tensorflow.serving.{kind}"
    )


def _define() -> dict[str, Any]:
    # A pool of its own, where tensorflow_serving may define them, too.
    pool = descriptor_pool.DescriptorPool()
    _add_with_dependencies(pool, tensor_pb2.DESCRIPTOR)
    file = descriptor_pb2.FileDescriptorProto(
        name="serving.proto",
        package="tensorflow.serving",
        dependency=[tensor_pb2.DESCRIPTOR.name],
        syntax="proto3",
    )
    for name, fields in FIELDS.items():
        message = file.message_type.add(name=name)
        for field_name, (number, kind) in fields.items():
            _set_type(message.field.add(name=field_name, number=number), kind)
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(
            pool.FindMessageTypeByName(f"tensorflow.serving.{name}")
        )
        for name in FIELDS
    }


_CLASSES = _define()
PredictRequest = _CLASSES["PredictRequest"]
PredictionLog = _CLASSES["PredictionLog"]
