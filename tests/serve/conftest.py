"""A small model and its gallery, served once for all tests."""

from collections.abc import Iterator
from pathlib import Path

import keras
import numpy as np
import pytest
from starlette.testclient import TestClient

from keras_dml import methods
from keras_dml.data import View
from keras_dml.export import parity
from keras_dml.search import Index
from keras_dml.serve.app import application
from keras_dml.serve.current import Current
from keras_dml.serve.loading import load
from keras_dml.serve.service import Service
from keras_dml.serve.settings import Settings
from keras_dml.serve.sources import find_source
from tests.conftest import blobs

LOCAL = "http://localhost"
"""How a server of this machine alone may be asked."""


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
    images = blobs(seed=seed)
    index = Index.build(model, images, {"name": [f"é{i}" for i in range(48)]})
    index.save(place, overwrite=True)
    return file, place


@pytest.fixture(scope="package")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return write(tmp_path_factory.mktemp("served"))


@pytest.fixture(scope="package")
def current(written: tuple[Path, Path]) -> Current:
    file, place = written
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parity, "compare", lambda *args: None)
        return load(find_source(str(file), gallery=str(place)))


@pytest.fixture
def settings() -> Settings:
    return Settings(max_body=100_000, max_pixels=10_000)


@pytest.fixture
def client(current: Current, settings: Settings) -> Iterator[TestClient]:
    app = application(Service(current, settings), settings)
    with TestClient(app, LOCAL) as x:
        yield x


@pytest.fixture(scope="package")
def view(current: Current) -> View:
    return current.view


@pytest.fixture(scope="package")
def pixels() -> np.ndarray:
    """Five images of the gallery, (5, 16, 16, 1) uint8."""
    return np.stack([blobs().read(i) for i in range(0, 40, 8)])
