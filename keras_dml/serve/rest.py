"""REST as TensorFlow Serving speaks it: its addresses, shapes and statuses."""

import asyncio
import re
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from keras_dml.export.signatures import ENCODED, LOOKUP, LOOKUP_K
from keras_dml.serve.current import Current
from keras_dml.serve.errors import RequestError
from keras_dml.serve.requests import (
    Arrays,
    answer,
    parse,
    read_inputs,
    signature_of,
    wrong,
)
from keras_dml.serve.running import count_pixels, run
from keras_dml.serve.service import Service

_MODEL = r"(?i)/v1/models/([^/:]+)(?:/versions/(\d{1,18}))?"
_PREDICT = re.compile(_MODEL + "(:predict)")
_ABOUT = re.compile(_MODEL + "(/metadata)?")

FILES = (ENCODED, LOOKUP, LOOKUP_K)
"""Signatures of an export that take image files."""

_SMALL = 2**16
"""Bytes of a body that the event loop reads itself, in about a millisecond."""


def routes(service: Service) -> list[BaseRoute]:
    """The routes below /v1."""

    async def respond(request: Request) -> Response:
        method, path = request.method, request.scope["path"]
        found = (_PREDICT if method == "POST" else _ABOUT).fullmatch(path)
        if found is None or method not in ("GET", "HEAD", "POST"):
            raise RequestError(
                "A request must be `GET /v1/models/NAME`, `GET /v1/models/NAME"
                "/metadata` or `POST /v1/models/NAME:predict`. Received: "
                f"{method} {path[:200]}."
            )
        current = service.current
        _check_served(current, found[1], found[2])
        if method == "POST":
            body = await _predict(service, current, await request.body())
        else:
            about = _metadata(current) if found[3] else _status(current)
            body = orjson.dumps(about)
        return Response(body, media_type="application/json")

    methods = ["GET", "POST", "PUT", "PATCH", "DELETE"]
    return [Route("/v1/{path:path}", respond, methods=methods)]


async def _predict(service: Service, current: Current, body: bytes) -> bytes:
    def prepare() -> tuple[str, bool, Arrays, list[int]]:
        document = parse(body)
        signature = signature_of(document)
        if signature not in current.signatures:
            rule = f"be one of {sorted(current.signatures)}"
            raise wrong("signature_name", rule, signature)
        specs = current.definitions[signature].inputs
        is_row, inputs = read_inputs(document, specs, signature in FILES)
        pixels = count_pixels(inputs, service.settings.max_pixels)
        return signature, is_row, inputs, pixels

    is_small = len(body) <= _SMALL
    prepared = prepare() if is_small else await asyncio.to_thread(prepare)
    signature, is_row, inputs, pixels = prepared
    outputs = await run(service, current, signature, inputs, pixels)
    return answer(outputs, is_row)


def _status(current: Current) -> dict[str, Any]:
    status = {
        "version": str(current.version),
        "state": "AVAILABLE",
        "status": {"error_code": "OK", "error_message": ""},
    }
    return {"model_version_status": [status]}


def _metadata(current: Current) -> dict[str, Any]:
    definitions = {name: x.json for name, x in current.definitions.items()}
    spec = {
        "name": current.name,
        "signature_name": "",
        "version": str(current.version),
    }
    signatures = {"signature_def": definitions}
    return {"model_spec": spec, "metadata": {"signature_def": signatures}}


def _check_served(current: Current, name: str, version: str | None) -> None:
    """Raises `RequestError` unless a request is for what is served."""
    number = current.version if version is None else int(version)
    if (name, number) != (current.name, current.version):
        raise RequestError(
            f"Only version {current.version} of {current.name!r} is served. "
            f"Received: version {number} of {name!r}.",
            404,
        )
