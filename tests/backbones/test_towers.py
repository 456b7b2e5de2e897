"""Transformers of KerasHub by name, small, with published preprocessing."""

import json
import sys
from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_dml as dml
from keras_dml import backbones, methods
from keras_dml.layers import TokenMask

hub = pytest.importorskip("keras_hub")

HALF = ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
OPENAI = (
    (0.48145466, 0.4578275, 0.40821073),
    (0.26862954, 0.26130258, 0.27577711),
)
SHAPE = (16, 16, 3)
SIZES = {"num_layers": 2, "num_heads": 2, "hidden_dim": 8}


def vit():
    return hub.models.ViTBackbone(SHAPE, 4, mlp_dim=16, **SIZES)


def dinov2(image_shape=SHAPE):
    return hub.models.DINOV2Backbone(
        4, intermediate_dim=16, num_register_tokens=2,
        image_shape=image_shape, position_embedding_shape=(24, 24), **SIZES,
    )  # fmt: skip


def dinov3():
    return hub.models.DINOV3Backbone(
        4, intermediate_dim=16, image_shape=SHAPE, **SIZES
    )


def two_towers(kind: str, **more):
    vision = getattr(hub.models, f"{kind}VisionEncoder")(
        4, intermediate_dim=16, image_shape=SHAPE, **SIZES
    )
    text = getattr(hub.models, f"{kind}TextEncoder")(
        20, 8, intermediate_dim=16, max_sequence_length=6, **SIZES
    )
    return getattr(hub.models, f"{kind}Backbone")(vision, text, **more)


def bert():
    return hub.models.BertBackbone(
        20, intermediate_dim=16, max_sequence_length=6, **SIZES
    )


# The network, mean and deviation of its pixels, tokens that are no patches.
IMAGES = {
    "vit": (vit, HALF, 1),
    "dinov2": (dinov2, IMAGENET, 3),
    "dinov3": (dinov3, IMAGENET, 5),
    "clip": (lambda: two_towers("CLIP", projection_dim=5), OPENAI, 1),
    "siglip": (lambda: two_towers("SigLIP"), HALF, 0),
}


@pytest.fixture(scope="module")
def presets(tmp_path_factory):
    """Folders of presets with random weights, made once by name."""
    cache = {}

    def preset(kind: str):
        if kind in cache:
            return cache[kind]
        make, (mean, std), _ = IMAGES[kind]
        network = make()
        # Weights that are zero or equal by default would hide mistakes.
        rng = np.random.default_rng(0)
        for v in network.weights:
            if "float" in v.dtype and "position_emb" not in v.name:
                v.assign(rng.normal(scale=0.3, size=v.shape))
        folder = tmp_path_factory.mktemp("presets") / kind
        network.save_to_preset(str(folder))
        converter = next(
            x
            for x in hub.layers.ImageConverter.__subclasses__()
            if x.backbone_cls is type(network)
        )
        converter(
            image_size=SHAPE[:2],
            scale=[1 / 255 / s for s in std],
            offset=[-m / s for m, s in zip(mean, std, strict=True)],
        ).save_to_preset(str(folder))
        cache[kind] = f"keras_hub:{folder}", network
        return cache[kind]

    return preset


def pixels(size: int = 16) -> np.ndarray:
    rng = np.random.default_rng(0)
    return rng.uniform(0, 255, (4, size, size, 3)).astype("float32")


def tower_of(network):
    """The image tower as KerasHub calls it, from its own input."""
    tower = getattr(network, "vision_encoder", network)
    name = next(iter(tower.input)) if isinstance(tower.input, dict) else None
    return lambda x: tower({name: x} if name else x)


@pytest.mark.slow
@pytest.mark.parametrize("kind", IMAGES)
def test_image_tower_takes_raw_pixels_as_published(kind, presets) -> None:
    name, network = presets(kind)
    _, (mean, std), prefix = IMAGES[kind]
    backbone = backbones.get(name)
    assert backbone.name == kind
    assert backbone.input_shape == (None, *SHAPE)
    assert backbone.output_shape == (None, prefix + 16, 8)
    tokens = backbone(pixels())
    normal = ((pixels() / 255 - mean) / std).astype("float32")
    if kind == "siglip":
        assert tokens.shape == (4, 16, 8)
        pooled = backbones.get(name, output="pooled_output")
        np.testing.assert_allclose(
            pooled(pixels()), tower_of(network)(normal), atol=1e-4
        )
        assert pooled.output_shape == (None, 8)
        return
    np.testing.assert_allclose(tokens, tower_of(network)(normal), atol=1e-4)
    (layer,) = [x for x in backbone.layers if isinstance(x, TokenMask)]
    assert (layer.num_prefix_tokens, layer.grid) == (prefix, (4, 4))
    expected = np.arange(prefix + 16) >= prefix
    np.testing.assert_array_equal(tokens._keras_mask, [expected] * 4)


@pytest.mark.slow
def test_clip_pooled_output_is_the_embedding_shared_with_texts(presets) -> None:
    name, network = presets("clip")
    backbone = backbones.get(name, output="pooled_output")
    _, (mean, std), _ = IMAGES["clip"]
    normal = ((pixels() / 255 - mean) / std).astype("float32")
    np.testing.assert_allclose(
        backbone(pixels()), network.get_vision_embeddings(normal), atol=1e-4
    )


@pytest.mark.slow
@pytest.mark.parametrize("kind", IMAGES)
def test_image_tower_trains_reloads_and_exports(
    kind, presets, tmp_path
) -> None:
    model = methods.baseline(
        backbones.get(presets(kind)[0]), embedding_dim=4, loss="contrastive"
    )
    # Tracing a step takes longer than the step.
    model.compile(keras.optimizers.SGD(0.1), run_eagerly=kind != "vit")
    before = [v.numpy() for v in model.backbone.trainable_variables]
    model.fit(pixels(), np.array([0, 0, 1, 1]), verbose=0)
    after = model.backbone.trainable_variables
    moved = [np.any(a != b) for a, b in zip(before, after, strict=True)]
    assert np.mean(moved) > 0.8
    embeddings = model.predict(pixels(), verbose=0)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    names = [v.path for v in model.trainable_variables]
    assert [v.path for v in again.trainable_variables] == names
    np.testing.assert_array_equal(
        again.predict(pixels(), verbose=0), embeddings
    )
    if kind not in ("vit", "clip"):  # a network, and one cut out of another
        return
    folder = dml.export.export_model(model, tmp_path / "exported")
    served = tf.saved_model.load(str(folder)).signatures["serving_default"]
    served_embeddings = served(tf.constant(pixels()))["embedding"]
    np.testing.assert_allclose(served_embeddings, embeddings, atol=1e-5)


@pytest.mark.slow
def test_dino_takes_another_size_and_vit_does_not(presets) -> None:
    name, _ = presets("dinov2")
    backbone = backbones.get(name, input_shape=(24, 24, 3))
    assert backbone.output_shape == (None, 3 + 36, 8)
    for kind in ("vit", "clip"):
        match = r"`input_shape` of backbone=.* must be \(16, 16, 3\)"
        with pytest.raises(ValueError, match=match):
            backbones.get(presets(kind)[0], input_shape=(24, 24, 3))


@pytest.mark.slow
def test_abe_names_branch_points_of_a_tower(presets) -> None:
    match = "its blocks are inside one layer, .* Use a backbone whose blocks"
    with pytest.raises(ValueError, match=match):
        methods.abe(backbones.get(presets("vit")[0]))
    with pytest.raises(ValueError, match="encoder_block_0, clip_vision"):
        methods.abe(backbones.get(presets("clip")[0]))


def test_transformers_checkpoint_defines_its_preprocessing(
    presets, tmp_path, monkeypatch
) -> None:
    """Such a handle has a `preprocessor_config.json` and no converter."""
    (mean, std), network = IMAGENET, presets("vit")[1]
    config = {"image_mean": mean, "image_std": std, "rescale_factor": 1 / 255}
    path = tmp_path / "preprocessor_config.json"
    path.write_text(json.dumps(config))
    asked = []

    def download(repository, file):
        asked.append((repository, file))
        return str(path)

    stand_in = SimpleNamespace(hf_hub_download=download)
    monkeypatch.setitem(sys.modules, "huggingface_hub", stand_in)
    for owner, result in (
        (hub.models.Backbone, network), (hub.layers.ImageConverter, None)
    ):  # fmt: skip
        monkeypatch.setattr(owner, "from_preset", lambda _, x=result: x)
    backbone = backbones.get("hf://facebook/dino-vits16")
    assert asked == [("facebook/dino-vits16", "preprocessor_config.json")]
    normal = ((pixels() / 255 - mean) / std).astype("float32")
    np.testing.assert_allclose(backbone(pixels()), network(normal), atol=1e-4)
    path.write_text("{}")
    with pytest.raises(ValueError, match="must specify the preprocessing"):
        backbones.get("hf://facebook/dino-vits16")


# Texts.


def tokenized(texts: list[str]) -> dict[str, np.ndarray]:
    """Tokenizes with the preset's preprocessor, as a user would."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefgh"]
    tokenizer = hub.models.BertTokenizer(vocabulary=words)
    preprocess = hub.models.BertTextClassifierPreprocessor(
        tokenizer, sequence_length=6
    )
    return {k: np.asarray(x) for k, x in preprocess(texts).items()}


TEXTS = ["a b", "a c d", "e f", "g"]


@pytest.mark.slow
def test_text_tower_trains_and_reloads(tmp_path) -> None:
    network = bert()
    network.save_to_preset(str(tmp_path / "bert"))
    x = tokenized(TEXTS)
    assert x["padding_mask"].sum(axis=1).tolist() == [4, 5, 4, 3]
    backbone = backbones.get(f"keras_hub:{tmp_path / 'bert'}")
    tokens = backbone(x)
    np.testing.assert_allclose(tokens, network(x)["sequence_output"], atol=1e-5)
    np.testing.assert_array_equal(tokens._keras_mask, x["padding_mask"] == 1)
    pooled = backbones.get(network, output="pooled_output")
    np.testing.assert_allclose(pooled(x), network(x)["pooled_output"], 1e-5)
    model = methods.baseline(backbone, embedding_dim=4, loss="contrastive")
    expected = [
        row[:count].mean(axis=0)
        for row, count in zip(tokens.numpy(), (4, 5, 4, 3), strict=True)
    ]
    np.testing.assert_allclose(model.head.pool(tokens), expected, atol=1e-5)
    model.compile(keras.optimizers.SGD(0.1), run_eagerly=True)
    data = tf.data.Dataset.from_tensor_slices((x, [0, 0, 1, 1])).batch(4)
    assert np.isfinite(model.fit(data, verbose=0).history["loss"]).all()
    embeddings = model.predict(x, verbose=0)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(again.predict(x, verbose=0), embeddings)


# Adapters and eight bits.


@pytest.mark.slow
def test_lora_trains_adapters_and_the_head(tmp_path) -> None:
    network = vit()
    network.enable_lora(2)
    model = methods.baseline(
        network, embedding_dim=4, loss="contrastive",
        rate_multipliers={"lora_kernel": 2.0},
    )  # fmt: skip
    trained = {v.name for v in model.backbone.trainable_variables}
    assert trained == {"lora_kernel_a", "lora_kernel_b", "bias"}
    model.compile(keras.optimizers.Adam(1e-2), run_eagerly=True)
    before = {v.path: v.numpy() for v in network.weights}
    model.fit(pixels(), np.array([0, 0, 1, 1]), epochs=2, verbose=0)
    for v in network.weights:
        moved = np.any(v.numpy() != before[v.path])
        assert moved == any(v is x for x in model.trainable_variables), v.path
    # Two moments of each, the step and the rate.
    count = len(model.trainable_variables)
    assert len(model.optimizer.variables) == 2 + 2 * count
    embeddings = model.predict(pixels(), verbose=0)
    model.save(tmp_path / "model.keras")
    with pytest.warns(UserWarning, match="Skipping variable loading for opti"):
        again = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(
        again.predict(pixels(), verbose=0), embeddings, atol=1e-6
    )
