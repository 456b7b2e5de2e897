"""Backbones of KerasHub and KerasCV, by the names of their presets."""

import os
import re
from typing import Any

import keras

from keras_dml.backbones.splitting import with_preprocessing
from keras_dml.utils.arguments import import_extra

HUB = "keras_hub:"
CV = "keras_cv:"
HANDLES = ("hf://", "kaggle://", "modelscope://")


def is_preset(name: str) -> bool:
    """Whether a backbone's name is that of a preset."""
    return name.startswith((HUB, CV, *HANDLES))


def build(
    name: str, input_shape: tuple[int, int, int] | None = None
) -> keras.Model:
    """A backbone of KerasHub or KerasCV with the weights of a preset.

    Args:
        name: "keras_hub:" or "keras_cv:" and the name of a preset of that
            library, its handle, or a folder that holds one. A handle alone
            ("hf://timm/resnet50.tv_in1k") is KerasHub's.
        input_shape: (H, W, 3); by default what the preset has.

    Returns:
        A functional model, as of `get`. Preprocessing is its first layer.
    """
    preset = name.removeprefix(HUB).removeprefix(CV)
    if name.startswith(CV):
        model = _of_keras_cv(preset, name)
    else:
        model = _of_keras_hub(preset, name, input_shape)
    # As the preset is called, and not "res_net_backbone_3".
    model.name = re.sub(r"\W+", "_", os.path.basename(preset.rstrip("/")))
    return model


def _of_keras_hub(
    preset: str, name: str, input_shape: tuple[int, int, int] | None
) -> keras.Model:
    hub = import_extra(f"backbone={name!r}", "keras_hub", "keras-hub")
    backbone = _load(hub.models.Backbone, preset, name)
    converter, cause = None, None
    try:
        converter = hub.layers.ImageConverter.from_preset(preset)
    except Exception as error:
        cause = error
    if converter is None:
        raise ValueError(
            "A preset of KerasHub must say how its images are preprocessed. "
            f"Received: backbone={name!r}, which holds no image converter. "
            "Save one beside it (`ImageConverter.save_to_preset`), or load "
            "the model yourself and use `backbones.with_preprocessing(model, "
            "layer)`."
        ) from cause
    scale, offset = converter.scale, converter.offset
    rescaling = keras.layers.Rescaling(
        1.0 if scale is None else scale,
        0.0 if offset is None else offset,
        # Half precision would round the pixels.
        dtype="float32",
        name="preprocessing",
    )
    return with_preprocessing(backbone, rescaling, input_shape)


def _of_keras_cv(preset: str, name: str) -> keras.Model:
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
            "A preset of KerasCV must preprocess its images itself, with "
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
            "`backbone` must name a preset that its library can load. "
            f"Received: backbone={name!r}, which fails: {error}"
        ) from error
