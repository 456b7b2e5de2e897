"""The networks of ABE: their parts, their parameters, their backbones."""

import keras
import numpy as np
import pytest

from keras_dml import backbones, methods
from tests.methods.test_abe import every_variant, model_of
from tests.methods.test_contract import batch


def count(variables) -> int:
    return sum(int(np.prod(v.shape)) for v in variables)


# Parameters, Tables 1 and 8, in units of 10⁷.


@pytest.fixture(scope="module")
def googlenet() -> keras.Model:
    return backbones.googlenet((32, 32, 3))


# Parameters of S, G with its projection, C and a mask.
PARTS = {
    "abe": lambda s, g, c, mask, k: s + g + c + k * mask,
    "heads": lambda s, g, c, mask, k: s + k * g,
    "heads_attention": lambda s, g, c, mask, k: s + k * g + c + k * mask,
    "tails": lambda s, g, c, mask, k: k * s + g,
}


def parameters(variant, learners, dim) -> int:
    """Of GoogLeNet."""
    top = 5_296_704 + 1025 * (dim // learners)
    return PARTS[variant](676_848, top, 2_809_168, 399_840, learners)


@pytest.mark.parametrize(
    ("variant", "learners", "dim", "printed"),
    [
        ("abe", 1, 512, "0.97"),
        ("abe", 2, 512, "0.98"),
        ("abe", 4, 512, "1.05"),
        ("abe", 8, 512, "1.20"),
        ("abe", 1, 64, "0.92"),
        ("abe", 2, 128, "0.96"),
        ("abe", 4, 256, "1.04"),
        ("heads", 1, 512, "0.65"),
        ("heads", 2, 512, "1.18"),
        ("heads", 4, 512, "2.24"),
        ("heads", 8, 512, "4.36"),
        ("heads_attention", 8, 512, "4.96"),
        ("tails", 8, 512, "1.08"),
    ],
)
def test_parameter_count_matches_the_paper(
    variant, learners, dim, printed
) -> None:
    assert f"{parameters(variant, learners, dim) / 1e7:.2f}" == printed


@pytest.mark.slow
@every_variant
def test_parameter_count_of_googlenet_matches_the_formula(
    googlenet, variant
) -> None:
    model = methods.abe(
        googlenet, variant=variant, num_learners=2, embedding_dim=64
    )
    assert count(model.trainable_variables) == parameters(variant, 2, 64)


@pytest.mark.slow
def test_abe_2_has_parts_of_the_published_sizes(googlenet) -> None:
    model = methods.abe(googlenet, num_learners=2)
    ensemble = model.head.ensemble
    assert count(model.backbone.weights) == 676_848
    assert [count(x.weights) for x in ensemble.trunks] == [5_296_704]
    assert count(ensemble.attention.weights) == 2_809_168
    assert [count(x.weights) for x in ensemble.masks] == [399_840] * 2
    assert count(ensemble.projections[0].weights) == 1025 * 256
    # The map keeps its size: 7 × 7 for 112 pixels.
    assert model.backbone.output_shape == (None, 2, 2, 480)
    shapes = model.head.compute_output_shape((None, 2, 2, 480))
    assert shapes["attention"] == (None, 2, 2, 2, 480)


# Figure 7.

MODULES = [
    f"inception_{name}_output"
    for name in ("3a", "3b", "4a", "4b", "4c", "4d", "4e", "5a", "5b")
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("branch", "attention_end", "channels"),
    [
        # (a): all seven Inception modules.
        ("pool3_3x3_s2", MODULES[8], 480),
        # (b): five modules from the first branching point.
        ("pool2_3x3_s2", MODULES[4], 192),
    ],
)
def test_branching_points_and_depths_match_figure_7(
    branch, attention_end, channels, googlenet
) -> None:
    model = methods.abe(
        googlenet,
        branch=branch,
        attention_end=attention_end,
        num_learners=2,
        embedding_dim=8,
    )
    *size, output_channels = model.backbone.output_shape[1:]
    assert output_channels == channels
    context = model.head.ensemble.attention
    assert context.output_shape[1:3] == tuple(size)
    modules = [x.name for x in context.layers if x.name in MODULES]
    first = 0 if branch == "pool2_3x3_s2" else 2
    if branch in MODULES:
        first = MODULES.index(branch) + 1
    assert modules == MODULES[first : MODULES.index(attention_end) + 1]
    shapes = model.head.compute_output_shape((None, *size, channels))
    assert shapes["attention"] == (None, 2, *size, channels)


# The pieces.


@every_variant
def test_backbone_is_s_and_the_head_copies_the_rest(
    variant, tiny_backbone
) -> None:
    model = model_of(tiny_backbone, variant=variant)
    stem = tiny_backbone.get_layer("conv_0").kernel
    ensemble = model.head.ensemble
    if variant == "tails":
        assert model.backbone.output_shape == (None, 8, 8, 3 * 4)
        kernels = [w for w in model.backbone.get_weights() if w.ndim == 4]
        assert len(kernels) == 3
        np.testing.assert_array_equal(kernels[0], stem)
        noise = kernels[1] - kernels[0]
        assert 0.05 < noise.std() / kernels[0].std() < 0.15
        assert np.abs(kernels[2] - kernels[1]).max() > 0
    else:
        assert model.backbone.output_shape == (None, 8, 8, 4)
        assert model.backbone.get_layer("conv_0").kernel is stem
    top = tiny_backbone.get_layer("conv_1").kernel.numpy()
    copies = [x.get_layer("conv_1") for x in ensemble.trunks]
    assert len(copies) == (3 if "heads" in variant else 1)
    if ensemble.has_attention:
        copies.append(ensemble.attention.get_layer("conv_1"))
    for copy in copies:
        np.testing.assert_array_equal(copy.kernel, top)
    assert len({id(copy.kernel) for copy in copies}) == len(copies)


def test_rate_multipliers_reach_pretrained_layers_alone(tiny_backbone) -> None:
    """The patterns of the docstring reach the intended layers."""
    model = model_of(
        tiny_backbone,
        rate_multipliers={"backbone|/trunk_|/attention/": 0.0},
    )
    moved = moved_by_a_step(model)
    ensemble = model.head.ensemble
    new = [*ensemble.masks, *ensemble.projections]
    expected = {id(v) for layer in new for v in layer.trainable_variables}
    assert moved == expected


def moved_by_a_step(model) -> set[int]:
    model.compile("sgd", run_eagerly=True)
    before = [v.numpy() for v in model.trainable_variables]
    model.train_on_batch(*batch())
    return {
        id(v)
        for v, old in zip(model.trainable_variables, before, strict=True)
        if np.any(v.numpy() != old)
    }


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["heads_attention", "tails"])
def test_every_variant_trains_and_reloads(
    variant, tiny_backbone, tmp_path
) -> None:
    loss = {"name": "margin", "learn_beta": True}
    model = model_of(tiny_backbone, variant=variant, loss=loss)
    assert len(model.objective.trainable_variables) == 3
    # One step moves every variable.
    assert moved_by_a_step(model) == {id(v) for v in model.trainable_variables}
    for k, beta in enumerate(model.objective.trainable_variables):
        beta.assign(beta * 0 + 1.0 + k / 10)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    x, _ = batch()
    np.testing.assert_array_equal(again(x), model(x))
    for a, b in zip(
        again.trainable_variables, model.trainable_variables, strict=True
    ):
        assert a.path == b.path
        np.testing.assert_array_equal(a, b)


# Backbones.


def test_small_convnet_has_a_default_branch() -> None:
    model = methods.abe("small_convnet", num_learners=2, embedding_dim=8)
    assert model.backbone.output_shape[1:3] == (12, 12)


@pytest.mark.slow
def test_bn_inception_has_a_default_branch() -> None:
    model = methods.abe(
        backbones.bn_inception((32, 32, 3)), num_learners=2, embedding_dim=8
    )
    assert model.backbone.output_shape == (None, 2, 2, 576)


@pytest.mark.slow
def test_resnet50_has_a_default_branch() -> None:
    backbone = backbones.get(
        "resnet50", input_shape=(64, 64, 3), freeze_batch_norm=True
    )
    model = methods.abe(backbone, num_learners=2, embedding_dim=8)
    assert model.backbone.output_shape == (None, 8, 8, 512)
    assert model.head.ensemble.attention.output_shape == (None, 8, 8, 1024)
    assert model.compute_output_shape((None, 64, 64, 3)) == (None, 8)


def test_backbone_may_pool_its_features(tiny_backbone) -> None:
    pooled = keras.layers.GlobalMaxPooling2D()(tiny_backbone.output)
    backbone = keras.Model(tiny_backbone.input, pooled)
    x, _ = batch()
    outputs = model_of(backbone).outputs_of(x)
    assert outputs["parts"].shape == (12, 3, 4)
