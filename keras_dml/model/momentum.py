"""MomentumEncoder: a running average of a backbone and a head."""

from typing import Any

import keras
from keras import ops

from keras_dml.data.feature_set import are_features
from keras_dml.model.embedding_model import head_outputs
from keras_dml.model.head import Head
from keras_dml.utils.models import copy_model
from keras_dml.utils.types import Shape, Tensor, Tensors


class MomentumEncoder(keras.layers.Layer):
    """A copy of backbone and head that follows them slowly.

    After every step, the parameters change as φ* ← μ φ* + (1 − μ) φ. The copy
    always runs in inference mode, passes no gradient, is saved with the model,
    and is not exported.

    Args:
        backbone: The backbone to follow, built.
        head: The head to follow, built.
        ema_momentum: μ, in [0, 1].
        copy_statistics: Whether to also copy weights that gradients do not
            train, namely the moving statistics of batch normalization, without
            averaging.
        scale: Sides of the images that the copy sees, relative to those of the
            backbone, in [0.5, 1]. They are resized bilinearly; at 0.5, each
            pixel is the mean of 2 × 2. The same weights see things at another
            size, and a convolutional network does `scale`² of the operations.
        **kwargs: Passed to `keras.layers.Layer`.

    Call arguments:
        images: (B, H, W, C), or features of a `data.FeatureSet`, which are
            used as they are.

    Returns:
        The outputs of the head, with "momentum_" before each name.

    Raises:
        ValueError: If `ema_momentum` or `scale` is out of range, or the
            backbone or the head cannot take images of another size.

    Deviations:
        - In the paper, the copy sees images of the same size: `scale` 1.

    Reference:
        He et al., "Momentum Contrast for Unsupervised Visual
        Representation Learning", CVPR 2020, Eq. 2.
    """

    def __init__(
        self,
        backbone: keras.Model,
        head: Head,
        ema_momentum: float,
        copy_statistics: bool = False,
        scale: float = 1.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.ema_momentum = ema_momentum
        self.copy_statistics = copy_statistics
        self.scale = scale
        self.backbone, self.head = self._copy_parts(backbone, head)
        self.trainable = False
        self.built = True

    def _copy_parts(
        self, backbone: keras.Model, head: Head
    ) -> tuple[keras.Model, Head]:
        if self.scale == 1:
            network = keras.models.clone_model(backbone)
            network.set_weights(backbone.get_weights())
            return network, _copy_head(head, backbone.output_shape)
        try:
            inputs = keras.Input(
                scaled_shape(backbone.input_shape, self.scale),
                dtype=backbone.inputs[0].dtype,
                name="image",
            )
            network = copy_model(backbone, inputs=inputs)
            return network, _copy_head(head, network.output_shape)
        except (TypeError, ValueError) as error:
            raise ValueError(
                "`momentum_scale` of MetricModel requires a backbone and a "
                "head whose weights do not depend on the size of images, such "
                "as those of a convolutional network with global pooling. "
                f"Received: momentum_scale={self.scale!r} and the backbone "
                f"{backbone.name!r} with inputs of {backbone.input_shape}. Use "
                "momentum_scale=1.0."
            ) from error

    def call(self, images: Tensor) -> Tensors:
        if self.scale != 1 and not are_features(images):
            images = ops.image.resize(
                ops.cast(images, "float32"),
                scaled_shape(images.shape, self.scale)[:2],
                data_format="channels_last",
            )
        outputs = head_outputs(self.backbone, self.head, images)
        return {
            f"momentum_{name}": ops.stop_gradient(value)
            for name, value in outputs.items()
        }

    def update(self, backbone: keras.Model, head: Head) -> None:
        """Moves the copy one step towards the backbone and the head."""
        for copy, model in ((self.backbone, backbone), (self.head, head)):
            for average, new in zip(copy.weights, model.weights, strict=True):
                if new.trainable:
                    # This form leaves equal weights exactly equal.
                    step = (1 - self.ema_momentum) * (new - average)
                    average.assign_add(step)
                elif self.copy_statistics:
                    average.assign(new)


def _copy_head(head: Head, features_shape: Shape) -> Head:
    copy = type(head).from_config(head.get_config())
    if not copy.built:
        copy.build(features_shape)
    copy.set_weights(head.get_weights())
    return copy


def scaled_shape(shape: Shape, scale: float) -> Shape:
    """(H, W, C) of scaled images, given (B, H, W, C)."""
    if len(shape) != 4:
        raise ValueError(f"{shape} is not the shape of images.")
    _, height, width, channels = shape
    sides = (side and round(scale * side) for side in (height, width))
    return (*sides, channels)
