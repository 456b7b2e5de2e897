"""Branches of ABE: where it cuts a backbone, and what the pieces become."""

import keras
from keras import ops

from keras_dml.backbones import splitting
from keras_dml.backbones.networks import known_branches
from keras_dml.utils.model_copy import copy_model


def find_layer(backbone: keras.Model, argument: str, given: str | None) -> str:
    """The name of a layer at which to cut: the given one, or a known one.

    Args:
        backbone: The backbone.
        argument: "branch" or "attention_end".
        given: That argument of abe.

    Raises:
        ValueError: If it is neither given nor known.
    """
    if given is not None:
        return given
    known = known_branches()
    if backbone.name not in known:
        raise ValueError(
            f"`{argument}` of abe must name a layer of a backbone other than "
            f"{tuple(known)}. Received: {argument}=None with backbone "
            f"{backbone.name!r}. Use for instance the output of the second "
            "last stage as `branch` and of the last as `attention_end`; "
            "`[layer.name for layer in backbone.layers]` lists all names."
        )
    branch, attention_end = known[backbone.name]
    return branch if argument == "branch" else attention_end


def stacked_copies(lower: keras.Model, count: int, noise: float) -> keras.Model:
    """M copies of S, whose maps are stacked along the channels.

    Args:
        lower: S, a functional model, (B, H, W, C) → (B, h, w, C'). The
            first copy has its weights.
        count: Number of copies, M.
        noise: Standard deviation of the Gaussian noise on the kernels of
            all copies but the first, relative to that of each kernel.

    Returns:
        A functional model, (B, H, W, C) → (B, h, w, M·C').
    """
    inputs = keras.Input(
        batch_shape=lower.input_shape, dtype=lower.inputs[0].dtype, name="image"
    )
    maps = []
    for m in range(count):
        copy = copy_model(lower, name=f"tail_{m}")
        if m > 0:
            _add_noise(copy, noise)
        maps.append(copy(inputs))
    outputs = keras.layers.Concatenate(name="tails")(maps)
    return keras.Model(inputs, outputs, name=lower.name)


def _add_noise(model: keras.Model, noise: float) -> None:
    for variable in model.trainable_variables:
        if len(variable.shape) > 1:
            scale = noise * ops.std(variable)
            draw = keras.random.normal(variable.shape)
            variable.assign_add(scale * ops.cast(draw, variable.dtype))


def context_network(
    backbone: keras.Model, branch: str, attention_end: str | None
) -> keras.Model:
    """C: a copy of the blocks after the branching point, without pooling."""
    end = find_layer(backbone, "attention_end", attention_end)
    return splitting.without_downsampling(
        splitting.copy_between(backbone, branch, end)
    )
