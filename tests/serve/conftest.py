"""A small model and its gallery, served once for all tests."""

import io
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest
from PIL import Image
from starlette.testclient import TestClient

from keras_dml import methods
from keras_dml.data import View
from keras_dml.search import Index
from keras_dml.serve.app import application
from keras_dml.serve.current import Current, load
from keras_dml.serve.server import running, server_of
from keras_dml.serve.service import Service
from keras_dml.serve.settings import Settings, address_of, bind
from tests.conftest import blobs

LOCAL = "http://localhost"
"""The address of a server that only this machine reaches."""

EMPTY = Current("glyphs", keras.Sequential(), np.asarray)
"""A server's state whose model is never called."""

HOSTILE = "<img src=x onerror=document.title='broken'>"
"""A label that would run as a script in HTML."""


def make_model(seed: int = 0) -> keras.Model:
    """From gray 16×16 images to embeddings of length 8."""
    keras.utils.set_random_seed(seed)
    image = keras.Input((16, 16, 1))
    x = keras.layers.Conv2D(4, 3, strides=2, activation="relu")(image)
    network = keras.Model(image, x)
    return methods.baseline(network, embedding_dim=8)


def write(folder: Path, seed: int = 0) -> tuple[Path, Path]:
    """A model file and the index of its gallery."""
    model = make_model(seed)
    file, place = folder / "glyphs.keras", folder / "index"
    model.save(file)
    index = Index.build(model, blobs(seed=seed), columns())
    index.calibrate(index.embeddings, blobs(seed=seed).labels)
    index.save(place, overwrite=True)
    return file, place


def columns(folder: Path | None = None) -> dict[str, list[Any]]:
    """Columns of all types; files are written where there is a folder."""
    labels = blobs().labels
    values: dict[str, list[Any]] = {
        "name": [HOSTILE, *(f"class {x}" for x in labels[1:])],
        "label": labels.tolist(),
        "price": [x / 2 for x in range(48)],
        "new": [x % 2 == 0 for x in range(48)],
    }
    if folder is not None:
        paths = [folder / f"{row}.png" for row in range(48)]
        for row, path in enumerate(paths):
            path.write_bytes(picture(row))
        values["path"] = list(map(str, paths))
    return values


def picture(row: int = 0, kind: str = "png") -> bytes:
    """An image file of the gallery."""
    return encode(np.asarray(blobs().images[row]), kind)


def encode(pixels: np.ndarray, kind: str = "png", **options: Any) -> bytes:
    """An image file of pixels, (H, W, 1) or (H, W, 3) uint8."""
    file = io.BytesIO()
    Image.fromarray(pixels.squeeze()).save(file, kind, **options)
    return file.getvalue()


@contextmanager
def client_of(current: Current, **settings: Any) -> Iterator[TestClient]:
    """A client of an application; its `service` has another gallery later."""
    limits = Settings(**settings)
    service = Service(current, limits)
    app = application(service, limits)
    # In `with` all requests share one event loop.
    client = TestClient(app, LOCAL, raise_server_exceptions=False)
    with client as opened:
        opened.service = service
        yield opened


@contextmanager
def serving(
    current: Current = EMPTY, **settings: Any
) -> Iterator[SimpleNamespace]:
    """A server that listens, its service, port and address."""
    limits = Settings(port=0, **settings)
    service = Service(current, limits)
    server = server_of(application(service, limits), limits)
    with closing(bind(limits)) as opened:
        opened.listen()
        port, url = opened.getsockname()[1], f"{address_of(opened)}/"
        with running(server, opened):
            yield SimpleNamespace(
                server=server, service=service, port=port, url=url
            )


@pytest.fixture(scope="package")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return write(tmp_path_factory.mktemp("served"))


@pytest.fixture(scope="package")
def current(written: tuple[Path, Path]) -> Current:
    file, place = written
    return load(str(file)).with_gallery(str(place))


@pytest.fixture(scope="package")
def client(current: Current) -> Iterator[TestClient]:
    with client_of(current, max_body=200_000, max_pixels=10_000) as opened:
        yield opened


@pytest.fixture(scope="package")
def view(current: Current) -> View:
    return View.of(current.model)


@pytest.fixture(scope="package")
def pixels() -> np.ndarray:
    """Five images of the gallery, (5, 16, 16, 1) uint8."""
    return np.stack([blobs().read(i) for i in range(0, 40, 8)])


@pytest.fixture(scope="package")
def pictured(current: Current, tmp_path_factory: Any) -> Current:
    """A gallery whose pictures are files."""
    folder = tmp_path_factory.mktemp("gallery")
    index = Index.build(current.model, blobs(), columns(folder))
    index.calibrate(index.embeddings, blobs().labels)
    return replace(current, index=index)
