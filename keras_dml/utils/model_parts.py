"""Parts of functional models, which share the layers of the model."""

import keras

from keras_dml.utils.arguments import did_you_mean


def lower_part(backbone: keras.Model, last: str) -> keras.Model:
    """The backbone up to a layer.

    Args:
        backbone: A functional model.
        last: Name of the layer whose output is the output.

    Raises:
        ValueError: If there is no such layer.
    """
    output = _output(backbone, last)
    inputs = backbone.inputs[0] if len(backbone.inputs) == 1 else backbone.input
    return keras.Model(inputs, output, name=backbone.name)


def upper_part(
    backbone: keras.Model, after: str, last: str | None = None
) -> keras.Model:
    """The backbone behind a layer.

    Args:
        backbone: A functional model.
        after: Name of the layer whose output is the input.
        last: Name of the layer whose output is the output; by default, the
            backbone's output.

    Raises:
        ValueError: If there is no such layer, or if a connection into the part
            bypasses `after`.
    """
    start = _output(backbone, after)
    end = backbone.outputs[0] if last is None else _output(backbone, last)
    try:
        return keras.Model(start, end, name=backbone.name)
    except ValueError as error:
        raise ValueError(
            "A backbone can only be cut at a layer that all connections pass "
            f"through. Received: layer {after!r} of {backbone.name!r}, but "
            f"some connections to {last or 'the output'!r} bypass it, or none "
            "lead there from it. Use a layer between two blocks."
        ) from error


def _output(backbone: keras.Model, name: str) -> keras.KerasTensor:
    known = [layer.name for layer in backbone.layers]
    if name in known:
        return backbone.get_layer(name).output
    hint = did_you_mean(name, known)
    raise ValueError(
        f"There is no layer {name!r} in the backbone {backbone.name!r}.{hint}"
        f" Its layers: {', '.join(known)}."
    )
