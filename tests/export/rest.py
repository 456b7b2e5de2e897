"""REST of exports, for pages that ask TensorFlow Serving."""

import base64
import contextlib
import functools
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import tensorflow as tf


@contextlib.contextmanager
def serving(models: Path) -> Iterator[str]:
    """Serves the first version of every model in a folder, by columns.

    Gives the address of the server, host and port.
    """
    load = functools.cache(lambda x: tf.saved_model.load(str(models / x / "1")))

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            name = self.path.split("/")[3].partition(":")[0]
            answer = json.dumps(_predict(load(name), json.loads(body)))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(answer.encode())

        def log_message(self, *_: Any) -> None:
            """Logs nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever).start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()


def _predict(loaded: Any, request: dict[str, Any]) -> dict[str, Any]:
    function = loaded.signatures[request["signature_name"]]
    specs = function.structured_input_signature[1]
    inputs = {
        name: tf.constant([*map(_value, values)], specs[name].dtype)
        for name, values in request["inputs"].items()
    }
    outputs = {name: x.numpy() for name, x in function(**inputs).items()}
    return {
        "outputs": {name: _texts(x.tolist()) for name, x in outputs.items()}
    }


def _value(value: Any) -> Any:
    """Converts a JSON value, or base64 bytes."""
    return base64.b64decode(value["b64"]) if isinstance(value, dict) else value


def _texts(value: Any) -> Any:
    if isinstance(value, list):
        return [_texts(x) for x in value]
    return value.decode() if isinstance(value, bytes) else value
