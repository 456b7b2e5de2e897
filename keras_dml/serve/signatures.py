"""Signatures: what `:predict` computes, named as in an export."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from keras_dml.model.generated import input_specs
from keras_dml.model.warnings import warn_model_of_pixels
from keras_dml.search import Hit, Index
from keras_dml.serve.current import Current
from keras_dml.serve.pictures import (
    NoPicture,
    TooManyPixels,
    Viewer,
    weigh,
    weigh_arrays,
)
from keras_dml.serve.requests import Array, Arrays
from keras_dml.serve.service import MAX_WAITING, Service
from keras_dml.utils.types import FloatArray

PIXELS, FILES, LOOKUP = "serving_default", "encoded", "lookup"

Prediction: TypeAlias = FloatArray | dict[str, Any]

OK, UNSUPPORTED, DAMAGED = "ok", "unsupported", "damaged"

NEIGHBORS = 10
"""What "lookup" finds, as in `keras-dml export`."""


def signatures_of(current: Current) -> list[str]:
    """The names of the signatures that are served."""
    files = [] if current.viewer is None else [FILES]
    return [PIXELS, *files, *([] if current.index is None else [LOOKUP])]


def takes_files(current: Current, signature: str) -> bool:
    """Whether a signature takes image files."""
    return current.viewer is not None and signature != PIXELS


def inputs_of(current: Current, signature: str) -> Mapping[str, tf.TensorSpec]:
    """What a signature takes, by name."""
    if takes_files(current, signature):
        return {"images": tf.TensorSpec((None,), tf.string)}
    specs: Any = input_specs(current.model)
    if current.viewer is not None:
        shape = (None, None, None, specs.shape[-1])
        return {"images": tf.TensorSpec(shape, tf.float32)}
    return {
        name: tf.TensorSpec(spec.shape, spec.dtype)
        for name, spec in _by_name(specs).items()
    }


def weights_of(
    current: Current, signature: str, inputs: Arrays, max_pixels: int
) -> list[int]:
    """What each row of a request takes, in pixels; see `pictures.weigh`.

    Raises:
        RequestError: If a picture is too long and thin.
        TooManyPixels: If one is too large, or all together are.
    """
    rows = len(next(iter(inputs.values())))
    if current.viewer is None:
        return [0] * rows
    images = inputs["images"]
    if not takes_files(current, signature):
        weights = [weigh_arrays(images.shape, max_pixels)] * rows
    else:
        weights = [_weight_or_nothing(x, max_pixels) for x in images]
    if (total := sum(weights)) > MAX_WAITING * max_pixels:
        raise TooManyPixels(
            "The pictures in a request must not have more than "
            f"{MAX_WAITING * max_pixels:,} pixels in total. Received: "
            f"{total:,}. Send them in several requests."
        )
    return weights


def _weight_or_nothing(data: bytes, max_pixels: int) -> int:
    try:
        return weigh(data, max_pixels)
    except NoPicture:  # Its status will say so.
        return 0


async def run(
    service: Service,
    current: Current,
    signature: str,
    inputs: Arrays,
    weights: Sequence[int],
) -> list[Prediction]:
    """What is predicted for each row of a request, with others where it can.

    One with more rows than a batch has, or with pictures that take more than
    is decoded at a time, runs in parts.
    """
    settings = service.settings
    shapes = [(name, x.shape[1:]) for name, x in inputs.items()]
    predictions: list[Prediction] = []
    for rows in parts_of(weights, settings.max_pixels, settings.max_batch):
        predictions += await service.submit(
            f"{signature} {shapes}",
            _run,
            (signature, {name: x[rows] for name, x in inputs.items()}),
            size=len(weights[rows]),
            pixels=sum(weights[rows]),
            current=current,
        )
    return predictions


def parts_of(
    weights: Sequence[int], max_pixels: int, max_batch: int
) -> list[slice]:
    """Consecutive rows that fit into a batch and its pixels, or single ones."""
    starts, total = [0], 0
    for row, weight in enumerate(weights):
        is_full = total + weight > max_pixels or row - starts[-1] == max_batch
        if row > starts[-1] and is_full:
            starts.append(row)
            total = 0
        total += weight
    return [slice(*x) for x in itertools.pairwise([*starts, len(weights)])]


def _run(
    current: Current, items: Sequence[tuple[str, Arrays]]
) -> list[list[Prediction]]:
    """Predictions of a signature for requests of it, joined along axis 0."""
    parts = [inputs for _, inputs in items]
    inputs = {
        name: np.concatenate([x[name] for x in parts]) for name in parts[0]
    }
    predictions = iter(predict(current, items[0][0], inputs))
    return [
        list(itertools.islice(predictions, len(next(iter(x.values())))))
        for x in parts
    ]


def predict(
    current: Current, signature: str, inputs: Arrays
) -> list[Prediction]:
    """What a signature says of each row of its inputs, ready for JSON.

    "serving_default" has the embedding alone; "encoded" `embedding` and
    `status`; "lookup" lists of `ids`, `labels`, `scores` and `above_threshold`,
    the nearest first, and for files `status`. Unless that is "ok", embeddings
    are zeros and lists empty.
    """
    status = None
    if current.viewer is None:
        batch: Any = inputs
        if not isinstance(input_specs(current.model), dict):
            [batch] = inputs.values()
        embeddings = current.embed(batch)
    elif takes_files(current, signature):
        status, embeddings = _embed_files(current, inputs["images"])
    else:
        images = inputs["images"]
        warn_model_of_pixels(current.model, images, PIXELS)
        embeddings = current.embed(current.viewer.see_batch(images))
    if signature == PIXELS:
        return list(embeddings)
    predictions: list[Any] = (
        look_up(current, embeddings)
        if signature == LOOKUP
        else [{"embedding": x} for x in embeddings]
    )
    if status is None:
        return predictions
    return [
        {**prediction, "status": x}
        for prediction, x in zip(predictions, status, strict=True)
    ]


def _embed_files(
    current: Current, files: Array
) -> tuple[list[str], FloatArray]:
    """Statuses, B, and embeddings, (B, D)."""
    assert isinstance(current.viewer, Viewer)  # noqa: S101
    views = np.zeros((len(files), *current.viewer.shape), np.float32)
    status = [OK] * len(files)
    for row, data in enumerate(files):
        try:
            # A large number, as what is too large has been refused before.
            weigh(data, 2**62)
            views[row] = current.viewer.see(data)
        except NoPicture:
            status[row] = UNSUPPORTED
        except ValueError:
            status[row] = DAMAGED
    embeddings = current.embed(views)
    embeddings[[x != OK for x in status]] = 0
    return status, embeddings


def look_up(current: Current, embeddings: FloatArray) -> list[dict[str, Any]]:
    """The nearest rows of the gallery to each embedding, (B, D).

    One of zeros, or with an overflow in half precision, has none.
    """
    index = current.index
    assert isinstance(index, Index)  # noqa: S101
    has_length = np.isfinite(embeddings).all(axis=1) & embeddings.any(axis=1)
    hits: list[list[Hit]] = [[] for _ in embeddings]
    if has_length.any():
        k = min(NEIGHBORS, len(index))
        nearest = index.search(embeddings[has_length], k)
        for row, found in zip(np.flatnonzero(has_length), nearest, strict=True):
            hits[row] = found
    column = current.label_column
    return [
        {
            "ids": [_utf8(hit.key) for hit in row],
            "labels": [column and _utf8(hit.row[column]) for hit in row],
            "scores": np.array([hit.score for hit in row], np.float32),
            "above_threshold": [hit.is_match is not False for hit in row],
        }
        for row in hits
    ]


def _utf8(value: Any) -> Any:
    """A key or label; names of files may hold what UTF-8 does not."""
    if not isinstance(value, str):
        return value
    return value.encode(errors="backslashreplace").decode()


def _by_name(specs: Any) -> dict[str, Any]:
    return specs if isinstance(specs, dict) else {"inputs": specs}
