"""Splitting a functional backbone, and copies of it with other layers."""

from collections import Counter
from typing import Any

import keras
from keras import layers

from keras_dml.utils.arguments import did_you_mean
from keras_dml.utils.model_copy import copy_model
from keras_dml.utils.types import Tensor

POOLS = (layers.AveragePooling2D, layers.MaxPooling2D)
CONVOLUTIONS = (layers.Conv2D, layers.DepthwiseConv2D, layers.SeparableConv2D)


def lower_part(backbone: keras.Model, last: str) -> keras.Model:
    """The backbone up to a layer; it shares the backbone's layers.

    Args:
        backbone: A functional model.
        last: Name of the layer whose output is the output.

    Raises:
        ValueError: If there is no such layer.
    """
    output = _output(backbone, last)
    inputs = backbone.inputs[0] if len(backbone.inputs) == 1 else backbone.input
    return keras.Model(inputs, output, name=backbone.name)


def cut_points(backbone: keras.Model) -> list[str]:
    """Layers that all connections pass through, from below to above.

    At these a backbone can be cut. Left out are those below which, or above
    which, nothing has weights.

    Args:
        backbone: A functional model.
    """
    depths = sorted(backbone._nodes_by_depth.items(), reverse=True)
    nodes = [node for _, at in depths for node in at if node.input_tensors]
    open_ends = [id(x) for node in nodes for x in node.input_tensors]
    open_ends += [id(x) for x in backbone.outputs]
    uses = Counter(open_ends)
    alive = {id(x) for x in backbone.inputs}
    weighty = [bool(getattr(node.operation, "weights", ())) for node in nodes]
    found = []
    for i, node in enumerate(nodes):
        alive |= {id(x) for x in node.output_tensors}
        for x in node.input_tensors:
            uses[id(x)] -= 1
        alive = {x for x in alive if uses[x] > 0}
        is_cut = alive == {id(x) for x in node.output_tensors}
        if is_cut and any(weighty[: i + 1]) and any(weighty[i + 1 :]):
            found.append(node.operation.name)
    return found


def copy_between(
    backbone: keras.Model, after: str, last: str | None = None
) -> keras.Model:
    """An independent copy of a piece of a backbone, with its weights.

    Args:
        backbone: A functional model. It is left as it is.
        after: Name of the layer whose output is the piece's input.
        last: Name of the layer whose output is the piece's output; by
            default the backbone's output.

    Returns:
        A functional model whose layers have the names that they have in
        the backbone.

    Raises:
        ValueError: If there is no such layer, or if a connection leads
            past `after`, into the piece, from below.
    """
    # A cut adds nodes to the layers above it, so a copy is cut.
    copy = copy_model(backbone)
    start = _output(copy, after)
    end = copy.outputs[0] if last is None else _output(copy, last)
    try:
        piece = keras.Model(start, end, name=backbone.name)
    except ValueError as error:
        raise ValueError(
            f"A backbone can be cut at a layer that all connections pass "
            f"through. Received: layer {after!r} of {backbone.name!r}, past "
            f"which some lead to {last or 'the output'!r}, or from which "
            "none does. Use a layer between two blocks."
        ) from error
    # The copy has an input of its own in place of the cut tensor.
    return copy_model(piece)


def without_downsampling(model: keras.Model) -> keras.Model:
    """A copy that keeps the height and width of its input.

    Pooling with strides is left out. Convolutions with strides get strides
    of 1 and "same" padding, and the explicit padding that strided layers
    have before them is left out. Weights are copied. The same goes for
    layers of a `Sequential` block, except for padding.

    Args:
        model: A functional model, as `copy_between` returns it. It is left
            as it is.
    """
    changed: set[int] = set()
    unpadded: dict[int, Tensor] = {}

    def without_strides(layer: keras.layers.Layer) -> keras.layers.Layer:
        if isinstance(layer, keras.Sequential):
            # Made anew without the shapes that it was built for.
            return keras.Sequential(
                [without_strides(x) for x in layer.layers], name=layer.name
            )
        config = layer.get_config()
        again = type(layer).from_config
        if _has_strides(layer, POOLS):
            copy = layers.Identity(
                name=layer.name, dtype=layer.dtype_policy.name
            )
        elif _has_strides(layer, CONVOLUTIONS):
            copy = again({**config, "strides": 1, "padding": "same"})
        else:
            return again(config)
        changed.add(id(copy))
        return copy

    def call(layer: Any, *args: Any, **kwargs: Any) -> Tensor:
        if id(layer) in changed:
            args = tuple(unpadded.get(id(x), x) for x in args)
        outputs = layer(*args, **kwargs)
        if isinstance(layer, layers.ZeroPadding2D):
            unpadded[id(outputs)] = args[0]
        return outputs

    return copy_model(model, without_strides, call_function=call)


def _has_strides(layer: Any, kinds: tuple[Any, ...]) -> bool:
    return isinstance(layer, kinds) and max(layer.strides) > 1


def _output(backbone: keras.Model, name: str) -> keras.KerasTensor:
    known = [layer.name for layer in backbone.layers]
    if name in known:
        return backbone.get_layer(name).output
    hint = did_you_mean(name, known)
    raise ValueError(
        f"There is no layer {name!r} in the backbone {backbone.name!r}.{hint}"
        f" Its layers: {', '.join(known)}."
    )
