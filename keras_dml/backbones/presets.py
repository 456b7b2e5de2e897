"""Backbones of KerasHub and KerasCV, by preset, and their preprocessing."""

import importlib
import json
import os
import re
from typing import Any

import keras

from keras_dml.backbones.tokens import (
    POOLED,
    SEQUENCE,
    image_shape,
    single_output,
)
from keras_dml.utils.arguments import import_extra
from keras_dml.utils.models import copy_model
from keras_dml.utils.types import Tensor

HUB = "keras_hub:"
CV = "keras_cv:"
PREFIXES = (HUB, CV, "hf://", "kaggle://", "modelscope://")
"""Prefixes of the names of presets."""


def build(
    name: str,
    input_shape: Any = None,
    output: str | None = None,
    num_prefix_tokens: int | None = None,
) -> keras.Model:
    """A backbone of KerasHub or KerasCV, with the weights of a preset.

    The name is "keras_hub:" or "keras_cv:", followed by the name or handle of a
    preset of that library, or by a folder that contains one. A handle alone
    ("hf://timm/resnet50.tv_in1k") is KerasHub's. The image towers of CLIP and
    SigLIP have the outputs "sequence_output", the tokens, and "pooled_output",
    which is compared with texts.
    """
    preset = name.removeprefix(HUB).removeprefix(CV)
    if name.startswith(CV):
        model = _from_keras_cv(preset, name)
        model = single_output(model, output, num_prefix_tokens)
    else:
        encoder = _from_keras_hub(preset, name, input_shape)
        model = single_output(encoder, output, num_prefix_tokens)
        if image_shape(model):
            layer = _preprocessing(preset, name)
            model = with_preprocessing(model, layer, input_shape)
    # It is named after the preset instead of "res_net_backbone_3".
    model.name = re.sub(r"\W+", "_", os.path.basename(preset.rstrip("/")))
    return model


def _from_keras_hub(
    preset: str, name: str, input_shape: tuple[int, int, int] | None
) -> keras.Model:
    """KerasHub's encoder of a preset, or its image tower."""
    hub = import_extra(f"backbone={name!r}", "keras_hub", "keras-hub")
    model = _load(hub.models.Backbone, preset, name)
    if hasattr(model, "vision_encoder"):
        shape = model.vision_encoder.image_shape
        _check_size(name, shape, input_shape)
        return image_tower(model)
    shape = getattr(model, "image_shape", None)
    other = input_shape is not None and tuple(input_shape) != tuple(shape or ())
    if other and shape and None not in shape:
        # Transformers are built for one size; some allow another.
        try:
            model = hub.models.Backbone.from_preset(
                preset, image_shape=input_shape
            )
        except Exception as error:
            _check_size(name, shape, input_shape, error)
            raise
    config = model.get_config() if hasattr(model, "use_mask_token") else {}
    return _with_own_size(model, config) if config else model


def _with_own_size(model: Any, config: dict[str, Any]) -> keras.Model:
    """A DINO that keeps its own image size instead of the pretraining's.

    On saving, KerasHub's model would resize its trained positions to the size
    of pretraining, and on loading back again, which does not restore them; see
    `freeze_positions`. It also has a token for masked patches, which is not
    trained.
    """
    config = {**config, "use_mask_token": False}
    if "position_embedding_shape" in config:
        config["position_embedding_shape"] = tuple(model.image_shape)
    again: keras.Model = type(model).from_config(config)
    weights = [v for v in model.weights if v.name != "mask_token"]
    positions = [v for v in weights if v.name.startswith("interpolated_")]
    again.set_weights(
        [
            (positions[0] if v.name == "position_embeddings" else v).numpy()
            for v in weights
        ]
    )
    return again


def _check_size(
    name: str, shape: Any, input_shape: Any, cause: Exception | None = None
) -> None:
    if input_shape is not None and tuple(input_shape) != tuple(shape):
        raise ValueError(
            f"`input_shape` of backbone={name!r} must be {tuple(shape)}, the "
            "size of its learned positions. Received: input_shape="
            f"{tuple(input_shape)}. Leave it out, or use a DINO or a "
            "convolutional network, which take any size."
        ) from cause


def image_tower(model: Any) -> keras.Model:
    """The image tower of CLIP, SigLIP and the like, with both outputs."""
    tower = model.vision_encoder
    images, sequence = tower.inputs[0], tower.outputs[0]
    if len(sequence.shape) == 2:
        # SigLIP's tower ends with a learned pooling of the tokens. It reports
        # one token more than there are.
        tokens = tower.post_layer_norm.output
        patches = (images.shape[1] // tower.patch_size) ** 2
        outputs = {SEQUENCE: tokens[:, :patches], POOLED: sequence}
        return _tower(images, outputs, tower)
    pooled = model.vision_projection(model.vision_pooler(sequence))
    return _tower(images, {SEQUENCE: sequence, POOLED: pooled}, tower)


def _tower(images: Any, outputs: dict[str, Any], tower: Any) -> keras.Model:
    model = keras.Model(images, outputs, name=tower.name)
    model.patch_size = tower.patch_size
    return model


def _preprocessing(preset: str, name: str) -> keras.layers.Layer:
    """The layer that converts pixels to inputs of a KerasHub preset."""
    hub = import_extra(f"backbone={name!r}", "keras_hub", "keras-hub")
    numbers, cause = None, None
    try:
        converter = hub.layers.ImageConverter.from_preset(preset)
        if converter is not None:
            numbers = converter.scale, converter.offset
        elif preset.startswith("hf://"):
            # KerasHub converts the weights of a checkpoint of transformers,
            # but not its preprocessing.
            hugging_face = importlib.import_module("huggingface_hub")
            path = hugging_face.hf_hub_download(
                preset.removeprefix("hf://"), "preprocessor_config.json"
            )
            with open(path, encoding="utf-8") as file:
                config = json.load(file)
            factor = config.get("rescale_factor", 1 / 255)
            deviations = config["image_std"]
            pairs = zip(config["image_mean"], deviations, strict=True)
            numbers = (
                [factor / s for s in deviations],
                [-m / s for m, s in pairs],
            )
    except Exception as error:
        cause = error
    if numbers is None:
        raise ValueError(
            "A KerasHub preset must specify the preprocessing of its images. "
            f"Received: backbone={name!r}, which does not contain an image "
            "converter. Add one with `ImageConverter.save_to_preset`, or load "
            "the model yourself and use `backbones.with_preprocessing(model, "
            "layer)`."
        ) from cause
    scale, offset = numbers
    return keras.layers.Rescaling(
        1.0 if scale is None else scale,
        0.0 if offset is None else offset,
        # Half precision would round the pixels.
        dtype="float32",
        name="preprocessing",
    )


def _from_keras_cv(preset: str, name: str) -> keras.Model:
    models = import_extra(f"backbone={name!r}", "keras_cv", "keras-cv").models
    kinds: list[Any] = [
        kind
        for kind in vars(models).values()
        if isinstance(kind, type) and issubclass(kind, models.Backbone)
    ]
    owner = next((x for x in kinds if preset in x.presets), models.Backbone)
    backbone = _load(owner, preset, name)
    if not getattr(backbone, "include_rescaling", False):
        raise ValueError(
            "A KerasCV preset must include its preprocessing, with "
            f"include_rescaling=True. Received: backbone={name!r}, which "
            "does not. Use `backbones.with_preprocessing(model, layer)` with "
            "the layer that its weights expect."
        )
    return backbone


def _load(kind: Any, preset: str, name: str) -> keras.Model:
    try:
        return kind.from_preset(preset)
    except Exception as error:
        raise ValueError(
            "`backbone` must be a preset that its library can load. "
            f"Received: backbone={name!r}, which fails: {error}"
        ) from error


def with_preprocessing(
    backbone: keras.Model,
    preprocessing: keras.layers.Layer,
    input_shape: tuple[int, int, int] | None = None,
) -> keras.Model:
    """A copy of a backbone that includes the preprocessing of its images.

    The layers of the backbone are layers of the copy, with the same names, so
    that it can still be cut, frozen and saved.

    Args:
        backbone: A functional model with one input. It does not change.
        preprocessing: A layer without weights that converts pixels from 0 to
            255 to inputs of the backbone. For torchvision's ImageNet weights,
            it is `keras.layers.Rescaling(scale=[1 / 255 / s for s in std],
            offset=[-m / s for m, s in zip(mean, std)])`.
        input_shape: (H, W, C) of the images; by default, the backbone's.

    Returns:
        A functional model that returns the backbone's features of raw images.
    """
    backbone = single_output(backbone)
    shape = input_shape or backbone.inputs[0].shape[1:]
    images = keras.Input(shape, name="image")
    preprocessed = preprocessing(images)

    def call(layer: Any, *args: Any, **kwargs: Any) -> Tensor:
        args = keras.tree.map_structure(
            lambda x: preprocessed if x is images else x, args
        )
        return layer(*args, **kwargs)

    copy = copy_model(backbone, inputs=images, call_function=call)
    return keras.Model(images, copy.outputs[0], name=backbone.name)
