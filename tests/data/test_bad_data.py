"""Data as it should not be: each gives a result or a clear error."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from keras_dml.data import (
    ClassBalanced,
    ImageSet,
    View,
    eval_batches,
    image_folder,
    image_folder_splits,
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


def test_one_class(tmp_path: Path) -> None:
    for i in range(4):
        save(tmp_path / "only" / f"{i}.png")
    images = image_folder(tmp_path)
    assert views(images).shape == (4, 16, 16, 3)
    with pytest.raises(ValueError, match="of 1 classes"):
        image_folder_splits(tmp_path)
    with pytest.raises(
        ValueError, match=r"`classes_per_batch` of ClassBalanced .*1"
    ):
        batches(images)


def test_one_image(tmp_path: Path) -> None:
    save(tmp_path / "only" / "one.png")
    images = image_folder(tmp_path)
    assert views(images).shape == (1, 16, 16, 3)
    with pytest.raises(ValueError, match="ClassBalanced"):
        batches(images)
    with pytest.raises(ValueError, match="quer"):
        evaluate_embeddings(np.ones((1, 2), "float32"), images.labels)


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


def corrupt(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


@pytest.mark.parametrize("step", [batches, views])
def test_a_corrupt_jpeg_among_many(
    tmp_path: Path, step: Callable[[ImageSet], Any]
) -> None:
    rng = np.random.default_rng(0)
    for i in range(20):
        noise = rng.integers(0, 256, (20, 24, 3), dtype=np.uint8)
        save(tmp_path / f"{i % 2}" / f"{i}.jpg", Image.fromarray(noise))
    corrupt(tmp_path / "1" / "7.jpg")
    with pytest.warns(UserWarning, match=r"^Image files .*\(1\): .*7\.jpg"):
        images = image_folder(tmp_path)
    assert len(images) == 19
    step(images)
    with pytest.raises(tf.errors.OpError, match=r"7\.jpg' cannot be decoded"):
        step(image_folder(tmp_path, verify=False))


def test_forty_megapixels(tmp_path: Path) -> None:
    large = Image.new("RGB", (8000, 5000), (200, 100, 50))
    for name in ("a/1", "a/2", "b/1", "b/2"):
        image = large if name == "b/1" else None
        save(tmp_path / f"{name}.jpg", image)
    images = image_folder(tmp_path)
    np.testing.assert_allclose(views(images)[2, 8, 8], (200, 100, 50), atol=2)
    assert len(batches(images)) == 1


def cmyk(path: Path) -> None:
    save(path.with_suffix(".jpg"), Image.fromarray(GRAY).convert("CMYK"))


def sixteen_bits(path: Path) -> None:
    samples = GRAY.astype(np.uint16) * 256 + 17
    save(path.with_suffix(".png"), Image.fromarray(samples))


def animated(path: Path) -> None:
    frames = [Image.fromarray(x) for x in (GRAY, 255 - GRAY)]
    save(
        path.with_suffix(".gif"),
        frames[0],
        save_all=True,
        append_images=frames[1:],
    )


def gray(path: Path) -> None:
    save(path.with_suffix(".jpg"), quality=100)


@pytest.mark.parametrize("write", [cmyk, sixteen_bits, animated, gray])
def test_kinds_of_files(tmp_path: Path, write: Callable[[Path], None]) -> None:
    for name in ("a/1", "b/1", "b/2"):
        save(tmp_path / f"{name}.png")
    write(tmp_path / "a" / "2")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        images = image_folder(tmp_path)
    assert len(images) == 4
    seen = views(images)
    np.testing.assert_allclose(seen[1], seen[0], atol=4)
    ((x, y),) = batches(images, crop="center")
    for image, row in zip(x, y["index"], strict=True):
        np.testing.assert_allclose(image, seen[row], atol=1e-3)
