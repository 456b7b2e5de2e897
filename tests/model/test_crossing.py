"""Files that one backend writes and the other reads; see `crossing`."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from keras_dml.embedding.engines import loader
from tests.conftest import blobs, needs_jax
from tests.export.serving import file_of, serve
from tests.forks import run_on
from tests.model import crossing

pytestmark = [
    *needs_jax,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """`tensorflow`, which JAX has read, `jax`, and `exports` from there."""
    folder = tmp_path_factory.mktemp("crossing")
    crossing.make(folder / "tensorflow")
    (folder / "exports").mkdir()
    run_on("jax", "-m", "tests.model.crossing", cwd=folder)
    return folder


def test_tensorflow_reads_files_of_jax(folder) -> None:
    crossing.read(folder / "jax")


def embeddings(folder: Path, case: str) -> Any:
    """JAX's embeddings of `blobs()`."""
    with np.load(folder / "jax" / f"{case}.npz") as file:
        return file["embeddings"]


def test_served_models_match_jax(folder) -> None:
    expected = embeddings(folder, "attentive_grouping")
    images = blobs().images[..., None]
    model_folder = folder / "exports" / "served" / "1"
    pixels = images.astype("float32")
    served_embeddings = serve(model_folder, pixels, "serving_default")[
        "embedding"
    ]
    np.testing.assert_allclose(served_embeddings, expected, rtol=0, atol=1e-5)
    files = [file_of(image) for image in images]
    served_embeddings = serve(model_folder, files, "encoded")["embedding"]
    np.testing.assert_allclose(served_embeddings, expected, rtol=0, atol=1e-5)
    scores = serve(model_folder, files, "lookup")["scores"]
    units = expected / np.linalg.norm(expected, axis=1, keepdims=True)
    highest = -np.sort(-units @ units.T, axis=1)[:, :3]
    np.testing.assert_allclose(scores, highest, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("file_format", "name", "case"),
    [
        ("onnx", "model.onnx", "divide_and_conquer"),
        ("litert", "model.tflite", "diva"),
    ],
)
def test_exported_files_match_jax(file_format, name, case, folder) -> None:
    pixels = blobs().images[..., None].astype("float32")
    load = loader(file_format, "this test")
    file_embeddings = load(folder / "exports" / name)(pixels)
    expected = embeddings(folder, case)
    np.testing.assert_allclose(file_embeddings, expected, rtol=0, atol=1e-5)
