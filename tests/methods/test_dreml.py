"""DREML: each learner has its own labels and one-hot proxies."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from keras_dml import MetricModel, backbones, losses, methods
from keras_dml.methods import MetaClasses
from tests.conftest import blobs
from tests.losses.oracle import check_slopes, unit

IMAGES = blobs(4, 3)
X = IMAGES.images[..., None].astype("float32")
Y = IMAGES.labels


def dreml(**arguments: Any) -> MetricModel:
    options = {"embedding_dim": 12, "num_learners": 3, "num_classes": 40}
    model: MetricModel = methods.dreml(
        backbones.small_convnet((16, 16, 1), filters=(8,)),
        **{**options, **arguments},
    )
    return model


def groups(model: MetricModel) -> list[np.ndarray]:
    return [np.array(task.meta_class) for task in model.objective.objectives]


def test_groups_differ_between_learners_and_have_equal_sizes() -> None:
    partitions = groups(dreml())
    assert len(partitions) == 3
    for each in partitions:
        assert np.bincount(each).tolist() == [10] * 4  # M = D / K
    assert not np.array_equal(partitions[0], partitions[1])
    assert not np.array_equal(partitions[1], partitions[2])
    for each, again in zip(partitions, groups(dreml()), strict=True):
        np.testing.assert_array_equal(each, again)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"num_classes": 6}, 3),
        ({"num_meta_classes": 2}, 2),
        ({"loss": "contrastive"}, 20),
    ],
)
def test_number_of_meta_classes_follows_the_arguments(
    arguments, expected
) -> None:
    assert len(np.unique(groups(dreml(**arguments))[0])) == expected


def test_loss_matches_the_cross_entropy_of_one_hot_proxies() -> None:
    """Value and gradient match NumPy; proxies do not train."""
    model = dreml()
    assert not [v for v in model.trainable_variables if "objective" in v.path]
    labels = groups(model)
    at = unit(np.random.default_rng(0).normal(size=(12, 3, 4)))

    def by_hand(parts: np.ndarray) -> float:
        total = 0.0
        for i, k in np.ndindex(12, 3):
            logits = unit(parts[i, k])
            target_logit = logits[labels[k][Y[i]]]
            total += np.log(np.sum(np.exp(logits))) - target_logit
        return total / 12

    x = tf.constant(at, "float32")
    with tf.GradientTape() as tape:
        tape.watch(x)
        terms = model.objective({"parts": x}, {"label": Y})
        mean = tf.reduce_mean(terms["metric"])
    np.testing.assert_allclose(mean, by_hand(at), rtol=1e-5)
    check_slopes(tape.gradient(mean, x).numpy(), by_hand, at, rtol=1e-3)


def test_released_loss_uses_raw_activations() -> None:
    """The cross entropy whose logits are what the dense layers return."""
    model = dreml(loss_input="activation")
    labels = groups(model)
    outputs = model.outputs_of(X)
    raw = np.stack(
        [
            model.backbone(X).numpy()[:, 8 * k : 8 * (k + 1)]
            @ model.head.dense[k].kernel.numpy()
            + model.head.dense[k].bias.numpy()
            for k in range(3)
        ],
        axis=1,
    )
    np.testing.assert_allclose(outputs["activations"], raw, atol=1e-5)
    np.testing.assert_allclose(outputs["parts"], unit(raw), atol=1e-5)
    scale = 40.0  # Far below the 0.74 of unit logits and four meta-classes.
    at = scale * raw / np.abs(raw).max()
    expected = sum(
        np.log(np.sum(np.exp(at[i, k]))) - at[i, k, labels[k][Y[i]]]
        for i, k in np.ndindex(12, 3)
    )
    raw_outputs = {
        "activations": at.astype("f4"),
        "parts": unit(raw).astype("f4"),
    }
    terms = model.objective(raw_outputs, {"label": Y})
    np.testing.assert_allclose(np.sum(terms["metric"]), expected, rtol=1e-5)
    again = MetricModel.from_config(model.get_config())
    assert set(again.outputs_of(X)) == {"embedding", "parts", "activations"}


@pytest.mark.parametrize(
    "loss",
    [
        {"name": "proxy_nca", "num_classes": 40},
        losses.ProxyNCALoss(num_classes=40),
        {"proxy_nca": {"num_classes": 40}, "contrastive": 1.0},
    ],
    ids=["config", "object", "several"],
)
def test_loss_has_one_class_per_group(loss) -> None:
    model = dreml(loss=loss)
    proxies = [v for v in model.trainable_variables if "proxies" in v.path]
    assert [tuple(v.shape) for v in proxies] == [(20, 4)] * 3


@pytest.mark.parametrize("shared_trunk", [False, True])
def test_trunks_are_separate_unless_shared(shared_trunk) -> None:
    model = dreml(shared_trunk=shared_trunk)
    kernels = [v for v in model.backbone.weights if "conv_0" in v.path]
    assert len(kernels) == (1 if shared_trunk else 3)
    assert all(
        isinstance(task, MetaClasses) for task in model.objective.objectives
    )
