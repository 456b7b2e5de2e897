"""Encoders of any kind as backbones: inputs, outputs, masks."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_dml import backbones, layers, methods
from keras_dml.backbones.tokens import patch_grid
from keras_dml.methods import METHODS
from keras_dml.visualization import attention_maps
from tests.conftest import blobs, quick

IDS = np.array([[1, 2, 3, 0], [4, 0, 0, 0], [5, 6, 0, 0], [7, 8, 3, 4]])


def vectors() -> keras.Model:
    return keras.Sequential(
        [keras.Input((6,)), keras.layers.Dense(4, "relu")], name="vectors"
    )


def words(**kwargs) -> keras.Model:
    """Token ids, 0 of them padding → (B, T, C) with a mask."""
    inputs = keras.Input((None,), dtype="int32", name="ids")
    x = keras.layers.Embedding(20, 4, mask_zero=True, name="table")(inputs)
    x = keras.layers.Dense(4, "relu")(x)
    return keras.Model(inputs, x, name="words", **kwargs)


def two_inputs(output=None) -> keras.Model:
    """Works like KerasHub's encoders: dicts in and out, and a padding mask."""
    ids = keras.Input((4,), dtype="int32", name="token_ids")
    padding = keras.Input((4,), dtype="int32", name="padding_mask")
    x = keras.layers.Embedding(9, 4)(ids)
    pooled = keras.layers.Dense(3)(x[:, 0])
    outputs = {"pooled_output": pooled, "sequence_output": x}
    model = keras.Model(
        {"token_ids": ids, "padding_mask": padding}, outputs, name="text"
    )
    return backbones.get(model, output=output)


def patches(prefix: int = 1) -> keras.Model:
    """A class token and 4×4 patches of 16×16 images → (B, 17, 8)."""
    inputs = keras.Input((16, 16, 1), name="image")
    x = keras.layers.Conv2D(8, 4, strides=4, name="patch")(inputs)
    x = keras.layers.Reshape((16, 8))(x)
    if prefix:
        front = keras.layers.Dense(8, name="front")(x[:, :prefix])
        x = keras.layers.Concatenate(axis=1)([front, x])
    x = keras.layers.Dense(8, "relu", name="block")(x)
    return keras.Model(inputs, x, name="patches")


@keras.saving.register_keras_serializable("tests")
class Subclass(keras.Model):
    """A subclassed model, defined by its `call`."""

    def __init__(self, **kwargs) -> None:
        super().__init__(**kwargs)
        self.dense = keras.layers.Dense(4, "relu")

    def call(self, inputs):
        return self.dense(inputs)


def x_of(model: keras.Model) -> dict | np.ndarray:
    rng = np.random.default_rng(0)
    if len(model.inputs) > 1:
        return {"token_ids": IDS, "padding_mask": (IDS > 0).astype("int32")}
    shape = model.inputs[0].shape
    if model.inputs[0].dtype == "int32":
        return IDS
    return rng.normal(size=(4, *shape[1:])).astype("float32")


def train_step(model: keras.Model, x, eager: bool = True) -> dict[str, float]:
    # Tracing a step takes longer than the step.
    model.compile(keras.optimizers.SGD(0.1), run_eagerly=eager)
    y = np.array([0, 0, 1, 1])
    data = tf.data.Dataset.from_tensor_slices((x, y)).batch(4)
    return model.fit(data, verbose=0).history


KINDS = {
    "vectors": vectors,
    "words": words,
    "text": two_inputs,
    "patches": lambda: backbones.get(patches(), num_prefix_tokens=1),
    "subclass": lambda: backbones.get(Subclass(), input_shape=(6,)),
}


@pytest.mark.parametrize(
    "kind",
    quick(["words"], KINDS),
)
def test_any_backbone_trains_and_reloads(kind, tmp_path) -> None:
    backbone = KINDS[kind]()
    x = x_of(backbone)
    model = methods.baseline(backbone, embedding_dim=3, loss="contrastive")
    loss = train_step(model, x, eager=kind != "words")["loss"]
    assert np.isfinite(loss).all()
    embeddings = model(x)
    np.testing.assert_allclose(np.linalg.norm(embeddings, axis=1), 1, 1e-5)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(again(x), embeddings)


@pytest.mark.parametrize(
    "method",
    quick(
        ("attentive_grouping", "baseline"),
        (
            "attentive_grouping",
            "baseline",
            "divide_and_conquer",
            "mic",
            "ensemble",
        ),
    ),
)
def test_methods_take_tokens_and_ignore_padding(method) -> None:
    """Tries one method for each kind of head."""
    model = METHODS[method].value(words(), embedding_dim=8)
    longer = np.concatenate([IDS, np.zeros_like(IDS)], axis=1)
    np.testing.assert_allclose(model(longer), model(IDS), atol=1e-6)
    assert not np.allclose(model(longer + 1), model(IDS + 1), atol=1e-3)


@pytest.mark.parametrize(
    ("grouping", "pooling"),
    [("A", "avg"), ("M", "gem"), ("G", "avg"), ("C", "gem")],
)
def test_groupings_ignore_padding(grouping, pooling) -> None:
    model = methods.attentive_grouping(
        words(), embedding_dim=4, num_groups=2, grouping=grouping,
        pooling=pooling,
    )  # fmt: skip
    longer = np.concatenate([IDS, np.zeros_like(IDS)], axis=1)
    np.testing.assert_allclose(model(longer), model(IDS), atol=1e-6)
    outputs = model.outputs_of(longer)
    if grouping == "A":
        attention = outputs["attention"].numpy()
        np.testing.assert_allclose(attention.sum(axis=1), 1, atol=1e-6)
        assert not attention[longer == 0].any()


@pytest.mark.parametrize("policy", ["float32", "mixed_float16"])
def test_masks_survive_policies_and_graphs(policy) -> None:
    keras.config.set_dtype_policy(policy)
    model = methods.baseline(words(), embedding_dim=3)
    longer = np.concatenate([IDS, np.zeros_like(IDS)], axis=1)
    eager = model(longer).numpy()
    np.testing.assert_allclose(eager, model(IDS), atol=1e-3)
    np.testing.assert_allclose(
        model.predict(longer, verbose=0), eager, atol=1e-3
    )


def test_dict_backbone_returns_tokens_or_the_named_output() -> None:
    x = {"token_ids": IDS, "padding_mask": (IDS > 0).astype("int32")}
    tokens = two_inputs()(x)
    assert tokens.shape == (4, 4, 4)
    np.testing.assert_array_equal(tokens._keras_mask, IDS > 0)
    assert two_inputs("pooled_output")(x).shape == (4, 3)
    with pytest.raises(ValueError, match="no `output` of 'text' 'pooled'.*Did"):
        two_inputs("pooled")


def volumes() -> keras.Model:
    inputs = keras.Input((4, 4, 4, 1))
    return keras.Model(inputs, keras.layers.Conv3D(2, 1)(inputs))


def two_outputs(*names: str) -> keras.Model:
    inputs = keras.Input((4,))
    outputs = [inputs * 2, inputs * 3]
    if names:
        outputs = dict(zip(names, outputs, strict=True))
    return keras.Model(inputs, outputs)


def halves() -> keras.Model:
    inputs = keras.Input((16, 16, 3))
    cut = keras.layers.Lambda(lambda x: [x[..., :1], x[..., 1:]], name="cut")
    return keras.Model(inputs, cut(inputs)[1])


@pytest.mark.parametrize(
    ("make", "arguments", "message"),
    [
        (vectors, {"output": "x"}, "no `output` of 'vectors' 'x'.*dense"),
        (vectors, {"num_prefix_tokens": 1}, "whose features are tokens"),
        (vectors, {"num_prefix_tokens": -1}, "must be an integer of at least"),
        (vectors, {"input_shape": (7,)}, r"`input_shape` must be one that"),
        (two_inputs, {"input_shape": (4,)}, "with several inputs: "),
        (Subclass, {}, "`input_shape` must be given for a model that has not"),
        (Subclass, {"input_shape": {"a": (3,)}}, "for which 'subclass.*fails"),
        (lambda: keras.layers.Dense(2), {}, "Wrap layers in keras.Sequential"),
        (volumes, {}, "must return features.*4, 4, 4, 2"),
        (two_outputs, {}, "must have one output, or a dict"),
        (
            lambda: two_outputs("a", "b"),
            {},
            "outputs of .*'a', 'b'.*Use output=",
        ),
        (halves, {"output": "cut"}, "one output. Received: output='cut'"),
    ],
)
def test_unfit_models_raise(make, arguments, message) -> None:
    with pytest.raises(ValueError, match=message):
        backbones.get(make(), **arguments)


def test_features_may_be_the_output_of_a_layer() -> None:
    whole = backbones.get("small_convnet", input_shape=(16, 16, 1))
    lower = backbones.get(whole, output="relu_0", freeze=True)
    expected = keras.Model(whole.input, whole.get_layer("relu_0").output)
    x = np.random.default_rng(0).uniform(0, 255, (2, 16, 16, 1))
    np.testing.assert_array_equal(lower(x), expected(x))
    assert lower.count_params() < whole.count_params()
    assert not lower.trainable_variables and whole.trainable_variables
    with pytest.raises(
        ValueError, match="no `output` of .*'relu_00'.*mean 'relu_0'"
    ):
        backbones.get(whole, output="relu_00")


def test_built_subclass_defines_its_input_shape() -> None:
    model = Subclass()
    model(np.zeros((2, 6), "float32"))
    backbone = backbones.get(model)
    assert backbone.input_shape == (None, 6)
    x = np.random.default_rng(0).normal(size=(3, 6)).astype("float32")
    np.testing.assert_array_equal(backbone(x), model(x))


# Transformers of images.


@pytest.mark.parametrize(
    ("count", "size", "grid"),
    [(196, (224, 224), (14, 14)), (98, (112, 224), (7, 14)),
     (197, (224, 224), None), (None, (224, 224), None)],
)  # fmt: skip
def test_patch_grid_follows_token_count_and_image_size(
    count, size, grid
) -> None:
    assert patch_grid(count, *size) == grid


@pytest.mark.parametrize("prefix", [0, 1])
def test_attention_over_patches_is_drawn_on_their_grid(prefix) -> None:
    num_prefix = prefix or None
    backbone = backbones.get(patches(prefix), num_prefix_tokens=num_prefix)
    model = methods.attentive_grouping(backbone, embedding_dim=4, num_groups=2)
    images = blobs()
    maps = attention_maps(model, images)
    assert maps.shape == (len(images), 4, 4, 2)
    np.testing.assert_allclose(maps.sum(axis=(1, 2)), 1, atol=1e-5)
    x = images.pixels[:2, ..., None].astype("float32")
    attention = model.outputs_of(x)["attention"]
    np.testing.assert_allclose(
        maps[:2], np.reshape(attention[:, prefix:], (2, 4, 4, 2)), atol=1e-6
    )
    assert not np.any(attention[:, :prefix])


def test_saved_backbone_keeps_its_prefix(tmp_path) -> None:
    path = tmp_path / "patches.keras"
    backbones.get(patches(), num_prefix_tokens=1).save(path)
    for num_prefix in (None, 1):
        loaded = backbones.get(path, num_prefix_tokens=num_prefix)
        marks = [x for x in loaded.layers if isinstance(x, layers.TokenMask)]
        assert [x.num_prefix_tokens for x in marks] == [1]
    with pytest.raises(
        ValueError, match="TokenMask layer, 1. Received: .*=2.*Leave"
    ):
        backbones.get(path, num_prefix_tokens=2)


def test_tokens_without_a_grid_raise() -> None:
    model = methods.attentive_grouping(patches(), embedding_dim=4)
    with pytest.raises(ValueError, match="17 tokens.*num_prefix_tokens=1"):
        attention_maps(model, blobs())


def blocks(num_blocks: int = 3) -> keras.Model:
    """A transformer of layers, which can be cut between them."""
    inputs = keras.Input((16, 16, 1), name="image")
    x = keras.layers.Conv2D(8, 4, strides=4, name="patch")(inputs)
    x = keras.layers.Reshape((16, 8))(x)
    for i in range(num_blocks):
        y = keras.layers.Dense(8, "relu", name=f"mlp_{i}")(x)
        x = keras.layers.Add(name=f"block_{i}")([x, y])
    return keras.Model(inputs, x, name="blocks")


@pytest.mark.slow
def test_abe_branches_between_blocks() -> None:
    with pytest.raises(ValueError, match="are patch, reshape.*, block_0, blo"):
        methods.abe(blocks(), embedding_dim=4, num_learners=2)
    model = methods.abe(
        blocks(), embedding_dim=4, num_learners=2, branch="block_0",
        attention_end="block_1",
    )  # fmt: skip
    x = x_of(model.backbone)
    assert np.isfinite(train_step(model, x)["loss"]).all()
    outputs = model.outputs_of(x)
    assert outputs["attention"].shape == (4, 2, 16, 8)
    images = blobs()
    maps = attention_maps(model, images)
    assert maps.shape == (len(images), 4, 4, 2)


def test_abe_rejects_masked_sequences() -> None:
    inputs = keras.Input((None,), dtype="int32", name="ids")
    x = keras.layers.Embedding(9, 4, mask_zero=True, name="table")(inputs)
    x = keras.layers.Dense(4, name="lower")(x)
    x = keras.layers.Dense(4, name="upper")(x)
    model = methods.abe(
        keras.Model(inputs, x), embedding_dim=4, num_learners=2,
        branch="table", attention_end="lower",
    )  # fmt: skip
    with pytest.raises(ValueError, match="abe cannot branch in a sequence"):
        model(IDS)
