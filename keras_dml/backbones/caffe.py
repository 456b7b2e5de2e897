"""Networks that were trained in Caffe: what they have in common."""

from typing import Any

import keras
from keras import layers, ops

from keras_dml.utils.serialization import SerializableLayer, register
from keras_dml.utils.types import Shape, Tensor


@register
class CaffePreprocessing(SerializableLayer):
    """RGB to BGR, less a mean of each channel.

    Args:
        mean: Means of blue, green and red.
        **kwargs: Passed to `keras.layers.Layer`.

    Call arguments:
        images: (B, H, W, 3), RGB, 0 to 255.

    Returns:
        (B, H, W, 3), BGR, centered.
    """

    def __init__(self, mean: tuple[float, float, float], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.mean = tuple(mean)
        self.built = True

    def call(self, images: Tensor) -> Tensor:
        mean = ops.convert_to_tensor(self.mean, dtype=images.dtype)
        return ops.flip(images, axis=-1) - mean

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return input_shape


def image_input(
    input_shape: tuple[int, int, int], mean: tuple[float, float, float]
) -> tuple[keras.KerasTensor, keras.KerasTensor]:
    """The input of a network, and what preprocessing makes of it."""
    inputs = keras.Input(input_shape, name="image")
    return inputs, CaffePreprocessing(mean, name="preprocessing")(inputs)


def halving_max_pool(x: Tensor, name: str, size: int = 3) -> Tensor:
    """Max pooling with stride 2 whose output size is rounded up.

    Caffe, and PyTorch with `ceil_mode`, let the last window hang over the
    edge. Padding with zeros does the same to activations that are not
    negative, and where the last window fits it is not looked at.
    """
    x = layers.ZeroPadding2D(((0, 1), (0, 1)), name=f"{name}_pad")(x)
    return layers.MaxPooling2D(size, strides=2, name=name)(x)
