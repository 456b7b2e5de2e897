import shutil

import numpy as np
import pytest

from keras_dml.data import ImageSet, image_folder_splits
from keras_dml.data.hashing import digest
from tests.conftest import blobs
from tests.runs.small_run import write_images


def test_a_moved_folder_is_the_same_set(tmp_path) -> None:
    write_images(tmp_path / "here")
    shutil.copytree(tmp_path / "here", tmp_path / "far" / "there")
    here = image_folder_splits(tmp_path / "here").test
    there = image_folder_splits(tmp_path / "far" / "there").test
    assert here.paths != there.paths
    assert digest(here) == digest(there)


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x.select(np.arange(len(x))[::-1]),
        lambda x: x.select(np.arange(len(x) - 1)),
        lambda x: ImageSet(x.images, x.labels + 1),
        lambda x: ImageSet(255 - x.images, x.labels),
        lambda x: ImageSet(x.images, x.labels, ids=map(str, x.labels)),
    ],
    ids=["order", "number", "classes", "pixels", "ids"],
)
def test_other_images_have_another_digest(change) -> None:
    images = blobs()
    assert digest(images) == digest(blobs())
    assert digest(change(images)) != digest(images)


def test_other_files_have_another_digest() -> None:
    one = ImageSet(["a/1.jpg", "a/2.jpg"], [0, 0])
    other = ImageSet(["a/1.jpg", "a/3.jpg"], [0, 0])
    assert digest(one) != digest(other)
