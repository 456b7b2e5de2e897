"""Examples go to other processes: all kinds of sets can be pickled."""

import pickle

import h5py
import numpy as np
import pytest
import tensorflow as tf

from keras_dml.data import (
    ArraySet,
    ImageSet,
    concatenate,
    from_dataset,
    from_source,
)

X = np.random.default_rng(0).normal(size=(6, 3)).astype("float32")
LABELS = list("abcabc")


def on_disk(folder) -> ArraySet:
    np.save(folder / "x.npy", X)
    return ArraySet(np.load(folder / "x.npy", mmap_mode="r"), LABELS)


def in_hdf5(folder) -> ArraySet:
    with h5py.File(folder / "x.h5", "w") as file:
        file["x"] = X
    opened = h5py.File(folder / "x.h5")
    return ArraySet(opened["x"], LABELS)


KINDS = {
    "files": lambda _: ImageSet(
        list("123456"), LABELS, ids=list("stuvwx"), boxes=[[0, 0, 2, 2]] * 6
    ),
    "pixels": lambda _: ImageSet(np.zeros((6, 4, 4), np.uint8), LABELS),
    "array": lambda _: ArraySet(X, LABELS, ids=list("stuvwx")),
    "arrays": lambda _: ArraySet({"x": X, "text": list("uvwxyz")}, LABELS),
    "label sets": lambda _: ArraySet(X, [{"a"}, {"b", "a"}] * 3),
    "on disk": on_disk,
    "HDF5": in_hdf5,
    "joined": lambda _: concatenate([ArraySet(X), ArraySet(X)]),
    "source": lambda _: from_source(
        [{"x": x, "y": y} for x, y in zip(X, LABELS, strict=True)],
        lambda record: record["x"],
        "y",
    ),
    "dataset": lambda _: from_dataset(
        tf.data.Dataset.from_tensor_slices((X, [0, 1, 2, 0, 1, 2]))
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_selection_survives_pickling(tmp_path, kind):
    part = KINDS[kind](tmp_path).select([4, 1, 2])
    again = pickle.loads(pickle.dumps(part))
    assert repr(again) == repr(part)
    assert again.names == part.names and again.ids == part.ids
    if part.labels is None:
        assert again.labels is None
    else:
        np.testing.assert_array_equal(again.labels, part.labels)
        assert not again.labels.flags.writeable
    with pytest.raises(TypeError):
        again.names[0] = "other"
    if kind == "files":
        assert again.paths == part.paths
        np.testing.assert_array_equal(again.boxes, part.boxes)
        return
    inputs, expected = again.inputs(...), part.inputs(...)
    tf.nest.map_structure(np.testing.assert_array_equal, inputs, expected)
    assert again.select([1]).inputs(...) is not None


def test_pickled_selection_leaves_other_rows_out():
    whole = ArraySet(np.zeros((100_000, 10)), np.arange(100_000))
    assert len(pickle.dumps(whole.select([5, 7]))) < 2000
