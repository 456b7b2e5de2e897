"""Tests of the lookup whose number of neighbors comes with the request."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from keras_dml.export import Gallery, signatures
from keras_dml.export.signatures import Lookup

RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(20, 4)).astype("float32").repeat(2, axis=0)
GALLERY = Gallery(ROWS, [f"class {i}" for i in range(40)], threshold=0.5)
QUERIES = RNG.normal(size=(5, 4)).astype("float32")


def of_own_k(
    k: list[int], status: list[str], embeddings: Any, exported_k: int = 3
) -> dict[str, Any]:
    specs = [
        tf.TensorSpec((None,), "string"),
        tf.TensorSpec((None, 4), "float32"),
        signatures.K_SPEC,
    ]
    function = tf.function(
        Lookup(GALLERY, exported_k).of_own_k,
        input_signature=specs,
        autograph=False,
    )
    outputs = function(tf.constant(status), embeddings, tf.constant(k))
    return {name: x.numpy() for name, x in outputs.items()}


def test_own_k_gives_the_bits_of_an_export_with_it() -> None:
    embeddings = QUERIES.copy()
    embeddings[3] = np.inf
    ks, status = [3, 1, 40, 7, 2], ["ok"] * 5
    found = of_own_k(ks, status, embeddings)
    assert found["ids"].shape == (5, 40)
    for row, k in enumerate(ks):
        fixed = Lookup(GALLERY, k)(tf.constant(status), embeddings)
        assert fixed.pop("status")[row] == found["status"][row] == b"ok"
        for name, x in fixed.items():
            np.testing.assert_array_equal(found[name][row, :k], x[row])
    beyond = np.arange(40) >= np.array(ks)[:, None]
    assert (found["ids"][beyond] == -1).all()
    assert (found["labels"][beyond] == b"").all()
    assert not found["scores"][beyond].any()
    assert not found["above_threshold"][beyond].any()
    # Or else there was no tie, and no threshold.
    assert (np.diff(found["scores"][2]) == 0).sum() >= 20
    assert 0 < found["above_threshold"][2].sum() < 40


def test_bad_k_and_bad_files_leave_the_others_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(signatures, "MOST_NEIGHBORS", 4)
    ks = [4, 5, 0, 2, -1, 9, 1]
    status = ["ok", "ok", "ok", "damaged", "unsupported", "ok", "ok"]
    found = of_own_k(ks, status, QUERIES)  # Five are "ok".
    out = b"k out of range"
    assert found["status"].tolist() == [
        b"ok", out, out, b"damaged", b"unsupported", out, b"ok"
    ]  # fmt: skip
    assert (found["ids"][1:6] == -1).all()
    fixed = Lookup(GALLERY, 4)(tf.constant(["ok"] * 5), QUERIES)["ids"].numpy()
    np.testing.assert_array_equal(found["ids"][0], fixed[0])
    assert found["ids"][6].tolist() == [fixed[4, 0], -1, -1, -1]


def test_the_largest_k_is_that_of_the_export_if_it_is_larger(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(signatures, "MOST_NEIGHBORS", 4)
    found = of_own_k([9, 10], ["ok"] * 2, QUERIES[:2], exported_k=9)
    assert found["status"].tolist() == [b"ok", b"k out of range"]
    assert (found["ids"][0] >= 0).all() and found["ids"].shape == (2, 9)


def test_one_k_for_each_example() -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match="one number per"):
        of_own_k([3], ["ok"] * 5, QUERIES)
    assert of_own_k([0, 41], ["ok"] * 2, QUERIES[:2])["ids"].shape == (2, 1)
