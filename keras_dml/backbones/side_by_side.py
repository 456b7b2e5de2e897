"""Several backbones as one, with their features side by side."""

from collections.abc import Sequence

import keras

from keras_dml.layers import FeaturePooling
from keras_dml.utils.models import input_like
from keras_dml.utils.types import Pooling


def side_by_side(
    models: Sequence[keras.Model], name: str, pooling: Pooling | None = None
) -> keras.Model:
    """One model from the input of several to all of their features.

    The models keep their layers and weights. A connection between them does
    not exist.

    Args:
        models: Functional or sequential models with different names that take
            the same inputs.
        name: Name of the new model.
        pooling: How the features of each model are pooled, with weights of its
            own if there are any; see `layers.FeaturePooling`. None leaves them
            as they are: their shapes may differ only in the channels.

    Returns:
        A functional model. Its features are those of the models, concatenated
        along the channels: (B, …, K·C).
    """
    first = models[0]
    is_sequential = isinstance(first, keras.Sequential)
    given = first.inputs[0] if is_sequential else first.input
    inputs = keras.tree.map_structure(input_like, given)
    features = []
    for k, model in enumerate(models):
        x = model(inputs)
        if pooling is not None:
            x = FeaturePooling(pooling, name=f"pool_{k}")(x)
        features.append(x)
    outputs = keras.layers.Concatenate(name="side_by_side")(features)
    return keras.Model(inputs, outputs, name=name)
