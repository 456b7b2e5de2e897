"""Batches split among replicas and workers."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_dml import MetricModel, methods
from keras_dml.data import ArraySet, ClassBalanced, ImageSet, pipeline
from keras_dml.data.planned import share_of
from keras_dml.distribution.batches import split
from keras_dml.distribution.strategies import check_optimizer
from keras_dml.model.checks import BatchChecks
from tests.conftest import blobs


@pytest.mark.parametrize(
    ("size", "count", "sizes"),
    [(8, 4, [2, 2, 2, 2]), (10, 4, [2, 3, 2, 3]), (3, 4, [0, 1, 1, 1])],
)
def test_parts_keep_the_order_of_rows(size, count, sizes) -> None:
    x = np.arange(size)
    whole = tf.data.Dataset.from_tensors({"x": x, "y": x[:, None]})
    parts = list(split(whole, range(count), count))
    assert [len(part["x"]) for part in parts] == sizes
    np.testing.assert_array_equal(tf.concat([p["x"] for p in parts], 0), x)
    np.testing.assert_array_equal(
        tf.concat([p["y"] for p in parts], 0), x[:, None]
    )


def test_worker_gets_the_rows_of_its_replicas() -> None:
    whole = tf.data.Dataset.range(8).batch(8)
    second = list(split(whole, range(2, 4), 4))
    np.testing.assert_array_equal(second, [[4, 5], [6, 7]])
    assert second[0].shape == (2,)


def test_replica_without_rows_can_raise() -> None:
    whole = tf.data.Dataset.range(3).batch(3)
    with pytest.raises(tf.errors.OpError, match="drop_remainder=True"):
        list(split(whole, range(4), 4, min_rows=1))


@pytest.mark.parametrize(
    "views",
    [
        {},
        pytest.param(
            {
                "augment": {"random_color_jitter": {"brightness_factor": 0.3}},
                "num_views": 2,
            },
            marks=pytest.mark.slow,
        ),
    ],
    ids=["crop and flip", "two views, augmented"],
)
def test_shares_are_rows_of_the_whole(views) -> None:
    """Random draws per row are those of a single process."""
    images = blobs(classes=6, images=4)

    def batches() -> tf.data.Dataset:
        sampler = ClassBalanced(
            images.labels, classes_per_batch=4, images_per_class=2
        )
        return pipeline(images, sampler, size=8, flip=True, **views)

    shares = [list(share_of(batches(), worker, 2)) for worker in (0, 1)]
    for whole, *parts in zip(batches(), *shares, strict=True):
        joined = tf.nest.map_structure(lambda *x: tf.concat(x, 0), *parts)
        tf.nest.map_structure(np.testing.assert_array_equal, whole, joined)


@pytest.mark.slow
def test_share_reads_only_its_own_files(tmp_path) -> None:
    images = blobs(classes=4, images=2)
    paths = [tmp_path / f"{row}.png" for row in range(8)]
    for path, pixels in zip(paths, images.images, strict=True):
        keras.utils.save_img(path, pixels[..., None], scale=False)
    files = ImageSet([str(path) for path in paths], images.labels)
    sampler = ClassBalanced(files.labels, batch_size=8, steps_per_epoch=1)
    batches = pipeline(files, sampler, size=16, channels=1)
    (plan,) = sampler.plan(0)
    for row in set(plan[4:]):
        paths[row].write_bytes(b"no image")
    (batch,) = share_of(batches, 0, 2)
    np.testing.assert_array_equal(batch[1]["index"], plan[:4])
    with pytest.raises((ValueError, tf.errors.OpError), match=r"\.png"):
        sampler.epoch = 0
        list(share_of(batches, 1, 2))


def comparing(num_classes: int | None = None) -> MetricModel:
    """A model whose loss compares pairs, or has proxies."""
    inputs = keras.Input((2,))
    loss = "triplet"
    if num_classes:
        loss = {"name": "proxy_nca", "num_classes": num_classes}
    return methods.baseline(
        keras.Model(inputs, inputs + 0), embedding_dim=2, loss=loss
    )


def test_share_does_not_warn_of_missing_pairs(caplog) -> None:
    labels = np.arange(4)
    for is_share, count in ((False, 1), (True, 0)):
        caplog.clear()
        checks = BatchChecks("fit", comparing(), is_share)
        checks.check_values(np.zeros((4, 2)), labels)
        assert len(caplog.records) == count
    with pytest.raises(ValueError, match="must lie in"):
        BatchChecks("fit", comparing(3), is_share=True).check_values(
            np.zeros((4, 2)), labels
        )


def test_share_accepts_rows_of_a_relation_matrix() -> None:
    rows = np.array([[1, 1, 0, 0], [1, 1, 0, 0]])
    x = np.zeros((2, 2), "float32")
    share = BatchChecks("fit", comparing(), is_share=True)
    share.check_kinds(x, rows)
    share.check_values(x, rows)
    whole = BatchChecks("fit", comparing())
    with pytest.raises(ValueError, match="relation matrix"):
        whole.check_kinds(x, rows)


def test_mapped_dataset_has_no_share() -> None:
    x, labels = np.zeros((8, 2), "float32"), np.repeat(np.arange(4), 2)
    batches = pipeline(ArraySet(x, labels), ClassBalanced(labels, batch_size=8))
    assert share_of(batches, 0, 2) is not None
    assert share_of(batches.map(lambda x, y: (x + 1, y)), 0, 2) is None


@pytest.mark.parametrize("is_scaled", [False, True])
@pytest.mark.parametrize(
    "option", [{"gradient_accumulation_steps": 2}, {"use_ema": True}]
)
def test_unsupported_optimizer_options_raise(option, is_scaled) -> None:
    optimizer = keras.optimizers.Adam(**option)
    if is_scaled:
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer)
    (name,) = option
    with pytest.raises(ValueError, match=f"`{name}` of Adam must not be"):
        check_optimizer(optimizer)
