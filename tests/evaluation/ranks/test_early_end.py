"""Queries that need no more counting.

Metrics with limits let the search drop queries. Nothing may come of that but
speed.
"""

import numpy as np
import pytest

from keras_dml.evaluation import evaluate_embeddings
from keras_dml.evaluation.ranks import search, tiles
from tests.evaluation import naive
from tests.evaluation.ranks.test_exact_search import lattice

METRICS = ("recall@1", "recall@10", "r_precision", "map@r")


@pytest.fixture(params=[0.9, 2.0])
def ways(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> set[str]:
    """Makes tiles small; records tiles with only some of their queries."""
    # Above 1 nothing is computed for both sides at once.
    monkeypatch.setattr(search, "FULL_PRODUCT_SHARE", request.param)
    monkeypatch.setattr(search, "MAX_TILE_SIDE", 64)
    monkeypatch.setattr(tiles, "BAND_SCORES", 1250)
    seen: set[str] = set()
    tile_of = tiles.Tile

    def recorded_tile(*arguments, **options):
        tile = tile_of(*arguments, **options)
        if len(tile.rows) < tile.span.stop - tile.span.start:
            seen.add(f"few, {tile.mirrored}")
        return tile

    monkeypatch.setattr(tiles, "Tile", recorded_tile)
    return seen


@pytest.mark.parametrize("kind", ["dot", "euclidean", "gallery", "groups"])
def test_ranks_match_whole_rankings(ways: set[str], kind: str) -> None:
    x, labels = lattice(350, 4, 70, width=3)
    rows = gallery_rows = np.arange(350)
    options = {"distance": "euclidean" if kind == "euclidean" else "dot"}
    cameras = np.arange(350)
    if kind == "groups":
        labels %= 20
        cameras = np.random.default_rng(1).integers(0, 3, 350)
        options["exclude"] = cameras
    if kind == "gallery":
        rows, gallery_rows = rows[:120], rows[120:]
        options |= {
            "gallery": x[gallery_rows],
            "gallery_labels": labels[gallery_rows],
        }

    def ignored(i: int, j: int) -> bool:
        i, j = rows[i], gallery_rows[j]
        is_grouped = kind == "groups" and labels[i] == labels[j]
        return i == j or (is_grouped and cameras[i] == cameras[j])

    order = naive.rankings(
        x[rows], x[gallery_rows], options["distance"], ignored
    )
    results = evaluate_embeddings(
        x[rows], labels[rows], metrics=METRICS, **options
    )
    naive.check(results, order, labels[rows], labels[gallery_rows])
    if kind != "groups":
        assert "few, False" in ways
        assert kind == "gallery" or "few, True" in ways


@pytest.mark.parametrize(
    ("distance", "noise"), [("cosine", 1.0), ("euclidean", 1e-6), ("dot", 1e-6)]
)
def test_early_end_leaves_floats_unchanged(
    ways: set[str], distance: str, noise: float
) -> None:
    """The reference adds MRR, which never ends early."""
    rng = np.random.default_rng(3)
    center = rng.standard_normal(8)
    x = (center + noise * rng.standard_normal((250, 8))).astype(np.float32)
    x[200:225] = x[:25]
    labels = rng.integers(0, 50, 250)
    early = evaluate_embeddings(x, labels, metrics=METRICS, distance=distance)
    whole = evaluate_embeddings(
        x, labels, metrics=(*METRICS, "mrr", "minp"), distance=distance
    )
    for name in METRICS:
        np.testing.assert_array_equal(
            early.per_query[name], whole.per_query[name]
        )
