"""DCML over DiVA's four tasks, a composite for each."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_dml.methods import DivaObjective, diva_tasks
from keras_dml.methods._diva.tasks import TASKS
from tests.methods.test_dcml import model_of
from tests.methods.test_dcml_tasks import (
    composites_of,
    saved_and_loaded,
    two_views,
    values_of,
)

LOSS = {"name": "triplet", "mining": "all"}


@pytest.fixture
def model(tiny_backbone):
    tasks = diva_tasks(loss=LOSS, queue_size=24, shared="negative_only")
    return model_of(
        tiny_backbone,
        loss=LOSS,
        tasks=DivaObjective(tasks, psi_units=8),
        ema_momentum=0.9,
        loss_weights={f"task_{name}": 0.3 for name in TASKS[1:]}
        | {"task_decorrelation_intra": 100.0},
    )


def test_each_task_sees_its_composite(model) -> None:
    views, targets = two_views()
    parts = composites_of(model, views["image"])
    keys = composites_of(model, views["image2"])
    model.objective.tasks.tasks[1].queue.enqueue(keys[:, 1])
    alone = model.objective.tasks(
        {"parts": parts, "momentum_parts": keys}, targets
    )
    values = values_of(model, views, targets)
    assert set(values) == {
        "metric", "reinforcement", *(f"task_{name}" for name in alone),
    }  # fmt: skip
    # Those of the others are drawn at random.
    for name in ("discriminative", "dance", "decorrelation_intra"):
        np.testing.assert_allclose(
            values[f"task_{name}"], alone[name], rtol=1e-3, atol=1e-4
        )


@pytest.mark.slow
def test_trains_and_queues_composites(model, tmp_path) -> None:
    model.compile(keras.optimizers.Adam(1e-3), run_eagerly=True)
    views, targets = two_views()
    for _ in range(3):
        keys = model.momentum_encoder(views["image2"])
        logs = model.train_on_batch(views, targets, return_dict=True)
    assert all(np.isfinite(value) for value in logs.values())
    queue = model.objective.tasks.tasks[1].queue
    assert np.all(queue.filled)
    # The third batch took the place of the first.
    z, _ = model.objective.compositor(keys["momentum_sub_embeddings"])
    newest = tf.math.l2_normalize(z[:, 1], -1)
    np.testing.assert_allclose(queue.embeddings[:12], newest, atol=1e-4)
    again = saved_and_loaded(model, tmp_path)
    x = views["image"]
    np.testing.assert_array_equal(again(x), model(x))
    for a, b in zip(again.weights, model.weights, strict=True):
        np.testing.assert_array_equal(a, b)
