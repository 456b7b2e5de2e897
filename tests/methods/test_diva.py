"""DiVA: head, objective and options against NumPy."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_dml import losses, methods
from keras_dml.methods._diva.tasks import TASKS
from tests.losses.oracle import unit
from tests.methods.test_contract import batch

PAIRS = ["decorrelation_dance", "decorrelation_shared", "decorrelation_intra"]


def model_of(backbone, **kwargs):
    arguments = {
        "embedding_dim": 16, "loss": "contrastive", "queue_size": 30,
        "psi_units": 8, "auxiliary_loss": "triplet",
    }  # fmt: skip
    return methods.diva(backbone, **{**arguments, **kwargs})


def views():
    x, targets = batch()
    return {"image": x, "image2": x[:, :, ::-1]}, targets


def test_the_whole_is_eq_7(tiny_backbone) -> None:
    model = model_of(tiny_backbone, alpha=0.4, rho=7.0)
    x, targets = views()
    outputs = model.outputs_of(x, training=True)
    terms = model.objective(outputs, targets)
    assert tuple(terms) == (*TASKS, *PAIRS)
    values = {name: value.numpy() for name, value in terms.items()}
    expected = (
        values["discriminative"]
        + 0.4 * sum(values[name] for name in TASKS[1:])
        + 7.0 * sum(values[name] for name in PAIRS)
    )
    assert all(np.all(values[name] < 0) for name in PAIRS)  # −c
    # Terms of either sign nearly cancel out.
    np.testing.assert_allclose(
        model.weighting(terms, tf.constant(0)), expected, rtol=1e-5, atol=2.5e-7
    )


def test_each_task_trains_its_own_embedding(tiny_backbone) -> None:
    model = model_of(tiny_backbone)
    x, targets = views()
    model.objective.after_step(model.outputs_of(x), targets)  # Fills it.
    with tf.GradientTape(persistent=True) as tape:
        terms = model.objective(model.outputs_of(x), targets)
        sums = {name: tf.reduce_sum(terms[name]) for name in TASKS}
    kernels = [head.kernel.value for head in model.head.heads]
    for i, name in enumerate(TASKS):
        gradients = tape.gradient(
            sums[name], kernels, unconnected_gradients="zero"
        )
        moved = [bool(np.any(gradient)) for gradient in gradients]
        assert moved == [k == i for k in range(4)], name


def test_discriminative_and_dance_are_their_losses(tiny_backbone) -> None:
    model = model_of(
        tiny_backbone, weighting="paper", limit=2.0, temperature=0.5
    )
    x, targets = views()
    keys = unit(np.random.default_rng(0).normal(size=(20, 4)))
    model.objective.tasks[1].queue.enqueue(keys)
    outputs = model.outputs_of(x)
    terms = model.objective(outputs, targets)
    parts = outputs["parts"].numpy()
    np.testing.assert_allclose(
        terms["discriminative"],
        losses.ContrastiveLoss().per_example(targets["label"], parts[:, 0]),
        rtol=1e-5,
    )
    # Eq. 6: no positive in the denominator, 20 of 30 places filled.
    queries = parts[:, 1].astype("float64")
    positives = outputs["momentum_parts"].numpy()[:, 1]
    distance = np.linalg.norm(queries[:, None] - keys, axis=2)
    density = distance**2 * np.sqrt(1 - distance**2 / 4)
    logits = np.minimum(2.0, 1 / density) * (queries @ keys.T) / 0.5
    own = (queries * positives).sum(1) / 0.5
    expected = -np.log(np.exp(own) / np.exp(logits).sum(1))
    np.testing.assert_allclose(terms["dance"], expected, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(
    "mode", ["eager", pytest.param("xla", marks=pytest.mark.slow)]
)
def test_keys_of_second_views_enter_the_queue_after_the_step(
    mode, tiny_backbone
) -> None:
    model = model_of(tiny_backbone, tasks=TASKS[:2])
    is_eager = mode == "eager"
    sgd = keras.optimizers.SGD(0.1)
    model.compile(sgd, run_eagerly=is_eager, jit_compile=not is_eager)
    queue = model.objective.tasks[1].queue
    x, targets = views()
    expected = []
    for step in range(3):
        keys = model.momentum_encoder(x["image2"])["momentum_parts"][:, 1]
        expected = [*expected, *keys.numpy()][-30:]
        logs = model.train_on_batch(x, targets, return_dict=True)
        assert (logs["dance"] == 0) == (step == 0)  # Nothing to compare with.
        assert int(queue.count) == len(expected)
    held = np.roll(queue.embeddings, -int(queue.pointer), axis=0)
    np.testing.assert_allclose(held, expected, atol=1e-5)
