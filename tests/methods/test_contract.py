"""What every method must do, checked for each one that there is."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_dml import MetricModel, backbones, methods
from keras_dml.data import View
from keras_dml.export import export_model
from keras_dml.model.head import Head
from tests.conftest import blobs

SUMMED = {"name": "contrastive", "reduction": "sum_over_pairs"}

# Non-default arguments for every method, and variables that are not meant
# to get a gradient.
ARGUMENTS: dict[str, dict[str, Any]] = {
    "abe": {
        "embedding_dim": 10,
        "num_learners": 2,
        "loss": SUMMED,
        "branch": "relu_0",
        "attention_end": "relu_1",
        "divergence_margin": 1.5,
        "pooling": "max",
        "loss_weights": {"divergence": 0.5},
        "rate_multipliers": {"backbone|/trunk_": 0.5},
    },
    "attentive_grouping": {
        "embedding_dim": 10,
        "num_groups": 2,
        "key_dim": 3,
        "loss": SUMMED,
        "scales": "paper_table",
        "diversity_reduction": "sum",
        "loss_weights": {"diversity": 0.5},
    },
    "baseline": {
        "embedding_dim": 10,
        "loss": SUMMED,
        "pooling": "avg_max",
        "layer_norm": True,
        "loss_input": "activation",
        "view": View((16, 16), 1, 18, "squash"),
        "loss_weights": {"metric": "learned"},
        "rate_multipliers": {"backbone": 0.5},
    },
    "bier": {
        "embedding_dim": 10,
        "group_sizes": [1, 1, 3],
        "loss": SUMMED,
        "slope": "similarity",
        "regressor_units": 5,
        "norm_penalty": 0.5,
        "pooling": "max",
        "loss_weights": {"independence": 0.5},
    },
    "dcml": {
        "embedding_dim": 10,
        "num_learners": 5,
        "num_compositors": 3,
        "loss": SUMMED,
        "input_norm": True,
        "compositor_initializer": "glorot_normal",
        "loss_weights": {"task_metric": 0.5},
    },
    "diva": {
        "embedding_dim": 12,
        "loss": SUMMED,
        "auxiliary_loss": {"name": "triplet", "margin": 0.3},
        "alpha": 0.2,
        "rho": 0.1,
        "shared": "negative_only",
        "queue_size": 20,
        "temperature": 0.2,
        "weighting": "paper",
        "limit": 2.0,
        "ema_momentum": 0.5,
        "copy_statistics": True,
        "momentum_scale": 0.5,
        "psi_units": 16,
        "reduction": "sum",
        "test_weights": [0.5, 1, 2, 1],
    },
    "divide_and_conquer": {
        "embedding_dim": 10,
        "num_learners": 3,
        "loss": SUMMED,
        "update": "all",
    },
    "distillation": {
        "embedding_dim": 10,
        "loss": SUMMED,
        "relation": ["similarity", "distance", "angle"],
        "temperature": 0.5,
        "pooling": "max",
        "loss_weights": {"distance": 2.0},
    },
    "s2sd": {
        "embedding_dim": 10,
        "target_dims": [12, 14],
        "loss": SUMMED,
        "gamma": 2.0,
        "temperature": 0.5,
        "warmup": 3,
        "pooling": "max",
        "loss_weights": {"features": 0.5},
    },
    "hdc": {
        "embedding_dim": 12,
        "branches": ["relu_0"],
        "hard_shares": [1.0, 0.4],
        "loss": SUMMED,
        "pooling": "max",
        "rate_multipliers": {"backbone|/stage_": 0.5},
    },
    "mic": {
        "embedding_dim": 10,
        "num_surrogates": 4,
        "loss": SUMMED,
        "auxiliary_loss": {"name": "triplet", "margin": 0.3},
        "gamma": 0.1,
        "psi_units": 16,
        "reduction": "sum",
        "loss_weights": {"surrogate": 0.5},
    },
    "dreml": {
        "embedding_dim": 10,
        "num_learners": 2,
        "num_classes": 12,
        "num_meta_classes": 3,
        "loss": SUMMED,
        "start": "random",
        "pooling": "max",
    },
    "ensemble": {
        "embedding_dim": 10,
        "num_learners": 2,
        "loss": SUMMED,
        "start": "same",
        "pooling": "gem",
        "rate_multipliers": {"backbone/learner_1_": 0.5},
    },
}
NO_GRADIENT: dict[str, set[str]] = {}

every_method = pytest.mark.parametrize("name", methods.METHODS)
# What takes long, of one method with the tests that are not slow.
slow_but_one = pytest.mark.parametrize(
    "name",
    [
        pytest.param(x, marks=() if x == "baseline" else pytest.mark.slow)
        for x in methods.METHODS
    ],
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


def test_every_method_is_checked() -> None:
    assert set(ARGUMENTS) == set(methods.METHODS)


@every_method
def test_documents_itself(name: str) -> None:
    text = methods.METHODS[name].value.__doc__ or ""
    for part in ("What it computes", "Args:", "Returns:"):
        assert part in text
    if name != "baseline":
        assert "Deviations:" in text
        assert "Reference:" in text


@every_method
def test_embedding_is_unit_float32_and_all_there_is(name: str) -> None:
    model = build(name)
    dim = ARGUMENTS[name]["embedding_dim"]
    x, _ = batch()
    embedding = model(x)
    assert embedding.dtype == "float32"
    assert embedding.shape == (12, dim)
    np.testing.assert_allclose(np.linalg.norm(embedding, axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(
        model.predict(x, verbose=0), embedding, atol=1e-5
    )
    assert model.compute_output_shape((None, 16, 16, 1)) == (None, dim)


@every_method
@pytest.mark.parametrize("classes", [1, 4, 12])
def test_terms_are_finite_per_example(name: str, classes: int) -> None:
    """One class has no negatives; twelve classes have no positives."""
    model = build(name)
    x, targets = training_batch(model)
    targets["label"] = np.arange(12) % classes
    outputs = model.outputs_of(x, training=True)
    terms = model.objective(outputs, targets)
    assert tuple(terms) == model.objective.terms
    for value in terms.values():
        assert value.shape == (12,)
        assert value.dtype == "float32"
        assert np.all(np.isfinite(value))


@every_method
def test_outputs_are_as_announced(name: str) -> None:
    model = build(name)
    outputs = model.outputs_of(batch()[0])
    shapes = model.head.compute_output_shape(model.backbone.output_shape)
    assert set(outputs) == set(shapes)
    for key, value in outputs.items():
        assert tuple(value.shape[1:]) == tuple(shapes[key][1:])


@every_method
@pytest.mark.parametrize("learner", [-1, 0])
def test_every_variable_gets_a_gradient(name: str, learner: int) -> None:
    model = build(name)
    x, targets = training_batch(model, learner)
    with tf.GradientTape() as tape:
        terms = model.objective(model.outputs_of(x, training=True), targets)
        loss = tf.reduce_sum(model.weighting(terms, tf.constant(0)))
    gradients = tape.gradient(loss, model.trainable_variables)
    without = {
        v.path
        for v, g in zip(model.trainable_variables, gradients, strict=True)
        if g is None
    }
    assert without == NO_GRADIENT.get(name, set())
    assert all(np.all(np.isfinite(g)) for g in gradients if g is not None)


@every_method
@pytest.mark.parametrize(
    ("precision", "jit"),
    [
        ("float32", False),
        pytest.param("mixed_float16", True, marks=pytest.mark.slow),
    ],
    ids=["float32-graph", "mixed_float16-xla"],
)
def test_twenty_steps_lower_the_loss_and_trace_once(
    name: str, precision: str, jit: bool
) -> None:
    keras.config.set_dtype_policy(precision)
    model = build(name, loss_weights={})
    traces = count_calls(model.objective)
    model.compile(keras.optimizers.Adam(5e-3), jit_compile=jit)
    losses = [
        model.train_on_batch(*training_batch(model, -1), return_dict=True)[
            "loss"
        ]
        for _ in range(20)
    ]
    assert np.all(np.isfinite(losses))
    assert np.mean(losses[-3:]) < 0.8 * np.mean(losses[:3])
    for learner in (0, 1, 2):
        model.train_on_batch(*training_batch(model, learner))
    assert len(traces) == 1


def homogeneous_backbone() -> keras.Model:
    """Features in proportion to the image: those of a black one are 0."""
    x = inputs = keras.Input((16, 16, 1))
    for number, filters in enumerate((4, 8)):
        x = keras.layers.Conv2D(
            filters, 3, 2, "same", use_bias=False, name=f"conv_{number}"
        )(x)
        x = keras.layers.ReLU(name=f"relu_{number}")(x)
    return keras.Model(inputs, x)


@slow_but_one
@pytest.mark.parametrize(
    "precision",
    ["float32", pytest.param("mixed_bfloat16", marks=pytest.mark.slow)],
)
def test_rows_without_a_direction_leave_weights_ordinary(
    name: str, precision: str
) -> None:
    keras.config.set_dtype_policy(precision)
    model = build(name, homogeneous_backbone(), loss="contrastive")
    model.compile(keras.optimizers.SGD(0.01, momentum=0.9), run_eagerly=True)
    x, y = training_batch(model, -1)
    for view in x.values() if isinstance(x, dict) else (x,):
        view /= 255
        # In three of the four classes.
        view[[0, 3, 6]] *= np.reshape([0, 1e-20, 1e-8], (3, 1, 1, 1))
    for _ in range(4):
        assert np.isfinite(model.train_on_batch(x, y)).all()
    # Without a bound, all but one method reach 1e2 to 1e19.
    for variable in model.trainable_variables:
        assert np.abs(variable).max() < 10, variable.path


@pytest.mark.parametrize(
    ("name", "length"),
    [
        ("baseline", 0),
        ("baseline", 1e-8),
        ("baseline", 1e20),
        pytest.param("bier", 0, marks=pytest.mark.slow),
        pytest.param("bier", 1e-8, marks=pytest.mark.slow),
    ],
)
def test_one_row_in_a_hundred_costs_no_recall(name: str, length) -> None:
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
    others = np.delete(labels, 4)
    cosines = embedding @ embedding.T - 3 * np.eye(199)
    assert np.mean(others[cosines.argmax(axis=1)] == others) > 0.95
    assert max(np.abs(v).max() for v in model.get_weights()) < 10


def count_calls(layer: keras.layers.Layer) -> list[int]:
    calls: list[int] = []
    call: Callable[..., Any] = layer.call

    def counted(*args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        return call(*args, **kwargs)

    layer.call = counted
    return calls


def trained_and_loaded(
    name: str, folder, eager: bool = False
) -> tuple[Any, Any]:
    """A model after a step, and what its file gives."""
    model = build(name)
    model.compile("adam", run_eagerly=eager)
    model.train_on_batch(*training_batch(model))
    model.save(folder / "model.keras")
    return model, keras.models.load_model(folder / "model.keras")


@slow_but_one
def test_file_round_trip_after_training(name: str, tmp_path) -> None:
    model, again = trained_and_loaded(name, tmp_path)
    x, _ = batch()
    np.testing.assert_array_equal(again(x), model(x))
    assert again.head.get_config() == model.head.get_config()
    assert plain(again.objective) == plain(model.objective)
    plain_keys = ("loss_weights", "rate_multipliers", "ema_momentum")
    for key in (*plain_keys, "view"):
        assert again.get_config()[key] == model.get_config()[key]
    for a, b in zip(
        again.optimizer.variables, model.optimizer.variables, strict=True
    ):
        np.testing.assert_array_equal(a, b)


@slow_but_one
def test_training_goes_on_where_it_was(name: str, tmp_path) -> None:
    model, again = trained_and_loaded(name, tmp_path, eager=True)
    assert again.run_eagerly
    for a, b in zip(again.variables, model.variables, strict=True):
        if "seed_generator_state" in b.path:  # Keras does not save it.
            a.assign(b)
    following = training_batch(model)
    assert again.train_on_batch(*following) == pytest.approx(
        model.train_on_batch(*following), rel=1e-5
    )


def plain(layer: keras.layers.Layer) -> dict[str, Any]:
    """A layer's arguments, without what Keras adds to nested objects."""
    config = layer.get_config()
    return {
        key: value["config"] if isinstance(value, dict) else value
        for key, value in config.items()
        if key != "dtype"
    }


@slow_but_one
def test_one_seed_gives_two_identical_runs(name: str) -> None:
    runs = []
    for _ in range(2):
        keras.utils.set_random_seed(7)
        model = build(name, loss={"name": "margin"})
        model.compile("adam")
        runs.append(
            [
                model.train_on_batch(*training_batch(model, k))
                for k in (0, 1, -1) * 3
            ]
        )
    assert runs[0] == runs[1]


@every_method
def test_head_says_what_it_was_given(name: str) -> None:
    head = build(name).head
    assert isinstance(head, Head)
    again = type(head).from_config(head.get_config())
    assert again.get_config() == head.get_config()


@pytest.mark.slow
@every_method
def test_export_gives_the_same_embeddings(name: str, tmp_path) -> None:

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
