"""Features, computed by a backbone or given in its place, to outputs."""

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
    """What a head makes of inputs, or of the features of a `FeatureSet`.

    Args:
        backbone: From inputs to features.
        head: From features to outputs.
        inputs: What the backbone takes, or features in place of it.
        training: Whether this is a step of training.
        frozen: Whether the backbone is as in a test all the same.
    """
    if not are_features(inputs):
        features = backbone(inputs, training=training and not frozen)
        outputs: Tensors = head(features, training=training)
        return outputs
    # A head of a user's own may not know of masks.
    masks = {"mask": inputs[MASK]} if MASK in inputs else {}
    outputs = head(inputs[FEATURES], training=training, **masks)
    return outputs
