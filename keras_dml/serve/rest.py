"""REST as TensorFlow Serving speaks it: its addresses, shapes and statuses."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import orjson
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from keras_dml.serve.current import Current
from keras_dml.serve.errors import RequestError
from keras_dml.serve.pictures import check_memory
from keras_dml.serve.requests import (
    Arrays,
    memory_of,
    parse,
    read_inputs,
    wrong,
)
from keras_dml.serve.service import Service
from keras_dml.serve.signatures import (
    PIXELS,
    inputs_of,
    run,
    signatures_of,
    takes_files,
    weights_of,
)

_SMALL = 2**16
"""Bytes of a body that the event loop reads itself, in about a millisecond."""

Prepared: TypeAlias = tuple[str, Arrays, list[int]]
"""A signature, its inputs by name, and their weights; see `weights_of`."""

_STATUS = {
    "version": "1",
    "state": "AVAILABLE",
    "status": {"error_code": "OK", "error_message": ""},
}


def routes(service: Service) -> list[BaseRoute]:
    """The routes below /v1."""

    def describe(request: Request) -> Response:
        _check_name(service.current, request)
        body = orjson.dumps({"model_version_status": [_STATUS]})
        return Response(body, media_type="application/json")

    async def predict(request: Request) -> Response:
        current = service.current
        _check_name(current, request)
        body = await _predict(service, current, await request.body())
        return Response(body, media_type="application/json")

    address = "/v1/models/{name}"
    return [
        Route(f"{address}:predict", predict, methods=["POST"]),
        Route(address, describe),
    ]


async def _predict(service: Service, current: Current, body: bytes) -> bytes:
    max_pixels = service.settings.max_pixels

    def prepare() -> Prepared:
        document = parse(body)
        signature = document.get("signature_name") or PIXELS
        if signature not in (names := signatures_of(current)):
            raise wrong("signature_name", f"be one of {names}", signature)
        inputs = read_inputs(
            document.get("instances"),
            inputs_of(current, signature),
            takes_files(current, signature),
        )
        weights = weights_of(current, signature, inputs, max_pixels)
        return signature, inputs, weights

    if len(body) <= _SMALL:
        prepared = prepare()
    else:
        memory = await run_in_threadpool(memory_of, body)
        weight = check_memory(memory, max_pixels)
        prepared = await service.submit(
            "json", _call_all, prepare, pixels=weight
        )
    predictions = await run(service, current, *prepared)
    # A float32 has the digits that tell it from others, not those of a float64.
    answer = {"predictions": predictions}
    return orjson.dumps(answer, option=orjson.OPT_SERIALIZE_NUMPY)


def _call_all(
    _: Current, functions: Sequence[Callable[[], Prepared]]
) -> list[Prepared]:
    return [function() for function in functions]


def _check_name(current: Current, request: Request) -> None:
    """Raises `RequestError` unless a request is for the model served."""
    name = request.path_params["name"]
    if name != current.name:
        raise RequestError(
            f"Only the model {current.name!r} is served. Received: {name!r}.",
            404,
        )
