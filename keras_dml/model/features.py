"""Features of a backbone, computed or given instead, turned into outputs."""

from typing import Any
from weakref import WeakKeyDictionary

import keras

from keras_dml.data.feature_set import MASK, features_key, layer_of
from keras_dml.model.head import Head
from keras_dml.utils.models import upper_part
from keras_dml.utils.types import Tensor, Tensors

_upper_parts: WeakKeyDictionary[keras.Model, dict[str, keras.Model]] = (
    WeakKeyDictionary()
)
"""Parts of backbones, by the layer behind which they begin.

Not attributes of a model: Keras would track and save their layers twice.
"""


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
        inputs: Inputs of the backbone, or features that replace its output or
            that of one of its layers.
        training: Whether this is a training step.
        frozen: Whether the backbone runs in inference mode even then.
    """
    features = backbone_features(backbone, inputs, training and not frozen)
    given = isinstance(inputs, dict) and MASK in inputs
    # A head of a user's own may not know of masks.
    masks = {"mask": inputs[MASK]} if given else {}
    outputs: Tensors = head(features, training=training, **masks)
    return outputs


def backbone_features(
    backbone: keras.Model, inputs: Any, training: bool = False
) -> Tensor:
    """The output of a backbone for inputs, or for a batch of a `FeatureSet`.

    What a `FeatureSet` holds is not computed again.
    """
    key = features_key(inputs)
    if key is None:
        return backbone(inputs, training=training)
    layer = layer_of(key)
    if layer is None:
        return inputs[key]
    parts = _upper_parts.setdefault(backbone, {})
    if layer not in parts:
        parts[layer] = upper_part(backbone, layer)
    return parts[layer](inputs[key], training=training)


def freeze_positions(model: keras.Model) -> None:
    """Excludes the position embeddings of a KerasHub DINO from training.

    KerasHub saves trained position embeddings only if their sum has decreased.
    Files do not record that a variable is not trainable, so loaded models need
    this as well.
    """
    for v in model.weights:
        if v.name == "interpolated_position_embeddings":
            v.trainable = False
