"""Losses on proxies of the batch's classes and a share of the others."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_dml import losses
from keras_dml.losses import ProxyLoss
from keras_dml.losses.sampled_classes import SampledClasses, positions_of
from tests.conftest import quick
from tests.losses.oracle import unit

CLASSES, DRAWN, DIM = 10, 6, 4
LABELS = np.array([7, 2, 2, 9, 7])
NAMES = [
    name
    for name, entry in losses.LOSSES.items()
    if issubclass(entry.value, ProxyLoss) and entry.value.can_sample
]


def loss_on_proxies(name: str, num_classes: int, **arguments) -> ProxyLoss:
    if name == "dynamic_arc_face":
        arguments.setdefault("class_counts", range(1, num_classes + 1))
    return losses.get({"name": name, "num_classes": num_classes, **arguments})


def built(loss: ProxyLoss) -> ProxyLoss:
    loss.build(keras.layers.Layer(name="owner"), DIM)
    rows = np.random.default_rng(1).normal(size=loss.proxies.shape)
    loss.proxies.assign(rows)
    return loss


FAST = ("dynamic_arc_face", "proxy_anchor", "proxy_nca", "soft_triple")


@pytest.mark.parametrize("name", quick(FAST, NAMES))
def test_loss_equals_that_of_the_drawn_classes_alone(name) -> None:
    sampled = built(loss_on_proxies(name, CLASSES, class_share=0.6, seed=5))
    twin = SampledClasses("", CLASSES, 0.6, seed=5)
    x = unit(np.random.default_rng(0).normal(size=(len(LABELS), DIM)))
    ids = np.asarray(twin.draw(LABELS))
    counts = {}
    if name == "dynamic_arc_face":
        counts["class_counts"] = [int(i) + 1 for i in ids]
    alone = loss_on_proxies(name, DRAWN, **counts)
    alone.build(keras.layers.Layer(name="owner"), DIM)
    rows = np.asarray(sampled.proxies).reshape(CLASSES, -1, DIM)[ids]
    alone.proxies.assign(rows.reshape(-1, DIM))
    labels = np.array([list(ids).index(label) for label in LABELS])
    np.testing.assert_allclose(
        sampled.per_example(LABELS, x),
        alone.per_example(labels, x),
        rtol=1e-5,
    )


def test_draws_contain_the_batch_and_others_equally_often() -> None:
    sampled = SampledClasses("", CLASSES, 0.6, seed=0)
    draw = tf.function(sampled.draw, autograph=False)
    draws = np.stack([draw(tf.constant(LABELS)) for _ in range(500)])
    assert (np.diff(draws, axis=1) > 0).all()  # rising, and none twice
    drawn = (draws[:, :, None] == np.arange(CLASSES)).any(1).astype(float)
    assert (drawn[:, [2, 7, 9]] == 1).all()
    together = drawn.T @ drawn / len(draws)
    together = np.delete(np.delete(together, [2, 7, 9], 0), [2, 7, 9], 1)
    # Three of seven are drawn, any two of them equally often.
    expected = np.where(np.eye(7), 3 / 7, 3 / 7 * 2 / 6)
    deviation = (expected * (1 - expected) / len(draws)) ** 0.5
    assert (abs(together - expected) < 4 * deviation).all()


@pytest.mark.parametrize(
    ("num_classes", "share"), [(2, 1.0), (3, 0.999), (25, 0.1), (1000, 0.5)]
)
def test_draws_are_distinct_classes(num_classes, share) -> None:
    sampled = SampledClasses("", num_classes, share, seed=1)
    rng = np.random.default_rng(0)
    labels = rng.integers(0, num_classes, min(sampled.count, 20))
    ids = np.asarray(sampled.draw(labels))
    assert len(ids) == sampled.count
    assert (np.diff(ids) > 0).all()
    assert ids[0] >= 0
    assert ids[-1] < num_classes
    assert set(labels) <= set(ids.tolist())


def test_draws_follow_the_seed() -> None:
    one, same, other = (SampledClasses("", 1000, 0.1, s) for s in (1, 1, 2))
    first, second = (np.asarray(one.draw(LABELS)) for _ in range(2))
    np.testing.assert_array_equal(first, same.draw(LABELS))
    np.testing.assert_array_equal(second, same.draw(LABELS))
    assert not np.array_equal(first, second)
    assert not np.array_equal(first, other.draw(LABELS))


def test_labels_are_located_among_ids() -> None:
    ids = np.array([1, 4, 6], "int32")
    positions = positions_of(np.array([6, 1, 5, 7, 0]), ids)
    assert np.asarray(positions).tolist() == [2, 0, -1, -1, -1]


def test_unknown_classes_are_nan_in_a_graph() -> None:
    loss = built(loss_on_proxies("arc_face", CLASSES, class_share=0.6))
    x = keras.ops.convert_to_tensor(np.eye(DIM, dtype="float32"))
    labels = keras.ops.convert_to_tensor([3, CLASSES, -1, 0])
    values = tf.function(loss.per_example, autograph=False)(labels, x)
    assert np.isnan(values).tolist() == [False, True, True, False]


def test_more_classes_in_a_batch_than_drawn_raise() -> None:
    loss = built(loss_on_proxies("arc_face", CLASSES, class_share=0.3))
    with pytest.raises(ValueError, match="room.*3 classes, for a batch of 4"):
        loss.per_example(np.arange(4), np.eye(DIM))
