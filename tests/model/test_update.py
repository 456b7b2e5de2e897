"""A step on learner k leaves the other learners bit-identical."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_dml import methods
from keras_dml.model.update import slots_of

LEARNERS = 2


def model_with(optimizer, backbone, mode: str = "graph", **kwargs):
    model = methods.divide_and_conquer(
        backbone, embedding_dim=10, num_learners=LEARNERS,
        loss={"name": "margin", "learn_beta": True, "mining": "all"}, **kwargs,
    )  # fmt: skip
    model.compile(
        optimizer, run_eagerly=mode == "eager", jit_compile=mode == "xla"
    )
    return model


def step(model, learner: int) -> None:
    rng = np.random.default_rng(learner + 5)
    x = rng.uniform(0, 255, (12, 16, 16, 1)).astype("f4")
    labels = np.repeat(np.arange(4), 3)
    learners = np.full(12, learner)
    model.train_on_batch(x, {"label": labels, "learner": learners})


def state_of(model, k: int) -> list[np.ndarray]:
    """Weights and optimizer slots of learner k: kernel, bias and β."""
    variables = model.head.learner_variables()[k]
    variables = variables + model.objective.learner_variables()[k]
    assert len(variables) == 3
    slots = [s for v in variables for s in slots_of(model.optimizer, v)]
    assert slots
    return [v.numpy() for v in [*variables, *slots]]


def same(a: list[np.ndarray], b: list[np.ndarray]) -> bool:
    return all(x.tobytes() == y.tobytes() for x, y in zip(a, b, strict=True))


OPTIMIZERS = {
    "adamw": lambda: keras.optimizers.AdamW(1e-2, weight_decay=0.1),
    "ema": lambda: keras.optimizers.Adam(1e-2, use_ema=True),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "mode"), [("adamw", "graph"), ("ema", "graph"), ("adamw", "xla")]
)
def test_idle_learners_stay_bit_identical(name, mode, tiny_backbone) -> None:
    model = model_with(OPTIMIZERS[name](), tiny_backbone, mode)
    for k in (-1, 0, 1):
        step(model, k)  # Momentum that would move an idle learner.
    for active in (0, 1, -1):  # The last one moves all learners.
        shared = tiny_backbone.get_weights()
        before = [state_of(model, k) for k in range(LEARNERS)]
        step(model, active)
        moved = [not same(before[k], state_of(model, k)) for k in (0, 1)]
        assert moved == [active in (k, -1) for k in (0, 1)]
        assert not same(shared, tiny_backbone.get_weights())


def test_optimizer_with_nameless_state_raises(tiny_backbone) -> None:
    model = model_with(keras.optimizers.Adafactor(), tiny_backbone)
    with pytest.raises(ValueError, match='Adafactor.*update="all"'):
        step(model, 0)


@pytest.mark.filterwarnings("ignore:Gradients do not exist")
def test_rate_multiplier_scales_the_update(tiny_backbone) -> None:
    weights = tiny_backbone.get_weights()
    moves = []
    for multiplier in (1.0, 0.25):
        keras.utils.set_random_seed(1)
        tiny_backbone.set_weights(weights)
        model = model_with(
            "adam", tiny_backbone, "eager",
            rate_multipliers={"backbone/.*kernel": multiplier},
        )  # fmt: skip
        kernel = tiny_backbone.get_layer("conv_0").kernel
        before = kernel.numpy()
        step(model, -1)
        moves.append(kernel.numpy() - before)
    assert np.abs(moves[0]).max() > 0
    np.testing.assert_allclose(moves[1], 0.25 * moves[0], atol=1e-7)


@pytest.mark.filterwarnings("ignore:Gradients do not exist")
@pytest.mark.parametrize(
    "mode", ["eager", pytest.param("xla", marks=pytest.mark.slow)]
)
def test_backbone_is_frozen_in_the_first_updates(mode, tiny_backbone) -> None:
    optimizer = keras.optimizers.AdamW(1e-2, weight_decay=0.1)
    model = model_with(optimizer, tiny_backbone, mode, freeze_steps=2)
    for update in range(4):
        variables = tiny_backbone.trainable_variables
        before = [v.numpy() for v in variables]
        head = model.head.get_weights()
        step(model, -1)
        after = [v.numpy() for v in variables]
        assert same(before, after) == (update < 2)
        assert not same(head, model.head.get_weights())
        # The first update of the backbone has moments to go by.
        assert all(np.any(slot) for slot in slots_of(optimizer, variables[0]))


@pytest.mark.parametrize(
    "optimizer",
    [
        keras.optimizers.RMSprop(0.05, clipnorm=0.01),
        pytest.param(
            keras.optimizers.Adagrad(0.05, clipvalue=0.001),
            marks=pytest.mark.slow,
        ),
    ],
    ids=lambda x: x.name,
)
def test_rows_read_often_are_updated_once(optimizer) -> None:
    """Token tables and β per class move as by their dense gradients."""

    def built():
        keras.utils.set_random_seed(1)
        tokens = keras.Input((4,), dtype="int32")
        x = keras.layers.Embedding(5, 3)(tokens)
        backbone = keras.Model(tokens, keras.layers.Flatten()(x))
        loss = {
            "name": "margin", "learn_beta": True, "num_classes": 6,
            "mining": "all",
        }  # fmt: skip
        return methods.baseline(backbone, embedding_dim=4, loss=loss)

    rng = np.random.default_rng(0)
    x, labels = rng.integers(0, 5, (12, 4)), np.repeat(np.arange(4), 3)
    model, dense = built(), built()
    start = [v.numpy() for v in model.trainable_variables]
    optimizer_copy = optimizer.from_config(optimizer.get_config())
    model.compile(optimizer_copy, run_eagerly=True)
    reference = optimizer.from_config(optimizer.get_config())
    for _ in range(3):
        model.train_on_batch(x, labels)
        with tf.GradientTape() as tape:
            outputs = dense.outputs_of(x, training=True)
            terms = dense.objective(outputs, {"label": labels})
            loss = tf.reduce_mean(terms["metric"])
        variables = dense.trainable_variables
        gradients = tape.gradient(loss, variables)
        # β reads its rows densely by itself, in any other trainer as well.
        assert sum(isinstance(x, tf.IndexedSlices) for x in gradients) == 1
        reference.apply(list(map(tf.convert_to_tensor, gradients)), variables)
    for a, b, old in zip(
        model.trainable_variables, variables, start, strict=True
    ):
        assert np.abs(b - old).max() > 2e-4, b.path
        np.testing.assert_allclose(a, b, atol=5e-6, err_msg=b.path)
