"""The contract of layers, checked for each one."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_dml import layers
from tests.conftest import graph_and_xla, quick
from tests.layers.test_attention_ensemble import attention, ensemble, trunk

LAYERS: dict[str, tuple[Callable[[], keras.Layer], tuple[int | None, ...]]] = {
    "heads_attention": (
        lambda: layers.AttentionEnsemble(
            trunk(), attention(), 12, 3, shared=False, pooling="max"
        ),
        (3, 2, 3),
    ),
    "tails": (
        lambda: layers.AttentionEnsemble(trunk(), None, 12, 3, stacked=True),
        (3, 2, 9),
    ),
    "attentive": (
        lambda: layers.AttentiveGrouping(
            8, 2, key_dim=3, query_initializer="ones"
        ),
        (None, None, 10),
    ),
    "linear": (lambda: layers.LinearGrouping(12, 3, "max"), (None, None, 10)),
    "gate": (lambda: layers.GateGrouping(12, 3, "max"), (None, None, 10)),
    "channel": (lambda: layers.ChannelGrouping(12, 3, "max"), (None, None, 10)),
    "compositor": (
        lambda: layers.Compositor(
            2, signs=False, input_norm=True, train_on_composites=False,
            initializer="he_normal",
        ),
        (3, 4),
    ),
    "slicer": (
        lambda: layers.EmbeddingSlicer(
            10, 4, use_bias=False, kernel_initializer="he_normal",
            kernel_regularizer=keras.regularizers.L2(0.1),
        ),
        (7,),
    ),
    "response": (
        lambda: layers.LocalResponseNormalization(
            3, alpha=0.5, beta=0.6, bias=2.0
        ),
        (3, 3, 6),
    ),
    "gem": (lambda: layers.FeaturePooling("gem"), (None, None, 6)),
}  # fmt: skip
# The others have no nested models, weights of their own or two outputs.
FAST = ("heads_attention", "attentive", "compositor", "slicer", "gem")
every_layer = pytest.mark.parametrize("name", quick(FAST, LAYERS))


def made(name: str) -> tuple[keras.Layer, keras.Model, np.ndarray]:
    """The layer, a model of it, and inputs."""
    layer, shape = LAYERS[name][0](), LAYERS[name][1]
    inputs = keras.Input(shape)
    model = keras.Model(inputs, layer(inputs))
    rng = np.random.default_rng(0)
    for weight in layer.trainable_variables:
        weight.assign(rng.normal(size=weight.shape))
    x = rng.normal(size=(4, *(n or 3 for n in shape))).astype("float32")
    return layer, model, x


def assert_same(actual: Any, expected: Any, atol: float = 0.0) -> None:
    actual, expected = map(keras.tree.flatten, (actual, expected))
    for a, b in zip(actual, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=atol, atol=atol)


@every_layer
def test_saved_model_gives_the_same_outputs(name: str, tmp_path) -> None:
    layer, model, x = made(name)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    assert_same(again(x), model(x))
    config = layer.get_config()
    assert again.get_layer(layer.name).get_config() == config
    for _ in range(2):  # A config serves more than once.
        assert type(layer).from_config(config).get_config() == config
    outputs, symbols = map(keras.tree.flatten, (model(x), model.output))
    for y, symbol in zip(outputs, symbols, strict=True):
        assert tuple(y.shape[1:]) == symbol.shape[1:]


@every_layer
@graph_and_xla
def test_compiled_layer_gives_the_same_outputs(name: str, jit: bool) -> None:
    """Compiles for batches of any size."""
    layer, _, x = made(name)
    call = tf.function(
        layer,
        jit_compile=jit,
        autograph=False,
        input_signature=[tf.TensorSpec((None, *x.shape[1:]))],
    )
    assert_same(call(x), layer(x), atol=1e-5)


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (lambda: layers.AttentiveGrouping(8, 2), (2, 3, 4, 10)),
        (lambda: layers.LinearGrouping(8, 2), (2, 3, 4, 10)),
        (lambda: layers.GateGrouping(8, 2), (2, 3, 4, 10)),
        (lambda: layers.ChannelGrouping(8, 2), (2, 3, 4, 10)),
        (lambda: layers.Compositor(3), (2, 3, 4)),
        (lambda: layers.EmbeddingSlicer(8, 4), (2, 7)),
    ],
)
def test_heads_stay_float32_under_mixed_precision(layer, shape) -> None:
    """Scores and norms of these inputs overflow float16."""
    keras.config.set_dtype_policy("mixed_float16")
    x = np.random.default_rng(0).uniform(-1e4, 1e4, shape).astype("float16")
    for y in keras.tree.flatten(layer()(x)):
        assert y.dtype == "float32"
        assert np.isfinite(y).all()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: layers.AttentiveGrouping(8, 0),
         "`num_groups`.*at least 1. Received: num_groups=0"),
        (lambda: layers.AttentiveGrouping(0, 2),
         "`embedding_dim`.*Received: embedding_dim=0"),
        (lambda: layers.AttentiveGrouping(8, 2, 0),
         "`key_dim`.*Received: key_dim=0"),
        (lambda: layers.AttentiveGrouping(2, 3),
         "`num_groups`, 3. Received: embedding_dim=2. Use embedding_dim=3"),
        (lambda: layers.AttentiveGrouping(8, 2).build((None, 10)),
         "does not pool its features"),
        (lambda: layers.AttentiveGrouping(8, 2).build((None, 3, 4, None)),
         "does not pool its features"),
        *(
            (lambda kind=kind: kind(8, 2, pooling="sum"),
             "`pooling`.*pooling='sum'")
            for kind in (layers.LinearGrouping, layers.GateGrouping,
                         layers.ChannelGrouping)
        ),
        (lambda: layers.Compositor(0),
         "`num_compositors` of Compositor.*num_compositors=0"),
        (lambda: layers.Compositor(2, softmax=False, signs=False),
         "softmax=False, signs=False"),
        (lambda: layers.Compositor(2).build((None, None, 4)),
         r"known K and d.*\(None, None, 4\)"),
        (lambda: layers.EmbeddingSlicer(5, 4),
         "num_slices=4, embedding_dim=5.*such as 8"),
        (lambda: layers.EmbeddingSlicer(0, 1),
         "`embedding_dim` of EmbeddingSlicer.*embedding_dim=0"),
        (lambda: layers.EmbeddingSlicer(8, 2.0),
         "`num_slices` of EmbeddingSlicer.*num_slices=2.0"),
        (lambda: layers.GradientReversal(-1.0),
         "Received: scale=-1.0. Use scale=1.0"),
        (lambda: layers.LocalResponseNormalization(4),
         "`size` .* odd.*size=4"),
        (lambda: layers.EmbeddingQueue(0, 2), "`size`.*size=0"),
        (lambda: layers.EmbeddingQueue(2.0, 2), "`size`.*size=2.0"),
        (lambda: ensemble(num_learners=5),
         "divisible by `num_learners`, 5.*embedding_dim=12"),
        (lambda: ensemble(num_learners=0), "`num_learners`.*num_learners=0"),
        (lambda: ensemble(stacked=True), "`attention`.*stacked=True"),
        (lambda: ensemble(pooling="sum"),
         "`pooling`.*'avg', 'max'.*pooling='sum'"),
    ],
)  # fmt: skip
def test_unfit_arguments_raise(make, message) -> None:
    with pytest.raises(ValueError, match=message):
        make()
