"""EmbeddingQueue against `collections.deque`."""

from collections import deque

import keras
import numpy as np
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_dml.layers import EmbeddingQueue
from tests.conftest import graph_and_xla


def rows(count: int, seed: int = 0, dim: int = 2) -> np.ndarray:
    generator = np.random.default_rng(seed)
    return generator.normal(size=(count, dim)).astype("float32")


def contents(queue: EmbeddingQueue) -> list[tuple[float, int]]:
    """Contents of the queue, oldest first."""
    order = np.arange(queue.size)
    if int(queue.count) == queue.size:
        order = np.roll(order, -int(queue.pointer))
    held = order[: int(queue.count)]
    first = queue.embeddings.numpy()[held, 0].tolist()
    return list(zip(first, queue.labels.numpy()[held].tolist(), strict=True))


@settings(max_examples=12)
@given(
    size=st.integers(1, 7),
    batches=st.lists(st.integers(1, 9), min_size=1, max_size=5),
)
def test_queue_matches_a_deque(size, batches) -> None:
    queue, expected = EmbeddingQueue(size, 2), deque(maxlen=size)
    label = 2**62  # More than float64 can tell apart.
    for seed, count in enumerate(batches):
        embeddings = rows(count, seed)
        labels = np.arange(label, label + count)
        label += count
        queue.enqueue(embeddings, labels)
        expected.extend(
            zip(embeddings[:, 0].tolist(), labels.tolist(), strict=True)
        )
    assert contents(queue) == list(expected)
    assert queue.filled.numpy().sum() == len(expected)


@graph_and_xla
def test_queue_wraps_around_in_a_graph(jit) -> None:
    queue, expected = EmbeddingQueue(5, 2), deque(maxlen=5)

    @tf.function(jit_compile=jit, autograph=False)
    def enqueue(embeddings: tf.Tensor, labels: tf.Tensor) -> None:
        queue.enqueue(embeddings, labels)

    for seed in range(4):
        embeddings, labels = rows(3, seed), np.arange(3) + 3 * seed
        enqueue(embeddings, labels)
        expected.extend(
            zip(embeddings[:, 0].tolist(), labels.tolist(), strict=True)
        )
        assert contents(queue) == list(expected)


def test_relation_marks_positives_negatives_and_empty_slots() -> None:
    queue = EmbeddingQueue(4, 2)
    near = 2**24  # float32 does not tell it from the next integer.
    queue.enqueue(rows(3), [near, near + 1, 0])
    _, relation = queue(tf.constant([near, 0, 5]))
    np.testing.assert_array_equal(
        relation, [[1, 0, 0, -1], [0, 0, 1, -1], [0, 0, 0, -1]]
    )


def test_variables_are_untrained_float32_or_integers() -> None:
    keras.config.set_dtype_policy("mixed_float16")
    queue = EmbeddingQueue(3, 2)
    queue.enqueue(tf.cast(rows(2), "float16"))
    assert queue.trainable_variables == []
    dtypes = [v.dtype for v in queue.variables]
    assert dtypes == ["float32", "int64", "int32", "int32"]
    memory, _ = queue(tf.constant([0]))
    assert memory.dtype == "float32"


def test_queue_round_trips_through_a_file(tmp_path) -> None:
    labels = keras.Input((), dtype="int64")
    queue = EmbeddingQueue(4, 2, name="memory")
    model = keras.Model(labels, queue(labels))
    assert [tuple(x) for x in model.output_shape] == [(4, 2), (None, 4)]
    queue.enqueue(rows(3), [1, 2, 1])
    queue.enqueue(rows(2, seed=1), [3, 3])
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    restored = again.get_layer("memory")
    assert restored.get_config() == queue.get_config()
    assert contents(restored) == contents(queue)
    for x in (restored, queue):
        x.enqueue(rows(1, seed=2), [4])
    assert contents(restored) == contents(queue)
    for a, b in zip(again(np.array([3])), model(np.array([3])), strict=True):
        np.testing.assert_array_equal(a, b)
