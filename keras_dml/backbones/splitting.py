"""Splitting functional backbones, and copying them with other layers."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import keras
from keras import layers

from keras_dml.layers import FeaturePooling
from keras_dml.utils.models import copy_model, input_like, upper_part
from keras_dml.utils.models import lower_part as lower_part
from keras_dml.utils.types import Pooling, Tensor

POOLS = (layers.AveragePooling2D, layers.MaxPooling2D)
CONVOLUTIONS = (layers.Conv2D, layers.DepthwiseConv2D, layers.SeparableConv2D)


def cut_points(backbone: keras.Model) -> list[str]:
    """Names of the layers at which a backbone can be cut, in their order.

    All connections from input to output pass through such a layer. There are
    weights in it or before it, and weights after it.

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
    names = []
    for i, node in enumerate(nodes):
        alive |= {id(x) for x in node.output_tensors}
        for x in node.input_tensors:
            uses[id(x)] -= 1
        alive = {x for x in alive if uses[x] > 0}
        is_cut = alive == {id(x) for x in node.output_tensors}
        if is_cut and any(weighty[: i + 1]) and any(weighty[i + 1 :]):
            names.append(node.operation.name)
    return names


def copy_between(
    backbone: keras.Model, after: str, last: str | None = None
) -> keras.Model:
    """An independent copy of a part of a backbone, with its weights.

    Args:
        backbone: A functional model. It does not change.
        after: Name of the layer whose output is the input of the part.
        last: Name of the layer whose output is the output of the part; by
            default, the backbone's output.

    Returns:
        A functional model whose layers have the same names as in the backbone.

    Raises:
        ValueError: If there is no such layer, or if a connection into the part
            bypasses `after`.
    """
    # A cut adds nodes to the layers above it, so a copy is cut.
    piece = upper_part(copy_model(backbone), after, last)
    # The copy has its own input instead of the cut tensor.
    return copy_model(piece)


def without_downsampling(model: keras.Model) -> keras.Model:
    """A copy that keeps the height and width of its input.

    Strided pooling is removed. Strided convolutions get strides of 1 and "same"
    padding, and explicit padding before strided layers is removed. Weights are
    copied. Layers inside `Sequential` blocks change in the same way, except
    that explicit padding stays.

    Args:
        model: A functional model, as returned by `copy_between`. It does not
            change.
    """
    changed: set[int] = set()
    unpadded: dict[int, Tensor] = {}

    def without_strides(layer: keras.layers.Layer) -> keras.layers.Layer:
        if isinstance(layer, keras.Sequential):
            # A new block does not remember the shapes of the old one.
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


def side_by_side(
    models: Sequence[keras.Model], name: str, pooling: Pooling | None = None
) -> keras.Model:
    """One model that returns the features of several models.

    The models keep their layers and weights, and are not connected to each
    other.

    Args:
        models: Functional or sequential models with different names that take
            the same inputs.
        name: Name of the new model.
        pooling: How to pool the features of each model; see
            `layers.FeaturePooling`, whose weights are not shared. None keeps
            the features, whose shapes may then differ only in the channels.

    Returns:
        A functional model. Its features are those of the models, concatenated
        along the channels: (B, …, K·C).
    """
    first = models[0]
    is_sequential = isinstance(first, keras.Sequential)
    structure = first.inputs[0] if is_sequential else first.input
    inputs = keras.tree.map_structure(input_like, structure)
    features = []
    for k, model in enumerate(models):
        x = model(inputs)
        if pooling is not None:
            x = FeaturePooling(pooling, name=f"pool_{k}")(x)
        features.append(x)
    outputs = keras.layers.Concatenate(name="side_by_side")(features)
    return keras.Model(inputs, outputs, name=name)
