"""DiVA's tasks as parts of other methods."""

import logging

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_dml import losses
from keras_dml.methods._diva_tasks import (
    TASKS,
    DaNCETask,
    LossTask,
    Task,
    diva_tasks,
    warn_without_triplets,
)
from tests.losses.oracle import batch, unit

LABELS = np.repeat(np.arange(3), 3)
X = unit(batch(LABELS.tolist(), dim=4)).astype("float32")


def test_tasks_train_embeddings_without_a_model() -> None:
    """Each task works without head, backbone and objective."""
    for task in diva_tasks(loss="triplet", queue_size=9):
        task.build((None, 4))
        task.after_step(X[::-1])
        x = tf.constant(X)
        with tf.GradientTape() as tape:
            tape.watch(x)
            values = task(x, LABELS, X if task.needs_keys else None)
        assert values.shape == (9,)
        assert np.any(tape.gradient(values, x)), task.name


def test_every_task_has_its_own_loss_and_weights() -> None:
    loss = losses.MarginLoss(learn_beta=True)
    tasks = diva_tasks(["discriminative", "shared", "intra"], loss)
    for task in tasks:
        task.build((None, 4))
    assert len({id(task.loss) for task in tasks}) == 3
    assert [len(task.trainable_variables) for task in tasks] == [1, 1, 1]
    assert loss.beta_weight is None  # The given one is left alone.


@pytest.mark.parametrize(
    "task",
    [
        LossTask(losses.TripletLoss(margin=0.4), True, name="one"),
        DaNCETask(9, temperature=0.3, weighting="paper", limit=3.0),
        DaNCETask(weighting=None),
    ],
)
def test_config_of_tasks_round_trips(task) -> None:
    again = keras.saving.deserialize_keras_object(
        keras.saving.serialize_keras_object(task)
    )
    assert again.get_config() == task.get_config()
    for layer in (again, task):
        layer.build((None, 4))
        layer.after_step(X[:5])
    np.testing.assert_array_equal(again(X, LABELS, X), task(X, LABELS, X))


def test_tasks_must_define_call() -> None:
    with pytest.raises(NotImplementedError):
        Task().call(X, LABELS)


@pytest.mark.parametrize(
    ("labels", "images", "warned"),
    [
        ([0, 0, 0, 7], 3, False),
        ([0, 0, 0, 7], 2, True),
        ([0, 0, 7, 7], 4, True),
    ],
)
def test_data_without_three_images_of_a_class_warn_once(
    labels, images, warned, caplog
) -> None:
    with caplog.at_level(logging.WARNING):
        warn_without_triplets({"tasks": TASKS}, np.array(labels), images)
    assert len(caplog.records) == warned
    if warned:
        assert "at most 2" in caplog.text
