"""`get`: a backbone by name, from a `.keras` file, or given as a model."""

import os

import keras

from keras_dml.backbones import applications, presets
from keras_dml.backbones.convert import load_weights
from keras_dml.backbones.networks import BACKBONES, with_weights
from keras_dml.backbones.splitting import lower_part
from keras_dml.layers import FrozenBatchNormalization
from keras_dml.utils.arguments import did_you_mean
from keras_dml.utils.model_copy import copy_model


def get(
    backbone: str | os.PathLike[str] | keras.Model,
    *,
    input_shape: tuple[int, int, int] | None = None,
    weights: str | None = None,
    freeze_batch_norm: bool = False,
    freeze_until: str | None = None,
) -> keras.Model:
    """A backbone: a Keras model from raw images to features.

    Preprocessing belongs to the weights, so it is part of the backbone:
    every backbone takes pixels in 0 to 255.

    Args:
        backbone: "small_convnet", "googlenet", "torchvision_googlenet",
            "bn_inception", the name of a network of `keras.applications`
            ("resnet50"), a preset of KerasHub
            ("hf://timm/resnet50.tv_in1k", "keras_hub:resnet_50_imagenet",
            "keras_hub:a/folder") or KerasCV
            ("keras_cv:resnet50_imagenet"), the path of a `.keras` file, or
            a functional Keras model.
        input_shape: (H, W, C) of the images. By default what the network
            has: (48, 48, 1) for "small_convnet", else (224, 224, 3).
            Presets mostly take any size, and need one here.
        weights: None (random); for a name of `keras.applications`
            "imagenet" or the path of a weights file; for the GoogLeNets and
            "bn_inception" a path, see `convert.load_weights`. A preset
            comes with its weights.
        freeze_batch_norm: Whether batch normalization keeps its moving
            statistics while its gamma and beta still train.
        freeze_until: Name of a layer: it and all that it depends on do not
            train.

    Returns:
        A functional model, (B, H, W, C) → (B, h, w, C') or (B, C').

    Raises:
        ImportError: If the library of a preset is not installed.
        ValueError: If the name is unknown, if the file holds no backbone,
            if the preset cannot be loaded, if the model's input is not one
            batch of images of known size, if `weights` is given where it
            has no meaning, or if `freeze_until` is no layer.
        FileNotFoundError: If a path to a `.keras` file does not exist.
    """
    model = _find(backbone, input_shape, weights)
    _check(model, backbone)
    if input_shape and tuple(model.input_shape[1:]) != tuple(input_shape):
        model = _with_input_shape(model, input_shape)
    if None in model.input_shape[1:]:
        raise ValueError(
            "`input_shape` must be given for a backbone that takes images "
            f"of any size. Received: input_shape={input_shape}, and "
            f"{_describe(backbone)} takes {model.input_shape}. Use for "
            "instance input_shape=(224, 224, 3)."
        )
    if freeze_batch_norm:
        model = _with_frozen_batch_norm(model)
    if freeze_until is not None:
        model = _with_input_shape(model, model.input_shape[1:])
        for layer in lower_part(model, freeze_until).layers:
            layer.trainable = False
    return model


def _find(
    backbone: str | os.PathLike[str] | keras.Model,
    input_shape: tuple[int, int, int] | None,
    weights: str | None,
) -> keras.Model:
    name = backbone.lower() if isinstance(backbone, str) else ""
    networks = applications.networks()
    if weights is not None and name not in (*with_weights(), *networks):
        raise ValueError(
            "`weights` is for backbones of keras.applications and for "
            f"{with_weights()}. Received: weights={weights!r} with "
            f"{_describe(backbone)}. Leave it out."
        )
    if name in BACKBONES:
        build = BACKBONES[name].value
        model = build() if input_shape is None else build(input_shape)
        if weights is not None:
            load_weights(model, weights)
        return model
    if name in networks:
        return applications.build(name, input_shape, weights)
    if isinstance(backbone, str) and presets.is_preset(backbone):
        return presets.build(backbone, input_shape)
    if isinstance(backbone, keras.Model):
        return backbone
    return _load(os.fspath(backbone))


def _load(path: str) -> keras.Model:
    if not path.endswith(".keras"):
        names = [*BACKBONES, *applications.networks()]
        hint = did_you_mean(path.lower(), names)
        raise ValueError(
            f"`backbone` must be one of {tuple(BACKBONES)}, a network of "
            "keras.applications, a preset "
            '("hf://…", "keras_hub:…", "keras_cv:…"), the path of a .keras '
            f"file, or a Keras model. Received: backbone={path!r}.{hint}"
        )
    if not os.path.exists(path):
        raise FileNotFoundError(
            f"`backbone` names a .keras file that does not exist: {path!r}."
        )
    try:
        return keras.models.load_model(path, compile=False)
    except Exception as error:
        raise ValueError(
            "`backbone` must be a .keras file that holds a Keras model. "
            f"Received: backbone={path!r}, which Keras cannot load: {error}"
        ) from error


def _check(model: keras.Model, backbone: object) -> None:
    inputs = getattr(model, "inputs", None) or []
    outputs = getattr(model, "outputs", None) or []
    received = [x.shape for x in inputs]
    returned = [x.shape for x in outputs]
    ranks = [len(x) for x in received], [len(x) for x in returned]
    if ranks not in (([4], [2]), ([4], [4])):
        raise ValueError(
            "`backbone` must be a functional model from one batch of images "
            "(B, H, W, C) to a feature map (B, h, w, C) or features (B, C). "
            f"Received: {_describe(backbone)} with inputs {received} and "
            f"outputs {returned}."
        )


def _with_input_shape(
    backbone: keras.Model, input_shape: tuple[int, int, int]
) -> keras.Model:
    return copy_model(backbone, inputs=keras.Input(input_shape, name="image"))


def _with_frozen_batch_norm(backbone: keras.Model) -> keras.Model:
    def frozen(layer: keras.layers.Layer) -> keras.layers.Layer:
        kind = type(layer)
        if isinstance(layer, keras.layers.BatchNormalization):
            kind = FrozenBatchNormalization
        return kind.from_config(layer.get_config())

    copy = keras.models.clone_model(
        backbone, clone_function=frozen, recursive=True
    )
    copy.set_weights(backbone.get_weights())
    return copy


def _describe(backbone: object) -> str:
    if isinstance(backbone, keras.Model):
        return f"the model {backbone.name!r}"
    return f"backbone={backbone!r}"
