"""Tests of loading: files that cannot be decoded are named."""

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from keras_dml.data import ImageSet, View, eval_batches, loading, pipeline
from tests.data.small_images import sampler_of, save_all


@pytest.fixture
def files(tmp_path: Path) -> ImageSet:
    return save_all(tmp_path)


def test_a_bad_file_is_named(files: ImageSet) -> None:
    sampler = sampler_of(files, steps=2)
    bad = sampler.plan(0).ravel()[7]
    Path(files.paths[bad]).write_bytes(b"\x89PNG and no more")
    with pytest.raises(
        tf.errors.OpError, match=rf"/{bad}\.png' cannot be decoded"
    ):
        list(pipeline(files, sampler, 8))


def test_the_first_of_several_missing_files_is_named(files: ImageSet) -> None:
    for path in files.paths:
        Path(path).unlink()
    with pytest.raises(tf.errors.OpError, match=r"/0\.png' cannot"):
        list(eval_batches(files, View((8, 8), 1)))


def test_a_file_that_only_pillow_decodes(files, monkeypatch) -> None:
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
