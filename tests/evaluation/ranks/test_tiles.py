"""Peaks of a tile leave out no score that reaches its bound."""

import numpy as np
import pytest

from keras_dml.evaluation.ranks import tiles
from keras_dml.evaluation.ranks.tiles import Block, Comparison, Tile

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
    np.testing.assert_array_equal(Block(values).peaks, expected)


def comparison(
    values: np.ndarray, cutoffs: np.ndarray, mirrored: bool
) -> Comparison:
    count = len(cutoffs)
    items = slice(0, values.size // count)
    tile = Tile(values, np.zeros(count), np.arange(count), items, mirrored)
    return Comparison(tile, Block(values), cutoffs, np.zeros(count, bool))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("mirrored", [False, True])
def test_few_are_those_of_all_bands(
    shape: tuple[int, int], mirrored: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiles, "FEW_PEAKS", 10.0)
    values = scores(shape)
    cutoffs = np.random.default_rng(1).uniform(-1, 2, shape[int(mirrored)])
    compared = comparison(values, cutoffs, mirrored)
    bounds = cutoffs if mirrored else cutoffs[:, None]
    expected = np.flatnonzero(values >= bounds)
    np.testing.assert_array_equal(np.sort(compared.few()), expected)
    found = compared.examine(slice(0, len(values)))
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("sampled", [1, 64])
def test_many_are_left_to_the_bands(
    sampled: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiles, "SAMPLED", sampled)
    values = np.full((64, 50), -1.0, np.float32)
    cutoffs = np.zeros(64)
    assert len(comparison(values, cutoffs, False).few()) == 0
    # Not the first row: with 64 the sample does not see it, peaks do.
    values[1:] = 1.0
    assert comparison(values, cutoffs, False).few() is None


def test_many_scores_need_no_peaks() -> None:
    values = np.ones((64, 50), np.float32)
    block = Block(values)
    tile = Tile(values, np.zeros(64), np.arange(64), slice(0, 50))
    compared = Comparison(tile, block, np.zeros(64), np.zeros(64, bool))
    assert compared.few() is None
    assert "peaks" not in vars(block)
