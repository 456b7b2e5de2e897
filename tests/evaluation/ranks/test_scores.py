"""The error of the fast scores stays below what `Scores` promises."""

import numpy as np
import pytest

from keras_dml.evaluation.ranks.scores import Scores
from keras_dml.utils.lazy_rows import ArrayRows
from keras_dml.utils.vectors import blocks, row_blocks, unit_rows, within

DISTANCES = ("cosine", "euclidean", "dot")


def awkward(kind: str) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((60, 33))
    if kind == "far from the origin":
        x += 1e4
    elif kind == "huge":
        x *= 1e30
    elif kind == "tiny":
        x *= 1e-30
    elif kind == "of very different length":
        x *= 10.0 ** rng.uniform(-5, 5, (60, 1))
    elif kind == "collapsed":
        x = 1 + 1e-6 * x
    elif kind == "one zero":
        x[3] = 0
        x[40] = 0
    elif kind == "told apart by float64 only":
        x = 1e-40 * x
        x[:, 0] = 1e-5
        return x[:20], x[20:]
    return x[:20].astype(np.float32), x[20:].astype(np.float32)


KINDS = (
    "normal",
    "far from the origin",
    "huge",
    "tiny",
    "of very different length",
    "collapsed",
    "one zero",
    "told apart by float64 only",
)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_error_is_within_tolerance(kind, distance, dtype):
    queries, gallery = awkward(kind)
    scores = Scores(queries, gallery, distance)
    left = scores.lhs(slice(0, 20), dtype)
    right = scores.rhs(slice(0, 40), dtype)
    product = (left @ right.T).astype(np.float64)
    i, j = np.divmod(np.arange(800), 40)
    exact = scores.exact(i, j).reshape(20, 40) - scores.offset
    error = np.abs(product - exact)
    tolerance = scores.tolerance(left)
    assert (error <= tolerance[:, None]).all()
    # A loose bound would leave everything undecided.
    spread = np.ptp(exact, axis=1)
    share = 1e-4 if dtype == np.float32 else 1e-6
    if kind in ("normal", "huge", "tiny", "collapsed"):
        assert (tolerance < share * spread).mean() > 0.9


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("distance", DISTANCES)
def test_exact_scores_have_the_order_of_extended_precision(kind, distance):
    queries, gallery = awkward(kind)
    scores = Scores(queries, gallery, distance)
    wide, wide_gallery = (
        queries.astype(np.longdouble),
        gallery.astype(np.longdouble),
    )
    if distance == "dot":
        expected = (wide[:, None] * wide_gallery).sum(-1)
    else:
        if distance == "cosine":
            wide, wide_gallery = _unit(wide), _unit(wide_gallery)
        expected = -np.square(wide[:, None] - wide_gallery).sum(-1)
    if distance == "cosine":
        expected[~wide.any(1)] = expected[:, ~wide_gallery.any(1)] = -2
    i, j = np.divmod(np.arange(800), 40)
    exact = scores.exact(i, j).reshape(20, 40)
    np.testing.assert_array_equal(
        np.argsort(-exact, axis=1, kind="stable"),
        np.argsort(-expected, axis=1, kind="stable"),
    )


def _unit(x: np.ndarray) -> np.ndarray:
    norms = np.sqrt(np.square(x).sum(-1, keepdims=True))
    return x / np.where(norms > 0, norms, 1)


@pytest.mark.parametrize("distance", DISTANCES)
def test_equal_vectors_have_equal_scores_wherever_they_stand(distance):
    rng = np.random.default_rng(1)
    x = rng.standard_normal((300, 517)).astype(np.float32)
    x[200:] = x[:100]
    scores = Scores(x, x, distance)
    i = np.repeat(np.arange(50), 100)
    j = np.tile(np.arange(100), 50)
    first = scores.exact(i, j)
    order = rng.permutation(len(i))
    np.testing.assert_array_equal(first[order], scores.exact(i, j + 200)[order])
    np.testing.assert_array_equal(
        first[order], scores.exact(i[order], j[order])
    )
    np.testing.assert_array_equal(first, scores.exact(j, i))


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("kind", KINDS)
def test_pairs_within_a_set_score_like_pairs_of_two_sets(kind, distance):
    """A pair asked in both orders is computed once, with the same bits."""
    _, x = awkward(kind)
    first, other = np.divmod(np.arange(len(x) ** 2), len(x))
    scores = Scores(x, x, distance).exact(first, other)
    expected = Scores(x, x.copy(), distance).exact(first, other)
    np.testing.assert_array_equal(scores, expected)


def test_cosine_with_a_zero_vector_counts_as_orthogonal():
    x = np.array([[0.0, 0.0], [3.0, 4.0], [-4.0, 3.0]], np.float32)
    rows = np.divmod(np.arange(9), 3)
    exact = Scores(x, x, "cosine").exact(*rows).reshape(3, 3)
    unit = exact.min() / -1.0
    expected = [[-1, -1, -1], [-1, 0, -1], [-1, -1, 0]]
    np.testing.assert_allclose(exact / unit, expected, atol=1e-15)


def test_unit_rows_survive_tiny_and_huge_lengths():
    x = np.array([[3.0, 4.0], [0.0, 0.0], [1e-40, 0.0], [3e38, 3e38]])
    half = np.sqrt(0.5)
    expected = [[0.6, 0.8], [0, 0], [1, 0], [half, half]]
    np.testing.assert_allclose(unit_rows(x), expected, rtol=1e-7)
    assert unit_rows(x).dtype == np.float32


def test_blocks_cover_rows_in_order():
    assert blocks(7, 3) == [slice(0, 3), slice(3, 6), slice(6, 7)]
    assert within(slice(10, 17), slice(3, 6)) == slice(13, 16)


def test_blocks_of_rows_fit_into_the_cache():
    x = np.zeros((5000, 512), np.float32)
    parts = row_blocks(x, slice(100, 400))
    assert parts == blocks(300, 128)
    assert row_blocks(np.zeros((3, 10**6), np.float32)) == blocks(3, 1)
    # Small reads from files are slow.
    assert row_blocks(ArrayRows(x)) == blocks(5000, 4096)
