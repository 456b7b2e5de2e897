"""Features, computed by a backbone or given instead, turned into outputs."""

from typing import Any

import keras

from keras_dml.data.feature_set import FEATURES, MASK, are_features
from keras_dml.model.head import Head
from keras_dml.utils.types import Tensors


def head_outputs(
    backbone: keras.Model,
    head: Head,
    inputs: Any,
    training: bool = False,
    frozen: bool = False,
) -> Tensors:
    """The outputs of a head for inputs, or for features of a `FeatureSet`.

    Args:
        backbone: Model from inputs to features.
        head: Layer from features to outputs.
        inputs: Inputs of the backbone, or features that replace its output.
        training: Whether this is a training step.
        frozen: Whether the backbone runs in inference mode even then.
    """
    if not are_features(inputs):
        features = backbone(inputs, training=training and not frozen)
        outputs: Tensors = head(features, training=training)
        return outputs
    # A head of a user's own may not know of masks.
    masks = {"mask": inputs[MASK]} if MASK in inputs else {}
    outputs = head(inputs[FEATURES], training=training, **masks)
    return outputs
