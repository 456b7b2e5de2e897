"""Lazily read rows equal those of an array."""

import pickle

import numpy as np
import pytest

from keras_dml.utils.lazy_rows import (
    ArrayRows,
    join_rows,
    map_rows,
    select_rows,
)
from keras_dml.utils.vectors import as_rows

ROWS = np.array([7, 0, 7, 3])


@pytest.fixture
def array() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((10, 3), np.float32)


@pytest.fixture
def path(array, tmp_path):
    np.save(tmp_path / "x.npy", array)
    return tmp_path / "x.npy"


def mapped(path) -> ArrayRows:
    return ArrayRows(np.load(path, mmap_mode="r"))


@pytest.mark.parametrize("which", [slice(2, 5), slice(8, 99), ROWS])
def test_rows_match_the_array(array, path, which):
    x = mapped(path)
    np.testing.assert_array_equal(x[which], array[which])
    both = join_rows([x, array + 1])
    expected = np.concatenate([array, array + 1])
    np.testing.assert_array_equal(both[which], expected[which])
    rows = np.arange(19, -1, -1)
    selection = select_rows(both, rows)
    np.testing.assert_array_equal(selection[which], expected[rows][which])
    twice = map_rows(selection, lambda z: z[:, :2] * 2)
    assert twice.shape == (20, 2)
    np.testing.assert_array_equal(twice[which], 2 * expected[rows][which, :2])


def test_lazy_rows_convert_to_an_array(array, path):
    np.testing.assert_array_equal(np.asarray(mapped(path)), array)


def test_float16_is_read_as_float32(array, tmp_path):
    np.save(tmp_path / "x.npy", array.astype(np.float16))
    x = as_rows(np.load(tmp_path / "x.npy", mmap_mode="r"), "x", "test")
    assert x[0:4].dtype == x.dtype == np.float32
    np.testing.assert_array_equal(x[0:4], array[:4].astype(np.float16))


@pytest.mark.parametrize("mode", ["r", "r+"])
def test_memory_map_is_pickled_without_its_content(tmp_path, mode):
    large = np.random.default_rng(0).standard_normal((4000, 8), np.float32)
    np.save(tmp_path / "x.npy", large)
    source = np.load(tmp_path / "x.npy", mmap_mode=mode)
    # Of a part of a map, too, whose offset is not where it starts.
    for part in (slice(0, 4000), slice(1500, 3500), slice(1501, 1502)):
        content = pickle.dumps(ArrayRows(source[part]))
        assert len(content) < 1000
        np.testing.assert_array_equal(
            pickle.loads(content)[0:4000], large[part]
        )


def test_array_without_a_file_is_pickled_with_its_content(array, path):
    changed = np.load(path, mmap_mode="c")
    changed[3] = 5
    for source in (changed, np.load(path, mmap_mode="r")[:, ::2]):
        again = pickle.loads(pickle.dumps(ArrayRows(source)))
        np.testing.assert_array_equal(again[ROWS], source[ROWS])


def test_missing_file_is_named(path):
    content = pickle.dumps(mapped(path))
    path.unlink()
    with pytest.raises(FileNotFoundError, match=r"x\.npy"):
        pickle.loads(content)


def test_non_finite_row_raises(array, tmp_path):
    array[6, 1] = np.nan
    np.save(tmp_path / "x.npy", array)
    with pytest.raises(ValueError, match="1 of 10 rows .* row 6"):
        as_rows(np.load(tmp_path / "x.npy", mmap_mode="r"), "x", "test")
