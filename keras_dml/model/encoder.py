"""Encoder: a backbone and a head as one plain functional model."""

from typing import Any

import keras
from keras import ops

from keras_dml.model.head import Head
from keras_dml.utils.models import input_like


def plain_encoder(backbone: keras.Model, head: Head) -> keras.Model:
    """Returns the functional model from inputs to unit embeddings.

    Keras layers are shared. The computations of the head are recorded as
    operations of `keras.ops`, with bit-identical results, and so are those of
    this package's layers without weights, such as preprocessing: Keras saves
    and loads operations on its own. This package's layers with weights are
    kept, and so are heads with custom gradients.

    Args:
        backbone: A functional or sequential model.
        head: A built head.
    """
    masks: dict[int, Any] = {}
    if isinstance(backbone, keras.Sequential):
        # Keras copies these layer by layer, without `call_function`.
        backbone = keras.Model(backbone.inputs[0], backbone.outputs[0])

    def call(layer: Any, *args: Any, **kwargs: Any) -> Any:
        if not _is_ours(layer) or layer.weights:
            return layer(*args, **kwargs)
        outputs = layer.call(*args, **kwargs)
        if layer.supports_masking:
            given = keras.tree.map_structure(_mask_of, args[0])
            masks[id(outputs)] = layer.compute_mask(args[0], given)
        return outputs

    copy = keras.models.clone_model(
        backbone, clone_function=lambda layer: layer, call_function=call
    )
    (features,) = copy.outputs
    mask = masks.get(id(features), _mask_of(features))
    inputs = copy.input
    names = {operation.name for operation in copy.operations}
    if names & {layer.name for layer in head._flatten_layers()}:
        # Names in a model differ: the backbone becomes a model within.
        inputs = keras.tree.map_structure(input_like, inputs)
        both = {"features": features} | ({} if mask is None else {"mask": mask})
        found = keras.Model(copy.input, both, name="backbone")(inputs)
        features, mask = found["features"], found.get("mask")
    if features.dtype != head.compute_dtype:
        features = ops.cast(features, head.compute_dtype)
    try:
        outputs = (
            _traced(head, features, mask) if head.is_plain else head(features)
        )
    except (TypeError, ValueError):
        # Some of what it computes is no operation of Keras, such as a
        # gradient of its own, or needs a size that is not known: the head
        # stays a layer of this package.
        outputs = head(features)
    return keras.Model(inputs, outputs["embedding"], name="encoder")


def _traced(head: Head, features: Any, mask: Any) -> Any:
    """The outputs of a head, whose operations become those of the model."""
    if type(head).call is not Head.call:
        masks = {} if mask is None else {"mask": mask}
        return head.call(features, **masks)
    pooling = head.feature_pooling
    # A trained power is a weight, which its layer has to own.
    owns = bool(pooling.weights)
    pool = pooling if owns else pooling.call
    return head.embed(pool(features, mask=mask))


def _is_ours(layer: Any) -> bool:
    return type(layer).__module__.partition(".")[0] == "keras_dml"


def _mask_of(tensor: Any) -> Any:
    return getattr(tensor, "_keras_mask", None)
