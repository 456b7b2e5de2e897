"""Parts of embeddings are measured as separate embeddings."""

import numpy as np
import pytest

from keras_dml import methods
from keras_dml.callbacks import RetrievalEvaluation
from keras_dml.evaluation import evaluate, evaluate_embeddings
from tests.conftest import blobs

METRICS = ("recall@1", "map@r", "nmi")


def test_parts_equal_separate_evaluations() -> None:
    """Slices of ⌈D / K⌉ dimensions, the last one shorter, and their mean."""
    rng = np.random.default_rng(0)
    x, labels = rng.normal(size=(40, 8)), np.arange(40) % 5
    x[:, 3:6] += 3 * np.eye(5)[labels][:, :3]
    results = evaluate_embeddings(x, labels, metrics=METRICS, parts=3)
    alone = [
        evaluate_embeddings(part, labels, metrics=METRICS)
        for part in (x[:, :3], x[:, 3:6], x[:, 6:])
    ]
    for name in METRICS:
        for k, part in enumerate(alone, 1):
            assert results[f"part{k}/{name}"] == part[name]
        mean = np.mean([part[name] for part in alone])
        assert results[f"parts/{name}"] == pytest.approx(mean)
    # The middle one has the classes, which shows that the cut is right.
    assert results["part2/map@r"] > 2 * results["part1/map@r"]
    per_query = [part.per_query["map@r"] for part in alone]
    np.testing.assert_allclose(
        results.per_query["parts/map@r"], np.mean(per_query, axis=0)
    )
    assert len(results) == 5 * len(METRICS)


def test_parts_are_the_learners(tiny_backbone) -> None:
    model = methods.divide_and_conquer(
        tiny_backbone, embedding_dim=9, loss="contrastive", num_learners=3
    )
    images = blobs()
    parts = model.outputs_of(images.images[..., None].astype("float32"))[
        "parts"
    ]
    results = evaluate(model, images, metrics=("map@r",), parts=3)
    for k in range(3):
        alone = evaluate_embeddings(
            parts[:, k], images.labels, metrics=("map@r",)
        )
        assert results[f"part{k + 1}/map@r"] == pytest.approx(
            alone["map@r"], abs=1e-3
        )


def test_parts_are_logged() -> None:
    callback = RetrievalEvaluation(blobs(), metrics=("recall@1",), parts=2)
    assert callback.logged_names == {
        "val_recall@1", "val_part1/recall@1", "val_part2/recall@1",
        "val_parts/recall@1",
    }  # fmt: skip
