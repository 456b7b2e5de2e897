"""Copies of a backbone with frozen statistics or another input shape."""

import keras

from keras_dml.layers import FrozenBatchNormalization
from keras_dml.layers.model_copy import copy_model


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


def with_input_shape(
    backbone: keras.Model, input_shape: tuple[int, int, int]
) -> keras.Model:
    """A copy of a functional model that takes images of another size."""
    return copy_model(backbone, inputs=keras.Input(input_shape, name="image"))
