"""Local response normalization across channels, as in GoogLeNet."""

from typing import Any

from keras import ops

from keras_dml.utils.serialization import SerializableLayer, register
from keras_dml.utils.types import Shape, Tensor


@register
class LocalResponseNormalization(SerializableLayer):
    """Normalizes each activation by the energy of neighboring channels.

    y_c = x_c / (k + α/n · Σ x_j²)^β, with the sum over the n channels around c
    (fewer at the ends). Squares are computed in float32, whatever the dtype
    policy, because they overflow in float16.

    Args:
        size: Number of channels in the neighborhood, n; odd.
        alpha: α, divided by n as in Caffe and PyTorch.
        beta: β.
        bias: k.
        **kwargs: Passed to `keras.layers.Layer`.

    Call arguments:
        inputs: (B, ..., C).

    Returns:
        A tensor of the same shape.

    Raises:
        ValueError: If `size` is not odd and positive.

    Reference:
        Krizhevsky et al., "ImageNet Classification with Deep Convolutional
        Neural Networks", NeurIPS 2012, Sec. 3.3.
    """

    def __init__(
        self,
        size: int = 5,
        alpha: float = 1e-4,
        beta: float = 0.75,
        bias: float = 1.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if size < 1 or size % 2 == 0:
            raise ValueError(
                "`size` of LocalResponseNormalization must be an odd "
                f"positive integer. Received: size={size}."
            )
        self.size = size
        self.alpha = alpha
        self.beta = beta
        self.bias = bias
        self.built = True

    def call(self, inputs: Tensor) -> Tensor:
        x = ops.cast(inputs, "float32")
        channels = x.shape[-1]
        reach = self.size // 2
        sides = [(0, 0)] * (len(x.shape) - 1) + [(reach, reach)]
        squares = ops.pad(ops.square(x), sides)
        energy = sum(
            squares[..., shift : shift + channels] for shift in range(self.size)
        )
        scale = self.bias + self.alpha / self.size * energy
        return ops.cast(x * ops.power(scale, -self.beta), self.compute_dtype)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return input_shape
