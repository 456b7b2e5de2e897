"""Ensemble: learners train as if alone."""

import re
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_dml import MetricModel, backbones, losses, methods
from keras_dml.methods import (
    Bootstrap,
    EmbeddingObjective,
    IndependentHead,
    IndependentObjective,
)
from tests.conftest import blobs
from tests.losses.oracle import unit

IMAGES = blobs(4, 3)
X = IMAGES.images[..., None].astype("float32")
Y = IMAGES.labels
# Everything that a loss may own: β, and random numbers.
MARGIN = {"name": "margin", "learn_beta": True, "num_classes": 4}
PROXIES = {"name": "proxy_nca", "num_classes": 4}


def network(**arguments: Any) -> keras.Model:
    return backbones.small_convnet((16, 16, 1), filters=(4, 8), **arguments)


def ensemble(**arguments: Any) -> MetricModel:
    options = {"embedding_dim": 6, "num_learners": 2, "loss": PROXIES}
    model: MetricModel = methods.ensemble(network(), **{**options, **arguments})
    return model


def trained(model: MetricModel, steps: int = 3) -> list[float]:
    # Quicker than to trace for three steps.
    model.compile(keras.optimizers.Adam(1e-2), run_eagerly=True)
    return [float(model.train_on_batch(X, Y)) for _ in range(steps)]


@pytest.mark.slow
def test_one_learner_equals_the_baseline_bit_for_bit() -> None:
    runs = []
    for method, more in (("baseline", {}), ("ensemble", {"num_learners": 1})):
        keras.utils.set_random_seed(3)
        model = methods.METHODS[method].value(
            network(), embedding_dim=6, loss=PROXIES, pooling="gem", **more
        )
        runs.append((trained(model), model.predict(X, verbose=0)))
    assert runs[0][0] == runs[1][0]
    np.testing.assert_array_equal(runs[0][1], runs[1][1])


def learner(model: MetricModel, k: int, loss: Any) -> MetricModel:
    """A baseline with the weights of learner k."""
    alone = methods.baseline(network(), embedding_dim=3, loss=loss)
    alone.backbone.set_weights(
        model.backbone.get_layer(f"learner_{k}").get_weights()
    )
    alone.head.set_weights(model.head.dense[k].get_weights())
    alone.objective.set_weights(model.objective.objectives[k].get_weights())
    return alone


@pytest.mark.slow
def test_learners_train_as_if_alone() -> None:
    model = ensemble()
    alone = [learner(model, k, PROXIES) for k in range(2)]
    together = trained(model)
    apart = [trained(each) for each in alone]
    np.testing.assert_allclose(together, np.sum(apart, axis=0), rtol=1e-5)
    embeddings = [each.predict(X, verbose=0) for each in alone]
    np.testing.assert_allclose(
        model.predict(X, verbose=0),
        np.concatenate(embeddings, axis=1) / np.sqrt(2),
        atol=1e-4,
    )


@pytest.mark.parametrize("shared_trunk", [False, True])
def test_no_gradient_passes_between_learners(shared_trunk) -> None:
    model = ensemble(shared_trunk=shared_trunk)
    variables = model.trainable_variables
    owners = [_learner_of(v.path) for v in variables]
    assert owners.count(None) == (6 if shared_trunk else 0)
    for k, task in enumerate(model.objective.objectives):
        with tf.GradientTape() as tape:
            parts = model.outputs_of(X, training=True)["parts"]
            terms = task({"embedding": parts[:, k]}, {"label": Y})
            loss = tf.reduce_sum(terms["metric"])
        gradients = tape.gradient(loss, variables)
        for v, owner, gradient in zip(
            variables, owners, gradients, strict=True
        ):
            has_gradient = gradient is not None and bool(np.any(gradient))
            assert has_gradient == (owner in (k, None)), v.path


def _learner_of(path: str) -> int | None:
    match = re.search(r"(?:learner|dense)_(\d)[_/]", path)
    return int(match[1]) if match else None


def test_every_learner_has_its_own_loss() -> None:
    model = ensemble(loss=MARGIN)
    betas = [v.path for v in model.trainable_variables if "loss/beta" in v.path]
    assert betas == [
        "objective/learner_0/loss/beta", "objective/learner_1/loss/beta",
    ]  # fmt: skip


def kernels(model: MetricModel) -> list[np.ndarray]:
    return [
        v.numpy()
        for k in range(2)
        for v in model.backbone.weights
        if v.path == f"learner_{k}_conv_0/kernel"
    ]


def test_untrained_networks_start_different_and_pretrained_ones_equal() -> None:
    first, second = kernels(ensemble())
    assert not np.allclose(first, second)
    first, second = kernels(ensemble(start="same"))
    np.testing.assert_array_equal(first, second)
    pretrained = network()
    pretrained.get_layer("norm_1").beta.assign(np.arange(8))
    for start, same in ((None, True), ("same", True), ("random", False)):
        model = methods.ensemble(
            pretrained, embedding_dim=6, num_learners=2, start=start
        )
        first, second = kernels(model)
        np.testing.assert_array_equal(
            first, pretrained.get_layer("conv_0").get_weights()[0]
        )
        assert np.array_equal(first, second) == same


def test_frozen_layers_stay_frozen() -> None:
    partly = backbones.get(network(), freeze_until="relu_0")
    model = methods.ensemble(partly, embedding_dim=6, num_learners=2)
    paths = [v.path for v in model.backbone.trainable_variables]
    assert len(paths) == 6
    assert not [x for x in paths if "_0/kernel" in x or "norm_0" in x]


def test_shared_frozen_network_is_computed_once() -> None:
    frozen = backbones.get(network(), freeze=True)
    model = methods.ensemble(
        frozen, embedding_dim=6, num_learners=2, start="same"
    )
    assert model.backbone is not None
    assert model.backbone.count_params() == frozen.count_params()
    apart = methods.ensemble(
        frozen, embedding_dim=6, num_learners=2, start="random"
    )
    assert apart.backbone.count_params() == 2 * frozen.count_params()
    assert not apart.backbone.trainable_variables


def test_four_networks_of_half_width_have_fewer_weights_than_one() -> None:
    one = methods.baseline(backbones.get("small_convnet"), embedding_dim=128)
    four = methods.ensemble(
        backbones.get("small_convnet", width=0.5),
        embedding_dim=128,
        num_learners=4,
    )
    assert 0.85 < four.count_params() / one.count_params() < 1


@pytest.mark.parametrize("shared", [False, True])
def test_head_is_dense_layers_side_by_side(shared) -> None:
    head = IndependentHead(6, 2, shared_trunk=shared)
    head.build((None, 2, 2, 8))
    x = np.random.default_rng(0).normal(size=(5, 2, 2, 8)).astype("float32")
    pooled = x.mean((1, 2))
    shares = [pooled, pooled] if shared else [pooled[:, :4], pooled[:, 4:]]
    parts = [
        unit(share @ np.array(dense.kernel) + np.array(dense.bias))
        for share, dense in zip(shares, head.dense, strict=True)
    ]
    outputs = head(x)
    np.testing.assert_allclose(
        outputs["parts"], np.stack(parts, axis=1), atol=1e-6
    )
    np.testing.assert_allclose(
        outputs["embedding"],
        np.concatenate(parts, axis=1) / np.sqrt(2),
        atol=1e-6,
    )


class Ones(EmbeddingObjective):
    def call(self, outputs, targets):
        return {"metric": tf.ones_like(outputs["embedding"][:, 0])}


def test_bootstrap_draws_a_batch_with_replacement() -> None:
    """Draws with replacement leave out 1/e of a large batch."""
    task = Bootstrap(Ones(losses.get("contrastive")), seed=1)
    outputs = {"embedding": tf.zeros((2000, 2))}
    targets = {"label": np.zeros(2000, "int64")}
    first, second = (task(outputs, targets)["metric"] for _ in range(2))
    assert float(tf.reduce_sum(first)) == 2000
    assert np.mean(first == 0) == pytest.approx(np.exp(-1), abs=0.03)
    assert np.mean(first == 2) == pytest.approx(np.exp(-1) / 2, abs=0.03)
    assert not np.array_equal(first, second)


def test_learners_draw_their_own_samples() -> None:
    model = ensemble(bootstrap=True)
    parts = tf.ones((12, 2, 3)) / 3**0.5
    first, second = (
        task({"embedding": parts[:, k]}, {"label": Y})["metric"] != 0
        for k, task in enumerate(model.objective.objectives)
    )
    assert not np.array_equal(first, second)


def test_objectives_must_have_the_same_terms() -> None:
    several = losses.get({"triplet": 1.0, "contrastive": 1.0})
    with pytest.raises(ValueError, match="same terms"):
        IndependentObjective(
            [
                EmbeddingObjective(losses.get("contrastive")),
                EmbeddingObjective(several),
            ]
        )


def test_channels_must_be_divisible_by_the_learners() -> None:
    with pytest.raises(ValueError, match=r"9 channels.*shared_trunk=True"):
        IndependentHead(6, 2).build((None, 9))
