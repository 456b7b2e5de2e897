"""Outputs of encoders: selecting one, and masking its tokens."""

import keras

from keras_dml.backbones.splitting import cut_points
from keras_dml.layers import TokenMask
from keras_dml.utils.registry import check_known
from keras_dml.utils.types import Shape

SEQUENCE, POOLED, PADDING = "sequence_output", "pooled_output", "padding_mask"
"""KerasHub's names of encoder outputs and of an input."""


def single_output(
    model: keras.Model,
    output: str | None = None,
    num_prefix_tokens: int | None = None,
) -> keras.Model:
    """A functional model with a single output, whose tokens have a mask.

    Args:
        model: A functional model. It does not change.
        output: Name of the output in a dict. By default, "sequence_output",
            "pooled_output", or the only one. For a model without a dict, the
            name of a layer whose output to take.
        num_prefix_tokens: As for `TokenMask`. By default, that of KerasHub's
            vision transformers, and 0 for other models.

    Returns:
        The model itself if nothing needs to change, and otherwise a model that
        shares its layers. A model of a custom class that cannot be cut into
        blocks becomes a single layer, because its class can be saved,
        whereas its layers might not.
    """
    patch_size = getattr(model, "patch_size", None)
    is_custom = not type(model).__module__.startswith("keras.")
    ranks = [len(x.shape) for x in model.outputs]
    if is_custom and ranks == [3] and len(cut_points(model)) < 2:
        inputs = keras.tree.map_structure(
            lambda x: keras.Input(
                batch_shape=x.shape, dtype=x.dtype, name=x.name
            ),
            model.input,
        )
        model = keras.Model(inputs, model(inputs), name=model.name)
    features = _select_output(model, output)
    is_sequence = len(features.shape) == 3
    if num_prefix_tokens is not None and not is_sequence:
        raise ValueError(
            "`num_prefix_tokens` must only be given for backbones whose "
            "features are tokens, (B, T, C). Received: num_prefix_tokens="
            f"{num_prefix_tokens}, but {model.name!r} returns features of "
            f"shape {features.shape}. Leave it out."
        )
    marked = features
    if is_sequence:
        marked = _with_mask(model, features, num_prefix_tokens, patch_size)
    if isinstance(model, keras.Sequential):
        inputs, is_dict = model.inputs[0], False
    else:
        # A dict of one input would require inputs to be a dict.
        is_one = len(model.inputs) == 1
        inputs = model.inputs[0] if is_one else model.input
        is_dict = is_one and isinstance(model.input, dict)
    if len(model.outputs) == 1 and marked is model.outputs[0] and not is_dict:
        return model
    return keras.Model(inputs, marked, name=model.name)


def image_shape(model: keras.Model) -> Shape | None:
    """(None, H, W, C) if a model takes one batch of images, else None."""
    shapes = [tuple(x.shape) for x in model.inputs]
    return shapes[0] if len(shapes) == 1 and len(shapes[0]) == 4 else None


def patch_grid(
    num_patches: int | None, height: int | None, width: int | None
) -> tuple[int, int] | None:
    """The grid, (h, w), that divides an image into square patches, if any.

    `patch_grid(196, 224, 224)` is (14, 14).
    """
    if num_patches is None or height is None or width is None:
        return None
    for h in range(1, num_patches + 1):
        w, rest = divmod(num_patches, h)
        if not rest and height % h == 0 and height // h * w == width:
            return h, w
    return None


def _select_output(model: keras.Model, output: str | None) -> keras.KerasTensor:
    is_sequential = isinstance(model, keras.Sequential)
    outputs = model.outputs if is_sequential else model.output
    if isinstance(outputs, dict):
        if output is not None:
            check_known(f"`output` of {model.name!r}", output, outputs)
            return outputs[output]
        for name in (SEQUENCE, POOLED, *outputs):
            is_default = len(outputs) == 1 or name in (SEQUENCE, POOLED)
            if name in outputs and is_default:
                return outputs[name]
        raise ValueError(
            f"`output` must name one of the outputs of {model.name!r}, "
            f"{tuple(outputs)}. Received: output=None. Use output="
            f"{next(iter(outputs))!r}, or another."
        )
    if output is not None:
        layers = [layer.name for layer in model.layers]
        check_known(f"`output` of {model.name!r}", output, layers)
        chosen = model.get_layer(output).output
        if isinstance(chosen, keras.KerasTensor):
            return chosen
        raise ValueError(
            "`output` must name a layer with one output. Received: output="
            f"{output!r}, whose outputs are {chosen}. Name a layer "
            "after it, or use keras.Model to select one of them."
        )
    if len(model.outputs) != 1:
        shapes = [tuple(x.shape) for x in model.outputs]
        raise ValueError(
            "`backbone` must have one output, or a dict of them. Received: "
            f"{model.name!r} with outputs of shapes {shapes}. Use "
            "keras.Model(model.inputs, model.outputs[0])."
        )
    return model.outputs[0]


def _with_mask(
    model: keras.Model,
    tokens: keras.KerasTensor,
    num_prefix_tokens: int | None,
    patches: int | tuple[int, int] | None,
) -> keras.KerasTensor:
    marks = [x for x in model.layers if isinstance(x, TokenMask)]
    if marks:
        mark = marks[-1]
        if num_prefix_tokens in (None, mark.num_prefix_tokens):
            return tokens
        raise ValueError(
            "`num_prefix_tokens` must be that of the backbone's own TokenMask "
            f"layer, {mark.num_prefix_tokens}. Received: "
            f"num_prefix_tokens={num_prefix_tokens}, but {model.name!r} has "
            f"the layer {mark.name!r}. Leave it out, or use the network up to "
            "that layer."
        )
    image = image_shape(model)
    count = tokens.shape[1]
    grid = None
    if num_prefix_tokens is None and image and patches and count:
        # In KerasHub, tokens that are not patches come first.
        sides = (patches, patches) if isinstance(patches, int) else patches
        grid = (image[1] // sides[0], image[2] // sides[1])
        num_prefix_tokens = count - grid[0] * grid[1]
    prefix = num_prefix_tokens or 0
    if image and grid is None and count:
        grid = patch_grid(count - prefix, *image[1:3])
    padding = [
        x for x in model.inputs if x.name == PADDING and len(x.shape) == 2
    ]
    if not prefix and not padding:
        return tokens
    layer = TokenMask(prefix, grid, dtype=tokens.dtype, name="token_mask")
    return layer([tokens, padding[0]] if padding else tokens)
