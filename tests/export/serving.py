"""A client for `server.py`, and models and images to serve."""

import functools
import io
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import PIL.Image
import tensorflow as tf

from keras_dml import backbones, methods
from keras_dml.data import View

SERVER = Path(__file__).with_name("server.py")


def make_model(channels: int = 1, **kwargs: Any) -> keras.Model:
    """A model of two learners; no export may hold its loss's weights."""
    return methods.divide_and_conquer(
        backbones.small_convnet((16, 16, channels), filters=(4, 8)),
        embedding_dim=8,
        num_learners=2,
        loss="margin",
        **kwargs,
    )


def random_images(*shape: int) -> Any:
    """Pixels, uint8."""
    return np.random.default_rng(sum(shape)).integers(
        256, size=shape, dtype=np.uint8
    )


def file_of(pixels: Any, file_format: str = "PNG", **options: Any) -> bytes:
    """An image file of uint8 pixels, (H, W, 1) or (H, W, 3)."""
    file = io.BytesIO()
    image = PIL.Image.fromarray(
        pixels.squeeze(-1) if pixels.shape[-1] == 1 else pixels
    )
    image.save(file, file_format, **options)
    return file.getvalue()


def predict(model: keras.Model, images: Any) -> Any:
    """Embeddings of a batch as evaluation computes them."""
    seen = View.of(model).apply(images).numpy()
    return model.predict(seen, verbose=0)


def assert_same(served: Any, expected: Any) -> None:
    np.testing.assert_allclose(served, expected, rtol=0, atol=1e-5)


@functools.lru_cache(4)
def signatures(folder: Path) -> Any:
    """Loads the signatures of an export, which takes a second or two."""
    return tf.saved_model.load(str(folder)).signatures


def serve(folder: Path, images: Any, name: str = "encoded") -> dict[str, Any]:
    """Outputs of a signature in this process."""
    outputs = signatures(folder)[name](images=tf.constant(images))
    return {key: x.numpy() for key, x in outputs.items()}


def contents(folder: Path) -> dict[str, bytes | None]:
    """Everything below a folder, hidden files and folders included."""
    return {
        str(x.relative_to(folder)): x.read_bytes() if x.is_file() else None
        for x in folder.rglob("*")
    }


Request = tuple[str, dict[str, Any]]
"""A signature, and its inputs by name."""


def request(signature: str, images: Any, **inputs: Any) -> Request:
    """A client's request."""
    # As bytes of one length they would lose zeros at their ends.
    is_files = isinstance(images, list)
    images = np.array(images, object) if is_files else images
    return signature, {"images": images, **inputs}


def answers(export: Path, requests: Iterable[Request]) -> list[Any]:
    """Outputs by name, or an error message, of a server in a process of
    its own."""
    with tempfile.TemporaryDirectory() as folder:
        files = Path(folder, "requests"), Path(folder, "responses")
        files[0].write_bytes(pickle.dumps(list(requests)))
        subprocess.run([sys.executable, SERVER, export, *files], check=True)
        results: list[Any] = pickle.loads(files[1].read_bytes())
        return results
