"""What the signatures of a SavedModel take and return."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from keras_dml.serve.errors import RequestError


@dataclass(frozen=True)
class TensorSpec:
    """An input or output of a signature.

    Attributes:
        dtype: NumPy's; `object` for strings.
        shape: -1 where any length will do; None if the rank is unknown.
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...] | None

    @classmethod
    def of(cls, info: Mapping[str, Any]) -> "TensorSpec":
        """From the JSON form of a `TensorInfo`."""
        dtype = tf.dtypes.as_dtype(info["dtype"].removeprefix("DT_").lower())
        shape = info["tensor_shape"]
        sides = tuple(int(dim["size"]) for dim in shape["dim"])
        return cls(
            np.dtype(dtype.as_numpy_dtype),
            None if shape["unknown_rank"] else sides,
        )

    @property
    def is_batched(self) -> bool:
        """Whether the first axis takes any number of examples."""
        return self.shape is not None and self.shape[:1] == (-1,)

    def check(self, name: str, array: npt.NDArray[Any]) -> None:
        """Raises `RequestError` unless an array has this shape."""
        if self.shape is None:
            return
        fits = len(self.shape) == array.ndim and all(
            wanted in (-1, given)
            for wanted, given in zip(self.shape, array.shape, strict=True)
        )
        if not fits:
            raise RequestError(
                f"Tensor {name!r} must have the shape {list(self.shape)}, "
                f"where -1 is any length. Received: {list(array.shape)}."
            )


@dataclass(frozen=True)
class Definition:
    """A signature.

    Attributes:
        inputs, outputs: What it takes and returns, by name.
        method: What kind it is, such as "tensorflow/serving/predict".
        json: The JSON form of its `SignatureDef`.
    """

    inputs: Mapping[str, TensorSpec]
    outputs: Mapping[str, TensorSpec]
    method: str
    json: Mapping[str, Any]

    @classmethod
    def of(cls, json: Mapping[str, Any]) -> "Definition":
        """From the JSON form of a `SignatureDef`."""
        inputs, outputs = (
            {
                name: TensorSpec.of(info)
                for name, info in json[key].items()
                if info["dtype"] != "DT_INVALID"  # An operation, no tensor.
            }
            for key in ("inputs", "outputs")
        )
        return cls(inputs, outputs, json["method_name"], json)

    @property
    def is_batched(self) -> bool:
        """Whether requests can be joined along the first axis."""
        specs = [*self.inputs.values(), *self.outputs.values()]
        return all(spec.is_batched for spec in specs)


def read_definitions(folder: Path) -> dict[str, Definition]:
    """The signatures of a SavedModel, by name.

    Raises:
        ValueError: If there is no SavedModel.
    """
    # Protobuf comes with TensorFlow, and has no types.
    from google.protobuf.json_format import MessageToDict
    from tensorflow.core.protobuf import saved_model_pb2

    path = folder / "saved_model.pb"
    try:
        content = saved_model_pb2.SavedModel.FromString(path.read_bytes())
        graph = content.meta_graphs[0]
    # Whatever protobuf stumbles over, the file is what is wrong.
    except Exception as error:
        raise ValueError(
            f"There is no SavedModel in {str(folder)!r}: {error}. Use "
            "`keras-dml export` to write one."
        ) from error
    return {
        name: Definition.of(
            MessageToDict(
                signature,
                preserving_proto_field_name=True,
                always_print_fields_with_no_presence=True,
            )
        )
        for name, signature in graph.signature_def.items()
    }
