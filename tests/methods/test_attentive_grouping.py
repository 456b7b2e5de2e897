import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_dml import backbones, methods
from tests.methods.test_contract import batch

PER_CLASS = {"name": "margin", "learn_beta": True, "num_classes": 4}
WITH_ATTENTION = {"A", "G"}
every_grouping = pytest.mark.parametrize("grouping", list("ANMGC"))


def model_of(backbone, **kwargs):
    arguments = {"embedding_dim": 12, "loss": "contrastive"}
    return methods.attentive_grouping(backbone, **{**arguments, **kwargs})


def groups_by_hand(model, x) -> np.ndarray:
    """The module's groups of the map, each normalized."""
    groups = model.head.module(model.backbone(x)).numpy().astype("float64")
    return groups / np.linalg.norm(groups, axis=-1, keepdims=True)


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
    ["C", pytest.param("G", marks=pytest.mark.slow)],
)
def test_other_groupings_train_and_reload(
    grouping, tiny_backbone, tmp_path
) -> None:
    """Attentive grouping itself is in the contract test."""
    backbone = backbones.small_convnet((16, 16, 1), filters=(4, 8))
    model = model_of(backbone, grouping=grouping, pooling="max")
    model.compile(keras.optimizers.SGD(0.1), run_eagerly=True)
    before = model.head.get_weights()
    assert np.all(np.isfinite(model.train_on_batch(*batch())))
    for a, b in zip(before, model.head.get_weights(), strict=True):
        assert np.any(a != b)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    assert again.head.module.get_config() == model.head.module.get_config()
    x, _ = batch()
    np.testing.assert_array_equal(again(x), model(x))


def test_betas_learn_from_their_own_group(tiny_backbone) -> None:
    """One group has collapsed; in the other, positives are far apart."""
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


def test_defaults_match_the_paper(tiny_backbone) -> None:
    """P 4, λ_div 0.01 (Tables 3 and 4); one group where there is none."""
    weights = model_of(tiny_backbone).weighting.weights_by_term
    assert float(weights["diversity"]) == pytest.approx(0.01)
    assert float(weights["metric"]) == 1
    changed_model = model_of(tiny_backbone, loss_weights={"diversity": 0.5})
    assert float(changed_model.weighting.weights_by_term["diversity"]) == 0.5
    assert model_of(tiny_backbone).head.num_groups == 4
    assert model_of(tiny_backbone, grouping="N").head.num_groups == 1


def test_embedding_dim_must_be_a_multiple_of_the_groups(tiny_backbone) -> None:
    with pytest.raises(ValueError, match="Use embedding_dim=510 or 513"):
        model_of(tiny_backbone, embedding_dim=512, num_groups=3)
    model = model_of(tiny_backbone, embedding_dim=510, num_groups=3)
    assert model.compute_output_shape((None, 16, 16, 1)) == (None, 510)
    assert model(batch()[0]).shape == (12, 510)


def test_pooled_features_raise(tiny_backbone) -> None:
    pooled = keras.layers.GlobalAveragePooling2D()(tiny_backbone.output)
    with pytest.raises(ValueError, match="does not pool its features"):
        model_of(keras.Model(tiny_backbone.input, pooled))
