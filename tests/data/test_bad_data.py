"""Data as it should not be: each gives a result or a clear error."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from keras_dml.data import (
    ArraySet,
    ClassBalanced,
    ImageSet,
    View,
    balanced,
    eval_batches,
    from_dataset,
    from_source,
    image_folder,
    image_folder_splits,
    pipeline,
    table,
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
    with pytest.raises(ValueError, match="of two classes or more"):
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


@pytest.mark.parametrize(
    ("x", "labels", "message"),
    [
        (tf.sparse.from_dense(np.eye(2)), [0, 1], r"SparseT.*to_dense\(x\)"),
        (VECTORS[:2], ["a", 1], "all integers or all strings. .*and 1"),
        (
            VECTORS[:2],
            ["a", float("nan")],
            r"Received: none \(nan\) for 1 of 2",
        ),
    ],
)
def test_arrays(x: Any, labels: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ArraySet(x, labels)


def test_one_class_is_told(caplog: pytest.LogCaptureFixture) -> None:
    evaluate_embeddings(VECTORS, LABELS)
    assert not caplog.records
    assert evaluate_embeddings(VECTORS, 0 * LABELS)["recall@1"] == 1
    assert "All 12 examples measured by evaluate_embeddings" in caplog.text


def test_images_without_pixels() -> None:
    with pytest.raises(ValueError, match=r"shape \(2, 0, 4, 3\)"):
        ImageSet(np.zeros((2, 0, 4, 3), "uint8"), [0, 1])


def test_what_is_no_set_or_no_sampler() -> None:
    sampler = ClassBalanced(LABELS, classes_per_batch=2)
    examples = ArraySet(VECTORS, LABELS)
    with pytest.raises(ValueError, match="`examples` of pipeline .*tuple"):
        pipeline((VECTORS, LABELS), sampler)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="`sampler` of pipeline .*ndarray"):
        pipeline(examples, LABELS)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="`seed` of pipeline .*0.5"):
        pipeline(examples, sampler, seed=0.5)  # type: ignore[arg-type]
    images = ImageSet(np.zeros((12, 4, 4), "uint8"), LABELS)
    with pytest.raises(ValueError, match=r"`size` of View .*\(4, 4, 3\)"):
        pipeline(images, sampler, size=(4, 4, 3))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="`batch_size` of eval_batches"):
        eval_batches(examples, batch_size=0)


def fails() -> Iterator[Any]:
    yield VECTORS[0], 0
    raise RuntimeError("the disk is full")


def test_datasets() -> None:
    spec = tf.TensorSpec((8,)), tf.TensorSpec((), tf.int64)
    broken = tf.data.Dataset.from_generator(fails, output_signature=spec)
    message = r"Received: UnknownError: RuntimeError: the disk is full\. `for"
    with pytest.raises(ValueError, match=message):
        from_dataset(broken)
    short = tf.data.Dataset.from_tensors((VECTORS, LABELS[:5]))
    with pytest.raises(ValueError, match=r"\[12, 5\] rows of x and y in batch"):
        from_dataset(short)
    bad = tf.data.Dataset.from_tensors((VECTORS * np.nan, LABELS))
    with pytest.raises(tf.errors.OpError, match="of balanced must be finite"):
        next(iter(balanced(bad, 2, 2).dataset))


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ([0.5], "one type. Received: int64 in row 0 and float64 in row 1"),
        ([[1], [2, 3]], "rows of equal length"),
        (["a"], "int64 in row 0 and <U1 in row 1"),
    ],
)
def test_records(second: Any, message: str) -> None:
    records = from_source([{"x": [1]}, {"x": second}], "x")
    with pytest.raises(ValueError, match=message):
        records.inputs([0, 1])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.csv", "path,label\na,é".encode("latin-1"), "UTF-8 text"),
        ("t.csv", b"path,path,label\na,b,c\n", "path more than once"),
        ("t.parquet", b"", "must be a Parquet file"),
    ],
)
def test_tables(
    tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        table(tmp_path / name)
