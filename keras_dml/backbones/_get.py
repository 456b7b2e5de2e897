"""`get`: a backbone by name, from a `.keras` file, or from a model."""

import inspect
import os
from typing import Annotated, Any

import keras
from annotated_types import Ge, Le

from keras_dml.backbones import presets
from keras_dml.backbones.convert import load_weights
from keras_dml.backbones.networks import (
    BACKBONES,
    application,
    applications,
    with_weights,
)
from keras_dml.backbones.tokens import image_shape, single_output
from keras_dml.layers import FrozenBatchNormalization
from keras_dml.model.embedding_model import EmbeddingModel, freeze_positions
from keras_dml.utils.arguments import check_count, check_type, did_you_mean
from keras_dml.utils.models import copy_model, lower_part, why_unreadable
from keras_dml.utils.types import Config, Positive, Units

_Sides = tuple[Units | None, ...]
InputShape = _Sides | dict[str, _Sides]
"""Shape of one example, or of each input by name."""


def get(
    backbone: str | os.PathLike[str] | keras.Model,
    *,
    input_shape: InputShape | None = None,
    weights: str | None = None,
    width: Positive = 1.0,
    output: str | None = None,
    num_prefix_tokens: Annotated[int, Ge(0), Le(2**16)] | None = None,
    freeze_batch_norm: bool = False,
    freeze_until: str | None = None,
    freeze: bool = False,
) -> keras.Model:
    """A backbone: a Keras model from raw examples to features.

    Preprocessing belongs to the weights, so it is part of the backbone.
    Backbones that are given by name take images with pixels from 0 to 255.
    Models keep their own inputs: images, vectors, token ids, or a dict of
    several inputs.

    Args:
        backbone: "small_convnet", "googlenet", "torchvision_googlenet",
            "bn_inception", the name of a network of `keras.applications`
            ("resnet50"), a preset of KerasHub
            ("hf://timm/resnet50.tv_in1k", "keras_hub:dinov2_small",
            "keras_hub:a/folder") or KerasCV
            ("keras_cv:resnet50_imagenet"), the path of a `.keras` file, or
            a Keras model: functional, sequential, or a subclass.
        input_shape: (H, W, C) of the images. The default depends on the
            network: (48, 48, 1) for "small_convnet", otherwise (224, 224, 3).
            It is required for most presets, which take images of any size. A
            subclassed model that has not been built requires the shape of an
            example, or a dict of shapes by input.
        weights: None for random weights; "imagenet" or the path of a weights
            file for networks of `keras.applications`; a path for the GoogLeNets
            and "bn_inception", see `convert.load_weights`. Presets include
            their weights.
        width: For "small_convnet", a factor for the channels of all layers. K
            networks of width 1/√K have about as many weights as one.
        output: Name of a layer: its output are the features, and the layers
            above it are left out. For an encoder that returns a dict, the name
            of the features in it: by default "sequence_output", the tokens,
            which a head pools; "pooled_output" is pooled by the encoder.
        num_prefix_tokens: Number of leading tokens that are not patches of the
            image, see `layers.TokenMask`. It is detected for KerasHub's vision
            transformers, and 0 for other models.
        freeze_batch_norm: Whether batch normalization keeps its moving
            statistics while its gamma and beta are trained.
        freeze_until: Name of the layer up to which to freeze the backbone: this
            layer and all layers that it depends on.
        freeze: Whether to freeze the whole backbone. It then runs in inference
            mode, even in training; `backbones.features` computes its outputs
            only once.

    Returns:
        A functional model that returns features (B, C), (B, h, w, C) or
        (B, T, C). A Keras mask of the latter marks the tokens to use.

    Raises:
        ImportError: If the library of a preset is not installed.
        ValueError: If the name is unknown; the file does not contain a
            backbone; the preset cannot be loaded; the model's inputs are not
            known, or its features have a different shape; `weights`, `width`,
            `output` or `num_prefix_tokens` does not apply; or `freeze_until` is
            not a layer.
        FileNotFoundError: If a path to a `.keras` file does not exist.
    """
    if num_prefix_tokens is not None:
        check_count(
            "backbones.get", "num_prefix_tokens", num_prefix_tokens, minimum=0
        )
    options = _width_option(backbone, width)
    if isinstance(backbone, str) and backbone.startswith(presets.PREFIXES):
        _check_weights(weights, backbone, ())
        model = presets.build(backbone, input_shape, output, num_prefix_tokens)
    else:
        network = _find(backbone, input_shape, weights, options)
        if isinstance(network, EmbeddingModel):
            raise ValueError(
                "`backbone` must be a model without a head. Received: a "
                f"{type(network).__name__}, {_describe(backbone)}. Use its "
                "`backbone`, for another head and loss; to train it further, "
                "compile and fit it as it is."
            )
        model = _functional(network, input_shape)
        if hasattr(model, "vision_encoder"):  # KerasHub's CLIP and the like.
            model = presets.image_tower(model)
        model = single_output(model, output, num_prefix_tokens)
    _check(model, backbone)
    if input_shape and _shapes(model) != _as_shapes(input_shape, model):
        model = _with_input_shape(model, input_shape)
    image = image_shape(model)
    if image and None in image[1:]:
        raise ValueError(
            "`input_shape` must be given for a backbone that takes images "
            f"of any size. Received: input_shape={input_shape}, but "
            f"{_describe(backbone)} takes {image}. Use for instance "
            "input_shape=(224, 224, 3)."
        )
    if freeze_batch_norm:
        model = _with_frozen_batch_norm(model)
    if freeze_until is not None or freeze:
        model = _copy(model)
    if freeze_until is not None:
        _freeze_until(model, freeze_until, output)
    if freeze:
        model.trainable = False
    freeze_positions(model)
    return model


def _find(
    backbone: str | os.PathLike[str] | keras.Model,
    input_shape: Any,
    weights: str | None,
    options: Config,
) -> keras.Model:
    name = backbone.lower() if isinstance(backbone, str) else ""
    networks = applications()
    if name not in networks:
        _check_weights(weights, backbone, with_weights())
    if name in BACKBONES:
        build = BACKBONES[name].value
        shapes = () if input_shape is None else (input_shape,)
        model = build(*shapes, **options)
        if weights is not None:
            load_weights(model, weights)
        return model
    if name in networks:
        return application(name, input_shape, weights)
    if isinstance(backbone, keras.Model):
        return backbone
    if not isinstance(backbone, str | os.PathLike):
        raise ValueError(
            "`backbone` must be a name, the path of a .keras file, or a "
            f"Keras model. Received: backbone={backbone!r}. Wrap layers in "
            "keras.Sequential."
        )
    return _load(os.fspath(backbone))


def _check_weights(
    weights: str | None, backbone: Any, supported: tuple[str, ...]
) -> None:
    name = backbone.lower() if isinstance(backbone, str) else ""
    if weights is not None and name not in supported:
        raise ValueError(
            "`weights` must only be given for backbones of keras.applications "
            f"and for {with_weights()}. Received: weights={weights!r} with "
            f"{_describe(backbone)}. Leave it out."
        )


def _width_option(backbone: Any, width: float) -> Config:
    """The argument `width` of a network, unless it is the default."""
    check_type("backbones.get", "width", width, Positive)
    if width == 1:
        return {}
    accepting = [
        name
        for name, entry in BACKBONES.items()
        if "width" in inspect.signature(entry.value).parameters
    ]
    name = backbone.lower() if isinstance(backbone, str) else ""
    if name not in accepting:
        raise ValueError(
            f"`width` of backbones.get must be 1 for backbones other than "
            f"{tuple(accepting)}. Received: width={width} with "
            f"{_describe(backbone)}. Omit it."
        )
    return {"width": width}


def _load(path: str) -> keras.Model:
    if not path.endswith(".keras"):
        names = [*BACKBONES, *applications()]
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
            "`backbone` must be a .keras file that contains a Keras model. "
            f"Received: backbone={path!r}, which Keras cannot load. "
            f"{why_unreadable(path, error)}"
        ) from error


def _functional(
    model: keras.Model, input_shape: InputShape | None
) -> keras.Model:
    """A model as a functional model; a subclass is called on inputs."""
    if getattr(model, "inputs", None):
        return model
    shape = input_shape
    if shape is None and model.built:
        shape = (model.get_build_config() or {}).get("input_shape")
        if isinstance(shape, dict):
            shape = {name: tuple(x)[1:] for name, x in shape.items()}
        elif shape is not None:
            shape = tuple(shape)[1:]
    if shape is None:
        raise ValueError(
            "`input_shape` must be given for a model that has not been built, "
            "because its inputs are not known. Received: input_shape="
            f"None for the model {model.name!r}. Use backbones.get(model, "
            "input_shape=…) with the shape of one example, (height, width, "
            'channels), (10,) or {"a": (10,)}; or call the model once.'
        )
    if isinstance(shape, dict):
        inputs: Any = {k: keras.Input(x, name=k) for k, x in shape.items()}
    else:
        inputs = keras.Input(shape, name="inputs")
    try:
        outputs = model(inputs)
    except Exception as error:
        raise ValueError(
            "`input_shape` must be the shape of one example for the model. "
            f"Received: input_shape={shape}, for which {model.name!r} fails: "
            f"{error}"
        ) from error
    return keras.Model(inputs, outputs, name=model.name)


def _freeze_until(
    model: keras.Model, freeze_until: str, output: str | None
) -> None:
    try:
        for layer in lower_part(model, freeze_until).layers:
            layer.trainable = False
    except ValueError as error:
        cut = "" if output is None else ", without those above its `output`"
        received = "" if output is None else f", output={output!r}"
        raise ValueError(
            f"`freeze_until` must be a layer of the backbone{cut}. Received: "
            f"freeze_until={freeze_until!r}{received}. {error}"
        ) from error


def _check(model: keras.Model, backbone: object) -> None:
    (features,) = model.outputs
    channels = features.shape[-1]
    if len(features.shape) in (2, 3, 4) and channels is not None:
        return
    raise ValueError(
        "`backbone` must return features (B, C), a feature map (B, h, w, C) "
        "or tokens (B, T, C), and C must be known. Received: "
        f"{_describe(backbone)} with inputs "
        f"{[tuple(x.shape) for x in model.inputs]} and output "
        f"{tuple(features.shape)}."
    )


def _shapes(model: keras.Model) -> list[tuple[int | None, ...]]:
    return [tuple(x.shape[1:]) for x in model.inputs]


def _as_shapes(input_shape: InputShape, model: keras.Model) -> Any:
    """The given shapes, in the order of a model's inputs."""
    if not isinstance(input_shape, dict):
        return [tuple(input_shape)]
    shapes = dict(input_shape)
    ordered = [shapes.pop(x.name, None) for x in model.inputs]
    if shapes or None in ordered:
        raise ValueError(
            "`input_shape` must have a shape for every input of the "
            f"backbone, {[x.name for x in model.inputs]}. Received: "
            f"input_shape={input_shape}."
        )
    return [tuple(x) for x in ordered if x is not None]


def _with_input_shape(
    backbone: keras.Model, input_shape: InputShape
) -> keras.Model:
    if len(backbone.inputs) > 1:
        raise ValueError(
            "`input_shape` must match the inputs of a backbone with several "
            f"inputs: {_shapes(backbone)}. Received: input_shape="
            f"{input_shape}. Leave it out."
        )
    (shape,) = _as_shapes(input_shape, backbone)
    old_input = backbone.inputs[0]
    name = "image" if len(shape) == 3 else old_input.name
    inputs = keras.Input(shape, dtype=old_input.dtype, name=name)
    try:
        return copy_model(backbone, inputs=inputs)
    except ValueError as error:
        raise ValueError(
            f"`input_shape` must be one that {backbone.name!r} takes. "
            f"Received: input_shape={input_shape}, but its own shape is "
            f"{tuple(old_input.shape[1:])}: {error}"
        ) from error


def _copy(backbone: keras.Model) -> keras.Model:
    """A copy whose layers can be frozen without affecting the given model."""
    if len(backbone.inputs) > 1:
        return copy_model(backbone)
    return _with_input_shape(backbone, tuple(backbone.inputs[0].shape[1:]))


def _with_frozen_batch_norm(backbone: keras.Model) -> keras.Model:
    def freeze(layer: keras.layers.Layer) -> keras.layers.Layer:
        kind = type(layer)
        if isinstance(layer, keras.layers.BatchNormalization):
            kind = FrozenBatchNormalization
        return kind.from_config(layer.get_config())

    copy = keras.models.clone_model(
        backbone, clone_function=freeze, recursive=True
    )
    copy.set_weights(backbone.get_weights())
    return copy


def _describe(backbone: object) -> str:
    if isinstance(backbone, keras.Model):
        return f"the model {backbone.name!r}"
    return f"backbone={backbone!r}"
