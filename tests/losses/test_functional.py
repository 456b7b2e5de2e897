"""Losses as pure functions."""

import inspect
import pickle

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_dml import losses
from keras_dml.losses import ProxyLoss
from tests.losses.oracle import LABELS, batch, unit
from tests.losses.test_contract import NAMES, PAIRWISE, default

LABEL = np.array(LABELS["unbalanced"])
X = unit(batch(LABELS["unbalanced"])).astype("float32")
WEIGHTS = np.random.default_rng(0).uniform(size=(2, 8, 8)).astype("float32")


# N-pair is NT-Xent, multi-label SupCon of class ids SupCon; the others have
# more than tensors and numbers.
NO_FUNCTION = {
    "n_pair",
    "multi_sup_con",
    "dynamic_arc_face",
    "hist",
    "dynamic_soft_margin",
}


def test_every_loss_has_a_function():
    for name in set(NAMES) - NO_FUNCTION:
        assert name in losses.__all__
        assert callable(getattr(losses, name))


@pytest.mark.parametrize(
    "name",
    [
        "angular",
        "contrastive",
        "margin",
        "smooth_ap",
        "soft_triple",
        "sub_center_arc_face",
        "vicreg",
    ],
)
def test_function_and_loss_agree(name):
    function, loss = getattr(losses, name), default(name)
    x, weights = keras.ops.convert_to_tensor(X), {}
    if isinstance(loss, ProxyLoss):
        actual = function(LABEL, x, loss.proxies)
    else:
        is_drawn = getattr(loss, "seed_generator", None) is not None
        more = {"mining": "hard"} if is_drawn else {}
        loss = losses.get({"name": name, **more})
        if loss.weights_pairs:
            more["pair_weights"] = tuple(WEIGHTS)
            weights["pair_weights"] = more["pair_weights"]
        actual = function(LABEL, x, **more)
    expected = loss.per_example(LABEL, x, **weights)
    np.testing.assert_allclose(actual, expected, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["contrastive", "proxy_nca"])
def test_signature_follows_the_class(name):
    function = getattr(losses, name)
    parameters = inspect.signature(function).parameters
    kinds = {k: p.kind for k, p in parameters.items()}
    assert list(kinds)[:2] == ["labels", "embeddings"]
    assert kinds["reduction"] == inspect.Parameter.KEYWORD_ONLY
    assert not {"name", "normalize", "num_classes"} & set(kinds)
    assert ("seed" in kinds) == (name in PAIRWISE)
    assert function.__name__ == name
    assert pickle.loads(pickle.dumps(function)) is function  # noqa: S301
    tensors = [LABEL, X] if name in PAIRWISE else [LABEL, X, X]
    with pytest.raises(TypeError, match="'nonsense'"):
        function(*tensors, nonsense=3)
    with pytest.raises(ValueError, match="`reduction` of"):
        function(*tensors, reduction="sum")


def test_beta_may_be_a_tensor_in_a_graph():
    betas = np.linspace(0.8, 1.4, 8, dtype="float32")[:, None]
    step = tf.function(
        lambda x, beta: losses.margin(LABEL, x, beta=beta, mining="hard"),
        autograph=False,
    )
    values = losses.margin(
        LABEL, X, beta=betas, mining="hard", reduction="sum_over_pairs"
    )
    for beta, value, i in zip(betas, values, range(8), strict=True):
        one = losses.margin(
            LABEL, X, beta=beta, mining="hard", reduction="sum_over_pairs"
        )
        assert float(one[i]) == pytest.approx(float(value), rel=1e-5)
    eager = losses.margin(LABEL, X, beta=betas, mining="hard")
    np.testing.assert_allclose(
        step(tf.constant(X), tf.constant(betas)), eager, rtol=1e-5
    )


def test_seed_repeats_draws_in_a_graph():
    step = tf.function(
        lambda x: losses.margin(LABEL, x, seed=5), autograph=False
    )
    first, second = (step(tf.constant(X)).numpy() for _ in range(2))
    np.testing.assert_array_equal(first, second)
    np.testing.assert_allclose(first, losses.margin(LABEL, X, seed=5), 1e-5)
