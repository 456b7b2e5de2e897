"""S2SD against NumPy: networks, terms, weights and gradients."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras.optimizers import schedules

from keras_dml import backbones, methods
from keras_dml.recipes import load
from tests.conftest import blobs
from tests.losses.oracle import check_slopes, sets, unit
from tests.losses.test_distillation import divergence
from tests.methods.test_contract import batch

TERMS = ("metric", "targets", "distillation", "features")


def model_of(**kwargs):
    backbone = backbones.small_convnet((16, 16, 1), filters=(4, 8))
    arguments = {"embedding_dim": 5, "target_dims": (6, 9), **kwargs}
    return methods.s2sd(backbone, **arguments)


def loss(labels, x: np.ndarray) -> float:
    """Multi-similarity, Eq. 15, of the mined pairs."""
    similar, total = unit(x) @ unit(x).T, 0.0
    for a, same, other in sets(labels):
        p, n = similar[a, same], similar[a, other]
        n, p = n[n > min(p) - 0.1], p[p < max(n) + 0.1]
        total += np.log1p(np.exp(-2 * (p - 0.5)).sum()) / 2
        total += np.log1p(np.exp(50 * (n - 0.5)).sum()) / 50
    return total / len(labels)


def by_hand(model, outputs, labels) -> dict[str, float]:
    """The spaces from the weights, and the terms from the spaces."""
    embedding, features = (
        outputs[key].numpy().astype("float64")
        for key in ("embedding", "features")
    )
    spaces = []
    for space in model.objective.spaces:
        kernel, bias, last, last_bias = space.network.get_weights()
        hidden = np.maximum(features @ kernel + bias, 0)
        spaces.append(unit(hidden @ last + last_bias))
    temperature = model.objective.temperature

    return {
        "metric": loss(labels, embedding),
        "targets": np.mean([loss(labels, x) for x in spaces]),
        "distillation": np.mean(
            [divergence(embedding, x, temperature) for x in spaces]
        ),
        "features": divergence(embedding, features, temperature),
    }


@pytest.mark.parametrize("temperature", [1.0, 0.2])
def test_terms_match_the_formula(temperature) -> None:
    model = model_of(temperature=temperature)
    _, targets = batch()
    rng = np.random.default_rng(0)
    outputs = {
        "embedding": tf.constant(unit(rng.normal(size=(12, 5))), "float32"),
        "features": tf.constant(rng.normal(size=(12, 8)), "float32"),
    }
    terms = model.objective(outputs, targets)
    expected = by_hand(model, outputs, targets["label"])
    assert tuple(terms) == TERMS
    for name, value in expected.items():
        assert abs(value) > 1e-3
        np.testing.assert_allclose(
            np.mean(terms[name]), value, rtol=1e-4, err_msg=name
        )


@pytest.mark.parametrize(
    ("term", "learner"),
    [
        ("distillation", "embedding"),
        ("features", "embedding"),
        ("targets", "features"),
    ],
)
def test_gradients_match_the_formula(term, learner) -> None:
    model = model_of(temperature=0.2)
    _, targets = batch()
    rng = np.random.default_rng(1)
    point = {
        "embedding": unit(rng.normal(size=(12, 5))),
        "features": rng.normal(size=(12, 8)),
    }
    outputs = {k: tf.constant(v, "float32") for k, v in point.items()}
    with tf.GradientTape() as tape:
        tape.watch(outputs)
        value = tf.reduce_mean(model.objective(outputs, targets)[term])
    gradients = tape.gradient(value, outputs)

    def formula(x: np.ndarray) -> float:
        tensors = {k: tf.constant(v) for k, v in {**point, learner: x}.items()}
        return float(by_hand(model, tensors, targets["label"])[term])

    gradient = gradients.pop(learner).numpy()
    assert np.abs(gradient).max() > 1e-3
    check_slopes(gradient, formula, point[learner], rtol=2e-3)
    (other,) = gradients.values()
    assert other is None or not np.any(other)


def test_losses_weigh_half_and_divergences_gamma() -> None:
    model = model_of(gamma=7.0, warmup=2)
    ones = {name: tf.ones(3) for name in model.objective.terms}
    sums = [
        float(model.weighting(ones, tf.constant(step))[0]) for step in range(4)
    ]
    assert sums == pytest.approx([8, 8, 15, 15])
    without = model_of(gamma=7.0, warmup=0, loss_weights={"features": 1.0})
    assert float(without.weighting(ones, tf.constant(0))[0]) == 9


def weights_of_features(model) -> list[float]:
    steps = (0, 999, 1000, 10**6)
    return [float(model.weighting.weight_at("features", s)) for s in steps]


@pytest.mark.parametrize(
    ("loss_weights", "expected"),
    [
        ({}, [0, 0, 50, 50]),
        ({"features": 5.0}, [0, 0, 5, 5]),
        ({"features": 0.0}, [0, 0, 0, 0]),
        ({"features": "learned"}, [0, 0, 1, 1]),
        (
            {"features": schedules.PiecewiseConstantDecay([999], [3.0, 4.0])},
            [3, 3, 4, 4],
        ),
    ],
)
def test_number_keeps_the_warmup_and_schedule_replaces_it(
    loss_weights, expected
) -> None:
    model = model_of(loss_weights=loss_weights)
    assert weights_of_features(model) == expected
    again = type(model).from_config(model.get_config())
    assert weights_of_features(again) == expected


@pytest.mark.parametrize("name", ["cub200", "sop"])
def test_recipes_of_the_paper_warm_up(name: str) -> None:
    recipe = load(f"{name}/s2sd")
    method = recipe.method.model_dump(exclude={"name"})
    if method["loss"]["name"] == "margin":
        method["loss"]["num_classes"] = 5
    model = methods.s2sd(
        backbones.small_convnet(input_shape=(16, 16, 1)),
        loss_weights=recipe.loss_weights,
        **method,
    )
    last = 50 if name == "cub200" else 5
    assert weights_of_features(model) == [0, 0, last, last]


@pytest.mark.slow
def test_warmup_continues_in_a_loaded_model(tmp_path) -> None:
    model = model_of(warmup=3)
    model.compile(keras.optimizers.SGD(0.0), run_eagerly=True)
    x, targets = batch()

    def weight_of_features(model) -> float:
        logs = model.train_on_batch(x, targets, return_dict=True)
        halves = (logs["metric"] + logs["targets"]) / 2
        rest = logs["loss"] - halves - 50 * logs["distillation"]
        model.reset_metrics()
        return rest / logs["features"]

    first = [weight_of_features(model) for _ in range(2)]
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    weights = first + [weight_of_features(again) for _ in range(2)]
    assert weights == pytest.approx([0, 0, 0, 50], abs=0.05)


@pytest.mark.parametrize("term", ["distillation", "features"])
def test_only_the_embedding_learns_from_others(term) -> None:
    model = model_of()
    x, targets = batch()
    with tf.GradientTape(persistent=True) as tape:
        outputs = model.outputs_of(x, training=True)
        tape.watch(list(outputs.values()))
        value = tf.reduce_sum(model.objective(outputs, targets)[term])
    assert np.any(tape.gradient(value, outputs["embedding"]))
    # The embedding was computed before: what is left are the targets.
    direct = tape.gradient(
        value, [outputs["features"], *model.objective.trainable_variables]
    )
    rest = tape.gradient(
        outputs["embedding"],
        outputs["features"],
        tape.gradient(value, outputs["embedding"]),
    )
    np.testing.assert_allclose(direct[0], rest, rtol=1e-5, atol=1e-7)
    assert not any(np.any(g) for g in direct[1:] if g is not None)


def test_target_spaces_train_the_backbone() -> None:
    model = model_of()
    x, targets = batch()
    with tf.GradientTape() as tape:
        terms = model.objective(model.outputs_of(x, training=True), targets)
        value = tf.reduce_sum(terms["targets"])
    kernel = next(v for v in model.backbone.trainable_variables)
    assert np.any(tape.gradient(value, kernel))


def test_feature_distillation_can_be_turned_off() -> None:
    model = model_of(distill_features=False)
    assert model.objective.terms == TERMS[:-1]
    x, targets = batch()
    terms = model.objective(model.outputs_of(x), targets)
    assert tuple(terms) == TERMS[:-1]


def test_every_space_has_proxies_of_its_dimension() -> None:
    model = model_of(loss={"name": "proxy_anchor", "num_classes": 4})
    shapes = {
        v.path: tuple(v.shape)
        for v in model.objective.variables
        if "/loss/" in v.path
    }
    assert sorted(shapes.values()) == [(4, 5), (4, 6), (4, 9)]
    assert len(shapes) == 3


def test_every_space_has_a_memory() -> None:
    loss = {"name": "cross_batch_memory", "loss": "contrastive", "size": 24}
    model = model_of(loss=loss)
    model.compile("sgd", run_eagerly=True)
    x, targets = batch()
    model.train_on_batch(x, targets)
    memories = [
        v.numpy()
        for v in model.objective.non_trainable_variables
        if len(v.shape) == 2
    ]
    assert sorted(x.shape for x in memories) == [(24, 5), (24, 6), (24, 9)]
    for memory in memories:
        lengths = np.linalg.norm(memory, axis=1)
        np.testing.assert_allclose(lengths, np.repeat([1, 0], 12), atol=1e-5)


def test_encoder_has_no_target_spaces() -> None:
    model = model_of()
    names = {v.path for v in model.encoder.weights}
    assert not any("target" in name for name in names)
    images = blobs()
    x = images.images[..., None].astype("float32")
    np.testing.assert_array_equal(model.encoder(x), model(x))
