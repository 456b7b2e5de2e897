"""Peaks of a tile leave out no score that reaches its bound."""

import numpy as np
import pytest

from keras_dml.evaluation.ranks import tiles
from keras_dml.evaluation.ranks.tiles import Comparison, Tile, peaks_of

SHAPES = [(1, 5), (7, 3), (8, 4), (29, 50), (64, 1)]


def scores(shape: tuple[int, int]) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape, dtype=np.float32)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("band", [1, 100, 10**6])
def test_peaks(
    shape: tuple[int, int], band: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiles, "BAND", band)
    values = scores(shape)
    starts = range(0, len(values), tiles.GROUP)
    expected = [values[i : i + tiles.GROUP].max(axis=0) for i in starts]
    np.testing.assert_array_equal(peaks_of(values), expected)


def comparison(
    values: np.ndarray, cutoffs: np.ndarray, mirrored: bool
) -> Comparison:
    count = len(cutoffs)
    items = slice(0, values.size // count)
    tile = Tile(values, np.zeros(count), np.arange(count), items, mirrored)
    return Comparison(tile, peaks_of(values), cutoffs, np.zeros(count, bool))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("mirrored", [False, True])
def test_few_are_those_of_all_bands(
    shape: tuple[int, int], mirrored: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiles, "FEW_PEAKS", 1.0)
    values = scores(shape)
    cutoffs = np.random.default_rng(1).uniform(-1, 2, shape[int(mirrored)])
    compared = comparison(values, cutoffs, mirrored)
    bounds = cutoffs if mirrored else cutoffs[:, None]
    expected = np.flatnonzero(values >= bounds)
    np.testing.assert_array_equal(np.sort(compared.few()), expected)
    found = compared.examine(slice(0, len(values)))
    np.testing.assert_array_equal(found, expected)


def test_many_peaks_are_left_to_the_bands() -> None:
    values = scores((64, 50))
    assert comparison(values, np.full(64, -9.0), False).few() is None
    assert len(comparison(values, np.full(64, 9.0), False).few()) == 0
