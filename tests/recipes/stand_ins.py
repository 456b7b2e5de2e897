"""Stand-ins for archives and pretrained weights that recipes name."""

import dataclasses
from collections.abc import Callable
from functools import cache, partial, wraps
from typing import Any

import keras
import numpy as np
import pytest

from keras_dml import backbones, data


def stand_in(
    monkeypatch: pytest.MonkeyPatch, name: str, loader: Callable[..., Any]
) -> None:
    """Replaces a data set that recipes name."""
    entry = data.DATASETS[name]

    @wraps(entry.value)
    def load(**arguments: Any) -> Any:
        return loader(**arguments)

    entry = dataclasses.replace(entry, value=load)
    monkeypatch.setitem(data.DATASETS._entries, name, entry)


def noise() -> data.DataSplits:
    """Noise images in place of any data set, with groups where needed."""
    pixels = np.random.default_rng(0).integers(0, 256, (72, 40, 48, 3))
    labels = np.repeat(np.arange(12), 6)
    images = data.ImageSet(pixels.astype(np.uint8), labels)
    return data.DataSplits.by_class(
        images.with_groups({"subgroup": labels}), "noise"
    )


# Networks of random weights with the layers of those that are named.
WHOLE = {
    "hf://timm/resnet50.tv_in1k": keras.applications.ResNet50,
    "hf://timm/resnet18.tv_in1k": keras.applications.MobileNetV2,
    "efficientnet_lite0_imagenet.keras": keras.applications.EfficientNetB0,
    "network.keras": keras.applications.MobileNetV2,
    "hf://facebook/dino-vits16": keras.applications.ResNet50,
}
OURS = ("bn_inception", "torchvision_googlenet", "googlenet")
"""Large networks of the package, which need no stand-in."""


@cache
def backbone(
    name: str,
    *,
    whole: bool = False,
    input_shape: tuple[int, int, int] | None,
    weights: str | None,
    freeze_batch_norm: bool,
    freeze_until: str | None,
    output: str | None = None,
    **options: Any,
) -> keras.Model:
    """As `backbones.get`, without files and downloads; made once.

    Args:
        whole: Whether a network that would be loaded is as deep as that. If
            not, it has not the layers that a recipe names.
    """
    model: Any = name
    if name in WHOLE:
        make = partial(WHOLE[name], include_top=False, weights=None)
        small = small_vit if "vit" in name else small_resnet
        model = (make if whole else small)(input_shape=input_shape)
    elif name in OURS and not whole:
        model = small_resnet(input_shape)
    return backbones.get(
        model,
        input_shape=input_shape,
        freeze_batch_norm=freeze_batch_norm,
        freeze_until=freeze_until if whole else None,
        output=output if whole else None,
        **options,
    )


def small_resnet(input_shape: tuple[int, int, int] | None) -> keras.Model:
    """A residual network of two blocks with the channels of ResNet-50."""
    inputs = x = keras.Input(input_shape)
    for i, units in enumerate((8, 512)):
        conv = partial(keras.layers.Conv2D, padding="same", use_bias=False)
        shortcut = conv(4 * units, 1, strides=4, name=f"shortcut_{i}")(x)
        x = conv(units, 3, strides=4, name=f"conv_{i}")(x)
        x = keras.layers.BatchNormalization(name=f"bn_{i}")(x)
        x = keras.layers.ReLU(name=f"relu_{i}")(x)
        x = conv(4 * units, 1, name=f"expand_{i}")(x)
        x = keras.layers.Add(name=f"add_{i}")([x, shortcut])
    return keras.Model(inputs, x, name="small_resnet")


def small_vit(input_shape: tuple[int, int, int] | None) -> keras.Model:
    """Tokens of the channels of ViT-S, the first of which is the class."""
    inputs = keras.Input(input_shape)
    x = keras.layers.Conv2D(384, 16, strides=16, name="patches")(inputs)
    x = keras.layers.Reshape((-1, 384), name="tokens")(x)
    x = keras.layers.LayerNormalization(name="norm")(x)
    return keras.Model(inputs, x, name="small_vit")
