"""Answers over REST as TensorFlow Serving does, to requests of files.

In row format an instance is a file, or an object of inputs by name; in column
format the inputs are an object.

It answers from the highest version in the folder of the model.
"""

import base64
import contextlib
import functools
import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf


@contextlib.contextmanager
def serving(models: Path) -> Iterator[str]:
    """Serves the models in a folder; gives the host and port."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            name = re.fullmatch(r"/v1/models/(\w+):predict", self.path)[1]
            length = int(self.headers["Content-Length"])
            answer = predict(models / name, json.loads(self.rfile.read(length)))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

        def log_message(self, *_: Any) -> None:
            """Says nothing."""

    with ThreadingHTTPServer(("localhost", 0), Handler) as server:
        threading.Thread(target=server.serve_forever).start()
        try:
            yield f"localhost:{server.server_port}"
        finally:
            server.shutdown()


def predict(model: Path, request: dict[str, Any]) -> dict[str, Any]:
    versions = [x for x in model.iterdir() if x.name.isdigit()]
    loaded = load(max(versions, key=lambda x: int(x.name)))
    is_row = "instances" in request
    columns = in_columns(request["instances"]) if is_row else request["inputs"]
    inputs = {
        name: tf.constant([decoded(x) for x in values])
        for name, values in columns.items()
    }
    outputs = loaded.signatures[request["signature_name"]](**inputs)
    found = {name: plain(x) for name, x in outputs.items()}
    if not is_row:
        return {"outputs": found}
    rows = zip(*found.values(), strict=True)
    return {"predictions": [dict(zip(found, x, strict=True)) for x in rows]}


def in_columns(instances: list[Any]) -> dict[str, list[Any]]:
    named = [{"images": x} if "b64" in x else x for x in instances]
    return {name: [x[name] for x in named] for name in named[0]}


@functools.cache
def load(version: Path) -> Any:
    return tf.saved_model.load(version)


def decoded(value: Any) -> Any:
    return base64.b64decode(value["b64"]) if isinstance(value, dict) else value


def plain(x: tf.Tensor) -> Any:
    values = np.asarray(x.numpy()).tolist()
    if x.dtype == tf.string:
        return np.char.decode(values, "utf-8").tolist()
    return values
