"""A digest identifies data sets."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from keras_dml.data import ArraySet, ImageSet, image_folder_splits
from keras_dml.data.hashing import digest
from tests.conftest import blobs
from tests.runs.small_run import write_images


def test_moved_folder_keeps_its_digest(tmp_path) -> None:
    write_images(tmp_path / "here")
    shutil.copytree(tmp_path / "here", tmp_path / "far" / "there")
    here = image_folder_splits(tmp_path / "here").test
    there = image_folder_splits(tmp_path / "far" / "there").test
    assert here.paths != there.paths
    assert digest(here) == digest(there)
    last = Path(here.paths[-1])
    renamed = ImageSet(
        [*here.paths[:-1], str(last.with_stem("other"))], here.labels
    )
    assert digest(renamed) != digest(ImageSet(here.paths, here.labels))


def test_relative_and_absolute_paths_have_one_digest(
    tmp_path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    mixed = ImageSet([str(tmp_path / "a" / "1.png"), "a/2.png"], [0, 0])
    relative = ImageSet(["a/1.png", "a/2.png"], [0, 0])
    assert digest(mixed) == digest(relative)


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


X = np.arange(12.0).reshape(6, 2)


def arrays(x=X, letters="abcdef", name="b", labels=(0, 0, 1, 1, 2, 2)):
    return ArraySet({"a": x, name: list(letters)}, list(labels))


@pytest.mark.parametrize(
    "change",
    [{"letters": "abcdeg"}, {"x": X + 1}, {"name": "c"},
     {"x": X.astype("float32")}, {"labels": (2, 2, 1, 1, 0, 0)}],
    ids=["texts", "numbers", "names", "dtype", "labels"],
)  # fmt: skip
def test_other_arrays_have_another_digest(change) -> None:
    assert digest(arrays()) == digest(arrays(X.copy()))
    assert digest(arrays(**change)) != digest(arrays())
