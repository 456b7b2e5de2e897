"""Tests of datasets of `tf.data` that are read once, into memory or on disk."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from keras_dml.data import (
    ArraySet,
    ClassBalanced,
    Examples,
    ImageSet,
    from_dataset,
    load_examples,
    pipeline,
)

RNG = np.random.default_rng(0)
X = RNG.normal(size=(50, 3)).astype("float32")
IDS = RNG.integers(0, 9, (50, 2), dtype=np.int32)
TEXTS = np.array([f"text {i} é" * (i % 3) for i in range(50)])
LABELS = np.arange(50) % 5


@pytest.fixture(params=["memory", "disk"])
def keep(request: Any, tmp_path: Path) -> Any:
    def read(dataset: Any, **options: Any) -> Examples:
        if request.param == "disk":
            options["path"] = tmp_path / "kept"
        return from_dataset(dataset, request.param, **options)

    yield read
    left = [path.name for path in tmp_path.iterdir()]
    assert left in ([], ["kept"])


def whole(x: Any = None) -> tf.data.Dataset:
    x = {"x": X, "ids": IDS, "text": TEXTS} if x is None else x
    return tf.data.Dataset.from_tensor_slices((x, LABELS))


@pytest.mark.parametrize("batch", [None, 7])
def test_booleans_are_several_labels(keep: Any, batch: Any) -> None:
    table = np.random.default_rng(1).random((50, 4)) < 0.4
    dataset = tf.data.Dataset.from_tensor_slices((X, table))
    examples = keep(dataset.batch(batch) if batch else dataset, names="abcd")
    assert examples.has_label_sets
    np.testing.assert_array_equal(examples.labels, table)
    assert dict(examples.names) == dict(enumerate("abcd"))


@pytest.mark.parametrize("batch", [None, 7])
def test_examples_are_those_of_the_dataset(keep: Any, batch: Any) -> None:
    dataset = whole() if batch is None else whole().batch(batch)
    examples = keep(dataset, names="abcde")
    assert isinstance(examples, ArraySet)
    assert examples.labels.tolist() == LABELS.tolist()
    assert examples.names[4] == "e"
    found = examples.inputs([49, 3, 3])
    np.testing.assert_array_equal(found["x"], X[[49, 3, 3]])
    np.testing.assert_array_equal(found["ids"], IDS[[49, 3, 3]])
    assert found["ids"].dtype == np.int32
    texts = [text.decode() for text in found["text"]]
    assert texts == [*TEXTS[[49, 3, 3]]]
    sampler = ClassBalanced(examples.labels, 3, 2)
    x, y = next(iter(pipeline(examples, sampler)))
    np.testing.assert_array_equal(x["x"], X[y["index"]])


def test_what_is_on_disk_is_opened_again(tmp_path: Path) -> None:
    path = tmp_path / "kept"
    labels = [f"class {label}" for label in LABELS]
    dataset = tf.data.Dataset.from_tensor_slices((X, labels))
    first = from_dataset(dataset, "disk", path)
    again = load_examples(path)
    assert dict(again.names) == dict(first.names)
    assert again.names[int(again.labels[7])] == labels[7]
    np.testing.assert_array_equal(again.inputs(...), X)
    with pytest.raises(FileExistsError, match="load_examples"):
        from_dataset(dataset, "disk", path)
    with pytest.raises(FileNotFoundError, match="written by from_dataset"):
        load_examples(tmp_path)
    (path / "index.json").write_text("{")
    with pytest.raises(ValueError, match="are damaged"):
        load_examples(path)


def test_pixels_in_memory_are_images() -> None:
    rng = np.random.default_rng(1)
    pixels = rng.integers(0, 256, (6, 4, 4, 3), dtype=np.uint8)
    dataset = tf.data.Dataset.from_tensor_slices((pixels, [0, 0, 1, 1, 2, 2]))
    images = from_dataset(dataset)
    assert isinstance(images, ImageSet)
    np.testing.assert_array_equal(images.pixels, pixels)


def test_examples_without_labels(keep: Any) -> None:
    dataset = tf.data.Dataset.from_tensor_slices(X)
    examples = keep(dataset, labeled=False, batched=False)
    assert examples.labels is None
    np.testing.assert_array_equal(examples.inputs(...), X)


def test_the_size_is_said_before(keep: Any, caplog: Any) -> None:
    def generate() -> Iterator[Any]:
        for i in range(50):
            if i == 20:
                assert "1 MB" in caplog.text  # 50 × 20 KB.
            yield np.full(5000, i, np.float32), 0

    spec = tf.TensorSpec((5000,), tf.float32), tf.TensorSpec((), tf.int64)
    dataset = tf.data.Dataset.from_generator(generate, output_signature=spec)
    dataset = dataset.apply(tf.data.experimental.assert_cardinality(50))
    with caplog.at_level(logging.INFO):
        keep(dataset.batch(10))
    assert "at most 1 MB" in caplog.text


def broken() -> Iterator[Any]:
    yield from zip(X[:20], LABELS, strict=False)
    raise OSError("the disk is gone")


def generated(function: Any) -> tf.data.Dataset:
    spec = tf.TensorSpec((3,), tf.float32), tf.TensorSpec((), tf.int64)
    return tf.data.Dataset.from_generator(function, output_signature=spec)


def early() -> tf.data.Dataset:
    cardinality = tf.data.experimental.assert_cardinality(60)
    return whole(X).apply(cardinality)


NAN = np.where(np.arange(50)[:, None] == 31, np.nan, X)

REFUSED = {
    "must be finite. Received: a dataset that rep": lambda: whole().repeat(),
    "must not be empty. Received: a dataset without": lambda: whole().take(0),
    "UnknownError: OSError: the disk is gone. `for": lambda: generated(broken),
    r"\[50, 49\] rows of x and y in batch": lambda: (
        tf.data.Dataset.from_tensors((X, LABELS[1:]))
    ),
    "must be readable to its end.*60 elements": early,
    r"must have elements \(x, y\).*labeled=False": lambda: whole().map(
        lambda x, y: x["x"]
    ),
    r"must have elements \(x, y\).*as_supervised": lambda: whole().map(
        lambda x, y: {"image": x["x"], "label": y}
    ),
    r"must have elements of one shape.*map\(\)": lambda: tf.data.Dataset.range(
        3
    ).map(lambda i: (tf.range(i), i)),
    "must have elements of one shape.*Ragged": lambda: (
        tf.data.Dataset.from_tensor_slices(
            (tf.ragged.constant([[1.0], [2.0, 3.0]]), [0, 1])
        )
    ),
    "must have elements of one shape.*padded_batch": lambda: (
        tf.data.Dataset.range(10)
        .map(lambda i: (tf.range(i), i))
        .padded_batch(2, padded_shapes=([None], []))
    ),
    "y in `dataset` of from_dataset must be integers": lambda: whole().map(
        lambda x, y: (x, tf.cast(y, "float32"))
    ),
    "y in `dataset` of from_dataset must be one label.*argmax": lambda: (
        whole().map(lambda x, y: (x, tf.one_hot(y, 5))).batch(4)
    ),
    "x in `dataset` of from_dataset must be finite.*row 31": lambda: whole(NAN),
    "must be a tf.data.Dataset. Received: tuple": lambda: (X, LABELS),
    "must have an x that is a tensor or a": lambda: whole(
        {"a": {"b": X}, "c": X}
    ),
    "of known rank": lambda: tf.data.Dataset.from_generator(
        broken, output_types=(tf.float32, tf.int64)
    ),
}


@pytest.mark.parametrize("message", REFUSED)
def test_nothing_is_left_of_what_cannot_be_read(keep, message) -> None:
    with pytest.raises(ValueError, match=message):
        keep(REFUSED[message]())


def test_what_does_not_fit(monkeypatch: Any, tmp_path: Path) -> None:
    module = __import__(
        "keras_dml.data._from_dataset", fromlist=["from_dataset"]
    )
    monkeypatch.setattr(module, "available_memory", lambda: 500)
    monkeypatch.setattr(module, "free_disk", lambda folder: 500)
    with pytest.raises(ValueError, match='Use storage="disk"'):
        from_dataset(whole(X))
    # Nobody knows how many there are, until there are too many.
    unknown = generated(lambda: zip(X, LABELS, strict=True)).batch(10)
    with pytest.raises(ValueError, match='Use storage="disk"'):
        from_dataset(unknown)
    with pytest.raises(OSError, match="Use another disk"):
        from_dataset(whole(X), "disk", tmp_path / "kept")
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"storage": "disc"}, "`storage` of from_dataset must be one of"),
        ({"storage": "disk"}, "`path` of from_dataset requires"),
        ({"path": "x"}, "`path` of from_dataset requires"),
        ({"labeled": False}, "`batched` of from_dataset must state"),
    ],
)
def test_unfit_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        from_dataset(whole(), **options)
