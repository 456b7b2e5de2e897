"""EmbeddingModel: backbone and head as one Keras model."""

import os
from typing import Any
from weakref import WeakKeyDictionary

import keras
from keras import ops

from keras_dml.data.feature_set import MASK, features_key, layer_of
from keras_dml.model.head import Head
from keras_dml.utils.models import input_like, upper_part
from keras_dml.utils.types import Shape, Tensor, Tensors

_upper_parts: WeakKeyDictionary[keras.Model, dict[str, keras.Model]] = (
    WeakKeyDictionary()
)
"""Parts of backbones, by the layer behind which they begin.

Not attributes of a model: Keras would track and save their layers twice.
"""


class EmbeddingModel(keras.Model):
    """The part of `MetricModel` that embeds.

    It behaves like a functional model from inputs to unit embeddings: it is
    built, has symbolic inputs and outputs, and can be exported and quantized.
    """

    def __init__(
        self, backbone: keras.Model, head: Head, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.backbone = backbone
        freeze_positions(backbone)
        self.head = head
        if not head.built:
            head.build(backbone.output_shape)
        self.head.built = self.built = True
        self._output: Any = None  # Created at first use.

    @property
    def input_shape(self) -> Shape:
        """Shape of the images, (None, H, W, C)."""
        shape: Shape = self.backbone.input_shape
        return shape

    @property
    def input(self) -> Any:
        """The symbolic input of the backbone."""
        if isinstance(self.backbone, keras.Sequential):
            return self.backbone.inputs[0]
        return self.backbone.input

    @property
    def inputs(self) -> list[keras.KerasTensor]:
        """All symbolic inputs."""
        return list(self.backbone.inputs)

    @property
    def output(self) -> keras.KerasTensor:
        """The symbolic unit embedding.

        Together with `input`, it defines functional models that share layers
        with this one: `keras.Model(model.input, model.output)`.
        """
        if self._output is None:
            self._output = self.outputs_of(self.input)["embedding"]
        return self._output

    @property
    def outputs(self) -> list[keras.KerasTensor]:
        """The only symbolic output, as a list."""
        return [self.output]

    def export(self, filepath: Any, *args: Any, **kwargs: Any) -> None:
        """Exports the mapping from inputs to unit embeddings.

        See `keras.Model.export`. Parts that only training needs, the objective
        and a momentum encoder, are not exported.
        """
        encoder = keras.Model(self.input, self.output, name=self.name)
        encoder(self.input)  # Keras exports to ONNX only what was called.
        # Keras exports to OpenVINO only to a string.
        encoder.export(os.fspath(filepath), *args, **kwargs)

    def quantize(self, mode: Any = None, *args: Any, **kwargs: Any) -> None:
        """Quantizes the backbone; see `keras.Model.quantize`.

        The head is not quantized: it is small compared with the backbone, and
        Keras does not save the information that its layers were quantized.
        """
        self.backbone.quantize(mode, *args, **kwargs)
        # Existing functions compute with the weights before quantization.
        self.train_function = None
        self.test_function = None
        self.predict_function = None

    def call(self, inputs: Tensor, training: bool = False) -> Tensor:
        return self.outputs_of(inputs, training=training)["embedding"]

    def outputs_of(
        self, inputs: Tensor | Tensors, training: bool = False
    ) -> Tensors:
        """Returns all outputs of the head by name, including `"embedding"`.

        Batches of a `data.FeatureSet` bypass the backbone.
        """
        # A frozen backbone runs in inference mode, without dropout.
        frozen = not self.backbone.trainable
        return head_outputs(self.backbone, self.head, inputs, training, frozen)

    @property
    def embedding_head(self) -> Head:
        """The head, where Keras's files have its weights.

        Keras saves what it meets first, in alphabetical order. In `encoder`,
        the places of the head's layers depend on names that Keras numbers, so
        another model of the same program could not load its weights.
        """
        return self.head

    @property
    def encoder(self) -> keras.Model:
        """The plain functional model from inputs to unit embeddings.

        It shares its layers, and therefore its weights, with this model, and
        contains nothing that only training needs. If backbone and head consist
        of Keras layers, it can be saved and loaded without this package.
        """
        # Two encoders in one model need different names.
        return plain_encoder(self.backbone, self.head, f"{self.name}_encoder")

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        features_shape = self.backbone.compute_output_shape(input_shape)
        shapes = self.head.compute_output_shape(features_shape)
        shape: Shape = shapes["embedding"]
        return shape


def head_outputs(
    backbone: keras.Model,
    head: Head,
    inputs: Any,
    training: bool = False,
    frozen: bool = False,
) -> Tensors:
    """The outputs of a head for inputs, or for features of a `FeatureSet`.

    A `frozen` backbone runs in inference mode even in training.
    """
    features = backbone_features(backbone, inputs, training and not frozen)
    has_mask = isinstance(inputs, dict) and MASK in inputs
    # A user's own head may not take masks.
    masks = {"mask": inputs[MASK]} if has_mask else {}
    outputs: Tensors = head(features, training=training, **masks)
    return outputs


def backbone_features(
    backbone: keras.Model, inputs: Any, training: bool = False
) -> Tensor:
    """The output of a backbone for inputs, or features of a `FeatureSet`."""
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

    KerasHub saves trained ones only if their sum has decreased. Files do not
    record what is trainable, so loaded models need this as well.
    """
    for v in model.weights:
        if v.name == "interpolated_position_embeddings":
            v.trainable = False


def plain_encoder(
    backbone: keras.Model, head: Head, name: str = "encoder"
) -> keras.Model:
    """The functional model from inputs to unit embeddings.

    Keras layers are shared. The computations of the head are recorded as
    operations of `keras.ops`, with bit-identical results, and so are those of
    this package's layers without weights, such as preprocessing: Keras saves
    and loads operations on its own. This package's layers with weights are
    kept, and so are heads with custom gradients.
    """
    masks: dict[int, Any] = {}
    if isinstance(backbone, keras.Sequential):
        # Keras copies these layer by layer, without `call_function`.
        backbone = keras.Model(backbone.inputs[0], backbone.outputs[0])

    def call(layer: Any, *args: Any, **kwargs: Any) -> Any:
        is_ours = type(layer).__module__.partition(".")[0] == "keras_dml"
        if not is_ours or layer.weights:
            return layer(*args, **kwargs)
        outputs = layer.call(*args, **kwargs)
        if layer.supports_masking:
            input_masks = keras.tree.map_structure(_mask_of, args[0])
            masks[id(outputs)] = layer.compute_mask(args[0], input_masks)
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
        parts = keras.Model(copy.input, both, name="backbone")(inputs)
        features, mask = parts["features"], parts.get("mask")
    if features.dtype != head.compute_dtype:
        features = ops.cast(features, head.compute_dtype)
    try:
        outputs = (
            _trace(head, features, mask) if head.is_plain else head(features)
        )
    except (TypeError, ValueError):
        # The head computes something that is no operation of Keras, such as a
        # custom gradient, or needs an unknown size: it stays a layer.
        outputs = head(features)
    return keras.Model(inputs, outputs["embedding"], name=name)


def _trace(head: Head, features: Any, mask: Any) -> Any:
    """The outputs of a head, whose operations become those of the model."""
    if type(head).call is not Head.call:
        masks = {} if mask is None else {"mask": mask}
        return head.call(features, **masks)
    pooling = head.feature_pooling
    # A trained power is a weight, which its layer has to own.
    owns = bool(pooling.weights)
    pool = pooling if owns else pooling.call
    return head.embed(pool(features, mask=mask))


def _mask_of(tensor: Any) -> Any:
    return getattr(tensor, "_keras_mask", None)
