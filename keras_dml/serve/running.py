"""Batches of requests that run through a signature."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from keras_dml.export.signatures import NOTHING
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


def in_budget(pixels: Sequence[int], most: int) -> list[slice]:
    """Consecutive rows with at most this number of pixels, or a single one."""
    starts, total = [0], 0
    for row, count in enumerate(pixels):
        if total and total + count > most:
            starts.append(row)
            total = 0
        total += count
    return [slice(*x) for x in pairwise([*starts, len(pixels)])]


def joined_outputs(parts: Sequence[Arrays]) -> Arrays:
    """Outputs of parts of a request as those of the whole.

    "lookup_k" has as many columns as the largest `k` of a part needs; behind
    them there is what it has beyond an image's own `k`.
    """
    return {
        name: np.concatenate(_same_width([part[name] for part in parts]))
        for name in parts[0]
    }


def _same_width(
    arrays: Sequence[npt.NDArray[Any]],
) -> Sequence[npt.NDArray[Any]]:
    if arrays[0].ndim != 2:
        return arrays
    width = max(x.shape[1] for x in arrays)
    nothing: Any = NOTHING.get(tf.as_dtype(arrays[0].dtype), 0)
    if isinstance(nothing, str):
        nothing = nothing.encode()
    return [
        np.pad(x, [(0, 0), (0, width - x.shape[1])], constant_values=nothing)
        for x in arrays
    ]


def _joined(arrays: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
