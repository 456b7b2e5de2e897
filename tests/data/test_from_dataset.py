"""Tests of datasets of `tf.data` that are read once, into memory."""

import logging
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from keras_dml.data import (
    ArraySet,
    ClassBalanced,
    ImageSet,
    from_dataset,
    pipeline,
)

RNG = np.random.default_rng(0)
X = RNG.normal(size=(50, 3)).astype("float32")
IDS = RNG.integers(0, 9, (50, 2), dtype=np.int32)
TEXTS = np.array([f"text {i} é" * (i % 3) for i in range(50)])
LABELS = np.arange(50) % 5


def whole(x: Any = None) -> tf.data.Dataset:
    x = {"x": X, "ids": IDS, "text": TEXTS} if x is None else x
    return tf.data.Dataset.from_tensor_slices((x, LABELS))


def test_boolean_rows_are_label_sets() -> None:
    table = np.random.default_rng(1).random((50, 4)) < 0.4
    dataset = tf.data.Dataset.from_tensor_slices((X, table))
    for source in (dataset, dataset.batch(7)):
        examples = from_dataset(source, names="abcd")
        assert examples.has_label_sets
        np.testing.assert_array_equal(examples.labels, table)
        assert dict(examples.names) == dict(enumerate("abcd"))


@pytest.mark.parametrize("batch", [None, 7])
def test_examples_equal_those_of_the_dataset(batch: Any) -> None:
    dataset = whole() if batch is None else whole().batch(batch)
    examples = from_dataset(dataset, names="abcde")
    assert isinstance(examples, ArraySet)
    assert examples.labels.tolist() == LABELS.tolist()
    assert examples.names[4] == "e"
    inputs = examples.inputs([49, 3, 3])
    np.testing.assert_array_equal(inputs["x"], X[[49, 3, 3]])
    np.testing.assert_array_equal(inputs["ids"], IDS[[49, 3, 3]])
    assert inputs["ids"].dtype == np.int32
    texts = [text.decode() for text in inputs["text"]]
    assert texts == [*TEXTS[[49, 3, 3]]]
    sampler = ClassBalanced(examples.labels, 3, 2)
    x, y = next(iter(pipeline(examples, sampler)))
    np.testing.assert_array_equal(x["x"], X[y["index"]])


def test_dataset_of_pixels_is_an_image_set() -> None:
    rng = np.random.default_rng(1)
    pixels = rng.integers(0, 256, (6, 4, 4, 3), dtype=np.uint8)
    dataset = tf.data.Dataset.from_tensor_slices((pixels, [0, 0, 1, 1, 2, 2]))
    images = from_dataset(dataset)
    assert isinstance(images, ImageSet)
    np.testing.assert_array_equal(images.pixels, pixels)


def test_dataset_without_labels_is_read() -> None:
    dataset = tf.data.Dataset.from_tensor_slices(X)
    examples = from_dataset(dataset, labeled=False, batched=False)
    assert examples.labels is None
    np.testing.assert_array_equal(examples.inputs(...), X)


def test_size_is_logged_while_reading(caplog: Any) -> None:
    def generate() -> Iterator[Any]:
        for i in range(50):
            if i == 20:
                assert "1 MB" in caplog.text  # 50 × 20 KB.
            yield np.full(5000, i, np.float32), 0

    spec = tf.TensorSpec((5000,), tf.float32), tf.TensorSpec((), tf.int64)
    dataset = tf.data.Dataset.from_generator(generate, output_signature=spec)
    dataset = dataset.apply(tf.data.experimental.assert_cardinality(50))
    with caplog.at_level(logging.INFO):
        from_dataset(dataset.batch(10))
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
def test_unreadable_dataset_raises(message) -> None:
    with pytest.raises(ValueError, match=message):
        from_dataset(REFUSED[message]())


def test_dataset_must_fit_into_memory(monkeypatch: Any) -> None:
    module = sys.modules["keras_dml.data.reading"]
    monkeypatch.setattr(module, "available_memory", lambda: 500)
    with pytest.raises(ValueError, match="must fit into memory"):
        from_dataset(whole(X))
    # The size is unknown until it exceeds the memory.
    unknown = generated(lambda: zip(X, LABELS, strict=True)).batch(10)
    with pytest.raises(ValueError, match="mmap_mode"):
        from_dataset(unknown)


def test_batched_must_be_stated_without_labels() -> None:
    with pytest.raises(ValueError, match="`batched` of from_dataset must"):
        from_dataset(whole(), labeled=False)
