"""`:predict`, as TensorFlow Serving answers it: from JSON to predictions.

Signatures have the names and answers of those of an export.
"""

import binascii
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import orjson
import tensorflow as tf
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from keras_dml.export.files import DAMAGED, OK, UNSUPPORTED
from keras_dml.export.served import ENCODED, LOOKUP, PIXELS
from keras_dml.model.generated import input_specs
from keras_dml.model.warnings import warn_model_of_pixels
from keras_dml.search import Hit, Index
from keras_dml.serve.current import Current
from keras_dml.serve.errors import RequestError, bad_value
from keras_dml.serve.pictures import (
    NoPicture,
    Viewer,
    check_memory,
    weigh,
    weigh_arrays,
)
from keras_dml.serve.service import MAX_PICTURES, Service
from keras_dml.utils.types import FloatArray

Array = npt.NDArray[Any]
Arrays = Mapping[str, Array]

Prediction: TypeAlias = FloatArray | dict[str, Any]

Prepared: TypeAlias = tuple[str, Arrays, list[int]]
"""A signature, its inputs by name, and their weights; see `weights_of`."""

NEIGHBORS = 10
"""Rows that "lookup" finds, as in `keras-dml export`."""

_SMALL_BODY_BYTES = 2**16
"""Bytes of a body that the event loop parses itself, in about a millisecond."""

_ALLOWED_KINDS = {"f": "fiu", "i": "iu", "u": "iu", "b": "b"}
"""NumPy's kinds of numbers that are accepted for an expected kind."""

_STATUS = {
    "version": "1",
    "state": "AVAILABLE",
    "status": {"error_code": "OK", "error_message": ""},
}


def routes(service: Service) -> list[BaseRoute]:
    def current_of(request: Request) -> Current:
        current, name = service.current, request.path_params["name"]
        if name != current.name:
            raise RequestError(
                f"Only the model {current.name!r} is served. Received: "
                f"{name!r}.",
                404,
            )
        return current

    def describe(request: Request) -> Response:
        current_of(request)
        body = orjson.dumps({"model_version_status": [_STATUS]})
        return Response(body, media_type="application/json")

    async def predict(request: Request) -> Response:
        current = current_of(request)
        prepared = await _prepare(service, current, await request.body())
        answer = {"predictions": await run(service, current, *prepared)}
        # A float32 is written with as few digits as identify it.
        body = orjson.dumps(answer, option=orjson.OPT_SERIALIZE_NUMPY)
        return Response(body, media_type="application/json")

    address = "/v1/models/{name}"
    return [
        Route(f"{address}:predict", predict, methods=["POST"]),
        Route(address, describe),
    ]


async def _prepare(service: Service, current: Current, body: bytes) -> Prepared:
    max_pixels = service.settings.max_pixels

    def prepare() -> Prepared:
        document = parse(body)
        files = [] if current.viewer is None else [ENCODED]
        lookup = [] if current.index is None else [LOOKUP]
        names = [PIXELS, *files, *lookup]
        signature = document.get("signature_name") or PIXELS
        if signature not in names:
            raise bad_value("signature_name", f"be one of {names}", signature)
        instances = document.get("instances")
        inputs = read_inputs(current, signature, instances)
        return signature, inputs, weights_of(current, inputs, max_pixels)

    if len(body) <= _SMALL_BODY_BYTES:
        return prepare()
    memory = await run_in_threadpool(memory_of, body)
    weight = check_memory(memory, max_pixels)
    prepared: Prepared = await service.submit(
        "json", _call_all, prepare, pixels=weight
    )
    return prepared


def _call_all(
    _: Current, functions: Sequence[Callable[[], Prepared]]
) -> list[Prepared]:
    return [function() for function in functions]


def memory_of(body: bytes) -> int:
    """Estimates the memory that `parse` and `read_inputs` take, in bytes.

    A list takes 96 bytes, an object 256, and a number 64 with its place in the
    list and in the arrays that are made of it.
    """
    lists, objects, items = (body.count(x) for x in (b"[", b"{", b","))
    return 2 * len(body) + 96 * lists + 256 * objects + 64 * items


def parse(body: bytes) -> dict[str, Any]:
    try:
        document = orjson.loads(body)
    # These errors include nesting that would exhaust the stack, and numbers
    # that are too large for a float.
    except orjson.JSONDecodeError as error:
        raise RequestError(
            f"The body of a request must be JSON. It cannot be read: {error}."
        ) from error
    if not isinstance(document, dict):
        raise bad_value("body", "be an object", document)
    return document


def read_inputs(current: Current, signature: str, instances: Any) -> Arrays:
    """The arrays of B rows by name, for the inputs of a signature.

    `instances` must be a list of B values of the only input, or of objects that
    have a value for each input.
    """
    if not isinstance(instances, list) or not instances:
        raise bad_value("instances", "be a list of one item or more", instances)
    specs: Any = input_specs(current.model)
    if current.viewer is None:
        specs = specs if isinstance(specs, dict) else {"inputs": specs}
    elif signature == PIXELS:
        shape = (None, None, None, specs.shape[-1])
        specs = {"images": tf.TensorSpec(shape, tf.float32)}
    else:
        specs = {"images": tf.TensorSpec((None,), tf.string)}
    columns = {}
    if len(specs) == 1 and not _has_names(instances[0]):
        columns = {next(iter(specs)): instances}
    else:
        for row in instances:
            if not _has_names(row) or row.keys() != specs.keys():
                rule = f"be a list of objects with the keys {sorted(specs)}"
                raise bad_value("instances", rule, row)
        columns = {name: [row[name] for row in instances] for name in specs}
    if current.viewer is not None and signature != PIXELS:
        for file in columns["images"]:
            if not _is_b64(file):  # Strings cannot be files.
                rule = 'hold image files as objects {"b64": "…"}'
                raise bad_value("images", rule, file)
    return {
        name: as_array(
            value, tf.TensorSpec(specs[name].shape, specs[name].dtype), name
        )
        for name, value in columns.items()
    }


def as_array(value: Any, spec: tf.TensorSpec, key: str) -> Array:
    """Nested lists as an array of a spec; strings become bytes, as `object`."""
    nested = np.array(value, object)
    flat = nested.ravel().tolist()
    if any(isinstance(x, list) for x in flat):
        rule = "hold either values or lists of one length at each level"
        raise bad_value(key, rule, value)
    if spec.dtype == tf.string:
        array = np.empty(len(flat), object)
        array[:] = [_bytes(x, key) for x in flat]
    else:
        array = _numbers(flat, spec.dtype, key)
    if not spec.shape.is_compatible_with(nested.shape):
        rule = f"have the shape {spec.shape}, where None is any length"
        raise bad_value(key, rule, nested.shape)
    return array.reshape(nested.shape)


def _has_names(value: Any) -> bool:
    return isinstance(value, dict) and not _is_b64(value)


def _is_b64(value: Any) -> bool:
    """Whether a value is bytes: an object {"b64": "…"}."""
    return (
        isinstance(value, dict)
        and len(value) == 1
        and isinstance(value.get("b64"), str)
    )


def _bytes(value: Any, key: str) -> bytes:
    try:
        if isinstance(value, str):
            return value.encode()
        if _is_b64(value):
            text = value["b64"] + "=" * (-len(value["b64"]) % 4)
            return binascii.a2b_base64(text, strict_mode=True)
    except ValueError:  # It is half a character, "\ud800", or no base64.
        pass
    rule = 'hold strings, or objects {"b64": "…"} with bytes in base64'
    raise bad_value(key, rule, value)


def _numbers(flat: list[Any], dtype: tf.DType, key: str) -> Array:
    """Casts numbers to a type, which must hold all of them."""
    result_type = np.dtype(dtype.as_numpy_dtype)
    rule = f"hold values of type {dtype.name}"
    kinds = {bool} if dtype.is_bool else {int, float}
    if not kinds.issuperset(map(type, flat)):
        other = next(x for x in flat if type(x) not in kinds)
        raise bad_value(key, rule, other)
    array = np.array(flat)  # It has objects if a number is too large.
    if not flat:
        return array.astype(result_type)
    if array.dtype.kind not in _ALLOWED_KINDS.get(result_type.kind, ""):
        raise bad_value(key, rule, flat[0])
    with np.errstate(all="ignore"):
        cast = array.astype(result_type)
        if array.dtype.kind == "f":
            is_exact = np.isfinite(cast) == np.isfinite(array)
        elif result_type.kind == "f":
            is_exact = cast.astype(array.dtype) == array
        else:
            is_exact = cast == array
    if not is_exact.all():
        raise bad_value(key, rule, array[~is_exact].tolist()[0])
    return cast


def weights_of(current: Current, inputs: Arrays, max_pixels: int) -> list[int]:
    """The pixels that each row of a request takes; see `pictures.weigh`."""
    if current.viewer is None:
        return [0] * len(next(iter(inputs.values())))
    images = inputs["images"]
    if images.dtype != object:
        weights = [weigh_arrays(images.shape, max_pixels)] * len(images)
    else:
        weights = []
        for file in images:
            try:
                weights.append(weigh(file, max_pixels))
            except NoPicture:  # Its status reports this.
                weights.append(0)
    if (total := sum(weights)) > MAX_PICTURES * max_pixels:
        raise RequestError(
            "The pictures in a request must not have more than "
            f"{MAX_PICTURES * max_pixels:,} pixels in total. Received: "
            f"{total:,}. Send them in several requests.",
            413,
        )
    return weights


async def run(
    service: Service,
    current: Current,
    signature: str,
    inputs: Arrays,
    weights: Sequence[int],
) -> list[Prediction]:
    """The prediction for each row of a request, in batches with others.

    A request with more rows than a batch, or with pictures that exceed the
    budget of pixels, runs in parts.
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
    """The prediction for each row of the inputs, ready for JSON.

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
    elif signature == PIXELS:
        images = inputs["images"]
        warn_model_of_pixels(current.model, images, PIXELS)
        embeddings = current.embed(current.viewer.see_pixels(images))
    else:
        files = inputs["images"]
        status, embeddings = _embed_files(current, current.viewer, files)
    if signature == PIXELS:
        return list(embeddings)
    predictions: list[Any] = (
        look_up(current, embeddings)
        if signature == LOOKUP
        else [{"embedding": x} for x in embeddings]
    )
    if status is not None:
        for prediction, text in zip(predictions, status, strict=True):
            prediction["status"] = text
    return predictions


def _embed_files(
    current: Current, viewer: Viewer, files: Array
) -> tuple[list[str], FloatArray]:
    """Statuses, B, and embeddings, (B, D)."""
    views = np.zeros((len(files), *viewer.shape), np.float32)
    status = [OK] * len(files)
    for row, data in enumerate(files):
        try:
            # Any size is allowed here, as `weights_of` has checked it.
            weigh(data, 2**62)
            views[row] = viewer.see(data)
        except NoPicture:
            status[row] = UNSUPPORTED
        except ValueError:
            status[row] = DAMAGED
    embeddings = current.embed(views)
    embeddings[[x != OK for x in status]] = 0
    return status, embeddings


def look_up(current: Current, embeddings: FloatArray) -> list[dict[str, Any]]:
    """The nearest rows of the gallery to each embedding, (B, D)."""
    index = current.index
    assert isinstance(index, Index)  # noqa: S101
    # Zeros, and an overflow in half precision, have no neighbors.
    has_length = np.isfinite(embeddings).all(axis=1) & embeddings.any(axis=1)
    hits: list[list[Hit]] = [[] for _ in embeddings]
    if has_length.any():
        k = min(NEIGHBORS, len(index))
        nearest = index.search(embeddings[has_length], k)
        for row, neighbors in zip(
            np.flatnonzero(has_length), nearest, strict=True
        ):
            hits[row] = neighbors
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
    """Escapes surrogates in a key or label, which file names may hold."""
    if not isinstance(value, str):
        return value
    return value.encode(errors="backslashreplace").decode()
