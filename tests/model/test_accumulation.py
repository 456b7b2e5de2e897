"""A batch embedded in parts trains like the whole batch."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_dml import losses, methods
from keras_dml.data.feature_set import FEATURES
from keras_dml.model import tensorflow_step
from keras_dml.model.accumulation import (
    PartsOfBatch,
    WholeBatch,
    embedding_of,
)
from tests.methods.test_contract import build, training_batch
from tests.model.graphs import shapes_in_step

ROWS, PARTS = 11, 4  # Parts of three, of which the last repeats a row.
CLASSES = 6
LOSSES = {
    "random": {"name": "margin", "seed": 1},
    "memory": {"name": "cross_batch_memory", "loss": "contrastive", "size": 20},
    "prefixes": {
        "name": "matryoshka", "loss": "multi_similarity", "dims": [2, 4],
    },
    "several": {
        "contrastive": 1.0,
        "proxy_anchor": {"num_classes": CLASSES, "weight": 0.5},
    },
}  # fmt: skip


def vectors(rows: int = ROWS):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((rows, 5)).astype("float32")
    return x, np.arange(rows) % 3


def model_with(loss, accumulate, dropout=0.0, mode="eager", regularizer=None):
    keras.utils.set_random_seed(3)
    inputs = keras.Input((5,))
    x = keras.layers.Dense(6, "tanh", kernel_regularizer=regularizer)(inputs)
    x = keras.layers.Dropout(dropout)(x)
    model = methods.baseline(
        keras.Model(inputs, x),
        embedding_dim=4,
        loss=losses.get(loss),
        accumulate=accumulate,
    )
    model.compile(
        keras.optimizers.SGD(0.1),
        run_eagerly=mode == "eager",
        jit_compile=mode == "xla",
    )
    return model


def assert_same(whole, parts, x, y, atol=1e-5, steps=1) -> None:
    """Asserts that both models train, and alike."""
    first = whole.get_weights()
    for _ in range(steps):
        expected = whole.train_on_batch(x, y)
        loss = parts.train_on_batch(x, y)
        np.testing.assert_allclose(loss, expected, rtol=1e-5, atol=2.5e-7)
    moved = 0.0
    for a, b, before in zip(
        whole.get_weights(), parts.get_weights(), first, strict=True
    ):
        np.testing.assert_allclose(a, b, atol=atol)
        moved = max(moved, np.abs(a - before).max())
    assert moved > 30 * atol


@pytest.mark.parametrize(
    "name",
    [
        "random",
        "memory",
        "several",
        pytest.param("prefixes", marks=pytest.mark.slow),
    ],
)
def test_every_loss_equals_that_of_the_whole_batch(name) -> None:
    """Losses with a state or with random numbers, one of each kind."""
    models = [model_with(LOSSES[name], parts) for parts in (1, PARTS)]
    has_state = name in ("random", "memory")
    assert_same(*models, *vectors(), steps=2 if has_state else 1)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("diva", {"tasks": ("discriminative", "dance"), "test_weights": None}),
        ("distillation", {}),
        ("divide_and_conquer", {"num_learners": 2}),
        ("s2sd", {}),
    ],
)
def test_every_method_equals_that_of_the_whole_batch(name, arguments) -> None:
    """Methods with two views, a teacher, learners in turn, or features."""
    models = []
    for parts in (1, 2):
        keras.utils.set_random_seed(3)
        model = build(name, accumulate=parts, **arguments)
        for layer in model._flatten_layers():
            if isinstance(layer, keras.layers.BatchNormalization):
                layer.trainable = False  # It would see parts.
        model.compile(keras.optimizers.SGD(0.01), run_eagerly=True)
        models.append(model)
    assert_same(*models, *training_batch(models[0]))


@pytest.mark.parametrize("rows", [2, 12])
def test_batches_of_any_size_are_accumulated(rows) -> None:
    x, labels = vectors(rows)
    labels = labels // 2
    assert_same(*(model_with("contrastive", p) for p in (1, 5)), x, labels)


@pytest.mark.parametrize(
    "mode", ["graph", pytest.param("xla", marks=pytest.mark.slow)]
)
def test_last_batch_may_be_smaller_than_the_parts(mode) -> None:
    x, labels = vectors(14)  # The last batch has three rows.
    data = tf.data.Dataset.from_tensor_slices((x, labels)).batch(ROWS)
    whole = model_with("contrastive", 1)
    parts = model_with("contrastive", 4, mode=mode)
    expected, values = (
        model.fit(data, verbose=0).history["loss"] for model in (whole, parts)
    )
    assert values == pytest.approx(expected, rel=1e-5)
    for a, b in zip(parts.get_weights(), whole.get_weights(), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)


class Draws(WholeBatch):
    """Parts that are embedded as `PartsOfBatch` does, all on one tape."""

    def outputs(self, tape):
        starts = (0, 3, 6, 8)
        parts = [self._embed(self._x[i : i + 3]) for i in starts]
        return {
            key: tf.concat(
                [part[key] for part in parts[:-1]] + [parts[-1][key][1:]], 0
            )
            for key in parts[0]
        }


def test_both_passes_draw_the_same_dropout(monkeypatch) -> None:
    parts = model_with("contrastive", PARTS, dropout=0.5)
    whole = model_with("contrastive", PARTS, dropout=0.5)

    def on_one_tape(model, x):
        if model is parts:
            return embedding_of(model, x)
        return Draws(lambda x: whole.outputs_of(x, training=True), x)

    monkeypatch.setattr(tensorflow_step, "embedding_of", on_one_tape)
    assert_same(whole, parts, *vectors())


def test_mixed_precision_scales_the_loss() -> None:
    keras.config.set_dtype_policy("mixed_float16")
    try:
        models = [model_with("multi_similarity", p) for p in (1, PARTS)]
        assert hasattr(models[0].optimizer, "inner_optimizer")
        # Sums over rows are rounded to half precision by part.
        assert_same(*models, *vectors(), atol=5e-4, steps=2)
    finally:
        keras.config.set_dtype_policy("float32")


def test_several_inputs_and_sampled_classes_are_accumulated() -> None:
    def made(accumulate):
        keras.utils.set_random_seed(3)
        inputs = {k: keras.Input((5,), name=k) for k in ("a", "b")}
        x = keras.layers.Dense(6, "tanh")(
            keras.layers.Add()([inputs["a"], inputs["b"]])
        )
        model = methods.baseline(
            keras.Model(inputs, x),
            embedding_dim=4,
            loss=losses.ArcFaceLoss(30, class_share=0.5, seed=1),
            accumulate=accumulate,
        )
        model.compile(keras.optimizers.Adam(0.01), run_eagerly=True)
        return model

    x, labels = vectors()
    assert_same(made(1), made(PARTS), {"a": x, "b": x[::-1]}, labels)


@pytest.mark.filterwarnings("ignore:Gradients do not exist")
def test_skipped_backbone_does_not_decay() -> None:
    models = [model_with("contrastive", parts) for parts in (1, PARTS)]
    for model in models:
        adam = keras.optimizers.AdamW(0.1, weight_decay=0.1)
        model.compile(adam, run_eagerly=True)
    _, labels = vectors()
    features = np.random.default_rng(1).normal(size=(ROWS, 6))
    x = {FEATURES: features.astype("float32")}
    before = models[1].backbone.get_weights()
    assert_same(*models, x, labels)
    for a, b in zip(before, models[1].backbone.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


def test_state_of_the_backbone_changes_once() -> None:
    model = model_with("contrastive", 2, dropout=0.5)
    states = model.backbone.non_trainable_variables
    assert states
    x, labels = vectors()
    expected = model_with("contrastive", 1, dropout=0.5)
    for part in (x[:6], x[5:]):
        expected.outputs_of(part, training=True)
    model.train_on_batch(x, labels)
    for a, b in zip(
        states, expected.backbone.non_trainable_variables, strict=True
    ):
        np.testing.assert_array_equal(a.numpy(), b.numpy())


@pytest.mark.slow
def test_features_of_one_part_are_held_at_a_time() -> None:
    """No tensor of a step has features of more rows than a part."""
    model = model_with("contrastive", PARTS, mode="graph")
    shapes = shapes_in_step(model, *vectors(12))
    assert (12, 4) in shapes  # embeddings
    assert (12, 6) not in shapes  # features


def test_activity_regularizers_raise() -> None:
    inputs = keras.Input((5,))
    x = keras.layers.Dense(6, activity_regularizer="l2")(inputs)
    model = methods.baseline(
        keras.Model(inputs, x), loss="contrastive", accumulate=2
    )
    model.compile("sgd")
    with pytest.raises(ValueError, match="`accumulate` of MetricModel must be"):
        model.train_on_batch(*vectors())


def test_weights_are_regularized_once() -> None:
    models = [
        model_with("contrastive", parts, regularizer="l2")
        for parts in (1, PARTS)
    ]
    assert_same(*models, *vectors())


def test_parts_cover_a_batch_of_unknown_size() -> None:
    @tf.function(input_signature=[tf.TensorSpec((None, 2))], autograph=False)
    def embedded(x):
        parts = PartsOfBatch(lambda x: {"y": 2.0 * x}, x, 3, [], [])
        with tf.GradientTape() as tape:
            return parts.outputs(tape)["y"]

    for rows in (1, 2, 3, 4, 7, 9):
        x = np.random.default_rng(rows).normal(size=(rows, 2)).astype("f4")
        np.testing.assert_array_equal(embedded(x), 2 * x)
