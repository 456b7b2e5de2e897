"""Protocols as data."""

import numpy as np
import pytest

from keras_dml.evaluation import Protocol, evaluate_embeddings, one_per_class

LABELS = np.repeat([5, 2, 9, 2**40], [3, 4, 1, 6])


def test_gallery_has_one_random_image_of_each_class():
    draws = one_per_class(LABELS, draws=50)
    assert len(draws) == 50
    picked = set()
    for draw in draws:
        assert sorted(LABELS[draw.gallery]) == [2, 5, 9, 2**40]
        both = np.concatenate([draw.queries, draw.gallery])
        np.testing.assert_array_equal(np.sort(both), np.arange(14))
        picked |= set(draw.gallery)
    assert picked == set(range(14))


def test_draws_are_seeded():
    first, again, other = (one_per_class(LABELS, seed=s) for s in (0, 0, 1))
    for a, b in zip(first, again, strict=True):
        np.testing.assert_array_equal(a.gallery, b.gallery)
    assert any(
        (a.gallery != b.gallery).any()
        for a, b in zip(first, other, strict=True)
    )


def test_official_protocol_averages_ten_draws():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((14, 3))
    official = evaluate_embeddings(x, LABELS, protocol="official")
    draws = one_per_class(LABELS)
    alone = [evaluate_embeddings(x, LABELS, protocol=draw) for draw in draws]
    assert official.num_draws == 10
    assert official.num_queries == 10 * (14 - 4)
    assert official.gallery_size == 4
    for name in official:
        expected = np.mean([results[name] for results in alone])
        assert official[name] == pytest.approx(expected, rel=1e-12)
    # In a gallery with one image of each class, so reads each metric.
    assert official["map@r"] == official["recall@1"]


def test_gallery_order_breaks_ties():
    x, labels = np.ones((3, 2)), np.array([0, 0, 1])
    for gallery, expected in (([1, 2], 1.0), ([2, 1], 0.5)):
        protocol = Protocol(np.array([0]), np.array(gallery))
        results = evaluate_embeddings(
            x, labels, metrics="mrr", protocol=protocol
        )
        assert results["mrr"] == expected


@pytest.mark.parametrize(
    "rows, message",
    [
        (np.array([0, 14]), "rows from 0 to 14"),
        (np.array([-1, 2]), "rows from -1 to 2"),
        (np.array([1, 1]), "2 rows, 1 of them different"),
        (np.array([True, False]), "dtype=bool"),
        (np.array([], int), r"shape=\(0,\)"),
    ],
)
def test_unfit_rows_of_a_protocol_raise(rows, message):
    x = np.ones((14, 2))
    with pytest.raises(ValueError, match="of Protocol must.*" + message):
        evaluate_embeddings(x, LABELS, protocol=Protocol(gallery=rows))


def test_zero_draws_raise():
    with pytest.raises(ValueError, match="draws=0"):
        one_per_class(LABELS, draws=0)
