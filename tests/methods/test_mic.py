"""MIC against NumPy: both losses, their decorrelation, and surrogates."""

import logging

import numpy as np
import pytest
import tensorflow as tf

from keras_dml import backbones, losses, methods
from keras_dml.methods._mic import auxiliary_loss_of
from tests.losses.oracle import check_slopes, contrastive, unit
from tests.methods.test_contract import batch

LABELS = np.array([0, 0, 0, 1, 1, 2])
SURROGATES = np.array([1, 0, 1, 0, 1, 0])
PARTS = unit(np.random.default_rng(3).normal(size=(6, 2, 4)))
EQ_10 = {"name": "contrastive", "reduction": "sum_over_pairs"}


def model_of(**arguments):
    backbone = backbones.small_convnet((16, 16, 1), filters=(4, 8))
    options = {"embedding_dim": 4, "loss": EQ_10, "psi_units": 5, **arguments}
    return methods.mic(backbone, **options)


@pytest.mark.parametrize(
    ("term", "encoder", "labels"),
    [("metric", 0, LABELS), ("surrogate", 1, SURROGATES)],
)
def test_each_encoder_trains_on_its_labels(term, encoder, labels) -> None:
    """Value and gradient match NumPy; the other encoder gets no gradient."""
    objective = model_of().objective
    x = tf.constant(PARTS, "float32")
    targets = {"label": LABELS, "surrogate": SURROGATES}
    with tf.GradientTape() as tape:
        tape.watch(x)
        mean = tf.reduce_mean(objective({"parts": x}, targets)[term])

    def by_hand(parts: np.ndarray) -> float:
        return contrastive(unit(parts[:, encoder]), labels)

    np.testing.assert_allclose(mean, by_hand(PARTS), rtol=1e-5)
    check_slopes(tape.gradient(mean, x).numpy(), by_hand, PARTS, rtol=1e-3)


def test_decorrelation_separates_class_and_auxiliary_encoder() -> None:
    """Its gradients are tested in `test_diva_decorrelation.py`."""
    objective = model_of().objective
    (layer,) = objective.decorrelations
    parts = PARTS.astype("float32")
    terms = objective(
        {"parts": parts}, {"label": LABELS, "surrogate": SURROGATES}
    )
    np.testing.assert_array_equal(
        terms["decorrelation_surrogate"], -layer(parts[:, 0], parts[:, 1])
    )


def test_gamma_weights_the_decorrelation() -> None:
    assert model_of(gamma=250.0).weighting.term_weights == {
        "metric": 1.0,
        "surrogate": 1.0,
        "decorrelation_surrogate": 250.0,
    }
    assert model_of(gamma=0).objective.terms == ("metric", "surrogate")


def test_only_the_class_encoder_embeds() -> None:
    model = model_of()
    x, _ = batch()
    outputs = model.outputs_of(x)
    np.testing.assert_array_equal(outputs["embedding"], outputs["parts"][:, 0])
    assert outputs["parts"].shape == (12, 2, 4)
    _, auxiliary = model.head.encoders
    auxiliary.kernel.assign(0 * auxiliary.kernel)
    np.testing.assert_array_equal(model(x), outputs["embedding"])


def test_class_encoder_trains_without_surrogate_labels(caplog) -> None:
    objective = model_of().objective
    outputs = {"parts": tf.constant(PARTS, "float32")}
    targets = {"label": LABELS, "surrogate": SURROGATES}
    labeled_terms = objective(outputs, targets)
    held_out = objective.evaluate(outputs, {"label": LABELS})
    assert "SurrogateLabels" not in caplog.text
    with caplog.at_level(logging.WARNING):
        unknown = objective(outputs, {"label": LABELS})
    assert "SurrogateLabels" in caplog.text
    for terms in (unknown, held_out):
        assert not np.any(terms["surrogate"])
        np.testing.assert_array_equal(terms["metric"], labeled_terms["metric"])


def test_losses_with_weights_per_class_fit_both_tasks() -> None:
    loss = losses.get(
        {
            "margin": {"learn_beta": True, "num_classes": 7},
            "proxy_nca": {"num_classes": 7},
            "contrastive": {},
        }
    )
    auxiliary = auxiliary_loss_of(loss, 3)
    assert [x.num_classes for x in auxiliary.losses.values()] == [3, 3, None]
    model = model_of(loss=loss, num_surrogates=3)
    # The surrogate classes are no bound of the classes.
    assert model.objective.label_limit == 7
    main, other = model.objective.tasks
    assert main.loss.losses["proxy_nca"].proxies.shape == (7, 4)
    assert other.loss.losses["proxy_nca"].proxies.shape == (3, 4)


def test_memories_keep_surrogate_labels() -> None:
    memory = {
        "name": "cross_batch_memory",
        "loss": "contrastive",
        "size": 6,
    }
    objective = model_of(loss=memory).objective
    outputs = {"parts": tf.constant(PARTS, "float32")}
    targets = {
        "label": tf.constant(LABELS),
        "surrogate": tf.constant(SURROGATES),
    }
    objective.after_step(outputs, targets)
    stored = [task.loss.queue.labels.numpy() for task in objective.tasks]
    np.testing.assert_array_equal(stored, [LABELS, SURROGATES])
    objective.after_step(outputs, {"label": tf.constant(LABELS)})
