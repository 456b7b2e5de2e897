"""Lookup through a server against the evaluator, on a part of glyphs."""

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_dml import data, evaluation, methods
from keras_dml.evaluation.ranks.scores import Scores
from keras_dml.export import Gallery, export_model
from tests.export.serving import answers, request

K = 11


@pytest.fixture(scope="module")
def found(tmp_path_factory: Any) -> dict[str, Any]:
    """What a server finds for every image, among all."""
    keras.utils.set_random_seed(0)
    everything = data.glyphs().test
    rows = np.arange(0, len(everything) // 3, 9)
    # Some of them twice, whose scores are equal.
    images = everything.select(np.append(rows, rows[::30]))
    model = methods.baseline("small_convnet", embedding_dim=64)
    gallery = Gallery(evaluation.embed(model, images), images.labels)
    path = export_model(
        model, tmp_path_factory.mktemp("glyphs"), gallery=gallery, k=K
    )
    files = [tf.io.encode_png(x[..., None]).numpy() for x in images.pixels]
    batches = [files[i : i + 500] for i in range(0, len(files), 500)]
    names = ("encoded", "lookup")
    got = answers(path, [request(x, y) for x in names for y in batches])
    outputs = {"gallery": gallery.embeddings, "labels": images.labels}
    for number, signature in enumerate(names):
        own = got[number * len(batches) :][: len(batches)]
        for name in own[0]:
            outputs[f"{signature} {name}"] = np.concatenate(
                [x[name] for x in own]
            )
    return outputs


def exact_neighbors(queries: Any, gallery: Any, k: int) -> Any:
    """By the scores that decide the evaluator's ranks, then by row."""
    scores = Scores(queries, gallery, "cosine")
    vectors = scores.gallery.rows(np.arange(len(gallery)))
    result = []
    for rows in np.array_split(np.arange(len(queries)), 20):
        # Some 10⁷ times the error of these, so that nothing is missed.
        cosines = scores.queries.rows(rows) @ vectors.T
        lowest = np.partition(cosines, -k, axis=1)[:, -k]
        query, item = np.nonzero(cosines >= lowest[:, None] - 1e-9)
        exact = scores.exact(rows[query], item)
        order = np.lexsort((item, -exact, query))
        starts = np.searchsorted(query, np.arange(len(rows)))
        result.append(item[order][starts[:, None] + np.arange(k)])
    return np.concatenate(result)


@pytest.mark.slow
def test_neighbors_are_those_of_the_evaluator(found: dict[str, Any]) -> None:
    queries, gallery = found["encoded embedding"], found["gallery"]
    np.testing.assert_allclose(queries, gallery, rtol=0, atol=1e-5)
    np.testing.assert_array_equal(
        found["lookup ids"], exact_neighbors(queries, gallery, K)
    )
    np.testing.assert_array_equal(
        found["lookup labels"], found["labels"][found["lookup ids"]]
    )
    assert (np.diff(found["lookup scores"], axis=1) == 0).any(axis=1).sum() > 9


@pytest.mark.slow
def test_recall_is_that_of_the_evaluator(found: dict[str, Any]) -> None:
    labels = found["labels"]
    rows = np.arange(len(labels))
    results = evaluation.evaluate_embeddings(
        found["encoded embedding"],
        labels,
        gallery=found["gallery"],
        gallery_labels=labels,
        exclude=(rows, rows),
        metrics="recall@k",
    )
    is_other = found["lookup ids"] != rows[:, None]
    is_hit = (found["lookup labels"] == labels[:, None]) & is_other
    place = np.cumsum(is_other, axis=1)
    for k in (1, 2, 4, 8):
        recall = (is_hit & (place <= k)).any(axis=1)[results.query_rows]
        np.testing.assert_array_equal(results.per_query[f"recall@{k}"], recall)
    assert 0.05 < recall.mean() < 0.95
