"""The contract of methods, checked for each one."""

from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_dml import MetricModel, backbones, methods
from keras_dml.data import View
from keras_dml.export import export_model
from keras_dml.resuming.states import variables_of
from tests.conftest import blobs

SUMMED = {"name": "contrastive", "reduction": "sum_over_pairs"}

ARGUMENTS: dict[str, dict[str, Any]] = {
    name: {"embedding_dim": 10, "loss": SUMMED, **entry.details["examples"]}
    for name, entry in methods.METHODS.items()
}
"""The `examples` declared with every method."""
ARGUMENTS["baseline"]["view"] = View((16, 16), 1, 18, "squash")

XLA = [pytest.param(x, "xla", marks=pytest.mark.slow) for x in methods.METHODS]
# Tracing takes the longest: all methods are traced by XLA, and some without.
GRAPHS = ("baseline", "divide_and_conquer")


def of(*cases: Any) -> pytest.MarkDecorator:
    """Methods and modes of training, shared by the tests of a method."""
    return pytest.mark.parametrize(("name", "mode"), cases, scope="module")


every_method = of(
    *((x, "graph" if x in GRAPHS else "eager") for x in methods.METHODS)
)
# The others draw nothing but their weights, as one of these does.
DRAW = ("baseline", "diva", "dreml", "mic")
methods_that_draw = of(
    *(
        pytest.param(
            x,
            "graph" if x in GRAPHS else "eager",
            marks=() if x in DRAW else pytest.mark.slow,
        )
        for x in methods.METHODS
    )
)


def build(
    name: str, backbone: keras.Model | None = None, **changes: Any
) -> MetricModel:
    if backbone is None:
        backbone = backbones.small_convnet((16, 16, 1), filters=(4, 8))
    arguments = {**ARGUMENTS[name], **changes}
    model: MetricModel = methods.METHODS[name].value(backbone, **arguments)
    return model


def batch(learner: int = 0, classes: int = 4) -> tuple[Any, dict[str, Any]]:
    images = blobs(classes, 3)
    x = images.images[..., None].astype("float32")
    targets = {
        "label": images.labels,
        "index": np.arange(len(x)),
        "learner": np.full(len(x), learner),
        "surrogate": np.arange(len(x)) % 4,
    }
    return x, {k: np.asarray(v, "int64") for k, v in targets.items()}


def training_batch(model: MetricModel, learner: int = 0) -> tuple[Any, Any]:
    """A batch with a second view, or a teacher, for methods that need it."""
    x, targets = batch(learner)
    if model.momentum_encoder is not None:
        x = {"image": x, "image2": x[:, :, ::-1]}
    if isinstance(model.objective, methods.DistillationObjective):
        rng = np.random.default_rng(1)
        targets["teacher"] = rng.normal(size=(len(x), 6)).astype("float32")
    return x, targets


class Trained(NamedTuple):
    """A model after its training, its variables before, and its losses."""

    model: MetricModel
    start: list[np.ndarray]
    losses: list[float]
    traces: int


def compiled(name: str, mode: str) -> MetricModel:
    """By XLA also in half precision and without normalization."""
    keras.utils.set_random_seed(7)
    if mode == "xla":
        keras.config.set_dtype_policy("mixed_float16")
    try:
        model = build(name, homogeneous_backbone() if mode == "xla" else None)
        model.compile(
            keras.optimizers.SGD(0.01)
            if mode == "eager"
            else keras.optimizers.Adam(5e-3),
            run_eagerly=mode == "eager",
            jit_compile=mode == "xla",
        )
    finally:
        keras.config.set_dtype_policy("float32")
    model.optimizer.build(model.trainable_variables)
    return model


def loss_of_a_step(model: MetricModel, learner: int = -1) -> float:
    model.reset_metrics()
    logs = model.train_on_batch(
        *training_batch(model, learner), return_dict=True
    )
    return float(logs["loss"])


@pytest.fixture(scope="module")
def trained(name: str, mode: str) -> Trained:
    """Twenty steps on the whole, and one on each of three learners.

    Eagerly, none: XLA trains them all.
    """
    model = compiled(name, mode)
    traces = count_calls(model.objective)
    start = [v.numpy() for v in variables_of(model)]
    turns = [] if mode == "eager" else [-1] * 20 + [0, 1, 2]
    losses = [loss_of_a_step(model, learner) for learner in turns]
    return Trained(model, start, losses, len(traces))


@every_method
def test_embedding_is_unit_float32_with_the_declared_shape(
    name: str, trained
) -> None:
    """All outputs have the shapes that the head announces."""
    model = trained.model
    dim = ARGUMENTS[name]["embedding_dim"]
    x, _ = batch()
    outputs = model.outputs_of(x)
    shapes = model.head.compute_output_shape(model.backbone.output_shape)
    assert {k: tuple(v.shape[1:]) for k, v in outputs.items()} == {
        k: tuple(shape[1:]) for k, shape in shapes.items()
    }
    embedding = outputs["embedding"]
    assert embedding.dtype == "float32"
    assert embedding.shape == (12, dim)
    np.testing.assert_allclose(np.linalg.norm(embedding, axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(model(x), embedding, atol=1e-6)
    assert model.compute_output_shape((None, 16, 16, 1)) == (None, dim)


@every_method
def test_terms_are_finite_per_example(name: str, trained) -> None:
    """One class has no negatives; twelve classes have no positives."""
    model = trained.model
    x, targets = training_batch(model)
    outputs = model.outputs_of(x, training=True)
    for classes in (1, 4, 12):
        targets["label"] = np.arange(12) % classes
        terms = model.objective(outputs, targets)
        assert tuple(terms) == model.objective.terms
        for value in terms.values():
            assert value.shape == (12,)
            assert value.dtype == "float32"
            assert np.all(np.isfinite(value)), classes


@every_method
def test_every_variable_gets_a_gradient(name: str, trained) -> None:
    model = trained.model
    for learner in (-1, 0) if name == "divide_and_conquer" else (-1,):
        x, targets = training_batch(model, learner)
        with tf.GradientTape() as tape:
            terms = model.objective(model.outputs_of(x, training=True), targets)
            loss = tf.reduce_sum(model.weighting(terms, tf.constant(0)))
        gradients = tape.gradient(loss, model.trainable_variables)
        for v, g in zip(model.trainable_variables, gradients, strict=True):
            assert g is not None and np.all(np.isfinite(g)), v.path


@of(*((name, "graph") for name in GRAPHS), *XLA)
def test_twenty_steps_lower_the_loss_and_trace_once(name: str, trained) -> None:
    losses = trained.losses
    assert np.all(np.isfinite(losses))
    assert np.mean(losses[17:20]) < 0.8 * np.mean(losses[:3])
    assert trained.traces == 1


def homogeneous_backbone() -> keras.Model:
    """Features proportional to the image, so that a black one gives 0."""
    x = inputs = keras.Input((16, 16, 1))
    for number, filters in enumerate((4, 8)):
        x = keras.layers.Conv2D(
            filters, 3, 2, "same", use_bias=False, name=f"conv_{number}"
        )(x)
        x = keras.layers.ReLU(name=f"relu_{number}")(x)
    return keras.Model(inputs, x)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "precision"),
    [
        *((name, "mixed_float16") for name in methods.METHODS),
        # Those whose heads have convolutions, and one that has none.
        *((x, "mixed_bfloat16") for x in ("abe", "attentive_grouping", "bier")),
    ],
)
def test_zero_rows_leave_weights_bounded(name: str, precision: str) -> None:
    keras.config.set_dtype_policy(precision)
    model = build(name, homogeneous_backbone(), loss="contrastive")
    optimizer: Any = keras.optimizers.SGD(0.01, momentum=0.9)
    if precision == "mixed_float16":  # At its own first scale, steps overflow.
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer, 1)
    model.compile(optimizer, run_eagerly=True)
    x, y = training_batch(model, -1)
    for view in x.values() if isinstance(x, dict) else (x,):
        view /= 255
        # In three of the four classes.
        view[[0, 3, 6]] *= np.reshape([0, 1e-20, 1e-8], (3, 1, 1, 1))
    for _ in range(4):
        assert np.isfinite(model.train_on_batch(x, y)).all()
    assert optimizer.iterations == 4
    # Without a bound, all but one method reach 1e2 to 1e19.
    for variable in model.trainable_variables:
        assert np.abs(variable).max() < 10, variable.path


@pytest.mark.parametrize(
    ("name", "length"),
    [
        ("baseline", 0),
        ("baseline", 1e20),
        pytest.param("baseline", 1e-8, marks=pytest.mark.slow),
        pytest.param("bier", 1e-8, marks=pytest.mark.slow),
    ],
)
def test_single_extreme_row_costs_no_recall(name: str, length) -> None:
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(10), 20)
    centres = 1.5 * rng.normal(size=(10, 32))
    x = np.maximum(centres[labels] + rng.normal(size=(200, 32)), 0)
    x[4] *= length
    inputs = keras.Input((32,))
    dense = keras.layers.Dense(64, "relu", use_bias=False)
    model = methods.METHODS[name].value(
        keras.Model(inputs, dense(inputs)),
        embedding_dim=16, loss="contrastive", pooling="none",
    )  # fmt: skip
    model.compile(keras.optimizers.SGD(0.1, momentum=0.9), run_eagerly=True)
    for part in (slice(0, None, 2), slice(1, None, 2)) * 4:
        model.train_on_batch(x[part].astype("float32"), labels[part])
    embedding = np.delete(model(x.astype("float32")), 4, axis=0)
    other_labels = np.delete(labels, 4)
    cosines = embedding @ embedding.T - 3 * np.eye(199)
    assert np.mean(other_labels[cosines.argmax(axis=1)] == other_labels) > 0.95
    assert max(np.abs(v).max() for v in model.get_weights()) < 10


def count_calls(layer: keras.layers.Layer) -> list[int]:
    calls: list[int] = []
    call: Callable[..., Any] = layer.call

    def counted(*args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        return call(*args, **kwargs)

    layer.call = counted
    return calls


@methods_that_draw
def test_one_seed_gives_two_identical_runs(
    name: str, mode: str, trained
) -> None:
    """Variables, which `Resume` saves, determine the training."""
    again = compiled(name, mode)
    for a, b in zip(variables_of(again), trained.start, strict=True):
        np.testing.assert_array_equal(a, b, err_msg=a.path)
    variables = variables_of(trained.model)
    for variable, value in zip(variables, trained.start, strict=True):
        variable.assign(value)
    first = trained.losses[0] if trained.losses else loss_of_a_step(again)
    assert loss_of_a_step(trained.model) == first


once_saved = of(("baseline", "graph"), *XLA)


@once_saved
def test_trained_model_round_trips_through_a_file(
    name: str, mode: str, trained, tmp_path
) -> None:
    """The loaded model continues the training, here in eager steps."""
    model = trained.model
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    x, _ = batch()
    np.testing.assert_array_equal(again(x), model(x))
    assert again.head.get_config() == model.head.get_config()
    assert plain(again.objective) == plain(model.objective)
    plain_keys = ("loss_weights", "rate_multipliers", "ema_momentum")
    for key in (*plain_keys, "view"):
        assert again.get_config()[key] == model.get_config()[key]
    pairs = zip(variables_of(again), variables_of(model), strict=True)
    for a, b in pairs:
        if "seed_generator_state" in b.path:  # Keras does not save it.
            a.assign(b)
        np.testing.assert_array_equal(a, b, err_msg=b.path)
    again.run_eagerly = True
    tolerance = 1e-5 if mode == "graph" else 0.02
    assert loss_of_a_step(again) == pytest.approx(
        loss_of_a_step(model), rel=tolerance
    )


def plain(layer: keras.layers.Layer) -> dict[str, Any]:
    """A layer's arguments, without what Keras adds to nested objects."""
    config = layer.get_config()
    return {
        key: value["config"] if isinstance(value, dict) else value
        for key, value in config.items()
        if key != "dtype"
    }


@once_saved
def test_encoder_gives_the_same_bits(name: str, trained, tmp_path) -> None:
    """The encoder is a plain Keras model and round-trips through a file."""
    model, (x, _) = trained.model, batch()
    encoder = model.encoder
    assert type(encoder) is type(model.backbone)
    assert encoder.input_shape == model.input_shape
    np.testing.assert_array_equal(encoder(x), model(x))
    encoder.save(tmp_path / "encoder.keras")
    again = keras.models.load_model(tmp_path / "encoder.keras")
    np.testing.assert_array_equal(again(x), model(x))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["abe", "attentive_grouping"])
def test_export_gives_the_same_embeddings(name: str, tmp_path) -> None:
    """Exports hold the encoder, which here has more than dense layers."""
    model = build(name)
    folder = export_model(model, tmp_path / "model" / "1")
    served = tf.saved_model.load(str(folder)).signatures["serving_default"]
    images = np.random.default_rng(0).uniform(0, 255, (3, 18, 18, 1))
    images = images.astype("float32")
    # The test view of an 18-pixel image with resize=18: the centre.
    resized = View.of(model).apply(tf.constant(images))
    embedding = next(iter(served(tf.constant(images)).values()))
    np.testing.assert_allclose(
        embedding, model.predict(resized, verbose=0), atol=1e-5
    )
