"""Data as it should not be: each gives a result or a clear error."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from keras_dml.data import (
    ClassBalanced,
    ImageSet,
    View,
    eval_batches,
    image_folder,
    pipeline,
)
from keras_dml.evaluation import evaluate_embeddings

GRAY = np.tile(np.arange(0, 240, 10, dtype=np.uint8), (20, 1))
VIEW = View((16, 16), 3)


def save(path: Path, image: Image.Image | None = None, **options: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    (image or Image.fromarray(GRAY)).save(path, **options)
    return path


def batches(images: ImageSet, **options: Any) -> list[Any]:
    sampler = ClassBalanced(
        images.labels, classes_per_batch=2, images_per_class=2
    )
    return list(pipeline(images, sampler, 16, **options).as_numpy_iterator())


def views(images: ImageSet) -> np.ndarray:
    return np.concatenate(list(eval_batches(images, VIEW).as_numpy_iterator()))


@pytest.mark.slow
def test_all_images_are_the_same(tmp_path: Path) -> None:
    for name in ("a/1", "a/2", "b/1", "b/2"):
        save(tmp_path / f"{name}.png")
    images = image_folder(tmp_path)
    ((x, y),) = batches(images, crop="center")
    assert sorted(y["label"]) == [0, 0, 1, 1]
    assert np.ptp(x, axis=0).max() == 0
    seen = views(images)
    np.testing.assert_array_equal(seen, seen[:1].repeat(4, axis=0))
    # Ties are in the order of the rows, whatever their classes.
    flat = seen.reshape(4, -1)
    result = evaluate_embeddings(flat, images.labels, metrics="recall@1")
    assert result["recall@1"] == pytest.approx(0.5)


LABELS = np.repeat(np.arange(3), 4)
VECTORS = np.random.default_rng(0).normal(size=(12, 8)).astype("float32")


def test_one_class_is_told(caplog: pytest.LogCaptureFixture) -> None:
    evaluate_embeddings(VECTORS, LABELS)
    assert not caplog.records
    assert evaluate_embeddings(VECTORS, 0 * LABELS)["recall@1"] == 1
    assert "All 12 examples measured by evaluate_embeddings" in caplog.text
