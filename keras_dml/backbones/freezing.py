"""Copies of a backbone with frozen parts or another input shape."""

import keras

from keras_dml.backbones.splitting import lower_part
from keras_dml.layers import FrozenBatchNormalization
from keras_dml.utils.model_copy import copy_model


def freeze_batch_norm(backbone: keras.Model) -> keras.Model:
    """A copy whose batch normalization keeps its moving statistics.

    Gamma and beta still train.

    Args:
        backbone: A functional model. It is left as it is.

    Returns:
        A functional model with the same layer names and weights.
    """

    def frozen(layer: keras.layers.Layer) -> keras.layers.Layer:
        config = layer.get_config()
        if isinstance(layer, keras.layers.BatchNormalization):
            return FrozenBatchNormalization.from_config(config)
        return layer.__class__.from_config(config)

    copy = keras.models.clone_model(
        backbone, clone_function=frozen, recursive=True
    )
    copy.set_weights(backbone.get_weights())
    return copy


def freeze_until(backbone: keras.Model, last: str) -> keras.Model:
    """A copy that trains only above a layer.

    Nothing is differentiated below it, so that a step is faster, and what
    little data there are change only the upper layers.

    Args:
        backbone: A functional model. It is left as it is.
        last: Name of the layer that is frozen with all that it depends on.

    Returns:
        A functional model with the same layer names and weights.

    Raises:
        ValueError: If there is no such layer.
    """
    copy = with_input_shape(backbone, backbone.input_shape[1:])
    for layer in lower_part(copy, last).layers:
        layer.trainable = False
    return copy


def with_input_shape(
    backbone: keras.Model, input_shape: tuple[int, int, int]
) -> keras.Model:
    """A copy of a functional model that takes images of another size."""
    return copy_model(backbone, inputs=keras.Input(input_shape, name="image"))
