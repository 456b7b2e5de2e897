"""Running: requests that run through a signature, joined or in parts."""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from keras_dml.export.signatures import NOTHING
from keras_dml.serve.current import Current
from keras_dml.serve.limits import check_pictures
from keras_dml.serve.requests import Arrays
from keras_dml.serve.service import Service


def _run(current: Current, items: Sequence[tuple[str, Arrays]]) -> list[Arrays]:
    """Outputs of a signature for requests of it, joined along axis 0."""
    given = [inputs for _, inputs in items]
    inputs = {
        name: tf.constant(_joined([x[name] for x in given]))
        for name in given[0]
    }
    found = current.signatures[items[0][0]](**inputs)
    outputs = {name: x.numpy() for name, x in found.items()}
    if len(items) == 1:
        return [outputs]
    ends = np.cumsum([_length(x) for x in given]).tolist()
    return [
        {name: x[begin:end] for name, x in outputs.items()}
        for begin, end in itertools.pairwise([0, *ends])
    ]


_alone = itertools.count()


async def run(
    service: Service,
    current: Current,
    signature: str,
    inputs: Arrays,
    pixels: Sequence[int],
) -> Arrays:
    """Outputs of a request, which runs with others where it can.

    One with more pixels, as of `count_pixels`, than are decoded at a time runs
    in parts.
    """
    lengths = {len(x) for x in inputs.values() if x.ndim}
    is_batched = current.definitions[signature].is_batched
    if not is_batched or len(lengths) != 1 or lengths == {0}:
        key = f"{signature} alone {next(_alone)}"
        alone: Arrays = await service.submit(
            key,
            _run,
            (signature, inputs),
            pixels=sum(pixels),
            current=current,
        )
        return alone
    shapes = [(name, x.shape[1:]) for name, x in inputs.items()]
    parts = []
    for rows in in_budget(pixels, service.settings.max_pixels):
        part = {name: x[rows] for name, x in inputs.items()}
        found = await service.submit(
            f"{signature} {shapes}",
            _run,
            (signature, part),
            size=_length(part),
            pixels=sum(pixels[rows]),
            current=current,
        )
        parts.append(found)
    return parts[0] if len(parts) == 1 else joined_outputs(parts)


def count_pixels(inputs: Arrays, most: int) -> list[int]:
    """Pixels of the pictures in each example of a request; or of all.

    Raises:
        TooManyPixels: As of `check_pictures`.
    """
    lengths = {len(x) if x.ndim else 1 for x in inputs.values()}
    rows = lengths.pop() if len(lengths) == 1 else 1
    counts = np.zeros(rows, np.int64)
    for array in inputs.values():
        if array.dtype == object and array.size:
            found = check_pictures(array.ravel().tolist(), most)
            counts += np.reshape(found, (rows, -1)).sum(axis=1)
    return counts.tolist()


def in_budget(pixels: Sequence[int], most: int) -> list[slice]:
    """Consecutive rows with at most this number of pixels, or a single one."""
    starts, total = [0], 0
    for row, count in enumerate(pixels):
        if total and total + count > most:
            starts.append(row)
            total = 0
        total += count
    return [slice(*x) for x in itertools.pairwise([*starts, len(pixels)])]


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


def _length(arrays: Arrays) -> int:
    return len(next(iter(arrays.values())))


def _joined(arrays: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
