"""The baseline: the input of its loss, and reproducible trainings."""

import keras
import numpy as np
import pytest

from keras_dml import backbones, losses, methods
from keras_dml.data import ClassBalanced, pipeline
from keras_dml.losses import HyperbolicContrastiveLoss
from tests.conftest import blobs


def batch() -> tuple[np.ndarray, np.ndarray]:
    images = blobs(4, 3)
    return images.images[..., None].astype("float32"), images.labels


def model_with(loss, **kwargs):
    backbone = backbones.small_convnet((16, 16, 1), filters=(4, 8))
    return methods.baseline(backbone, embedding_dim=6, loss=loss, **kwargs)


def test_loss_may_receive_the_activation() -> None:
    loss = HyperbolicContrastiveLoss(clip=None)
    model = model_with(loss, loss_input="activation")
    x, labels = batch()
    outputs = model.outputs_of(x)
    lengths = np.linalg.norm(outputs["activation"], axis=1)
    assert np.abs(lengths - 1).min() > 1e-3
    np.testing.assert_allclose(
        outputs["embedding"],
        outputs["activation"] / lengths[:, None],
        rtol=1e-5,
        atol=1e-6,
    )
    terms = model.objective(outputs, {"label": labels})
    expected = HyperbolicContrastiveLoss(clip=None).per_example(
        labels, outputs["activation"]
    )
    np.testing.assert_allclose(terms["metric"], expected, rtol=1e-6)
    assert model(x).shape == (12, 6)


def test_memories_store_the_input_of_the_loss() -> None:
    memory = losses.CrossBatchMemory("n_pair", size=12)
    model = model_with(memory, loss_input="activation")
    x, labels = batch()
    model.compile("sgd", run_eagerly=True)
    model.optimizer.learning_rate = 0.0
    expected = model.outputs_of(x, training=True)["activation"]
    model.train_on_batch(x, labels)
    stored = model.objective.loss.queue.embeddings
    np.testing.assert_allclose(stored, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_one_seed_gives_the_same_weights() -> None:
    """The seed decides batches, augmentations, draws and initial weights."""

    def train() -> list[np.ndarray]:
        keras.utils.set_random_seed(3)
        images = blobs(4, 6)
        model = model_with("margin")
        sampler = ClassBalanced(images.labels, 3, 3, seed=3, steps_per_epoch=2)
        batches = pipeline(images, sampler, size=16, pad=2, flip=True, seed=3)
        model.compile(keras.optimizers.SGD(0.1), run_eagerly=True)
        model.fit(batches, verbose=0)
        return model.get_weights()

    for first, again in zip(train(), train(), strict=True):
        np.testing.assert_array_equal(first, again)
