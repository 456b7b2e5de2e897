"""Tests of the tf.data pipelines."""

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_dml.data import (
    ClusterSampler,
    ImageSet,
    View,
    eval_batches,
    loading,
    pipeline,
)
from tests.data.small_images import LABELS, PIXELS, noise, sampler_of, save_all


@pytest.fixture
def images() -> ImageSet:
    return ImageSet(PIXELS, LABELS)


@pytest.fixture
def files(tmp_path: Path) -> ImageSet:
    """The same images in files."""
    return save_all(tmp_path)


def epoch_of(dataset: tf.data.Dataset) -> list[Any]:
    return list(dataset.as_numpy_iterator())


def check_equal(first: list[Any], second: list[Any]) -> None:
    tf.nest.map_structure(np.testing.assert_array_equal, first, second)


def test_batches_follow_the_plan(images: ImageSet) -> None:
    sampler = sampler_of(images)
    dataset = pipeline(images, sampler, size=10, crop="center", resize=10)
    assert dataset.cardinality() == sampler.steps == 4
    x, y = dataset.element_spec
    assert x == tf.TensorSpec((6, 10, 10, 1), tf.float32)
    assert y == {
        "label": tf.TensorSpec((6,), tf.int64),
        "index": tf.TensorSpec((6,), tf.int64),
    }
    batches = epoch_of(dataset)
    assert len(batches) == 4
    for (x, y), rows in zip(batches, sampler.plan(0), strict=True):
        np.testing.assert_array_equal(y["index"], rows)
        np.testing.assert_array_equal(y["label"], LABELS[rows])
        np.testing.assert_array_equal(x, PIXELS[rows, 1:11])


def test_epochs_repeat_and_resume(images: ImageSet) -> None:
    def run(start: int, epochs: int, seed: int = 0) -> list[Any]:
        sampler = sampler_of(images)
        sampler.epoch = start
        dataset = pipeline(images, sampler, 8, flip=True, seed=seed)
        return [batch for _ in range(epochs) for batch in epoch_of(dataset)]

    whole = run(0, 2)
    check_equal(whole[4:], run(1, 1))
    other = run(0, 1, seed=1)
    np.testing.assert_array_equal(other[0][1]["index"], whole[0][1]["index"])
    assert not np.array_equal(other[0][0], whole[0][0])


@pytest.mark.parametrize(
    "arguments",
    [
        {"flip": True, "pad": 2, "pad_mode": "reflect", "resize": 14},
        pytest.param(
            {"crop": "random_resized", "flip": True, "num_views": 2},
            marks=pytest.mark.slow,
        ),
    ],
)
def test_files_and_pixels_give_the_same_batches(
    images, files, arguments
) -> None:
    batches = [
        epoch_of(
            pipeline(source, sampler_of(source), 8, channels=1, **arguments)
        )
        for source in (images, files)
    ]
    tf.nest.map_structure(
        lambda a, b: np.testing.assert_allclose(a, b, atol=1e-3), *batches
    )


def test_random_crops_are_windows_of_the_padded_image(images) -> None:
    sampler = sampler_of(images, steps=12)
    dataset = pipeline(images, sampler, (7, 8), pad=2, resize=10, flip=True)
    positions = set()
    for x, y in epoch_of(dataset):
        for view, row in zip(x[..., 0], y["index"], strict=True):
            padded = np.pad(PIXELS[row, :, :, 0], 2)
            windows = np.lib.stride_tricks.sliding_window_view(padded, (7, 8))
            for flipped in (False, True):
                shown = view[:, ::-1] if flipped else view
                matches = np.argwhere((windows == shown).all(axis=(2, 3)))
                positions.update(
                    (flipped, *place) for place in matches.tolist()
                )
    top, left = {p[1] for p in positions}, {p[2] for p in positions}
    assert top == set(range(16 - 7 + 1))
    assert left == set(range(14 - 8 + 1))
    assert {p[0] for p in positions} == {False, True}
    assert len(positions) > 40


def test_two_views_differ(images: ImageSet) -> None:
    sampler = sampler_of(images)
    dataset = pipeline(images, sampler, 8, num_views=2)
    plan = sampler.plan(0)
    for (x, y), rows in zip(epoch_of(dataset), plan, strict=True):
        assert set(x) == {"image", "image2"}
        assert x["image"].shape == x["image2"].shape == (6, 8, 8, 1)
        assert not np.array_equal(x["image"], x["image2"])
        np.testing.assert_array_equal(y["index"], rows)


def test_targets_travel_with_the_batch(images: ImageSet) -> None:
    sampler = ClusterSampler(LABELS, 2, 2, num_learners=2)
    clusters = np.arange(len(LABELS)) % 2
    dataset = pipeline(images, sampler, 8)
    with pytest.raises(tf.errors.OpError, match="Recluster"):
        epoch_of(dataset)
    sampler.epoch = 0
    sampler.set_assignments(clusters)
    for _, y in epoch_of(dataset):
        np.testing.assert_array_equal(y["cluster"], clusters[y["index"]])
        np.testing.assert_array_equal(y["learner"], y["cluster"])
        assert y["learner"].dtype == np.int64
    sampler.set_phase("full", "all")
    for _, y in epoch_of(dataset):
        assert np.all(y["learner"] == -1)


class FromEpoch(keras.callbacks.Callback):
    """Sets the sampler's assignments in `on_epoch_begin`, like Recluster."""

    def __init__(self, sampler: ClusterSampler) -> None:
        super().__init__()
        self.sampler = sampler

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.sampler.epoch = 10 * epoch
        self.sampler.set_assignments(np.arange(len(LABELS)) % 2)
        self.sampler.set_phase("sliced", "clusters" if epoch else "all")


class Recorder(keras.Model):
    """Records the learner of every step."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[tuple[list[int], list[int]]] = []

    def train_step(self, data: Any) -> dict[str, Any]:
        _, y = data
        self.steps.append(
            (y["index"].numpy().tolist(), y["cluster"].numpy().tolist())
        )
        return {"loss": 0.0}


def test_assignments_of_a_callback_apply_in_the_same_epoch(
    images: ImageSet,
) -> None:
    sampler = ClusterSampler(LABELS, 2, 2, num_learners=2)
    model = Recorder()
    model.compile(optimizer="sgd", run_eagerly=True)
    dataset = pipeline(images, sampler, 8)
    model.fit(
        dataset,
        epochs=3,
        callbacks=[FromEpoch(sampler)],
        shuffle=False,
        verbose=0,
    )
    planned, clusters = [], []
    for epoch in range(3):
        FromEpoch(sampler).on_epoch_begin(epoch)
        planned.extend(sampler.plan(10 * epoch).tolist())
        clusters.extend(sampler.targets(10 * epoch)["cluster"].tolist())
    assert [rows for rows, _ in model.steps] == planned
    assert [cluster_ids for _, cluster_ids in model.steps] == [
        [c] * 4 for c in clusters
    ]


def test_channels_are_converted() -> None:
    for image_channels, channels in ((1, 3), (3, 1)):
        images = ImageSet(noise(channels=image_channels), LABELS)
        dataset = pipeline(images, sampler_of(images), 8, channels=channels)
        assert dataset.element_spec[0].shape == (6, 8, 8, channels)
        assert next(iter(dataset))[0].shape == (6, 8, 8, channels)
        default = pipeline(images, sampler_of(images), 8).element_spec[0]
        assert default.shape == (6, 8, 8, image_channels)


def test_eval_batches_are_in_order(images: ImageSet, files: ImageSet) -> None:
    view = View((6, 8), 3, 9)
    expected = view.apply(PIXELS)
    for source in (images, files):
        dataset = eval_batches(source, view, batch_size=7)
        batches = list(dataset)
        assert [len(batch) for batch in batches] == [7, 7, 7, 3]
        assert dataset.element_spec.shape == (None, 6, 8, 3)
        np.testing.assert_allclose(tf.concat(batches, 0), expected, atol=1e-3)
        again = tf.concat(list(dataset), 0)
        np.testing.assert_array_equal(again, tf.concat(batches, 0))


def test_first_of_several_missing_files_is_named(files: ImageSet) -> None:
    for path in files.paths:
        Path(path).unlink()
    with pytest.raises(tf.errors.OpError, match=r"/0\.png' cannot"):
        list(eval_batches(files, View((8, 8), 1)))


def test_file_that_only_pillow_decodes_raises(files, monkeypatch) -> None:
    Path(files.paths[2]).write_bytes(b"\x89PNG and no more")
    monkeypatch.setattr(loading, "read_image", lambda *_: None)
    with pytest.raises(tf.errors.OpError, match="although Pillow can decode"):
        list(eval_batches(files, View((8, 8), 1)))


def test_pixels_are_held_once_in_the_scope_of_a_strategy() -> None:
    pixels = np.arange(5 * 8 * 8, dtype="uint8").reshape(5, 8, 8, 1)
    with tf.distribute.MirroredStrategy(["CPU:0"]).scope():
        loader = loading.Loader(ImageSet(pixels))
    assert not isinstance(loader._stack, tf.distribute.DistributedValues)
    np.testing.assert_array_equal(loader.batch([3, 1]), pixels[[3, 1]])
