"""Tests of class-balanced batches of a stream."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from keras_dml.data import balanced

LABELS = np.random.default_rng(0).integers(0, 20, 600)
X = np.arange(600, dtype="float32")[:, None] * [1.0, 2.0]


def source(labels: Any = LABELS) -> tf.data.Dataset:
    texts = [f"text {i}" for i in range(len(labels))]
    x = {"x": X[: len(labels)], "text": texts}
    return tf.data.Dataset.from_tensor_slices((x, labels))


def epoch(stream: Any) -> list[Any]:
    return list(stream.dataset.as_numpy_iterator())


@pytest.mark.parametrize("batch", [None, 32])
def test_batches_are_balanced_and_whole(batch: Any) -> None:
    dataset = source() if batch is None else source().batch(batch)
    stream = balanced(dataset, 5, 4, buffer=200)
    found = epoch(stream)
    used = np.concatenate([y["index"] for _, y in found])
    assert len(np.unique(used)) == len(used) == stream.examples_used > 500
    for x, y in found:
        classes, counts = np.unique(y["label"], return_counts=True)
        assert len(classes) == 5
        assert set(counts) == {4}
        np.testing.assert_array_equal(y["label"], LABELS[y["index"]])
        np.testing.assert_array_equal(x["x"], X[y["index"]])
        assert x["text"].tolist() == [f"text {i}".encode() for i in y["index"]]
    assert stream.examples_read == 600
    assert stream.examples_used + stream.examples_dropped == 600
    assert stream.classes_seen == stream.classes_met == 20
    assert stream.share_of_classes == 1.0


def test_two_runs_are_equal() -> None:
    def run(seed: int) -> list[Any]:
        stream = balanced(
            source().repeat(), 5, buffer=100, steps_per_epoch=7, seed=seed
        )
        return [batch for _ in range(2) for batch in epoch(stream)]

    first = run(1)
    assert len(first) == 14
    tf.nest.map_structure(np.testing.assert_array_equal, first, run(1))
    other = [y["index"].tolist() for _, y in run(2)]
    assert [y["index"].tolist() for _, y in first] != other


def test_an_epoch_of_steps_goes_on_in_the_stream() -> None:
    stream = balanced(source(), 5, 4, buffer=100, steps_per_epoch=6)
    assert stream.dataset.cardinality() == 6
    used = [y["index"] for _ in range(3) for _, y in epoch(stream)]
    # Eighteen batches of twenty have room in one pass of 600.
    assert len(np.unique(np.concatenate(used))) == 360
    for _ in range(3):  # And on, from its beginning.
        assert len(epoch(stream)) == 6
    assert stream.examples_read > 600


def test_the_buffer_is_bounded_and_rare_classes_are_counted() -> None:
    """Of 3 classes, one is too rare to be in a batch."""
    labels = np.arange(600) % 2
    labels[50] = 7
    stream = balanced(source(labels), 2, 2, buffer=20)
    for _, y in stream.dataset.as_numpy_iterator():
        assert stream._count <= 20
        assert set(y["label"]) == {0, 1}
    assert stream.classes_met == 3
    assert stream.share_of_classes == pytest.approx(2 / 3)
    assert "2 of 3 classes seen" in repr(stream)


def test_a_class_that_is_drawn_little_comes_first() -> None:
    """Half of the stream is one class; it is not half of the batches."""
    rng = np.random.default_rng(0)
    labels = np.where(rng.random(600) < 0.5, 0, LABELS)
    stream = balanced(source(labels), 4, 2, buffer=150)
    drawn = np.concatenate([y["label"][::2] for _, y in epoch(stream)])
    assert np.mean(drawn == 0) < 0.25


REFUSED = {
    "must provide 3 classes of 4.*1 classes": (np.zeros(600, int), {}),
    "must provide 3 classes of 4.*sorted by class": (
        np.arange(600) // 300,
        {},
    ),
    r"must provide 3 classes of 4 .*\b600 classes": (np.arange(600), {}),
    "must provide 3 classes.*in 3,0.. examples": (
        np.zeros(600, int),
        {"repeat": True},
    ),
}


@pytest.mark.parametrize("message", REFUSED)
def test_streams_without_a_batch(message: str) -> None:
    labels, options = REFUSED[message]
    dataset = source(labels)
    steps = None
    if options:
        dataset, steps = dataset.repeat(), 5
    stream = balanced(dataset, 3, 4, buffer=30, steps_per_epoch=steps)
    with pytest.raises(tf.errors.OpError, match=message):
        epoch(stream)


def test_numbers_are_checked_as_they_are_read() -> None:
    bad = tf.data.Dataset.from_tensors((X * np.nan, LABELS))
    with pytest.raises(tf.errors.OpError, match="of balanced must be finite"):
        epoch(balanced(bad, 2, 2))


@pytest.mark.parametrize(
    ("dataset", "options", "message"),
    [
        (X, {}, "must be a tf.data.Dataset"),
        (source().repeat(), {}, "must be finite"),
        (source(), {"buffer": 7}, "`buffer` of balanced must be"),
        (source(), {"classes_per_batch": 0}, "`classes_per_batch`"),
        (source().map(lambda x, y: x), {}, "y are integers"),
        (source(["a"] * 600), {}, "StringLookup"),
        (source(LABELS / 2), {}, "must be integers"),
    ],
)
def test_unfit_arguments(dataset: Any, options: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        balanced(dataset, **{"classes_per_batch": 2, **options})
