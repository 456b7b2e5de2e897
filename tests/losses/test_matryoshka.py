"""Matryoshka: a loss on every prefix, in values, models and configs."""

import keras
import numpy as np
import pytest

from keras_dml import losses, methods
from keras_dml.losses import MatryoshkaLoss
from tests.losses.oracle import (
    LABELS,
    batch,
    check_slopes,
    unit,
    value_and_gradient,
)

LABEL = np.array(LABELS["unbalanced"])
RAW = batch(LABELS["unbalanced"], dim=6)
X = RAW.astype("float32")


def test_value_and_gradient_match_a_loop_over_unit_prefixes():
    loss = MatryoshkaLoss("contrastive", dims=(2, 3, 6), weights=(1, 0.5, 2))

    def loop(x):
        total = 0.0
        for dim, weight in ((2, 1), (3, 0.5), (6, 2)):
            z = unit(x[:, :dim])
            d = ((z[:, None] - z) ** 2).sum(axis=2)
            same = LABEL[:, None] == LABEL
            pull = d[same & ~np.eye(len(z), dtype=bool)]
            push = np.maximum(1 - d[~same], 0)
            total += weight * (pull.mean() + push[push > 0].mean())
        return total

    values, gradient = value_and_gradient(loss, LABEL, X)
    assert values.mean() == pytest.approx(loop(RAW), rel=1e-5)
    check_slopes(gradient, loop, RAW)
    terms = loss.term_values(LABEL, X)
    assert list(terms) == ["dim_2", "dim_3", "dim_6"]
    first = losses.ContrastiveLoss().per_example(LABEL, X[:, :2])
    np.testing.assert_allclose(terms["dim_2"], first, rtol=1e-6)


@pytest.mark.parametrize("normalize", [True, False])
def test_prefixes_of_rows_and_references_are_unit_or_raw(normalize):
    refs = batch([0] * 4, dim=6, seed=2).astype("float32")
    labels = np.array([0, 1, 2, 3])
    # A loss that takes embeddings as they are.
    loss = MatryoshkaLoss("n_pair", dims=(2, 6), normalize=normalize)
    values = loss.per_example(LABEL, X, labels, refs)
    expected = 0.0
    for d in (2, 6):
        x, y = X[:, :d], refs[:, :d]
        if normalize:
            x, y = unit(x), unit(y)
        expected += np.array(
            losses.NPairLoss().per_example(LABEL, x, labels, y)
        )
    np.testing.assert_allclose(values, expected, rtol=1e-5)


@pytest.mark.slow
def test_model_logs_every_prefix_and_has_proxies_for_each(tmp_path):
    loss = {
        "name": "matryoshka",
        "loss": {"name": "proxy_anchor", "num_classes": 4},
        "dims": [2, 6],
        "weights": [0.5, 1.0],
    }
    backbone = keras.Sequential([keras.Input((5,)), keras.layers.Dense(7)])
    model = methods.baseline(backbone, embedding_dim=6, loss=loss)
    proxies = [v for v in model.trainable_variables if "/loss/" in v.path]
    assert [v.shape for v in proxies] == [(4, 2), (4, 6)]
    assert len({v.path for v in proxies}) == 2
    model.compile("adam")
    before = [v.numpy() for v in proxies]
    logs = model.fit(X[:, :5], LABEL, verbose=0).history
    assert {"loss", "dim_2", "dim_6"} <= set(logs)
    expected = 0.5 * logs["dim_2"][0] + logs["dim_6"][0]
    assert logs["loss"][0] == pytest.approx(expected, rel=1e-5)
    for old, variable in zip(before, proxies, strict=True):
        assert np.abs(variable - old).max() > 0
    model.save(tmp_path / "model.keras")
    copy = keras.saving.load_model(tmp_path / "model.keras")
    assert copy.objective.loss.get_config() == model.objective.loss.get_config()
    np.testing.assert_array_equal(copy(X[:, :5]), model(X[:, :5]))
