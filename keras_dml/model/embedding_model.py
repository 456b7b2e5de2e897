"""EmbeddingModel: backbone and head as one Keras model."""

import os
from typing import Any

import keras

from keras_dml.model.encoder import plain_encoder
from keras_dml.model.features import freeze_positions, head_outputs
from keras_dml.model.head import Head
from keras_dml.utils.types import Shape, Tensor, Tensors


class EmbeddingModel(keras.Model):
    """The part of `MetricModel` that embeds.

    It behaves like a functional model from inputs to unit embeddings: it is
    built, has symbolic inputs and outputs, and can be exported and quantized.

    Args:
        backbone: Model from inputs to features.
        head: Layer from features to named outputs.
        **kwargs: Passed to `keras.Model`.

    Call arguments:
        inputs: Inputs of the backbone, or features of a `data.FeatureSet`.

    Returns:
        Unit embeddings, (B, D), float32.
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
        self._output: Any = None  # Made when asked for.

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
        # Those that are there compute with the weights that were.
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
        # A frozen backbone is as in a test: its dropout, too, is off.
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
        return plain_encoder(self.backbone, self.head)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        features_shape = self.backbone.compute_output_shape(input_shape)
        shapes = self.head.compute_output_shape(features_shape)
        shape: Shape = shapes["embedding"]
        return shape
