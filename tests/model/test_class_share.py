"""Training with a share of the classes: sparse updates of proxies."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_dml import losses, methods
from keras_dml.losses.sampled_classes import SampledClasses
from keras_dml.model.update import slots_of
from tests.losses.test_sampled_classes import loss_on_proxies
from tests.model.graphs import shapes_in_step

CLASSES, DIM, BATCH = 12, 4, 6
ALL = 0.999  # All classes, but drawn.
ADAM = keras.optimizers.Adam


def batch(step: int):
    rng = np.random.default_rng(step)
    x = rng.standard_normal((BATCH, 5)).astype("float32")
    return x, rng.integers(0, CLASSES, BATCH)


def model_with(loss, optimizer, method=methods.baseline, mode="eager", **kw):
    keras.utils.set_random_seed(3)
    inputs = keras.Input((5,))
    backbone = keras.Model(inputs, keras.layers.Dense(6, "tanh")(inputs))
    loss = losses.get(loss)
    model = method(backbone, embedding_dim=DIM, loss=loss, **kw)
    for number, v in enumerate(model.trainable_variables):
        rng = np.random.default_rng(number)
        v.assign(0.5 * rng.standard_normal(v.shape))
    model.compile(
        optimizer, run_eagerly=mode == "eager", jit_compile=mode == "xla"
    )
    return model


def arc_face(share: float = 1.0, **kwargs):
    return loss_on_proxies("arc_face", CLASSES, class_share=share, **kwargs)


def trained(model, steps=2, **targets):
    """Losses of a few steps."""
    values = []
    for step in range(steps):
        x, labels = batch(step)
        y = {"label": labels, **targets}
        values.append(float(np.ravel(model.train_on_batch(x, y))[0]))
    return values


def state(model) -> list[np.ndarray]:
    """Weights and their optimizer slots."""
    slots = [
        slot
        for v in model.trainable_variables
        for slot in slots_of(model.optimizer, v)
    ]
    return [v.numpy() for v in [*model.weights, *slots]]


def assert_same(one, other, rtol=1e-6) -> None:
    assert trained(one) == pytest.approx(trained(other), rel=rtol)
    a, b = state(one), state(other)
    assert len(a) == len(b) > 10
    for x, y in zip(a, b, strict=True):
        np.testing.assert_allclose(x, y, rtol=rtol, atol=5e-7)


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        ("arc_face", "eager"),
        ("soft_triple", "eager"),
        pytest.param("proxy_anchor", "eager", marks=pytest.mark.slow),
        pytest.param("arc_face", "xla", marks=pytest.mark.slow),
    ],
)
def test_share_of_all_classes_equals_the_full_loss(name, mode) -> None:
    full, drawn = (
        model_with(
            loss_on_proxies(name, CLASSES, class_share=share),
            ADAM(0.05, clipnorm=1.0)
            if mode == "eager"
            else keras.optimizers.SGD(0.1, momentum=0.9),
            rate_multipliers={"/loss/": 5.0} if mode == "eager" else None,
            mode="eager" if share == 1.0 else mode,
        )
        for share in (1.0, ALL)
    )
    assert_same(full, drawn, rtol=1e-6 if mode == "eager" else 1e-5)


class Twin:
    """AdamW on the drawn rows, written out in NumPy."""

    RATE, DECAY = 0.05, 0.1

    def __init__(self, model, seed: int) -> None:
        self.model = model
        self.draws = SampledClasses("", CLASSES, 0.5, seed)
        self.table = model.objective.loss.proxies.numpy()
        self.first = np.zeros_like(self.table)
        self.second = np.zeros_like(self.table)

    def step(self, number: int) -> None:
        """Takes the step before the model does."""
        x, labels = batch(number)
        ids = np.asarray(self.draws.draw(labels))
        alone = losses.ArcFaceLoss(len(ids))
        alone.build(keras.layers.Layer(name="owner"), DIM)
        alone.proxies.assign(self.table[ids])
        positions = np.array([list(ids).index(label) for label in labels])
        with tf.GradientTape() as tape:
            value = tf.reduce_mean(alone.per_example(positions, self.model(x)))
        gradient = tape.gradient(value, alone.proxies.value).numpy()
        self.first[ids] += 0.1 * (gradient - self.first[ids])
        self.second[ids] += 1e-3 * (gradient**2 - self.second[ids])
        self.table[ids] *= 1 - self.RATE * self.DECAY
        power = number + 1
        rate = self.RATE * (1 - 0.999**power) ** 0.5 / (1 - 0.9**power)
        self.table[ids] -= (
            rate * self.first[ids] / (self.second[ids] ** 0.5 + 1e-7)
        )


def test_only_drawn_rows_are_updated() -> None:
    optimizer = keras.optimizers.AdamW(Twin.RATE, weight_decay=Twin.DECAY)
    model = model_with(
        arc_face(0.5, seed=4), optimizer, decay_loss_variables=True
    )
    table = model.objective.loss.proxies
    twin = Twin(model, seed=4)
    for number in range(3):
        twin.step(number)
        model.train_on_batch(*batch(number))
    arrays = [v.numpy() for v in (table, *slots_of(optimizer, table))]
    expected = (twin.table, twin.first, twin.second)
    for x, y in zip(arrays, expected, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("decays", [False, True])
def test_proxies_decay_only_if_asked(decays) -> None:
    optimizer = keras.optimizers.SGD(1.0, weight_decay=0.1)
    model = model_with(
        arc_face(ALL),
        optimizer,
        decay_loss_variables=decays,
        loss_weights={"metric": 0.0},  # Nothing else moves them.
    )
    proxies = model.objective.loss.proxies
    before = proxies.numpy()
    trained(model, 1)
    kept = 0.9 if decays else 1.0
    np.testing.assert_allclose(proxies.numpy(), kept * before, rtol=1e-6)


@pytest.mark.slow
def test_step_holds_no_table_of_all_classes() -> None:
    multipliers = {"/loss/": 2.0}
    model = model_with(
        arc_face(0.5), ADAM(), mode="graph", rate_multipliers=multipliers
    )
    shapes = shapes_in_step(model, *batch(0))
    assert {shape for shape in shapes if CLASSES in shape} == {(CLASSES,)}


@pytest.mark.slow
def test_loaded_model_continues_bit_for_bit(tmp_path) -> None:
    model, through = (
        model_with(arc_face(0.5, seed=1), ADAM(0.05)) for _ in range(2)
    )
    trained(model, 2)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.objective.loss.class_share == 0.5
    loaded.run_eagerly = True
    trained(through, 2)
    assert trained(loaded) == trained(through)
    for x, y in zip(state(loaded), state(through), strict=True):
        assert x.tobytes() == y.tobytes()


@pytest.mark.slow
def test_mixed_precision_and_several_losses_equal_the_full_loss() -> None:
    keras.config.set_dtype_policy("mixed_float16")
    try:
        models = [
            model_with(
                {
                    "arcs": {"loss": arc_face(share), "weight": 0.5},
                    "anchors": loss_on_proxies(
                        "proxy_anchor", CLASSES, class_share=share
                    ),
                    "contrastive": 1.0,
                },
                ADAM(0.05),
            )
            for share in (1.0, ALL)
        ]
        assert hasattr(models[0].optimizer, "inner_optimizer")
        assert len(models[1].sampled_rows) == 2
        assert_same(*models, rtol=1e-5)
    finally:
        keras.config.set_dtype_policy("float32")


def test_overflowing_update_changes_nothing() -> None:
    keras.config.set_dtype_policy("mixed_float16")
    try:
        model = model_with(arc_face(0.5), ADAM(0.05))
        model.optimizer.build(model._updated_variables())
        model.optimizer.dynamic_scale.assign(float("inf"))
        before = state(model)
        trained(model, 1)
        for x, y in zip(before, state(model), strict=True):
            assert x.tobytes() == y.tobytes()
    finally:
        keras.config.set_dtype_policy("float32")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Gradients do not exist")
def test_idle_learners_keep_their_proxies() -> None:
    full, drawn = (
        model_with(
            arc_face(share),
            ADAM(0.05),
            methods.divide_and_conquer,
            num_learners=2,
        )
        for share in (1.0, ALL)
    )
    for model in (full, drawn):
        for learner in (-1, 0, 1, 1):
            trained(model, 1, learner=np.full(BATCH, learner))
    for x, y in zip(state(full), state(drawn), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-6, atol=1e-7)


@pytest.mark.slow
def test_loss_in_a_branch_raises() -> None:
    model = model_with(
        arc_face(0.5),
        ADAM(),
        methods.divide_and_conquer,
        mode="graph",
        num_learners=2,
    )
    with pytest.raises(ValueError, match="computed once per step, and not in"):
        trained(model, 1, learner=np.zeros(BATCH, int))


@pytest.mark.parametrize(
    ("optimizer", "message"),
    [
        (keras.optimizers.Adafactor(), "keep its state per variable"),
        (ADAM(use_ema=True), "`use_ema` of Adam must be off"),
        (ADAM(gradient_accumulation_steps=2), "`gradient_accumulation_steps`"),
    ],
)
def test_optimizers_that_update_all_rows_raise(optimizer, message):
    with pytest.raises(ValueError, match=message):
        trained(model_with(arc_face(0.5), optimizer), 1)


@pytest.mark.slow
def test_held_out_batches_draw_without_a_trace() -> None:
    model, other = (
        model_with(arc_face(0.5, seed=1), ADAM(0.05)) for _ in range(2)
    )
    x, labels = batch(9)
    values = [model.test_on_batch(x, labels) for _ in range(2)]
    assert values[0] == values[1]
    assert trained(model, 2)[1:] == trained(other, 2)[1:]
