"""REST as TensorFlow Serving speaks it: its addresses, answers and errors."""

import asyncio
import contextlib
import itertools
import re
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from keras_dml.export.signatures import ENCODED, LOOKUP, LOOKUP_K
from keras_dml.serve.current import Current
from keras_dml.serve.definitions import Definition
from keras_dml.serve.errors import RequestError
from keras_dml.serve.json_arrays import may_hold_bools, parse
from keras_dml.serve.limits import check_any_pictures
from keras_dml.serve.number_arrays import read_numbers
from keras_dml.serve.requests import (
    PredictRequest,
    answer,
    check_examples,
    read,
    signature_of,
)
from keras_dml.serve.running import (
    Arrays,
    Run,
    in_budget,
    joined_outputs,
    length,
)
from keras_dml.serve.service import Service

_MODEL = r"(?i)/v1/models/([^/:]+)(?:/versions/(\d+)|/labels/([^/:]+))?"
_VERB = re.compile(_MODEL + ":(classify|regress|predict)")
_ABOUT = re.compile(_MODEL + "(/metadata)?")

FILES = (ENCODED, LOOKUP, LOOKUP_K)
"""Signatures of an export that take image files."""

_SMALL = 2**16
"""Bytes of a body that the event loop reads itself, in about a millisecond."""


def routes(service: Service) -> list[BaseRoute]:
    """The routes below /v1."""

    async def respond(request: Request) -> Response:
        path = request.scope["path"]
        if request.method == "POST" and (found := _VERB.fullmatch(path)):
            return await _post(service, request, *found.groups())
        if request.method in ("GET", "HEAD"):
            if found := _ABOUT.fullmatch(path):
                return _about(service.current, *found.groups())
            if path.rstrip("/").lower() == "/v1/models":
                raise RequestError("Missing model name in request.")
        raise RequestError(f"Malformed request: {request.method} {path}")

    methods = ["GET", "POST", "PUT", "PATCH", "DELETE"]
    return [Route("/v1/{path:path}", _Endpoint(respond), methods=methods)]


class _Endpoint:
    """Answers as a function does, and leaves its errors to the guard.

    Starlette wraps functions into a second handler of errors, which takes as
    long as the rest of the routing.
    """

    def __init__(
        self, respond: Callable[[Request], Awaitable[Response]]
    ) -> None:
        self._respond = respond

    async def __call__(
        self, scope: Scope, receive: Receive, send: Send
    ) -> None:
        response = await self._respond(Request(scope, receive))
        await response(scope, receive, send)


async def _post(
    service: Service,
    request: Request,
    name: str,
    version: str | None,
    label: str | None,
    verb: str,
) -> Response:
    current = service.current
    body = await request.body()
    most_pixels = service.settings.max_pixels

    def prepare() -> tuple[str, PredictRequest, list[int]]:
        numbers = read_numbers(body)
        if numbers is not None:
            # Where it fails, lists tell what is wrong.
            with contextlib.suppress(RequestError):
                return prepared(numbers, False)
        return prepared(parse(body), may_hold_bools(body))

    def prepared(
        document: Any, bools: bool
    ) -> tuple[str, PredictRequest, list[int]]:
        signature = signature_of(document)
        if verb.lower() != "predict":
            check_examples(document)
        _check_served(current, name, version, label)
        definition = _definition(current, signature, verb.lower())
        are_files = signature in FILES
        predict = read(document, definition.inputs, bools, are_files)
        return signature, predict, _pixels(predict.inputs, most_pixels)

    if len(body) <= _SMALL:
        signature, predict, pixels = prepare()
    else:
        signature, predict, pixels = await asyncio.to_thread(prepare)
    outputs = await _run(service, current, signature, predict.inputs, pixels)
    return _json(answer(outputs, predict.is_row))


_alone = itertools.count()


def _pixels(inputs: Arrays, most: int) -> list[int]:
    """Pixels of the pictures in each example of a request; or of all."""
    lengths = {len(x) if x.ndim else 1 for x in inputs.values()}
    rows = lengths.pop() if len(lengths) == 1 else 1
    counts = np.zeros(rows, np.int64)
    for array in inputs.values():
        if array.dtype == object and array.size:
            found = check_any_pictures(array.ravel().tolist(), most)
            counts += np.reshape(found, (rows, -1)).sum(axis=1)
    return counts.tolist()


async def _run(
    service: Service,
    current: Current,
    signature: str,
    inputs: Arrays,
    pixels: list[int],
) -> Arrays:
    """Outputs of a request, which runs with others where it can.

    One with more pixels than are decoded at a time runs in parts.
    """
    lengths = {len(x) for x in inputs.values() if x.ndim}
    run = Run(signature)
    is_batched = current.definitions[signature].is_batched
    if not is_batched or len(lengths) != 1 or lengths == {0}:
        key = f"{signature} alone {next(_alone)}"
        alone: Arrays = await service.submit(
            key, run, inputs, pixels=sum(pixels), current=current
        )
        return alone
    shapes = [(name, x.shape[1:]) for name, x in inputs.items()]
    parts = []
    for rows in in_budget(pixels, service.settings.max_pixels):
        part = {name: x[rows] for name, x in inputs.items()}
        found = await service.submit(
            f"{signature} {shapes}",
            run,
            part,
            size=length(part),
            pixels=sum(pixels[rows]),
            current=current,
        )
        parts.append(found)
    return parts[0] if len(parts) == 1 else joined_outputs(parts)


def _definition(current: Current, signature: str, verb: str) -> Definition:
    """The signature that a request wants, if it is for this."""
    if signature not in current.signatures:
        if verb == "predict":
            raise RequestError(
                f'Serving signature name: "{signature}" not found in signature '
                "def"
            )
        raise RequestError(f"No signature was found with the name: {signature}")
    definition = current.definitions[signature]
    if verb != "predict":
        kind = {"classify": "classification", "regress": "regression"}[verb]
        raise RequestError(
            f"Expected {kind} signature method_name to be "
            f"tensorflow/serving/{verb}. Was: {definition.method}"
        )
    return definition


def _about(
    current: Current,
    name: str,
    version: str | None,
    label: str | None,
    metadata: str | None,
) -> Response:
    """The status of a model, or its metadata."""
    if metadata:
        _check_served(current, name, version, label)
        return _json(orjson.dumps(_metadata(current)))
    _check_label(label)
    if name != current.name:
        raise RequestError(f"Could not find any versions of model {name}", 404)
    if version is not None and _number(version) != current.version:
        raise RequestError(
            f"Could not find version {version} of model {name}", 404
        )
    status = {
        "version": str(current.version),
        "state": "AVAILABLE",
        "status": {"error_code": "OK", "error_message": ""},
    }
    return _json(orjson.dumps({"model_version_status": [status]}))


def _metadata(current: Current) -> dict[str, Any]:
    definitions = {name: x.json for name, x in current.definitions.items()}
    spec = {
        "name": current.name,
        "signature_name": "",
        "version": str(current.version),
    }
    signatures = {"signature_def": definitions}
    return {"model_spec": spec, "metadata": {"signature_def": signatures}}


def _check_served(
    current: Current, name: str, version: str | None, label: str | None
) -> None:
    """Raises `RequestError` unless a request is for what is served."""
    _check_label(label)
    if version is None and name == current.name:
        return
    if version is None:
        raise RequestError(
            f"Servable not found for request: Latest({name})", 404
        )
    if name != current.name or _number(version) != current.version:
        raise RequestError(
            f"Servable not found for request: Specific({name}, {version})", 404
        )


def _check_label(label: str | None) -> None:
    # There are none: versions get theirs from a server's configuration.
    if label is not None:
        raise RequestError(f"Unrecognized servable version label: {label}")


def _number(version: str) -> int:
    if len(version) > 19 or int(version) >= 2**63:
        raise RequestError(f"Failed to convert version: {version} to numeric.")
    return int(version)


def _json(body: bytes) -> Response:
    return Response(body, media_type="application/json")
