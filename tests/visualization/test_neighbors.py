import numpy as np
import pytest

from keras_dml.visualization import nearest


def naive(x, query, count, allowed):
    """Rows sorted by float64 cosine, ties by row."""
    x = x.astype(np.float64)
    x = x / np.linalg.norm(x, axis=1, keepdims=True)
    ranked = sorted(allowed, key=lambda row: (-float(x[row] @ x[query]), row))
    return ranked[:count], [float(x[row] @ x[query]) for row in ranked[:count]]


def test_neighbors_match_a_sorted_list() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(150, 6)).astype(np.float32)
    queries = np.array([0, 3, 149, 70])
    neighbors, cosines = nearest(x, queries, 7)
    for i, query in enumerate(queries):
        rows, values = naive(x, query, 7, set(range(150)) - {int(query)})
        assert neighbors[i].tolist() == rows
        np.testing.assert_allclose(cosines[i], values, atol=1e-12)


@pytest.mark.parametrize("has_several_labels", [False, True])
def test_gallery_and_groups_leave_images_out(has_several_labels) -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(40, 4)).astype(np.float32)
    groups = rng.integers(2, size=40)
    table = np.eye(3, dtype=bool)[rng.integers(3, size=40)]
    if has_several_labels:
        table = rng.random((40, 5)) < 0.3
    labels = table if has_several_labels else table.argmax(axis=1)
    gallery = np.arange(10, 40)
    queries = np.array([2, 12])
    neighbors, _ = nearest(
        x, queries, 9, gallery=gallery, labels=labels, groups=groups
    )
    for i, query in enumerate(queries):
        is_alike = (table & table[query]).any(axis=1)
        is_left_out = is_alike & (groups == groups[query])
        allowed = [
            row
            for row in gallery.tolist()
            if row != query and not is_left_out[row]
        ]
        assert neighbors[i].tolist() == naive(x, query, 9, allowed)[0]


def test_duplicates_rank_in_row_order() -> None:
    x = np.tile(np.array([[0.1, 0.7, 0.3]], np.float32), (6, 1))
    neighbors, cosines = nearest(x, np.array([2]), 9)
    assert neighbors.tolist() == [[0, 1, 3, 4, 5, -1]]
    assert np.isnan(cosines[0, 5])
