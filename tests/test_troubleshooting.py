"""Every message that the page of troubleshooting quotes is raised as quoted."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

import keras_dml as dml

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "guides" / "troubleshooting.md").read_text()
QUOTED = dict(re.findall(r"^### (.+)\n\n```text\n(.+?)\n```", PAGE, re.M))

X = np.random.default_rng(0).normal(size=(32, 4)).astype("float32")
Y = np.repeat(np.arange(8), 4)
EXAMPLES = dml.data.ArraySet(X, Y)
PROXIES = {"name": "proxy_anchor", "num_classes": 4}

OF_OTHERS = {
    "A model that Keras cannot load",
    "A second strategy in one process",
}
"""Headings of messages of Keras and TensorFlow."""

PROVOKED: dict[str, Callable[[], object]] = {}
"""Functions that raise or log the quoted messages, by heading."""


def provokes(heading: str) -> Callable[[Callable[[], object]], None]:
    def keep(provoke: Callable[[], object]) -> None:
        PROVOKED[heading] = provoke

    return keep


def small_model(loss: object = "contrastive", **arguments) -> dml.MetricModel:
    layers = [keras.Input((4,)), keras.layers.Dense(4)]
    model = dml.methods.baseline(
        keras.Sequential(layers), embedding_dim=4, loss=loss, **arguments
    )
    model.compile("adam")
    return model


def fit(x=X, y=Y, loss: object = "contrastive", **arguments) -> None:
    small_model(loss).fit(x, y, verbose=0, **arguments)


def in_batches(x, y) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices((x, y)).batch(8)


@provokes("One-hot labels")
def _() -> None:
    fit(y=np.eye(8, dtype=int)[Y])


@provokes("Labels of strings in a dataset")
def _() -> None:
    small_model().fit(in_batches(X, Y.astype(str)), verbose=0)


@provokes("Labels out of range")
def _() -> None:
    fit(loss=PROXIES)


@provokes("Validation with a proxy loss")
def _() -> None:
    small_model(PROXIES).evaluate(X, Y + 8, verbose=0)


def image_model() -> dml.MetricModel:
    backbone = dml.backbones.get("small_convnet", input_shape=(8, 8, 3))
    model = dml.methods.baseline(backbone, embedding_dim=4, loss="contrastive")
    model.compile("adam")
    return model


@provokes("Pixels that are scaled already")
def _() -> None:
    images = np.random.default_rng(0).normal(size=(8, 8, 8, 3))
    image_model().evaluate(images.astype("float32"), Y[:8], verbose=0)


@provokes("Channels first, or in the order BGR")
def _() -> None:
    images = np.zeros((8, 3, 8, 8), "uint8")
    dml.evaluation.evaluate(image_model(), images, labels=Y[:8])


@provokes("A proxy loss in a plain Keras model")
def _() -> None:
    plain = keras.Sequential([keras.Input((4,)), keras.layers.Dense(4)])
    plain.compile("adam", loss=dml.losses.ProxyAnchorLoss(8))
    plain.fit(X, Y, verbose=0)


@provokes("Images without a class")
def _() -> None:
    Path("flat").mkdir()
    Image.new("RGB", (8, 8)).save("flat/image.png")
    dml.data.image_folder("flat")


@provokes("More classes per batch than there are")
def _() -> None:
    dml.data.ClassBalanced(Y, classes_per_batch=32)


@provokes("Nothing to find")
def _() -> None:
    dml.evaluation.evaluate_embeddings(X, np.arange(len(X)))


@provokes("Another model than the index's")
def _() -> None:
    dml.search.Index.build(small_model(), EXAMPLES).save("index")
    dml.search.Index.load("index", small_model())


def test_every_quoted_message_is_provoked() -> None:
    assert set(QUOTED) == {*PROVOKED, *OF_OTHERS}
    assert PAGE.count("\n### ") == len(QUOTED)


@pytest.mark.parametrize("heading", PROVOKED)
def test_message_is_raised_as_quoted(
    heading: str, tmp_path, monkeypatch, caplog
) -> None:
    monkeypatch.chdir(tmp_path)
    try:
        PROVOKED[heading]()
        said = caplog.messages
    except (ValueError, OSError, RuntimeError) as error:
        said = [str(error)]
    assert any(is_quoted(QUOTED[heading], message) for message in said), said


def is_quoted(quoted: str, message: str) -> bool:
    parts = (re.escape(part.strip()) for part in quoted.split("…"))
    return bool(
        re.fullmatch(r"\s*.*\s*".join(parts), " ".join(message.split()))
    )


@pytest.mark.slow
def test_keras_alone_cannot_load_a_model(tmp_path) -> None:
    small_model().save(tmp_path / "model.keras")
    program = "import keras, sys; keras.saving.load_model(sys.argv[1])"
    ended = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "model.keras")],
        capture_output=True,
        text=True,
    )
    assert ended.returncode
    quoted = QUOTED["A model that Keras cannot load"]
    assert quoted.removesuffix(" …") in ended.stderr
