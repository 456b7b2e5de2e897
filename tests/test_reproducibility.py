"""One seed, one result: from the plan of the batches to the last bit."""

import keras
import pytest

from keras_dml import methods
from keras_dml.backbones import small_convnet
from keras_dml.callbacks import Recluster
from keras_dml.data import ClassBalanced, ClusterSampler, pipeline
from tests.conftest import blobs

STEPS = 50


class Losses(keras.callbacks.Callback):
    """The loss of every single step."""

    def __init__(self) -> None:
        super().__init__()
        self.values: list[float] = []

    def on_train_batch_end(self, batch, logs=None) -> None:
        self.values.append(float(logs["loss"]))
        self.model.reset_metrics()


def losses_of(name: str, seed: int) -> list[float]:
    keras.utils.set_random_seed(seed)
    images = blobs(8, 6)
    backbone = small_convnet((16, 16, 1), filters=(4, 8))
    arguments = {"embedding_dim": 8, "loss": "margin"}
    callbacks: list[keras.callbacks.Callback] = [Losses()]
    if name == "baseline":
        model = methods.baseline(backbone, **arguments)
        sampler = ClassBalanced(
            images.labels, classes_per_batch=4, images_per_class=3, seed=seed,
            steps_per_epoch=STEPS // 2,
        )  # fmt: skip
    else:
        model = methods.divide_and_conquer(
            backbone, num_learners=2, **arguments
        )
        sampler = ClusterSampler(
            images.labels, classes_per_batch=4, images_per_class=3,
            num_learners=2, seed=seed, steps_per_epoch=STEPS // 2,
        )  # fmt: skip
        callbacks.append(Recluster(images, sampler, every=1, seed=seed))
    model.compile(keras.optimizers.Adam(1e-3))
    batches = pipeline(images, sampler, size=16, pad=2, flip=True, seed=seed)
    model.fit(batches, epochs=2, callbacks=callbacks, verbose=0)
    return callbacks[0].values


@pytest.mark.slow
@pytest.mark.parametrize("name", ["baseline", "divide_and_conquer"])
def test_fifty_steps_are_bit_identical(name: str) -> None:
    first = losses_of(name, seed=3)
    assert len(first) == STEPS
    assert losses_of(name, seed=3) == first
    if name == "baseline":
        assert losses_of(name, seed=4) != first
