import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_dml import backbones, losses, methods
from keras_dml.export import export_model
from tests.methods.test_contract import batch

PER_CLASS = {"name": "margin", "learn_beta": True, "num_classes": 4}
WITH_ATTENTION = {"A", "G"}
every_grouping = pytest.mark.parametrize("grouping", list("ANMGC"))


def model_of(backbone, **kwargs):
    arguments = {"embedding_dim": 12, "loss": "contrastive"}
    return methods.attentive_grouping(backbone, **{**arguments, **kwargs})


def groups_by_hand(model, x) -> np.ndarray:
    """What the module gives for the map, each group made unit."""
    groups = model.head.module(model.backbone(x)).numpy().astype("float64")
    return groups / np.linalg.norm(groups, axis=-1, keepdims=True)


def diversity_by_hand(groups, scale: float, divisor: float) -> np.ndarray:
    """Eq. 4 with α = 2 and m = 0.5, pair by pair."""
    values = []
    for image in groups:
        total = 0.0
        for i, j in itertools.combinations(range(len(image)), 2):
            cosine = image[i] @ image[j]
            total += np.log(1 + np.exp(2 * scale * (cosine - 0.5)))
        values.append(total / divisor)
    return np.array(values)


@every_grouping
def test_embedding_is_unit_groups_side_by_side(grouping, tiny_backbone) -> None:
    model = model_of(tiny_backbone, grouping=grouping)
    x, _ = batch()
    outputs = model.outputs_of(x)
    parts = groups_by_hand(model, x)
    assert parts.shape == ((12, 1, 12) if grouping == "N" else (12, 4, 3))
    np.testing.assert_allclose(outputs["parts"], parts, atol=1e-5)
    expected = parts.reshape(12, 12) / np.sqrt(parts.shape[1])
    np.testing.assert_allclose(outputs["embedding"], expected, atol=1e-5)
    np.testing.assert_allclose(model(x), expected, atol=1e-5)
    assert ("attention" in outputs) == (grouping in WITH_ATTENTION)


@pytest.mark.parametrize(
    "grouping",
    ["C", *(pytest.param(x, marks=pytest.mark.slow) for x in "NMG")],
)
def test_peers_train_and_are_saved(grouping, tiny_backbone, tmp_path) -> None:
    """In half precision; the contract tests attentive grouping itself."""
    keras.config.set_dtype_policy("mixed_float16")
    backbone = backbones.small_convnet((16, 16, 1), filters=(4, 8))
    model = model_of(backbone, grouping=grouping, pooling="max")
    model.compile(keras.optimizers.Adam(5e-3), run_eagerly=True)
    values = [
        model.train_on_batch(*batch(), return_dict=True)["loss"]
        for _ in range(15)
    ]
    assert np.all(np.isfinite(values))
    assert np.mean(values[-3:]) < 0.9 * np.mean(values[:3])
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    assert again.head.module.get_config() == model.head.module.get_config()
    x, _ = batch()
    np.testing.assert_array_equal(again(x), model(x))


@pytest.mark.slow
def test_export_holds_what_an_embedding_needs(tiny_backbone, tmp_path) -> None:
    model = model_of(tiny_backbone, loss=PER_CLASS)
    folder = export_model(model, tmp_path / "export" / "1")
    loaded = tf.saved_model.load(str(folder))
    served = loaded.signatures["serving_default"]
    assert set(served.structured_outputs) == {"embedding"}
    assert len(served.variables) == len(tiny_backbone.variables) + 3


@every_grouping
def test_every_variable_gets_a_gradient(grouping) -> None:
    # Channels enough that no squeeze starts with all its units dead.
    backbone = backbones.small_convnet((16, 16, 1), filters=(4, 40))
    model = model_of(backbone, grouping=grouping, loss=PER_CLASS)
    x, targets = batch()
    with tf.GradientTape() as tape:
        terms = model.objective(model.outputs_of(x, training=True), targets)
        loss = tf.reduce_sum(model.weighting(terms, tf.constant(0)))
    for gradient in tape.gradient(loss, model.trainable_variables):
        values = tf.convert_to_tensor(gradient).numpy()
        assert np.any(values)
        assert np.all(np.isfinite(values))


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize(
    ("scales", "beta"), [("released", 25.0), ("paper_table", 1.0)]
)
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_diversity_is_equation_4(
    groups, scales, beta, reduction, tiny_backbone
) -> None:
    model = model_of(
        tiny_backbone,
        grouping="M",  # Its groups differ from the start.
        num_groups=groups,
        scales=scales,
        diversity_reduction=reduction,
    )
    x, targets = batch()
    actual = model.objective(model.outputs_of(x), targets)["diversity"]
    pairs = {1: 1, 2: 1, 4: 6}[groups]
    divisor = pairs if reduction == "mean" else max(groups - 1, 1)
    expected = diversity_by_hand(groups_by_hand(model, x), beta, divisor)
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-6)


def test_gradient_of_diversity_parts_the_closest_groups() -> None:
    """−dL/ds of one pair is a sigmoid; checked in closed form."""
    objective = methods.attentive_grouping(
        backbones.small_convnet((16, 16, 1), filters=(4, 8)),
        embedding_dim=6,
        num_groups=2,
        loss="contrastive",
    ).objective
    angle = 1.0
    parts = tf.constant([[[1.0, 0.0], [np.cos(angle), np.sin(angle)]]])
    with tf.GradientTape() as tape:
        tape.watch(parts)
        targets = {"label": tf.constant([0])}
        value = objective({"parts": parts}, targets)["diversity"]
    slope = 50 / (1 + np.exp(-50 * (np.cos(angle) - 0.5)))
    expected = slope * parts.numpy()[:, ::-1]
    np.testing.assert_allclose(tape.gradient(value, parts), expected, rtol=1e-4)


@pytest.mark.parametrize("loss", ["contrastive", "multi_similarity"])
def test_metric_is_the_mean_over_groups(loss, tiny_backbone) -> None:
    model = model_of(tiny_backbone, loss=loss)
    x, targets = batch()
    actual = model.objective(model.outputs_of(x), targets)["metric"]
    parts = groups_by_hand(model, x).astype("float32")
    values = [
        losses.get(loss).per_example(targets["label"], parts[:, p])
        for p in range(4)
    ]
    np.testing.assert_allclose(
        actual, np.mean(values, axis=0), rtol=1e-4, atol=1e-6
    )


def margin_by_hand(part, labels, beta) -> float:
    """Margin loss over all pairs, divided by the number of active ones."""
    total, active = 0.0, 0
    for i, j in itertools.permutations(range(len(labels)), 2):
        distance = np.linalg.norm(part[i] - part[j])
        sign = 1 if labels[i] == labels[j] else -1
        term = max(0.0, 0.2 + sign * (distance - beta[labels[i]]))
        total, active = total + term, active + (term > 0)
    return total / active


def test_margin_has_a_beta_for_each_group_and_class(tiny_backbone) -> None:
    loss = {**PER_CLASS, "mining": "all"}
    model = model_of(tiny_backbone, num_groups=3, loss=loss)
    owned = betas_of(model)
    assert [tuple(v.shape) for v in owned] == [(4,)] * 3
    betas = np.linspace(0.4, 1.5, 12).reshape(3, 4)
    for variable, beta in zip(owned, betas, strict=True):
        variable.assign(beta)
    x, targets = batch()
    actual = model.objective(model.outputs_of(x), targets)["metric"]
    parts = groups_by_hand(model, x)
    expected = [
        margin_by_hand(parts[:, p], targets["label"], betas[p])
        for p in range(3)
    ]
    assert np.mean(actual) == pytest.approx(np.mean(expected), rel=1e-4)


def test_betas_learn_from_their_own_group(tiny_backbone) -> None:
    """One group has collapsed, of the other the positives are far apart."""
    loss = {"name": "margin", "learn_beta": True, "mining": "all"}
    model = model_of(tiny_backbone, num_groups=2, loss=loss)
    collapsed = [[1, 0]] * 4
    crossed = [[1, 0], [-1, 0], [0, 1], [0, -1]]
    parts = tf.stack([collapsed, crossed], axis=1)
    with tf.GradientTape() as tape:
        terms = model.objective(
            {"parts": tf.cast(parts, "float32")},
            {"label": tf.constant([0, 0, 1, 1])},
        )
        value = tf.reduce_mean(terms["metric"])
    first, second = tape.gradient(value, betas_of(model))
    # Half of [α + β − d]₊ and of [α + d − β]₊.
    np.testing.assert_allclose(first, [0.5], atol=1e-6)
    np.testing.assert_allclose(second, [-0.5], atol=1e-6)


def betas_of(model) -> list[keras.Variable]:
    return [v for v in model.trainable_variables if "/loss/" in v.path]


def test_default_learns_a_beta_for_each_group(tiny_backbone, tmp_path) -> None:
    model = methods.attentive_grouping(
        tiny_backbone, embedding_dim=12, rate_multipliers={"/loss/": 5.0}
    )
    betas = betas_of(model)
    assert [tuple(v.shape) for v in betas] == [(1,)] * 4
    assert len({v.path for v in betas}) == 4
    model.compile(keras.optimizers.SGD(1e-2), run_eagerly=True)
    model.train_on_batch(*batch())
    assert np.all(np.concatenate(betas) != np.float32(1.2))
    for k, beta in enumerate(betas):
        beta.assign([1 + k / 10])
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    for a, b in zip(betas_of(again), betas, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.slow
def test_diversity_moves_groups_apart() -> None:
    def similarity(weight: float) -> float:
        keras.utils.set_random_seed(1)
        model = model_of(
            backbones.small_convnet((16, 16, 1), filters=(4, 8)),
            num_groups=2,
            loss_weights={"diversity": weight},
        )
        model.compile(keras.optimizers.Adam(3e-2))
        for _ in range(20):
            model.train_on_batch(*batch())
        parts = groups_by_hand(model, batch()[0])
        return float(np.mean(np.sum(parts[:, 0] * parts[:, 1], axis=1)))

    assert similarity(0.0) > 0.9  # The metric loss alone does not care.
    assert similarity(10.0) < 0.5  # The threshold.


def test_defaults_are_those_of_the_papers_comparison(tiny_backbone) -> None:
    """P 4, λ_div 0.01 (Tables 3 and 4); one group where there is none."""
    weights = model_of(tiny_backbone).weighting.weights_by_term
    assert float(weights["diversity"]) == pytest.approx(0.01)
    assert float(weights["metric"]) == 1
    given = model_of(tiny_backbone, loss_weights={"diversity": 0.5})
    assert float(given.weighting.weights_by_term["diversity"]) == 0.5
    assert model_of(tiny_backbone).head.num_groups == 4
    assert model_of(tiny_backbone, grouping="N").head.num_groups == 1


def test_what_groups_do_not_divide_is_left_out(tiny_backbone) -> None:
    model = model_of(tiny_backbone, embedding_dim=512, num_groups=3)
    assert model.compute_output_shape((None, 16, 16, 1)) == (None, 510)
    assert model(batch()[0]).shape == (12, 510)


@pytest.mark.parametrize("grouping", list("NMGC"))
def test_peers_pool_as_they_are_told(grouping, tiny_backbone) -> None:
    model = model_of(tiny_backbone, grouping=grouping, pooling="max")
    assert model.head.module.pooling == "max"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"grouping": "B"}, "`grouping`.*one of.*grouping='B'"),
        ({"grouping": "N", "num_groups": 2}, 'num_groups=2. Use "M"'),
        ({"grouping": "G", "key_dim": 3}, "key_dim=3, grouping='G'"),
        ({"scales": "printed"}, "`scales`.*scales='printed'"),
        ({"diversity_reduction": "max"}, "`diversity_reduction`.*'max'"),
        ({"num_groups": 0}, "`num_groups` of attentive_grouping.*num_groups=0"),
    ],
)
def test_unfit_arguments_are_refused(arguments, message, tiny_backbone) -> None:
    with pytest.raises(ValueError, match=message):
        model_of(tiny_backbone, **arguments)


def test_pooled_features_are_refused(tiny_backbone) -> None:
    pooled = keras.layers.GlobalAveragePooling2D()(tiny_backbone.output)
    with pytest.raises(ValueError, match="does not pool its features"):
        model_of(keras.Model(tiny_backbone.input, pooled))
