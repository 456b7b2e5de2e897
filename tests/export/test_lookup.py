"""Tests of the search in the graph of a served model."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from keras_dml.export import Gallery
from keras_dml.export.gallery import Lookup
from keras_dml.export.served import K_SPEC

RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(20, 4)).astype("float32").repeat(2, axis=0)
GALLERY = Gallery(ROWS, [f"class {i}" for i in range(40)], threshold=0.5)
QUERIES = RNG.normal(size=(5, 4)).astype("float32")


def look_up(
    gallery: Gallery, k: int, queries: Any, status: list[str] | None = None
) -> dict[str, Any]:
    """The outputs of "lookup", as a graph computes them."""
    if status is None:
        status = ["ok"] * len(queries)
    function = tf.function(Lookup(gallery, k).__call__, autograph=False)
    outputs = function(tf.constant(status, "string"), tf.constant(queries))
    return {name: x.numpy() for name, x in outputs.items()}


def cosines_of(queries: Any, rows: Any) -> Any:
    x, y = queries.astype("float64"), rows.astype("float64")
    norms = np.outer(np.linalg.norm(x, axis=1), np.linalg.norm(y, axis=1))
    return np.divide(x @ y.T, norms, out=np.zeros_like(norms), where=norms > 0)


def test_lookup_finds_the_highest_cosines() -> None:
    scale = 10.0 ** RNG.uniform(-18, 18, (300, 1))
    rows = (RNG.normal(size=(300, 16)) * scale).astype("float32")
    rows[[4, 200]] = 0
    queries = RNG.normal(size=(20, 16)).astype("float32")
    queries[3] = 0
    gallery = Gallery(rows, np.zeros(300, int))
    cosines = cosines_of(queries, rows)
    for k in (1, 7, 300):
        outputs = look_up(gallery, k, queries)
        highest = -np.sort(-cosines, axis=1)[:, :k]
        np.testing.assert_allclose(outputs["scores"], highest, atol=1e-6)
        lookup_cosines = np.take_along_axis(cosines, outputs["ids"], axis=1)
        np.testing.assert_allclose(lookup_cosines, highest, atol=1e-6)
        assert outputs["above_threshold"].all()


def test_lookup_leaves_out_non_finite_queries() -> None:
    queries = QUERIES.copy()
    queries[1] = np.inf
    queries[4] = np.nan
    outputs = look_up(GALLERY, 3, queries)
    expected = look_up(GALLERY, 3, QUERIES[[0, 2, 3]])
    np.testing.assert_array_equal(outputs["ids"][[0, 2, 3]], expected["ids"])
    assert (outputs["ids"][[1, 4]] == -1).all()
    assert outputs["status"].tolist() == [b"ok"] * 5


# Lookups whose number of neighbors comes with the request.


def look_up_k(
    k: list[int], status: list[str], embeddings: Any, exported_k: int = 3
) -> dict[str, Any]:
    specs = [
        tf.TensorSpec((None,), "string"),
        tf.TensorSpec((None, 4), "float32"),
        K_SPEC,
    ]
    function = tf.function(
        Lookup(GALLERY, exported_k).of_own_k,
        input_signature=specs,
        autograph=False,
    )
    outputs = function(tf.constant(status), embeddings, tf.constant(k))
    return {name: x.numpy() for name, x in outputs.items()}


def test_k_per_query_equals_a_fixed_k() -> None:
    embeddings = QUERIES.copy()
    embeddings[3] = np.inf
    ks, status = [3, 1, 40, 7, 2], ["ok"] * 5
    outputs = look_up_k(ks, status, embeddings)
    assert outputs["ids"].shape == (5, 40)
    for row, k in enumerate(ks):
        fixed = look_up(GALLERY, k, embeddings)
        assert fixed.pop("status")[row] == outputs["status"][row] == b"ok"
        for name, x in fixed.items():
            np.testing.assert_array_equal(outputs[name][row, :k], x[row])
    beyond = np.arange(40) >= np.array(ks)[:, None]
    assert (outputs["ids"][beyond] == -1).all()
    assert (outputs["labels"][beyond] == b"").all()
    assert not outputs["scores"][beyond].any()
    assert not outputs["above_threshold"][beyond].any()
    # Or else there was no threshold.
    assert 0 < outputs["above_threshold"][2].sum() < 40


def test_bad_k_and_bad_files_leave_the_others_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("keras_dml.export.gallery.MAX_NEIGHBORS", 4)
    ks, status = [4, 5, 0, 2, 1], ["ok", "ok", "ok", "damaged", "ok"]
    outputs = look_up_k(ks, status, QUERIES[:4])  # Four are "ok".
    out = b"k out of range"
    assert outputs["status"].tolist() == [b"ok", out, out, b"damaged", b"ok"]
    assert (outputs["ids"][1:4] == -1).all()
    fixed = look_up(GALLERY, 4, QUERIES)["ids"]
    np.testing.assert_array_equal(outputs["ids"][0], fixed[0])
    assert outputs["ids"][4].tolist() == [fixed[3, 0], -1, -1, -1]
    # That of the export counts if it is larger.
    outputs = look_up_k([9, 10], ["ok"] * 2, QUERIES[:2], exported_k=9)
    assert outputs["status"].tolist() == [b"ok", out]
    assert (outputs["ids"][0] >= 0).all()
