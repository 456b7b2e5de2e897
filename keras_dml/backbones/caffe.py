"""Common parts of networks that were trained in Caffe."""

from typing import Any

import keras
from keras import layers, ops

from keras_dml.utils.serialization import SerializableLayer, register
from keras_dml.utils.types import Shape, Tensor


@register
class CaffePreprocessing(SerializableLayer):
    """Converts RGB to BGR and subtracts the mean of each channel.

    Args:
        mean: Means of blue, green and red, in this order.
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
    """The input of a network, and the preprocessed input."""
    inputs = keras.Input(input_shape, name="image")
    return inputs, CaffePreprocessing(mean, name="preprocessing")(inputs)


def halving_max_pool(x: Tensor, name: str, size: int = 3) -> Tensor:
    """Max pooling with stride 2 whose output size is rounded up.

    In Caffe, and in PyTorch with `ceil_mode`, the last window may extend past
    the edge. For activations that are not negative, padding with zeros is
    equivalent. If the last window fits, the padding is not used.
    """
    x = layers.ZeroPadding2D(((0, 1), (0, 1)), name=f"{name}_pad")(x)
    return layers.MaxPooling2D(size, strides=2, name=name)(x)
