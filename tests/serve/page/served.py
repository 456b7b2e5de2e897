"""Small models with galleries, served to a client of the page."""

import functools
import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import keras
import numpy as np
from PIL import Image
from starlette.testclient import TestClient

from keras_dml import backbones, methods
from keras_dml.data import View
from keras_dml.search import Index
from keras_dml.serve.app import application
from keras_dml.serve.current import Current
from keras_dml.serve.outputs import Outputs
from keras_dml.serve.reloading import Reloader
from keras_dml.serve.service import Service
from keras_dml.serve.settings import Settings
from keras_dml.serve.sources import Source
from tests.conftest import blobs
from tests.serve.conftest import LOCAL

HOSTILE = "<img src=x onerror=document.title='broken'>"
"""A label that would be run if it were taken for HTML."""


def small_model(method: str = "attentive_grouping") -> keras.Model:
    """A model of 16×16 gray images, not trained."""
    keras.utils.set_random_seed(1)
    backbone = backbones.small_convnet((16, 16, 1), filters=(4, 8))
    made = {
        "attentive_grouping": {"embedding_dim": 8, "num_groups": 2},
        "abe": {
            "embedding_dim": 8, "num_learners": 2,
            "branch": "relu_0", "attention_end": "relu_1",
        },
        "bier": {"embedding_dim": 7, "group_sizes": (3, 4)},
        "dcml": {"embedding_dim": 8, "num_learners": 2},
        "baseline": {"embedding_dim": 8},
    }  # fmt: skip
    return getattr(methods, method)(backbone, **made[method])


def small_gallery(model: keras.Model, folder=None) -> Index:
    """48 images of six classes, with columns of all types."""
    index = Index.build(model, blobs(), columns(folder))
    index.calibrate(index.embeddings, blobs().labels)
    return index


def columns(folder=None) -> dict[str, list[Any]]:
    """Those of `small_gallery`; files are written where there is a folder."""
    labels = blobs().labels
    values = {
        "name": [HOSTILE, *(f"class {x}" for x in labels[1:])],
        "label": labels.tolist(),
        "price": [x / 2 for x in range(48)],
        "new": [x % 2 == 0 for x in range(48)],
    }
    if folder is not None:
        paths = [write_picture(folder / f"{row}.png", row) for row in range(48)]
        values["path"] = list(map(str, paths))
    return values


@functools.cache
def outputs_of(model: keras.Model) -> Outputs:
    """Compiled once for all servers of a model."""
    return Outputs(model, View.of(model))


def current(model, index=None, version: int = 1) -> Current:
    return Current(
        "small",
        version,
        model,
        View.of(model),
        index,
        {},
        outputs=outputs_of(model),
    )


@contextmanager
def client(now: Current, **settings) -> Iterator[TestClient]:
    """A client of a server; its `service` can be given another version.

    And its `reloader` something that it is loading.
    """
    made = Settings(**settings)
    service = Service(now, made)
    reloader = idle_reloader(service)
    # In `with` all requests share one event loop.
    with TestClient(application(service, made, reloader), LOCAL) as opened:
        opened.service, opened.reloader = service, reloader
        yield opened


def idle_reloader(service: Service) -> Reloader:
    """One that never finds anything new."""
    source = Source("small", Path("small.keras"))
    return Reloader(service, source, source.stamps())


def picture(row: int = 0, kind: str = "png") -> bytes:
    """An image file of the gallery."""
    file = io.BytesIO()
    Image.fromarray(np.asarray(blobs().images[row])).save(file, kind)
    return file.getvalue()


def write_picture(path, row: int = 0):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(picture(row))
    return path
