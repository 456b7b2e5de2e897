"""Batches of requests that run through a signature."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from keras_dml.serve.current import Current

Arrays = Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class Run:
    """Work of a service: a signature, on requests joined along axis 0."""

    signature: str

    def __call__(
        self, current: Current, items: Sequence[Arrays]
    ) -> list[Arrays]:
        """Outputs by name, of each item its own rows."""
        inputs = {
            name: tf.constant(_joined([item[name] for item in items]))
            for name in items[0]
        }
        found = current.signatures[self.signature](**inputs)
        outputs = {name: x.numpy() for name, x in found.items()}
        if len(items) == 1:
            return [outputs]
        ends = np.cumsum([length(item) for item in items]).tolist()
        begins = [0, *ends[:-1]]
        return [
            {name: x[begin:end] for name, x in outputs.items()}
            for begin, end in zip(begins, ends, strict=True)
        ]


def length(arrays: Arrays) -> int:
    """Examples in a request whose arrays are joined along axis 0."""
    return len(next(iter(arrays.values())))


def _joined(arrays: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
