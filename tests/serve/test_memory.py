"""Memory of a server under large requests."""

import io
import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pytest

from tests.serve.test_process import PREDICT, Server, serving
from tests.serve.test_rest import b64

pytestmark = pytest.mark.slow

LIMIT = 1.3e9
"""Bytes that the process may have resident, of TensorFlow 0.75e9."""

SIDE = 8000
"""Of a picture that has almost as many pixels as the server takes."""


def file_of(kind: str, mode: str, side: int = SIDE, **options: Any) -> bytes:
    file = io.BytesIO()
    # Of a black picture, the embedding would be zero.
    image = PIL.Image.linear_gradient("L").resize((side, side))
    if mode == "I;16":
        image = PIL.Image.fromarray(np.asarray(image, np.uint16) * 257)
    image = image.convert(mode)
    if options.get("save_all"):
        options["append_images"] = [PIL.Image.new(mode, (side, side), 9)]
    image.save(file, kind, **options)
    return file.getvalue()


FILES = {
    "JPEG": lambda: file_of("JPEG", "RGB"),
    "progressive JPEG": lambda: file_of("JPEG", "RGB", progressive=True),
    "JPEG in CMYK": lambda: file_of("JPEG", "CMYK"),
    "PNG": lambda: file_of("PNG", "RGBA"),
    "PNG of 16 bits": lambda: file_of("PNG", "I;16"),
    "GIF": lambda: file_of("GIF", "P", save_all=True),
    "TIFF": lambda: file_of(
        "TIFF", "RGB", 6000, compression="tiff_adobe_deflate"
    ),
    "animated WebP": lambda: file_of("WEBP", "RGB", 4000, save_all=True),
    "JPEG 2000": lambda: file_of("JPEG2000", "RGB", 3800),
}


@pytest.fixture(scope="module")
def server(written):
    options = ("--gallery", written[1], "--request-timeout", "50")
    with serving(written[0], *options) as running:
        yield running


def peak(server: Server) -> float:
    """The most memory that was resident so far, in bytes."""
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    [line] = [x for x in status.splitlines() if x.startswith("VmHWM")]
    return 1024 * float(line.split()[1])


def post(server: Server, path: str, body: bytes) -> int:
    with closing(server.connect()) as connection:
        connection.request("POST", path, body)
        answer = connection.getresponse()
        answer.read()
        return answer.status


def at_once(server: Server, requests: list[tuple[str, bytes]]) -> Counter[int]:
    """Statuses of forty requests, of each kind as many."""
    with ThreadPoolExecutor(40) as pool:
        numbers = range(40)
        return Counter(
            pool.map(
                lambda i: post(server, *requests[i % len(requests)]), numbers
            )
        )


@pytest.mark.parametrize("kind", FILES)
def test_forty_large_pictures_stay_within_the_memory_limit(
    server, kind
) -> None:
    file = FILES[kind]()
    body = {"signature_name": "encoded", "instances": [b64(file)]}
    requests = [
        ("/search", file),
        (PREDICT, json.dumps(body).encode()),
    ]
    codes = at_once(server, requests)
    assert codes.keys() <= {200, 503, 504}
    assert codes[200]
    assert peak(server) < LIMIT
